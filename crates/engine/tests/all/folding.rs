//! Cleaning makes one block of a block and its delta, wherever both are what was read and nobody is making another delta.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test from top to bottom"
)]

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::content::{
    check_counts, check_stored, clone, extents, large_zones, open_with, read, settle, text, write,
};
use crate::common::interrupted::Interrupted;
use crate::common::{NOW, create, fresh, noise};
use persimmon_device::Command;
use persimmon_engine::{Deltas, Error, Intent, Options, Task, Volume};
use persimmon_format::delta::{self, is_delta};
use persimmon_format::extent::Extent;
use persimmon_format::table::Role;
use persimmon_format::{Addr, Compression, Ino, Key, SubvolumeId, ZoneId};
use persimmon_sim::{Sampled, SimConfig, SimDevice};

const BLOCK: usize = 4096;

fn open(device: &Arc<SimDevice>) -> Volume {
    open_with(device, Compression::None, Deltas::Always)
}

fn deltas(volume: &Volume) -> Vec<(Ino, u64, Extent)> {
    let all = extents(volume).into_iter();
    let all =
        all.filter(|(_, place, extent)| is_delta(*place) && !matches!(extent, Extent::Hole { .. }));
    all.map(|(ino, place, extent)| (ino, delta::block_at(place), extent))
        .collect()
}

fn blocks_of(deltas: &[(Ino, u64, Extent)]) -> Vec<u64> {
    deltas.iter().map(|(_, block, _)| *block).collect()
}

/// A volume that makes deltas wherever it can, with one file.
fn volume(blocks: usize) -> (Arc<SimDevice>, Volume, Ino, Vec<u8>) {
    let device = fresh(large_zones());
    let volume = open(&device);
    let ino = create(&volume).unwrap();
    let content = noise(1, blocks * BLOCK);
    write(&volume, ino, 0, &content);
    volume.sync().unwrap();
    (device, volume, ino, content)
}

/// Changes some bytes of a block, without a look at what it was.
fn change(volume: &Volume, ino: Ino, content: &mut [u8], block: usize) {
    let bytes = &mut content[block * BLOCK..][..BLOCK];
    bytes[20..120].iter_mut().for_each(|byte| *byte ^= 1);
    write(volume, ino, block * BLOCK, bytes);
    volume.sync_file(ino).unwrap();
}

/// The zones in which file blocks lie, without deltas.
fn zones_of(volume: &Volume) -> Vec<ZoneId> {
    let all = extents(volume).into_iter();
    let blocks = all.filter(|(_, place, _)| !is_delta(*place));
    let zones = blocks.filter_map(|(.., extent)| extent.addr().map(Addr::zone));
    zones.collect::<BTreeSet<_>>().into_iter().collect()
}

fn empty(volume: &Volume, zones: &[ZoneId]) {
    for zone in zones {
        let _ = volume.empty_zones(&[*zone]);
    }
}

fn is_same(volume: &Volume, ino: Ino, content: &[u8]) {
    let found = read(volume, ino, 0, content.len());
    let differs =
        (found.chunks(BLOCK).zip(content.chunks(BLOCK))).position(|(one, other)| one != other);
    assert_eq!(differs, None);
    assert_eq!(found.len(), content.len());
}

/// Deltas in the tree and in packed blocks become one with what they are of, and stay so.
#[test]
fn a_block_that_moves_takes_its_delta_in() {
    for is_packed in [false, true] {
        let (device, volume, ino, mut content) = volume(100);
        for block in [0, 3, 50, 51, 99] {
            change(&volume, ino, &mut content, block);
        }
        if is_packed {
            volume.step(Task::Checkpoint).unwrap();
        }
        let first = &deltas(&volume)[0].2;
        assert_eq!(matches!(first, Extent::Packed(_)), is_packed);
        check_counts(&volume);
        empty(&volume, &zones_of(&volume));
        assert!(deltas(&volume).is_empty());
        assert_eq!(volume.statistics().deltas_folded, 5);
        is_same(&volume, ino, &content);
        check_counts(&volume);
        // A delta to what was folded.
        change(&volume, ino, &mut content, 51);
        assert_eq!(blocks_of(&deltas(&volume)), [51]);
        is_same(&volume, ino, &content);
        drop(volume);
        let volume = open(&device);
        is_same(&volume, ino, &content);
        check_counts(&volume);
    }
}

/// Wherever the power goes while deltas are folded, with the deltas of fsyncs before, between and behind.
#[test]
fn a_power_cut_leaves_both_or_one() {
    for config in [large_zones(), large_zones().volatile_cache()] {
        let device = fresh(config);
        let volume = open(&device);
        let ino = create(&volume).unwrap();
        let mut content = noise(1, 60 * BLOCK);
        write(&volume, ino, 0, &content);
        volume.sync().unwrap();
        volume.step(Task::Checkpoint).unwrap();
        for block in [3, 50, 51] {
            change(&volume, ino, &mut content, block);
        }
        device.record_snapshots(1);
        empty(&volume, &zones_of(&volume));
        // Neither was the content changed, nor is any of it lost.
        let folding = device.take_snapshots();
        assert_eq!(volume.statistics().deltas_folded, 3);
        let then = content.clone();
        change(&volume, ino, &mut content, 50);
        change(&volume, ino, &mut content, 7);
        empty(&volume, &zones_of(&volume));
        let again = device.take_snapshots();
        assert_eq!(volume.statistics().deltas_folded, 5);
        let (mut both, mut one) = (0, 0);
        for (number, snapshot) in folding.iter().chain(&again).enumerate() {
            let device = Arc::new(snapshot.persisted(&mut Sampled::new(number as u64)));
            let volume = open(&device);
            let found = read(&volume, ino, 0, content.len());
            for block in (0..60).filter(|block| ![7, 50].contains(block)) {
                let range = block * BLOCK..(block + 1) * BLOCK;
                assert!(found[range.clone()] == content[range], "{number}: {block}");
            }
            for block in [7, 50] {
                let range = block * BLOCK..(block + 1) * BLOCK;
                let is_new = found[range.clone()] == content[range.clone()];
                assert!(
                    is_new || found[range.clone()] == then[range],
                    "{number}: {block}"
                );
            }
            check_counts(&volume);
            match deltas(&volume).len() {
                0 => one += 1,
                _ => both += 1,
            }
            if number + 1 == folding.len() {
                is_same(&volume, ino, &then);
            }
        }
        assert!(both > 2 && one > 2, "{both} and {one}");
    }
}

fn open_interrupted(device: &Arc<Interrupted>) -> Volume {
    let options = Options {
        compression: Compression::None,
        deltas: Deltas::Always,
        staging_bytes_max: 1 << 20,
        ..Options::default()
    };
    Volume::open(Arc::clone(device) as _, options).unwrap().0
}

/// A read of a file with many deltas reads them too, and no more once they are folded.
#[test]
fn folding_spares_reads() {
    let (device, volume, ino, mut content) = volume(1000);
    for block in (0..1000).step_by(2) {
        change(&volume, ino, &mut content, block);
    }
    volume.step(Task::Checkpoint).unwrap();
    assert_eq!(deltas(&volume).len(), 500);
    drop(volume);
    let commands = |folded: bool| {
        let volume = open(&device);
        if folded {
            empty(&volume, &zones_of(&volume));
            assert!(deltas(&volume).is_empty());
        }
        let before = volume.statistics().read_commands;
        for at in (0..content.len()).step_by(BLOCK) {
            assert!(read(&volume, ino, at, BLOCK) == content[at..at + BLOCK]);
        }
        let by_block = volume.statistics().read_commands - before;
        is_same(&volume, ino, &content);
        check_counts(&volume);
        let whole = volume.statistics().read_commands - before - by_block;
        (by_block, whole)
    };
    let (before, after) = (commands(false), commands(true));
    println!("read commands, block by block and in one read: {before:?}, folded {after:?}");
    assert!(before.0 >= after.0 + 500 && after.1 < before.1);
}

/// What a writer does while the blocks are on their way is what the file has.
#[test]
fn what_is_written_meanwhile_wins() {
    for is_delta in [false, true] {
        let (sim, before, ino, mut content) = volume(100);
        for block in [3, 50, 51, 99] {
            change(&before, ino, &mut content, block);
        }
        drop(before);
        let device = Interrupted::new(&sim);
        let volume = Arc::new(open_interrupted(&device));
        let zones = zones_of(&volume);
        let aside = Arc::clone(&volume);
        let new = noise(9, BLOCK);
        if is_delta {
            change_content(&mut content, 50);
        } else {
            content[50 * BLOCK..51 * BLOCK].copy_from_slice(&new);
        }
        let bytes = content[50 * BLOCK..51 * BLOCK].to_vec();
        device.before(
            is_write_to_data(&volume),
            Box::new(move || {
                write(&aside, ino, 50 * BLOCK, &bytes);
                aside.sync_file(ino).unwrap();
            }),
        );
        empty(&volume, &zones);
        assert!(device.was_done());
        is_same(&volume, ino, &content);
        let left = if is_delta { vec![50] } else { vec![] };
        assert_eq!(blocks_of(&deltas(&volume)), left);
        assert_eq!(volume.statistics().deltas_folded, 3);
        assert!(zones.iter().all(|zone| !zones_of(&volume).contains(zone)));
        check_counts(&volume);
        drop(volume);
        let volume = open(&sim);
        is_same(&volume, ino, &content);
        check_counts(&volume);
    }
}

fn change_content(content: &mut [u8], block: usize) {
    let bytes = &mut content[block * BLOCK..][..BLOCK];
    bytes[200..220].iter_mut().for_each(|byte| *byte ^= 3);
}

/// Commands with which blocks of files go to the device, which may be held up.
fn is_write_to_data(volume: &Arc<Volume>) -> impl Fn(&Command) -> bool + Send + use<> {
    let volume = Arc::clone(volume);
    move |command| match command {
        Command::Write { zone, .. } | Command::Append { zone, .. } => volume
            .zones()
            .iter()
            .any(|status| status.zone == *zone && status.entry.role == Role::Data),
        _ => false,
    }
}

/// An fsync has read what its delta is of, and the delta is in no record yet: what it is of moves, and stays what it is.
#[test]
fn what_an_fsync_makes_a_delta_to_is_moved_as_it_is() {
    let (sim, before, ino, mut content) = volume(100);
    for block in [3, 50, 51] {
        change(&before, ino, &mut content, block);
    }
    before.step(Task::Checkpoint).unwrap();
    drop(before);
    let device = Interrupted::new(&sim);
    let volume = Arc::new(open_interrupted(&device));
    let zones = zones_of(&volume);
    change_content(&mut content, 50);
    write(&volume, ino, 50 * BLOCK, &content[50 * BLOCK..51 * BLOCK]);
    let aside = Arc::clone(&volume);
    let of_bases = zones.clone();
    let victims = zones.clone();
    device.before(
        move |command| matches!(command, Command::Read { zone, .. } if of_bases.contains(zone)),
        Box::new(move || empty(&aside, &victims)),
    );
    volume.sync_file(ino).unwrap();
    assert!(device.was_done());
    assert_eq!(volume.statistics().deltas_folded, 2);
    assert_eq!(blocks_of(&deltas(&volume)), [50]);
    assert!(zones.iter().all(|zone| !zones_of(&volume).contains(zone)));
    is_same(&volume, ino, &content);
    check_counts(&volume);
    // Nobody holds it any more.
    empty(&volume, &zones_of(&volume));
    assert!(deltas(&volume).is_empty());
    is_same(&volume, ino, &content);
    drop(volume);
    let volume = open(&sim);
    is_same(&volume, ino, &content);
    check_counts(&volume);
}

/// A block that an fsync begins to hold while cleaning writes it folded is written again unfolded.
#[test]
fn what_is_held_at_the_end_is_moved_as_it_is() {
    let (sim, before, ino, mut content) = volume(100);
    for block in [3, 50, 51] {
        change(&before, ino, &mut content, block);
    }
    drop(before);
    let device = Interrupted::new(&sim);
    let volume = Arc::new(open_interrupted(&device));
    let zones = zones_of(&volume);
    let (cleaning, syncing) = (Arc::clone(&volume), Arc::clone(&volume));
    change_content(&mut content, 50);
    let bytes = content[50 * BLOCK..51 * BLOCK].to_vec();
    let moved = Arc::new(std::sync::Barrier::new(2));
    let held = Arc::new(std::sync::Barrier::new(2));
    let (moved_too, held_too) = (Arc::clone(&moved), Arc::clone(&held));
    let of_bases = zones.clone();
    let again = Arc::clone(&device);
    // Cleaning has read all it moves. Its write waits until the fsync reads what its delta is of, and that waits until all is mapped.
    let syncs = std::thread::spawn({
        let (moved, held) = (Arc::clone(&moved), Arc::clone(&held));
        move || {
            moved.wait();
            write(&syncing, ino, 50 * BLOCK, &bytes);
            again.before(
                move |command| matches!(command, Command::Read { zone, .. } if of_bases.contains(zone)),
                Box::new(move || {
                    held.wait();
                    moved.wait();
                }),
            );
            syncing.sync_file(ino).unwrap();
        }
    });
    device.before(
        is_write_to_data(&volume),
        Box::new(move || {
            moved_too.wait();
            held_too.wait();
        }),
    );
    empty(&cleaning, &zones);
    moved.wait();
    syncs.join().unwrap();
    drop(held);
    assert_eq!(volume.statistics().deltas_folded, 2);
    assert_eq!(blocks_of(&deltas(&volume)), [50]);
    assert!(zones.iter().all(|zone| !zones_of(&volume).contains(zone)));
    is_same(&volume, ino, &content);
    check_counts(&volume);
}

/// A clone has read the deltas that it gives, and not shared what they are of yet.
#[test]
fn what_a_clone_gives_is_moved_as_it_is() {
    let (sim, before, ino, mut content) = volume(100);
    for block in [3, 50, 51, 99] {
        change(&before, ino, &mut content, block);
    }
    before.step(Task::Checkpoint).unwrap();
    drop(before);
    let device = Interrupted::new(&sim);
    let volume = Arc::new(open_interrupted(&device));
    let zones = zones_of(&volume);
    let of_deltas: Vec<ZoneId> = deltas(&volume)
        .iter()
        .filter_map(|(.., extent)| extent.addr().map(Addr::zone))
        .collect();
    let other = create(&volume).unwrap();
    let (aside, victims) = (Arc::clone(&volume), zones.clone());
    device.before(
        move |command| matches!(command, Command::Read { zone, .. } if of_deltas.contains(zone)),
        Box::new(move || empty(&aside, &victims)),
    );
    // The block behind it is held by nobody.
    let len = 60 * BLOCK;
    assert_eq!(clone(&volume, (ino, 0), (other, 0), len), len);
    assert!(device.was_done());
    assert_eq!(volume.statistics().deltas_folded, 1);
    assert_eq!(blocks_of(&deltas(&volume)), [3, 50, 51, 3, 50, 51]);
    let check = |volume: &Volume| {
        is_same(volume, ino, &content);
        is_same(volume, other, &content[..len]);
        check_counts(volume);
    };
    check(&volume);
    // What is shared is of several: it stays apart from the deltas of each.
    empty(&volume, &zones_of(&volume));
    assert_eq!(deltas(&volume).len(), 6);
    check(&volume);
    drop(volume);
    check(&open(&sim));
}

/// What a snapshot has is folded for nobody; what was made since, and what the last one has, is.
#[test]
fn snapshots_keep_what_they_have() {
    let (device, volume, ino, mut content) = volume(100);
    for block in [3, 50] {
        change(&volume, ino, &mut content, block);
    }
    let id = volume
        .snapshots()
        .take(SubvolumeId::MAIN, b"one", true, NOW)
        .unwrap();
    let then = (ino.of(id), content.clone());
    let check = |volume: &Volume, content: &[u8], old: Option<&(Ino, Vec<u8>)>| {
        is_same(volume, ino, content);
        if let Some((ino, content)) = old {
            is_same(volume, *ino, content);
        }
        check_stored(volume);
    };
    // To what the snapshot has.
    change(&volume, ino, &mut content, 7);
    change(&volume, ino, &mut content, 50);
    // To a block of its own.
    content[60 * BLOCK..61 * BLOCK].copy_from_slice(&noise(8, BLOCK));
    write(&volume, ino, 60 * BLOCK, &content[60 * BLOCK..61 * BLOCK]);
    volume.sync().unwrap();
    change(&volume, ino, &mut content, 60);
    assert_eq!(blocks_of(&deltas(&volume)), [3, 7, 50, 50, 60]);
    check(&volume, &content, Some(&then));
    empty(&volume, &zones_of(&volume));
    assert_eq!(volume.statistics().deltas_folded, 0);
    // A file that no snapshot has.
    let other = create(&volume).unwrap();
    let mut others = noise(3, 10 * BLOCK);
    write(&volume, other, 0, &others);
    volume.sync().unwrap();
    change(&volume, other, &mut others, 4);
    empty(&volume, &zones_of(&volume));
    assert_eq!(volume.statistics().deltas_folded, 1);
    is_same(&volume, other, &others);
    assert_eq!(blocks_of(&deltas(&volume)), [3, 7, 50, 50, 60]);
    check(&volume, &content, Some(&then));
    drop(volume);
    let volume = open(&device);
    check(&volume, &content, Some(&then));
    volume.snapshots().delete(id).unwrap();
    settle(&volume);
    empty(&volume, &zones_of(&volume));
    assert_eq!(blocks_of(&deltas(&volume)), Vec::<u64>::new());
    check(&volume, &content, None);
    drop(volume);
    let volume = open(&device);
    check(&volume, &content, None);
    is_same(&volume, other, &others);
    assert_eq!(
        volume.attr(ino).unwrap().unwrap().sectors,
        100 * 8,
        "nothing is left of deltas"
    );
}

/// A delta that cannot be read stays what it is, and keeps no zone from being emptied.
#[test]
fn a_damaged_delta_stays_behind() {
    let (device, volume, ino, mut content) = volume(100);
    for block in [3, 50, 51] {
        change(&volume, ino, &mut content, block);
    }
    volume.step(Task::Checkpoint).unwrap();
    let Extent::Packed(packed) = deltas(&volume)[1].2.clone() else {
        unreachable!("it was packed");
    };
    let (zone, block) = (packed.addr.zone(), packed.addr.block());
    let at = usize::from(packed.unit) * 16;
    assert!(device.corrupt(zone, block, at + 5, 0x10));
    drop(volume);
    let volume = open(&device);
    let zones: Vec<ZoneId> = zones_of(&volume);
    empty(&volume, &zones);
    assert!(zones.iter().all(|zone| !zones_of(&volume).contains(zone)));
    assert_eq!(blocks_of(&deltas(&volume)), [50]);
    assert!(
        volume
            .read(ino, 50 * BLOCK as u64, &mut [0; BLOCK])
            .is_err()
    );
    for block in (0..100).filter(|block| *block != 50) {
        assert!(read(&volume, ino, block * BLOCK, BLOCK) == content[block * BLOCK..][..BLOCK]);
    }
    check_counts(&volume);
}

/// Nor does a damaged block take a delta in.
#[test]
fn a_damaged_block_keeps_its_delta() {
    let (device, volume, ino, mut content) = volume(100);
    for block in [3, 50, 51] {
        change(&volume, ino, &mut content, block);
    }
    let all = extents(&volume);
    let (_, first, extent) = all
        .iter()
        .find(|(of, first, extent)| *of == ino && (*first..*first + extent.blocks()).contains(&50))
        .unwrap();
    let addr = extent.part(50 - first, 1).addr().unwrap();
    assert!(device.corrupt(addr.zone(), addr.block(), 77, 1));
    empty(&volume, &zones_of(&volume));
    assert!(blocks_of(&deltas(&volume)).contains(&50));
    assert!(
        volume
            .read(ino, 50 * BLOCK as u64, &mut [0; BLOCK])
            .is_err()
    );
    for block in (0..100).filter(|block| *block != 50) {
        assert!(read(&volume, ino, block * BLOCK, BLOCK) == content[block * BLOCK..][..BLOCK]);
    }
    check_counts(&volume);
}

/// An item that says nothing, where a delta would be: what is beside it is not folded, and moves.
#[test]
fn a_damaged_item_among_the_deltas_holds_nothing_up() {
    let (_device, volume, ino, mut content) = volume(100);
    for block in [3, 50] {
        change(&volume, ino, &mut content, block);
    }
    let put = volume.update::<_, Error>(Intent::Grow, |tx| {
        tx.put(Key::extent(ino, delta::place_of(51)), vec![0xff; 3]);
        Ok(())
    });
    put.unwrap();
    let before = volume.statistics();
    for status in volume.zones() {
        if status.entry.role == Role::Data {
            let _ = volume.empty_zones(&[status.zone]);
        }
    }
    let after = volume.statistics();
    assert!(after.blocks_moved >= before.blocks_moved + 100);
    assert_eq!(after.deltas_folded, 0);
    for block in [0, 3, 49, 50] {
        assert!(read(&volume, ino, block * BLOCK, BLOCK) == content[block * BLOCK..][..BLOCK]);
    }
}

/// Compressed frames keep their deltas.
#[test]
fn compressed_frames_are_not_folded() {
    let device = fresh(large_zones());
    let volume = open_with(&device, Compression::Lz4, Deltas::Always);
    let ino = create(&volume).unwrap();
    let mut content = text(1, 100 * BLOCK);
    write(&volume, ino, 0, &content);
    volume.sync().unwrap();
    change(&volume, ino, &mut content, 40);
    assert_eq!(blocks_of(&deltas(&volume)), [40]);
    empty(&volume, &zones_of(&volume));
    assert_eq!(blocks_of(&deltas(&volume)), [40]);
    is_same(&volume, ino, &content);
    check_counts(&volume);
}

/// Blocks are held while room is short: cleaning frees room without folding them, and the volume goes on.
#[test]
fn a_full_volume_is_cleaned_while_blocks_are_held() {
    let sim = fresh(SimConfig::new(24, 256));
    let before = open(&sim);
    let ino = create(&before).unwrap();
    let mut content = noise(1, 400 * BLOCK);
    write(&before, ino, 0, &content);
    before.sync().unwrap();
    let blocks: Vec<usize> = (0..400).step_by(7).collect();
    for block in &blocks {
        change(&before, ino, &mut content, *block);
    }
    before.step(Task::Checkpoint).unwrap();
    assert_eq!(deltas(&before).len(), blocks.len());
    // All but what deltas need is filled.
    let filler = create(&before).unwrap();
    let mut filled = 0;
    while before.space().available_bytes > 420 * BLOCK as u64 {
        write(
            &before,
            filler,
            filled * BLOCK,
            &noise(filled as u64, 64 * BLOCK),
        );
        before.sync().unwrap();
        filled += 64;
    }
    drop(before);
    let device = Interrupted::new(&sim);
    let volume = Arc::new(open_interrupted(&device));
    let of_deltas: Vec<ZoneId> = deltas(&volume)
        .iter()
        .filter_map(|(.., extent)| extent.addr().map(Addr::zone))
        .collect();
    let other = create(&volume).unwrap();
    let aside = Arc::clone(&volume);
    // Where each block of the file is.
    let places = move |volume: &Volume| -> Vec<(u64, Addr)> {
        let bases = extents(volume).into_iter();
        let bases = bases.filter(|(of, place, _)| *of == ino && !is_delta(*place));
        let blocks = bases.flat_map(|(_, first, extent)| {
            let count = extent.blocks();
            let block = move |at| Some((first + at, extent.part(at, 1).addr()?));
            (0..count).filter_map(block)
        });
        blocks.collect()
    };
    device.before(
        move |command| matches!(command, Command::Read { zone, .. } if of_deltas.contains(zone)),
        Box::new(move || {
            // Here and there, so that no zone is left without valid blocks.
            for round in 0..(3 * filled / 8) {
                let at = (round * 37 % (filled / 8)) * 8;
                write(&aside, filler, at * BLOCK, &noise(round as u64, 8 * BLOCK));
                aside.sync_file(filler).unwrap();
            }
            let moved = aside.statistics().blocks_moved;
            assert!(moved > 0);
            let before = places(&aside);
            let victims: BTreeSet<ZoneId> = before.iter().map(|(_, addr)| addr.zone()).collect();
            for zone in victims {
                aside.empty_zones(&[zone]).unwrap();
            }
            assert!(places(&aside).iter().all(|place| !before.contains(place)));
            assert!(aside.statistics().blocks_moved > moved);
        }),
    );
    let cloned = clone(&volume, (ino, 0), (other, 0), content.len());
    assert!(device.was_done());
    assert!(volume.statistics().deltas_folded > 0);
    is_same(&volume, ino, &content);
    is_same(&volume, other, &content[..cloned]);
    check_counts(&volume);
    volume.sync().unwrap();
    drop(volume);
    let volume = open(&sim);
    is_same(&volume, ino, &content);
    is_same(&volume, other, &content[..cloned]);
    check_counts(&volume);
}
