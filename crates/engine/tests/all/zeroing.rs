//! Zeroing a range sets space aside for it. Where there is none, the range keeps what it has.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use crate::common::content::{check_stored, large_zones, open, read, text, write};
use crate::common::{NOW, create, fresh, noise};
use persimmon_engine::{Error, Volume};
use persimmon_format::{Compression, Ino, SubvolumeId};

const BLOCK: usize = 4096;
const BLOCKS: usize = 100;

/// Writes until there is no room left.
fn fill(volume: &Volume) {
    let ino = create(volume).unwrap();
    for chunk in [64, 1] {
        let mut at = volume.attr(ino).unwrap().unwrap().size;
        loop {
            let written = volume.write(ino, at, &noise(at, chunk * BLOCK), NOW);
            if matches!(written, Err(Error::NoSpace)) {
                break;
            }
            at += written.unwrap() as u64;
        }
        volume.sync().unwrap();
    }
}

fn refused(volume: &Volume, ino: Ino, from: usize, len: usize) {
    let zeroed = volume.zero(ino, from as u64, len as u64, false, NOW);
    assert!(matches!(zeroed, Err(Error::NoSpace)), "{zeroed:?}");
}

#[test]
fn a_range_without_room_is_what_it_was() {
    for compression in [Compression::None, Compression::Lz4] {
        let volume = open(&fresh(large_zones()), compression);
        let ino = create(&volume).unwrap();
        let content = text(1, BLOCKS * BLOCK);
        write(&volume, ino, 0, &content);
        volume.sync().unwrap();
        fill(&volume);
        refused(&volume, ino, 3 * BLOCK + 100, 1 << 30);
        assert!(read(&volume, ino, 0, BLOCKS * BLOCK) == content);
        assert_eq!(
            volume.attr(ino).unwrap().unwrap().size,
            content.len() as u64
        );
        check_stored(&volume);
    }
}

#[test]
fn what_a_snapshot_keeps_has_no_room_to_give() {
    let volume = open(&fresh(large_zones()), Compression::None);
    let ino = create(&volume).unwrap();
    let content = noise(1, BLOCKS * BLOCK);
    write(&volume, ino, 0, &content);
    volume.sync().unwrap();
    let main = SubvolumeId::MAIN;
    volume.snapshots().take(main, b"s", true, NOW).unwrap();
    fill(&volume);
    refused(&volume, ino, 10 * BLOCK + 1, 50 * BLOCK);
    assert!(read(&volume, ino, 0, BLOCKS * BLOCK) == content);
    check_stored(&volume);
}

/// Blocks of its own give the room that setting them aside takes.
#[test]
fn on_a_full_volume_whole_blocks_are_zeroed() {
    let volume = open(&fresh(large_zones()), Compression::None);
    let ino = create(&volume).unwrap();
    let mut content = noise(1, BLOCKS * BLOCK);
    write(&volume, ino, 0, &content);
    volume.sync().unwrap();
    fill(&volume);
    let (from, to) = (10 * BLOCK + 100, 90 * BLOCK + 7);
    let len = (to - from) as u64;
    volume.zero(ino, from as u64, len, false, NOW).unwrap();
    content[from..to].fill(0);
    assert!(read(&volume, ino, 0, BLOCKS * BLOCK) == content);
    // What is set aside can be written to.
    write(&volume, ino, from, &noise(2, to - from));
    volume.sync().unwrap();
    content[from..to].copy_from_slice(&noise(2, to - from));
    assert!(read(&volume, ino, 0, BLOCKS * BLOCK) == content);
    check_stored(&volume);
}
