//! Volumes that are in order are found so, however they were left.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{
    FILE, add, assert_sound, content, formatted, now, numbers, open, populate, report,
};
use persimmon_engine::{FormatOptions, Task, Volume, ZoneStatus};
use persimmon_format::inode::ROOT;
use persimmon_format::packed::BLOCK_PACK_UNITS;
use persimmon_format::table::Role;
use persimmon_inspect::Inspector;
use persimmon_sim::{SimConfig, SimDevice};

#[test]
fn a_fresh_volume_is_sound() {
    let device = formatted();
    let report = report(&device, true);
    assert_eq!(report.findings, []);
    assert_eq!((report.counts.inodes, report.counts.directories), (1, 1));
    assert_eq!(report.volume.label, "test");
    assert_eq!(report.volume.uuid, "00010203-0405-0607-0809-0a0b0c0d0e0f");
    assert_eq!(report.volume.checkpoint, Some(2));
}

#[test]
fn a_checkpointed_volume_is_sound() {
    let device = formatted();
    let volume = open(&device);
    populate(&volume);
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    let report = report(&device, true);
    assert_sound(&report);
    // The file that was unlinked and is not yet freed.
    assert_eq!(numbers(&report), [624]);
    let counts = report.counts;
    assert_eq!(
        (counts.directories, counts.symlinks, counts.xattrs),
        (5, 4, 8)
    );
    assert_eq!(
        (counts.files, counts.orphans, counts.records_replayed),
        (59, 1, 0)
    );
    assert_eq!(counts.entries, counts.inodes - 2);
    assert_eq!(counts.data_blocks, counts.data_blocks_verified);
    assert!(counts.reserved_blocks > 10 && counts.inline_blocks > 0);
}

#[test]
fn a_synced_volume_is_checked_as_of_after_the_replay() {
    let device = formatted();
    let volume = open(&device);
    populate(&volume);
    volume.sync().unwrap();
    let before = report(&device, true);
    assert_sound(&before);
    assert!(before.counts.records_replayed > 50);
    volume.step(Task::Checkpoint).unwrap();
    let mut after = report(&device, true).counts;
    after.records_replayed = before.counts.records_replayed;
    after.pages = before.counts.pages;
    after.tree_height = before.counts.tree_height;
    // The engine joins neighbours, the replay here does not.
    after.extents = before.counts.extents;
    // What rode in the journal was packed.
    let packed = after.packed_blocks - before.counts.packed_blocks;
    assert!(packed > 0 && before.counts.packed_blocks > 0);
    after.packed_blocks -= packed;
    after.data_blocks -= packed;
    after.data_blocks_verified -= packed;
    after.inline_blocks += packed;
    assert_eq!(before.counts, after);
}

/// Every state that a power cut can leave is one that a mount recovers: the check must find it
/// sound before and after.
#[test]
fn crashed_volumes_are_sound() {
    for seed in 0..60 {
        let device = formatted();
        let volume = open(&device);
        device.cut_after(40 + seed * 7);
        let crashed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            populate(&volume);
            let _ = volume.step(Task::Checkpoint);
            for round in 0..6 {
                let ino = add(&volume, ROOT, &format!("more {round}"), FILE);
                let _ = volume.write(ino, 0, &content(round, 20_000), now(9));
                let _ = volume.sync_file(ino);
            }
        }));
        drop(crashed);
        let crashed = std::sync::Arc::new(device.persisted(seed));
        let before = report(&crashed, true);
        assert_sound(&before);
        let volume = open(&crashed);
        let recovered = report(&crashed, true);
        assert_sound(&recovered);
        volume.step(Task::Checkpoint).unwrap();
        let after = report(&crashed, true);
        assert_sound(&after);
        assert_eq!(
            (
                before.counts.inodes,
                before.counts.entries,
                before.counts.data_blocks + before.counts.inline_blocks
            ),
            (
                after.counts.inodes,
                after.counts.entries,
                // Inline blocks are packed meanwhile.
                after.counts.data_blocks + after.counts.inline_blocks
            ),
            "seed {seed}"
        );
    }
}

#[test]
fn an_overwritten_and_cleaned_volume_is_sound() {
    let device = formatted();
    let volume = open(&device);
    let files = populate(&volume);
    for round in 0..60u64 {
        let ino = files[round as usize % files.len()];
        let at = (round * 12_345) % 100_000;
        volume
            .write(ino, at, &content(round, 60_000), now(round as i64))
            .unwrap();
        volume.sync_file(ino).unwrap();
        if round % 10 == 9 {
            volume.step(Task::Clean).unwrap();
            volume.step(Task::Checkpoint).unwrap();
            assert_sound(&report(&device, true));
        }
    }
    assert_sound(&report(&device, true));
}

#[test]
fn paths_are_resolved() {
    let device = formatted();
    let volume = open(&device);
    populate(&volume);
    volume.close().unwrap();
    let inspector = Inspector::open(&*device).unwrap();
    assert_eq!(inspector.resolve("/").unwrap(), ROOT);
    let deep = inspector
        .resolve("/directory 0/directory 1/file 3")
        .unwrap();
    assert!(deep.0 >= 16);
    let error = inspector.resolve("/directory 0/nothing").unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"nothing\" of /directory 0/nothing is not there"
    );
}

/// Checkpoints of the zones alone: zones are freed, reset and written again with no page written.
/// Replay begins at the last whole checkpoint, whose tree names what was in those zones before.
#[test]
fn zones_are_used_again_between_whole_checkpoints() {
    use_zones_again(1, 2, SimConfig::new(48, 128).volatile_cache());
}

/// Where metadata is counted twice a zone may have been one of data, and be one of metadata now.
#[test]
fn zones_in_two_copies_are_used_again_between_whole_checkpoints() {
    use_zones_again(2, 10, SimConfig::new(200, 32));
}

fn use_zones_again(copies: u32, checkpoints_max: u64, config: SimConfig) {
    let device = Arc::new(SimDevice::new(config));
    let options = FormatOptions {
        copies,
        ..FormatOptions::default()
    };
    Volume::format(device.clone(), &options).unwrap();
    let volume = open(&device);
    let ino = add(&volume, ROOT, "file", FILE);
    let blocks = volume.space().available_bytes / 4096 / 2;
    let mut copy = vec![0u64; blocks as usize];
    let write = |copy: &mut Vec<u64>, block: u64, round: u64| {
        let written = volume.write(ino, block * 4096, &content(round, 4096), now(1));
        assert_eq!(written.unwrap(), 4096);
        copy[block as usize] = round;
    };
    (0..blocks).for_each(|block| write(&mut copy, block, block));
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    let before = volume.statistics();
    let (mut round, mut random) = (blocks, 5u64);
    let (mut used_again, mut uses) = (0, BTreeMap::new());
    for _ in 0..60 {
        for _ in 0..100 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            round += 1;
            write(&mut copy, (random >> 33) % blocks, round);
        }
        volume.sync().unwrap();
        volume.step(Task::Clean).unwrap();
        volume.step(Task::FreeZones).unwrap();
        for status in volume.zones() {
            let sequence = status.entry.sequence;
            let last = uses.entry(status.zone).or_insert(sequence);
            if sequence > *last {
                used_again += u32::from(std::mem::replace(last, sequence) > 0);
            }
        }
        let crashed = Arc::new(device.persisted(round));
        let found = report(&crashed, true);
        assert_sound(&found);
        let recovered = open(&crashed);
        let mut bytes = vec![0; 4096];
        for (block, round) in (0..).zip(&copy) {
            recovered.read(ino, block * 4096, &mut bytes).unwrap();
            assert!(bytes == content(*round, 4096), "block {block}");
        }
        assert_sound(&report(&crashed, true));
        recovered.step(Task::FreeZones).unwrap();
        assert_sound(&report(&crashed, true));
        recovered.step(Task::Checkpoint).unwrap();
        let counts = |volume: &Volume| -> Vec<u64> {
            let zones = volume.zones();
            let data = zones.iter().filter(|z| z.entry.role == Role::Data);
            data.map(|z| z.entry.pack_units().0).collect()
        };
        assert_eq!(
            counts(&recovered).iter().sum::<u64>(),
            counts(&volume).iter().sum::<u64>()
        );
        let live = |status: &ZoneStatus| match status.entry.role {
            Role::Metadata => status.entry.pack_units().0 * u64::from(copies),
            _ => status.entry.pack_units().0,
        };
        let live: u64 = recovered.zones().iter().map(live).sum();
        let space = recovered.space();
        assert_eq!(
            (space.total_bytes - space.available_bytes) / 4096,
            live.div_ceil(BLOCK_PACK_UNITS)
        );
    }
    let done = volume.statistics().since(&before);
    assert!(done.zone_checkpoints > 5, "{done:?}");
    assert!(done.checkpoints <= checkpoints_max, "{done:?}");
    assert!(used_again > 5, "{used_again}");
}
