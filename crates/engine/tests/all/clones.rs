//! Files that have blocks in common.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use crate::common::content::{
    change_at_random, check_counts, check_stored, clone, extents, large_zones, open, read, text,
    write,
};
use crate::common::{NOW, create, fresh, noise};
use persimmon_engine::{CloneRange, CloneWhen, Cloned, Task, Volume};
use persimmon_format::table::Role;
use persimmon_format::{Compression, SubvolumeId};
use persimmon_sim::SimConfig;

const BLOCK: usize = 4096;

fn valid_blocks(volume: &Volume) -> u64 {
    let zones = volume.zones();
    let data = zones.iter().filter(|zone| zone.entry.role == Role::Data);
    data.map(|zone| u64::from(zone.entry.valid)).sum()
}

#[test]
fn a_clone_takes_no_space_and_writes_its_own() {
    for compression in [Compression::None, Compression::Lz4] {
        let device = fresh(large_zones());
        let volume = open(&device, compression);
        let (one, two) = (create(&volume).unwrap(), create(&volume).unwrap());
        let content = text(1, 600 * BLOCK + 77);
        write(&volume, one, 0, &content);
        volume.sync().unwrap();
        let before = valid_blocks(&volume);
        let alone = volume.attr(one).unwrap().unwrap().sectors;
        // The last block may have to be copied: it lies in the tree.
        let cloned = clone(&volume, (one, 0), (two, 0), content.len());
        assert!(cloned >= 600 * BLOCK, "{cloned}");
        assert!(valid_blocks(&volume) <= before + 1);
        assert_eq!(read(&volume, two, 0, content.len()), content[..cloned]);
        check_counts(&volume);
        let sectors = |ino| volume.attr(ino).unwrap().unwrap().sectors;
        // As before in the one, and in the other the same, but for the last block.
        assert_eq!(sectors(one), alone);
        assert!(sectors(two) <= alone && sectors(two) + 8 >= alone);
        let new = noise(5, 10 * BLOCK);
        write(&volume, two, 100 * BLOCK, &new);
        volume.sync().unwrap();
        assert!(read(&volume, one, 0, content.len()) == content);
        assert!(read(&volume, two, 100 * BLOCK, new.len()) == new);
        check_counts(&volume);
        volume.truncate(one, 0, NOW).unwrap();
        let end = cloned - 200 * BLOCK;
        assert!(read(&volume, two, 200 * BLOCK, end) == content[200 * BLOCK..cloned]);
        check_counts(&volume);
        volume.truncate(two, 0, NOW).unwrap();
        check_counts(&volume);
        assert_eq!(valid_blocks(&volume), 0);
    }
}

/// A range of a file cannot become a clone of itself further on, which would take its own blocks away first: nothing is cloned.
#[test]
fn a_range_is_not_cloned_over_itself() {
    let device = fresh(large_zones());
    let volume = open(&device, Compression::None);
    let ino = create(&volume).unwrap();
    let content = text(1, 20 * BLOCK);
    write(&volume, ino, 0, &content);
    assert_eq!(clone(&volume, (ino, 0), (ino, 4 * BLOCK), 5 * BLOCK), 0);
    assert_eq!(clone(&volume, (ino, 4 * BLOCK), (ino, 0), 5 * BLOCK), 0);
    assert!(read(&volume, ino, 0, content.len()) == content);
    let cloned = clone(&volume, (ino, 0), (ino, 5 * BLOCK), 5 * BLOCK);
    assert_eq!(cloned, 5 * BLOCK);
    assert!(read(&volume, ino, 5 * BLOCK, cloned) == content[..cloned]);
    check_counts(&volume);
}

/// The rest of the last block came along, and was there when the target grew.
#[test]
fn a_block_is_not_cloned_for_a_part_of_it() {
    let volume = open(&fresh(large_zones()), Compression::None);
    let (one, two) = (create(&volume).unwrap(), create(&volume).unwrap());
    let content = noise(1, 3 * BLOCK);
    write(&volume, one, 0, &content);
    assert_eq!(
        clone(&volume, (one, 0), (two, 0), 2 * BLOCK + 808),
        2 * BLOCK
    );
    volume.truncate(two, 3 * BLOCK as u64, NOW).unwrap();
    assert!(read(&volume, two, 2 * BLOCK, BLOCK) == [0; BLOCK]);
    // Nor where the target goes on behind the source's end.
    let short = create(&volume).unwrap();
    write(&volume, short, 0, &content[..BLOCK + 7]);
    assert_eq!(clone(&volume, (short, 0), (one, 0), BLOCK + 7), BLOCK);
    assert!(read(&volume, one, BLOCK, 2 * BLOCK) == content[BLOCK..]);
}

/// Blocks beside those that are shared stay the file's own, whatever extents they were in: a record tells which blocks it shares, and a
/// replay may find them joined in another way.
#[test]
fn blocks_beside_those_that_are_shared_stay_the_files_own() {
    let volume = open(&fresh(large_zones()), Compression::None);
    let (one, two) = (create(&volume).unwrap(), create(&volume).unwrap());
    let content = noise(1, 50 * BLOCK);
    write(&volume, one, 0, &content);
    let cloned = clone(&volume, (one, 20 * BLOCK), (two, 0), 7 * BLOCK);
    assert_eq!(cloned, 7 * BLOCK);
    let own: Vec<_> = extents(&volume)
        .into_iter()
        .filter(|(ino, _, extent)| *ino == one && extent.addr().is_some())
        .map(|(_, block, extent)| (block, extent.blocks()))
        .collect();
    assert_eq!(own, [(0, 20), (27, 23)]);
    assert!(read(&volume, one, 0, content.len()) == content);
    check_counts(&volume);
}

/// From the first block that had to be copied on the rest of the call was copied too, 8 MiB of it.
#[test]
fn of_what_lies_between_blocks_to_copy_the_most_is_shared() {
    let volume = open(&fresh(large_zones()), Compression::Lz4);
    let (one, two) = (create(&volume).unwrap(), create(&volume).unwrap());
    let mut content = noise(1, 200 * BLOCK);
    // Single blocks that compress, synced: they are packed, and packing tells no record.
    for block in [50, 53, 100] {
        let line = vec![block as u8; BLOCK];
        content[block * BLOCK..][..BLOCK].copy_from_slice(&line);
        write(&volume, one, block * BLOCK, &line);
        volume.sync_file(one).unwrap();
    }
    volume.step(Task::Checkpoint).unwrap();
    for blocks in [0..50, 51..53, 54..100, 101..200] {
        let bytes = &content[blocks.start * BLOCK..blocks.end * BLOCK];
        write(&volume, one, blocks.start * BLOCK, bytes);
    }
    volume.sync().unwrap();
    let (mut at, mut steps) = (0, Vec::new());
    while at < content.len() {
        let range = CloneRange {
            from: one,
            from_offset: at as u64,
            to: two,
            to_offset: at as u64,
            len: (content.len() - at) as u64,
            when: CloneWhen::Always,
        };
        let Cloned { bytes, to_copy, .. } = volume.clone_range(&range, NOW).unwrap();
        steps.push((bytes / BLOCK as u64, to_copy / BLOCK as u64));
        at += bytes as usize;
        let rest = (content.len() - at).min(to_copy as usize);
        write(&volume, two, at, &content[at..at + rest]);
        at += rest;
    }
    let due = [(50, 4), (46, 1), (99, u64::MAX / BLOCK as u64)];
    assert_eq!(steps, due);
    assert!(read(&volume, two, 0, content.len()) == content);
    check_counts(&volume);
}

/// The room for overwrites that a file was promised was that of its blocks, and went to the store with them.
#[test]
fn preallocated_files_keep_their_blocks() {
    let volume = open(&fresh(large_zones()), Compression::None);
    let (one, two) = (create(&volume).unwrap(), create(&volume).unwrap());
    let content = noise(1, 20 * BLOCK);
    for ino in [one, two] {
        write(&volume, ino, 0, &content);
    }
    let len = content.len();
    volume.preallocate(one, 0, BLOCK as u64, true, NOW).unwrap();
    assert_eq!(clone(&volume, (one, 0), (two, 0), len), 0);
    assert_eq!(clone(&volume, (two, 0), (one, 0), len), 0);
    assert_eq!(clone(&volume, (one, 0), (one, len), len), 0);
    let has_own = |ino| {
        let of_it = extents(&volume).into_iter().filter(|found| found.0 == ino);
        of_it
            .map(|found| found.2)
            .all(|extent| extent.addr().is_some())
    };
    assert!(has_own(one) && has_own(two));
    // What was shared before is the file's own once it is preallocated.
    let three = create(&volume).unwrap();
    assert_eq!(clone(&volume, (two, 0), (three, 0), len), len);
    assert!(!has_own(two));
    volume.preallocate(two, 0, len as u64, true, NOW).unwrap();
    assert!(has_own(two) && !has_own(three));
    assert!(read(&volume, three, 0, len) == content);
    check_counts(&volume);
}

/// A hole was cloned in one record, whatever it replaced: all pages with the target's extents were needed, and became dirty, at once.
#[test]
fn a_hole_over_many_extents_takes_many_records() {
    let volume = open(
        &fresh(SimConfig::new(60, 128).capacity(120)),
        Compression::None,
    );
    let [block, many, hole] = [(); 3].map(|()| create(&volume).unwrap());
    write(&volume, block, 0, &noise(1, BLOCK));
    // It has a block, and a hole, and so on: what each clone has, the next one puts behind it.
    clone(&volume, (block, 0), (many, 0), BLOCK);
    let mut blocks = 2;
    while blocks < 60_000 {
        let (begin, end) = ((many, 0), (many, blocks * BLOCK));
        assert_eq!(
            clone(&volume, begin, end, (blocks - 1) * BLOCK),
            (blocks - 1) * BLOCK
        );
        blocks *= 2;
    }
    volume.truncate(hole, (blocks * BLOCK) as u64, NOW).unwrap();
    volume
        .snapshots()
        .take(SubvolumeId::MAIN, b"then", true, NOW)
        .unwrap();
    volume.step(Task::Checkpoint).unwrap();
    let cloned = clone(&volume, (hole, 0), (many, 0), blocks * BLOCK);
    let dirty = volume.cached_pages().1;
    assert!(dirty < 100, "{dirty} pages are dirty");
    assert_eq!(cloned, blocks * BLOCK);
    assert_eq!(volume.attr(many).unwrap().unwrap().sectors, 0);
    check_stored(&volume);
}

#[test]
fn content_and_counts_stay_right_whatever_happens() {
    let mut cloned = 0;
    for seed in 0..12 {
        let compression = if seed % 2 == 0 {
            Compression::None
        } else {
            Compression::Lz4
        };
        cloned += change_at_random(seed, compression, true);
    }
    assert!(cloned > 20 << 20, "{cloned}");
}
