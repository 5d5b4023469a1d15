//! Hosts that are full, below a volume whose synced data is on its way: what is not there waits in memory, nothing is acknowledged, and
//! once there is space all goes on.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure ends the test")]

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{NOW, create, fresh, noise, unlink};
use persimmon_device::{
    BLOCK_SIZE, Command, DeviceError, Geometry, Pending, Result, ZoneId, ZoneInfo, ZonedDevice,
};
use persimmon_engine::{Dedup, Deltas, Error, Options, Syncs, Task, Volume};
use persimmon_format::table::Role;
use persimmon_format::{Ino, Lifetime, SubvolumeId};
use persimmon_sim::{SimConfig, SimDevice};

/// What a full host refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refuses {
    All,
    /// The log has its space.
    AllButLog,
    /// And so have open zones of metadata.
    Data,
}

const KINDS: [Refuses; 3] = [Refuses::All, Refuses::AllButLog, Refuses::Data];

/// A device whose host can be full.
struct Hosted {
    device: Arc<SimDevice>,
    is_full: AtomicBool,
    /// These zones have their space.
    has_space: Mutex<BTreeSet<ZoneId>>,
}

impl Hosted {
    fn fill(&self, volume: &Volume, refuses: Refuses) {
        let zones = volume.zones();
        let has_space = zones.iter().filter(|zone| match zone.entry.role {
            Role::Log => refuses != Refuses::All,
            Role::Metadata => refuses == Refuses::Data,
            _ => false,
        });
        *self.has_space.lock().unwrap() = has_space.map(|zone| zone.zone).collect();
        self.is_full.store(true, Ordering::SeqCst);
    }

    fn make_space(&self) {
        self.is_full.store(false, Ordering::SeqCst);
    }
}

impl ZonedDevice for Hosted {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        self.device.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        if let Command::Write { zone, .. } | Command::Append { zone, .. } = &command
            && self.is_full.load(Ordering::SeqCst)
            && !self.has_space.lock().unwrap().contains(zone)
        {
            return Pending::ready(Err(DeviceError::HostFull));
        }
        self.device.submit(command)
    }
}

fn volume_on(device: Arc<SimDevice>) -> (Arc<Hosted>, Volume) {
    let options = Options {
        dedup: Dedup::Write,
        deltas: Deltas::Always,
        ..Options::default()
    };
    let hosted = Arc::new(Hosted {
        device,
        is_full: AtomicBool::new(false),
        has_space: Mutex::default(),
    });
    let volume = Volume::open(hosted.clone(), options).unwrap().0;
    (hosted, volume)
}

fn new_volume() -> (Arc<Hosted>, Volume) {
    volume_on(fresh(SimConfig::new(60, 128).capacity(120)))
}

/// The volume as a crash now leaves it.
fn crashed(hosted: &Hosted, seed: u64) -> Volume {
    volume_on(Arc::new(hosted.device.persisted(seed))).1
}

#[track_caller]
fn is_full<T: std::fmt::Debug>(result: std::result::Result<T, Error>) {
    assert!(
        matches!(result, Err(Error::Device(DeviceError::HostFull))),
        "{result:?}"
    );
}

#[track_caller]
fn holds(volume: &Volume, ino: Ino, content: &[u8]) {
    let mut found = vec![0; content.len() + 1];
    let read = volume.read(ino, 0, &mut found).unwrap();
    assert_eq!(read, content.len());
    assert!(found[..read] == *content);
}

fn free_zones(volume: &Volume) -> usize {
    let zones = volume.zones();
    let free = |zone: &&_| zone_is_free(zone);
    zones.iter().filter(free).count()
}

fn zone_is_free(zone: &persimmon_engine::ZoneStatus) -> bool {
    zone.entry.role == Role::Free && !zone.open
}

/// Writes to the zone that was written to before.
fn write(volume: &Volume, ino: Ino, offset: u64, bytes: &[u8]) {
    let hint = Some(Lifetime::Short);
    volume.write_hinted(ino, offset, bytes, NOW, hint).unwrap();
}

/// A file whose synced content the host had no space for, and what it held before.
fn refused(hosted: &Hosted, volume: &Volume, refuses: Refuses) -> (Ino, Vec<u8>, Vec<u8>) {
    let ino = create(volume).unwrap();
    let old = noise(1, 20 * BLOCK_SIZE + 100);
    write(volume, ino, 0, &old);
    volume.sync_file(ino).unwrap();
    let mut new = old.clone();
    let part = noise(2, 12 * BLOCK_SIZE);
    let at = 5 * BLOCK_SIZE;
    new[at..at + part.len()].copy_from_slice(&part);
    write(volume, ino, at as u64, &part);
    hosted.fill(volume, refuses);
    is_full(volume.sync_file(ino));
    assert!(!volume.is_read_only(), "{refuses:?}");
    holds(volume, ino, &new);
    (ino, old, new)
}

/// The rewrite elsewhere found the host full, and the volume was read-only until it was mounted again, without what it had in memory.
#[test]
fn synced_data_that_a_full_host_refuses_waits_for_space() {
    for (seed, refuses) in (0..).zip(KINDS) {
        let (hosted, volume) = new_volume();
        let other = create(&volume).unwrap();
        volume.write(other, 0, &noise(3, 50_000), NOW).unwrap();
        volume.sync().unwrap();
        let (ino, old, mut new) = refused(&hosted, &volume, refuses);
        // Nothing else can be made durable, and nobody waits for ever.
        let more = noise(4, 9 * BLOCK_SIZE);
        volume.write(other, 0, &more, NOW).unwrap();
        is_full(volume.sync_file(other));
        is_full(volume.sync_metadata());
        is_full(volume.record_file(other));
        is_full(volume.sync());
        is_full(volume.step(Task::Checkpoint));
        is_full(volume.step(Task::WriteBack));
        let part = noise(5, 2 * BLOCK_SIZE);
        volume
            .write(ino, 6 * BLOCK_SIZE as u64, &part, NOW)
            .unwrap();
        new[6 * BLOCK_SIZE..8 * BLOCK_SIZE].copy_from_slice(&part);
        is_full(Syncs::of(&volume).files(&[ino, other]).remove(1));
        // What was acknowledged is there, whatever was written since.
        let left = crashed(&hosted, seed);
        holds(&left, ino, &old);
        holds(&left, other, &noise(3, 50_000));
        drop(left);

        hosted.make_space();
        volume.sync_file(other).unwrap();
        assert!(!volume.is_read_only());
        let left = crashed(&hosted, seed);
        holds(&left, ino, &new);
        drop(left);
        volume.step(Task::Checkpoint).unwrap();
        volume.write(ino, 0, &[9; 10], NOW).unwrap();
        new[..10].fill(9);
        volume.sync_file(ino).unwrap();
        let mut of_other = noise(3, 50_000);
        of_other[..more.len()].copy_from_slice(&more);
        for volume in [&volume, &crashed(&hosted, seed)] {
            holds(volume, ino, &new);
            holds(volume, other, &of_other);
        }
    }
}

/// Each try left a zone behind, until the next checkpoint: on a host that stayed full for an hour all were used up.
#[test]
fn trying_again_on_a_full_host_uses_up_no_zones() {
    for refuses in KINDS {
        let (hosted, volume) = new_volume();
        let other = create(&volume).unwrap();
        volume.sync().unwrap();
        let (ino, _, new) = refused(&hosted, &volume, refuses);
        volume.write(other, 0, &noise(7, 70_000), NOW).unwrap();
        let try_all = || {
            is_full(volume.sync_file(ino));
            is_full(volume.sync_file(other));
            is_full(volume.step(Task::WriteBack));
            is_full(volume.step(Task::Checkpoint));
        };
        try_all();
        let before = free_zones(&volume);
        (0..40).for_each(|_| try_all());
        assert_eq!(free_zones(&volume), before, "{refuses:?}");
        hosted.make_space();
        volume.sync().unwrap();
        volume.step(Task::Checkpoint).unwrap();
        let left = crashed(&hosted, 1);
        holds(&left, ino, &new);
        holds(&left, other, &noise(7, 70_000));
    }
}

/// The same where nothing waits: each sync, each batch and each checkpoint was a zone.
#[test]
fn syncs_on_a_full_host_use_up_no_zones() {
    for refuses in KINDS {
        let (hosted, volume) = new_volume();
        let inos: Vec<Ino> = (0..4).map(|_| create(&volume).unwrap()).collect();
        volume.sync().unwrap();
        hosted.fill(&volume, refuses);
        let mut before = None;
        for round in 0..30 {
            for ino in &inos {
                // Too much for its record to be sent along.
                let bytes = noise(round, 60 * BLOCK_SIZE);
                volume.write(*ino, 0, &bytes, NOW).unwrap();
                is_full(volume.sync_file(*ino));
            }
            let _ = volume.step(Task::Checkpoint);
            let before = *before.get_or_insert(free_zones(&volume));
            assert_eq!(free_zones(&volume), before, "{refuses:?}, round {round}");
        }
        hosted.make_space();
        volume.sync().unwrap();
        let left = crashed(&hosted, 2);
        inos.iter()
            .for_each(|ino| holds(&left, *ino, &noise(29, 60 * BLOCK_SIZE)));
    }
}

/// What of a file waits may be truncated, removed or written over meanwhile, or be written by whoever comes first.
#[test]
fn what_waits_for_space_can_be_changed() {
    let block = BLOCK_SIZE as u64;
    for (refuses, change) in KINDS
        .into_iter()
        .flat_map(|kind| (0..6).map(move |c| (kind, c)))
    {
        let (hosted, volume) = new_volume();
        let other = create(&volume).unwrap();
        let (ino, _, mut new) = refused(&hosted, &volume, refuses);
        match change {
            0 => {
                volume.truncate(ino, 0, NOW).unwrap();
                new.clear();
            }
            1 => {
                // The block that is cut is not in the tree.
                is_full(volume.truncate(ino, 7 * block + 5, NOW));
                holds(&volume, ino, &new);
                volume.truncate(ino, 8 * block, NOW).unwrap();
                hosted.make_space();
                volume.truncate(ino, 7 * block + 5, NOW).unwrap();
                new.truncate(7 * BLOCK_SIZE + 5);
            }
            2 => {
                unlink(&volume, &[ino]);
                volume.reclaim(&[ino]).unwrap();
            }
            3 => {
                volume.punch(ino, 4 * block, 6 * block, NOW).unwrap();
                new[4 * BLOCK_SIZE..10 * BLOCK_SIZE].fill(0);
            }
            4 => {
                hosted.make_space();
                let snapshots = volume.snapshots();
                snapshots
                    .take(SubvolumeId::MAIN, b"one", true, NOW)
                    .unwrap();
            }
            _ => {
                hosted.make_space();
                volume.step(Task::WriteBack).unwrap();
            }
        }
        match change {
            3 => is_full(volume.sync_metadata()),
            // Of what was cut off nothing is left to write.
            0 | 2 => drop(volume.sync_metadata()),
            _ => volume.sync_metadata().unwrap(),
        }
        hosted.make_space();
        volume.write(other, 0, &[3; 100], NOW).unwrap();
        volume.sync_file(other).unwrap();
        volume.sync_file(ino).unwrap();
        assert!(!volume.is_read_only());
        volume.step(Task::Checkpoint).unwrap();
        for volume in [&volume, &crashed(&hosted, change)] {
            holds(volume, other, &[3; 100]);
            if change != 2 {
                holds(volume, ino, &new);
            }
        }
    }
}

/// What is kept in memory of blocks where they were to be looks as if they were there: what is written anew would be shared with it, and
/// be nowhere.
#[test]
fn what_did_not_arrive_is_not_taken_for_stored() {
    for refuses in KINDS {
        let (hosted, volume) = new_volume();
        let ino = create(&volume).unwrap();
        write(&volume, ino, 0, &noise(1, 4 * BLOCK_SIZE));
        volume.sync_file(ino).unwrap();
        let content = noise(2, 4 * BLOCK_SIZE);
        write(&volume, ino, 0, &content);
        hosted.fill(&volume, refuses);
        is_full(volume.sync_file(ino));
        hosted.make_space();
        // Writes what is staged as any data.
        let snapshots = volume.snapshots();
        let taken = snapshots.take(SubvolumeId::MAIN, b"one", true, NOW);
        taken.unwrap();
        volume.sync().unwrap();
        holds(&crashed(&hosted, 5), ino, &content);
    }
}

/// The data found a place, and the checkpoint that leaves its record behind did not: nothing was acknowledged any more.
#[test]
fn a_checkpoint_after_a_failed_write_waits_for_space_too() {
    let (hosted, volume) = new_volume();
    let (ino, other) = (create(&volume).unwrap(), create(&volume).unwrap());
    volume.sync().unwrap();
    write(&volume, ino, 0, &noise(2, 30 * BLOCK_SIZE));
    volume.sync_file(ino).unwrap();
    let content = noise(1, 30 * BLOCK_SIZE);
    write(&volume, ino, 0, &content);
    hosted.fill(&volume, Refuses::AllButLog);
    is_full(volume.sync_file(ino));
    // Its data has space now, and the pages of a checkpoint have none.
    let zones = volume.zones();
    let data = zones
        .iter()
        .filter(|zone| zone.entry.role == Role::Data && zone.open);
    hosted
        .has_space
        .lock()
        .unwrap()
        .extend(data.map(|zone| zone.zone));
    is_full(volume.sync_file(ino));
    is_full(volume.sync_file(other));
    is_full(volume.sync());
    holds(&volume, ino, &content);
    hosted.make_space();
    volume.sync_file(other).unwrap();
    assert!(!volume.is_read_only());
    holds(&crashed(&hosted, 3), ino, &content);
}

/// Many sync at once while the host is full now and then: nobody waits for ever, and what was acknowledged is there.
#[test]
fn many_sync_while_the_host_is_full_now_and_then() {
    for refuses in KINDS {
        let (hosted, volume) = new_volume();
        let volume = Arc::new(volume);
        let inos: Vec<Ino> = (0..4).map(|_| create(&volume).unwrap()).collect();
        volume.sync().unwrap();
        let threads: Vec<_> = inos
            .iter()
            .map(|ino| {
                let (volume, ino) = (Arc::clone(&volume), *ino);
                std::thread::spawn(move || {
                    for round in 1..150u64 {
                        let bytes = noise(round, 9 * BLOCK_SIZE);
                        write(&volume, ino, 0, &bytes);
                        match volume.sync_file(ino) {
                            Ok(()) | Err(Error::Device(DeviceError::HostFull)) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        for turn in 0u64.. {
            if threads.iter().all(std::thread::JoinHandle::is_finished) {
                break;
            }
            match turn % 2 {
                0 => hosted.fill(&volume, refuses),
                _ => hosted.make_space(),
            }
            let _ = volume.step(Task::Checkpoint);
            std::thread::yield_now();
        }
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        hosted.make_space();
        volume.sync().unwrap();
        assert!(!volume.is_read_only());
        let left = crashed(&hosted, 4);
        inos.iter()
            .for_each(|ino| holds(&left, *ino, &noise(149, 9 * BLOCK_SIZE)));
    }
}

/// Deleting a snapshot makes space: what waits of a writable one is given up, as on a full volume.
#[test]
fn a_snapshot_is_deleted_on_a_full_host() {
    let (hosted, volume) = new_volume();
    let ino = create(&volume).unwrap();
    let content = noise(1, 20 * BLOCK_SIZE);
    write(&volume, ino, 0, &content);
    volume.sync().unwrap();
    let taken = volume.snapshots().take(SubvolumeId::MAIN, b"w", false, NOW);
    let id = taken.unwrap();
    volume.sync().unwrap();
    write(&volume, ino.of(id), 0, &noise(2, 12 * BLOCK_SIZE));
    hosted.fill(&volume, Refuses::Data);
    volume.snapshots().delete(id).unwrap();
    hosted.make_space();
    volume.sync().unwrap();
    holds(&crashed(&hosted, 5), ino, &content);
}
