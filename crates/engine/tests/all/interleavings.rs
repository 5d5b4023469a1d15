//! Bugs that need two things at once, each with its story: what one thread does while another
//! waits for the device is done here from within the device's own command.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failure ends the test"
)]

use std::sync::{Arc, Mutex};

use persimmon_device::Command;
use persimmon_engine::{
    Error, Intent, Layout, Options, Progress, Shift, Task, Transaction, Volume,
};
use persimmon_format::inode::Inode;
use persimmon_format::lifetime::Lifetime;
use persimmon_format::table::Role;
use persimmon_sim::{Fault, FaultTarget};

use crate::common::interrupted::Interrupted;
use crate::common::{NOW, create, fresh, noise, small};

fn open(device: &Arc<Interrupted>) -> Arc<Volume> {
    let options = Options {
        staging_bytes_max: 1 << 20,
        ..Options::default()
    };
    let (volume, _) = Volume::open(Arc::clone(device) as _, options).unwrap();
    Arc::new(volume)
}

/// Writes to a zone that is used for this now.
fn write_to(volume: &Arc<Volume>, role: Role) -> impl Fn(&Command) -> bool + Send + use<> {
    let volume = Arc::clone(volume);
    move |command| match command {
        Command::Write { zone, .. } => volume
            .zones()
            .iter()
            .any(|status| status.zone == *zone && status.entry.role == role),
        _ => false,
    }
}

/// A data zone was taken into use between a checkpoint's cut and its footer. The footer told of
/// it neither as a data zone nor, by a number read too late, as one taken into use since: recovery
/// took its header for that of a former life, and dropped what was synced into it.
#[test]
fn a_zone_opened_during_a_checkpoint_holds_what_is_synced() {
    for config in [small(), small().volatile_cache(), small().host_file()] {
        let sim = fresh(config);
        let device = Interrupted::new(&sim);
        let volume = open(&device);
        let ino = create(&volume).unwrap();
        volume.sync_metadata().unwrap();
        let aside = Arc::clone(&volume);
        device.before(
            write_to(&volume, Role::Metadata),
            Box::new(move || {
                aside.write(ino, 0, &[7; 4096], NOW).unwrap();
                aside.commit_file(ino).unwrap();
            }),
        );
        volume.step(Task::Checkpoint).unwrap();
        assert!(device.was_done());
        let bytes = noise(8, 4096);
        volume.write(ino, 8192, &bytes, NOW).unwrap();
        volume.sync_file(ino).unwrap();
        drop(volume);
        let volume = open(&Interrupted::new(&sim));
        for (offset, expected) in [(0, vec![7; 4096]), (8192, bytes)] {
            let mut buf = [0; 4096];
            assert_eq!(volume.read(ino, offset, &mut buf).unwrap(), 4096);
            assert_eq!(buf[..], expected);
        }
    }
}

/// A zone turned read-only while data that had arrived in it was in no record yet. A checkpoint of that moment found
/// nothing in it and retired it; a recovery took the record that came later, though acknowledged, for one whose data
/// had not arrived.
#[test]
fn a_failed_zone_is_not_retired_while_what_it_holds_enters_the_history() {
    let sim = fresh(small().volatile_cache());
    let device = Interrupted::new(&sim);
    let volume = open(&device);
    let files = [Lifetime::Short, Lifetime::Extreme].map(|told| (create(&volume).unwrap(), told));
    volume.sync_metadata().unwrap();
    let content = noise(4, 4 * 4096);
    for (ino, told) in files {
        volume
            .write_hinted(ino, 0, &content, NOW, Some(told))
            .unwrap();
    }
    let (aside, zones) = (Arc::clone(&volume), Arc::clone(&sim));
    let first_zone = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&first_zone);
    let is_of_second = move |command: &Command| match command {
        Command::Append { zone, .. } => *seen.lock().unwrap().get_or_insert(*zone) != *zone,
        _ => false,
    };
    let failing = Arc::clone(&first_zone);
    device.before(
        is_of_second,
        Box::new(move || {
            zones.set_read_only(failing.lock().unwrap().unwrap());
            aside.step(Task::Checkpoint).unwrap();
        }),
    );
    while volume.step(Task::WriteBack).unwrap() == Progress::Worked {}
    assert!(device.was_done());
    volume.sync_metadata().unwrap();
    for seed in 0..4 {
        let left = Arc::new(sim.persisted(seed));
        let recovered = open(&Interrupted::new(&left));
        for (ino, _) in files {
            let mut buf = vec![0; content.len()];
            assert_eq!(recovered.read(ino, 0, &mut buf).unwrap(), content.len());
            assert_eq!(buf, content);
        }
    }
}

/// Data of a synced batch failed after its first record was written; the transaction of its
/// second record waited for a checkpoint, which waited for this very batch to write the data
/// elsewhere.
#[test]
fn a_long_synced_batch_outlives_failing_data() {
    let (done, finished) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // The journal is a little below its bound of 150 blocks: one of these hits it between two
        // records.
        for blocks in 140..150u8 {
            let sim = fresh(small());
            let volume = open(&Interrupted::new(&sim));
            let ino = create(&volume).unwrap();
            volume.write(ino, 100 * 4096, &[9; 4096], NOW).unwrap();
            volume.sync_file(ino).unwrap();
            volume.step(Task::Checkpoint).unwrap();
            for i in 0..blocks {
                volume.write(ino, 0, &[i; 16], NOW).unwrap();
                volume.sync_file(ino).unwrap();
            }
            for block in 1..40u64 {
                volume
                    .write(ino, block * 2 * 4096, &[blocks; 4096], NOW)
                    .unwrap();
            }
            sim.inject(Fault::once(FaultTarget::Write));
            volume.sync_file(ino).unwrap();
            sim.heal();
            drop(volume);
            let volume = open(&Interrupted::new(&sim));
            for block in 1..40u64 {
                let mut buf = [0; 4096];
                volume.read(ino, block * 2 * 4096, &mut buf).unwrap();
                assert_eq!(buf, [blocks; 4096]);
            }
        }
        done.send(()).unwrap();
    });
    let patience = std::time::Duration::from_secs(60);
    finished
        .recv_timeout(patience)
        .expect("it waits for itself, or failed");
}

/// Somebody read from all zones with garbage while somebody else needed room: zones that are read
/// were neither cleaned nor counted as free soon, and a write of space that was free was refused.
#[test]
fn readers_do_not_make_the_volume_full() {
    const PIECE: usize = 8 * 4096;
    let sim = fresh(small());
    let device = Interrupted::new(&sim);
    let volume = open(&device);
    let [read, shorter, solid] = [0; 3].map(|_| create(&volume).unwrap());
    // What is read and what goes away share their zones.
    for i in 0..140u64 {
        for (ino, byte) in [(read, 1), (shorter, 2)] {
            let offset = i * PIECE as u64;
            volume.write(ino, offset, &[byte; PIECE], NOW).unwrap();
            volume.commit_file(ino).unwrap();
        }
    }
    for i in 0.. {
        let offset = i * PIECE as u64;
        match volume.write(solid, offset, &[3; PIECE], NOW) {
            Ok(_) => volume.commit_file(solid).unwrap(),
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    volume.sync().unwrap();
    volume.truncate(shorter, 0, NOW).unwrap();
    volume.step(Task::Checkpoint).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let writer = Arc::clone(&volume);
    let work = move || {
        for i in 0..130 {
            let offset = i * PIECE as u64;
            writer.write(shorter, offset, &[4; PIECE], NOW)?;
            writer.commit_file(shorter)?;
        }
        Ok::<_, Error>(())
    };
    device.before(
        |command| matches!(command, Command::Read { .. }),
        Box::new(move || {
            std::thread::spawn(move || tell.send(work()).unwrap());
            // It may end before the reader does, or wait for it: what must not come is given the
            // time to.
            (0..100_000).for_each(|_| std::thread::yield_now());
        }),
    );
    let mut found = vec![0; 140 * PIECE];
    assert_eq!(volume.read(read, 0, &mut found).unwrap(), found.len());
    assert!(found.iter().all(|byte| *byte == 1));
    assert!(device.was_done());
    told.recv().unwrap().unwrap();
    let mut found = vec![0; 130 * PIECE];
    volume.read(shorter, 0, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 4));
}

/// The bound of changed pages was one of those changed since the last cut. While a checkpoint wrote
/// what it had cut as many again were changed, and after a crash a recovery changed twice as many
/// as the bound allows, which need twice the room that is kept for them.
#[test]
fn a_checkpoint_under_way_counts_for_the_bound_of_changed_pages() {
    // The least bound, which this device has.
    const PAGES_MAX: usize = 48;
    let sim = fresh(small());
    let device = Interrupted::new(&sim);
    let volume = open(&device);
    // Eight of them fill a page.
    let inos: Vec<_> = (0..800).map(|_| create(&volume).unwrap()).collect();
    for ino in &inos {
        volume.write(*ino, 0, &[1; 2000], NOW).unwrap();
        volume.commit_file(*ino).unwrap();
    }
    volume.step(Task::Checkpoint).unwrap();
    // A page at a time, in records so small that the journal stays short.
    let change = |volume: &Volume, uid: u32, pages_max: usize| {
        for ino in inos.iter().step_by(8) {
            if volume.cached_pages().1 >= pages_max {
                break;
            }
            let put = |tx: &mut Transaction<'_>| {
                let inode = tx.inode(*ino)?.unwrap();
                tx.put_inode(*ino, &Inode { uid, ..inode });
                Ok::<_, Error>(())
            };
            volume.update(Intent::Shrink, put).unwrap();
        }
    };
    change(&volume, 2, PAGES_MAX * 3 / 4);
    let (_, before) = volume.cached_pages();
    assert_eq!(before, PAGES_MAX * 3 / 4);
    let changed = std::thread::scope(|scope| {
        let (aside, change) = (Arc::clone(&volume), &change);
        let (tell, told) = std::sync::mpsc::channel();
        let writer = Arc::clone(&volume);
        scope.spawn(move || {
            told.recv().unwrap();
            change(&writer, 3, usize::MAX);
        });
        let stalls = volume.statistics().stalls;
        let measure = move || {
            tell.send(()).unwrap();
            while aside.statistics().stalls == stalls {
                std::thread::yield_now();
            }
            aside.cached_pages().1
        };
        let (tell, told) = std::sync::mpsc::channel();
        device.before(
            write_to(&volume, Role::Metadata),
            Box::new(move || tell.send(measure()).unwrap()),
        );
        volume.step(Task::Checkpoint).unwrap();
        before + told.recv().unwrap()
    });
    // The last change may go past the bound by its own pages.
    assert!(changed <= PAGES_MAX + PAGES_MAX / 4, "{changed}");
    change(&volume, 4, usize::MAX);
}

/// A file whose first batch was under way had nothing dirty any more and nothing in the tree: it took no space. The kernel was told, and
/// remembered; programs that make archives took the file for one hole.
#[test]
fn a_file_on_its_way_takes_space() {
    let device = Interrupted::new(&fresh(small()));
    let volume = open(&device);
    let ino = create(&volume).unwrap();
    volume.sync().unwrap();
    volume.write(ino, 0, &noise(1, 16 * 4096), NOW).unwrap();
    let seen = Arc::new(Mutex::new(None));
    let (aside, told) = (Arc::clone(&volume), Arc::clone(&seen));
    device.before(
        |command| matches!(command, Command::Append { .. } | Command::Write { .. }),
        Box::new(move || {
            let (inode, is_staged) = aside.attr_and_staging(ino).unwrap().unwrap();
            *told.lock().unwrap() = Some((inode.sectors, is_staged));
        }),
    );
    volume.commit_file(ino).unwrap();
    assert_eq!(*seen.lock().unwrap(), Some((128, true)));
    let (inode, is_staged) = volume.attr_and_staging(ino).unwrap().unwrap();
    assert_eq!((inode.sectors, is_staged), (128, false));
}

/// What is staged over holes of a file that has something already will take space, and is told before it does. What is staged over what
/// is there takes none.
#[test]
fn what_is_staged_over_holes_is_counted() {
    let volume = open(&Interrupted::new(&fresh(small())));
    let ino = create(&volume).unwrap();
    let sectors = || volume.attr(ino).unwrap().unwrap().sectors;
    volume.write(ino, 0, &noise(1, 4 * 4096), NOW).unwrap();
    volume
        .write(ino, 40 * 4096, &noise(2, 4 * 4096), NOW)
        .unwrap();
    volume.sync().unwrap();
    assert_eq!(sectors(), 64);
    // Two blocks of the first extent, the hole behind it, two of the other, and more behind the end.
    volume
        .write(ino, 2 * 4096, &noise(3, 40 * 4096), NOW)
        .unwrap();
    volume.write(ino, 60 * 4096, &noise(4, 4096), NOW).unwrap();
    let told = sectors();
    assert_eq!(told, 8 * (44 + 1));
    volume.sync().unwrap();
    assert_eq!(sectors(), told);
    volume.write(ino, 0, &noise(5, 44 * 4096), NOW).unwrap();
    assert_eq!(sectors(), told);
    volume
        .preallocate(ino, 80 * 4096, 8 * 4096, true, NOW)
        .unwrap();
    let told = sectors();
    volume
        .write(ino, 80 * 4096, &noise(6, 4 * 4096), NOW)
        .unwrap();
    assert_eq!(sectors(), told);
}

/// Something was packed while a range was taken out of a file, so that had to begin anew. The file was as short by then as it would become,
/// and was written back so: a power cut before its blocks had moved took the last of them.
#[test]
fn a_shift_that_begins_anew_brings_its_size_last() {
    const BLOCK: usize = 4096;
    let sim = fresh(small().volatile_cache());
    let device = Interrupted::new(&sim);
    let volume = open(&device);
    let (ino, other) = (create(&volume).unwrap(), create(&volume).unwrap());
    let block = move |number: u64| {
        let mut block = noise(number, BLOCK);
        block[1500..].fill(7);
        block
    };
    // Synced blocks stay inline in the journal until enough of them are packed.
    let pack = move |volume: &Volume, ino| {
        let before = data_blocks(volume);
        for number in 0..4000 {
            volume
                .write(ino, number * BLOCK as u64, &block(number), NOW)
                .unwrap();
            volume.sync_file(ino).unwrap();
            if data_blocks(volume) > before {
                return number + 1;
            }
        }
        panic!("nothing is packed");
    };
    let blocks = pack(&volume, ino);
    let (aside, again) = (Arc::clone(&volume), Arc::clone(&device));
    let packed = Arc::new(Mutex::new(0));
    let told = Arc::clone(&packed);
    device.before(
        |command| matches!(command, Command::Flush),
        Box::new(move || {
            *told.lock().unwrap() = pack(&aside, other);
            // Before it moves anything after all, somebody syncs.
            let flush = |command: &Command| matches!(command, Command::Flush);
            let sync = move || aside.sync_metadata().unwrap();
            again.before(flush, Box::new(sync));
        }),
    );
    sim.record_snapshots(1);
    Layout::of(&volume)
        .shift(ino, (0, BLOCK as u64), Shift::Collapse, NOW)
        .unwrap();
    volume.sync().unwrap();
    assert!(*packed.lock().unwrap() > 0);
    for moment in sim.take_snapshots() {
        let left = Arc::new(moment.intact());
        let (left, _) = Volume::open(left, Options::default()).unwrap();
        let size = left.attr(ino).unwrap().unwrap().size / BLOCK as u64;
        let first = blocks - size;
        let mut found = vec![0; BLOCK];
        for at in 0..size {
            left.read(ino, at * BLOCK as u64, &mut found).unwrap();
            assert!(found == block(first + at), "block {at} of {size}");
        }
    }
}

fn data_blocks(volume: &Volume) -> u64 {
    let zones = volume.zones();
    let data = zones.iter().filter(|zone| zone.entry.role == Role::Data);
    data.map(|zone| u64::from(zone.entry.write_pointer)).sum()
}
