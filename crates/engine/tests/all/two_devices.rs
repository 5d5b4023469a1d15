//! A volume on two devices: what goes where, and one of them gone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure ends the test"
)]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{NOW, create, fresh, noise, open};
use persimmon_device::{
    Command, DeviceError, Geometry, MetadataZones, Pending, ZoneId, ZoneInfo, ZonedDevice,
};
use persimmon_engine::{Error, Options, Task, Volume};
use persimmon_format::table::Role;
use persimmon_sim::{SimConfig, SimDevice};

const METADATA_ZONES: u32 = 28;

/// 28 zones of 60 blocks for metadata, 30 of 120 for data.
fn split() -> SimConfig {
    let mut config = SimConfig::new(METADATA_ZONES + 30, 128).metadata(METADATA_ZONES);
    config.capacities = vec![60; METADATA_ZONES as usize];
    config.capacities.push(120);
    config
}

fn roles_are_apart(volume: &Volume) {
    for zone in volume.zones() {
        let may = match zone.entry.role {
            Role::Log | Role::Metadata => zone.zone.0 < METADATA_ZONES,
            Role::Data => zone.zone.0 >= METADATA_ZONES,
            Role::Free => true,
            Role::Retired => false,
        };
        assert!(may, "{zone:?}");
    }
}

#[test]
fn log_and_metadata_are_on_the_one_and_data_is_on_the_other() {
    let device = fresh(split());
    let mut volume = open(&device);
    let mut resets = 0;
    let inos: Vec<_> = (0..8).map(|_| create(&volume).unwrap()).collect();
    for round in 0..60 {
        for (i, ino) in inos.iter().enumerate() {
            let offset = (round * 7 % 40) * 4096;
            let data = noise(round + i as u64, 40_000);
            volume.write(*ino, offset, &data, NOW).unwrap();
        }
        if round % 3 == 0 {
            volume.sync_file(inos[0]).unwrap();
        } else {
            volume.sync().unwrap();
        }
        roles_are_apart(&volume);
        if round % 20 == 19 {
            volume.step(Task::Checkpoint).unwrap();
            volume.close().unwrap();
            resets += volume.statistics().resets;
            volume = open(&device);
        }
    }
    assert!(resets > 10, "{resets}");
    roles_are_apart(&volume);
}

/// The zones of one of the two devices can go.
struct Pulled {
    device: Arc<SimDevice>,
    gone: Range<u32>,
    is_gone: AtomicBool,
}

impl Pulled {
    fn has_lost(&self, zone: Option<ZoneId>) -> bool {
        let here = |zone: ZoneId| self.gone.contains(&zone.0);
        // A flush is of both.
        self.is_gone.load(Ordering::Relaxed) && zone.is_none_or(here)
    }
}

impl ZonedDevice for Pulled {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>, DeviceError> {
        if zones.clone().any(|zone| self.has_lost(Some(ZoneId(zone)))) {
            Err(DeviceError::Gone)
        } else {
            self.device.report(zones)
        }
    }

    fn submit(&self, mut command: Command) -> Pending {
        if self.has_lost(command.zone_mut().copied()) {
            Pending::ready(Err(DeviceError::Gone))
        } else {
            self.device.submit(command)
        }
    }
}

#[test]
fn a_device_that_goes_takes_nothing_that_was_acknowledged() {
    let both = 0..METADATA_ZONES + 30;
    for gone in [0..METADATA_ZONES, METADATA_ZONES..both.end] {
        let device = fresh(split());
        let pulled = Arc::new(Pulled {
            device: Arc::clone(&device),
            gone: gone.clone(),
            is_gone: AtomicBool::new(false),
        });
        let (volume, _) = Volume::open(Arc::clone(&pulled) as _, Options::default()).unwrap();
        let (one, other) = (create(&volume).unwrap(), create(&volume).unwrap());
        let data = noise(3, 200_000);
        volume.write(one, 0, &data, NOW).unwrap();
        volume.sync_file(one).unwrap();
        pulled.is_gone.store(true, Ordering::Relaxed);
        volume.write(other, 0, &noise(4, 200_000), NOW).unwrap();
        let error = volume.sync_file(other).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Device(DeviceError::Gone) | Error::ReadOnly { .. }
            ),
            "{gone:?}: {error}"
        );
        assert!(volume.is_read_only() || create(&volume).is_ok());
        assert!(volume.sync().is_err(), "{gone:?}");
        drop(volume);
        // Plugged in again, it holds what was acknowledged.
        let volume = open(&device);
        let mut read = vec![0; data.len()];
        assert_eq!(volume.read(one, 0, &mut read).unwrap(), data.len());
        assert!(read[..] == data[..], "{gone:?}");
        roles_are_apart(&volume);
    }
}

#[test]
fn another_division_is_refused() {
    let device = fresh(split());
    struct Divided(Arc<SimDevice>, Geometry);
    impl ZonedDevice for Divided {
        fn geometry(&self) -> &Geometry {
            &self.1
        }
        fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>, DeviceError> {
            self.0.report(zones)
        }
        fn submit(&self, command: Command) -> Pending {
            self.0.submit(command)
        }
    }
    for metadata_zones in [0, METADATA_ZONES - 1, METADATA_ZONES + 1] {
        let geometry = Geometry {
            metadata_zones: MetadataZones::first(metadata_zones),
            ..device.geometry().clone()
        };
        let divided = Arc::new(Divided(Arc::clone(&device), geometry));
        let opened = Volume::open(divided, Options::default());
        let error = opened.err().expect("a volume of another shape");
        assert!(
            matches!(&error, Error::NoVolume(why) if why.contains("mkfs")),
            "{error}"
        );
    }
    open(&device);
}
