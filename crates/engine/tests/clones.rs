//! Files that have blocks in common.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

mod common;

use common::content::{check_counts, large_zones, open, read, text, write};
use common::{NOW, create, fresh, noise};
use persimmon_engine::{CloneRange, Progress, Task, Volume};
use persimmon_format::table::Role;
use persimmon_format::{Compression, Ino};
use persimmon_sim::SimConfig;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const BLOCK: usize = 4096;

fn clone(volume: &Volume, from: (Ino, usize), to: (Ino, usize), len: usize) -> usize {
    let range = CloneRange {
        from: from.0,
        from_offset: from.1 as u64,
        to: to.0,
        to_offset: to.1 as u64,
        len: len as u64,
    };
    volume.clone_range(&range, NOW).unwrap() as usize
}

fn valid_blocks(volume: &Volume) -> u64 {
    let zones = volume.zones();
    let data = zones.iter().filter(|zone| zone.entry.role == Role::Data);
    data.map(|zone| u64::from(zone.entry.valid)).sum()
}

#[test]
fn a_clone_takes_no_space_and_writes_its_own() {
    for compression in [Compression::None, Compression::Lz4] {
        let device = fresh(large_zones());
        let volume = open(&device, compression);
        let (one, two) = (create(&volume).unwrap(), create(&volume).unwrap());
        let content = text(1, 600 * BLOCK + 77);
        write(&volume, one, 0, &content);
        volume.sync().unwrap();
        let before = valid_blocks(&volume);
        // The last block may have to be copied: it lies in the tree.
        let cloned = clone(&volume, (one, 0), (two, 0), content.len());
        assert!(cloned >= 600 * BLOCK, "{cloned}");
        assert!(valid_blocks(&volume) <= before + 1);
        assert_eq!(read(&volume, two, 0, content.len()), content[..cloned]);
        check_counts(&volume);
        let new = noise(5, 10 * BLOCK);
        write(&volume, two, 100 * BLOCK, &new);
        volume.sync().unwrap();
        assert!(read(&volume, one, 0, content.len()) == content);
        assert!(read(&volume, two, 100 * BLOCK, new.len()) == new);
        check_counts(&volume);
        volume.truncate(one, 0, NOW).unwrap();
        let end = cloned - 200 * BLOCK;
        assert!(read(&volume, two, 200 * BLOCK, end) == content[200 * BLOCK..cloned]);
        check_counts(&volume);
        volume.truncate(two, 0, NOW).unwrap();
        check_counts(&volume);
        assert_eq!(valid_blocks(&volume), 0);
    }
}

/// A range of a file cannot become a clone of itself further on, which would take its own blocks away first: nothing is cloned.
#[test]
fn a_range_is_not_cloned_over_itself() {
    let device = fresh(large_zones());
    let volume = open(&device, Compression::None);
    let ino = create(&volume).unwrap();
    let content = text(1, 20 * BLOCK);
    write(&volume, ino, 0, &content);
    assert_eq!(clone(&volume, (ino, 0), (ino, 4 * BLOCK), 5 * BLOCK), 0);
    assert_eq!(clone(&volume, (ino, 4 * BLOCK), (ino, 0), 5 * BLOCK), 0);
    assert!(read(&volume, ino, 0, content.len()) == content);
    let cloned = clone(&volume, (ino, 0), (ino, 5 * BLOCK), 5 * BLOCK);
    assert_eq!(cloned, 5 * BLOCK);
    assert!(read(&volume, ino, 5 * BLOCK, cloned) == content[..cloned]);
    check_counts(&volume);
}

/// The rest of the last block came along, and was there when the target grew.
#[test]
fn a_block_is_not_cloned_for_a_part_of_it() {
    let volume = open(&fresh(large_zones()), Compression::None);
    let (one, two) = (create(&volume).unwrap(), create(&volume).unwrap());
    let content = noise(1, 3 * BLOCK);
    write(&volume, one, 0, &content);
    assert_eq!(
        clone(&volume, (one, 0), (two, 0), 2 * BLOCK + 808),
        2 * BLOCK
    );
    volume.truncate(two, 3 * BLOCK as u64, NOW).unwrap();
    assert!(read(&volume, two, 2 * BLOCK, BLOCK) == [0; BLOCK]);
    // Nor where the target goes on behind the source's end.
    let short = create(&volume).unwrap();
    write(&volume, short, 0, &content[..BLOCK + 7]);
    assert_eq!(clone(&volume, (short, 0), (one, 0), BLOCK + 7), BLOCK);
    assert!(read(&volume, one, BLOCK, 2 * BLOCK) == content[BLOCK..]);
}

/// Files that are changed at random, and what they should hold.
struct Twin {
    rng: StdRng,
    files: Vec<(Ino, Vec<u8>)>,
    number: u64,
    cloned: usize,
}

impl Twin {
    fn step(&mut self, volume: &Volume) {
        let at = self.rng.random_range(0..self.files.len());
        let place = self.rng.random_range(0..100) * BLOCK;
        let len = BLOCK * self.rng.random_range(1..60);
        if self.rng.random_range(0..4) == 0 {
            let other = self.rng.random_range(0..self.files.len());
            let from = self.rng.random_range(0..100) * BLOCK;
            if other == at && from.abs_diff(place) < len {
                return;
            }
            let (from_ino, to_ino) = (self.files[other].0, self.files[at].0);
            let cloned = clone(volume, (from_ino, from), (to_ino, place), len);
            self.cloned += cloned;
            let bytes = self.files[other].1[from.min(self.files[other].1.len())..].to_vec();
            let bytes = &bytes[..cloned];
            let content = &mut self.files[at].1;
            if cloned > 0 {
                content.resize(content.len().max(place + cloned), 0);
                content[place..place + cloned].copy_from_slice(bytes);
            }
            return;
        }
        let (ino, content) = &mut self.files[at];
        let (place, len) = if self.rng.random_range(0..4) == 0 {
            (place + self.rng.random_range(0..BLOCK), len - 50)
        } else {
            (place, len)
        };
        match self.rng.random_range(0..14) {
            0..5 => {
                self.number += 1;
                let bytes = match self.rng.random_range(0..3) {
                    0 => noise(self.number, len),
                    1 => vec![self.number as u8; len],
                    _ => text(self.number, len),
                };
                content.resize(content.len().max(place + len), 0);
                content[place..place + len].copy_from_slice(&bytes);
                write(volume, *ino, place, &bytes);
            }
            5 => {
                volume.truncate(*ino, place as u64, NOW).unwrap();
                content.resize(place, 0);
            }
            6 => {
                volume.punch(*ino, place as u64, len as u64, NOW).unwrap();
                let end = content.len().min(place + len);
                if place < end {
                    content[place..end].fill(0);
                }
            }
            7..9 => volume.sync_file(*ino).unwrap(),
            9 => volume.sync().unwrap(),
            10 => while volume.step(Task::WriteBack).unwrap() == Progress::Worked {},
            11 => {
                let zones: Vec<_> = volume
                    .zones()
                    .iter()
                    .filter(|zone| zone.entry.role == Role::Data && zone.entry.valid > 0)
                    .map(|zone| zone.zone)
                    .collect();
                if !zones.is_empty() {
                    let zone = zones[self.rng.random_range(0..zones.len())];
                    volume.empty_zones(&[zone]).unwrap();
                }
            }
            _ => {
                let read = read(volume, *ino, place, len);
                let end = content.len().min(place + len);
                assert!(read == content[place.min(end)..end]);
            }
        }
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
    let shapes = [
        SimConfig::new(60, 128).capacity(120),
        SimConfig::new(40, 512),
        large_zones(),
    ];
    let mut cloned = 0;
    for seed in 0..12 {
        let device = fresh(shapes[seed as usize % shapes.len()].clone());
        let mut rng = StdRng::seed_from_u64(seed);
        let compression = if seed % 2 == 0 {
            Compression::None
        } else {
            Compression::Lz4
        };
        let mut volume = open(&device, compression);
        let files = (0..3)
            .map(|_| (create(&volume).unwrap(), Vec::new()))
            .collect();
        let mut twin = Twin {
            number: rng.random(),
            rng,
            files,
            cloned: 0,
        };
        for round in 0..12 {
            for _ in 0..25 {
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
        cloned += twin.cloned;
    }
    assert!(cloned > 20 << 20, "{cloned}");
}
