//! Searches of images that were made to take long. Each header was compared with all others, and each superblock's zones
//! were looked at, however many superblocks there were: an image of 4 TB that anybody may hand in kept `--scan` busy
//! for years. What is looked at is counted here, for images of one size and of four times as much.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use persimmon_format::container::Superblock;
use persimmon_format::table::Role;
use persimmon_format::zone_header::{VolumeIdentity, ZoneHeader};
use persimmon_format::{DeviceId, ZoneId};

use super::super::ImageGeometry;
use super::super::find::{best_anywhere, by_zones, find};
use super::super::host::Host;
use crate::Buffer;

const MIB: u64 = 1 << 20;

/// Whose the hostile structures are.
#[derive(Clone, Copy, Debug)]
enum Owners {
    One,
    Many,
}

impl Owners {
    const BOTH: [Owners; 2] = [Owners::One, Owners::Many];

    fn uuid(self, number: u64) -> [u8; 16] {
        match self {
            Owners::One => [1; 16],
            Owners::Many => (u128::from(number) + 1).to_be_bytes(),
        }
    }
}

/// A superblock that is where its geometry puts the last copy, claiming all zones before it.
fn superblock(zone_count: u32, generation: u64, uuid: [u8; 16]) -> Superblock {
    Superblock {
        geometry: ImageGeometry {
            zone_count,
            zone_blocks: 256,
            capacity_blocks: 256,
            max_open: None,
            max_active: None,
        },
        generation,
        uuid,
        volume: uuid,
        data: None,
        label: String::new(),
        complete: true,
        table_seed: Superblock::seed_for(uuid),
    }
}

fn header(zone: u32, zone_count: u32, uuid: [u8; 16]) -> ZoneHeader {
    ZoneHeader {
        volume: VolumeIdentity {
            uuid,
            visible_uuid: uuid,
            secret: Default::default(),
            label: String::new(),
            incompatible: 0,
            read_only_compatible: 0,
            compatible: 0,
            created_seconds: 0,
            zone_count,
            zone_blocks: 256,
            metadata_zones: Default::default(),
        },
        device: DeviceId(0),
        zone: ZoneId(zone),
        role: Role::Data,
        lifetime: 0,
        sequence: 1,
        first_log_sequence: 0,
        partner: None,
    }
}

/// A host of so many MiB with a superblock in each but the first few.
struct Superblocks {
    owners: Owners,
    by_place: HashMap<u64, u32>,
    reads: AtomicU64,
}

impl Superblocks {
    fn new(owners: Owners, zones: u32) -> Superblocks {
        let place = |count: u32| {
            let layout = superblock(count, 1, [0; 16]).geometry.layout();
            layout.ok().map(|layout| (layout.end, count))
        };
        Superblocks {
            owners,
            by_place: (1..=zones).filter_map(place).collect(),
            reads: AtomicU64::new(0),
        }
    }
}

impl Host for Superblocks {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        into.fill(0);
        if let Some(count) = self.by_place.get(&offset) {
            let uuid = self.owners.uuid((*count).into());
            let generation = u64::from(*count) * 7919 % 1009;
            into.copy_from_slice(&superblock(*count, generation, uuid).encode(2).unwrap());
        }
        Ok(())
    }

    fn write_at(&self, _: &[Buffer], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn write_bytes_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn drop_cached(&self) -> io::Result<()> {
        Ok(())
    }

    fn punch(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_superblock_in_every_place_costs_a_look_at_each_zone_a_few_times() {
    for owners in Owners::BOTH {
        for zones in [1000, 4000] {
            let host = Superblocks::new(owners, zones);
            let length = (u64::from(zones) + 5) * MIB;
            let _ = find(&host, length, true);
            let reads = host.reads.load(Ordering::Relaxed);
            let places = length / MIB;
            assert!(reads >= places, "{reads} reads: not searched");
            // The search, zones of four superblocks, and what is read at both ends.
            assert!(
                reads <= 5 * places + 20,
                "{owners:?}: {reads} reads for {places}"
            );
        }
    }
}

#[test]
fn headers_are_looked_at_twice_however_they_contradict_each_other() {
    for owners in Owners::BOTH {
        for count in [1000u64, 4000] {
            // All say that they are of the same zone.
            let headers: Vec<(u64, ZoneHeader)> = (0..count)
                .map(|number| (number * MIB, header(7, 1000, owners.uuid(number))))
                .collect();
            let looks = Cell::new(0);
            let counted = headers.iter().inspect(|_| looks.set(looks.get() + 1));
            by_zones(counted.clone());
            assert!(
                looks.get() <= 2 * count,
                "{owners:?}: {} looks",
                looks.get()
            );
            looks.set(0);
            let copies =
                (1..count as u32).map(|zones| superblock(zones, 1, owners.uuid(zones.into())));
            let _ = best_anywhere(copies.collect(), counted);
            assert!(looks.get() <= count, "{owners:?}: {} looks", looks.get());
        }
    }
}

/// The bound does not cost what is there: the image's own superblock is found behind those of files that claim less.
#[test]
fn the_copy_that_zones_bear_out_is_taken() {
    let uuid = Owners::One.uuid(0);
    let real = superblock(100, 3, uuid);
    let layout = real.geometry.layout().unwrap();
    let zone = |zone: u32| {
        (
            layout.data + u64::from(zone) * layout.zone_stride,
            header(zone, 100, uuid),
        )
    };
    let headers: Vec<(u64, ZoneHeader)> = (0..50).map(zone).collect();
    let others = (1..60).map(|zones| superblock(zones, 9, Owners::Many.uuid(zones.into())));
    let copies = others.chain([real.clone()]).collect();
    let found = best_anywhere(copies, headers.iter());
    let found = found.ok().flatten().map(|found| found.superblock);
    assert_eq!(found, Some(real));
    // Where zones are apart tells how large they are.
    let found = by_zones(headers.iter()).map(|found| found.geometry.capacity_blocks);
    assert_eq!(found, Some(256));
}
