//! Tests of the image.

mod accidents;
mod ahead;
mod cache;
mod damage;
mod errors;
mod grow;
mod kill;
mod power;
mod search;
mod twin;

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

/// A directory in memory where there is one: for tests that flush a great deal.
pub(super) fn quick_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// Blocks that tell where they belong, and in which life of the zone they were written.
pub(super) fn tagged(zone: ZoneId, block: u32, blocks: u32, life: u32) -> crate::Buffer {
    let mut buffer = BufferMut::zeroed(blocks as usize);
    for (index, bytes) in buffer.chunks_mut(crate::BLOCK_SIZE).enumerate() {
        let tag = [zone.0, block + index as u32, life].map(u32::to_le_bytes);
        for (to, from) in bytes.iter_mut().zip(tag.as_flattened().iter().cycle()) {
            *to = *from;
        }
    }
    buffer.freeze()
}

/// Enough randomness for tests, and always the same.
pub(super) struct Random(pub u64);

impl Random {
    pub(super) fn below(&mut self, limit: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(limit)) as u32
    }
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
    let dir = quick_dir();
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
