//! One flipped byte anywhere before the zone data: harmless, or told.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use persimmon_format::container::{CELL_BYTES, COPIES, SECOND_COPY};

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
fn any_flipped_byte_of_superblocks_and_tables_is_told_and_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    let layout = make(&path);
    let good = zones(&ImageDevice::open(&path, &reading()).unwrap());
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let block = crate::BLOCK_SIZE as u64;
    let cells = u64::from(geometry().zone_count) * CELL_BYTES as u64;
    let copies = (0..COPIES).map(|copy| (layout.copy(copy)..layout.copy(copy) + block, Some(copy)));
    let tables = layout.tables.map(|table| (table..table + cells, None));
    for (range, copy) in copies.chain(tables) {
        for (at, mask) in range
            .clone()
            .flat_map(|at| [1, 0x80, 0xff].map(|mask| (at, mask)))
        {
            flip(&file, at, mask);
            let device = ImageDevice::open(&path, &reading());
            let device = device.unwrap_or_else(|error| panic!("byte {at}: {error}"));
            assert_eq!(zones(&device), good, "byte {at}");
            assert_eq!(device.label(), "damage", "byte {at}");
            let expected = match copy {
                Some(copy) => Notice::SuperblockCopy { copy },
                None => Notice::ZoneRecord {
                    zone: ZoneId(((at - range.start) / CELL_BYTES as u64) as u32),
                },
            };
            assert_eq!(device.notices(), &[expected], "byte {at}");
            let identity = crate::probe::identity(&file).unwrap();
            assert!(identity.is_some_and(|id| id.label == "damage"), "byte {at}");
            drop(device);
            flip(&file, at, mask);
        }
    }
    // The padding means nothing.
    let [first, second] = layout.tables;
    let padding = [
        block..SECOND_COPY,
        SECOND_COPY + block..first,
        first + cells..layout.data,
        second + cells..layout.total,
    ];
    for at in padding.into_iter().flat_map(|range| range.step_by(4099)) {
        flip(&file, at, 0xff);
        let device = ImageDevice::open(&path, &reading()).unwrap();
        assert_eq!(
            (device.notices().len(), zones(&device)),
            (0, good.clone()),
            "byte {at}"
        );
    }
}

/// Once the first sector was gone, the image was none; once a partition table lay over the table, every write
/// pointer was zero, and nothing brought the data back.
#[test]
fn what_overwrites_the_start_or_the_end_loses_nothing() {
    let dir = quick_dir();
    let path = dir.path().join("a.img");
    let layout = make(&path);
    let intact = fs::read(&path).unwrap();
    let good = zones(&ImageDevice::open(&path, &reading()).unwrap());
    let data = ImageDevice::open(&path, &reading()).unwrap();
    let content: Vec<_> = [1, 2, 3, 4, 6]
        .map(|zone| {
            (
                zone,
                data.read(ZoneId(zone), 0, good[zone as usize].write_pointer.min(5))
                    .unwrap(),
            )
        })
        .into_iter()
        .collect();
    drop(data);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let mut accidents: Vec<(String, u64, Vec<u8>)> = Vec::new();
    for size in [512, 4096, 64 << 10, 1 << 20] {
        for at in (0..layout.data).step_by(size) {
            accidents.push((format!("{size} zeros at {at}"), at, vec![0; size]));
        }
        let at = layout.total - size as u64;
        accidents.push((format!("{size} zeros at the end"), at, vec![0; size]));
    }
    let gpt = vec![0x5a; 34 * 512];
    accidents.push(("a GPT at the start".into(), 0, gpt.clone()));
    accidents.push((
        "a GPT at the end".into(),
        layout.total - 33 * 512,
        gpt[..33 * 512].to_vec(),
    ));
    accidents.push(("an MBR".into(), 0, vec![0x55; 512]));
    for (name, at, bytes) in accidents {
        file.write_all_at(&bytes, at).unwrap();
        let device = ImageDevice::open(&path, &reading());
        let device = device.unwrap_or_else(|error| panic!("{name}: {error}"));
        // A zone in use whose write pointer is lost counts as full: nothing of it is out of reach.
        for (found, good) in zones(&device).iter().zip(&good) {
            assert!(
                found == good || good.state == ZoneState::Closed && found.state == ZoneState::Full,
                "{name}"
            );
        }
        for (zone, content) in &content {
            assert!(
                *device.read(ZoneId(*zone), 0, content.blocks()).unwrap() == **content,
                "{name}"
            );
        }
        drop(device);
        // Opened for writing it is whole again: nothing is told the next time.
        let device = ImageDevice::open(&path, &OpenOptions::default()).unwrap();
        drop(device);
        let device = ImageDevice::open(&path, &reading()).unwrap();
        assert_eq!(device.notices(), &[], "{name}");
        drop(device);
        file.write_all_at(&intact, 0).unwrap();
    }
    // Cut off, as far as the zones reach, or copied to a larger device.
    for length in [
        layout.total - 512,
        layout.tables[1] + 100,
        layout.end,
        layout.total + (7 << 20) + 512,
    ] {
        file.set_len(length).unwrap();
        let device = ImageDevice::open(&path, &reading()).unwrap();
        assert_eq!(zones(&device), good, "{length} bytes");
        drop(device);
        drop(ImageDevice::open(&path, &OpenOptions::default()).unwrap());
        let device = ImageDevice::open(&path, &reading()).unwrap();
        assert_eq!(
            (device.notices(), zones(&device)),
            (&[][..], good.clone()),
            "{length} bytes"
        );
        drop(device);
        file.write_all_at(&intact, 0).unwrap();
        file.set_len(layout.total).unwrap();
    }
    file.set_len(layout.end - 1).unwrap();
    let cut = ImageDevice::open(&path, &reading())
        .unwrap_err()
        .to_string();
    assert!(
        cut.contains("truncated") && cut.contains("recover"),
        "{cut}"
    );
}

#[test]
fn a_scan_takes_no_write_pointer_for_granted() {
    let dir = quick_dir();
    let path = dir.path().join("a.img");
    let layout = make(&path);
    let scan = OpenOptions {
        scan: true,
        ..reading()
    };
    let device = ImageDevice::open(&path, &scan).unwrap();
    assert!(
        zones(&device)
            .iter()
            .all(|zone| zone.state == ZoneState::Full)
    );
    assert!(*device.read(ZoneId(3), 0, 3).unwrap() == *tagged(ZoneId(3), 0, 3, 0));
    drop(device);
    // Everything but the zones is gone. They hold nothing of a volume here, so that no shape can be told.
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.write_all_at(&vec![0; layout.data as usize], 0)
        .unwrap();
    file.set_len(layout.end).unwrap();
    let unscanned = ImageDevice::open(&path, &reading())
        .unwrap_err()
        .to_string();
    assert!(unscanned.contains("recover --scan"), "{unscanned}");
    let scanned = ImageDevice::open(&path, &scan).unwrap_err().to_string();
    assert!(scanned.contains("nothing of one was found"), "{scanned}");
}

#[test]
fn opening_for_writing_repairs_superblocks_and_cells() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    let layout = make(&path);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    for (copy, within) in [
        (0, 0),
        (0, 8),
        (0, 130),
        (0, 4090),
        (1, 0),
        (1, 50),
        (2, 0),
        (2, 60),
    ] {
        flip(&file, layout.copy(copy) + within, 0x10);
        let device = ImageDevice::open(&path, &OpenOptions::default()).unwrap();
        assert_eq!(device.notices(), &[Notice::SuperblockCopy { copy }]);
        drop(device);
        let device = ImageDevice::open(&path, &OpenOptions::default()).unwrap();
        assert_eq!(device.notices(), &[]);
    }
    let zone = ZoneId(3);
    for table in layout.tables {
        flip(&file, table + 3 * CELL_BYTES as u64 + 5, 0x10);
        let device = ImageDevice::open(&path, &OpenOptions::default()).unwrap();
        assert_eq!(device.notices(), &[Notice::ZoneRecord { zone }]);
        drop(device);
    }
    let device = ImageDevice::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(device.notices(), &[]);
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
    assert_eq!(device.notices(), &[Notice::ZoneRecordLost { zone }]);
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
    for copy in 0..COPIES {
        flip(&file, layout.copy(copy) + 60, 1);
    }
    let error = ImageDevice::open(&path, &OpenOptions::default()).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("damaged")
            && message.contains("recover --scan")
            && message.contains("do not run mkfs"),
        "{message}"
    );
    assert!(!message.contains("backup"), "{message}");
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
