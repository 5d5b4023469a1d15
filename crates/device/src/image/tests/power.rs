//! The host loses power: of what was written since the last sync each 512-byte sector keeps any
//! version it had. Everything flushed must be there, records must be whole, and no zone may mix
//! its old life with a new one under the old write pointer.

use persimmon_sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use persimmon_format::container::Superblock;
use proptest::prelude::*;

use super::super::host::Host;
use super::super::open::How;
use super::super::table::Table;
use super::super::{ImageDevice, ImageGeometry};
use super::{filled, geometry};
use crate::{BLOCK_SIZE, Buffer, Command, ZoneId, ZoneState, ZonedDevice};

const SECTOR: usize = 512;
type Sector = [u8; SECTOR];

/// A file whose host can lose power. Versions of each sector since the last sync; the first is
/// the durable one. What is not there is zeros.
#[derive(Clone, Default)]
pub(super) struct LossyHost(Arc<Mutex<BTreeMap<u64, Vec<Sector>>>>);

impl LossyHost {
    fn put(&self, bytes: &[u8], offset: u64) {
        let mut sectors = self.0.lock();
        let mut at = 0;
        while at < bytes.len() {
            let place = offset + at as u64;
            let (number, within) = (place / SECTOR as u64, (place % SECTOR as u64) as usize);
            let versions = sectors.entry(number).or_insert_with(|| vec![[0; SECTOR]]);
            let mut sector = *versions.last().unwrap();
            let count = (SECTOR - within).min(bytes.len() - at);
            sector[within..within + count].copy_from_slice(&bytes[at..at + count]);
            versions.push(sector);
            at += count;
        }
    }

    /// The file after a power cut: `choose` picks a version out of so many.
    pub(super) fn after_power_cut(&self, mut choose: impl FnMut(usize) -> usize) -> LossyHost {
        let kept = self
            .0
            .lock()
            .iter()
            .map(|(number, versions)| (*number, vec![versions[choose(versions.len())]]))
            .collect();
        LossyHost(Arc::new(Mutex::new(kept)))
    }
}

impl Host for LossyHost {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let sectors = self.0.lock();
        for (at, byte) in into.iter_mut().enumerate() {
            let place = offset + at as u64;
            let sector = sectors.get(&(place / SECTOR as u64));
            *byte = sector.map_or(0, |versions| {
                versions.last().unwrap()[(place % SECTOR as u64) as usize]
            });
        }
        Ok(())
    }

    fn write_at(&self, data: &[Buffer], offset: u64) -> io::Result<()> {
        let mut at = offset;
        for buffer in data {
            self.put(buffer, at);
            at += buffer.len() as u64;
        }
        Ok(())
    }

    fn write_bytes_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.put(bytes, offset);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        for versions in self.0.lock().values_mut() {
            versions.drain(..versions.len() - 1);
        }
        Ok(())
    }

    fn drop_cached(&self) -> io::Result<()> {
        Ok(())
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        let range = offset / SECTOR as u64..(offset + length) / SECTOR as u64;
        for (_, versions) in self.0.lock().range_mut(range) {
            versions.push([0; SECTOR]);
        }
        Ok(())
    }

    fn overwrites_in_place(&self) -> bool {
        true
    }

    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}

type Contents = [u8; BLOCK_SIZE / SECTOR];

const ZONES: u32 = 4;
const CAPACITY: u32 = 6;

fn small() -> ImageGeometry {
    ImageGeometry {
        zone_count: ZONES,
        capacity_blocks: CAPACITY,
        max_open: None,
        max_active: None,
        ..geometry()
    }
}

fn open(host: &LossyHost) -> ImageDevice {
    let superblock = Superblock {
        geometry: small(),
        generation: 1,
        uuid: [1; 16],
        volume: [1; 16],
        data: None,
        label: String::new(),
        complete: true,
        table_seed: 77,
    };
    let path = Path::new("lossy");
    super::super::open::settle(path, host, false).unwrap();
    let how = How {
        read_only: false,
        search: false,
    };
    let device = ImageDevice::assemble(path, Box::new(host.clone()), superblock, how).unwrap();
    device.heal(&[]).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Write { zone: u32, blocks: u32 },
    Reset { zone: u32, keep_allocated: bool },
    Finish { zone: u32 },
    Flush,
    Cut { seed: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..ZONES, 1..=3u32).prop_map(|(zone, blocks)| Step::Write { zone, blocks }),
        3 => (0..ZONES, any::<bool>())
            .prop_map(|(zone, keep_allocated)| Step::Reset { zone, keep_allocated }),
        1 => (0..ZONES).prop_map(|zone| Step::Finish { zone }),
        2 => Just(Step::Flush),
        2 => any::<u64>().prop_map(|seed| Step::Cut { seed }),
    ];
    proptest::collection::vec(step, 1..60)
}

/// A zone at one moment: its life (counted in resets), state and write pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment {
    life: u32,
    full: bool,
    written: u32,
}

/// What a zone may be after a power cut: the flushed moment, or any one recorded since.
struct Expected {
    now: Moment,
    recorded: Vec<Moment>,
    /// The byte each sector of a block holds, by life and block.
    bytes: BTreeMap<(u32, u32), Contents>,
    /// All that was ever written to the zone.
    ever: BTreeSet<u8>,
}

impl Expected {
    fn check(&mut self, device: &ImageDevice, zone: ZoneId) {
        let snapshot = device.zones.lock().machine.snapshot(zone).unwrap();
        let found = Moment {
            life: snapshot.resets,
            full: snapshot.state == ZoneState::Full,
            written: snapshot.written,
        };
        assert!(
            self.recorded.contains(&found),
            "zone {zone} came back as {found:?}, expected one of {:?}",
            self.recorded
        );
        let flushed = self.recorded[0];
        for block in 0..found.written {
            let bytes = device.read(zone, block, 1).unwrap();
            let expected = self.bytes[&(found.life, block)];
            let sure = block < flushed.written && self.recorded.last().unwrap().life == found.life;
            let mut contents = Contents::default();
            for (sector, chunk) in bytes.chunks(SECTOR).enumerate() {
                let whole = chunk.iter().all(|byte| *byte == chunk[0]);
                assert!(whole, "a torn sector");
                contents[sector] = chunk[0];
            }
            if sure {
                assert_eq!(contents, expected, "flushed block {zone}:{block}");
            }
            for (found_byte, expected_byte) in contents.iter().zip(expected) {
                if block < flushed.written && found.life == flushed.life {
                    // Reset since: given back, or still there. Nothing of the new life.
                    let known = [0, expected_byte].contains(found_byte);
                    assert!(known, "mixed block {zone}:{block}");
                } else {
                    // Unflushed: missing, there, or from an earlier life.
                    let known = *found_byte == 0 || self.ever.contains(found_byte);
                    assert!(known, "foreign bytes in {zone}:{block}");
                }
            }
            self.bytes.insert((found.life, block), contents);
        }
        self.now = found;
        self.recorded = vec![found];
    }
}

fn run(steps: Vec<Step>) {
    let mut host = LossyHost::default();
    let layout = small().layout().unwrap();
    Table::write_unused(&host, &layout, ZONES, 77).unwrap();
    host.sync().unwrap();
    let mut device = open(&host);
    let mut next_byte = 0u8;
    let empty = Moment {
        life: 0,
        full: false,
        written: 0,
    };
    let fresh = || Expected {
        now: empty,
        recorded: vec![empty],
        bytes: BTreeMap::new(),
        ever: BTreeSet::new(),
    };
    let mut zones: Vec<Expected> = (0..ZONES).map(|_| fresh()).collect();
    for step in steps {
        match step {
            Step::Write { zone, blocks } => {
                let expected = &mut zones[zone as usize];
                let start = expected.now.written;
                if expected.now.full || start + blocks > CAPACITY {
                    continue;
                }
                // The first write of a life may flush before it: all that was recorded is sure.
                next_byte = next_byte % 250 + 1;
                let command = Command::Write {
                    zone: ZoneId(zone),
                    block: start,
                    data: vec![filled(blocks as usize, next_byte)],
                };
                let syncs_before = device.gate.next_generation();
                device.run(command).unwrap();
                if device.gate.next_generation() > syncs_before {
                    for expected in &mut zones {
                        expected.recorded = vec![expected.now];
                    }
                }
                let expected = &mut zones[zone as usize];
                expected.ever.insert(next_byte);
                for block in start..start + blocks {
                    expected
                        .bytes
                        .insert((expected.now.life, block), [next_byte; _]);
                }
                expected.now.written += blocks;
                expected.now.full = expected.now.written == CAPACITY;
            }
            Step::Reset {
                zone,
                keep_allocated,
            } => {
                let expected = &mut zones[zone as usize];
                let command = Command::Reset {
                    zone: ZoneId(zone),
                    keep_allocated,
                };
                device.run(command).unwrap();
                if expected.now.written > 0 || expected.now.full {
                    expected.now = Moment {
                        life: expected.now.life + 1,
                        full: false,
                        written: 0,
                    };
                    expected.recorded.push(expected.now);
                }
            }
            Step::Finish { zone } => {
                let expected = &mut zones[zone as usize];
                device.run(Command::Finish { zone: ZoneId(zone) }).unwrap();
                expected.now.full = true;
                expected.recorded.push(expected.now);
            }
            Step::Flush => {
                device.flush().unwrap();
                for expected in &mut zones {
                    expected.recorded = vec![expected.now];
                }
            }
            Step::Cut { seed } => {
                drop(device);
                let mut state = seed | 1;
                host = host.after_power_cut(|count| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    (state >> 33) as usize % count
                });
                device = open(&host);
                assert_eq!(device.notices(), &[], "records are never torn");
                for (number, expected) in zones.iter_mut().enumerate() {
                    expected.check(&device, ZoneId(number as u32));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn flushed_state_survives_power_cuts_of_the_host(steps in steps()) {
        run(steps);
    }
}
