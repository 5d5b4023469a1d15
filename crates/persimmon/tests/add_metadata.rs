//! A volume that gets a device for metadata, interrupted between the steps of that: it opens on one device, or on both, and the next
//! try goes on. Each step by itself is interrupted in tests of labels and of growth.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure ends the test")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use persimmon::{AddMetadata, Create, Filesystem, Options};
use persimmon_device::image::ImageGeometry;
use persimmon_device::{CreateOptions, Drive, OpenOptions, Pair, Withheld, ZonedDevice, pair};
use persimmon_engine::{Alteration, Options as EngineOptions, Volume};
use uuid::Uuid;

const CONTENT: &[u8] = &[7; 300_000];

fn made(dir: &Path) -> PathBuf {
    let path = dir.join("data");
    Filesystem::create(&path, &Create::sized(48 << 20)).unwrap();
    let fs = Filesystem::open(&path, &Options::default()).unwrap();
    for name in ["a", "b", "c"] {
        fs.write(name, CONTENT).unwrap();
    }
    fs.close().unwrap();
    path
}

fn check(name: &Path) {
    let fs = Filesystem::open(name, &Options::default()).unwrap();
    for name in ["a", "b", "c"] {
        assert!(fs.read(name).unwrap() == CONTENT);
    }
    fs.close().unwrap();
}

/// The steps before the growth, as far as this one.
fn interrupted(data: &Path, metadata: &Path, steps: u32) {
    let options = OpenOptions::default();
    let device = Arc::new(Drive::open(data, &options).unwrap());
    let (volume, _) = Volume::open(device.clone(), EngineOptions::default()).unwrap();
    let identity = volume.identity().clone();
    let geometry = device.geometry().clone();
    drop((volume, device));
    let uuid = Uuid::from_bytes(identity.uuid);
    if steps >= 1 {
        let shape = ImageGeometry {
            zone_count: 27,
            zone_blocks: 256,
            capacity_blocks: 256,
            max_open: None,
            max_active: None,
        };
        let options = CreateOptions::default();
        Pair::make_metadata((metadata, &shape), (data, &geometry), (uuid, ""), &options).unwrap();
    }
    if steps >= 2 {
        let last = identity.zone_count - 2..identity.zone_count;
        let device = Arc::new(Drive::open(data, &options).unwrap());
        let device = Withheld::of(device, last.clone());
        let (volume, _) = Volume::open(Arc::new(device), EngineOptions::default()).unwrap();
        Alteration::of(&volume).move_all(&last).unwrap();
    }
    if steps >= 3 {
        Pair::join(metadata, data, uuid, &options).unwrap();
    }
}

#[test]
fn a_volume_opens_on_one_device_or_on_both_between_any_two_steps() {
    for steps in 0..=3 {
        let dir = tempfile::tempdir().unwrap();
        let (data, metadata) = (made(dir.path()), dir.path().join("metadata"));
        interrupted(&data, &metadata, steps);
        let both = pair::uri(&metadata, &data);
        if steps < 3 {
            check(&data);
            assert!(Filesystem::open(&both, &Options::default()).is_err());
        } else {
            check(&both);
            let refused = Filesystem::open(&data, &Options::default()).err().unwrap();
            assert!(refused.to_string().contains("name both"), "{refused}");
        }
        let growth = Filesystem::add_metadata(&data, &metadata, &AddMetadata::default()).unwrap();
        assert!(!growth.is_none(), "{steps}");
        check(&both);
        let again = Filesystem::add_metadata(&data, &metadata, &AddMetadata::default()).unwrap();
        assert!(again.is_none());
    }
}
