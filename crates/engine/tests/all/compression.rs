//! Files whose blocks are compressed in frames of several.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use std::sync::Arc;

use crate::common::content::{
    change_at_random, check_counts, extents, large_zones, open, read, settle, text, write,
};
use crate::common::{NOW, create, fresh, noise};
use persimmon_engine::{Error, Intent, Progress, Task, Volume};
use persimmon_format::table::Role;
use persimmon_format::{Compression, Ino, Lifetime, SubvolumeId, ZoneId};
use persimmon_sim::SimDevice;

const BLOCK: usize = 4096;

fn sent(volume: &Volume, act: impl FnOnce()) -> u64 {
    let before = volume.statistics();
    act();
    volume.statistics().since(&before).data_bytes
}

#[test]
fn what_compresses_is_sent_and_counted_compressed() {
    for compression in [Compression::Lz4, Compression::Zstd(3)] {
        let volume = open(&fresh(large_zones()), compression);
        let ino = create(&volume).unwrap();
        let content = text(1, 1 << 20);
        let sent = sent(&volume, || {
            write(&volume, ino, 0, &content);
            while volume.step(Task::WriteBack).unwrap() == Progress::Worked {}
        });
        assert!(sent < 700 << 10, "{compression}: {sent}");
        let inode = volume.attr(ino).unwrap().unwrap();
        assert!(inode.sectors * 512 < 700 << 10, "{}", inode.sectors);
        assert_eq!(read(&volume, ino, 0, content.len()), content);
        check_counts(&volume);
        let frames = extents(&volume);
        assert_eq!(frames.len(), 8, "{frames:?}");
    }
}

#[test]
fn a_frame_is_read_once_for_all_its_blocks() {
    let device = fresh(large_zones());
    let volume = open(&device, Compression::Lz4);
    let ino = create(&volume).unwrap();
    let content = text(1, 1 << 17);
    write(&volume, ino, 0, &content);
    volume.sync().unwrap();
    let before = volume.statistics();
    for block in (0..32).rev() {
        let at = block * BLOCK;
        assert_eq!(read(&volume, ino, at, BLOCK), content[at..][..BLOCK]);
    }
    let bytes = volume.statistics().since(&before).read_bytes;
    assert!(bytes < 1 << 17, "{bytes}");
}

/// Overwriting the same few blocks of a frame leaves parts of it, which are counted as what they are worth, and cleaned into that.
#[test]
fn what_is_left_of_a_frame_takes_no_more_than_its_blocks() {
    let device = fresh(large_zones());
    let volume = open(&device, Compression::Lz4);
    let ino = create(&volume).unwrap();
    // Frames that compress well as a whole, but for one block.
    let mut content = text(1, 32 * 4 * BLOCK);
    for frame in 0..4 {
        let at = (frame * 32 + 7) * BLOCK;
        content[at..at + BLOCK].copy_from_slice(&noise(frame as u64, BLOCK));
    }
    write(&volume, ino, 0, &content);
    volume.sync().unwrap();
    for frame in 0..4 {
        for (from, to) in [(0, 7), (8, 32)] {
            let at = (frame * 32 + from) * BLOCK;
            let punched = (to - from) * BLOCK;
            volume.punch(ino, at as u64, punched as u64, NOW).unwrap();
        }
    }
    check_counts(&volume);
    let inode = volume.attr(ino).unwrap().unwrap();
    assert_eq!(inode.sectors, 4 * 8);
    volume.sync().unwrap();
    let volume = move_all(&device, volume);
    check_counts(&volume);
    for frame in 0..4 {
        let at = (frame * 32 + 7) * BLOCK;
        assert_eq!(read(&volume, ino, at, BLOCK), noise(frame as u64, BLOCK));
    }
}

/// A file of 256 blocks that compress, of which most of each frame is overwritten with what does not.
fn parts_of_frames(volume: &Volume) -> Ino {
    let ino = create(volume).unwrap();
    let block = |number: u64| [noise(number, 2700), vec![0; BLOCK - 2700]].concat();
    let content: Vec<u8> = (0..256).flat_map(block).collect();
    write(volume, ino, 0, &content);
    volume.sync().unwrap();
    for first in (0..256).step_by(32) {
        let at = (first + 1) * BLOCK;
        write(volume, ino, at, &noise(1000 + first as u64, 29 * BLOCK));
    }
    volume.sync().unwrap();
    ino
}

/// The first snapshot of a volume, or one that was deleted, left its files with what they took before they were compressed anew, and their
/// owners charged for it, until they were removed.
#[test]
fn what_is_compressed_anew_is_told_to_the_file_also_beside_a_snapshot() {
    for kept in [false, true] {
        let device = fresh(large_zones());
        let volume = open(&device, Compression::Lz4);
        let snapshot = { volume.snapshots() }.take(SubvolumeId::MAIN, b"s", false, NOW);
        if !kept {
            volume.snapshots().delete(snapshot.unwrap()).unwrap();
            settle(&volume);
        }
        let ino = parts_of_frames(&volume);
        check_counts(&volume);
        let before = volume.attr(ino).unwrap().unwrap().sectors;
        let volume = move_all(&device, volume);
        check_counts(&volume);
        assert_ne!(volume.attr(ino).unwrap().unwrap().sectors, before);
        volume.truncate(ino, 0, NOW).unwrap();
        volume.sync().unwrap();
        assert_eq!(volume.attr(ino).unwrap().unwrap().sectors, 0);
    }
}

/// What a deleted snapshot alone held, and is not removed yet, counts for no file: it is compressed anew beside what the file has.
#[test]
fn what_is_left_of_a_snapshot_is_told_to_no_file() {
    let device = fresh(large_zones());
    let volume = open(&device, Compression::Lz4);
    let ino = parts_of_frames(&volume);
    let snapshot = { volume.snapshots() }.take(SubvolumeId::MAIN, b"s", true, NOW);
    write(&volume, ino, 0, &noise(2000, 256 * BLOCK));
    volume.sync().unwrap();
    volume.snapshots().delete(snapshot.unwrap()).unwrap();
    let sectors = |volume: &Volume| volume.attr(ino).unwrap().unwrap().sectors;
    assert_eq!(sectors(&volume), 256 * 8);
    let volume = move_all(&device, volume);
    assert_eq!(sectors(&volume), 256 * 8);
    settle(&volume);
    assert_eq!(sectors(&volume), 256 * 8);
    check_counts(&volume);
}

/// Has everything moved that is there. What is being filled is not: so the volume is opened anew.
fn move_all(device: &Arc<SimDevice>, volume: Volume) -> Volume {
    volume.close().unwrap();
    drop(volume);
    let volume = open(device, Compression::Lz4);
    let places = |volume: &Volume| -> Vec<_> {
        let extents = extents(volume);
        extents.iter().filter_map(|(.., at)| at.addr()).collect()
    };
    let before = places(&volume);
    let zones = volume.zones();
    let in_use = zones
        .iter()
        .filter(|zone| zone.entry.role == Role::Data && zone.entry.valid > 0);
    let in_use: Vec<ZoneId> = in_use.map(|zone| zone.zone).collect();
    volume.empty_zones(&in_use).unwrap();
    let after = places(&volume);
    assert!(after.iter().all(|addr| !before.contains(addr)));
    volume
}

/// Of the first only the end is left. Both are moved together.
#[test]
fn two_frames_may_begin_at_one_block() {
    let device = fresh(large_zones());
    let volume = open(&device, Compression::Lz4);
    let ino = create(&volume).unwrap();
    // Told the same lifetime, both go to the same zone.
    let write = |data: &[u8]| {
        let hint = Some(Lifetime::Medium);
        let written = volume.write_hinted(ino, 0, data, NOW, hint).unwrap();
        assert_eq!(written, data.len());
        volume.sync().unwrap();
    };
    let mut content = text(1, 32 * BLOCK);
    write(&content);
    let other = text(2, 8 * BLOCK);
    content[..other.len()].copy_from_slice(&other);
    write(&other);
    let extents = extents(&volume);
    let frames: Vec<_> = extents
        .iter()
        .filter_map(|(.., extent)| extent.addr())
        .collect();
    assert!(frames[0].zone() == frames[1].zone(), "{frames:?}");
    let volume = move_all(&device, volume);
    assert!(read(&volume, ino, 0, content.len()) == content);
    check_counts(&volume);
}

#[test]
fn files_are_compressed_as_they_are_told() {
    let device = fresh(large_zones());
    let volume = open(&device, Compression::Lz4);
    let content = text(1, 1 << 17);
    for (told, is_compressed) in [
        (Some(Compression::None), false),
        (Some(Compression::Zstd(1)), true),
        (None, true),
    ] {
        let ino = create(&volume).unwrap();
        volume
            .update::<_, Error>(Intent::Shrink, |tx| {
                let mut inode = tx.inode(ino)?.unwrap();
                inode.compression = Compression::stored(told);
                tx.put_inode(ino, &inode);
                Ok(())
            })
            .unwrap();
        write(&volume, ino, 0, &content);
        volume.sync().unwrap();
        let inode = volume.attr(ino).unwrap().unwrap();
        assert_eq!(inode.sectors < 256, is_compressed, "{told:?}");
        assert_eq!(read(&volume, ino, 0, content.len()), content);
    }
    // What was set aside stays whole.
    let ino = create(&volume).unwrap();
    volume.preallocate(ino, 0, 1 << 17, false, NOW).unwrap();
    write(&volume, ino, 0, &content);
    volume.sync().unwrap();
    assert_eq!(volume.attr(ino).unwrap().unwrap().sectors, 256);
    // And what was compressed gets its blocks when space is set aside for it.
    let ino = create(&volume).unwrap();
    write(&volume, ino, 0, &content);
    volume.sync().unwrap();
    volume.preallocate(ino, 0, 1 << 17, false, NOW).unwrap();
    assert_eq!(volume.attr(ino).unwrap().unwrap().sectors, 256);
    assert_eq!(read(&volume, ino, 0, content.len()), content);
    check_counts(&volume);
}

#[test]
fn content_and_counts_stay_right_whatever_happens() {
    for seed in 0..12 {
        let compression = if seed % 4 == 0 {
            Compression::Zstd(1)
        } else {
            Compression::Lz4
        };
        change_at_random(seed, compression, false);
    }
}
