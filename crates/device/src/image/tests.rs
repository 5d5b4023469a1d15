//! Tests of the image.

use super::*;
use crate::BufferMut;

pub(super) fn geometry() -> ImageGeometry {
    ImageGeometry {
        zone_count: 8,
        zone_blocks: 512,
        capacity_blocks: 300,
        max_open: Some(3),
        max_active: Some(4),
    }
}

pub(super) fn filled(blocks: usize, byte: u8) -> crate::Buffer {
    let mut buffer = BufferMut::zeroed(blocks);
    buffer.fill(byte);
    buffer.freeze()
}

#[test]
fn flushed_writes_survive_reopening_and_others_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    let zone = ZoneId(2);
    {
        let device = ImageDevice::create(&path, &geometry(), &CreateOptions::default()).unwrap();
        let write = |block, byte| Command::Write {
            zone,
            block,
            data: vec![filled(3, byte), filled(2, byte + 1)],
        };
        device.run(write(0, 1)).unwrap();
        device.flush().unwrap();
        device.run(write(5, 7)).unwrap();
    }
    let device = ImageDevice::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(device.notices(), &[]);
    let info = device.report(2..3).unwrap();
    assert_eq!(
        (info[0].state, info[0].write_pointer),
        (crate::ZoneState::Closed, 5)
    );
    let read = device.read(zone, 2, 3).unwrap();
    assert_eq!(&read[..4096], &[1; 4096]);
    assert_eq!(&read[4096..], &[2; 8192]);
    assert!(matches!(
        device.read(zone, 2, 4),
        Err(DeviceError::ReadPastEnd { limit: 5, .. })
    ));
    device
        .run(Command::Reset {
            zone,
            keep_allocated: false,
        })
        .unwrap();
    drop(device);
    let device = ImageDevice::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(device.report(2..3).unwrap()[0].write_pointer, 0);
}

#[test]
fn conformance() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    crate::conformance::check(
        |shape| {
            let geometry = ImageGeometry {
                zone_count: shape.zone_count,
                zone_blocks: shape.zone_blocks,
                capacity_blocks: shape.capacity_blocks,
                max_open: shape.max_open,
                max_active: shape.max_active,
            };
            let options = CreateOptions {
                force: true,
                ..CreateOptions::default()
            };
            ImageDevice::create(&path, &geometry, &options).unwrap()
        },
        |device| {
            let path = device.path().to_owned();
            drop(device);
            let device = ImageDevice::open(path, &OpenOptions::default()).unwrap();
            assert_eq!(device.notices(), &[]);
            device
        },
    );
}
