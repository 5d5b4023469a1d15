//! The log of a volume of many zones can take the first of them alone: where these fail or hold data, some are won back for it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure ends the test")]

use std::sync::Arc;

use crate::common::{NOW, create, unlink};
use persimmon_device::{BLOCK_SIZE, ZoneId};
use persimmon_engine::{Error, FormatOptions, Options, Progress, Task, Volume};
use persimmon_format::Ino;
use persimmon_format::table::Role;
use persimmon_sim::{SimConfig, SimDevice};

const ZONES: u32 = 200;
const CANDIDATES: u32 = 64;
/// Blocks of each file.
const FILE_BLOCKS: usize = 8;

fn open(device: &Arc<SimDevice>) -> Volume {
    let options = Options {
        staging_bytes_max: 1 << 20,
        ..Options::default()
    };
    Volume::open(device.clone(), options).unwrap().0
}

fn content(seed: usize) -> Vec<u8> {
    let mut state = seed as u64 + 1;
    let next = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    (0..FILE_BLOCKS * BLOCK_SIZE).map(next).collect()
}

/// Makes files until the volume is full.
fn fill(volume: &Volume) -> Vec<(Ino, usize)> {
    let mut files = Vec::new();
    loop {
        let made = create(volume).and_then(|ino| {
            volume.write(ino, 0, &content(files.len()), NOW)?;
            Ok(ino)
        });
        match made {
            Ok(ino) => files.push((ino, files.len())),
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
        in_background(volume);
    }
    volume.sync().unwrap();
    files
}

/// What threads in the background do.
fn in_background(volume: &Volume) {
    for task in [Task::CleanIfDue, Task::FreeIfDue, Task::CheckpointIfDue] {
        for _ in 0..10 {
            if volume.step(task).unwrap() != Progress::Worked {
                break;
            }
        }
    }
}

/// Writes files anew, each durable.
fn overwrite(volume: &Volume, files: &mut [(Ino, usize)], round: usize, by_background: bool) {
    for i in 0..600 {
        let at = (i * 7919 + round) % files.len();
        let (ino, seed) = &mut files[at];
        *seed += 100_000;
        volume
            .write(*ino, 0, &content(*seed), NOW)
            .and_then(|_| volume.sync_file(*ino))
            .unwrap_or_else(|error| panic!("round {round}, write {i}: {error}"));
        if by_background {
            in_background(volume);
        }
    }
}

fn free_candidates(volume: &Volume) -> Vec<ZoneId> {
    let zones = volume.zones().into_iter().take(CANDIDATES as usize);
    let free = zones.filter(|z| z.entry.role == Role::Free && !z.open);
    free.map(|zone| zone.zone).collect()
}

/// A volume is full, so that data which nobody changes fills all zones that the log could take but a few. These fail. Cleaning had no reason
/// to empty one of the others: the log found none when its zone was full, and the volume stopped for good.
fn goes_on(copies: u32, by_background: bool) {
    let device = Arc::new(SimDevice::new(SimConfig::new(ZONES, 64)));
    let options = FormatOptions {
        now: NOW,
        copies,
        ..FormatOptions::default()
    };
    Volume::format(device.clone(), &options).unwrap();
    let volume = open(&device);
    let mut files = fill(&volume);
    // The zones that the log can take are filled last.
    let cold = files.split_off(files.len() / 2);
    // Room for zones that fail.
    let removed = files.split_off(files.len() * 3 / 4);
    let removed: Vec<Ino> = removed.into_iter().map(|(ino, _)| ino).collect();
    unlink(&volume, &removed);
    volume.reclaim(&removed).unwrap();
    overwrite(&volume, &mut files, 0, true);
    for round in 1..3 {
        let free = free_candidates(&volume);
        for zone in free {
            device.set_read_only(zone);
        }
        volume.step(Task::Examine).unwrap();
        overwrite(&volume, &mut files, round, by_background);
        in_background(&volume);
        let free = free_candidates(&volume);
        assert!(free.len() >= copies as usize, "round {round}: {free:?}");
    }
    volume.close().unwrap();
    drop(volume);
    let volume = open(&device);
    for (ino, seed) in files.iter().chain(&cold) {
        let mut found = vec![0; FILE_BLOCKS * BLOCK_SIZE];
        assert_eq!(volume.read(*ino, 0, &mut found).unwrap(), found.len());
        assert!(found == content(*seed), "inode {ino}");
    }
}

#[test]
fn a_full_volume_goes_on_where_the_zones_for_its_log_fail() {
    goes_on(1, true);
}

#[test]
fn so_does_one_with_two_copies() {
    goes_on(2, true);
}

#[test]
fn so_does_one_without_background_threads() {
    goes_on(1, false);
}
