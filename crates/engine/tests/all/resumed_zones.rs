//! Zones that a mount after a power cut goes on in.

#![allow(clippy::unwrap_used, reason = "a failure ends the test")]

use std::sync::Arc;

use persimmon_device::{ZoneState, ZonedDevice};
use persimmon_engine::{Options, RecoveryReport, Volume};
use persimmon_format::table::Role;
use persimmon_sim::{Sampled, SimConfig, SimDevice};

use crate::common::{NOW, create, fresh, noise, open, small};

/// Devices that a power cut has left with the record of a write, and without its data.
fn cut_with_a_record_too_many(config: SimConfig) -> Vec<Arc<SimDevice>> {
    let device = fresh(config);
    let volume = open(&device);
    let inos = [(); 3].map(|()| create(&volume).unwrap());
    volume.write(inos[0], 0, &noise(1, 12 * 4096), NOW).unwrap();
    volume.sync().unwrap();
    // It is inlined in the journal, and would be packed before a checkpoint.
    volume.write(inos[2], 0, &[7; 4096], NOW).unwrap();
    volume.sync_file(inos[2]).unwrap();
    volume.write(inos[1], 0, &noise(2, 12 * 4096), NOW).unwrap();
    device.record_snapshots(1);
    volume.sync_file(inos[1]).unwrap();
    let snapshots = device.take_snapshots();
    let states = snapshots.iter().flat_map(|snapshot| {
        (0..40).map(|seed| Arc::new(snapshot.persisted(&mut Sampled::new(seed))))
    });
    let states: Vec<_> = states.filter(|device| found(device).tail_cut).collect();
    assert!(!states.is_empty(), "no cut left a record without its data");
    states
}

/// What a mount finds, which writes nothing.
fn found(device: &Arc<SimDevice>) -> RecoveryReport {
    let options = Options {
        read_only: true,
        ..Options::default()
    };
    Volume::open(device.clone(), options).unwrap().1
}

/// The zones of data that are written to.
fn open_zones(volume: &Volume, device: &SimDevice) -> Vec<u32> {
    let states = device.report(0..device.geometry().zone_count).unwrap();
    let zones = volume.zones().into_iter();
    let zones = zones.filter(|zone| zone.entry.role == Role::Data);
    let is_open = |zone: &u32| {
        let state = states[*zone as usize].state;
        state.is_active() && state != ZoneState::Empty
    };
    zones.map(|zone| zone.zone.0).filter(is_open).collect()
}

fn write_pointers(device: &SimDevice) -> Vec<u32> {
    let zones = device.report(0..device.geometry().zone_count).unwrap();
    zones.iter().map(|zone| zone.write_pointer).collect()
}

/// These zones end where they did before.
fn assert_untouched(zones: &[u32], before: &[u32], device: &SimDevice) {
    let now = write_pointers(device);
    for zone in zones.iter().map(|zone| *zone as usize) {
        assert_eq!(now[zone], before[zone]);
    }
}

/// Records that a crash invalidates may name zones of data, which then take no writes before the next footer: the mount writes it, and
/// goes on in them.
#[test]
fn zones_are_gone_on_with_though_the_tail_is_cut() {
    for device in cut_with_a_record_too_many(small().volatile_cache().reordering(7)) {
        let pointers = write_pointers(&device);
        let (volume, report) = Volume::open(device.clone(), Options::default()).unwrap();
        assert!(report.tail_cut);
        assert_eq!(volume.statistics().checkpoints, 1);
        let before = open_zones(&volume, &device);
        assert!(!before.is_empty(), "the zone that was written to is ended");
        assert_untouched(&before, &pointers, &device);
        let ino = create(&volume).unwrap();
        volume.write(ino, 0, &noise(3, 12 * 4096), NOW).unwrap();
        volume.sync_file(ino).unwrap();
        assert_eq!(open_zones(&volume, &device), before);
        let again = open(&Arc::new(device.snapshot().intact()));
        let mut buf = vec![0; 12 * 4096];
        assert_eq!(again.read(ino, 0, &mut buf).unwrap(), buf.len());
        assert_eq!(buf, noise(3, 12 * 4096));
    }
}

/// So it is where the mount that wrote the first block of the new epoch was cut off before its footer.
#[test]
fn a_recovery_that_is_cut_off_leaves_that_to_the_next() {
    let mut cut_off_between = 0;
    for device in cut_with_a_record_too_many(small().volatile_cache().reordering(7)) {
        let base = found(&device).checkpoint;
        for commands in 0.. {
            let device = Arc::new(device.snapshot().intact());
            device.cut_after(commands);
            let first = Volume::open(device.clone(), Options::default());
            if !device.is_cut() {
                break;
            }
            drop(first);
            let device = Arc::new(device.snapshot().intact());
            let pointers = write_pointers(&device);
            let (volume, report) = Volume::open(device.clone(), Options::default()).unwrap();
            let open = open_zones(&volume, &device);
            // The footer was there already, or there is none to go on in.
            if report.checkpoint > base || open.is_empty() {
                continue;
            }
            cut_off_between += u32::from(!report.tail_cut);
            assert_eq!(volume.statistics().checkpoints, 1);
            assert_untouched(&open, &pointers, &device);
        }
    }
    assert!(cut_off_between > 0);
}
