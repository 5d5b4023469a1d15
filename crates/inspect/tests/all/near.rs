//! Frames with a dictionary: what a check and a replay make of them, and of what is broken.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use crate::support::{
    FILE, add, add_some, assert_right, change, content, engine_items, formatted_shared, mend, now,
    numbers, open, report, text,
};
use persimmon_engine::{CloneRange, CloneWhen, Progress, Task, Transaction, Volume};
use persimmon_format::compression::Codec;
use persimmon_format::dictionary::Dictionary;
use persimmon_format::extent::Extent;
use persimmon_format::inode::{ROOT, SHARED};
use persimmon_format::packed::Packed;
use persimmon_format::references::References;
use persimmon_format::table::Role;
use persimmon_format::{BLOCK_SIZE, Ino, Key, SubvolumeId};
use persimmon_sim::SimDevice;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const BLOCK: u64 = BLOCK_SIZE as u64;
/// Of a frame, on zones of this size.
const BLOCKS: u64 = 16;

/// Blocks of one file that are to be a dictionary of those of another, or to be cloned.
fn with(volume: &Volume, from: (Ino, u64), to: (Ino, u64), blocks: u64, when: CloneWhen) -> u64 {
    let range = CloneRange {
        from: from.0,
        from_offset: from.1 * BLOCK,
        to: to.0,
        to_offset: to.1 * BLOCK,
        len: blocks * BLOCK,
        when,
    };
    volume.clone_range(&range, now(7)).unwrap().shared
}

#[test]
fn volumes_with_near_duplicates_are_sound() {
    let mut spared = 0;
    for seed in 0..6 {
        let device = formatted_shared();
        let mut volume = open(&device);
        let mut rng = StdRng::seed_from_u64(seed);
        let files = add_some(&volume, &mut rng, 4);
        let mut snapshot: Option<SubvolumeId> = None;
        for step in 0..120 {
            let mut file = || files[rng.random_range(0..files.len())];
            let (one, other) = (file(), file());
            let (at, to) = (rng.random_range(0..150), rng.random_range(0..150));
            let blocks = rng.random_range(1..70);
            let len = blocks as usize * BLOCK_SIZE;
            match rng.random_range(0..18) {
                0..4 => {
                    let bytes = match rng.random_range(0..2) {
                        0 => text(step + 1, len),
                        _ => content(step + 1, len),
                    };
                    volume.write(one, at * BLOCK, &bytes, now(2)).unwrap();
                    volume.commit_file(one).unwrap();
                }
                4..11 if one != other => {
                    // The same with a few changes.
                    let mut bytes = vec![0; len];
                    let read = volume.read(one, at * BLOCK, &mut bytes).unwrap();
                    bytes.truncate(read);
                    for _ in 0..5.min(read) {
                        bytes[rng.random_range(0..read)] ^= 0x55;
                    }
                    volume.write(other, to * BLOCK, &bytes, now(2)).unwrap();
                    let when = CloneWhen::Near;
                    spared += with(&volume, (one, at), (other, to), blocks, when);
                }
                11 if one != other => {
                    with(&volume, (one, at), (other, to), blocks, CloneWhen::Always);
                }
                12 => volume
                    .punch(one, at * BLOCK, blocks * BLOCK, now(3))
                    .unwrap(),
                13 => volume.truncate(one, at * BLOCK + 5, now(4)).unwrap(),
                14 => {
                    let zones = volume.zones();
                    let data = zones
                        .iter()
                        .find(|zone| zone.entry.role == Role::Data && zone.entry.valid > 0);
                    if let Some(zone) = data {
                        volume.empty_zones(&[zone.zone]).unwrap();
                    }
                }
                15 => drop(volume.step(Task::Checkpoint).unwrap()),
                // Half of the volumes have snapshots.
                16 if seed % 2 == 0 => match snapshot.take() {
                    Some(taken) => {
                        volume.snapshots().delete(taken).unwrap();
                        while volume.step(Task::Settle).unwrap() == Progress::Worked {}
                    }
                    None => {
                        let main = SubvolumeId::MAIN;
                        let taken = volume.snapshots().take(main, b"taken", true, now(5));
                        snapshot = Some(taken.unwrap());
                    }
                },
                _ => volume.sync_file(one).unwrap(),
            }
            if step % 10 == 9 {
                volume.sync().unwrap();
                assert_right(&device);
            }
            if step % 40 == 39 {
                drop(volume);
                volume = open(&device);
                assert_right(&device);
            }
        }
        volume.close().unwrap();
        assert_right(&device);
    }
    assert!(spared > 1 << 20, "{spared}");
}

/// Two files of 16 blocks, which are one frame, that differ in some bytes. Those of the first are in the store, and a dictionary of the
/// second's.
struct Near {
    device: Arc<SimDevice>,
    volume: Volume,
    one: Ino,
    other: Ino,
    /// Where the store has them.
    at: u64,
    /// The frame of the second.
    frame: Packed,
}

fn near() -> Near {
    let device = formatted_shared();
    let volume = open(&device);
    let mut bytes = content(5, BLOCKS as usize * BLOCK_SIZE);
    let [one, other] = ["one", "other"].map(|name| {
        let ino = add(&volume, ROOT, name, FILE);
        volume.write(ino, 0, &bytes, now(2)).unwrap();
        volume.commit_file(ino).unwrap();
        bytes[30_000] ^= 1;
        bytes[50_000] ^= 1;
        ino
    });
    let spared = with(&volume, (one, 0), (other, 0), BLOCKS, CloneWhen::Near);
    assert!(spared > 15 * BLOCK, "{spared}");
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    assert_eq!(report(&device, true).findings, []);
    let items = engine_items(&device);
    let of = |ino| {
        let items = items.range(Key::extent(ino, 0)..=Key::extent(ino, u64::MAX));
        items.map(|(key, value)| (key.item, Extent::decode(value).unwrap()))
    };
    let (at, _) = of(SHARED).next().unwrap();
    let (_, extent) = of(other).next().unwrap();
    let Extent::Packed(frame) = extent else {
        panic!("{extent:?}")
    };
    let dictionary = Dictionary {
        at,
        blocks: BLOCKS as u8,
    };
    assert_eq!(
        (frame.dictionary(), frame.blocks),
        (Some(dictionary), BLOCKS as u8)
    );
    Near {
        device,
        volume,
        one,
        other,
        at,
        frame,
    }
}

/// Breaks the volume, and expects these findings: from the journal (but that there is one), and from a checkpoint; and what is left after a
/// repair.
fn broken(
    [journal, checkpointed, left]: [&[u16]; 3],
    mut f: impl FnMut(&mut Transaction<'_>, &Near) -> persimmon_engine::Result<()>,
) -> Near {
    let near = near();
    change(&near.volume, |tx| f(tx, &near));
    near.volume.sync().unwrap();
    let sorted = |mut numbers: Vec<u16>| {
        numbers.sort_unstable();
        numbers
    };
    let found = report(&near.device, true);
    let mut told = sorted(numbers(&found));
    assert_eq!(told.remove(0), 206);
    assert_eq!(told, journal, "{:#?}", found.findings);
    near.volume.step(Task::Checkpoint).unwrap();
    let found = report(&near.device, true);
    assert_eq!(
        sorted(numbers(&found)),
        checkpointed,
        "{:#?}",
        found.findings
    );
    let mended = mend(&near.device);
    assert_eq!(sorted(numbers(&mended)), left, "{:#?}", mended.findings);
    near
}

/// The second file's frame with another dictionary.
fn put_with(tx: &mut Transaction<'_>, near: &Near, at: u64, blocks: u8) {
    let mut frame = near.frame;
    frame.frame.codec = Codec::ZstdAfter(Dictionary { at, blocks });
    tx.put(Key::extent(near.other, 0), Extent::Packed(frame).encode());
}

#[test]
fn a_wrong_count_of_a_dictionary_is_found() {
    for count in [0, 3] {
        let near = broken([&[534], &[534], &[]], |tx, near| {
            let key = Key::references(near.at);
            let blocks = References::decode(near.at, tx.get(&key)?.unwrap()).unwrap();
            match count {
                0 => tx.delete(key),
                count => tx.put(key, References { count, ..blocks }.encode()),
            }
            Ok(())
        });
        // It is right again: the first file can go.
        let volume = open(&near.device);
        volume.truncate(near.one, 0, now(9)).unwrap();
        let mut block = vec![0; BLOCK_SIZE];
        volume.read(near.other, 0, &mut block).unwrap();
        assert!(block == content(5, BLOCK_SIZE));
        volume.sync().unwrap();
        assert_right(&near.device);
    }
}

#[test]
fn a_dictionary_that_is_not_there_is_found() {
    // The store has lost it: so has the file that it came from.
    broken(
        [
            &[532, 534, 536, 801],
            &[322, 532, 534, 536, 801],
            &[536, 801],
        ],
        |tx, near| {
            tx.delete(Key::extent(SHARED, near.at));
            Ok(())
        },
    );
    // A frame names what never was.
    broken(
        [&[534, 536, 801], &[333, 534, 536, 801], &[536, 801]],
        |tx, near| {
            put_with(tx, near, near.at + 5000, 16);
            Ok(())
        },
    );
}

/// Other blocks as a dictionary give other content, and the frame has a checksum of it.
#[test]
fn another_dictionary_is_found() {
    broken([&[534, 801], &[534, 801], &[801]], |tx, near| {
        put_with(tx, near, near.at + 4, 12);
        Ok(())
    });
}

#[test]
fn a_dictionary_outside_of_all_blocks_is_found() {
    broken(
        [&[502, 513, 534], &[322, 502, 513, 534], &[502]],
        |tx, near| {
            let mut bytes = Extent::Packed(near.frame).encode();
            bytes[22..30].copy_from_slice(&u64::MAX.to_le_bytes());
            tx.put(Key::extent(near.other, 0), bytes);
            Ok(())
        },
    );
}

#[test]
fn a_dictionary_that_has_one_itself_is_found() {
    // A frame of the second file stands in the store, in place of the first one's blocks.
    broken(
        [
            &[523, 537, 801, 801, 801],
            &[322, 523, 537, 801, 801, 801],
            &[523, 537, 801, 801, 801],
        ],
        |tx, near| {
            let frame = Extent::Packed(near.frame);
            tx.put(Key::extent(SHARED, near.at), frame.encode());
            Ok(())
        },
    );
}

#[test]
fn damaged_blocks_of_a_dictionary_are_told_for_both_files() {
    let near = near();
    let items = engine_items(&near.device);
    let stored = Extent::decode(&items[&Key::extent(SHARED, near.at)]).unwrap();
    let (addr, _) = stored.place().unwrap();
    assert!(near.device.corrupt(addr.zone(), addr.block() + 3, 77, 1));
    let found = report(&near.device, true);
    let places: Vec<_> = found
        .findings
        .iter()
        .map(|f| (f.number, &f.place[..]))
        .collect();
    let other = format!("inode {}, block 0", near.other);
    let one = format!("inode {}, block 3", near.one);
    let store = format!("inode {SHARED}, block {}", near.at + 3);
    assert!(places.contains(&(801, &*other)), "{places:?}");
    assert!(places.contains(&(801, &*one)), "{places:?}");
    assert!(places.contains(&(801, &*store)), "{places:?}");
}
