//! Zones whose space is a host's: some keep it while they are free and are taken first, and once nobody
//! takes zones any more it is given back.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::common::{NOW, create, fresh, noise, small};
use persimmon_device::{
    BLOCK_SIZE, Command, DeviceError, Geometry, Pending, Result, ZoneId, ZoneInfo, ZonedDevice,
};
use persimmon_engine::{Options, Progress, Task, Volume};
use persimmon_format::Ino;
use persimmon_format::table::Role;
use persimmon_sim::SimDevice;

/// What a simulated device has of a host's.
struct Hosted {
    device: Arc<SimDevice>,
    is_hosts: bool,
    space: Mutex<Space>,
}

#[derive(Default)]
struct Space {
    /// Zones that were reset and keep it.
    kept: BTreeSet<ZoneId>,
    kept_most: usize,
    /// Zones that were written again while they kept it.
    taken: usize,
    given_back: usize,
    /// There is none but what zones have, until they give some back.
    is_full: bool,
    /// Zones that were never written give none.
    is_strict: bool,
    refused: usize,
}

/// Zones of the log keep their space for good.
const LOG_ZONES: usize = 2;

impl Hosted {
    fn new(is_hosts: bool) -> Arc<Hosted> {
        Arc::new(Hosted {
            device: fresh(small()),
            is_hosts,
            space: Mutex::default(),
        })
    }

    fn kept(&self) -> usize {
        self.space.lock().unwrap().kept.len()
    }
}

impl ZonedDevice for Hosted {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        self.device.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        let mut space = self.space.lock().unwrap();
        match &command {
            Command::Reset {
                zone,
                keep_allocated: true,
            } => {
                space.kept.insert(*zone);
                space.kept_most = space.kept_most.max(space.kept.len());
            }
            Command::Reset { zone, .. } => {
                let info = self.device.report(zone.0..zone.0 + 1).unwrap();
                let is_written = info.iter().any(|info| info.write_pointer > 0);
                let has_space = space.kept.remove(zone) || is_written;
                space.is_full &= space.is_strict && !has_space;
                space.given_back += 1;
            }
            Command::Open { zone } if space.is_full && !space.kept.contains(zone) => {
                space.refused += 1;
                return Pending::ready(Err(DeviceError::HostFull));
            }
            Command::Write { zone, .. } | Command::Append { zone, .. } => {
                space.taken += usize::from(space.kept.remove(zone));
            }
            _ => {}
        }
        drop(space);
        self.device.submit(command)
    }

    fn space_is_hosts(&self) -> bool {
        self.is_hosts
    }
}

fn open(device: &Arc<Hosted>) -> Volume {
    Volume::open(Arc::clone(device) as _, Options::default())
        .unwrap()
        .0
}

fn free_reclaimable(volume: &Volume) {
    volume.step(Task::Checkpoint).unwrap();
    while volume.step(Task::FreeZones).unwrap() == Progress::Worked {}
    while volume.step(Task::Reset).unwrap() == Progress::Worked {}
}

fn overwrite(volume: &Volume, ino: Ino, rounds: u64) {
    for round in 0..rounds {
        for at in 0..8 {
            let bytes = noise(round * 8 + at, 128 * BLOCK_SIZE);
            volume
                .write(ino, at * bytes.len() as u64, &bytes, NOW)
                .unwrap();
        }
        volume.sync().unwrap();
        free_reclaimable(volume);
    }
}

/// A volume whose one file was written over again and again.
fn overwritten(is_hosts: bool) -> (Arc<Hosted>, Volume, Ino) {
    let device = Hosted::new(is_hosts);
    let volume = open(&device);
    let ino = create(&volume).unwrap();
    overwrite(&volume, ino, 10);
    (device, volume, ino)
}

#[test]
fn space_is_kept_for_what_is_written_next_and_given_back_when_nobody_writes() {
    let (device, volume, ino) = overwritten(true);
    let most = device.geometry().zone_count.div_ceil(8) as usize;
    {
        let space = device.space.lock().unwrap();
        assert!((2..=most).contains(&space.kept_most), "{}", space.kept_most);
        assert!(
            space.taken > space.given_back,
            "{} {}",
            space.taken,
            space.given_back
        );
    }
    // Somebody takes zones: it stays.
    let given_back = |volume: &Volume| {
        let before = device.kept();
        while volume.step(Task::GiveBackIfIdle).unwrap() == Progress::Worked {}
        before - device.kept()
    };
    given_back(&volume);
    overwrite(&volume, ino, 1);
    assert_eq!(given_back(&volume), 0);
    let free = |volume: &Volume| volume.clean_step(Some(0)).unwrap().free_zones;
    let before = free(&volume);
    assert!(given_back(&volume) > 1);
    assert_eq!(free(&volume), before);
    let of_log = device.kept();

    // Nor does a volume that is not mounted keep any.
    overwrite(&volume, ino, 1);
    assert!(device.kept() > of_log);
    volume.close().unwrap();
    assert!(device.kept() <= of_log);
    drop(volume);
    let volume = open(&device);
    let mut found = vec![0; 128 * BLOCK_SIZE];
    volume.read(ino, 0, &mut found).unwrap();
    assert!(found == noise(0, found.len()));
}

#[test]
fn a_drive_wears_out_evenly_instead() {
    let (device, volume, _) = overwritten(false);
    volume.close().unwrap();
    assert!(device.space.lock().unwrap().kept_most <= LOG_ZONES);
}

/// Nobody knows after a kill which zones keep their space: those that were in use before may.
#[test]
fn what_a_killed_process_left_is_given_back() {
    let (device, volume, _) = overwritten(true);
    let before = device.kept();
    assert!(before > LOG_ZONES);
    drop(volume);
    let volume = open(&device);
    volume.step(Task::GiveBackIfIdle).unwrap();
    while volume.step(Task::GiveBackIfIdle).unwrap() == Progress::Worked {}
    assert!(device.kept() <= LOG_ZONES, "{} of {before}", device.kept());
}

/// The log needed a zone on a full host, and others kept theirs.
#[test]
fn on_a_full_host_free_zones_give_their_space_to_the_log() {
    let (device, volume, ino) = overwritten(true);
    assert!(device.kept() > LOG_ZONES);
    device.space.lock().unwrap().is_full = true;
    for number in 0..4000 {
        let bytes = noise(number, 100);
        volume.write(ino, number * 7 % 4096, &bytes, NOW).unwrap();
        volume.sync_file(ino).unwrap();
    }
    assert_eq!(device.space.lock().unwrap().refused, 1);
}

/// A file was removed, and nothing was written any more: the host had its space back at the unmount, or when zones ran
/// short, and never before.
#[test]
fn what_was_removed_is_given_back_when_nobody_writes() {
    let device = Hosted::new(true);
    let volume = open(&device);
    let ino = create(&volume).unwrap();
    for at in 0..16 {
        let bytes = noise(at, 128 * BLOCK_SIZE);
        volume
            .write(ino, at * bytes.len() as u64, &bytes, NOW)
            .unwrap();
    }
    volume.sync().unwrap();
    let live = |volume: &Volume| {
        let zones = volume.zones();
        zones
            .iter()
            .filter(|zone| zone.entry.role != Role::Free)
            .count()
    };
    let before = live(&volume);
    volume.truncate(ino, 0, NOW).unwrap();
    volume.sync().unwrap();
    // The first time tells that zones were taken, or not.
    volume.step(Task::GiveBackIfIdle).unwrap();
    for _ in 0..2 {
        while volume.step(Task::GiveBackIfIdle).unwrap() == Progress::Worked {}
    }
    let after = live(&volume);
    assert!(after * 2 < before, "{after} of {before} zones are in use");
    assert!(device.kept() <= LOG_ZONES, "{}", device.kept());
}

/// The host was full, what was removed from the volume had nearly all of its space, and writing was refused all the
/// same.
#[test]
fn on_a_full_host_what_was_removed_makes_room() {
    let device = Hosted::new(true);
    let volume = open(&device);
    let ino = create(&volume).unwrap();
    let fill = |from: u64| {
        for at in 0..6 {
            let bytes = noise(from + at, 128 * BLOCK_SIZE);
            volume.write(ino, at * bytes.len() as u64, &bytes, NOW)?;
        }
        volume.sync()
    };
    fill(0).unwrap();
    volume.truncate(ino, 0, NOW).unwrap();
    volume.sync().unwrap();
    {
        let mut space = device.space.lock().unwrap();
        (space.is_full, space.is_strict) = (true, true);
    }
    fill(100).unwrap();
    assert!(device.space.lock().unwrap().refused > 0);
}
