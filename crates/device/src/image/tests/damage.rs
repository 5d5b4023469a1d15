//! One flipped byte anywhere before the zone data: harmless, or told.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use persimmon_format::container::CELL_BYTES;

use super::*;
use crate::ZoneState;

/// An image with zones of every history, and its layout.
fn make(path: &Path) -> Layout {
    let options = CreateOptions {
        label: "damage".into(),
        uuid: uuid::Uuid::from_u128(77),
        ..CreateOptions::default()
    };
    let device = ImageDevice::create(path, &geometry(), &options).unwrap();
    let write = |zone, block, blocks| {
        device
            .run(Command::Write {
                zone: ZoneId(zone),
                block,
                data: vec![tagged(ZoneId(zone), block, blocks, 0)],
            })
            .unwrap();
    };
    // Zone 0: unused; 1 to 3: so many records; 4: finished; 5: reset; 6: full.
    for zone in 1..=3 {
        for block in 0..zone {
            write(zone, block, 1);
            device.flush().unwrap();
        }
    }
    write(4, 0, 5);
    device.run(Command::Finish { zone: ZoneId(4) }).unwrap();
    write(5, 0, 5);
    device.flush().unwrap();
    device
        .run(Command::Reset {
            zone: ZoneId(5),
            keep_allocated: false,
        })
        .unwrap();
    write(6, 0, geometry().capacity_blocks);
    device.flush().unwrap();
    device.layout
}

fn reading() -> OpenOptions {
    OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    }
}

fn flip(file: &File, at: u64, mask: u8) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ mask], at).unwrap();
}

fn zones(device: &ImageDevice) -> Vec<ZoneInfo> {
    device.report(0..geometry().zone_count).unwrap()
}

#[test]
fn any_flipped_byte_of_superblocks_and_table_is_harmless_or_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    let layout = make(&path);
    let good = zones(&ImageDevice::open(&path, &reading()).unwrap());
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let block = crate::BLOCK_SIZE as u64;
    let cells = u64::from(geometry().zone_count) * CELL_BYTES as u64;
    let copies = [0, 1, 2].map(|copy| layout.copy(copy)..layout.copy(copy) + block);
    let tables = layout.tables.map(|table| table..table + cells);
    for at in copies.iter().chain(&tables).cloned().flatten() {
        for mask in [1, 0x80, 0xff] {
            flip(&file, at, mask);
            let device = ImageDevice::open(&path, &reading());
            let device = device.unwrap_or_else(|error| panic!("byte {at}: {error}"));
            assert_eq!(zones(&device), good, "byte {at}");
            assert_eq!(device.label(), "damage", "byte {at}");
            let copy = (0..).zip(&copies).find(|(_, copy)| copy.contains(&at));
            let table = tables.iter().find(|table| table.contains(&at));
            let notice = match (copy, table) {
                (Some((copy, _)), _) => Notice::SuperblockCopy { copy },
                (None, table) => Notice::ZoneRecord {
                    zone: ZoneId(((at - table.unwrap().start) / CELL_BYTES as u64) as u32),
                },
            };
            assert_eq!(device.notices(), &[notice], "byte {at}");
            let identity = crate::probe::identity(&file).unwrap().unwrap();
            assert_eq!(identity.label, "damage", "byte {at}");
            drop(device);
            flip(&file, at, mask);
        }
    }
    // The rest means nothing.
    let mut padding: Vec<u64> = (block..layout.data).step_by(4099).collect();
    padding.extend((layout.end..layout.total).step_by(4099));
    padding.retain(|at| {
        let is_in = |range: &std::ops::Range<u64>| range.contains(at);
        !copies.iter().chain(&tables).any(is_in)
    });
    for at in padding {
        flip(&file, at, 0xff);
        let device = ImageDevice::open(&path, &reading()).unwrap();
        assert_eq!(
            (device.notices().len(), zones(&device)),
            (0, good.clone()),
            "byte {at}"
        );
        flip(&file, at, 0xff);
    }
}

#[test]
fn opening_for_writing_repairs_superblocks_and_cells() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    let layout = make(&path);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    for (copy, at) in [
        (0, 0),
        (0, 8),
        (0, 130),
        (0, 4090),
        (1, 0),
        (1, 50),
        (2, 0),
        (2, 4095),
    ] {
        flip(&file, layout.copy(copy) + at, 0x10);
        let device = ImageDevice::open(&path, &OpenOptions::default()).unwrap();
        assert_eq!(device.notices(), &[Notice::SuperblockCopy { copy }]);
        drop(device);
        let device = ImageDevice::open(&path, &OpenOptions::default()).unwrap();
        assert_eq!(device.notices(), &[]);
    }
    // A damaged copy of a record is repaired too.
    let zone = ZoneId(3);
    flip(&file, layout.tables[0] + 3 * CELL_BYTES as u64 + 5, 0x10);
    let device = ImageDevice::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(device.notices(), &[Notice::ZoneRecord { zone }]);
    let data = vec![tagged(zone, 3, 1, 0)];
    let block = 3;
    device.run(Command::Write { zone, block, data }).unwrap();
    device.flush().unwrap();
    drop(device);
    let device = ImageDevice::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(device.notices(), &[]);
    assert_eq!(device.report(3..4).unwrap()[0].write_pointer, 4);
    assert!(*device.read(zone, 0, 4).unwrap() == *tagged(zone, 0, 4, 0));
}

#[test]
fn a_zone_whose_record_is_lost_can_be_read_and_reset() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    let layout = make(&path);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let zone = ZoneId(3);
    let cell = layout.tables[0] + 3 * CELL_BYTES as u64;
    file.write_all_at(&[0xee; CELL_BYTES], cell).unwrap();
    let device = ImageDevice::open(&path, &OpenOptions::default()).unwrap();
    let lost = Notice::TableRecords { table: 1, zones: 1 };
    assert_eq!(device.notices(), &[lost, Notice::ZoneRecordLost { zone }]);
    assert_eq!(device.report(3..4).unwrap()[0].state, ZoneState::Full);
    assert!(*device.read(zone, 0, 3).unwrap() == *tagged(zone, 0, 3, 0));
    assert!(device.read(zone, 3, 200).is_ok());
    device
        .run(Command::Reset {
            zone,
            keep_allocated: false,
        })
        .unwrap();
    drop(device);
    let device = ImageDevice::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(device.notices(), &[]);
    assert_eq!(device.report(3..4).unwrap()[0].state, ZoneState::Empty);
}

#[test]
fn all_superblocks_damaged_is_an_error_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    let layout = make(&path);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    for copy in 0..3 {
        flip(&file, layout.copy(copy) + 60, 1);
    }
    let error = ImageDevice::open(&path, &OpenOptions::default()).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("damaged")
            && message.contains("persimmon recover")
            && message.contains("do not run mkfs"),
        "{message}"
    );
    assert!(message.contains(path.to_str().unwrap()), "{message}");
}

#[test]
fn a_read_only_device_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    make(&path);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    flip(&file, 60, 1);
    let before = fs::read(&path).unwrap();
    {
        let device = ImageDevice::open(&path, &reading()).unwrap();
        let zone = ZoneId(1);
        let data = vec![filled(1, 1)];
        for command in [
            Command::Write {
                zone,
                block: 1,
                data: data.clone(),
            },
            Command::Append { zone, data },
            Command::Reset {
                zone,
                keep_allocated: false,
            },
            Command::Finish { zone },
            Command::Open { zone },
            Command::Close { zone },
        ] {
            assert!(matches!(device.run(command), Err(DeviceError::ReadOnly)));
        }
        let identity = device.set_identity(uuid::Uuid::nil(), "x");
        assert!(matches!(identity, Err(DeviceError::ReadOnly)));
        device.flush().unwrap();
    }
    assert!(fs::read(&path).unwrap() == before);
}
