//! The log goes on in another zone, and the mount after that finds all of it: bugs that were, each with its story.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure ends the test")]

use std::sync::Arc;

use persimmon_engine::{Options, Task, Volume};
use persimmon_format::table::Role;
use persimmon_sim::{SimConfig, SimDevice};

use crate::common::{NOW, create, fresh, noise, open, small};

/// The footer was the last block of the log, and the zone of the one before it was reset: the mount looked for that one.
#[test]
fn a_crash_right_after_a_checkpoint_mounts() {
    let device = fresh(small());
    let volume = open(&device);
    let ino = create(&volume).unwrap();
    volume.step(Task::Checkpoint).unwrap();
    for i in 0..130 {
        volume.write(ino, i * 10, &[1; 10], NOW).unwrap();
        volume.sync_file(ino).unwrap();
    }
    volume.step(Task::Checkpoint).unwrap();
    drop(volume);
    let left = open(&device);
    let mut found = [0; 1300];
    assert_eq!(left.read(ino, 0, &mut found).unwrap(), found.len());
    assert_eq!(found, [1; 1300]);
}

/// A metadata zone in which nothing was valid at a cut was reset, and taken into use for data. The next mount took its role from
/// the table, and its counts from the journal.
#[test]
fn a_zone_used_again_in_another_role_keeps_it_over_a_mount() {
    let device = fresh(small());
    let mut volume = open(&device);
    let ino = create(&volume).unwrap();
    let blocks = volume.space().available_bytes / 4096 * 85 / 100;
    for block in 0..blocks {
        volume.write(ino, block * 4096, &[1; 4096], NOW).unwrap();
    }
    volume.sync().unwrap();
    let mut scattered = scattered_below(blocks);
    for round in 0..150u8 {
        for _ in 0..200 {
            let offset = scattered() * 4096;
            volume.write(ino, offset, &[round; 4096], NOW).unwrap();
        }
        volume.sync_file(ino).unwrap();
        let before = volume.zones();
        drop(volume);
        volume = open(&device);
        for (before, after) in before.iter().zip(volume.zones()) {
            let is_kept = before.entry.role == after.entry.role || after.entry.valid == 0;
            assert!(is_kept, "round {round}: {before:?} is {after:?}");
        }
    }
    assert!(
        volume
            .zones()
            .iter()
            .any(|z| z.entry.role == Role::Metadata)
    );
}

/// Numbers below this, in no order.
fn scattered_below(end: u64) -> impl FnMut() -> u64 {
    let mut numbers = noise(7, 1 << 20).into_iter().cycle();
    move || {
        (0..4).fold(0, |sum, _| {
            sum << 8 | u64::from(numbers.next().unwrap_or(0))
        }) % end
    }
}

/// The newest zone of the log went offline before the next mount, which took the one before for the end: what had been synced was gone, and
/// nobody said so.
#[test]
fn a_log_whose_newest_zone_is_offline_is_not_taken_for_a_shorter_one() {
    let device = fresh(SimConfig::new(40, 32).capacity(30));
    let volume = open(&device);
    let ino = create(&volume).unwrap();
    let (mut refused, mut read_only) = (0, 0);
    for round in 1..200u64 {
        volume.write(ino, 0, &round.to_le_bytes(), NOW).unwrap();
        volume.sync_file(ino).unwrap();
        let zones = volume.zones();
        let log = zones.iter().filter(|zone| zone.entry.role == Role::Log);
        let newest = log.max_by_key(|zone| zone.entry.sequence).unwrap();
        let left = Arc::new(device.snapshot().intact());
        left.set_offline(newest.zone);
        let options = Options::default();
        let Ok((left, _)) = Volume::open(left, options) else {
            refused += 1;
            continue;
        };
        let mut found = [0; 8];
        left.read(ino, 0, &mut found).unwrap();
        assert!(
            left.is_read_only() || u64::from_le_bytes(found) == round,
            "round {round}: {found:?}"
        );
        read_only += u32::from(left.is_read_only());
    }
    assert!(refused > 0 && read_only > 0);
}

/// Batches that were not durable lay over two log zones when the power went. What the next mount acknowledged was lost by the one after
/// it, or there was none: page ids had been handed out again, and blocks behind the end taken for the log's.
#[test]
fn every_crash_state_over_log_rolls_mounts() {
    for seed in 0..60 {
        let device = fresh(SimConfig::new(40, 32).capacity(30).volatile_cache());
        let volume = open(&device);
        let ino = create(&volume).unwrap();
        for i in 0..20u64 + seed % 23 {
            volume.write(ino, 0, &i.to_le_bytes(), NOW).unwrap();
            volume.sync_file(ino).unwrap();
        }
        for _ in 0..60 + seed * 7 % 200 {
            create(&volume).unwrap();
        }
        for i in 0..10 {
            volume.write(ino, 8192 + i, &[3], NOW).unwrap();
            volume.commit_file(ino).unwrap();
        }
        for state in 0..40 {
            let mut device = Arc::new(device.persisted(seed * 1000 + state));
            for again in 0..3 {
                device = mounts_and_keeps(&device, state + again);
            }
        }
    }
}

/// What a mount acknowledges is there for the one after the next power cut, whose device is the answer.
fn mounts_and_keeps(device: &Arc<SimDevice>, seed: u64) -> Arc<SimDevice> {
    let volume: Volume = open(device);
    let ino = create(&volume).unwrap();
    volume.write(ino, 0, b"acknowledged", NOW).unwrap();
    volume.sync_file(ino).unwrap();
    drop(volume);
    let left = Arc::new(device.persisted(seed));
    let mut found = [0; 12];
    open(&left).read(ino, 0, &mut found).unwrap();
    assert_eq!(&found, b"acknowledged");
    left
}
