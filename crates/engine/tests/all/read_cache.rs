//! Blocks kept in memory for who reads them again.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use std::sync::Arc;

use crate::common::{NOW, create, fresh, noise, small};
use persimmon_device::ZoneId;
use persimmon_engine::{Damage, Options, ScrubCursor, Task, Volume};
use persimmon_format::table::Role;
use persimmon_format::{Compression, Ino};
use persimmon_sim::SimDevice;

const BLOCK: usize = 4096;
/// Of a file: 128 KiB.
const BLOCKS: u64 = 32;

fn open() -> Volume {
    open_on(&fresh(small()))
}

fn open_on(device: &Arc<SimDevice>) -> Volume {
    let options = Options {
        read_cache_bytes_max: 1 << 20,
        // Which would keep the last block of each file, too.
        tails_bytes_max: 0,
        ..Options::default()
    };
    Volume::open(Arc::clone(device) as _, options).unwrap().0
}

fn write(volume: &Volume, ino: Ino, number: u64) {
    for block in 0..BLOCKS {
        let data = noise(number + block, BLOCK);
        volume.write(ino, block * BLOCK as u64, &data, NOW).unwrap();
    }
    volume.sync_file(ino).unwrap();
}

/// Bytes that `act` has the device read.
fn reads(volume: &Volume, act: impl FnOnce()) -> u64 {
    let before = volume.statistics();
    act();
    volume.statistics().since(&before).read_bytes
}

fn check(volume: &Volume, ino: Ino, number: u64) {
    let mut buf = [0; BLOCK];
    for block in 0..BLOCKS {
        let read = volume.read(ino, block * BLOCK as u64, &mut buf).unwrap();
        assert_eq!((read, &buf[..]), (BLOCK, &noise(number + block, BLOCK)[..]));
    }
}

#[test]
fn what_was_read_in_small_pieces_is_not_read_again() {
    let volume = open();
    let ino = create(&volume).unwrap();
    write(&volume, ino, 1);
    let once = reads(&volume, || check(&volume, ino, 1));
    assert!(once >= (BLOCKS - 1) * BLOCK as u64, "{once}");
    assert_eq!(reads(&volume, || check(&volume, ino, 1)), 0);
    // Pieces that begin and end within blocks, and several at once.
    let mut odd = [0; 3 * BLOCK];
    let mut other = [0; 100];
    let begin = BLOCK as u64 + 77;
    let again = reads(&volume, || {
        volume.read(ino, begin, &mut odd).unwrap();
        let mut ranges = [(begin, &mut odd[..]), (5, &mut other[..])];
        volume.read_batch(ino, &mut ranges, false);
    });
    assert_eq!(again, 0);
    let whole: Vec<u8> = (0..BLOCKS).flat_map(|i| noise(1 + i, BLOCK)).collect();
    assert_eq!(odd[..], whole[BLOCK + 77..][..odd.len()]);
    assert_eq!(other[..], whole[5..105]);
    let statistics = volume.statistics();
    assert!(statistics.read_cache_misses <= BLOCKS);
    assert!(statistics.read_cache_hits >= BLOCKS);
}

#[test]
fn direct_reads_and_large_ones_go_past_it() {
    let volume = open();
    let ino = create(&volume).unwrap();
    write(&volume, ino, 1);
    let mut block = [0; BLOCK];
    let mut large = vec![0; BLOCKS as usize * BLOCK];
    let direct = |buf: &mut [u8]| {
        reads(&volume, || {
            volume.read_direct(ino, 0, buf).unwrap();
        })
    };
    let directly_batched = |buf: &mut [u8]| {
        reads(&volume, || {
            volume.read_batch(ino, &mut [(0, buf)], true);
        })
    };
    for _ in 0..2 {
        assert_eq!(direct(&mut block), BLOCK as u64);
        assert_eq!(directly_batched(&mut block), BLOCK as u64);
        let through = reads(&volume, || {
            volume.read(ino, 0, &mut large).unwrap();
        });
        assert!(through >= (BLOCKS - 1) * BLOCK as u64, "{through}");
    }
    // None of them has left anything.
    let first = reads(&volume, || {
        volume.read(ino, 0, &mut block).unwrap();
    });
    assert!(first >= BLOCK as u64, "{first}");
    assert_eq!(direct(&mut block), BLOCK as u64);
}

/// An address is used again once its zone was reset: what the cache holds of it is of another file.
#[test]
fn a_zone_that_is_used_again_holds_what_is_new() {
    let volume = open();
    let before = volume.statistics().resets;
    for round in 0..60 {
        let inos: Vec<_> = (0..8).map(|_| create(&volume).unwrap()).collect();
        for (ino, file) in inos.iter().zip(0..) {
            write(&volume, *ino, (round * 8 + file) * BLOCKS);
            check(&volume, *ino, (round * 8 + file) * BLOCKS);
        }
        for (ino, file) in inos.iter().zip(0..) {
            check(&volume, *ino, (round * 8 + file) * BLOCKS);
            volume.truncate(*ino, 0, NOW).unwrap();
        }
        volume.step(Task::FreeZones).unwrap();
    }
    let resets = volume.statistics().resets - before;
    assert!(resets > 80, "each zone twice: {resets}");
}

#[test]
fn an_overwritten_block_is_read_as_it_is_now() {
    let volume = open();
    let ino = create(&volume).unwrap();
    write(&volume, ino, 1);
    check(&volume, ino, 1);
    write(&volume, ino, 500);
    check(&volume, ino, 500);
    volume.truncate(ino, BLOCK as u64, NOW).unwrap();
    volume
        .write(ino, 3 * BLOCK as u64, &[7; BLOCK], NOW)
        .unwrap();
    volume.sync_file(ino).unwrap();
    let mut hole = [1; BLOCK];
    volume.read(ino, BLOCK as u64, &mut hole).unwrap();
    assert_eq!(hole, [0; BLOCK]);
}

/// Sizes are in the cache as well: a file that became shorter or longer ends where it ends now.
#[test]
fn a_read_ends_where_the_file_ends_now() {
    let volume = open();
    let ino = create(&volume).unwrap();
    let data = noise(3, 5 * BLOCK);
    let mut buf = vec![0; 8 * BLOCK];
    let mut expect = |len: usize, what: &str| {
        for from in [0, 77, 2 * BLOCK, 2 * BLOCK + 100] {
            // Once by the tree, and once more.
            for _ in 0..2 {
                let read = volume.read(ino, from as u64, &mut buf).unwrap();
                assert_eq!(read, len.saturating_sub(from), "{what} from {from}");
                let have = data.len().min(len).saturating_sub(from);
                assert_eq!(buf[..have], data[from..][..have], "{what} from {from}");
                assert!(buf[have..read].iter().all(|byte| *byte == 0), "{what}");
            }
        }
    };
    volume.write(ino, 0, &data, NOW).unwrap();
    expect(5 * BLOCK, "staged");
    volume.sync_file(ino).unwrap();
    expect(5 * BLOCK, "written");
    for len in [3 * BLOCK + 5, 7 * BLOCK + 9, 2 * BLOCK + 50] {
        volume.truncate(ino, len as u64, NOW).unwrap();
        let kept = len.min(data.len());
        volume.write(ino, 0, &data[..kept], NOW).unwrap();
        expect(len, "resized");
        volume.sync().unwrap();
        expect(len, "resized and written");
    }
}

/// A read that began behind the end of a file, in the last block of which the cache has the beginning, never returned.
#[test]
fn a_read_behind_the_end_finds_nothing() {
    let volume = open();
    let ino = create(&volume).unwrap();
    let data = noise(3, BLOCK + 904);
    volume.write(ino, 0, &data, NOW).unwrap();
    volume.sync().unwrap();
    let mut buf = vec![0; 2 * BLOCK];
    for _ in 0..2 {
        assert_eq!(volume.read(ino, 0, &mut buf).unwrap(), data.len());
        for behind in [0, 1, 1000, 3191, 3192, BLOCK * 5] {
            let from = (data.len() + behind) as u64;
            assert_eq!(volume.read(ino, from, &mut buf[..100]).unwrap(), 0);
            let mut ranges = [(from, &mut buf[..100])];
            let read = volume
                .read_batch(ino, &mut ranges, false)
                .remove(0)
                .unwrap();
            assert_eq!(read, 0);
        }
    }
    let statistics = volume.statistics();
    assert!(
        statistics.read_cache_hits > 0,
        "the last block is not cached"
    );
}

/// Many small files: each read leaves the blocks around it in the cache, of the same file alone.
#[test]
fn blocks_around_are_of_the_same_file() {
    let volume = open();
    let inos: Vec<_> = (0..10).map(|_| create(&volume).unwrap()).collect();
    for (ino, number) in inos.iter().zip(0..) {
        volume
            .write(*ino, 0, &noise(number, 3 * BLOCK + 10), NOW)
            .unwrap();
    }
    volume.sync().unwrap();
    let mut buf = vec![0; 4 * BLOCK];
    for block in [1, 0, 3, 2] {
        for (ino, number) in inos.iter().zip(0..) {
            let content = noise(number, 3 * BLOCK + 10);
            let from = block * BLOCK;
            let read = volume.read(*ino, from as u64, &mut buf[..BLOCK]).unwrap();
            assert_eq!(buf[..read], content[from..][..read]);
            assert_eq!(read, BLOCK.min(content.len() - from));
        }
    }
}

/// A block around the one that is asked for cannot be read: the read does not fail for it.
#[test]
fn damage_around_is_no_damage_of_a_read() {
    let device = fresh(small());
    let volume = open_on(&device);
    let ino = create(&volume).unwrap();
    write(&volume, ino, 1);
    let zones = volume.zones();
    let data = zones.iter().zip(0..);
    for (_, number) in data.filter(|(zone, _)| zone.entry.role == Role::Data) {
        for block in (0..120).step_by(2) {
            device.corrupt(ZoneId(number), block, 9, 1);
        }
    }
    let mut buf = [0; BLOCK];
    let mut read = 0;
    for block in 0..BLOCKS {
        if volume.read(ino, block * BLOCK as u64, &mut buf).is_ok() {
            assert_eq!(buf[..], noise(1 + block, BLOCK)[..]);
            read += 1;
        }
    }
    assert_eq!(read, BLOCKS / 2);
}

/// A scrub looked again for each block that was damaged on the device, found it in memory, and called it good.
#[test]
fn a_scrub_reads_the_device() {
    let device = fresh(small());
    let volume = open_on(&device);
    let ino = create(&volume).unwrap();
    write(&volume, ino, 1);
    check(&volume, ino, 1);
    assert_eq!(damaged_blocks(&device, &volume), BLOCKS);
}

/// All blocks of a compressed frame are damaged with it.
#[test]
fn a_scrub_reads_compressed_frames_from_the_device() {
    let device = fresh(small());
    let options = Options {
        compression: Compression::Lz4,
        ..Options::default()
    };
    let volume = Volume::open(Arc::clone(&device) as _, options).unwrap().0;
    let ino = create(&volume).unwrap();
    let content = b"much the same from one end to the other".repeat(BLOCKS as usize * 106);
    let content = &content[..BLOCKS as usize * BLOCK];
    volume.write(ino, 0, content, NOW).unwrap();
    volume.sync_file(ino).unwrap();
    let mut read = vec![0; BLOCK];
    for block in 0..BLOCKS {
        volume.read(ino, block * BLOCK as u64, &mut read).unwrap();
    }
    // The frame at the beginning of a block that others share.
    assert_eq!(damaged_blocks(&device, &volume), 4);
}

/// Damages all data on the device, and has a scrub count the blocks of files that are.
fn damaged_blocks(device: &SimDevice, volume: &Volume) -> u64 {
    let zones = volume.zones();
    let data = zones
        .iter()
        .zip(0..)
        .filter(|(zone, _)| zone.entry.role == Role::Data);
    for (_, number) in data {
        for block in 0..120 {
            device.corrupt(ZoneId(number), block, 9, 1);
        }
    }
    let mut damaged = 0;
    let mut next = Some(ScrubCursor::default());
    while let Some(at) = next {
        let step = volume.scrub_step(at, 256).unwrap();
        let of_data = step
            .findings
            .iter()
            .filter(|found| found.damage == Damage::Data);
        damaged += of_data.map(|found| u64::from(found.blocks)).sum::<u64>();
        next = step.next;
    }
    damaged
}
