//! Single commands that fail on a healthy device: the volume goes on, at the cost of what failed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failure ends the test"
)]

use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::interrupted::Interrupted;
use crate::common::{NOW, create, fresh, noise, open, open_staging, small};
use persimmon_device::{BLOCK_SIZE, Command, DeviceError, ZonedDevice};
use persimmon_engine::{Error, FormatOptions, Options, Seek, Task, Volume};
use persimmon_format::Lifetime;
use persimmon_format::page::PAGE_SIZE;
use persimmon_sim::{Fault, FaultKind, FaultTarget, SimConfig, SimDevice};

/// A batch for fsync over several zones knew of one failed write only that something had failed:
/// written again, it found an "earlier write" failed in each zone that it had been in, left them
/// all, and gave up after the fourth. The volume was read-only.
#[test]
fn a_large_fsync_outlives_any_one_failed_write() {
    let content: Vec<u8> = (0..24 << 20)
        .map(|i| (i / BLOCK_SIZE % 251) as u8)
        .collect();
    // The first is the header of a zone; then there are 24 MiB in commands of up to 1 MiB, and the
    // summaries.
    for command in (0..44).step_by(3) {
        let device = fresh(SimConfig::new(80, 2048).fast());
        let volume = open_staging(&device, 32 << 20).unwrap();
        let ino = create(&volume).unwrap();
        volume.sync().unwrap();
        volume.write(ino, 0, &content, NOW).unwrap();
        device.inject(Fault::once(FaultTarget::Write).after(command));
        volume.sync_file(ino).unwrap();
        assert!(!volume.is_read_only(), "command {command}");
        assert!(device.counters().finishes <= 1, "command {command}");
        let mut found = vec![0; content.len()];
        volume.read(ino, 0, &mut found).unwrap();
        assert!(found == content, "command {command}");
        // And what follows is durable without more ado.
        volume.write(ino, 0, &[7; 3 * BLOCK_SIZE], NOW).unwrap();
        volume.sync_file(ino).unwrap();
        assert!(device.counters().finishes <= 1, "command {command}");
    }
}

/// On a volume that an error had made read-only a file that waited to be written was a hole to `SEEK_DATA`: who copied
/// what could still be read got zeros. Found by clients at once on a device that takes no more writes.
#[test]
fn what_cannot_be_written_is_data_to_who_saves_it() {
    let device = fresh(small());
    let volume = open(&device);
    let ino = create(&volume).unwrap();
    volume.sync().unwrap();
    let content = noise(5, 2 * BLOCK_SIZE + 88);
    volume.write(ino, 0, &content, NOW).unwrap();
    device.inject(Fault::for_ever(FaultTarget::Write));
    volume.sync_file(ino).unwrap_err();
    volume.make_read_only();
    let mut found = vec![0; content.len()];
    assert_eq!(volume.read(ino, 0, &mut found).unwrap(), content.len());
    assert_eq!(found, content);
    let end = content.len() as u64;
    assert_eq!(volume.seek(ino, 5, Seek::Data).unwrap(), Some(5));
    assert_eq!(volume.seek(ino, 5, Seek::Hole).unwrap(), Some(end));
    assert_eq!(volume.seek(ino, end, Seek::Data).unwrap(), None);
}

/// A host without room for the next zone of the log broke the log until the next mount, though its
/// own message says "free space there and try again"; and zone after zone was left on the way.
#[test]
fn a_full_host_is_a_passing_state() {
    for copies in [1, 2] {
        // Space is set aside for zones that are open; but not every host can do that.
        for target in [FaultTarget::OpenClose, FaultTarget::Write] {
            full_host(copies, target);
        }
    }
}

fn full_host(copies: u32, target: FaultTarget) {
    let device = Arc::new(SimDevice::new(SimConfig::new(64, 64)));
    let options = FormatOptions {
        now: NOW,
        copies,
        ..FormatOptions::default()
    };
    Volume::format(device.clone(), &options).unwrap();
    let volume = open(&device);
    let ino = create(&volume).unwrap();
    volume.sync().unwrap();
    let mut refused = 0;
    for round in 0..30u8 {
        volume.step(Task::Checkpoint).unwrap();
        device.inject(Fault {
            times: None,
            ..Fault::of_zone(target, FaultKind::HostFull)
        });
        let finishes = device.counters().finishes;
        for i in 0..40u64 {
            volume.write(ino, i * 16, &[round; 16], NOW).unwrap();
            match volume.sync_file(ino) {
                Ok(()) => {}
                Err(Error::Device(DeviceError::HostFull)) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        let finished = device.counters().finishes - finishes;
        assert!(finished == 0 || target == FaultTarget::Write);
        device.heal();
        volume.sync_file(ino).unwrap();
        assert!(!volume.is_read_only());
        let left = open(&Arc::new(device.persisted(round.into())));
        let mut found = [0; 640];
        left.read(ino, 0, &mut found).unwrap();
        assert_eq!(found, [round; 640], "round {round}");
    }
    assert!(refused > 0);
}

/// The data of a sync failed, and so did the way of its record into the log. Mapped elsewhere before anybody had counted
/// it as failed, it was counted afterwards, for ever: each checkpoint waited for it, this sync's own first.
#[test]
fn a_sync_whose_data_and_record_both_fail_ends() {
    for (after, times) in (0..4).flat_map(|after| (1..3).map(move |times| (after, times))) {
        let device = fresh(SimConfig::new(40, 128).capacity(120));
        let volume = Arc::new(open(&device));
        let (ino, other) = (create(&volume).unwrap(), create(&volume).unwrap());
        volume
            .write(ino, 0, &noise(1, 16 * BLOCK_SIZE), NOW)
            .unwrap();
        volume.sync().unwrap();
        let content = noise(2, 16 * BLOCK_SIZE);
        volume.write(ino, 0, &content, NOW).unwrap();
        device.inject(Fault {
            times: Some(times),
            ..Fault::of_zone(FaultTarget::Write, FaultKind::HostFull).after(after)
        });
        let (ended, waiting) = std::sync::mpsc::channel();
        let at_work = Arc::clone(&volume);
        let sync = move || {
            let _ = at_work.sync_file(ino);
            while let Err(error) = at_work.step(Task::Checkpoint) {
                assert!(
                    matches!(error, Error::Device(DeviceError::HostFull)),
                    "{error}"
                );
            }
            ended.send(()).unwrap();
        };
        let thread = std::thread::spawn(sync);
        let ended = waiting.recv_timeout(std::time::Duration::from_secs(120));
        assert!(
            ended.is_ok(),
            "{after} {times}: a checkpoint waits for ever"
        );
        thread.join().unwrap();
        device.heal();
        volume.write(other, 0, &[3; 100], NOW).unwrap();
        volume.sync().unwrap();
        assert!(!volume.is_read_only(), "{after} {times}");
        let left = open(&Arc::new(device.persisted(after)));
        let mut found = vec![0; content.len()];
        left.read(ino, 0, &mut found).unwrap();
        assert!(found == content, "{after} {times}");
    }
}

/// What was written to the range was thrown away first: the hole could not be made, and the file was as before the write.
#[test]
fn a_hole_that_cannot_be_made_loses_nothing() {
    let device = fresh(SimConfig::new(40, 512));
    let volume = open(&device);
    let ino = create(&volume).unwrap();
    // An extent each, over several leaves.
    for block in (0..2000).step_by(2) {
        let bytes = noise(block, BLOCK_SIZE);
        volume.write(ino, block * 4096, &bytes, NOW).unwrap();
    }
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    drop(volume);
    let volume = open(&device);
    let place = 1000 * 4096;
    volume.write(ino, place, &[7; BLOCK_SIZE], NOW).unwrap();
    device.inject(Fault::for_ever(FaultTarget::Read));
    assert!(volume.punch(ino, place, 4096, NOW).is_err());
    device.heal();
    let mut found = [0; BLOCK_SIZE];
    volume.read(ino, place, &mut found).unwrap();
    assert_eq!(found, [7; BLOCK_SIZE]);
    volume.punch(ino, place, 4096, NOW).unwrap();
    volume.read(ino, place, &mut found).unwrap();
    assert_eq!(found, [0; BLOCK_SIZE]);
}

/// A batch of several records failed after some of them, and the file did not know that it had grown in the history: a
/// truncation took the history's size for less, and left blocks behind the file's end.
#[test]
fn what_is_truncated_after_half_a_batch_has_no_blocks_behind_its_end() {
    let (stride, count) = (800, 40);
    let options = || Options {
        cache_bytes_max: 64 * PAGE_SIZE,
        staging_bytes_max: 1 << 20,
        ..Options::default()
    };
    let device = fresh(SimConfig::new(40, 2048));
    let volume = open(&device);
    let ino = create(&volume).unwrap();
    // Leaves enough that each record needs some that are in none before.
    for block in (0..stride * count).step_by(2) {
        let reserved = volume.preallocate(ino, block * 4096, 4096, true, NOW);
        reserved.unwrap();
    }
    volume.sync().unwrap();
    volume.close().unwrap();
    drop(volume);
    let mut halfway = 0;
    for reads in 0..40 {
        let device = Arc::new(device.persisted(0));
        let volume = Volume::open(device.clone(), options()).unwrap().0;
        for at in 0..count {
            let bytes = noise(at, BLOCK_SIZE);
            let hint = Some(Lifetime::Short);
            let offset = at * stride * 4096;
            volume.write_hinted(ino, offset, &bytes, NOW, hint).unwrap();
        }
        device.inject(Fault::for_ever(FaultTarget::Read).after(reads));
        let synced = volume.sync_file(ino);
        device.heal();
        let size_of = |volume: &Volume| {
            let inode = volume.view::<_, Error>(|view| view.inode(ino)).unwrap();
            inode.unwrap().size
        };
        let grown = size_of(&volume);
        halfway += u64::from(synced.is_err() && grown > 0);
        volume.truncate(ino, grown / 2 + 1, NOW).unwrap();
        volume.sync_metadata().unwrap();
        let left = open(&Arc::new(device.persisted(reads)));
        let end = size_of(&left);
        left.truncate(ino, 1 << 40, NOW).unwrap();
        let behind = left.seek(ino, end.next_multiple_of(4096), Seek::Data);
        assert_eq!(behind.unwrap(), None, "{reads}: a size of {end}");
    }
    assert!(halfway > 0, "no batch failed between two records");
}

/// No zone in use holds less than its entry says.
fn entries_fit(device: &SimDevice, volume: &Volume, command: u64) {
    let report = device.report(0..40).unwrap();
    for (status, info) in volume.zones().iter().zip(report) {
        let (entry, zone) = (status.entry, status.zone);
        let fits = entry.valid == 0 || entry.write_pointer <= info.write_pointer;
        assert!(fits, "zone {zone}, command {command}: {entry:?}, {info:?}");
    }
}

/// A zone in which a write had failed, and which could not be finished then, stood in the zone table
/// with blocks that it does not have; fsck told of a zone that holds less than its entry says.
#[test]
fn a_zone_that_cannot_be_finished_is_entered_as_it_is() {
    for command in 0..16 {
        let device = fresh(SimConfig::new(40, 128).capacity(120));
        let volume = open(&device);
        let ino = create(&volume).unwrap();
        volume.write(ino, 0, &[1; 5 * BLOCK_SIZE], NOW).unwrap();
        volume.sync().unwrap();
        volume.step(Task::Checkpoint).unwrap();
        device.inject(Fault::for_ever(FaultTarget::Finish));
        device.inject(Fault::once(FaultTarget::Write).after(command));
        volume.write(ino, 9000, &[2; 30 * BLOCK_SIZE], NOW).unwrap();
        volume.sync().unwrap();
        volume.step(Task::Checkpoint).unwrap();
        entries_fit(&device, &volume, command);
    }
}

/// The same for a zone that a sync fills up: its writer is gone when the failure is seen.
#[test]
fn a_zone_filled_by_a_failed_sync_is_entered_as_it_is() {
    for command in 0..12 {
        let device = fresh(SimConfig::new(40, 128).capacity(120));
        let volume = open(&device);
        let (other, ino) = (create(&volume).unwrap(), create(&volume).unwrap());
        let bytes = noise(1, 240 * BLOCK_SIZE);
        volume
            .write(other, 0, &bytes[..9 * BLOCK_SIZE], NOW)
            .unwrap();
        volume.sync_file(other).unwrap();
        device.inject(Fault::for_ever(FaultTarget::Finish));
        device.inject(Fault::once(FaultTarget::Write).after(command));
        volume.write(ino, 0, &bytes, NOW).unwrap();
        volume.sync_file(ino).unwrap();
        volume.step(Task::Checkpoint).unwrap();
        entries_fit(&device, &volume, command);
    }
}

/// A recovery on a device that takes no writes tried four zones and left them behind. They were only
/// reset by the next checkpoint: after a few such mounts there was no room for one, nor for the log,
/// and the volume was full for good.
#[test]
fn mounts_on_a_device_that_takes_no_writes_use_nothing_up() {
    for seed in 0..8 {
        let device = fresh(small().host_file());
        let volume = open(&device);
        let mut inos = Vec::new();
        while let Ok(ino) = create(&volume)
            && volume.write(ino, 0, &noise(ino.0, 1 << 18), NOW).is_ok()
        {
            inos.push(ino);
        }
        volume.sync().unwrap();
        drop(volume);
        let device = Arc::new(device.snapshot().intact());
        device.reseed(seed);
        for _ in 0..12 {
            device.inject(Fault::for_ever(FaultTarget::Write));
            assert!(open_staging(&device, 1 << 20).is_err());
            device.heal();
        }
        let volume = open(&device);
        for ino in inos {
            volume.truncate(ino, 0, NOW).unwrap();
        }
        volume.step(Task::Checkpoint).unwrap();
        volume.close().unwrap();
    }
}

/// Where no zone could be reset any more a sync was answered "no space left on the volume", which was nearly empty: who
/// believed it removed files, and that frees nothing.
#[test]
fn where_no_zone_can_be_reset_the_device_is_why() {
    let device = fresh(small());
    let volume = open(&device);
    let ino = create(&volume).unwrap();
    volume.sync().unwrap();
    device.inject(Fault::for_ever(FaultTarget::Reset));
    let content = noise(1, 64 * BLOCK_SIZE);
    let error = (0..1000).find_map(|_| {
        let written = volume.write(ino, 0, &content, NOW);
        written.and_then(|_| volume.sync_file(ino)).err()
    });
    let error = error.expect("zones run out");
    assert!(matches!(error, Error::ResetsFail { .. }), "{error}");
    // It passes.
    device.heal();
    volume.step(Task::Checkpoint).unwrap();
    volume.write(ino, 0, &content, NOW).unwrap();
    volume.sync_file(ino).unwrap();
    assert!(!volume.is_read_only());
}

/// A writer that found the staging full looked for room until there was some, and asked for nothing else: once the volume takes
/// no changes none ever is.
#[test]
fn who_waits_for_room_in_the_staging_is_told_when_the_volume_takes_no_changes() {
    let device = fresh(SimConfig::new(80, 2048).fast());
    let interrupted = Interrupted::new(&device);
    let options = Options {
        staging_bytes_max: 1 << 20,
        ..Options::default()
    };
    let (volume, _) = Volume::open(interrupted.clone() as _, options).unwrap();
    let volume = Arc::new(volume);
    let (full, other) = (create(&volume).unwrap(), create(&volume).unwrap());
    volume.sync().unwrap();
    volume.write(full, 0, &noise(1, 1 << 20), NOW).unwrap();
    let (under_way, started) = mpsc::channel();
    let (go_on, gone_on) = mpsc::channel::<()>();
    let aside = move || {
        under_way.send(()).unwrap();
        let _ = gone_on.recv();
    };
    let is_write =
        |command: &Command| matches!(command, Command::Write { .. } | Command::Append { .. });
    interrupted.before(is_write, Box::new(aside));
    let writing_back = Arc::clone(&volume);
    let batch = std::thread::spawn(move || writing_back.step(Task::WriteBack).map(drop));
    started.recv().unwrap();
    let (over, ended) = mpsc::channel();
    let writing = Arc::clone(&volume);
    std::thread::spawn(move || over.send(writing.write(other, 0, &[1; BLOCK_SIZE], NOW)));
    let waits = ended.recv_timeout(Duration::from_millis(200));
    assert!(waits.is_err(), "the staging is full: {waits:?}");
    volume.make_read_only();
    // Nobody waits so long but for ever.
    let told = ended.recv_timeout(Duration::from_secs(120));
    go_on.send(()).unwrap();
    let told = told.expect("it waits for ever");
    assert!(matches!(told, Err(Error::ReadOnly { .. })), "{told:?}");
    let _ = batch.join();
}
