//! Zones that fail: each zone of a volume in turn goes offline or read-only, in use or while the
//! volume is not open, with one copy of log and metadata and with two.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure ends the test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{NOW, create};
use persimmon_device::{BLOCK_SIZE, ZoneId, ZoneInfo, ZoneState, ZonedDevice};
use persimmon_engine::{
    Error, FormatOptions, Intent, Options, Progress, Task, Volume, ZoneFailure,
};
use persimmon_format::table::Role;
use persimmon_format::{Ino, Key, KeyKind};
use persimmon_sim::{Fault, FaultKind, FaultTarget, SimConfig, SimDevice};

/// Files by number, and what is in them.
type Files = BTreeMap<Ino, Vec<u8>>;

fn fresh(copies: u32) -> Arc<SimDevice> {
    fresh_on(SimConfig::new(72, 64).capacity(60), copies)
}

fn fresh_on(config: SimConfig, copies: u32) -> Arc<SimDevice> {
    let device = Arc::new(SimDevice::new(config));
    let options = FormatOptions {
        now: NOW,
        copies,
        ..FormatOptions::default()
    };
    Volume::format(device.clone(), &options).unwrap();
    device
}

fn open(device: &Arc<SimDevice>) -> Result<Volume, Error> {
    let options = Options {
        staging_bytes_max: 1 << 20,
        cache_bytes_max: 1 << 16,
        ..Options::default()
    };
    Volume::open(device.clone(), options).map(|(volume, _)| volume)
}

/// Bytes that do not compress: the tree is to fill more than one zone.
fn content(seed: usize, len: usize) -> Vec<u8> {
    let mut state = seed as u64 + 1;
    let next = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(next).collect()
}

/// Makes files: many small ones, which the tree holds, and some large.
fn fill(volume: &Volume, files: &mut Files, count: usize) {
    for i in 0..count {
        let ino = create(volume).unwrap();
        let len = if i % 8 == 0 { 9 * BLOCK_SIZE + i } else { 1500 };
        let bytes = content(files.len() + i, len);
        volume.write(ino, 0, &bytes, NOW).unwrap();
        if i % 3 == 0 {
            volume.sync_file(ino).unwrap();
        }
        files.insert(ino, bytes);
    }
    volume.sync().unwrap();
}

/// A volume with files in all of its parts, some of them in the journal only.
fn filled(copies: u32) -> (Arc<SimDevice>, Files) {
    let device = fresh(copies);
    let volume = open(&device).unwrap();
    let mut files = Files::new();
    for _ in 0..3 {
        fill(&volume, &mut files, 90);
        volume.step(Task::Checkpoint).unwrap();
    }
    fill(&volume, &mut files, 30);
    (device, files)
}

/// The device after a power cut that lost nothing.
fn copy_of(device: &SimDevice) -> Arc<SimDevice> {
    Arc::new(device.snapshot().intact())
}

/// Files that cannot be read; what can be read must be right.
fn unreadable(volume: &Volume, files: &Files) -> Vec<Ino> {
    let mut lost = Vec::new();
    for (ino, bytes) in files {
        let mut found = vec![0; bytes.len()];
        match volume.read(*ino, 0, &mut found) {
            Ok(len) if len == bytes.len() && found == *bytes => {}
            Ok(len) => {
                let first = found.iter().zip(bytes).position(|(a, b)| a != b);
                panic!(
                    "inode {ino}: {len} of {} bytes, first wrong {first:?}",
                    bytes.len()
                );
            }
            Err(Error::NotFound(_)) => panic!("inode {ino} is gone"),
            Err(_) => lost.push(*ino),
        }
    }
    lost
}

/// Roles and places of the zones of a volume as a mount finds them.
fn roles(device: &SimDevice) -> Vec<(ZoneId, Role)> {
    let volume = Volume::open(
        copy_of(device),
        Options {
            read_only: true,
            ..Options::default()
        },
    );
    let zones = volume.unwrap().0.zones();
    zones.iter().map(|z| (z.zone, z.entry.role)).collect()
}

/// Reads all, but what data zone `lost` held, changes files, and reads again after a remount.
fn work_on(device: &Arc<SimDevice>, volume: Volume, mut files: Files, lost: Option<ZoneId>) {
    let check = |volume: &Volume, files: &Files| {
        let mut listed: Vec<Ino> = Vec::new();
        for range in volume.losses(1000).unwrap().ranges {
            assert_eq!(Some(range.zone), lost);
            listed.push(range.ino);
        }
        listed.dedup();
        assert_eq!(unreadable(volume, files), listed);
    };
    check(&volume, &files);
    fill(&volume, &mut files, 20);
    volume.step(Task::Checkpoint).unwrap();
    fill(&volume, &mut files, 5);
    check(&volume, &files);
    volume.close().unwrap();
    drop(volume);
    let volume = open(&copy_of(device)).unwrap();
    assert!(!volume.is_read_only());
    check(&volume, &files);
}

#[test]
fn with_two_copies_any_zone_may_be_lost_while_unmounted() {
    let (device, files) = filled(2);
    for (zone, role) in roles(&device) {
        let device = copy_of(&device);
        device.set_offline(zone);
        let volume = open(&device).unwrap_or_else(|e| panic!("zone {zone}, {role:?}: {e}"));
        assert!(!volume.is_read_only(), "zone {zone}, {role:?}");
        let lost = (role == Role::Data).then_some(zone);
        work_on(&device, volume, files.clone(), lost);
    }
}

#[test]
fn with_two_copies_any_zone_may_be_lost_in_use() {
    let (device, files) = filled(2);
    for (zone, role) in roles(&device) {
        let device = copy_of(&device);
        let volume = open(&device).unwrap();
        device.set_offline(zone);
        volume.step(Task::Examine).unwrap();
        while volume.step(Task::Clean).unwrap() == Progress::Worked
            && volume
                .zones()
                .iter()
                .any(|z| z.failure.is_some() && z.entry.role == Role::Metadata)
        {}
        let lost = (role == Role::Data).then_some(zone);
        work_on(&device, volume, files.clone(), lost);
    }
}

#[test]
fn zones_that_turn_read_only_are_emptied_and_retired() {
    for copies in [1, 2] {
        let (device, files) = filled(copies);
        for (zone, role) in roles(&device) {
            let device = copy_of(&device);
            let volume = open(&device).unwrap();
            device.set_read_only(zone);
            volume.step(Task::Examine).unwrap();
            while volume.step(Task::CleanIfDue).unwrap() == Progress::Worked {}
            volume.step(Task::Checkpoint).unwrap();
            let status = volume.zones()[zone.0 as usize];
            assert_eq!(status.entry.role, Role::Retired, "zone {zone}, {role:?}");
            assert_eq!(status.failure, Some(ZoneFailure::ReadOnly));
            work_on(&device, volume, files.clone(), None);
            let volume = open(&device).unwrap();
            let status = volume.zones()[zone.0 as usize];
            assert_eq!(status.entry.role, Role::Retired, "zone {zone}, {role:?}");
        }
    }
}

#[test]
fn with_one_copy_the_rest_stays_readable() {
    let (device, files) = filled(1);
    let mut met = BTreeMap::new();
    for (zone, role) in roles(&device) {
        let device = copy_of(&device);
        device.set_offline(zone);
        let volume = match open(&device) {
            Ok(volume) => volume,
            // Without its log nothing tells where the volume is: that is rescued otherwise.
            Err(error) if role == Role::Log => {
                assert!(error.to_string().contains("persimmon recover"), "{error}");
                *met.entry("refused").or_insert(0) += 1;
                continue;
            }
            Err(error) => panic!("zone {zone}, {role:?}: {error}"),
        };
        match role {
            Role::Metadata => {
                let lost = unreadable(&volume, &files);
                if !lost.is_empty() {
                    // What is lost is not guessed. All is behind the root of the tree.
                    assert!(volume.is_read_only());
                    let all = lost.len() == files.len();
                    let what = if all { "root lost" } else { "pages lost" };
                    *met.entry(what).or_insert(0) += 1;
                }
            }
            Role::Data => {
                *met.entry("data").or_insert(0) += 1;
                work_on(&device, volume, files.clone(), Some(zone));
            }
            _ => work_on(&device, volume, files.clone(), None),
        }
    }
    let met: Vec<_> = met.into_keys().collect();
    assert_eq!(met, ["data", "pages lost", "refused", "root lost"]);
}

#[test]
fn with_one_copy_a_log_zone_may_be_lost_in_use() {
    let (device, files) = filled(1);
    for (zone, role) in roles(&device) {
        if !matches!(role, Role::Log | Role::Free) {
            continue;
        }
        let device = copy_of(&device);
        let volume = open(&device).unwrap();
        device.set_offline(zone);
        // Found out by writing, or by asking.
        if zone.0.is_multiple_of(2) {
            volume.step(Task::Examine).unwrap();
        }
        work_on(&device, volume, files.clone(), None);
    }
}

/// Every zone but those in use fails: the error says so, and what was acknowledged is there.
#[test]
fn a_device_of_exhausted_zones_is_told() {
    for copies in [1, 2] {
        let (device, mut files) = filled(copies);
        let volume = open(&device).unwrap();
        let report = device.report(0..72).unwrap();
        for (zone, info) in (0..).map(ZoneId).zip(report) {
            if info.state == ZoneState::Empty {
                device.set_read_only(zone);
            }
        }
        let mut told = None;
        for _ in 0..5000 {
            let ino = match create(&volume) {
                Ok(ino) => ino,
                Err(error) => {
                    told = Some(error);
                    break;
                }
            };
            let bytes = content(3, 3 * BLOCK_SIZE);
            let written = volume.write(ino, 0, &bytes, NOW);
            match written.and_then(|_| volume.sync_file(ino)) {
                Ok(()) => drop(files.insert(ino, bytes)),
                Err(error) => {
                    told = Some(error);
                    break;
                }
            }
        }
        let told = told.unwrap();
        assert!(matches!(told, Error::WornOut { .. }), "{told:?}");
        let options = Options {
            read_only: true,
            ..Options::default()
        };
        let (volume, _) = Volume::open(copy_of(&device), options).unwrap();
        assert_eq!(unreadable(&volume, &files), []);
    }
}

/// What is in memory of a metadata zone is written elsewhere; if more is lost, nothing is changed
/// any more, and what does not need it can be read.
#[test]
fn with_one_copy_a_metadata_zone_may_be_lost_in_use() {
    let (device, files) = filled(1);
    for (zone, _) in roles(&device).iter().filter(|(_, r)| *r == Role::Metadata) {
        for cached in [false, true] {
            let device = copy_of(&device);
            let options = Options {
                cache_bytes_max: if cached { 64 << 20 } else { 1 << 16 },
                ..Options::default()
            };
            let (volume, _) = Volume::open(device.clone(), options).unwrap();
            assert_eq!(unreadable(&volume, &files), []);
            device.set_offline(*zone);
            let examined = volume.step(Task::Examine);
            let cleaned = examined.and_then(|_| {
                while volume.step(Task::CleanIfDue)? == Progress::Worked {}
                Ok(())
            });
            let lost = unreadable(&volume, &files);
            if lost.is_empty() {
                cleaned.unwrap();
                work_on(&device, volume, files.clone(), None);
            } else {
                assert!(!cached && volume.is_read_only() && cleaned.is_err());
                assert!(matches!(create(&volume), Err(Error::ReadOnly { .. })));
            }
        }
    }
}

/// A zone that cannot be reset keeps the header of the volume before, which must not be taken for
/// the newer one.
#[test]
fn a_new_volume_is_not_taken_for_the_one_before() {
    let (device, _) = filled(1);
    let volume = open(&device).unwrap();
    let old = volume.identity().uuid;
    let written = volume
        .zones()
        .iter()
        .position(|status| status.entry.role == Role::Log)
        .unwrap();
    drop(volume);
    device.set_read_only(ZoneId(written as u32));
    let options = FormatOptions {
        uuid: [7; 16],
        now: NOW,
        ..FormatOptions::default()
    };
    Volume::format(device.clone(), &options).unwrap();
    let volume = open(&device).unwrap();
    assert_ne!(volume.identity().uuid, old);
    assert_eq!(volume.identity().uuid, [7; 16]);
}

/// The two zones that the log goes on in.
fn log_pair(device: &Arc<SimDevice>, report: &[ZoneInfo]) -> (ZoneId, ZoneId) {
    let log: Vec<ZoneId> = roles(device)
        .into_iter()
        .filter(|(zone, role)| *role == Role::Log && report[zone.0 as usize].state.is_active())
        .map(|(zone, _)| zone)
        .collect();
    let [first, second] = log[..] else {
        panic!("{log:?} are the log's zones")
    };
    (first, second)
}

/// A power cut left the last records in one zone of a log pair only. The recovery told in its first
/// block that they were durable; then that zone went offline and the power failed, before there
/// was a checkpoint. The next mount found that durable records were missing: the log was lost.
#[test]
fn what_one_zone_of_a_pair_has_is_not_called_durable() {
    let device = fresh_on(SimConfig::new(72, 64).capacity(60).host_file(), 2);
    let volume = open(&device).unwrap();
    let mut files = Files::new();
    fill(&volume, &mut files, 30);
    volume.step(Task::Checkpoint).unwrap();
    fill(&volume, &mut files, 5);
    let last = create(&volume).unwrap();
    volume.sync_metadata().unwrap();
    drop(volume);
    let report = device.report(0..72).unwrap();
    let (first, second) = log_pair(&device, &report);
    let mut outcomes = BTreeMap::new();
    for (lacking, failing) in [(first, second), (second, first)] {
        for commands in 0.. {
            let device = copy_of(&device);
            let end = report[lacking.0 as usize].write_pointer;
            assert!(device.corrupt(lacking, end - 1, 100, 1));
            let fault = Fault::of_zone(FaultTarget::Write, FaultKind::Offline);
            device.inject(fault.zone(failing));
            device.cut_after(commands);
            let recovered = open(&device).is_ok();
            let volume = open(&copy_of(&device)).unwrap();
            assert_eq!(unreadable(&volume, &files), []);
            let is_there = volume.attr(last).unwrap().is_some();
            assert!(is_there || !recovered);
            *outcomes.entry((recovered, is_there)).or_insert(0) += 1;
            if recovered {
                break;
            }
        }
    }
    // Before the checkpoint with the last record and without, and after it.
    assert_eq!(outcomes.len(), 3, "{outcomes:?}");
}

/// A power cut left a checkpoint's footer in one zone of a log pair only. The recovery named it in
/// its first block as one that is durable; then that zone went offline and the power failed, before
/// there was another checkpoint. The next mount looked for the footer in vain, though the one
/// before it was there and nothing that it needs had been reset.
#[test]
fn a_footer_that_one_zone_of_a_pair_has_is_not_called_durable() {
    let device = fresh_on(SimConfig::new(72, 64).capacity(60).host_file(), 2);
    let volume = open(&device).unwrap();
    let mut files = Files::new();
    fill(&volume, &mut files, 5);
    volume.step(Task::Checkpoint).unwrap();
    let last = create(&volume).unwrap();
    let resets = device.counters().resets;
    volume.step(Task::Checkpoint).unwrap();
    assert_eq!(device.counters().resets, resets);
    drop(volume);
    let report = device.report(0..72).unwrap();
    let (first, second) = log_pair(&device, &report);
    let mut recoveries = [0, 0];
    for (lacking, failing) in [(first, second), (second, first)] {
        for commands in 0.. {
            let device = copy_of(&device);
            let end = report[lacking.0 as usize].write_pointer;
            assert!(device.corrupt(lacking, end - 1, 100, 1));
            let fault = Fault::of_zone(FaultTarget::Write, FaultKind::Offline);
            device.inject(fault.zone(failing));
            device.cut_after(commands);
            let recovered = open(&device).is_ok();
            let volume = open(&copy_of(&device)).unwrap();
            assert_eq!(unreadable(&volume, &files), []);
            assert!(volume.attr(last).unwrap().is_some());
            recoveries[usize::from(recovered)] += 1;
            if recovered {
                break;
            }
        }
    }
    assert!(recoveries[0] > 8 && recoveries[1] == 2, "{recoveries:?}");
}

/// A zone that went offline after recovery had asked about the zones was read all the same, and
/// the mount failed.
#[test]
fn with_two_copies_any_zone_may_be_lost_while_recovering() {
    let device = fresh_on(SimConfig::new(72, 64).capacity(60).host_file(), 2);
    let volume = open(&device).unwrap();
    let mut files = Files::new();
    fill(&volume, &mut files, 60);
    volume.step(Task::Checkpoint).unwrap();
    fill(&volume, &mut files, 30);
    drop(volume);
    for reads in 0.. {
        let device = copy_of(&device);
        device.inject(Fault::of_zone(FaultTarget::Read, FaultKind::Offline).after(reads));
        let volume = open(&device).unwrap_or_else(|e| panic!("after {reads} reads: {e}"));
        if device.failed_zones() == 0 {
            assert!(reads > 8, "{reads}");
            break;
        }
        device.heal();
        assert!(!volume.is_read_only());
        let lost = volume.losses(1000).unwrap();
        let mut listed: Vec<Ino> = lost.ranges.iter().map(|range| range.ino).collect();
        listed.dedup();
        assert_eq!(unreadable(&volume, &files), listed, "after {reads} reads");
    }
}

/// Makes free zones fail until about so many are left.
fn leave_free(device: &SimDevice, volume: &Volume, left: usize) {
    let free: Vec<ZoneId> = volume
        .zones()
        .iter()
        .filter(|z| z.entry.role == Role::Free && z.failure.is_none())
        .map(|z| z.zone)
        .collect();
    let gone = free.len().saturating_sub(left);
    for zone in free.into_iter().take(gone) {
        device.set_read_only(zone);
    }
}

/// A file without room kept all that came behind it from becoming durable.
#[test]
fn what_finds_room_is_durable_when_something_else_finds_none() {
    let device = fresh(1);
    let options = Options {
        staging_bytes_max: 8 << 20,
        ..Options::default()
    };
    let (volume, _) = Volume::open(device.clone(), options).unwrap();
    let before = create(&volume).unwrap();
    volume
        .write(before, 0, &content(1, 4 * BLOCK_SIZE), NOW)
        .unwrap();
    volume.sync().unwrap();

    let large = create(&volume).unwrap();
    let large_content = content(2, 170 * BLOCK_SIZE);
    volume.write(large, 0, &large_content, NOW).unwrap();
    let small: Files = (0..5)
        .map(|i| (create(&volume).unwrap(), content(10 + i, 3 * BLOCK_SIZE)))
        .collect();
    for (ino, bytes) in &small {
        volume.write(*ino, 0, bytes, NOW).unwrap();
    }
    leave_free(&device, &volume, 2);
    let result = volume.sync();
    assert!(
        matches!(result, Err(Error::NoSpace | Error::WornOut { .. })),
        "{result:?}"
    );

    let after = open(&copy_of(&device)).unwrap();
    assert!(unreadable(&after, &small).is_empty());
    // Nor is anything forgotten that found no room.
    let mut found = vec![0; large_content.len()];
    volume.read(large, 0, &mut found).unwrap();
    assert!(found == large_content);
}

/// A checkpoint whose pages cannot all be written says so, and what it was for stays in the journal.
#[test]
fn a_tree_that_does_not_fit_ends_in_no_space() {
    let device = fresh(1);
    let volume = open(&device).unwrap();
    let mut files = Files::new();
    for _ in 0..6 {
        fill(&volume, &mut files, 90);
    }
    // What does not compress takes as many blocks as a page may.
    let change = |files: &mut dyn Iterator<Item = &Ino>, seed: usize| {
        for ino in files {
            let changed = volume.update::<_, Error>(Intent::Grow, |tx| {
                let key = Key::new(*ino, KeyKind::SYMLINK, 0);
                tx.put(key, content(seed + ino.0 as usize, 3000));
                Ok(())
            });
            changed.unwrap();
        }
    };
    change(&mut files.keys(), 1);
    volume.step(Task::Checkpoint).unwrap();
    // Nearly as many pages as may change at once do, and there is next to nothing to write them to.
    change(&mut files.keys().take(160), 2);
    leave_free(&device, &volume, 1);
    // Nor is there anything to be won.
    for zone in volume.zones() {
        if zone.entry.role == Role::Metadata && zone.entry.valid == 0 {
            device.set_read_only(zone.zone);
        }
    }
    let result = volume.step(Task::Checkpoint);
    assert!(
        matches!(result, Err(Error::NoSpace | Error::WornOut { .. })),
        "{result:?}"
    );
    // Nothing is lost: it is in the journal.
    assert!(unreadable(&volume, &files).is_empty());
    let after = Options {
        read_only: true,
        ..Options::default()
    };
    let (after, _) = Volume::open(copy_of(&device), after).unwrap();
    assert!(unreadable(&after, &files).is_empty());
}

/// On a full volume there is no room for what a failed zone has: each look at it wrote a checkpoint, some twenty a second, for ever.
#[test]
fn a_failed_zone_without_room_for_what_it_has_leaves_a_full_volume_idle() {
    let device = fresh(1);
    let volume = open(&device).unwrap();
    let mut files = Files::new();
    let full = loop {
        let ino = create(&volume).unwrap();
        let bytes = content(files.len(), 40 * BLOCK_SIZE);
        match volume.write(ino, 0, &bytes, NOW) {
            Ok(written) if written == bytes.len() => {}
            _ => break ino,
        }
        if volume.sync_file(ino).is_err() {
            break ino;
        }
        files.insert(ino, bytes);
    };
    volume.truncate(full, 0, NOW).unwrap();
    volume.sync().unwrap();
    let zones = volume.zones();
    let data = zones.iter().filter(|zone| zone.entry.role == Role::Data);
    // More than the volume keeps free.
    let failed: Vec<ZoneId> = data.map(|zone| zone.zone).take(16).collect();
    failed.iter().for_each(|zone| device.set_read_only(*zone));
    volume.step(Task::Examine).unwrap();
    for _ in 0..500 {
        for task in [Task::CleanIfDue, Task::FreeIfDue] {
            volume.step(task).unwrap();
        }
    }
    let before = volume.statistics().checkpoints;
    for _ in 0..500 {
        volume.step(Task::CleanIfDue).unwrap();
    }
    let more = volume.statistics().checkpoints - before;
    let left = || {
        let zones = volume.zones();
        let is_left = |zone: &&ZoneId| zones[zone.0 as usize].entry.role != Role::Retired;
        failed.iter().filter(is_left).count()
    };
    assert!(left() > 0, "there was room for all");
    assert!(more <= 1, "{more} checkpoints while idle");
    assert_eq!(unreadable(&volume, &files), []);
    // Once there is room it is emptied.
    for ino in files
        .keys()
        .copied()
        .take(files.len() / 2)
        .collect::<Vec<_>>()
    {
        volume.truncate(ino, 0, NOW).unwrap();
    }
    volume.step(Task::Checkpoint).unwrap();
    for _ in 0..100 {
        while volume.step(Task::CleanIfDue).unwrap() == Progress::Worked {}
        volume.step(Task::Checkpoint).unwrap();
    }
    assert_eq!(left(), 0);
}
