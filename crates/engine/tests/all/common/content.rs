//! Files of compressible content on a volume, and whether everything is counted as it is.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use persimmon_device::ZonedDevice;
use persimmon_engine::{
    CloneRange, CloneWhen, Cloned, Deltas, Options, Progress, Seek, Task, Volume,
};
use persimmon_format::extent::Extent;
use persimmon_format::inode::{SHARED, Timestamp};
use persimmon_format::packed::{FrameTally, PACK_UNIT, PackUnits, Stored};
use persimmon_format::references::References;
use persimmon_format::table::Role;
use persimmon_format::{Compression, Ino, Key, KeyKind, SubvolumeId, ZoneId};
use persimmon_sim::{SimConfig, SimDevice};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{NOW, create, fresh, noise};

const BLOCK: usize = 4096;

pub fn open(device: &Arc<SimDevice>, compression: Compression) -> Volume {
    open_with(device, compression, Deltas::None)
}

pub fn open_with(device: &Arc<SimDevice>, compression: Compression, deltas: Deltas) -> Volume {
    let options = Options {
        compression,
        deltas,
        ..Options::default()
    };
    open_as(device, options)
}

/// With a megabyte of staging.
pub fn open_as(device: &Arc<SimDevice>, options: Options) -> Volume {
    let options = Options {
        staging_bytes_max: 1 << 20,
        ..options
    };
    Volume::open(Arc::clone(device) as _, options).unwrap().0
}

/// Zones that frames of 32 blocks are short beside.
pub fn large_zones() -> SimConfig {
    SimConfig::new(40, 2048)
}

/// Bytes that compress to about a third.
pub fn text(number: u64, len: usize) -> Vec<u8> {
    let lines = (number..).map(|line| format!("{line:x} and {:x}; ", line.wrapping_mul(line)));
    lines.flat_map(String::into_bytes).take(len).collect()
}

pub fn write(volume: &Volume, ino: Ino, offset: usize, data: &[u8]) {
    let mut done = 0;
    while done < data.len() {
        done += volume
            .write(ino, (offset + done) as u64, &data[done..], NOW)
            .unwrap();
    }
}

pub fn read(volume: &Volume, ino: Ino, offset: usize, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    let read = volume.read(ino, offset as u64, &mut data).unwrap();
    data.truncate(read);
    data
}

pub fn items<T>(volume: &Volume, pick: impl FnMut(Key, &[u8]) -> Option<T>) -> Vec<T> {
    let mut all = Vec::new();
    volume
        .snapshots()
        .walk_stored(pick, |found| all.push(found))
        .unwrap();
    all
}

/// Extents of all files, in all versions.
fn versions(volume: &Volume) -> Vec<(Key, Extent)> {
    items(volume, |key, value| {
        (key.kind == KeyKind::EXTENT).then(|| (key, Extent::decode(value).unwrap()))
    })
}

/// Extents of all files.
pub fn extents(volume: &Volume) -> Vec<(Ino, u64, Extent)> {
    let versions = versions(volume).into_iter();
    versions
        .map(|(key, extent)| (key.ino, key.item, extent))
        .collect()
}

/// What zones, inodes and the store of shared blocks count is what the extents are.
pub fn check_counts(volume: &Volume) {
    let sectors = check_stored(volume);
    for (ino, sectors) in sectors {
        assert_eq!(volume.attr(ino).unwrap().unwrap().sectors, sectors, "{ino}");
    }
}

/// The same but for inodes. Returns the sectors of each, if there are no snapshots.
pub fn check_stored(volume: &Volume) -> BTreeMap<Ino, u64> {
    let extents = versions(volume);
    let counts = items(volume, |key, value| {
        (key.kind == KeyKind::REFERENCES)
            .then(|| (key.item, References::decode(key.item, value).unwrap()))
    });
    let mut counted: BTreeMap<u64, u32> = BTreeMap::new();
    for (at, references) in counts {
        for block in at..at + u64::from(references.blocks) {
            assert_eq!(counted.insert(block, references.count), None);
        }
    }
    let mut tally = FrameTally::default();
    let mut frames = HashSet::new();
    let mut zones: BTreeMap<ZoneId, PackUnits> = BTreeMap::new();
    let mut sectors: BTreeMap<Ino, u64> = BTreeMap::new();
    let mut named: BTreeMap<u64, u32> = BTreeMap::new();
    let mut stored: BTreeMap<u64, u32> = BTreeMap::new();
    for pair in extents.windows(2) {
        let [(one, extent), (other, next)] = pair else {
            continue;
        };
        let apart = one.item + extent.blocks() <= other.item
            || one.item == other.item && extent.blocks() == next.blocks();
        assert!(
            one.ino != other.ino || apart,
            "{one:?} {extent:?} {other:?} {next:?}"
        );
    }
    for (key, extent) in extents {
        let (ino, block) = (key.ino, key.item);
        match &extent {
            Extent::Packed(packed) => {
                if let Some(dictionary) = packed.dictionary()
                    && frames.insert((key.version, packed.whole()))
                {
                    assert_ne!(ino, SHARED);
                    for block in dictionary.at..dictionary.end() {
                        *named.entry(block).or_default() += 1;
                    }
                }
            }
            Extent::Shared { at, blocks, .. } => {
                for block in *at..*at + u64::from(*blocks) {
                    *named.entry(block).or_default() += 1;
                }
            }
            _ => {}
        }
        let Stored {
            units,
            sectors: share,
        } = tally.extent(ino, block, &extent);
        *sectors.entry(ino).or_default() += share;
        if let Some(addr) = extent.addr() {
            *zones.entry(addr.zone()).or_default() += units;
        }
        if ino == SHARED {
            for block in block..block + extent.blocks() {
                let count = counted.remove(&block).unwrap_or(1);
                stored.insert(block, count);
            }
        }
    }
    assert_eq!(named, stored);
    assert!(counted.is_empty(), "{counted:?}");
    for status in volume.zones() {
        if status.entry.role == Role::Data {
            let counted = zones.remove(&status.zone).unwrap_or_default();
            assert_eq!(status.entry.pack_units(), counted, "zone {}", status.zone);
        }
    }
    assert!(zones.is_empty());
    sectors.remove(&SHARED);
    sectors
}

/// What a range of one file and another one are to have in common.
pub fn with(
    volume: &Volume,
    from: (Ino, usize),
    to: (Ino, usize),
    len: usize,
    when: CloneWhen,
) -> Cloned {
    with_at(volume, from, to, len, when, NOW)
}

/// As above, at another time.
pub fn with_at(
    volume: &Volume,
    from: (Ino, usize),
    to: (Ino, usize),
    len: usize,
    when: CloneWhen,
    now: Timestamp,
) -> Cloned {
    let range = CloneRange {
        from: from.0,
        from_offset: from.1 as u64,
        to: to.0,
        to_offset: to.1 as u64,
        len: len as u64,
        when,
    };
    volume.clone_range(&range, now).unwrap()
}

/// Until nothing is left of what was deleted.
pub fn settle(volume: &Volume) {
    while volume.step(Task::Settle).unwrap() == Progress::Worked {}
}

/// Blocks of data that count.
pub fn valid_blocks(volume: &Volume) -> u64 {
    let zones = volume.zones();
    let data = zones.iter().filter(|zone| zone.entry.role == Role::Data);
    data.map(|zone| u64::from(zone.entry.valid)).sum()
}

/// Packing units of data that count.
pub fn valid_units(volume: &Volume) -> u64 {
    let zones = volume.zones();
    let data = zones.iter().filter(|zone| zone.entry.role == Role::Data);
    data.map(|zone| zone.entry.pack_units().0).sum()
}

/// What is told of what snapshots hold is what is freed with them: one that is deleted, or all of them.
pub fn delete_telling_space(volume: &Volume, mut ids: Vec<SubvolumeId>) {
    let is_settled = |volume: &Volume| {
        settle(volume);
        volume.sync().unwrap();
        valid_units(volume) * PACK_UNIT as u64
    };
    let mut before = is_settled(volume);
    let (all, together) = (before, volume.snapshots().held().unwrap().together);
    while let Some(id) = ids.pop() {
        let held = volume.snapshots().held().unwrap();
        for id in ids.iter().chain([&id]) {
            let alone = held.alone.get(id).copied().unwrap_or(0);
            assert_eq!(volume.snapshots().space(*id).unwrap(), alone, "{id:?}");
        }
        let alone = held.alone.get(&id).copied().unwrap_or(0);
        assert!(alone <= held.together);
        volume.snapshots().delete(id).unwrap();
        let after = is_settled(volume);
        assert_eq!(before - after, alone, "{id:?}");
        before = after;
    }
    assert_eq!(all - before, together);
}

pub fn clone(volume: &Volume, from: (Ino, usize), to: (Ino, usize), len: usize) -> usize {
    with(volume, from, to, len, CloneWhen::Always).bytes as usize
}

/// Packs what of one file is much like what another has. Returns how many bytes that takes less.
pub fn near(volume: &Volume, from: (Ino, usize), to: (Ino, usize), len: usize) -> u64 {
    with(volume, from, to, len, CloneWhen::Near).shared
}

/// Files that are changed at random, and what they should hold.
struct Twin {
    rng: StdRng,
    files: Vec<(Ino, Vec<u8>)>,
    number: u64,
    /// Whether files are cloned too.
    clones: bool,
    /// Bytes that were.
    cloned: usize,
    /// Whether they are made near duplicates of others too.
    near: bool,
    /// Bytes that those took less.
    spared: u64,
    /// So many contents are written again and again, if any are.
    contents: Option<u64>,
}

impl Twin {
    fn step(&mut self, volume: &Volume) {
        let at = self.rng.random_range(0..self.files.len());
        if self.rng.random_range(0..4) == 0 {
            let (ino, content) = &mut self.files[at];
            return edit(volume, &mut self.rng, *ino, content);
        }
        if self.near && self.rng.random_range(0..4) == 0 {
            return self.near_into(volume, at);
        }
        if self.clones && self.rng.random_range(0..4) == 0 {
            return self.clone_into(volume, at);
        }
        let (ino, content) = &mut self.files[at];
        let place = self.rng.random_range(0..200 * BLOCK);
        let len = match self.rng.random_range(0..3) {
            0 => self.rng.random_range(1..BLOCK),
            1 => BLOCK * self.rng.random_range(1..8),
            _ => self.rng.random_range(1..100 * BLOCK),
        };
        let place = if self.rng.random() || self.contents.is_some() {
            place / BLOCK * BLOCK
        } else {
            place
        };
        match self.rng.random_range(0..20) {
            0..10 => {
                self.number = match self.contents {
                    Some(contents) => self.rng.random_range(0..contents),
                    None => self.number + 1,
                };
                let bytes = match self.rng.random_range(0..4) {
                    0 => noise(self.number, len),
                    1 => vec![self.number as u8; len],
                    _ => text(self.number, len),
                };
                if content.len() < place + len {
                    content.resize(place + len, 0);
                }
                content[place..place + len].copy_from_slice(&bytes);
                write(volume, *ino, place, &bytes);
            }
            10..12 => {
                volume.truncate(*ino, place as u64, NOW).unwrap();
                content.resize(place, 0);
            }
            12..14 => {
                volume.punch(*ino, place as u64, len as u64, NOW).unwrap();
                let end = content.len().min(place + len);
                if place < end {
                    content[place..end].fill(0);
                }
            }
            14..16 => volume.sync_file(*ino).unwrap(),
            16 => volume.sync().unwrap(),
            17 => while volume.step(Task::WriteBack).unwrap() == Progress::Worked {},
            18 => {
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

    fn clone_into(&mut self, volume: &Volume, at: usize) {
        let place = self.rng.random_range(0..100) * BLOCK;
        let len = BLOCK * self.rng.random_range(1..60);
        let other = self.rng.random_range(0..self.files.len());
        let from = self.rng.random_range(0..100) * BLOCK;
        if other == at && from.abs_diff(place) < len {
            return;
        }
        let (from_ino, to_ino) = (self.files[other].0, self.files[at].0);
        let cloned = clone(volume, (from_ino, from), (to_ino, place), len);
        self.cloned += cloned;
        let bytes = self.files[other].1[from.min(self.files[other].1.len())..].to_vec();
        let content = &mut self.files[at].1;
        if cloned > 0 {
            content.resize(content.len().max(place + cloned), 0);
            content[place..place + cloned].copy_from_slice(&bytes[..cloned]);
        }
    }

    /// Writes what another file has with a few changes, and has it packed as such.
    fn near_into(&mut self, volume: &Volume, at: usize) {
        let other = self.rng.random_range(0..self.files.len());
        let (source, content) = self.files[other].clone();
        let blocks = content.len().div_ceil(BLOCK);
        if other == at || blocks == 0 {
            return;
        }
        let from = self.rng.random_range(0..blocks) * BLOCK;
        let len = (BLOCK * self.rng.random_range(1..60)).min(content.len() - from);
        let place = match self.rng.random() {
            true => from,
            false => self.rng.random_range(0..100) * BLOCK,
        };
        let mut bytes = content[from..from + len].to_vec();
        for _ in 0..self.rng.random_range(0..6) {
            let at = self.rng.random_range(0..len);
            bytes[at] ^= self.rng.random::<u8>();
        }
        let (ino, content) = &mut self.files[at];
        if self.rng.random_range(0..8) > 0 {
            content.resize(content.len().max(place + len), 0);
            content[place..place + len].copy_from_slice(&bytes);
            write(volume, *ino, place, &bytes);
        }
        self.spared += near(volume, (source, from), (*ino, place), len);
    }

    fn check(&self, volume: &Volume) {
        for (ino, content) in &self.files {
            let found = read(volume, *ino, 0, content.len() + 1);
            assert_eq!(found.len(), content.len(), "{ino}");
            let differs = found.iter().zip(content).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{ino}");
            if let Some(data) = volume.seek(*ino, 0, Seek::Data).unwrap() {
                assert!(content[..data as usize].iter().all(|byte| *byte == 0));
            }
        }
    }
}

/// Changes some bytes of up to three blocks of a file and syncs it, as databases do.
pub fn edit(volume: &Volume, rng: &mut StdRng, ino: Ino, content: &mut [u8]) {
    if content.is_empty() {
        return;
    }
    for _ in 0..rng.random_range(1..4) {
        let at = rng.random_range(0..content.len());
        let end = content.len().min(at + rng.random_range(1..100));
        content[at..end].iter_mut().for_each(|byte| *byte ^= 0x55);
        write(volume, ino, at, &content[at..end]);
    }
    volume.sync_file(ino).unwrap();
}

/// Changes files at random, cleans and opens the volume anew, and compares what they hold and what is counted. Returns how many bytes
/// were cloned.
pub fn change_at_random(seed: u64, compression: Compression, clones: bool) -> usize {
    let options = Options {
        compression,
        deltas: [Deltas::Always, Deltas::InMemory][seed as usize % 2],
        ..Options::default()
    };
    change_as(seed, options, clones, None).0
}

/// The same with options, and with so many contents that are written again and again. Returns too how many blocks were deduplicated.
pub fn change_as(seed: u64, options: Options, clones: bool, contents: Option<u64>) -> (usize, u64) {
    let (twin, deduplicated) = change(seed, options, (clones, false), contents);
    (twin.cloned, deduplicated)
}

/// The same with near duplicates. Returns how many bytes those took less.
pub fn change_near(seed: u64, options: Options) -> u64 {
    change(seed, options, (true, true), None).0.spared
}

fn change(
    seed: u64,
    options: Options,
    (clones, near): (bool, bool),
    contents: Option<u64>,
) -> (Twin, u64) {
    let shapes = [
        SimConfig::new(60, 128).capacity(120),
        SimConfig::new(40, 512),
        large_zones(),
    ];
    let device = fresh(shapes[seed as usize % shapes.len()].clone());
    let mut rng = StdRng::seed_from_u64(seed);
    let mut volume = open_as(&device, options.clone());
    let files = (0..3)
        .map(|_| (create(&volume).unwrap(), Vec::new()))
        .collect();
    let mut twin = Twin {
        number: rng.random(),
        rng,
        files,
        clones,
        cloned: 0,
        near,
        spared: 0,
        contents,
    };
    let mut deduplicated = 0;
    for round in 0..12 {
        for _ in 0..25 {
            twin.step(&volume);
        }
        twin.check(&volume);
        volume.sync().unwrap();
        check_counts(&volume);
        twin.check(&volume);
        // Every other time without an orderly end.
        if round % 2 == 0 {
            volume.close().unwrap();
        }
        deduplicated += volume.statistics().deduplicated_blocks;
        drop(volume);
        volume = open_as(&device, options.clone());
        twin.check(&volume);
        check_counts(&volume);
    }
    (twin, deduplicated)
}

/// Damages the one block of file data on the device that holds this.
pub fn damage(device: &SimDevice, volume: &Volume, holds: impl Fn(&[u8]) -> bool) {
    let mut damaged = 0;
    for zone in volume.zones() {
        let number = zone.zone.0;
        let end = device.report(number..number + 1).unwrap()[0].write_pointer;
        for block in (1..end).filter(|_| zone.entry.role == Role::Data) {
            if holds(&device.read(zone.zone, block, 1).unwrap()) {
                assert!(device.corrupt(zone.zone, block, 7, 1));
                damaged += 1;
            }
        }
    }
    assert_eq!(damaged, 1);
}
