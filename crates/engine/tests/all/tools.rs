//! What tools ask of a volume in use: cleaning now, other thresholds, what happened to zones.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test from top to bottom"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{NOW, create, fresh, noise, open};
use persimmon_engine::{
    CleanState, Error, Options, Task, Traced, TuneError, VictimReason, Volume, ZoneEvent,
};
use persimmon_format::Ino;
use persimmon_format::table::Role;
use persimmon_sim::{SimConfig, SimDevice};

const FILES: u64 = 40;
const FILE_BLOCKS: u64 = 128;

fn device() -> Arc<SimDevice> {
    fresh(SimConfig::new(128, 128))
}

/// Files whose blocks are overwritten here and there, so that zones hold garbage.
fn with_garbage(volume: &Volume) -> BTreeMap<Ino, Vec<u8>> {
    let mut files = BTreeMap::new();
    for number in 0..FILES {
        let ino = create(volume).unwrap();
        let data = noise(number, (FILE_BLOCKS * 4096) as usize);
        volume.write(ino, 0, &data, NOW).unwrap();
        files.insert(ino, data);
    }
    volume.sync().unwrap();
    for (round, (ino, data)) in files.iter_mut().enumerate() {
        for block in (round % 3..FILE_BLOCKS as usize).step_by(2) {
            let new = noise((round * 1000 + block) as u64, 4096);
            let at = block * 4096;
            volume.write(*ino, at as u64, &new, NOW).unwrap();
            data[at..at + 4096].copy_from_slice(&new);
        }
    }
    volume.sync().unwrap();
    files
}

fn compare(volume: &Volume, files: &BTreeMap<Ino, Vec<u8>>) {
    for (ino, data) in files {
        let mut found = vec![0; data.len()];
        assert_eq!(volume.read(*ino, 0, &mut found).unwrap(), data.len());
        assert!(found == *data, "inode {ino}");
    }
}

fn clean(volume: &Volume, wanted: Option<u32>) -> (CleanState, u64) {
    let mut moved = 0;
    for _ in 0..1000 {
        let step = volume.clean_step(wanted).unwrap();
        moved += step.blocks_moved;
        if step.state != CleanState::GoesOn {
            let zones = volume.zones();
            let free = zones.iter().filter(|z| z.entry.role == Role::Free);
            assert_eq!(step.free_zones as usize, free.count());
            return (step.state, moved);
        }
    }
    panic!("it does not end");
}

#[test]
fn cleaning_goes_on_until_as_much_is_free_as_was_asked_for() {
    let device = device();
    let volume = open(&device);
    let files = with_garbage(&volume);
    let free = || volume.clean_step(Some(0)).unwrap().free_zones;
    let before = free();
    assert_eq!(clean(&volume, Some(before)), (CleanState::Reached, 0));
    let (state, moved) = clean(&volume, Some(before + 5));
    assert_eq!(state, CleanState::Reached);
    assert!(moved > 0 && free() >= before + 5);
    compare(&volume, &files);

    let (state, _) = clean(&volume, None);
    assert_eq!(state, CleanState::Exhausted);
    let most = free();
    assert!(most > before + 5);
    // Live data is all that is left, and a zone of each stream that is not full.
    let needed = FILES * FILE_BLOCKS / 120;
    assert!(
        u64::from(128 - most) < needed + 16,
        "{most} of 128 are free"
    );
    // More than that cannot be, and asking again does nothing.
    assert_eq!(clean(&volume, Some(120)).0, CleanState::Exhausted);
    assert_eq!(clean(&volume, None), (CleanState::Exhausted, 0));
    compare(&volume, &files);
    drop(volume);
    compare(&open(&device), &files);
}

#[test]
fn a_volume_that_takes_no_changes_is_not_cleaned() {
    let volume = open(&device());
    with_garbage(&volume);
    volume.make_read_only();
    assert!(matches!(
        volume.clean_step(None),
        Err(Error::ReadOnly { .. })
    ));
}

fn value(volume: &Volume, key: &str) -> u64 {
    let found = volume.thresholds().into_iter().find(|(t, _)| t.key == key);
    found.unwrap().1
}

fn tune(volume: &Volume, changes: &[(&str, u64)]) -> Result<(), TuneError> {
    volume.tune(changes.iter().copied())
}

#[test]
fn thresholds_are_within_their_ranges_and_begin_as_options_say() {
    let options = Options {
        cache_bytes_max: 3 << 20,
        staging_bytes_max: 1 << 20,
        ..Options::default()
    };
    let (volume, _) = Volume::open(device(), options).unwrap();
    for (threshold, now) in volume.thresholds() {
        assert_eq!(threshold.check(now), Ok(()), "{}", threshold.key);
        assert!(!threshold.what.is_empty());
        for to in [threshold.least, threshold.most, now] {
            assert_eq!(tune(&volume, &[(threshold.key, to)]), Ok(()));
            // A small volume has a bound of its own.
            if threshold.key != "staging_bytes_max" {
                assert_eq!(value(&volume, threshold.key), to, "{}", threshold.key);
            }
        }
        let above = tune(&volume, &[(threshold.key, threshold.most + 1)]);
        let error = TuneError::OutOfRange {
            key: threshold.key,
            value: threshold.most + 1,
            least: threshold.least,
            most: threshold.most,
        };
        assert_eq!(above, Err(error));
    }
    assert_eq!(value(&volume, "cache_bytes_max"), 3 << 20);
    assert_eq!(value(&volume, "staging_bytes_max"), 1 << 20);
}

#[test]
fn of_several_changes_all_are_made_or_none() {
    let volume = open(&device());
    let before = volume.thresholds();
    let wrong = [
        ("free_target_zones_min", 7),
        ("metadata_garbage_percent", 0),
    ];
    let told = tune(&volume, &wrong).unwrap_err().to_string();
    assert_eq!(told, "metadata_garbage_percent is between 1 and 100, not 0");
    let unknown = tune(&volume, &[("free_target_zones_min", 7), ("speed", 1)]);
    assert_eq!(
        unknown,
        Err(TuneError::Unknown {
            key: "speed".into()
        })
    );
    assert_eq!(volume.thresholds(), before);
    tune(
        &volume,
        &[("free_target_zones_min", 7), ("tails_bytes_max", 0)],
    )
    .unwrap();
    assert_eq!(value(&volume, "free_target_zones_min"), 7);
    assert_eq!(value(&volume, "tails_bytes_max"), 0);
}

#[test]
fn thresholds_hold_from_now_on() {
    // Staging: the most that waited.
    let volume = open(&device());
    let staged = |volume: &Volume| {
        let ino = create(volume).unwrap();
        volume.write(ino, 0, &noise(1, 6 << 20), NOW).unwrap();
        volume.sync().unwrap();
        volume.statistics().staged_bytes_peak
    };
    tune(&volume, &[("staging_bytes_max", 256 << 10)]).unwrap();
    let little = staged(&volume);
    tune(&volume, &[("staging_bytes_max", 2 << 20)]).unwrap();
    assert!(little < staged(&volume), "{little}");

    // Checkpoints ahead: how many there are of the same changes.
    let checkpoints = |percent| {
        let volume = open(&device());
        tune(&volume, &[("checkpoint_due_percent", percent)]).unwrap();
        for number in 0..300 {
            let ino = create(&volume).unwrap();
            volume.write(ino, 0, &noise(number, 1000), NOW).unwrap();
            volume.sync().unwrap();
            volume.step(Task::CheckpointIfDue).unwrap();
        }
        volume.statistics().checkpoints
    };
    assert!(checkpoints(10) > checkpoints(90));

    // The free-zone target: zones that cleaning ahead leaves free or reclaimable.
    let kept = |zones| {
        let volume = open(&device());
        with_garbage(&volume);
        let changes = [
            ("free_target_zones_min", zones),
            ("free_target_basis_points", 0),
        ];
        tune(&volume, &changes).unwrap();
        while [Task::FreeIfDue, Task::CleanIfDue]
            .into_iter()
            .any(|task| volume.step(task).unwrap() == persimmon_engine::Progress::Worked)
        {}
        let step = volume.clean_step(Some(0)).unwrap();
        step.free_zones + step.reclaimable_zones
    };
    let (few, many) = (kept(1), kept(80));
    assert!(few < many, "{few} {many}");
}

fn all_events(volume: &Volume) -> Vec<ZoneEvent> {
    let traced: Traced = volume.trace(0, usize::MAX);
    assert_eq!((traced.first, traced.dropped), (0, 0));
    traced.events
}

/// Every zone's story: taken into use, written to from its first block on without a gap, cleaned
/// after it was chosen, reset.
#[test]
fn events_tell_the_story_of_each_zone() {
    let device = device();
    let volume = open(&device);
    let before = volume.statistics();
    let files = with_garbage(&volume);
    clean(&volume, None);
    let events = all_events(&volume);
    let mut next: BTreeMap<u32, u32> = BTreeMap::new();
    let mut data_blocks = 0;
    let (mut victims, mut cleaned, mut resets) = (0, 0, 0);
    for event in &events {
        match event {
            ZoneEvent::Opened { zone, .. } => {
                assert!(next.insert(zone.0, 1).is_none(), "{event:?}");
            }
            ZoneEvent::Written {
                zone,
                role,
                block,
                blocks,
                files: count,
                ino,
                ..
            } => {
                // Zones that were open at mount are gone on with.
                let expected = *next.entry(zone.0).or_insert(*block);
                assert_eq!(*block, expected, "{event:?}");
                next.insert(zone.0, block + blocks);
                if *role == Role::Data {
                    data_blocks += u64::from(*blocks);
                    assert_eq!(*count > 0, ino.is_some());
                    assert!(ino.is_none_or(|ino| files.contains_key(&ino)));
                }
            }
            ZoneEvent::Victim {
                why,
                awaited,
                valid_blocks,
                capacity_blocks,
                ..
            } => {
                victims += 1;
                assert_eq!((*why, *awaited), (VictimReason::Score, false));
                assert!((1..*capacity_blocks).contains(valid_blocks), "{event:?}");
            }
            ZoneEvent::Cleaned { .. } => cleaned += 1,
            ZoneEvent::Reset { zone } => {
                resets += 1;
                next.remove(&zone.0);
            }
        }
    }
    let did = volume.statistics().since(&before);
    assert!(victims > 0);
    assert_eq!((victims, victims), (cleaned, did.cleaning_background));
    assert_eq!(resets, did.resets);
    let sent = did.data_bytes + did.cleaned_data_bytes;
    assert!(
        data_blocks * 4096 >= sent,
        "{data_blocks} blocks, {sent} bytes"
    );
}

#[test]
fn who_writes_is_told() {
    let volume = open(&device());
    let (a, b) = (create(&volume).unwrap(), create(&volume).unwrap());
    let from = volume.trace(u64::MAX, 1).next();
    for ino in [a, b] {
        volume.write(ino, 0, &noise(ino.0, 40_000), NOW).unwrap();
    }
    volume.step(Task::WriteBack).unwrap();
    let told = volume.trace(from, usize::MAX).events;
    let written = told.iter().find_map(|event| match event {
        ZoneEvent::Written {
            files, ino, role, ..
        } => Some((*files, *ino, *role)),
        _ => None,
    });
    assert_eq!(written, Some((2, Some(a), Role::Data)));
}

/// Tools are used while others write: nothing is lost, nobody waits for ever.
#[test]
fn tools_do_not_disturb_who_writes() {
    let device = device();
    let volume = open(&device);
    let mut files = with_garbage(&volume);
    let writing = AtomicUsize::new(0);
    let mut halves = [Vec::new(), Vec::new()];
    for (number, file) in files.iter_mut().enumerate() {
        halves[number % 2].push(file);
    }
    std::thread::scope(|scope| {
        for (half, files) in halves.into_iter().enumerate() {
            let (volume, writing) = (&volume, &writing);
            writing.fetch_add(1, Ordering::Relaxed);
            scope.spawn(move || {
                for (round, (ino, data)) in files.into_iter().enumerate() {
                    for block in (0..FILE_BLOCKS as usize).step_by(3) {
                        let new = noise((half * 7777 + round * 300 + block) as u64, 4096);
                        let at = block * 4096;
                        volume.write(*ino, at as u64, &new, NOW).unwrap();
                        data[at..at + 4096].copy_from_slice(&new);
                    }
                    volume.sync_file(*ino).unwrap();
                }
                writing.fetch_sub(1, Ordering::Relaxed);
            });
        }
        let (mut from, mut told) = (0, 0);
        for round in 0.. {
            if writing.load(Ordering::Relaxed) == 0 {
                break;
            }
            volume.clean_step(None).unwrap();
            let staging = [("staging_bytes_max", (256 << 10) << (round % 3))];
            tune(&volume, &staging).unwrap();
            let cache = [("cache_bytes_max", (1 << 20) << (round % 4))];
            tune(&volume, &cache).unwrap();
            let traced = volume.trace(from, 10);
            assert_eq!(traced.first, from + traced.dropped);
            told += traced.events.len();
            from = traced.next();
        }
        told += volume.trace(from, 10).events.len();
        assert!(told > 0);
    });
    compare(&volume, &files);
    volume.close().unwrap();
    drop(volume);
    compare(&open(&device), &files);
}
