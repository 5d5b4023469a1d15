//! A volume that gets a device for metadata, interrupted between the steps of that: it opens on one device, or on both, and the next
//! try goes on. Each step by itself is interrupted in tests of labels and of growth.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure ends the test")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use persimmon::{AddMetadata, Compression, Create, Filesystem, Grow, Options};
use persimmon_device::image::ImageGeometry;
use persimmon_device::{
    CreateOptions, DeviceError, Drive, OpenOptions, Pair, PairError, Withheld, ZonedDevice, pair,
};
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
        let device = Drive::open(data, &options).unwrap();
        Pair::join(metadata, &device, uuid, &options).unwrap();
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

/// Where the reserve is more than a volume needs for itself, its room becomes less by the zones that are given up for the label. That was
/// refused, so no volume of 16 GiB and more could get a device for metadata.
#[test]
fn a_volume_with_a_large_reserve_gets_it() {
    let dir = tempfile::tempdir().unwrap();
    let (data, metadata) = (dir.path().join("data"), dir.path().join("metadata"));
    let mut create = Create::sized(16 << 30);
    Filesystem::create(&data, &create).unwrap();
    let growth = Filesystem::add_metadata(&data, &metadata, &AddMetadata::default()).unwrap();
    let zone_blocks = (64 << 20) / 4096;
    assert!(growth.user_blocks < growth.user_blocks_before);
    assert!(growth.user_blocks + 2 * zone_blocks >= growth.user_blocks_before);

    // A full one keeps what it has, and takes no more until something is removed.
    let (data, metadata) = (dir.path().join("full"), dir.path().join("its metadata"));
    create = Create::sized(64 << 20);
    create.reserve_basis_points = Some(4000);
    create.compression = Some(Compression::None);
    Filesystem::create(&data, &create).unwrap();
    let fs = Filesystem::open(&data, &Options::default()).unwrap();
    let mut names = Vec::new();
    loop {
        let name = format!("{}", names.len());
        if fs.write(&name, CONTENT.repeat(2)).is_err() || fs.sync().is_err() {
            break;
        }
        names.push(name);
    }
    fs.close().unwrap();
    Filesystem::add_metadata(&data, &metadata, &AddMetadata::default()).unwrap();
    let fs = Filesystem::open(pair::uri(&metadata, &data), &Options::default()).unwrap();
    for name in &names {
        assert!(fs.read(name).unwrap() == CONTENT.repeat(2));
    }
    for name in &names[..4] {
        fs.remove_file(name).unwrap();
    }
    fs.write("again", CONTENT).unwrap();
    fs.close().unwrap();
}

/// The label went into the last zones of a device that was larger than the other one knew: of two labels that overlap neither one device
/// nor both can be opened.
/// One that was killed between making the image and its label left an image that the next try refused to overwrite, though nothing was ever
/// written in it. One with a volume is refused.
#[test]
fn an_image_without_a_label_in_which_nothing_was_written_is_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let (data, metadata) = (made(dir.path()), dir.path().join("metadata"));
    let shape = ImageGeometry {
        zone_count: 32,
        zone_blocks: 256,
        capacity_blocks: 256,
        max_open: None,
        max_active: None,
    };
    let options = CreateOptions::default();
    drop(Drive::create(&metadata, &shape, &options).unwrap());
    Filesystem::add_metadata(&data, &metadata, &AddMetadata::default()).unwrap();
    check(&pair::uri(&metadata, &data));

    let dir = tempfile::tempdir().unwrap();
    let (data, other) = (made(dir.path()), dir.path().join("other"));
    Filesystem::create(&other, &Create::sized(48 << 20)).unwrap();
    let refused = Filesystem::add_metadata(&data, &other, &AddMetadata::default());
    assert!(refused.unwrap_err().to_string().contains("--force"));
    check(&data);
}

#[test]
fn a_device_that_grew_meanwhile_gets_no_label() {
    let dir = tempfile::tempdir().unwrap();
    let (data, metadata) = (made(dir.path()), dir.path().join("metadata"));
    interrupted(&data, &metadata, 2);
    let grow = Grow {
        size_bytes: Some(64 << 20),
        ..Grow::default()
    };
    assert!(!Filesystem::grow(&data, &grow).unwrap().is_none());
    let options = OpenOptions::default();
    let device = Drive::open(&data, &options).unwrap();
    let (volume, _) = Volume::open(Arc::new(device), EngineOptions::default()).unwrap();
    let uuid = Uuid::from_bytes(volume.identity().uuid);
    drop(volume);
    let device = Drive::open(&data, &options).unwrap();
    let refused = Pair::join(&metadata, &device, uuid, &options).unwrap_err();
    assert!(
        matches!(refused, DeviceError::Pair(PairError::MadeBefore { .. })),
        "{refused}"
    );
    drop(device);
    check(&data);
    let add = AddMetadata {
        force: true,
        ..AddMetadata::default()
    };
    Filesystem::add_metadata(&data, &metadata, &add).unwrap();
    check(&pair::uri(&metadata, &data));
}

/// Between two steps the device was let go of: another process could use the zones that were given up, make the device larger, or leave
/// what nobody would look for again.
#[test]
fn nobody_opens_the_device_between_two_steps() {
    let dir = tempfile::tempdir().unwrap();
    let (data, metadata) = (made(dir.path()), dir.path().join("metadata"));
    let is_over = AtomicBool::new(false);
    let options = OpenOptions {
        wait_for_lock: Duration::ZERO,
        ..OpenOptions::default()
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // Who has it while the other one is made has it between two steps; from the label on it is refused.
                if let Ok(device) = Drive::open(&data, &options) {
                    assert!(!metadata.exists());
                    drop(device);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let added = Filesystem::add_metadata(&data, &metadata, &AddMetadata::default());
        is_over.store(true, Ordering::Relaxed);
        other.join().unwrap();
        added.unwrap();
    });
    check(&pair::uri(&metadata, &data));
}
