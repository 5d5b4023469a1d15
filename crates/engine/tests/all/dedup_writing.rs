//! Blocks that are stored already become shared while they are written.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use std::sync::Arc;

use crate::common::content::{
    change_as, check_counts, clone, edit, extents, large_zones, open_as, read, text, write,
};
use crate::common::interrupted::Interrupted;
use crate::common::{NOW, create, fresh, noise};
use persimmon_device::Command;
use persimmon_engine::{Dedup, Deltas, Error, Options, Quotas, Volume};
use persimmon_format::extent::Extent;
use persimmon_format::inode::SHARED;
use persimmon_format::quota::{Owner, OwnerKind};
use persimmon_format::table::Role;
use persimmon_format::{Compression, Ino, SubvolumeId};
use persimmon_sim::{SimConfig, SimDevice};
use rand::SeedableRng;
use rand::rngs::StdRng;

const BLOCK: usize = 4096;

fn options(compression: Compression) -> Options {
    Options {
        compression,
        dedup: Dedup::Write,
        staging_bytes_max: 1 << 20,
        ..Options::default()
    }
}

fn open(device: &Arc<SimDevice>, compression: Compression) -> Volume {
    open_as(device, options(compression))
}

fn valid_blocks(volume: &Volume) -> u64 {
    let zones = volume.zones();
    let data = zones.iter().filter(|zone| zone.entry.role == Role::Data);
    data.map(|zone| u64::from(zone.entry.valid)).sum()
}

fn shared_while_written(volume: &Volume) -> u64 {
    volume.statistics().deduplicated_blocks
}

/// A new file with this content, in the history.
fn file(volume: &Volume, content: &[u8]) -> Ino {
    let ino = create(volume).unwrap();
    write(volume, ino, 0, content);
    volume.sync().unwrap();
    ino
}

fn is_shared(volume: &Volume, ino: Ino) -> bool {
    let extents = extents(volume);
    let mut own = extents.iter().filter(|(of, _, _)| *of == ino);
    own.any(|(_, _, extent)| matches!(extent, Extent::Shared { .. }))
}

#[test]
fn a_copy_is_stored_once_and_is_its_own() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd(1)] {
        let device = fresh(large_zones());
        let volume = open(&device, compression);
        let content = [noise(3, 300 * BLOCK), text(5, 300 * BLOCK + 77)].concat();
        let len = content.len();
        let one = file(&volume, &content);
        let (blocks, sent) = (valid_blocks(&volume), volume.statistics().data_bytes);
        let two = file(&volume, &content);
        let before = shared_while_written(&volume);
        assert!((595..=601).contains(&before), "{compression:?}: {before}");
        assert!(valid_blocks(&volume) <= blocks + 6, "{compression:?}");
        assert!(volume.statistics().data_bytes - sent <= 8 * BLOCK as u64);
        check_counts(&volume);
        // Somewhere else in a third file, behind what is its own.
        let three = create(&volume).unwrap();
        let apart = 37 * BLOCK;
        write(&volume, three, 0, &noise(99, apart));
        write(&volume, three, apart, &content);
        volume.sync().unwrap();
        assert!(valid_blocks(&volume) <= blocks + 50, "{compression:?}");
        check_counts(&volume);
        write(&volume, two, 5 * BLOCK + 100, &[7; 2 * BLOCK]);
        assert!(read(&volume, one, 0, len) == content);
        assert!(read(&volume, three, apart, len) == content);
        volume.sync().unwrap();
        // Without an orderly end: the records alone tell of it.
        drop(volume);
        let volume = open(&device, compression);
        assert!(read(&volume, one, 0, len) == content);
        assert!(read(&volume, three, apart, len) == content);
        let mut changed = content.clone();
        changed[5 * BLOCK + 100..7 * BLOCK + 100].fill(7);
        assert!(read(&volume, two, 0, len) == changed);
        check_counts(&volume);
        volume.truncate(one, 0, NOW).unwrap();
        volume.truncate(three, 0, NOW).unwrap();
        volume.sync().unwrap();
        assert!(read(&volume, two, 0, len) == changed);
        check_counts(&volume);
    }
}

/// Small volumes change few pages with one record. A copy in more extents than one of these may share was written whole.
#[test]
fn a_copy_in_many_extents_is_shared_in_several_records() {
    let device = fresh(SimConfig::new(256, 256));
    let volume = open(&device, Compression::Lz4);
    let content = text(5, 256 * BLOCK);
    let one = file(&volume, &content);
    let blocks = valid_blocks(&volume);
    let two = file(&volume, &content);
    let shared = shared_while_written(&volume);
    assert!((250..=256).contains(&shared), "{shared}");
    assert!(valid_blocks(&volume) <= blocks + 2);
    check_counts(&volume);
    // What is replaced is in many extents too.
    for block in (0..256).step_by(5) {
        write(&volume, two, block * BLOCK, &noise(block as u64, BLOCK));
        volume.sync().unwrap();
    }
    write(&volume, two, 0, &content);
    volume.sync().unwrap();
    let again = shared_while_written(&volume) - shared;
    assert!((200..=256).contains(&again), "{again}");
    check_counts(&volume);
    drop(volume);
    let volume = open(&device, Compression::Lz4);
    assert!(read(&volume, one, 0, content.len()) == content);
    assert!(read(&volume, two, 0, content.len()) == content);
    check_counts(&volume);
}

/// Small files that are written together, and the copies with them.
#[test]
fn copies_in_one_batch_are_stored_once() {
    let volume = open(&fresh(large_zones()), Compression::None);
    let contents: Vec<Vec<u8>> = (0..10)
        .map(|number| noise(number, (1 + number as usize) * BLOCK))
        .collect();
    let mut files = Vec::new();
    for content in contents.iter().chain(&contents).chain(&contents) {
        let ino = create(&volume).unwrap();
        write(&volume, ino, 0, content);
        files.push((ino, content));
    }
    volume.sync().unwrap();
    assert_eq!(valid_blocks(&volume), 55);
    assert_eq!(shared_while_written(&volume), 110);
    for (ino, content) in &files {
        assert!(read(&volume, *ino, 0, content.len()) == **content);
    }
    check_counts(&volume);
}

/// Files of text, those of one block first, and of 33: the last of these is alone in its frame.
fn small_files(volume: &Volume) -> Vec<(Ino, Vec<u8>)> {
    let lens = (0..60).map(|number| match number {
        0..50 => 1,
        50..58 => 6,
        _ => 33,
    });
    let files = lens.zip(0..).map(|(blocks, number)| {
        let ino = create(volume).unwrap();
        let last = text(number, BLOCK - 77);
        let content = [text(number + 1000, (blocks - 1) * BLOCK), last].concat();
        write(volume, ino, 0, &content);
        (ino, content)
    });
    let files = files.collect();
    volume.sync().unwrap();
    files
}

const SMALL_FILES_BLOCKS: u64 = 50 + 8 * 6 + 2 * 33;

#[test]
fn blocks_that_are_compressed_alone_are_stored_once() {
    for compression in [Compression::Lz4, Compression::Zstd(3)] {
        let device = fresh(large_zones());
        let volume = open(&device, compression);
        let mut files = small_files(&volume);
        let blocks = valid_blocks(&volume);
        files.extend(small_files(&volume));
        assert_eq!(shared_while_written(&volume), SMALL_FILES_BLOCKS);
        assert_eq!(valid_blocks(&volume), blocks, "{compression:?}");
        check_counts(&volume);
        // Without an orderly end: the records alone tell of it. What was read is remembered, the blocks that files end in too.
        drop(volume);
        let volume = open(&device, compression);
        for (ino, content) in &files {
            assert!(read(&volume, *ino, 0, content.len()) == *content);
        }
        small_files(&volume);
        assert_eq!(shared_while_written(&volume), SMALL_FILES_BLOCKS);
        assert_eq!(valid_blocks(&volume), blocks, "{compression:?}");
        check_counts(&volume);
    }
}

/// Blocks that LZ4 compressed alone, before the option was set, cannot be shared. Looking for their copies ended the search of the batch.
#[test]
fn what_cannot_be_shared_keeps_no_other_from_being_found() {
    let device = fresh(large_zones());
    let before = Options {
        dedup: Dedup::None,
        ..options(Compression::Lz4)
    };
    let volume = open_as(&device, before);
    let files = small_files(&volume);
    drop(volume);
    let volume = open(&device, Compression::Lz4);
    for (ino, content) in &files {
        assert!(read(&volume, *ino, 0, content.len()) == *content);
    }
    small_files(&volume);
    assert_eq!(shared_while_written(&volume), 8 * 6 + 2 * 32);
    check_counts(&volume);
    // The copies of the others can. Those that the longest files end in are too few to be sought behind what is shared with the first.
    small_files(&volume);
    assert_eq!(
        shared_while_written(&volume),
        8 * 6 + 2 * 32 + SMALL_FILES_BLOCKS - 2
    );
    check_counts(&volume);
}

#[test]
fn without_the_option_each_copy_takes_its_room() {
    let volume = open_as(&fresh(large_zones()), Options::default());
    let content = noise(3, 30 * BLOCK);
    file(&volume, &content);
    file(&volume, &content);
    assert_eq!(
        (valid_blocks(&volume), shared_while_written(&volume)),
        (60, 0)
    );
    assert_eq!(volume.statistics().dedup_table_bytes, 0);
}

/// What a file has already is not written again, and stays in its place.
#[test]
fn the_same_written_over_itself_is_not_written() {
    for compression in [Compression::None, Compression::Lz4] {
        let volume = open(&fresh(large_zones()), compression);
        let content = text(3, 64 * BLOCK);
        let ino = file(&volume, &content);
        let before = (extents(&volume), volume.statistics().data_bytes);
        write(&volume, ino, 0, &content);
        volume.sync().unwrap();
        assert_eq!((extents(&volume), volume.statistics().data_bytes), before);
        assert_eq!(shared_while_written(&volume), 64);
        check_counts(&volume);
    }
}

/// Zeros, bytes that repeat, single blocks out of longer runs, and what is inlined.
#[test]
fn what_is_not_worth_it_is_written() {
    let volume = open(&fresh(large_zones()), Compression::None);
    for _ in 0..2 {
        file(&volume, &vec![0; 20 * BLOCK]);
    }
    assert_eq!(
        (valid_blocks(&volume), shared_while_written(&volume)),
        (40, 0)
    );
    let filled = file(&volume, &vec![9; 40 * BLOCK]);
    assert_eq!(shared_while_written(&volume), 0);
    let again = file(&volume, &vec![9; 40 * BLOCK]);
    assert_eq!(shared_while_written(&volume), 40);
    assert!(is_shared(&volume, filled) && is_shared(&volume, again));
    // Two blocks of another file in the middle of a run.
    let before = shared_while_written(&volume);
    let other = noise(8, 2 * BLOCK);
    file(&volume, &other);
    file(
        &volume,
        &[noise(9, 10 * BLOCK), other, noise(10, 10 * BLOCK)].concat(),
    );
    assert_eq!(shared_while_written(&volume), before);
    check_counts(&volume);
}

/// A small sync neither reads nor looks: it has a hash to compute at most.
#[test]
fn a_small_sync_is_as_it_was() {
    let volume = open(&fresh(large_zones()), Compression::None);
    let content = noise(3, 3 * BLOCK);
    file(&volume, &content);
    let ino = create(&volume).unwrap();
    let before = volume.statistics();
    write(&volume, ino, 0, &content);
    volume.sync_file(ino).unwrap();
    let done = volume.statistics().since(&before);
    assert_eq!((done.read_commands, done.deduplicated_blocks), (0, 0));
    assert_eq!(done.data_bytes, 3 * BLOCK as u64);
    // A large one is worth a look, and durable.
    let content = noise(4, 40 * BLOCK);
    file(&volume, &content);
    let other = create(&volume).unwrap();
    write(&volume, other, 0, &content);
    volume.sync_file(other).unwrap();
    assert_eq!(shared_while_written(&volume), 40);
}

#[test]
fn what_was_synced_is_there_after_the_power_went() {
    for compression in [Compression::None, Compression::Lz4] {
        let device = fresh(large_zones());
        let volume = open(&device, compression);
        let content = text(3, 100 * BLOCK + 9);
        let one = create(&volume).unwrap();
        write(&volume, one, 0, &content);
        volume.commit_file(one).unwrap();
        let two = create(&volume).unwrap();
        write(&volume, two, 0, &content);
        volume.sync_file(two).unwrap();
        assert!(shared_while_written(&volume) >= 99);
        let left = Arc::new(device.persisted(1));
        drop(volume);
        let volume = open(&left, compression);
        assert!(read(&volume, two, 0, content.len() + 1) == content);
        check_counts(&volume);
    }
}

/// The source is written anew, cut, or moved between the comparison and the record.
#[test]
fn what_changed_since_it_was_compared_is_written() {
    type Change = fn(&Volume, Ino);
    let changes: [Change; 4] = [
        |volume, ino| write(volume, ino, 2 * BLOCK, &noise(77, BLOCK)),
        |volume, ino| {
            write(volume, ino, 2 * BLOCK, &noise(77, BLOCK));
            volume.commit_file(ino).unwrap();
        },
        |volume, ino| volume.truncate(ino, BLOCK as u64, NOW).unwrap(),
        |volume, _| {
            let zones = volume.zones();
            let full = zones
                .iter()
                .filter(|zone| zone.entry.role == Role::Data && zone.entry.valid > 0);
            let full: Vec<_> = full.map(|zone| zone.zone).collect();
            volume.empty_zones(&full[..1]).unwrap();
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let sim = fresh(SimConfig::new(60, 128).capacity(120));
        let device = Interrupted::new(&sim);
        let (volume, _) = Volume::open(device.clone(), options(Compression::None)).unwrap();
        let volume = Arc::new(volume);
        let content = noise(3, 32 * BLOCK);
        let one = file(&volume, &content);
        // The zone is full.
        let apart = file(&volume, &noise(50, 300 * BLOCK));
        let two = create(&volume).unwrap();
        write(&volume, two, 0, &content);
        // Behind the duplicate, so that there is something to place after the comparison.
        write(&volume, two, 64 * BLOCK, &noise(60, 3 * BLOCK));
        let inner = Arc::clone(&volume);
        device.before(
            |command| matches!(command, Command::Append { .. } | Command::Write { .. }),
            Box::new(move || change(&inner, one)),
        );
        volume.commit_file(two).unwrap();
        assert!(device.was_done(), "{number}");
        let shared = shared_while_written(&volume);
        assert_eq!(shared, 0, "{number}");
        assert!(read(&volume, two, 0, content.len()) == content, "{number}");
        assert!(read(&volume, two, 64 * BLOCK, 3 * BLOCK) == noise(60, 3 * BLOCK));
        assert!(read(&volume, apart, 0, 300 * BLOCK) == noise(50, 300 * BLOCK));
        volume.sync().unwrap();
        check_counts(&volume);
        drop(device);
    }
}

#[test]
fn preallocated_files_and_those_with_deltas_keep_their_own() {
    let volume = open_as(
        &fresh(large_zones()),
        Options {
            deltas: Deltas::Always,
            ..options(Compression::None)
        },
    );
    let content = noise(4, 12 * BLOCK);
    let one = file(&volume, &content);
    volume.preallocate(one, 0, 4096, true, NOW).unwrap();
    let two = file(&volume, &content);
    assert_eq!(shared_while_written(&volume), 0);
    let three = create(&volume).unwrap();
    volume.preallocate(three, 0, 4096, true, NOW).unwrap();
    write(&volume, three, 0, &content);
    volume.sync().unwrap();
    assert_eq!(shared_while_written(&volume), 0);
    // A block of the source, and then of the target, has a delta.
    let mut changed = content.clone();
    let mut rng = StdRng::seed_from_u64(4);
    edit(&volume, &mut rng, two, &mut changed);
    let four = file(&volume, &content);
    assert!(read(&volume, four, 0, content.len()) == content);
    assert!(read(&volume, two, 0, content.len()) == changed);
    edit(&volume, &mut rng, four, &mut content.clone());
    write(&volume, four, 0, &changed);
    volume.sync().unwrap();
    assert!(read(&volume, four, 0, content.len()) == changed);
    assert!(read(&volume, two, 0, content.len()) == changed);
    check_counts(&volume);
}

/// What a snapshot has, and the file has no more, is stored for both when it comes back.
#[test]
fn content_of_a_snapshot_is_found() {
    let volume = open(&fresh(large_zones()), Compression::None);
    let content = noise(4, 50 * BLOCK);
    let ino = file(&volume, &content);
    let taken = volume
        .snapshots()
        .take(SubvolumeId::MAIN, b"before", true, NOW)
        .unwrap();
    let before = ino.of(taken);
    write(&volume, ino, 0, &noise(5, 50 * BLOCK));
    volume.sync().unwrap();
    assert_eq!(valid_blocks(&volume), 100);
    // It is remembered as what is read.
    assert!(read(&volume, before, 0, content.len()) == content);
    let two = file(&volume, &content);
    assert_eq!(valid_blocks(&volume), 100);
    assert_eq!(shared_while_written(&volume), 50);
    write(&volume, ino, 0, &content);
    volume.sync().unwrap();
    for ino in [before, two, ino] {
        assert!(read(&volume, ino, 0, content.len()) == content);
    }
    volume.snapshots().delete(taken).unwrap();
    for ino in [two, ino] {
        assert!(read(&volume, ino, 0, content.len()) == content);
    }
}

/// Overwriting counts on what it frees where the volume is full; what was shared meanwhile frees nothing.
#[test]
fn a_full_volume_shares_nothing_and_loses_nothing() {
    let device = fresh(SimConfig::new(60, 128).capacity(120));
    let volume = open(&device, Compression::None);
    let content = noise(4, 64 * BLOCK);
    let one = file(&volume, &content);
    let two = create(&volume).unwrap();
    let mut at = 0;
    loop {
        let block = noise(1000 + at as u64, BLOCK);
        match volume.write(two, (at * BLOCK) as u64, &block, NOW) {
            Ok(_) => at += 1,
            Err(error) => {
                assert!(matches!(error, Error::NoSpace), "{error}");
                break;
            }
        }
    }
    volume.sync().unwrap();
    let before = shared_while_written(&volume);
    for round in 0..20 {
        // The one gives way to the other, and both are overwritten.
        write(&volume, two, 0, &content);
        volume.sync().unwrap();
        write(&volume, one, 0, &noise(round, 64 * BLOCK));
        volume.sync().unwrap();
        write(&volume, one, 0, &content);
        write(&volume, two, 0, &noise(100 + round, 64 * BLOCK));
        volume.sync().unwrap();
    }
    assert_eq!(shared_while_written(&volume), before);
    assert!(read(&volume, one, 0, content.len()) == content);
    check_counts(&volume);
}

/// Nobody is charged more because somebody else writes the same.
#[test]
fn owners_of_compressed_files_are_charged_as_before() {
    let volume = open(&fresh(large_zones()), Compression::Lz4);
    Quotas::of(&volume).turn_on(true).unwrap();
    Quotas::of(&volume).count().unwrap();
    let taken = || {
        let owner = Owner {
            kind: OwnerKind::User,
            id: 0,
        };
        Quotas::of(&volume).get(owner).unwrap().usage.sectors
    };
    let content = text(4, 64 * BLOCK);
    let one = file(&volume, &content);
    let before = (taken(), volume.attr(one).unwrap().unwrap().sectors);
    let shared = shared_while_written(&volume);
    file(&volume, &content);
    assert!(shared_while_written(&volume) > shared);
    assert_eq!(volume.attr(one).unwrap().unwrap().sectors, before.1);
    assert_eq!(taken(), 2 * before.0);
    // Blocks that are stored as they are count the same in each file.
    let content = noise(4, 64 * BLOCK);
    file(&volume, &content);
    let before = (taken(), valid_blocks(&volume));
    file(&volume, &content);
    assert_eq!(
        (taken(), valid_blocks(&volume)),
        (before.0 + 64 * 8, before.1)
    );
}

/// The table takes 1/1000 of the data, and finds both small and large files again.
#[test]
fn memory_is_a_thousandth_of_the_data() {
    let volume = open_as(
        &fresh(SimConfig::new(60, 8192)),
        Options {
            dedup_bytes_max: 1 << 30,
            ..options(Compression::None)
        },
    );
    let mut numbers = 0;
    let mut tree = |volume: &Volume| {
        for file_number in 0..600 {
            let ino = create(volume).unwrap();
            let blocks = if file_number % 10 == 0 {
                1300
            } else {
                1 + file_number % 9
            };
            for part in 0..blocks / 8 + 1 {
                let blocks = (blocks - 8 * part).min(8);
                numbers += 1;
                write(
                    volume,
                    ino,
                    part * 8 * BLOCK,
                    &noise(numbers, blocks * BLOCK),
                );
            }
        }
        numbers = 0;
        volume.sync().unwrap();
        let data = valid_blocks(volume);
        (data, volume.statistics())
    };
    let (data, _) = tree(&volume);
    assert!(data > 75_000, "{data}");
    let (both, statistics) = tree(&volume);
    let bytes = statistics.dedup_table_bytes;
    assert!(bytes <= data * 4096 / 1000, "{bytes}");
    assert!(
        both - data < data / 100,
        "{data} blocks of one tree, {both} of two"
    );
    assert!(statistics.deduplicated_blocks > data / 100 * 99);
}

#[test]
fn contents_that_repeat_and_change_at_random() {
    let (mut shared, mut cloned) = (0, 0);
    for seed in 0..12 {
        let compression = [Compression::None, Compression::Lz4][seed as usize / 3 % 2];
        let deltas = [Deltas::None, Deltas::Always][seed as usize % 2];
        let options = Options {
            deltas,
            ..options(compression)
        };
        let done = change_as(seed, options, seed % 4 != 0, Some(5));
        cloned += done.0;
        shared += done.1;
    }
    assert!(shared > 500 && cloned > 0, "{shared} {cloned}");
}

/// Clones and duplicates of the same blocks, side by side, from several threads.
#[test]
fn several_write_the_same_at_once() {
    let volume = open(&fresh(large_zones()), Compression::None);
    let content = noise(3, 200 * BLOCK);
    let files: Vec<Ino> = (0..4).map(|_| create(&volume).unwrap()).collect();
    std::thread::scope(|scope| {
        for (number, ino) in files.iter().enumerate() {
            let (volume, content, files) = (&volume, &content, &files);
            scope.spawn(move || {
                for round in 0..12 {
                    write(volume, *ino, 0, content);
                    match round % 3 {
                        0 => volume.sync_file(*ino).unwrap(),
                        1 => volume.commit_file(*ino).unwrap(),
                        _ => volume.sync().unwrap(),
                    }
                    if round % 4 == number {
                        let other = files[(number + 1) % files.len()];
                        clone(volume, (*ino, 0), (other, 0), 50 * BLOCK);
                        write(volume, *ino, 7 * BLOCK, &noise(round as u64, 20 * BLOCK));
                        volume.commit_file(*ino).unwrap();
                    }
                }
                write(volume, *ino, 0, content);
            });
        }
    });
    volume.sync().unwrap();
    for ino in &files {
        assert!(read(&volume, *ino, 0, content.len()) == content);
    }
    check_counts(&volume);
    let stored = extents(&volume);
    assert!(stored.iter().any(|(ino, _, _)| *ino == SHARED));
}
