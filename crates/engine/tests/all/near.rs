//! Near duplicates: frames with blocks of the store of shared blocks as a dictionary.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use crate::common::content::{
    change_near, check_counts, check_stored, clone, extents, large_zones, near, open, read, text,
    with, write,
};
use crate::common::{NOW, create, fresh, noise};
use persimmon_engine::{CloneWhen, Deltas, Layout, Options, Progress, Shift, Task, Volume};
use persimmon_format::extent::Extent;
use persimmon_format::inode::SHARED;
use persimmon_format::packed::{PackUnits, Packed};
use persimmon_format::table::Role;
use persimmon_format::{Compression, Ino, SubvolumeId};

const BLOCK: usize = 4096;

/// A file, one that differs from it in a few bytes of each frame, and what is in both.
fn twins(volume: &Volume, blocks: usize) -> [(Ino, Vec<u8>); 2] {
    let content = noise(3, blocks * BLOCK);
    let mut other = content.clone();
    for at in (500..other.len()).step_by(20_000) {
        other[at] ^= 0x5a;
    }
    [content, other].map(|content| {
        let ino = create(volume).unwrap();
        write(volume, ino, 0, &content);
        volume.sync().unwrap();
        (ino, content)
    })
}

fn with_dictionary(volume: &Volume, ino: Ino) -> Vec<Packed> {
    let of_file = extents(volume).into_iter().filter(|(of, ..)| *of == ino);
    let packed = of_file.filter_map(|(_, _, extent)| match extent {
        Extent::Packed(packed) => Some(packed),
        _ => None,
    });
    packed
        .filter(|packed| packed.dictionary().is_some())
        .collect()
}

fn in_store(volume: &Volume) -> u64 {
    let extents = extents(volume).into_iter();
    let stored = extents.filter(|(ino, ..)| *ino == SHARED);
    stored.map(|(_, _, extent)| extent.blocks()).sum()
}

fn valid(volume: &Volume) -> PackUnits {
    let zones = volume.zones();
    let data = zones.iter().filter(|zone| zone.entry.role == Role::Data);
    data.map(|zone| zone.entry.pack_units()).sum()
}

fn empty_all(volume: &Volume) {
    let zones = volume.zones();
    let data = zones.iter().filter(|zone| zone.entry.role == Role::Data);
    let data: Vec<_> = data.map(|zone| zone.zone).collect();
    volume.empty_zones(&data).unwrap();
}

#[test]
fn a_near_duplicate_takes_what_it_has_more() {
    for compression in [Compression::None, Compression::Zstd(3)] {
        let volume = open(&fresh(large_zones()), compression);
        let [(one, content), (two, other)] = twins(&volume, 200);
        let before = valid(&volume);
        let attributes = [one, two].map(|ino| volume.attr(ino).unwrap().unwrap());
        let spared = near(&volume, (one, 0), (two, 0), usize::MAX >> 1);
        assert!(spared as usize > 190 * BLOCK, "{spared}");
        let now = valid(&volume);
        assert_eq!(before.saturating_sub(now).bytes() as u64, spared);
        assert_eq!(in_store(&volume), 200);
        for (ino, content, before) in [(one, &content, attributes[0]), (two, &other, attributes[1])]
        {
            assert!(read(&volume, ino, 0, content.len()) == *content);
            let now = volume.attr(ino).unwrap().unwrap();
            assert_eq!((now.size, now.mtime), (before.size, before.mtime));
        }
        check_counts(&volume);
        // The second time there is nothing to do.
        assert_eq!(near(&volume, (one, 0), (two, 0), usize::MAX >> 1), 0);
        assert_eq!(valid(&volume), now);
        check_counts(&volume);
    }
}

#[test]
fn what_is_not_alike_is_left() {
    let volume = open(&fresh(large_zones()), Compression::None);
    let [(one, _), (two, _)] = twins(&volume, 40);
    write(&volume, two, 0, &noise(77, 40 * BLOCK));
    assert_eq!(near(&volume, (one, 0), (two, 0), 40 * BLOCK), 0);
    // Nor is a file compressed with itself.
    assert_eq!(near(&volume, (one, 0), (one, 20 * BLOCK), 20 * BLOCK), 0);
    assert_eq!(in_store(&volume), 0);
    // What compresses well without another file stays as it is, too.
    let volume = open(&fresh(large_zones()), Compression::Zstd(3));
    let files = [1, 9].map(|number| {
        let ino = create(&volume).unwrap();
        write(&volume, ino, 0, &vec![number; 40 * BLOCK]);
        volume.sync().unwrap();
        ino
    });
    assert_eq!(near(&volume, (files[0], 0), (files[1], 0), 40 * BLOCK), 0);
    assert_eq!(in_store(&volume), 0);
}

#[test]
fn a_dictionary_stays_as_long_as_a_frame_names_it() {
    let device = fresh(large_zones());
    let volume = open(&device, Compression::None);
    let [(one, _), (two, other)] = twins(&volume, 64);
    let begin = valid(&volume);
    near(&volume, (one, 0), (two, 0), usize::MAX >> 1);
    volume.truncate(one, 0, NOW).unwrap();
    volume.sync().unwrap();
    assert_eq!(in_store(&volume), 64);
    check_counts(&volume);
    assert!(read(&volume, two, 0, other.len()) == other);
    drop(volume);
    let volume = open(&device, Compression::None);
    assert!(read(&volume, two, 0, other.len()) == other);
    // Half of its frames go, and what they name.
    volume.punch(two, 0, 32 * BLOCK as u64, NOW).unwrap();
    assert_eq!(in_store(&volume), 32);
    check_counts(&volume);
    // A part of a frame names all of it.
    volume
        .punch(two, 32 * BLOCK as u64, 31 * BLOCK as u64, NOW)
        .unwrap();
    assert_eq!(in_store(&volume), 32);
    assert!(read(&volume, two, 63 * BLOCK, BLOCK) == other[63 * BLOCK..]);
    check_counts(&volume);
    volume.truncate(two, 0, NOW).unwrap();
    assert_eq!(in_store(&volume), 0);
    check_counts(&volume);
    assert!(valid(&volume) < begin);
    assert_eq!(valid(&volume), PackUnits::ZERO);
}

#[test]
fn frames_and_dictionaries_move_in_cleaning() {
    let device = fresh(large_zones());
    for removed in [false, true] {
        let volume = open(&device, Compression::None);
        let [(one, content), (two, other)] = twins(&volume, 100);
        near(&volume, (one, 0), (two, 0), usize::MAX >> 1);
        // Of one frame two parts are left.
        volume
            .punch(two, 5 * BLOCK as u64, 3 * BLOCK as u64, NOW)
            .unwrap();
        let mut other = other;
        other[5 * BLOCK..8 * BLOCK].fill(0);
        if removed {
            volume.truncate(one, 0, NOW).unwrap();
        }
        let (frames, units) = (with_dictionary(&volume, two), valid(&volume));
        assert_eq!(frames.len(), 5);
        for _ in 0..3 {
            volume.step(Task::Checkpoint).unwrap();
            empty_all(&volume);
            let moved = with_dictionary(&volume, two);
            let same = |(one, other): (&Packed, &Packed)| {
                (one.frame, one.skip, one.blocks) == (other.frame, other.skip, other.blocks)
            };
            assert!(frames.iter().zip(&moved).all(same));
            assert_ne!(frames[0].addr, moved[0].addr);
            assert_eq!(valid(&volume), units);
            check_counts(&volume);
        }
        drop(volume);
        let volume = open(&device, Compression::None);
        assert!(read(&volume, two, 0, other.len()) == other);
        if !removed {
            assert!(read(&volume, one, 0, content.len()) == content);
        }
        check_counts(&volume);
        volume.truncate(two, 0, NOW).unwrap();
        if !removed {
            volume.truncate(one, 0, NOW).unwrap();
        }
        assert_eq!(in_store(&volume), 0);
        volume.close().unwrap();
    }
}

/// What counts as less than it takes is written anew, without a dictionary.
#[test]
fn what_is_left_of_a_long_frame_is_written_anew() {
    let volume = open(&fresh(large_zones()), Compression::None);
    let [(one, _), (two, mut other)] = twins(&volume, 32);
    // A quarter of each block is new: that takes 8 blocks.
    for block in 0..32 {
        let fresh = noise(900 + block as u64, BLOCK / 4);
        other[block * BLOCK..][..BLOCK / 4].copy_from_slice(&fresh);
    }
    write(&volume, two, 0, &other);
    near(&volume, (one, 0), (two, 0), usize::MAX >> 1);
    assert_eq!(with_dictionary(&volume, two).len(), 1);
    volume.punch(two, 0, 30 * BLOCK as u64, NOW).unwrap();
    volume.truncate(one, 0, NOW).unwrap();
    check_counts(&volume);
    empty_all(&volume);
    assert_eq!(with_dictionary(&volume, two), []);
    assert_eq!(in_store(&volume), 0);
    check_counts(&volume);
    let end = 30 * BLOCK;
    assert!(read(&volume, two, end, 2 * BLOCK) == other[end..]);
}

#[test]
fn a_dictionary_is_never_compressed_with_one() {
    let volume = open(&fresh(large_zones()), Compression::None);
    let [(one, content), (two, other)] = twins(&volume, 40);
    near(&volume, (one, 0), (two, 0), usize::MAX >> 1);
    // What is near the second is not compressed with it, only with the first.
    let three = create(&volume).unwrap();
    let mut third = other.clone();
    third[7 * BLOCK] ^= 1;
    write(&volume, three, 0, &third);
    assert_eq!(near(&volume, (two, 0), (three, 0), usize::MAX >> 1), 0);
    assert!(near(&volume, (one, 0), (three, 0), usize::MAX >> 1) > 0);
    assert_eq!(in_store(&volume), 40);
    check_counts(&volume);
    // A clone of it is a copy.
    let four = create(&volume).unwrap();
    assert_eq!(clone(&volume, (two, 0), (four, 0), 40 * BLOCK), 0);
    // One that has the same becomes the first's, which others have.
    let five = create(&volume).unwrap();
    write(&volume, five, 0, &content);
    let when = CloneWhen::Equal { least: 0 };
    with(&volume, (five, 0), (two, 0), 40 * BLOCK, when);
    check_counts(&volume);
    for (ino, content) in [
        (one, &content),
        (two, &other),
        (three, &third),
        (five, &content),
    ] {
        assert!(read(&volume, ino, 0, content.len()) == *content);
    }
}

#[test]
fn snapshots_keep_frames_and_what_they_name() {
    let device = fresh(large_zones());
    let volume = open(&device, Compression::None);
    let [(one, _), (two, other)] = twins(&volume, 64);
    near(&volume, (one, 0), (two, 0), usize::MAX >> 1);
    let snapshot = volume
        .snapshots()
        .take(SubvolumeId::MAIN, b"before", true, NOW)
        .unwrap();
    volume.truncate(one, 0, NOW).unwrap();
    let mut changed = other.clone();
    changed[10 * BLOCK..50 * BLOCK].fill(7);
    write(&volume, two, 10 * BLOCK, &changed[10 * BLOCK..50 * BLOCK]);
    volume.sync().unwrap();
    empty_all(&volume);
    check_stored(&volume);
    assert!(read(&volume, two, 0, other.len()) == changed);
    assert!(read(&volume, two.of(snapshot), 0, other.len()) == other);
    assert_eq!(in_store(&volume), 64);
    drop(volume);
    let volume = open(&device, Compression::None);
    volume.snapshots().delete(snapshot).unwrap();
    while volume.step(Task::Settle).unwrap() == Progress::Worked {}
    check_counts(&volume);
    assert!(read(&volume, two, 0, other.len()) == changed);
    volume.truncate(two, 0, NOW).unwrap();
    assert_eq!(in_store(&volume), 0);
    check_counts(&volume);
}

/// Between being taken out and put in again nothing named the dictionary, and it was gone.
#[test]
fn ranges_with_dictionaries_can_be_collapsed() {
    let volume = open(&fresh(large_zones()), Compression::None);
    let [(one, _), (two, mut other)] = twins(&volume, 64);
    near(&volume, (one, 0), (two, 0), usize::MAX >> 1);
    volume.truncate(one, 0, NOW).unwrap();
    let range = (3 * BLOCK as u64, 4 * BLOCK as u64);
    let layout = Layout::of(&volume);
    layout.shift(two, range, Shift::Collapse, NOW).unwrap();
    other.drain(3 * BLOCK..7 * BLOCK);
    assert!(read(&volume, two, 0, 64 * BLOCK) == other);
    check_counts(&volume);
}

#[test]
fn deltas_go_with_what_they_are_of() {
    let device = fresh(large_zones());
    let options = Options {
        deltas: Deltas::Always,
        ..Options::default()
    };
    let volume = crate::common::content::open_as(&device, options);
    let [(one, _), (two, mut other)] = twins(&volume, 64);
    let edit = |at: usize, other: &mut Vec<u8>| {
        other[at] ^= 0x33;
        write(&volume, two, at, &other[at..=at]);
        volume.sync_file(two).unwrap();
    };
    edit(9 * BLOCK + 7, &mut other);
    near(&volume, (one, 0), (two, 0), usize::MAX >> 1);
    assert!(read(&volume, two, 0, other.len()) == other);
    // And of blocks of such a frame.
    edit(9 * BLOCK + 9, &mut other);
    edit(40 * BLOCK + 9, &mut other);
    check_counts(&volume);
    empty_all(&volume);
    assert!(read(&volume, two, 0, other.len()) == other);
    check_counts(&volume);
}

#[test]
fn files_are_what_they_should_be_whatever_is_done() {
    let mut spared = 0;
    for seed in 0..8 {
        let compressions = [Compression::None, Compression::Lz4, Compression::Zstd(1)];
        let options = Options {
            compression: compressions[seed as usize % 3],
            deltas: [Deltas::Always, Deltas::None][seed as usize % 2],
            ..Options::default()
        };
        spared += change_near(seed, options);
    }
    assert!(spared > 1 << 20, "{spared}");
}

/// Text that is compressed already is spared where another has nearly the same.
#[test]
fn versions_of_a_text_are_near() {
    let volume = open(&fresh(large_zones()), Compression::Zstd(3));
    let content = text(1, 60 * BLOCK);
    let mut later = content.clone();
    // What is inserted moves all behind it.
    later.splice(1000..1000, *b"a few words more");
    later.truncate(content.len());
    let files = [&content, &later].map(|content| {
        let ino = create(&volume).unwrap();
        write(&volume, ino, 0, content);
        volume.sync().unwrap();
        ino
    });
    let spared = near(&volume, (files[0], 0), (files[1], 0), content.len());
    assert!(spared > 30_000, "{spared}");
    assert!(read(&volume, files[1], 0, later.len()) == later);
    check_counts(&volume);
}

/// A zone that is lost takes what was compressed with something in it along, and is told of with all of that.
#[test]
fn what_cannot_be_read_without_a_lost_dictionary_is_told() {
    let device = fresh(large_zones());
    let volume = open(&device, Compression::None);
    let [(one, _), (two, other)] = twins(&volume, 100);
    near(&volume, (one, 0), (two, 0), usize::MAX >> 1);
    assert!(!with_dictionary(&volume, two).is_empty());
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    let store = extents(&volume).into_iter().find(|(of, ..)| *of == SHARED);
    let zone = store
        .and_then(|(_, _, extent)| extent.addr())
        .unwrap()
        .zone();
    device.set_offline(zone);
    // Whoever meets it first has the zones looked at.
    assert!(volume.read(two, 0, &mut [0; BLOCK]).is_err());
    let mut told = [false; 100];
    for range in volume.losses(1000).unwrap().ranges {
        if range.ino == two {
            let from = range.offset as usize / BLOCK;
            told[from..from + range.bytes as usize / BLOCK].fill(true);
        }
    }
    let mut lost = 0;
    for (block, told) in told.iter().enumerate() {
        let mut bytes = vec![0; BLOCK];
        let at = block * BLOCK;
        match volume.read(two, at as u64, &mut bytes) {
            Ok(_) => assert_eq!(bytes, other[at..at + BLOCK]),
            Err(error) => {
                assert!(*told, "block {block}: {error}");
                lost += 1;
            }
        }
    }
    assert!(lost > 0);
}
