//! Equal blocks of two files that become shared.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::content::{
    check_counts, clone, damage, extents, large_zones, open, open_with, read, text, with_at, write,
};
use crate::common::{NOW, create, fresh, noise};
use persimmon_engine::{CloneRange, CloneWhen, Cloned, Deltas, Error, Progress, Task, Volume};
use persimmon_format::extent::Extent;
use persimmon_format::inode::Timestamp;
use persimmon_format::table::Role;
use persimmon_format::{Compression, Ino};
use persimmon_sim::SimConfig;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const BLOCK: usize = 4096;
const LATER: Timestamp = Timestamp {
    seconds: NOW.seconds + 100,
    nanoseconds: 0,
};

fn dedupe_when(
    volume: &Volume,
    from: (Ino, usize),
    to: (Ino, usize),
    len: usize,
    when: CloneWhen,
) -> Cloned {
    with_at(volume, from, to, len, when, LATER)
}

/// Bytes that are equal, and of those the ones that became shared.
fn dedupe(
    volume: &Volume,
    from: (Ino, usize),
    to: (Ino, usize),
    len: usize,
    least: usize,
) -> (usize, usize) {
    let when = CloneWhen::Equal {
        least: least as u64,
    };
    let cloned = dedupe_when(volume, from, to, len, when);
    assert_eq!(cloned.to_copy, 0);
    (cloned.bytes as usize, cloned.shared as usize)
}

fn valid_blocks(volume: &Volume) -> u64 {
    let zones = volume.zones();
    let data = zones.iter().filter(|zone| zone.entry.role == Role::Data);
    data.map(|zone| u64::from(zone.entry.valid)).sum()
}

/// Two files of the same content, in compressed frames or whole blocks.
fn twins(volume: &Volume, content: &[u8]) -> (Ino, Ino) {
    let (one, two) = (create(volume).unwrap(), create(volume).unwrap());
    for ino in [one, two] {
        write(volume, ino, 0, content);
        volume.sync().unwrap();
    }
    (one, two)
}

#[test]
fn equal_files_become_one_and_no_reader_sees_it() {
    for compression in [Compression::None, Compression::Lz4] {
        let volume = open(&fresh(large_zones()), compression);
        let content = noise(3, 600 * BLOCK + 77);
        let (one, two) = twins(&volume, &content);
        let before = (volume.attr(one).unwrap(), volume.attr(two).unwrap());
        let blocks = valid_blocks(&volume);
        let len = content.len();
        let would = CloneWhen::WouldBeEqual { least: 0 };
        let told = dedupe_when(&volume, (one, 0), (two, 0), len, would);
        assert_eq!(valid_blocks(&volume), blocks);
        let (equal, shared) = dedupe(&volume, (one, 0), (two, 0), usize::MAX >> 1, 0);
        assert_eq!(equal, len);
        assert!(shared >= 600 * BLOCK, "{shared}");
        assert_eq!((told.bytes, told.shared), (equal as u64, shared as u64));
        // The last block of each may lie in the tree.
        assert!(valid_blocks(&volume) <= blocks / 2 + 1);
        assert_eq!(
            (volume.attr(one).unwrap(), volume.attr(two).unwrap()),
            before
        );
        assert_eq!(dedupe(&volume, (one, 0), (two, 0), len, 0), (len, 0));
        assert_eq!(dedupe(&volume, (two, 0), (one, 0), len, 0), (len, 0));
        check_counts(&volume);
        for ino in [one, two] {
            assert!(read(&volume, ino, 0, len) == content);
        }
        write(&volume, two, 5 * BLOCK, &[7; BLOCK]);
        assert!(read(&volume, one, 0, len) == content);
        volume.sync().unwrap();
        check_counts(&volume);
    }
}

/// Blocks that were compressed gave way to those of a file that is stored as it is: less was freed, and the owner of the other was charged more.
#[test]
fn what_takes_less_is_kept() {
    for is_first in [true, false] {
        let device = fresh(large_zones());
        let content = text(5, 200 * BLOCK);
        let volume = open(&device, Compression::None);
        let whole = create(&volume).unwrap();
        write(&volume, whole, 0, &content);
        volume.sync().unwrap();
        drop(volume);
        let volume = open(&device, Compression::Lz4);
        let compressed = create(&volume).unwrap();
        write(&volume, compressed, 0, &content);
        volume.sync().unwrap();
        let sectors = |ino| volume.attr(ino).unwrap().unwrap().sectors;
        let (before, blocks) = (sectors(compressed), valid_blocks(&volume));
        assert!(
            before * 4 < sectors(whole) * 3,
            "{before} {}",
            sectors(whole)
        );
        let (from, to) = match is_first {
            true => (whole, compressed),
            false => (compressed, whole),
        };
        let (_, shared) = dedupe(&volume, (from, 0), (to, 0), content.len(), 0);
        assert!(shared >= 150 * BLOCK, "{shared}");
        let now = (sectors(compressed), sectors(whole), valid_blocks(&volume));
        assert!(
            now.0 <= before && now.1 <= before + before / 4,
            "{now:?} of {before}"
        );
        assert!(now.2 <= blocks - 150, "{now:?} of {blocks}");
        check_counts(&volume);
        for ino in [whole, compressed] {
            assert!(read(&volume, ino, 0, content.len()) == content);
        }
    }
}

/// A third copy of what two files share already leaves those two alone, in whichever order it is asked.
#[test]
fn what_is_shared_already_is_where_others_go() {
    let volume = open(&fresh(large_zones()), Compression::None);
    let content = noise(3, 40 * BLOCK);
    let (one, two) = twins(&volume, &content);
    let (three, four) = twins(&volume, &content);
    let len = content.len();
    assert_eq!(dedupe(&volume, (one, 0), (two, 0), len, 0), (len, len));
    assert_eq!(dedupe(&volume, (three, 0), (two, 0), len, 0), (len, len));
    assert_eq!(dedupe(&volume, (one, 0), (four, 0), len, 0), (len, len));
    assert_eq!(valid_blocks(&volume), 40);
    for pair in [(one, three), (three, four), (four, two)] {
        assert_eq!(dedupe(&volume, (pair.0, 0), (pair.1, 0), len, 0), (len, 0));
    }
    check_counts(&volume);
}

#[test]
fn what_differs_is_left_from_there_on() {
    let volume = open(&fresh(large_zones()), Compression::None);
    let content = noise(3, 40 * BLOCK);
    let (one, two) = twins(&volume, &content);
    let len = content.len();
    write(
        &volume,
        two,
        17 * BLOCK + 4095,
        &[!content[17 * BLOCK + 4095]],
    );
    let due = 17 * BLOCK;
    assert_eq!(dedupe(&volume, (one, 0), (two, 0), len, due + 1), (0, 0));
    assert_eq!(dedupe(&volume, (one, 0), (two, 0), len, due), (due, due));
    assert_eq!(dedupe(&volume, (one, due), (two, due), len, 0), (0, 0));
    // The rest of a block in which one of them ends, and the other does not.
    volume.truncate(two, (due - 7) as u64, NOW).unwrap();
    let whole = due - BLOCK;
    assert_eq!(dedupe(&volume, (one, 0), (two, 0), len, 0), (whole, 0));
    assert_eq!(volume.attr(two).unwrap().unwrap().size, (due - 7) as u64);
    // A range over itself, of one byte alone.
    let plain = create(&volume).unwrap();
    write(&volume, plain, 0, &vec![9; 20 * BLOCK]);
    let apart = 4 * BLOCK;
    let found = dedupe(&volume, (plain, 0), (plain, apart), len, 0);
    assert_eq!(found, (apart, apart));
    assert_eq!(dedupe(&volume, (plain, 0), (plain, 0), len, 0), (0, 0));
    check_counts(&volume);
}

#[test]
fn holes_stay_and_zeros_that_are_stored_go() {
    let volume = open(&fresh(large_zones()), Compression::None);
    let (one, two) = (create(&volume).unwrap(), create(&volume).unwrap());
    let len = 32 * BLOCK;
    volume.truncate(one, len as u64, NOW).unwrap();
    write(&volume, two, 0, &vec![0; len]);
    volume.sync().unwrap();
    let of = |ino| {
        extents(&volume)
            .iter()
            .filter(|found| found.0 == ino)
            .count()
    };
    assert_eq!(dedupe(&volume, (two, 0), (one, 0), len, 0), (len, 0));
    assert_eq!(of(one), 0);
    assert_eq!(dedupe(&volume, (one, 0), (two, 0), len, 0), (len, len));
    assert_eq!((of(two), valid_blocks(&volume)), (0, 0));
    assert_eq!(dedupe(&volume, (one, 0), (two, 0), len, 0), (len, 0));
    check_counts(&volume);
}

#[test]
fn small_content_and_preallocated_files_keep_their_own() {
    let volume = open(&fresh(large_zones()), Compression::Lz4);
    let (one, two) = twins(&volume, b"a few bytes");
    assert_eq!(dedupe(&volume, (one, 0), (two, 0), BLOCK, 0), (11, 0));
    let is_inline = |found: &(Ino, u64, Extent)| matches!(found.2, Extent::Inline(_));
    assert_eq!(extents(&volume).iter().filter(|f| is_inline(f)).count(), 2);
    let content = noise(4, 9 * BLOCK);
    let (one, two) = twins(&volume, &content);
    volume.preallocate(one, 0, BLOCK as u64, true, NOW).unwrap();
    let len = content.len();
    for (from, to) in [(one, two), (two, one)] {
        assert_eq!(dedupe(&volume, (from, 0), (to, 0), len, 0), (len, 0));
    }
    check_counts(&volume);
}

/// Each write is there afterwards, whether it came before the comparison or after it.
#[test]
fn no_write_is_lost_to_one() {
    let volume = open(&fresh(large_zones()), Compression::None);
    let content = noise(3, 64 * BLOCK);
    let (one, two) = twins(&volume, &content);
    let ended = AtomicBool::new(false);
    let written = |number: u64| {
        let mut bytes = content[..BLOCK].to_vec();
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes
    };
    std::thread::scope(|scope| {
        for ino in [one, two] {
            let (volume, ended, content) = (&volume, &ended, &content);
            scope.spawn(move || {
                let mut rng = StdRng::seed_from_u64(ino.0);
                for number in 0..400 {
                    let at = rng.random_range(0..64) * BLOCK;
                    write(volume, ino, at, &written(number));
                    if number % 7 == 0 {
                        volume.sync_file(ino).unwrap();
                    }
                    assert!(read(volume, ino, at, BLOCK) == written(number));
                    write(volume, ino, at, &content[at..at + BLOCK]);
                    assert!(read(volume, ino, at, BLOCK) == content[at..at + BLOCK]);
                }
                ended.store(true, Ordering::Relaxed);
            });
        }
        let mut shared = 0;
        while !ended.load(Ordering::Relaxed) {
            for block in (0..64).step_by(8) {
                let at = block * BLOCK;
                shared += dedupe(&volume, (one, at), (two, at), 8 * BLOCK, 0).1;
            }
        }
        assert!(shared > 0);
    });
    for ino in [one, two] {
        assert!(read(&volume, ino, 0, content.len()) == content);
    }
    volume.sync().unwrap();
    check_counts(&volume);
    let len = content.len();
    assert_eq!(dedupe(&volume, (one, 0), (two, 0), len, len).0, len);
    assert_eq!(valid_blocks(&volume), 64);
}

/// Files that are changed at random, and what they should hold.
struct Twin {
    rng: StdRng,
    files: Vec<(Ino, Vec<u8>)>,
    number: u64,
    shared: usize,
}

impl Twin {
    fn put(&mut self, volume: &Volume, at: usize, place: usize, bytes: &[u8]) {
        let (ino, content) = &mut self.files[at];
        if !bytes.is_empty() && content.len() < place + bytes.len() {
            content.resize(place + bytes.len(), 0);
        }
        if !bytes.is_empty() {
            content[place..place + bytes.len()].copy_from_slice(bytes);
            write(volume, *ino, place, bytes);
        }
    }

    fn step(&mut self, volume: &Volume) {
        let at = self.rng.random_range(0..self.files.len());
        let other = self.rng.random_range(0..self.files.len());
        let place = self.rng.random_range(0..60) * BLOCK;
        let from = match self.rng.random_range(0..3) {
            0 => self.rng.random_range(0..60) * BLOCK,
            _ => place,
        };
        let len = match self.rng.random_range(0..3) {
            0 => self.rng.random_range(1..BLOCK),
            1 => self.rng.random_range(1..40) * BLOCK,
            _ => self.rng.random_range(1..40 * BLOCK),
        };
        match self.rng.random_range(0..24) {
            0..4 => {
                self.number += 1;
                let bytes = match self.rng.random_range(0..4) {
                    0 => vec![self.number as u8; len],
                    1 => vec![0; len],
                    2 => noise(self.number, len),
                    _ => text(self.number, len),
                };
                self.put(volume, at, place, &bytes);
            }
            // Equal content, stored twice.
            4..10 => {
                let source = &self.files[other].1;
                let start = from.min(source.len());
                let bytes = source[start..source.len().min(start + len)].to_vec();
                self.put(volume, at, place, &bytes);
            }
            10 => {
                let (ino, content) = &mut self.files[at];
                let size = (place + len).min(60 * BLOCK);
                volume.truncate(*ino, size as u64, NOW).unwrap();
                content.resize(size, 0);
            }
            11 => {
                let (ino, content) = &mut self.files[at];
                volume.punch(*ino, place as u64, len as u64, NOW).unwrap();
                let end = content.len().min(place + len);
                if place < end {
                    content[place..end].fill(0);
                }
            }
            12 => {
                if other != at || from.abs_diff(place) >= len.next_multiple_of(BLOCK) {
                    let whole = len / BLOCK * BLOCK;
                    let (source, target) = (self.files[other].0, self.files[at].0);
                    let cloned = clone(volume, (source, from), (target, place), whole);
                    let bytes = self.files[other].1.get(from..).unwrap_or_default();
                    let bytes = bytes[..cloned].to_vec();
                    let content = &mut self.files[at].1;
                    if cloned > 0 {
                        content.resize(content.len().max(place + cloned), 0);
                        content[place..place + cloned].copy_from_slice(&bytes);
                    }
                }
            }
            13 => volume.sync_file(self.files[at].0).unwrap(),
            14 => volume.sync().unwrap(),
            15 => {
                while volume.step(Task::WriteBack).unwrap() == Progress::Worked {}
                volume.step(Task::Checkpoint).unwrap();
            }
            16 => {
                let zones = volume.zones();
                let mut used = zones
                    .iter()
                    .filter(|zone| zone.entry.role == Role::Data && zone.entry.valid > 0);
                if let Some(zone) = used.next() {
                    volume.empty_zones(&[zone.zone]).unwrap();
                }
            }
            _ => self.dedupe(volume, (other, from), (at, place), len),
        }
    }

    fn dedupe(&mut self, volume: &Volume, from: (usize, usize), to: (usize, usize), len: usize) {
        let rest = |(at, place): (usize, usize)| {
            let content = &self.files[at].1;
            content.get(place..).unwrap_or_default()
        };
        let (ours, theirs) = (rest(from), rest(to));
        let mut due = len.min(ours.len()).min(theirs.len());
        if from.0 == to.0 {
            due = due.min(from.1.abs_diff(to.1));
        }
        if due != ours.len() || due != theirs.len() {
            due -= due % BLOCK;
        }
        let blocks = ours[..due].chunks(BLOCK).zip(theirs[..due].chunks(BLOCK));
        let same = blocks.take_while(|(one, other)| one == other).count();
        let equal = due.min(same * BLOCK);
        let least = self.rng.random_range(0..8) * BLOCK;
        let due = if same * BLOCK < least { 0 } else { equal };
        let (source, target) = ((self.files[from.0].0, from.1), (self.files[to.0].0, to.1));
        let before = [source.0, target.0].map(|ino| {
            volume.commit_file(ino).unwrap();
            let attr = volume.attr(ino).unwrap().unwrap();
            (attr.size, attr.mtime, attr.ctime)
        });
        let would = CloneWhen::WouldBeEqual {
            least: least as u64,
        };
        let told = dedupe_when(volume, source, target, len, would);
        assert_eq!(told.bytes as usize, due);
        let (bytes, shared) = dedupe(volume, source, target, len, least);
        assert_eq!(bytes, due);
        self.shared += shared;
        let again = dedupe(volume, source, target, len, least);
        assert_eq!(again, (due, 0));
        let after = [source.0, target.0].map(|ino| {
            let attr = volume.attr(ino).unwrap().unwrap();
            (attr.size, attr.mtime, attr.ctime)
        });
        assert_eq!(after, before);
    }

    fn check(&self, volume: &Volume) {
        for (ino, content) in &self.files {
            let found = read(volume, *ino, 0, content.len() + 1);
            assert_eq!(found.len(), content.len(), "{ino}");
            let differs = found.iter().zip(content).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{ino}");
        }
    }
}

#[test]
fn content_and_counts_stay_right_whatever_happens() {
    let mut shared = 0;
    for seed in 0..12 {
        let compression = if seed % 2 == 0 {
            Compression::Lz4
        } else {
            Compression::None
        };
        let shapes = [SimConfig::new(60, 128).capacity(120), large_zones()];
        let device = fresh(shapes[seed as usize / 2 % 2].clone());
        let mut volume = open(&device, compression);
        let files = (0..3).map(|_| (create(&volume).unwrap(), Vec::new()));
        let mut twin = Twin {
            rng: StdRng::seed_from_u64(seed),
            files: files.collect(),
            number: seed << 20,
            shared: 0,
        };
        for round in 0..8 {
            for _ in 0..40 {
                twin.step(&volume);
            }
            twin.check(&volume);
            volume.sync().unwrap();
            check_counts(&volume);
            // Every other time without an orderly end.
            if round % 2 == 0 {
                volume.close().unwrap();
            }
            drop(volume);
            volume = open(&device, compression);
            twin.check(&volume);
            check_counts(&volume);
        }
        shared += twin.shared;
    }
    assert!(shared > 2 << 20, "{shared}");
}

/// What was compared of a page of a database was what memory had of it: its block on the device was damaged, and the other file gave up its own
/// for that.
#[test]
fn no_good_block_is_given_up_for_a_damaged_one() {
    let device = fresh(large_zones());
    let volume = open_with(&device, Compression::None, Deltas::InMemory);
    let (ino, other) = (create(&volume).unwrap(), create(&volume).unwrap());
    let mut content = noise(1, 100 * BLOCK);
    write(&volume, ino, 0, &content);
    volume.sync().unwrap();
    for byte in [1, 2] {
        content[7 * BLOCK] = byte;
        write(&volume, ino, 7 * BLOCK, &content[7 * BLOCK..][..BLOCK]);
        volume.sync_file(ino).unwrap();
    }
    volume.step(Task::Checkpoint).unwrap();
    let page = &content[20 * BLOCK..][..BLOCK];
    assert!(read(&volume, ino, 20 * BLOCK, BLOCK) == page);
    damage(&device, &volume, |stored| stored == page);
    write(&volume, other, 0, page);
    volume.sync().unwrap();
    let range = CloneRange {
        from: ino,
        from_offset: 20 * BLOCK as u64,
        to: other,
        to_offset: 0,
        len: BLOCK as u64,
        when: CloneWhen::Equal {
            least: BLOCK as u64,
        },
    };
    let refused = volume.clone_range(&range, LATER);
    assert!(
        matches!(refused, Err(Error::DataDamaged { .. })),
        "{refused:?}"
    );
    drop(volume);
    let volume = open(&device, Compression::None);
    assert!(read(&volume, other, 0, BLOCK) == page);
}
