//! A thread that panics in the midst of a change. Nothing half done reaches the device, nobody waits for ever, and all
//! others are told.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test from top to bottom"
)]

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use persimmon::{Filesystem, OpenOptions, Options};
use persimmon_crash::filesystem::Filesystem as Simulated;
use persimmon_crash::harness::System;
use persimmon_device::{Command, Geometry, Pending, ZoneInfo, ZonedDevice};
use persimmon_engine::faults::{Fault, make};
use persimmon_engine::{Error, Task, Volume};
use persimmon_sim::{Fault as DeviceFault, FaultTarget, SimConfig, SimDevice};

/// Nobody waits so long but for ever: a test that would hang fails instead.
const FOR_EVER: Duration = Duration::from_secs(120);

fn volume() -> (Arc<SimDevice>, Filesystem) {
    let device = Arc::new(SimDevice::new(SimConfig::new(64, 256).volatile_cache()));
    Simulated.format(&device, 1).unwrap();
    let fs = open(&device);
    (device, fs)
}

fn open(device: &Arc<SimDevice>) -> Filesystem {
    let options = Options {
        commit_interval: Duration::from_millis(5),
        ..Options::default()
    };
    Filesystem::open_on(Arc::clone(device) as _, &options).unwrap()
}

fn errno<T: std::fmt::Debug>(result: persimmon::Result<T>) -> i32 {
    let error = result.unwrap_err();
    error
        .filesystem()
        .unwrap_or_else(|| panic!("{error}"))
        .errno()
}

/// A thread panics with this mistake in it.
fn panics(mistake: Fault, work: impl FnOnce()) {
    make(Some(mistake));
    let panicked = catch_unwind(AssertUnwindSafe(work)).is_err();
    make(None);
    assert!(panicked);
}

/// `PoisonError::into_inner` handed the tree on as it was when the holder of its lock panicked: with a name gone whose inode
/// had not lost the link yet. The next transaction worked on that, its record was logged, and a checkpoint wrote the pages.
#[test]
fn a_change_that_a_panic_cut_short_never_becomes_durable() {
    let (device, fs) = volume();
    fs.create_dir("/d").unwrap();
    fs.write("/d/a", b"a").unwrap();
    fs.write("/d/b", b"b").unwrap();
    fs.sync().unwrap();
    let panicked = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..3 {
            let (fs, panicked) = (&fs, &panicked);
            scope.spawn(move || {
                // Until it is refused. What began before the panic may have succeeded.
                for turn in 0.. {
                    let after = panicked.load(Ordering::SeqCst);
                    let made = fs.create_dir(format!("/{number}-{turn}"));
                    if after || made.is_err() {
                        assert_eq!(errno(made), libc::EROFS);
                        break;
                    }
                }
            });
        }
        panics(Fault::PanicHalfWay, || fs.rename("/d/a", "/d/b").unwrap());
        panicked.store(true, Ordering::SeqCst);
    });
    let sent = device.counters().changes();
    assert_eq!(errno(fs.write("/d/c", b"c")), libc::EROFS);
    assert_eq!(errno(fs.remove_file("/d/b")), libc::EROFS);
    assert_eq!(errno(fs.set_xattr("/d", "user.k", b"v")), libc::EROFS);
    // What was made before the panic and is not durable cannot become so: that is told, too.
    let _ = fs.sync();
    assert!(fs.vfs().volume().step(Task::Checkpoint).is_err());
    drop(fs.close());
    let after = device.counters().changes();
    assert_eq!(
        after, sent,
        "something was sent to the device after the panic"
    );

    Simulated.check(&device).unwrap();
    let fs = open(&device);
    assert_eq!(fs.read("/d/a").unwrap(), b"a");
    assert_eq!(fs.read("/d/b").unwrap(), b"b");
    fs.write("/d/c", b"c").unwrap();
    fs.close().unwrap();
    Simulated.check(&device).unwrap();
}

/// Who leads a batch of the log has its turn, not its lock: a panic there left the turn taken, and every sync after it waited
/// for ever.
#[test]
fn nobody_waits_for_a_leader_of_the_log_that_panicked() {
    let (device, fs) = volume();
    fs.write("/a", b"a").unwrap();
    fs.sync().unwrap();
    let fs = Arc::new(fs);
    let (over, ended) = mpsc::channel();
    let options = OpenOptions::new().append(true).create(true);
    let panicked = Arc::new(AtomicBool::new(false));
    for number in 0..3 {
        let (fs, over, panicked) = (Arc::clone(&fs), over.clone(), Arc::clone(&panicked));
        std::thread::spawn(move || {
            let file = fs.open_file(format!("/log-{number}"), &options);
            let file = match file {
                Ok(file) => file,
                Err(error) => return over.send(error.to_string()),
            };
            loop {
                let after = panicked.load(Ordering::SeqCst);
                let synced = file.write_at(b"line", 0).and_then(|()| file.sync_all());
                match synced {
                    Err(error) => break over.send(error.to_string()),
                    Ok(()) if after => break over.send("acknowledged".to_owned()),
                    Ok(()) => {}
                }
            }
        });
    }
    // It has to be the leader itself.
    let leads = AtomicBool::new(false);
    while !leads.load(Ordering::SeqCst) {
        make(Some(Fault::PanicInLog));
        let led = catch_unwind(AssertUnwindSafe(|| {
            let file = fs.open_file("/a", &OpenOptions::new().write(true));
            file.and_then(|file| {
                file.write_at(b"b", 0)?;
                file.sync_all()
            })
        }));
        make(None);
        leads.store(led.is_err(), Ordering::SeqCst);
    }
    panicked.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        let why = ended
            .recv_timeout(FOR_EVER)
            .expect("somebody waits for ever");
        assert_ne!(why, "acknowledged");
    }
    drop(fs);
    Simulated.check(&device).unwrap();
    assert!(open(&device).exists("/a"));
}

/// What was on its way when the thread panicked that wrote it counted as written: the next sync of the file, by another, was
/// answered as if it were durable.
#[test]
fn what_was_on_its_way_when_a_thread_panicked_is_not_taken_for_written() {
    let (device, fs) = volume();
    let old = vec![1; 300_000];
    fs.write("/a", &old).unwrap();
    fs.sync().unwrap();
    let file = fs.open_file("/a", &OpenOptions::new().write(true).read(true));
    let file = file.unwrap();
    file.write_at(&[2; 300_000], 0).unwrap();
    panics(Fault::PanicHalfWay, || file.sync_all().unwrap());
    assert!(file.sync_all().is_err(), "it is not durable");
    let volume = fs.vfs().volume();
    assert!(volume.sync_file(file.ino()).is_err(), "nor to the engine");
    assert!(volume.close().is_err());
    let mut found = vec![0; 300_000];
    file.read_at(&mut found, 0).unwrap();
    assert_eq!(found, [2; 300_000], "it is still there to be read");
    drop(file);
    drop(fs);
    Simulated.check(&device).unwrap();
    assert_eq!(open(&device).read("/a").unwrap(), old);
}

/// A device that makes a thread panic half way through its next change once it has sent a block of the journal.
struct AfterJournal {
    device: Arc<SimDevice>,
    armed: AtomicBool,
}

impl ZonedDevice for AfterJournal {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn report(&self, zones: Range<u32>) -> persimmon_device::Result<Vec<ZoneInfo>> {
        self.device.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        let is_journal = match &command {
            Command::Write { data, .. } | Command::Append { data, .. } => {
                let len: usize = data.iter().map(|buffer| buffer.len()).sum();
                len == persimmon_device::BLOCK_SIZE
            }
            _ => false,
        };
        if is_journal && self.armed.swap(false, Ordering::SeqCst) {
            make(Some(Fault::PanicHalfWay));
        }
        self.device.submit(command)
    }
}

/// Synced data had failed, and the thread that was writing it elsewhere panicked: all others who wanted to be acknowledged waited
/// for it, for ever.
#[test]
fn nobody_waits_for_failed_data_whose_writer_panicked() {
    let sim = Arc::new(SimDevice::new(SimConfig::new(64, 256).volatile_cache()));
    Simulated.format(&sim, 1).unwrap();
    let device = Arc::new(AfterJournal {
        device: Arc::clone(&sim),
        armed: AtomicBool::new(false),
    });
    let (volume, _) = Volume::open(Arc::clone(&device) as _, Default::default()).unwrap();
    let volume = Arc::new(volume);
    let now = persimmon_format::inode::Timestamp::default();
    let ino = volume.update::<_, Error>(persimmon_engine::Intent::Grow, |tx| {
        let ino = tx.new_ino();
        let inode = persimmon_format::inode::Inode {
            mode: 0o100_644,
            nlink: 1,
            ..Default::default()
        };
        tx.put_inode(ino, &inode);
        Ok(ino)
    });
    let ino = ino.unwrap();
    volume.write(ino, 0, &[1; 300_000], now).unwrap();
    volume.sync_file(ino).unwrap();
    volume.write(ino, 0, &[2; 300_000], now).unwrap();
    sim.inject(DeviceFault::once(FaultTarget::Write));
    device.armed.store(true, Ordering::SeqCst);
    let synced = catch_unwind(AssertUnwindSafe(|| volume.sync_file(ino)));
    make(None);
    assert!(synced.is_err(), "{synced:?}");
    assert!(sim.has_failed());
    let (over, ended) = mpsc::channel();
    type Sync = fn(&Volume) -> Result<(), Error>;
    let syncs: [Sync; 3] = [
        |volume| volume.sync_metadata(),
        |volume| volume.sync(),
        |volume| volume.step(Task::Checkpoint).map(drop),
    ];
    for sync in syncs {
        let (volume, over) = (Arc::clone(&volume), over.clone());
        std::thread::spawn(move || over.send(sync(&volume).is_err()));
    }
    for _ in syncs {
        let refused = ended.recv_timeout(FOR_EVER);
        assert!(refused.expect("somebody waits for ever"));
    }
}
