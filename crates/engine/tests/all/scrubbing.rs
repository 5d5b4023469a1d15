//! A scrub of a volume with snapshots: it ends, and tells of what only a snapshot has.

#![allow(clippy::unwrap_used, reason = "a failure ends the test")]

use std::sync::Arc;

use crate::common::content::{large_zones, open, write};
use crate::common::{NOW, create, fresh, noise};
use persimmon_device::{BLOCK_SIZE, ZonedDevice};
use persimmon_engine::{ScrubCursor, ScrubFinding, Task, Volume};
use persimmon_format::table::Role;
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
    let mut damaged = 0;
    for zone in volume.zones() {
        let number = zone.zone.0;
        let end = device.report(number..number + 1).unwrap()[0].write_pointer;
        for block in (1..end).filter(|_| zone.entry.role == Role::Data) {
            let stored = device.read(zone.zone, block, 1).unwrap();
            if stored[..] == content[BLOCK_SIZE..2 * BLOCK_SIZE] {
                assert!(device.corrupt(zone.zone, block, 7, 1));
                damaged += 1;
            }
        }
    }
    assert_eq!(damaged, 1);
    let found = scrub(&volume);
    let files: Vec<_> = found.iter().filter_map(|finding| finding.file).collect();
    assert_eq!(files, [(then, 1)], "{found:?}");
}
