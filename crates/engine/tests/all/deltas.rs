//! Blocks of which little changed are written as deltas, and read as what they are.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use std::sync::Arc;

use crate::common::content::{
    check_counts, check_stored, clone, edit, extents, items, large_zones, open, open_with, read,
    text, write,
};
use crate::common::{NOW, create, fresh, noise, unlink};
use persimmon_device::ZonedDevice;
use persimmon_engine::{CloneRange, CloneWhen, Deltas, Options, Task, Volume};
use persimmon_engine::{Error, Intent, Transaction};
use persimmon_format::delta::{self, is_delta};
use persimmon_format::extent::Extent;
use persimmon_format::inode::SHARED;
use persimmon_format::{Compression, Ino, KeyKind, SubvolumeId};
use persimmon_sim::SimDevice;
use rand::SeedableRng;
use rand::rngs::StdRng;

const BLOCK: usize = 4096;

fn deltas(volume: &Volume) -> Vec<(Ino, u64, Extent)> {
    let mut all = extents(volume);
    all.retain(|(_, place, _)| is_delta(*place));
    all.iter_mut()
        .for_each(|(_, place, _)| *place = delta::block_at(*place));
    all
}

fn blocks_of(deltas: &[(Ino, u64, Extent)]) -> Vec<u64> {
    deltas.iter().map(|(_, block, _)| *block).collect()
}

/// A volume that makes deltas wherever it can, and a file of 100 blocks on it.
fn volume() -> (Arc<SimDevice>, Volume, Ino, Vec<u8>) {
    let device = fresh(large_zones());
    let volume = open_with(&device, Compression::None, Deltas::Always);
    let ino = create(&volume).unwrap();
    let content = noise(1, 100 * BLOCK);
    write(&volume, ino, 0, &content);
    volume.sync().unwrap();
    (device, volume, ino, content)
}

fn change(volume: &Volume, ino: Ino, content: &mut [u8], at: usize) {
    content[at..at + 100].iter_mut().for_each(|byte| *byte ^= 1);
    write(volume, ino, at, &content[at..at + 100]);
    volume.sync_file(ino).unwrap();
}

#[test]
fn a_changed_block_is_its_delta_until_it_is_written_anew() {
    let (device, volume, ino, mut content) = volume();
    change(&volume, ino, &mut content, 7 * BLOCK + 5);
    change(&volume, ino, &mut content, 9 * BLOCK);
    assert_eq!(blocks_of(&deltas(&volume)), [7, 9]);
    assert!(read(&volume, ino, 0, content.len()) == content);
    // Of parts of blocks too.
    for at in [7 * BLOCK + 4, 7 * BLOCK + 50, 8 * BLOCK - 3] {
        assert!(read(&volume, ino, at, 2 * BLOCK) == content[at..at + 2 * BLOCK]);
        assert!(read(&volume, ino, at, 9) == content[at..at + 9]);
    }
    // A second change of a block is one to the same content.
    change(&volume, ino, &mut content, 7 * BLOCK + 3000);
    assert_eq!(blocks_of(&deltas(&volume)), [7, 9]);
    assert!(read(&volume, ino, 0, content.len()) == content);
    check_counts(&volume);
    drop(volume);
    let volume = open_with(&device, Compression::None, Deltas::Always);
    assert!(read(&volume, ino, 0, content.len()) == content);
    assert_eq!(blocks_of(&deltas(&volume)), [7, 9]);
    // Packed with a checkpoint.
    volume.step(Task::Checkpoint).unwrap();
    let packed = deltas(&volume);
    assert!(matches!(packed[0].2, Extent::Packed(_)), "{packed:?}");
    assert!(read(&volume, ino, 0, content.len()) == content);
    check_counts(&volume);
    let new = noise(9, BLOCK);
    content[7 * BLOCK..8 * BLOCK].copy_from_slice(&new);
    write(&volume, ino, 7 * BLOCK, &new);
    volume.sync_file(ino).unwrap();
    assert_eq!(blocks_of(&deltas(&volume)), [9]);
    assert!(read(&volume, ino, 0, content.len()) == content);
    check_counts(&volume);
    volume.truncate(ino, 9 * BLOCK as u64 + 50, NOW).unwrap();
    content.truncate(9 * BLOCK + 50);
    assert!(deltas(&volume).is_empty());
    assert!(read(&volume, ino, 0, 100 * BLOCK) == content);
    check_counts(&volume);
}

#[test]
fn a_clone_has_what_the_file_has() {
    let (_device, volume, ino, mut content) = volume();
    change(&volume, ino, &mut content, 20 * BLOCK);
    change(&volume, ino, &mut content, 21 * BLOCK);
    let other = create(&volume).unwrap();
    let cloned = clone(&volume, (ino, 0), (other, 0), content.len());
    assert_eq!(cloned, content.len());
    assert_eq!(blocks_of(&deltas(&volume)), [20, 21, 20, 21]);
    assert!(read(&volume, other, 0, cloned) == content);
    check_counts(&volume);
    // What is shared may have deltas, in one of the files.
    let before = content.clone();
    change(&volume, ino, &mut content, 5 * BLOCK);
    assert_eq!(blocks_of(&deltas(&volume)), [5, 20, 21, 20, 21]);
    assert!(read(&volume, other, 0, before.len()) == before);
    volume.truncate(other, 0, NOW).unwrap();
    assert!(read(&volume, ino, 0, content.len()) == content);
    // And a target loses them.
    let target = clone(&volume, (ino, 30 * BLOCK), (ino, 4 * BLOCK), 2 * BLOCK);
    assert_eq!(target, 2 * BLOCK);
    content.copy_within(30 * BLOCK..32 * BLOCK, 4 * BLOCK);
    assert_eq!(blocks_of(&deltas(&volume)), [20, 21]);
    assert!(read(&volume, ino, 0, content.len()) == content);
    check_counts(&volume);
}

/// Deltas that are packed are put for the other file too, and a replay finds them there.
#[test]
fn a_clone_of_packed_deltas_is_replayed() {
    let (device, volume, ino, mut content) = volume();
    for block in [0, 7, 8, 50, 99] {
        change(&volume, ino, &mut content, block * BLOCK + 9);
    }
    volume.step(Task::Checkpoint).unwrap();
    let is_packed = |(_, _, extent): &(Ino, u64, Extent)| matches!(extent, Extent::Packed(_));
    assert!(deltas(&volume).iter().all(is_packed));
    let other = create(&volume).unwrap();
    let at = 3 * BLOCK;
    assert_eq!(
        clone(&volume, (ino, 0), (other, at), content.len()),
        content.len()
    );
    let check = |volume: &Volume| {
        assert_eq!(
            blocks_of(&deltas(volume)),
            [0, 7, 8, 50, 99, 3, 10, 11, 53, 102]
        );
        assert!(read(volume, ino, 0, content.len()) == content);
        assert!(read(volume, other, at, content.len()) == content);
        check_counts(volume);
    };
    check(&volume);
    volume.sync().unwrap();
    drop(volume);
    check(&open(&device, Compression::None));
}

/// More deltas than one record gives.
#[test]
fn a_clone_of_many_deltas_is_whole() {
    let (_device, volume, ino, mut content) = volume();
    for block in 0..90 {
        change(&volume, ino, &mut content, block * BLOCK + 9);
    }
    let other = create(&volume).unwrap();
    assert_eq!(
        clone(&volume, (ino, 0), (other, 0), content.len()),
        content.len()
    );
    assert_eq!(deltas(&volume).len(), 180);
    assert!(read(&volume, other, 0, content.len()) == content);
    check_counts(&volume);
}

/// The file whose block has no delta gives it; where both have one, what is stored is shared and the delta goes with it.
#[test]
fn equal_blocks_with_deltas_become_one() {
    let (device, volume, one, mut content) = volume();
    let two = create(&volume).unwrap();
    write(&volume, two, 0, &content);
    volume.sync().unwrap();
    let mut twin = content.clone();
    for at in [5 * BLOCK, 30 * BLOCK + 7, 31 * BLOCK] {
        change(&volume, one, &mut content, at);
    }
    for at in [30 * BLOCK + 7, 60 * BLOCK] {
        change(&volume, two, &mut twin, at);
    }
    // As new blocks, not as deltas to what was there.
    for block in [5, 31] {
        let bytes = &content[block * BLOCK..][..BLOCK];
        write(&volume, two, block * BLOCK, bytes);
        twin[block * BLOCK..][..BLOCK].copy_from_slice(bytes);
    }
    volume.sync().unwrap();
    change(&volume, one, &mut content, 60 * BLOCK);
    volume.sync().unwrap();
    assert_eq!(blocks_of(&deltas(&volume)), [5, 30, 31, 60, 30, 60]);
    let when = CloneWhen::Equal { least: 0 };
    let range = CloneRange {
        from: one,
        from_offset: 0,
        to: two,
        to_offset: 0,
        len: content.len() as u64,
        when,
    };
    let cloned = volume.clone_range(&range, NOW).unwrap();
    assert_eq!((cloned.bytes, cloned.shared), (range.len, range.len));
    // Those that one of both had as a delta are shared as they are.
    assert_eq!(blocks_of(&deltas(&volume)), [30, 60, 30, 60]);
    let check = |volume: &Volume| {
        for ino in [one, two] {
            assert!(read(volume, ino, 0, content.len()) == content);
        }
        check_counts(volume);
    };
    check(&volume);
    // Blocks in one place whose deltas differ are not taken for equal.
    change(&volume, two, &mut twin, 70 * BLOCK);
    let cloned = volume.clone_range(&range, NOW).unwrap();
    assert_eq!(cloned.bytes, 70 * BLOCK as u64);
    change(&volume, two, &mut twin, 70 * BLOCK);
    volume.sync().unwrap();
    drop(volume);
    check(&open(&device, Compression::None));
}

/// Only blocks whose content is in memory: those that were synced lately.
#[test]
fn nothing_is_read_for_a_delta_unless_that_is_asked_for() {
    let device = fresh(large_zones());
    let volume = open_with(&device, Compression::None, Deltas::InMemory);
    let ino = create(&volume).unwrap();
    let mut content = noise(1, 100 * BLOCK);
    write(&volume, ino, 0, &content);
    volume.sync().unwrap();
    let reads = || volume.statistics().read_commands;
    let overwrite = |content: &mut Vec<u8>, block: usize, byte: u8| {
        content[block * BLOCK] = byte;
        let changed = content[block * BLOCK..][..BLOCK].to_vec();
        let before = reads();
        write(&volume, ino, block * BLOCK, &changed);
        volume.sync_file(ino).unwrap();
        assert_eq!(reads(), before);
    };
    overwrite(&mut content, 7, 1);
    assert!(deltas(&volume).is_empty());
    overwrite(&mut content, 7, 2);
    assert_eq!(blocks_of(&deltas(&volume)), [7]);
    overwrite(&mut content, 7, 3);
    assert_eq!(blocks_of(&deltas(&volume)), [7]);
    // From now on what is read of the file as of a database is kept, and what is read as of any other file is not.
    for (block, blocks) in [(20, 1), (50, 5), (60, 3)] {
        assert!(
            read(&volume, ino, block * BLOCK, blocks * BLOCK)
                == content[block * BLOCK..][..blocks * BLOCK]
        );
    }
    for block in [20, 30, 51, 62] {
        overwrite(&mut content, block, 4);
    }
    assert_eq!(blocks_of(&deltas(&volume)), [7, 20, 62]);
    assert!(read(&volume, ino, 0, content.len()) == content);
}

/// Blocks that were synced compressed are kept as those that were not.
#[test]
fn synced_blocks_that_were_compressed_have_deltas() {
    let device = fresh(large_zones());
    let volume = open_with(&device, Compression::Lz4, Deltas::InMemory);
    let ino = create(&volume).unwrap();
    let mut content = text(1, 3 * BLOCK);
    write(&volume, ino, 0, &content);
    volume.sync_file(ino).unwrap();
    let all = extents(&volume);
    let of_file = all.iter().filter(|(of, ..)| *of == ino);
    for (_, _, extent) in of_file {
        assert!(matches!(extent, Extent::Packed(_)), "{extent:?}");
    }
    change(&volume, ino, &mut content, BLOCK + 9);
    assert_eq!(blocks_of(&deltas(&volume)), [1]);
    assert!(read(&volume, ino, 0, content.len()) == content);
    check_counts(&volume);
}

/// What a frame of several blocks gives may be the base, too.
#[test]
fn blocks_of_compressed_frames_have_deltas() {
    let device = fresh(large_zones());
    let volume = open_with(&device, Compression::Lz4, Deltas::Always);
    let ino = create(&volume).unwrap();
    let mut content = text(1, 100 * BLOCK);
    write(&volume, ino, 0, &content);
    volume.sync().unwrap();
    let mut rng = StdRng::seed_from_u64(5);
    for _ in 0..100 {
        edit(&volume, &mut rng, ino, &mut content);
    }
    assert!(deltas(&volume).len() > 40);
    assert!(read(&volume, ino, 0, content.len()) == content);
    check_counts(&volume);
    volume.close().unwrap();
    drop(volume);
    let volume = open(&device, Compression::Lz4);
    assert!(read(&volume, ino, 0, content.len()) == content);
    check_counts(&volume);
}

/// A read leaves blocks around it in memory: of those that have deltas, what is stored is not what the file has.
#[test]
fn blocks_around_a_read_are_kept_as_what_they_are() {
    for compression in [Compression::None, Compression::Lz4] {
        let device = fresh(large_zones());
        let open = || {
            let options = Options {
                compression,
                deltas: Deltas::Always,
                read_cache_bytes_max: 4 << 20,
                ..Options::default()
            };
            let dynamic: Arc<dyn ZonedDevice> = device.clone();
            Volume::open(dynamic, options).unwrap().0
        };
        let volume = open();
        let ino = create(&volume).unwrap();
        let mut content = text(1, 100 * BLOCK);
        write(&volume, ino, 0, &content);
        volume.sync().unwrap();
        for block in [2, 5, 17, 40] {
            change(&volume, ino, &mut content, block * BLOCK);
        }
        assert_eq!(blocks_of(&deltas(&volume)), [2, 5, 17, 40]);
        drop(volume);
        for is_batch in [false, true] {
            let volume = open();
            for block in [1, 4, 2, 5, 16, 17, 39, 41, 40] {
                let expected = &content[block * BLOCK..][..BLOCK];
                let mut found = vec![0; BLOCK];
                let at = (block * BLOCK) as u64;
                if is_batch {
                    let mut ranges = [(at, &mut found[..])];
                    let read = volume.read_batch(ino, &mut ranges, false);
                    assert!(read.into_iter().all(|read| read.unwrap() == BLOCK));
                } else {
                    volume.read(ino, at, &mut found).unwrap();
                }
                assert!(found == expected, "block {block}, {compression:?}");
            }
        }
    }
}

/// Deltas may be of blocks that a snapshot has, anywhere before or behind the blocks that the file has of its own.
#[test]
fn a_file_that_is_freed_leaves_no_deltas() {
    // Those of the file are few and early, or behind more of the snapshot's than one look passes over.
    for deltas_before in [0, 1100] {
        let device = fresh(large_zones());
        let volume = open_with(&device, Compression::None, Deltas::Always);
        let ino = create(&volume).unwrap();
        let mut content = noise(1, 1300 * BLOCK);
        write(&volume, ino, 0, &content);
        volume.sync().unwrap();
        let change = |content: &mut [u8], blocks: &[usize]| {
            for block in blocks {
                content[block * BLOCK] ^= 1;
                write(&volume, ino, block * BLOCK, &content[block * BLOCK..][..1]);
            }
            volume.sync_file(ino).unwrap();
        };
        let early: Vec<usize> = (0..deltas_before).collect();
        early
            .chunks(4)
            .for_each(|blocks| change(&mut content, blocks));
        volume
            .snapshots()
            .take(SubvolumeId::MAIN, b"one", true, NOW)
            .unwrap();
        match deltas_before {
            0 => {
                change(&mut content, &[0]);
                for block in (2..700).step_by(2) {
                    write(&volume, ino, block * BLOCK, &noise(block as u64, BLOCK));
                }
                volume.sync().unwrap();
            }
            _ => change(&mut content, &[1200]),
        }
        let deltas = || deltas(&volume).len();
        assert_eq!(deltas(), deltas_before + 1);
        unlink(&volume, &[ino]);
        volume.reclaim(&[ino]).unwrap();
        assert_eq!(deltas(), deltas_before);
        check_stored(&volume);
    }
}

/// A block whose shared content is lost is no base. The file could not be changed any more until it was forgotten.
#[test]
fn a_block_whose_content_is_lost_is_written_anew() {
    let (_, volume, ino, mut content) = volume();
    let copy = create(&volume).unwrap();
    let len = content.len();
    assert_eq!(clone(&volume, (ino, 0), (copy, 0), len), len);
    let mut in_store = items(&volume, |key, _| {
        (key.ino == SHARED && key.kind == KeyKind::EXTENT).then_some(key)
    });
    assert!(!in_store.is_empty());
    let lost = |tx: &mut Transaction<'_>| {
        in_store.drain(..).for_each(|key| tx.delete(key));
        Ok(())
    };
    volume.update::<_, Error>(Intent::Shrink, lost).unwrap();
    let mut found = vec![0; BLOCK];
    let read_lost = volume.read(copy, 7 * BLOCK as u64, &mut found);
    assert!(matches!(read_lost, Err(Error::ItemDamaged { .. })));
    content[7 * BLOCK] ^= 1;
    write(&volume, copy, 7 * BLOCK, &content[7 * BLOCK..8 * BLOCK]);
    volume.sync_file(copy).unwrap();
    assert!(read(&volume, copy, 7 * BLOCK, BLOCK) == content[7 * BLOCK..8 * BLOCK]);
}
