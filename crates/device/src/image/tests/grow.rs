//! Images that become larger: whole zones more, and nothing else than before, whenever the power is cut.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::super::host::Host;
use super::super::{Growth, ImageDevice, ImageGeometry, OpenOptions};
use super::power::LossyHost;
use super::{Random, filled, geometry};
use crate::{Buffer, Command, CreateOptions, DeviceError, ZoneId, ZoneState, ZonedDevice};

const BEFORE: u32 = 5;
/// Bytes of the host.
const LENGTH: u64 = 9 << 30;

fn small() -> ImageGeometry {
    ImageGeometry {
        zone_count: BEFORE,
        capacity_blocks: 6,
        max_open: None,
        max_active: None,
        ..geometry()
    }
}

/// A host that fails once it was told to write or sync so many times.
#[derive(Clone)]
struct Cutting {
    host: LossyHost,
    calls_left: Arc<AtomicU32>,
}

impl Cutting {
    fn counted(&self) -> io::Result<()> {
        let left = self.calls_left.load(Ordering::Relaxed);
        self.calls_left
            .store(left.saturating_sub(1), Ordering::Relaxed);
        if left > 0 {
            Ok(())
        } else {
            Err(io::Error::other("no power"))
        }
    }
}

impl Host for Cutting {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.host.read_at(into, offset)
    }
    fn write_at(&self, data: &[Buffer], offset: u64) -> io::Result<()> {
        self.counted()
            .and_then(|()| self.host.write_at(data, offset))
    }
    fn write_bytes_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.counted()
            .and_then(|()| self.host.write_bytes_at(bytes, offset))
    }
    fn sync(&self) -> io::Result<()> {
        self.counted().and_then(|()| self.host.sync())
    }
    fn drop_cached(&self) -> io::Result<()> {
        Ok(())
    }
    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.counted()
            .and_then(|()| self.host.punch(offset, length))
    }
    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}

fn write(device: &ImageDevice, zone: u32, block: u32, byte: u8) -> crate::Result<()> {
    let zone = ZoneId(zone);
    let data = vec![filled(1, byte)];
    device.run(Command::Write { zone, block, data }).map(drop)
}

fn open(host: impl Host + 'static) -> crate::Result<Option<ImageDevice>> {
    ImageDevice::open_on(Path::new("growing"), Box::new(host), LENGTH, false)
}

/// Zones in all states, with all their records in the tables.
fn used() -> LossyHost {
    let host = LossyHost::default();
    let path = Path::new("growing");
    let options = CreateOptions::default();
    let boxed = Box::new(host.clone());
    let device = ImageDevice::create_on(path, boxed, LENGTH, &small(), &options).unwrap();
    for (zone, blocks) in [(0, 6), (1, 2), (3, 1), (4, 4)] {
        for block in 0..blocks {
            write(&device, zone, block, 10 * zone as u8 + block as u8 + 1).unwrap();
        }
    }
    let zone = ZoneId(3);
    device.run(Command::Finish { zone }).unwrap();
    device.flush().unwrap();
    host
}

fn check(device: &ImageDevice) {
    let zones = device.report(0..BEFORE).unwrap();
    let states: Vec<(ZoneState, u32)> = zones
        .iter()
        .map(|zone| (zone.state, zone.write_pointer))
        .collect();
    assert_eq!(
        states,
        [
            (ZoneState::Full, 6),
            (ZoneState::Closed, 2),
            (ZoneState::Empty, 0),
            (ZoneState::Full, 6),
            (ZoneState::Closed, 4),
        ]
    );
    for (zone, blocks) in [(0, 6), (1, 2), (3, 1), (4, 4)] {
        for block in 0..blocks {
            let read = device.read(ZoneId(zone), block, 1).unwrap();
            assert_eq!(read[0], 10 * zone as u8 + block as u8 + 1, "{zone}:{block}");
        }
    }
    let count = device.geometry().zone_count;
    for zone in device.report(BEFORE..count).unwrap() {
        assert_eq!((zone.state, zone.write_pointer), (ZoneState::Empty, 0));
    }
}

/// At every write and every sync of a growth the power is cut, and each sector written since the last sync is old or new.
#[test]
fn a_growth_that_is_cut_off_leaves_the_image_as_it_was_or_grown() {
    cut_off(9, 8);
}

/// The same where the first table moves to the end.
#[test]
fn a_growth_beyond_the_first_table_may_be_cut_off() {
    cut_off(7_700, 3);
}

fn cut_off(all: u32, seeds: u64) {
    let host = used();
    let mut sizes = [0u64, 0];
    for calls in 0.. {
        let done = (0..seeds).map(|seed| {
            let cutting = Cutting {
                host: host.after_power_cut(|versions| versions - 1),
                calls_left: Arc::new(AtomicU32::new(u32::MAX)),
            };
            let device = open(cutting.clone()).unwrap().unwrap();
            cutting.calls_left.store(calls, Ordering::Relaxed);
            let grown = device.grown(all);
            let mut random = Random(seed + seeds * u64::from(calls));
            let choose = |versions: usize| match seed {
                0 => 0,
                1 => versions - 1,
                _ => random.below(versions as u32) as usize,
            };
            let after = cutting.host.after_power_cut(choose);
            let device = open(after.clone()).unwrap().unwrap();
            check(&device);
            let count = device.geometry().zone_count;
            assert!(count == BEFORE || count == all, "{count}");
            assert!(grown.is_err() || count == all);
            sizes[usize::from(count == all)] += 1;
            // What was interrupted can be done again, and the new zones be written.
            let device = if count == BEFORE {
                device.grown(all).unwrap()
            } else {
                device
            };
            check(&device);
            for zone in [BEFORE, all - 1] {
                write(&device, zone, 0, zone as u8).unwrap();
            }
            device.flush().unwrap();
            drop(device);
            let device = open(after.after_power_cut(|_| 0)).unwrap().unwrap();
            assert!(device.notices().is_empty(), "{:?}", device.notices());
            for zone in [BEFORE, all - 1] {
                assert_eq!(device.read(ZoneId(zone), 0, 1).unwrap()[0], zone as u8);
            }
            grown.is_ok()
        });
        if done.collect::<Vec<_>>().iter().all(|done| *done) {
            break;
        }
    }
    assert!(sizes.iter().all(|count| *count > seeds), "{sizes:?}");
}

fn create(path: &Path, zone_count: u32) {
    let shape = ImageGeometry {
        zone_count,
        ..geometry()
    };
    let device = ImageDevice::create(path, &shape, &CreateOptions::default()).unwrap();
    write(&device, 1, 0, 7).unwrap();
    device.flush().unwrap();
}

fn message(result: crate::Result<Growth>) -> String {
    match result {
        Err(DeviceError::Open { message, .. }) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_image_file_takes_as_many_zones_as_fit_and_no_fewer_than_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    let options = OpenOptions::default();
    create(&path, 5);
    let before = std::fs::read(&path).unwrap();
    let grow = |size| ImageDevice::grow(&path, size, &options);
    let length = || std::fs::metadata(&path).unwrap().len();
    // As it is, a little larger than it is, and smaller.
    let total = length();
    for size in [None, Some(total), Some(total + (1 << 20) - 1)] {
        let growth = grow(size).unwrap();
        assert_eq!((growth.zones, growth.zones_before), (5, 5), "{size:?}");
    }
    assert!(message(grow(Some(total - 1))).contains("cannot be made smaller"));
    for size in [1 << 44, 1 << 52, u64::MAX] {
        let message = message(grow(Some(size)));
        assert!(message.contains("an image can have 4194304"), "{message}");
    }
    assert!(std::fs::read(&path).unwrap() == before);
    // The file was made longer already.
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(total + (6 << 20))
        .unwrap();
    let growth = grow(None).unwrap();
    assert_eq!((growth.zones, growth.zones_before), (8, 5));
    let planned = ImageDevice::growth(&path, Some(96 << 20), &options).unwrap();
    assert_eq!(planned, grow(Some(96 << 20)).unwrap());
    assert!(planned.zones > 40 && planned.bytes <= 96 << 20);
    assert_eq!(length(), planned.bytes);
    let device = ImageDevice::open(&path, &options).unwrap();
    assert_eq!(device.geometry().zone_count, planned.zones);
    assert!(device.notices().is_empty());
    assert_eq!(device.read(ZoneId(1), 0, 1).unwrap()[0], 7);
    write(&device, planned.zones - 1, 0, 9).unwrap();
    device.flush().unwrap();
    drop(device);
    // The last copy of the superblock is found where it is now.
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&vec![0; 64 << 10], 0).unwrap();
    let device = ImageDevice::open(&path, &options).unwrap();
    assert_eq!(device.geometry().zone_count, planned.zones);
    assert_eq!(device.read(ZoneId(planned.zones - 1), 0, 1).unwrap()[0], 9);
}

/// One that was made small has room for the records of 7,680 zones in front of the first.
#[test]
fn an_image_grows_beyond_the_room_for_its_first_table() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    let options = OpenOptions::default();
    create(&path, 5);
    let open = || ImageDevice::open(&path, &options).unwrap();
    for (zones, tables_at_end) in [(7_680, false), (7_681, true), (20_000, true)] {
        let device = open().grown(zones).unwrap();
        let layout = device.layout;
        assert_eq!(layout.tables[0] > layout.end, tables_at_end);
        assert!(layout.tables[1] > layout.end && layout.data == 1 << 20);
        write(&device, zones - 1, 0, 9).unwrap();
        device.flush().unwrap();
        drop(device);
        // Found from the start, and from the end.
        for wiped in [false, true] {
            if wiped {
                let file = File::options().write(true).open(&path).unwrap();
                file.write_all_at(&vec![0; 64 << 10], 0).unwrap();
            }
            let device = open();
            assert_eq!(device.geometry().zone_count, zones);
            assert_eq!(device.notices().is_empty(), !wiped);
            assert_eq!(device.read(ZoneId(1), 0, 1).unwrap()[0], 7);
            assert_eq!(device.read(ZoneId(zones - 1), 0, 1).unwrap()[0], 9);
        }
    }
    // Neither table is written over where it is.
    let refused = open().grown(20_001).err().unwrap().to_string();
    assert!(refused.contains("by 3 zones at least"), "{refused}");
    assert!(open().notices().is_empty());
    assert_eq!(open().grown(20_003).unwrap().geometry.zone_count, 20_003);
}

/// The tables of the largest images are longer than a zone, so that the new one overlaps the old one.
#[test]
fn an_image_whose_tables_are_longer_than_a_zone_grows_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    create(&path, 20_000);
    let device = ImageDevice::open(&path, &OpenOptions::default()).unwrap();
    write(&device, 19_999, 0, 8).unwrap();
    device.flush().unwrap();
    drop(device.grown(20_001).unwrap());
    let device = ImageDevice::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(device.geometry().zone_count, 20_001);
    assert!(device.notices().is_empty());
    let zones = device.report(19_998..20_001).unwrap();
    let written: Vec<u32> = zones.iter().map(|zone| zone.write_pointer).collect();
    assert_eq!(written, [0, 1, 0]);
}
