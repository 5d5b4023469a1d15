//! A scrub of a volume with snapshots: it ends, and tells of what only a snapshot has. It tells of what is damaged on the device, whatever memory has.

#![allow(clippy::unwrap_used, reason = "a failure ends the test")]

use std::sync::Arc;

use crate::common::content::{damage, large_zones, open, open_with, read, write};
use crate::common::{NOW, create, fresh, noise};
use persimmon_device::BLOCK_SIZE;
use persimmon_engine::{Deltas, ScrubCursor, ScrubFinding, Task, Volume};
use persimmon_format::{Compression, Ino, SubvolumeId};
use persimmon_sim::SimDevice;

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
