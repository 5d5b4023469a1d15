//! What snapshots alone hold is told as it is freed.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use crate::common::content::{
    check_stored, clone, large_zones, open, read, settle, text, valid_blocks, write,
};
use crate::common::{NOW, create, fresh, noise, unlink};
use persimmon_engine::Error;
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
