//! What snapshots alone hold is told as it is freed.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use crate::common::content::{
    check_stored, clone, delete_telling_space, large_zones, open, read, settle, text, valid_blocks,
    write,
};
use crate::common::{NOW, create, fresh, noise, unlink};
use persimmon_engine::{Error, HeldSpace};
use persimmon_format::{Compression, SubvolumeId};

const BLOCK: usize = 4096;
const MAIN: SubvolumeId = SubvolumeId::MAIN;

/// Shared blocks that only a snapshot's files name are freed with it, and those that others name too are not.
#[test]
fn what_a_snapshot_holds_of_shared_blocks_is_told() {
    for compression in [Compression::None, Compression::Lz4] {
        let device = fresh(large_zones());
        let volume = open(&device, compression);
        let (first, second) = (create(&volume).unwrap(), create(&volume).unwrap());
        let (other, kept) = (create(&volume).unwrap(), create(&volume).unwrap());
        let content = text(1, 300 * BLOCK);
        write(&volume, first, 0, &content);
        write(&volume, other, 0, &noise(3, 100 * BLOCK));
        volume.sync().unwrap();
        clone(&volume, (first, 0), (second, 0), 300 * BLOCK);
        // Named twice by the first file itself, and by one that stays.
        let (from, to) = ((first, 20 * BLOCK), (second, 400 * BLOCK));
        clone(&volume, from, to, 50 * BLOCK);
        clone(&volume, (other, 0), (kept, 0), 60 * BLOCK);
        volume.sync().unwrap();
        let id = volume.snapshots().take(MAIN, b"s", true, NOW).unwrap();
        assert_eq!(volume.snapshots().space(id).unwrap(), 0);
        volume.truncate(second, 0, NOW).unwrap();
        volume.sync().unwrap();
        assert_eq!(volume.snapshots().space(id).unwrap(), 0);
        for ino in [first, other] {
            volume.truncate(ino, 0, NOW).unwrap();
        }
        volume.sync().unwrap();
        settle(&volume);
        let alone = volume.snapshots().space(id).unwrap();
        let held = valid_blocks(&volume);
        volume.snapshots().delete(id).unwrap();
        settle(&volume);
        let freed = (held - valid_blocks(&volume)) * BLOCK as u64;
        assert!(freed >= 50 * BLOCK as u64, "{freed}");
        assert!(
            alone.abs_diff(freed) <= 64 * BLOCK as u64,
            "{alone} {freed}"
        );
        assert!(read(&volume, kept, 0, 60 * BLOCK) == noise(3, 60 * BLOCK));
        check_stored(&volume);
    }
}

/// Right after a snapshot was deleted on a full volume everything was refused, until the background had removed what it alone held.
#[test]
fn what_a_deleted_snapshot_held_can_be_taken_at_once() {
    let device = fresh(large_zones());
    let volume = open(&device, Compression::None);
    let total = volume.space().total_bytes as usize / BLOCK;
    let held = create(&volume).unwrap();
    for block in (0..total / 2).step_by(32) {
        write(
            &volume,
            held,
            block * BLOCK,
            &noise(block as u64, 32 * BLOCK),
        );
    }
    volume.sync().unwrap();
    let id = volume.snapshots().take(MAIN, b"s", true, NOW).unwrap();
    unlink(&volume, &[held]);
    volume.reclaim(&[held]).unwrap();
    settle(&volume);
    let file = create(&volume).unwrap();
    let append = |block: usize, blocks: usize| {
        let offset = (block * BLOCK) as u64;
        volume.write(file, offset, &noise(block as u64, blocks * BLOCK), NOW)
    };
    let mut end = 0;
    for blocks in [32, 1] {
        loop {
            match append(end, blocks) {
                Ok(_) => end += blocks,
                Err(Error::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    while create(&volume).is_ok() {}
    volume.snapshots().delete(id).unwrap();
    create(&volume).unwrap();
    for _ in 0..total / 4 / 32 {
        append(end, 32).unwrap();
        end += 32;
    }
    volume.sync().unwrap();
    settle(&volume);
    check_stored(&volume);
}

/// What two snapshots hold neither holds alone: all were told to hold nothing, and held much.
#[test]
fn what_snapshots_hold_together_is_told() {
    for compression in [Compression::None, Compression::Lz4] {
        let device = fresh(large_zones());
        let volume = open(&device, compression);
        let (kept, gone) = (create(&volume).unwrap(), create(&volume).unwrap());
        write(&volume, kept, 0, &noise(1, 64 * BLOCK));
        write(&volume, gone, 0, &text(2, 64 * BLOCK));
        volume.sync().unwrap();
        let take = |name: &str, writable: bool| {
            let snapshots = volume.snapshots();
            snapshots.take(MAIN, name.as_bytes(), !writable, NOW)
        };
        assert_eq!(volume.snapshots().held().unwrap(), HeldSpace::default());
        let mut ids = vec![take("a", false).unwrap(), take("b", false).unwrap()];
        assert_eq!(volume.snapshots().held().unwrap(), HeldSpace::default());
        write(&volume, kept, 8 * BLOCK, &noise(3, 16 * BLOCK));
        unlink(&volume, &[gone]);
        volume.reclaim(&[gone]).unwrap();
        volume.sync().unwrap();
        let held = volume.snapshots().held().unwrap();
        assert_eq!(held.alone.values().sum::<u64>(), 0);
        assert!(held.together >= 16 * BLOCK as u64, "{held:?}");
        // What was made in one that can be written to is its own.
        let writable = take("w", true).unwrap();
        write(&volume, kept.of(writable), 0, &noise(4, 10 * BLOCK));
        volume.sync().unwrap();
        let more = volume.snapshots().held().unwrap();
        assert_eq!(more.together, held.together + 10 * BLOCK as u64);
        assert_eq!(more.alone[&writable], 10 * BLOCK as u64);
        ids.push(writable);
        delete_telling_space(&volume, ids);
        assert_eq!(volume.snapshots().held().unwrap(), HeldSpace::default());
        check_stored(&volume);
    }
}

/// Pages that are looked at to tell what so many snapshots hold, in each of which one file is another.
fn work_of(snapshots: u64) -> u64 {
    let device = fresh(large_zones());
    let volume = open(&device, Compression::None);
    let ino = create(&volume).unwrap();
    for seed in 0..snapshots {
        write(&volume, ino, 0, &noise(seed, 2 * BLOCK));
        volume.sync().unwrap();
        let name = seed.to_string();
        volume
            .snapshots()
            .take(MAIN, name.as_bytes(), true, NOW)
            .unwrap();
    }
    write(&volume, ino, 0, b"other");
    write(&volume, ino, BLOCK, b"other");
    volume.sync().unwrap();
    let before = volume.statistics().pages_looked_at;
    let held = volume.snapshots().held().unwrap();
    let work = volume.statistics().pages_looked_at - before;
    assert_eq!(held.together, snapshots * 2 * BLOCK as u64);
    assert_eq!(held.alone.len() as u64, snapshots);
    assert!(held.alone.values().all(|alone| *alone == 2 * BLOCK as u64));
    work
}

/// Each snapshot was asked for alone, and looked at the blocks of all: with twice as many it took four times as long. A page has many
/// of these; who looks for each snapshot looks at one for each.
#[test]
fn what_many_snapshots_hold_takes_one_look() {
    let snapshots = 400;
    let pages = work_of(snapshots);
    assert!(pages <= snapshots / 8, "{pages}");
}
