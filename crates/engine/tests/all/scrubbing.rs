//! A scrub of a volume with snapshots: it ends, and tells of what only a snapshot has. It tells of what is damaged on the device, whatever memory has.

#![allow(clippy::unwrap_used, reason = "a failure ends the test")]

use std::sync::Arc;

use crate::common::content::{damage, large_zones, open, open_with, read, write};
use crate::common::{NOW, create, fresh, noise};
use persimmon_device::{BLOCK_SIZE, ZoneId};
use persimmon_engine::{Damage, Deltas, Options, ScrubCursor, ScrubFinding, Task, Volume};
use persimmon_format::table::Role;
use persimmon_format::{Compression, Ino, SubvolumeId};
use persimmon_sim::{SimConfig, SimDevice};

const MAIN: SubvolumeId = SubvolumeId::MAIN;
/// Of one step, as maintenance takes them.
const SCRUB_BLOCKS: u64 = 256;
const STEPS_MAX: u32 = 1000;

fn scrub(volume: &Volume) -> Vec<ScrubFinding> {
    let mut cursor = Some(ScrubCursor::default());
    let mut found = Vec::new();
    for _ in 0..STEPS_MAX {
        let Some(at) = cursor else { return found };
        let step = volume.scrub_step(at, SCRUB_BLOCKS).unwrap();
        found.extend(step.findings);
        cursor = step.next;
    }
    unreachable!("{STEPS_MAX} steps, and the scrub is at {cursor:?}");
}

/// A file that was overwritten from end to end since a snapshot, all on the device: the file in the snapshot, and what it holds there.
fn overwritten(device: &Arc<SimDevice>, blocks: usize) -> (Volume, Ino, Vec<u8>) {
    let volume = open(device, Compression::None);
    let ino = create(&volume).unwrap();
    let content = noise(1, blocks * BLOCK_SIZE);
    write(&volume, ino, 0, &content);
    let id = volume.snapshots().take(MAIN, b"one", true, NOW).unwrap();
    write(&volume, ino, 0, &noise(2, blocks * BLOCK_SIZE));
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    (volume, ino.of(id), content)
}

/// The place that a step began at was that of a run as long as the step: the one of the snapshot, again and again.
#[test]
fn a_run_as_long_as_a_step_that_was_overwritten_since_a_snapshot_is_passed() {
    let device = fresh(large_zones());
    let (volume, ..) = overwritten(&device, 3 * SCRUB_BLOCKS as usize);
    assert!(scrub(&volume).is_empty());
}

#[test]
fn damage_in_what_only_a_snapshot_has_is_told() {
    let device = fresh(large_zones());
    let (volume, then, content) = overwritten(&device, 3);
    let page = &content[BLOCK_SIZE..2 * BLOCK_SIZE];
    damage(&device, &volume, |stored| stored == page);
    let found = scrub(&volume);
    let files: Vec<_> = found.iter().filter_map(|finding| finding.file).collect();
    assert_eq!(files, [(then, 1)], "{found:?}");
}

/// A page of a database that was read, and the block that a synced file ends in, are in memory: their damage on the device was not told before the
/// volume was opened again.
#[test]
fn damage_on_the_device_is_told_of_blocks_that_are_in_memory() {
    let device = fresh(large_zones());
    let volume = open_with(&device, Compression::None, Deltas::InMemory);
    let ino = create(&volume).unwrap();
    let mut content = noise(1, 99 * BLOCK_SIZE + 4000);
    write(&volume, ino, 0, &content);
    volume.sync_file(ino).unwrap();
    for byte in [1, 2] {
        content[7 * BLOCK_SIZE] = byte;
        let page = &content[7 * BLOCK_SIZE..][..BLOCK_SIZE];
        write(&volume, ino, 7 * BLOCK_SIZE, page);
        volume.sync_file(ino).unwrap();
    }
    volume.step(Task::Checkpoint).unwrap();
    let (page, tail) = (
        &content[20 * BLOCK_SIZE..][..BLOCK_SIZE],
        &content[99 * BLOCK_SIZE..],
    );
    assert!(read(&volume, ino, 20 * BLOCK_SIZE, BLOCK_SIZE) == page);
    damage(&device, &volume, |stored| stored == page);
    damage(&device, &volume, |stored| &stored[..4000] == tail);
    let files = |found: Vec<ScrubFinding>| -> Vec<_> {
        let mut files: Vec<_> = found.iter().filter_map(|finding| finding.file).collect();
        files.sort_unstable();
        files
    };
    assert_eq!(files(scrub(&volume)), [(ino, 20), (ino, 99)]);
    drop(volume);
    let volume = open(&device, Compression::None);
    assert_eq!(files(scrub(&volume)), [(ino, 20), (ino, 99)]);
}

/// The zone that the log ends in, on a volume whose log has had this one alone.
fn log_zone(volume: &Volume) -> ZoneId {
    let zones = volume.zones();
    let mut logs = zones.iter().filter(|zone| zone.entry.role == Role::Log);
    let log = logs.next().unwrap().zone;
    assert!(logs.next().is_none());
    log
}

/// A synced file, of which the log alone tells, and the zone of the log.
fn journaled(device: &Arc<SimDevice>) -> (Volume, ZoneId, Ino, Vec<u8>) {
    let volume = open(device, Compression::None);
    let ino = create(&volume).unwrap();
    let content = noise(1, 3 * BLOCK_SIZE);
    write(&volume, ino, 0, &content);
    volume.sync().unwrap();
    let log = log_zone(&volume);
    (volume, log, ino, content)
}

/// Nothing was told of the header of the zone that the log ends in, though what is behind it was durable.
#[test]
fn the_header_of_the_newest_log_zone_is_looked_at() {
    let device = fresh(large_zones());
    let volume = open(&device, Compression::None);
    create(&volume).unwrap();
    volume.sync().unwrap();
    assert!(scrub(&volume).is_empty());
    let log = log_zone(&volume);
    assert!(device.corrupt(log, 0, 99, 1));
    let found = scrub(&volume);
    let what: Vec<_> = found.iter().map(|it| (it.damage, it.addr.zone())).collect();
    assert_eq!(what, [(Damage::Header, log)], "{found:?}");
}

/// Where the log has one zone, and the zones that it may lie in hold nothing else, nothing told whose blocks there are: the volume could be neither
/// mounted nor repaired.
#[test]
fn a_log_of_one_zone_needs_no_header() {
    for config in [
        SimConfig::new(200, 512),
        SimConfig::new(200, 512).host_file(),
    ] {
        let device = fresh(config);
        let (volume, log, ino, content) = journaled(&device);
        drop(volume);
        assert!(device.corrupt(log, 0, 99, 1));
        let (volume, report) = Volume::open(device.clone(), Options::default()).unwrap();
        assert_eq!(report.headers_rescued, 1);
        assert!(read(&volume, ino, 0, content.len()) == content);
        // The next checkpoint leaves the zone behind.
        volume.step(Task::Checkpoint).unwrap();
        assert!(scrub(&volume).is_empty());
        assert_ne!(log_zone(&volume), log);
    }
}

/// A block of the log that had been durable was damaged on the device. What it told was in memory, but no checkpoint was written when the volume
/// was closed, and the next recovery ended before it.
#[test]
fn damage_in_the_log_is_told_and_costs_nothing() {
    let device = fresh(large_zones());
    let (volume, log, ino, content) = journaled(&device);
    let end = volume.zones()[log.0 as usize].entry.write_pointer;
    assert!((1..end).all(|block| device.corrupt(log, block, 99, 1)));
    let found = scrub(&volume);
    assert!(found.iter().any(|it| it.damage == Damage::Log), "{found:?}");
    assert!(scrub(&volume).is_empty());
    drop(volume);
    let volume = open(&device, Compression::None);
    assert!(read(&volume, ino, 0, content.len()) == content);
}
