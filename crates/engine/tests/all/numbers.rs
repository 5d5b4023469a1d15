//! Inode numbers are never used twice.
//!
//! The next number came from what recovery had replayed. What a crash took away had numbers too, and
//! whoever had seen one (in a file handle that NFS or CRIU keeps, in the unique id of a database's
//! file) found the file of somebody else under it.

use std::collections::BTreeSet;
use std::sync::Arc;

use persimmon_engine::{Error, Intent, Options, Task, Volume};
use persimmon_format::Ino;
use persimmon_format::inode::Inode;
use persimmon_sim::{Fault, FaultTarget, SimConfig, SimDevice};

use crate::common::{create, fresh, open, small};

/// What any volume of this format may have given out before it writes a record.
const LOT: u64 = 1 << 16;

/// Makes so many files, in transactions of a hundred.
fn create_many(volume: &Volume, count: u64) -> Result<Vec<Ino>, Error> {
    let mut all = Vec::new();
    while (all.len() as u64) < count {
        let some = volume.update::<_, Error>(Intent::Grow, |tx| {
            let inos: Vec<Ino> = (0..100).map(|_| tx.new_ino()).collect();
            for ino in &inos {
                tx.put_inode(*ino, &Inode::default());
            }
            Ok(inos)
        })?;
        all.extend(some);
    }
    Ok(all)
}

/// What a power cut leaves now.
fn cut(device: &SimDevice, seed: u64) -> Arc<SimDevice> {
    device.cut();
    Arc::new(device.persisted(seed))
}

fn configs() -> [SimConfig; 3] {
    [small(), small().volatile_cache(), small().host_file()]
}

#[test]
fn no_number_comes_again_after_any_chain_of_crashes() {
    for (config, seed) in configs().into_iter().zip([1, 1000, 2000]) {
        let mut device = fresh(config);
        let mut seen = BTreeSet::new();
        for round in 0..60u64 {
            let volume = open(&device);
            for i in 0..=round % 5 {
                let ino = create(&volume).unwrap();
                assert!(seen.insert(ino), "{ino} is given out again, round {round}");
                if i == round % 7 {
                    volume.sync().unwrap();
                }
                if round % 11 == 3 {
                    volume.step(Task::Checkpoint).unwrap();
                }
            }
            device = cut(&device, seed + round);
        }
        assert_eq!(seen.len(), 180);
    }
}

/// The same where the power goes at any command of the mount or of the first files made.
#[test]
fn no_number_comes_again_after_a_crash_in_recovery() {
    for (config, seed) in configs().into_iter().zip([1, 1000, 2000]) {
        let mut device = fresh(config);
        let mut seen = BTreeSet::new();
        for round in 0..120u64 {
            device.cut_after(round % 13);
            let make = || -> Result<(), Error> {
                let (volume, _) = Volume::open(device.clone(), Options::default())?;
                for i in 0..4 {
                    let ino = create(&volume)?;
                    assert!(seen.insert(ino), "{ino} is given out again, round {round}");
                    if i == round % 4 {
                        volume.sync()?;
                    }
                }
                Ok(())
            };
            // The power may be gone.
            let _ = { make }();
            device = cut(&device, seed + round);
        }
        assert!(seen.len() > 100, "{} numbers", seen.len());
    }
}

/// A lot that is used up is followed by another, of which the device has to know first.
#[test]
fn no_number_comes_again_when_lots_are_used_up() {
    let mut device = fresh(SimConfig::new(64, 1024));
    let mut seen = BTreeSet::new();
    for round in 0..3 {
        let volume = open(&device);
        for ino in create_many(&volume, LOT * 3 / 2).unwrap() {
            assert!(seen.insert(ino), "{ino} is given out again, round {round}");
        }
        device = cut(&device, round);
    }
}

/// While half of a lot is left the next is taken along with a file that is made: nobody waits for that.
#[test]
fn a_lot_is_waited_for_once() {
    let device = fresh(SimConfig::new(64, 1024));
    let volume = open(&device);
    let commits = || volume.statistics().commits;
    let before = commits();
    create(&volume).unwrap();
    assert_eq!(commits() - before, 1, "the first lot of a mount");
    for _ in 0..4 {
        create_many(&volume, LOT / 2).unwrap();
        volume.sync().unwrap();
        let before = commits();
        create(&volume).unwrap();
        assert_eq!(commits(), before);
    }
}

/// A number that a device could not be told of is shown to nobody.
#[test]
fn a_number_is_not_given_out_before_its_lot_is_durable() {
    let device = fresh(small().volatile_cache());
    let volume = open(&device);
    device.inject(Fault::once(FaultTarget::Flush));
    create(&volume).unwrap_err();
}

#[test]
fn a_mount_that_reads_takes_no_numbers() {
    let device = fresh(small());
    let volume = open(&device);
    create(&volume).unwrap();
    volume.close().unwrap();
    drop(volume);
    let options = || Options {
        read_only: true,
        ..Options::default()
    };
    let next = |options| {
        let (volume, _) = Volume::open(device.clone(), options).unwrap();
        volume.view::<_, Error>(|view| Ok(view.next_ino())).unwrap()
    };
    let before = device.image_hash();
    let first = next(options());
    assert_eq!(next(options()), first);
    assert_eq!(device.image_hash(), before);
    assert_eq!(next(Options::default()), first);
}
