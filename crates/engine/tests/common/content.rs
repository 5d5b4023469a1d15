//! Files of compressible content on a volume, and whether everything is counted as it is.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use persimmon_engine::{Options, Volume};
use persimmon_format::extent::Extent;
use persimmon_format::inode::SHARED;
use persimmon_format::packed::{FrameTally, PackUnits};
use persimmon_format::references::References;
use persimmon_format::table::Role;
use persimmon_format::{Compression, Ino, Key, KeyKind, ZoneId};
use persimmon_sim::{SimConfig, SimDevice};

use super::NOW;

pub fn open(device: &Arc<SimDevice>, compression: Compression) -> Volume {
    let options = Options {
        compression,
        staging_bytes_max: 1 << 20,
        ..Options::default()
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
        .walk_while(.., pick, |found| {
            all.push(found);
            ControlFlow::Continue(())
        })
        .unwrap();
    all
}

/// Extents of all files.
pub fn extents(volume: &Volume) -> Vec<(Ino, u64, Extent)> {
    items(volume, |key, value| {
        (key.kind == KeyKind::EXTENT).then(|| (key.ino, key.item, Extent::decode(value).unwrap()))
    })
}

/// What zones, inodes and the store of shared blocks count is what the extents are.
pub fn check_counts(volume: &Volume) {
    let extents = extents(volume);
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
    let mut zones: BTreeMap<ZoneId, PackUnits> = BTreeMap::new();
    let mut sectors: BTreeMap<Ino, u64> = BTreeMap::new();
    let mut named: BTreeMap<u64, u32> = BTreeMap::new();
    let mut stored: BTreeMap<u64, u32> = BTreeMap::new();
    for (ino, block, extent) in extents {
        let (units, share) = match &extent {
            Extent::Packed(packed) => {
                let stored = tally.add(ino, block, packed);
                (stored.units, stored.sectors)
            }
            Extent::Frame { crcs, .. } => {
                (PackUnits::of_blocks(crcs.len() as u64), extent.sectors())
            }
            Extent::Shared { at, blocks } => {
                for block in *at..*at + u64::from(*blocks) {
                    *named.entry(block).or_default() += 1;
                }
                (PackUnits::ZERO, extent.sectors())
            }
            _ => (PackUnits::ZERO, extent.sectors()),
        };
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
    for (ino, sectors) in sectors {
        assert_eq!(volume.attr(ino).unwrap().unwrap().sectors, sectors, "{ino}");
    }
}
