//! What `barrier=off` gives up, and what it does not.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use std::path::Path;
use std::sync::Arc;

use crate::common::{NOW, create, noise};
use persimmon_device::image::ImageGeometry;
use persimmon_device::{BLOCK_SIZE, CreateOptions, ImageDevice, OpenOptions};
use persimmon_engine::{Barrier, FormatOptions, Options, Volume};
use persimmon_sim::{SimConfig, SimDevice};

const BYTES: usize = 3 << 20;

fn unflushed() -> Options {
    Options {
        barrier: Barrier::Off,
        ..Options::default()
    }
}

fn format() -> FormatOptions {
    FormatOptions {
        now: NOW,
        ..FormatOptions::default()
    }
}

fn reopened(path: &Path) -> Volume {
    let device = ImageDevice::open(path, &OpenOptions::default()).unwrap();
    Volume::open(Arc::new(device), unflushed()).unwrap().0
}

/// An image has its write pointers in memory until a flush writes them, and with `barrier=off` nobody flushed: after
/// an unmount a new volume was empty, and an older one damaged, though only losing power may cost what was synced.
#[test]
fn without_barriers_an_image_loses_nothing_with_the_process() {
    for closes in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.img");
        let geometry = ImageGeometry {
            zone_count: 40,
            zone_blocks: 256,
            capacity_blocks: 256,
            max_open: None,
            max_active: None,
        };
        let device = ImageDevice::create(&path, &geometry, &CreateOptions::default()).unwrap();
        Volume::format(Arc::new(device), &format()).unwrap();
        let volume = reopened(&path);
        let ino = create(&volume).unwrap();
        volume.write(ino, 0, &noise(1, BYTES), NOW).unwrap();
        volume.sync().unwrap();
        if closes {
            volume.close().unwrap();
        }
        drop(volume);
        let volume = reopened(&path);
        let mut read = vec![0; BYTES];
        assert_eq!(volume.read(ino, 0, &mut read).unwrap(), BYTES);
        assert!(read == noise(1, BYTES));
    }
}

/// The end of a volume is the moment to have the disk flushed, for whoever switches the machine off next.
#[test]
fn a_volume_is_flushed_when_it_is_closed() {
    let config = SimConfig::new(40, 128).volatile_cache();
    let device = Arc::new(SimDevice::new(config));
    Volume::format(device.clone(), &format()).unwrap();
    let volume = Volume::open(device.clone(), unflushed()).unwrap().0;
    let flushes = || device.counters().flushes;
    let before = flushes();
    let ino = create(&volume).unwrap();
    volume.write(ino, 0, &noise(1, BLOCK_SIZE), NOW).unwrap();
    volume.sync().unwrap();
    assert_eq!(flushes(), before);
    volume.close().unwrap();
    assert_eq!(flushes(), before + 1);
}
