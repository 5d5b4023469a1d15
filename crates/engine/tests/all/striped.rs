//! Volumes whose zones are stripe sets: copies of all, and parity of data. Any one zone of the device can be lost, and nothing is.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure ends the test")]

use std::sync::Arc;

use crate::common::{NOW, create, noise};
use persimmon_device::{DeviceError, Striped, Stripes, ZoneId, ZoneState, ZonedDevice};
use persimmon_engine::{
    CloneRange, CloneWhen, Damage, Error, FormatOptions, Layout, Options, Progress, ScrubCursor,
    Shift, Task, Volume,
};
use persimmon_format::table::Role;
use persimmon_format::{Compression, Ino};
use persimmon_sim::device::{Sampled, Snapshot};
use persimmon_sim::{Fault, FaultKind, FaultTarget, SimConfig, SimDevice};

const PARITY: Stripes = Stripes {
    columns: 3,
    metadata_sets: 24,
};
const KINDS: [Stripes; 2] = [Stripes::MIRROR, PARITY];

fn fresh() -> Arc<SimDevice> {
    Arc::new(SimDevice::new(SimConfig::new(162, 128).capacity(120)))
}

fn open_with(below: &Arc<SimDevice>, stripes: Stripes, options: Options) -> Volume {
    let device = Striped::new(below.clone(), stripes, !options.read_only).unwrap();
    Volume::open(Arc::new(device), options).unwrap().0
}

fn open(below: &Arc<SimDevice>, stripes: Stripes) -> Volume {
    let options = Options {
        compression: Compression::Lz4,
        ..Options::default()
    };
    open_with(below, stripes, options)
}

/// Content that compresses, or does not, by the number of the file.
fn content(ino: Ino, len: usize) -> Vec<u8> {
    if ino.0.is_multiple_of(2) {
        noise(ino.0, len)
    } else {
        (0..len)
            .map(|at| (at / 64 + ino.0 as usize) as u8)
            .collect()
    }
}

fn format(below: &Arc<SimDevice>, stripes: Stripes, uuid: [u8; 16]) {
    let device = Striped::new(below.clone(), stripes, true).unwrap();
    let options = FormatOptions {
        now: NOW,
        uuid,
        ..FormatOptions::default()
    };
    Volume::format(Arc::new(device), &options).unwrap();
}

/// A volume with files of many sizes, some overwritten, synced one by one and together.
fn written(below: &Arc<SimDevice>, stripes: Stripes) -> Vec<(Ino, usize)> {
    written_as(below, stripes, FormatOptions::default().uuid)
}

fn written_as(below: &Arc<SimDevice>, stripes: Stripes, uuid: [u8; 16]) -> Vec<(Ino, usize)> {
    format(below, stripes, uuid);
    let volume = open(below, stripes);
    let mut files = Vec::new();
    for len in [100, 3000, 5000, 40_000, 300_000, 1_000_000] {
        for _ in 0..6 {
            let ino = create(&volume).unwrap();
            volume.write(ino, 0, &noise(99, len), NOW).unwrap();
            volume.sync_file(ino).unwrap();
            files.push((ino, len));
        }
    }
    volume.step(Task::Checkpoint).unwrap();
    for (number, (ino, len)) in files.iter().enumerate() {
        volume.write(*ino, 0, &content(*ino, *len), NOW).unwrap();
        if number % 2 == 0 {
            volume.sync_file(*ino).unwrap();
        }
    }
    volume.sync().unwrap();
    files
}

#[track_caller]
fn compare(volume: &Volume, files: &[(Ino, usize)]) {
    for (ino, len) in files {
        let mut buf = vec![0; *len];
        assert_eq!(volume.read(*ino, 0, &mut buf).unwrap(), *len);
        assert!(buf == content(*ino, *len), "inode {ino}");
    }
}

/// Background work until there is none left.
fn rest(volume: &Volume) {
    volume.step(Task::Examine).unwrap();
    for _ in 0..2000 {
        if volume.step(Task::CleanIfDue).unwrap() == Progress::Idle {
            break;
        }
    }
    volume.step(Task::Checkpoint).unwrap();
}

fn scrub(volume: &Volume) -> Vec<Damage> {
    let mut cursor = Some(ScrubCursor::default());
    let mut found = Vec::new();
    while let Some(at) = cursor {
        let step = volume.scrub_step(at, 256).unwrap();
        found.extend(step.findings.iter().map(|finding| finding.damage));
        cursor = step.next;
    }
    found
}

#[test]
fn any_zone_may_be_lost() {
    for stripes in KINDS {
        let below = fresh();
        let files = written(&below, stripes);
        compare(&open(&below, stripes), &files);
        for lost in 0..below.geometry().zone_count {
            let below = Arc::new(below.snapshot().intact());
            below.set_offline(ZoneId(lost));
            let volume = open(&below, stripes);
            compare(&volume, &files);
            let ino = create(&volume).unwrap();
            volume.write(ino, 0, &content(ino, 50_000), NOW).unwrap();
            volume.sync_file(ino).unwrap();
            rest(&volume);
            drop(volume);
            // What was in its set is elsewhere by now: another zone of it may go.
            let neighbour = ZoneId(lost ^ 1);
            below.set_offline(neighbour);
            let volume = open(&below, stripes);
            compare(&volume, &files);
            compare(&volume, &[(ino, 50_000)]);
        }
    }
}

/// Has a zone hold what another one does, of this device or of another, as far as both are written.
fn put_over(below: &SimDevice, zone: u32, from: &SimDevice, other: u32) {
    let end = |device: &SimDevice, zone| device.report(zone..zone + 1).unwrap()[0].write_pointer;
    for block in 0..end(below, zone).min(end(from, other)) {
        let content = from.read(ZoneId(other), block, 1).unwrap();
        assert!(below.replace(ZoneId(zone), block, content));
    }
}

/// A header of another volume, or of another zone, was believed because it is intact: the volume could not be mounted, or all that was synced
/// since the checkpoint was gone.
#[test]
fn any_zone_may_hold_what_belongs_elsewhere() {
    for stripes in KINDS {
        let (below, foreign) = (fresh(), fresh());
        let files = written(&below, stripes);
        written_as(&foreign, stripes, [9; 16]);
        let zones = below.geometry().zone_count;
        let is_written = |zone: &u32| below.report(*zone..zone + 1).unwrap()[0].write_pointer > 0;
        let used: Vec<u32> = (0..zones).filter(is_written).collect();
        for zone in &used {
            let others = [used[0], used[used.len() / 2], used[used.len() - 1]];
            let sources = others.map(|other| (&below, other));
            for (from, other) in sources.into_iter().chain([(&foreign, *zone)]) {
                let damaged = Arc::new(below.snapshot().intact());
                put_over(&damaged, *zone, from, other);
                let volume = open(&damaged, stripes);
                compare(&volume, &files);
            }
        }
    }
}

/// The same where the log is in one zone, which alone names the volume: the other volume was taken for the one that is there.
#[test]
fn so_may_the_only_zone_of_the_log() {
    for stripes in KINDS {
        let made = |uuid| {
            let below = fresh();
            format(&below, stripes, uuid);
            below
        };
        let (below, foreign) = (made([0; 16]), made([9; 16]));
        drop(open(&foreign, stripes));
        let volume = open(&below, stripes);
        let ino = create(&volume).unwrap();
        volume.write(ino, 0, &content(ino, 50_000), NOW).unwrap();
        volume.sync_file(ino).unwrap();
        drop(volume);
        for zone in 0..below.geometry().zone_count {
            let damaged = Arc::new(below.snapshot().intact());
            put_over(&damaged, zone, &foreign, zone);
            compare(&open(&damaged, stripes), &[(ino, 50_000)]);
        }
    }
}

#[test]
fn a_zone_may_be_lost_while_it_is_written_to() {
    for stripes in KINDS {
        for lost in 0..40 {
            let below = fresh();
            let mut files = written(&below, stripes);
            let volume = open(&below, stripes);
            for number in 0..12 {
                if number == 5 {
                    below.set_offline(ZoneId(lost));
                }
                let ino = create(&volume).unwrap();
                volume.write(ino, 0, &content(ino, 70_000), NOW).unwrap();
                volume.sync_file(ino).unwrap();
                files.push((ino, 70_000));
            }
            compare(&volume, &files);
            drop(volume);
            compare(&open(&below, stripes), &files);
        }
    }
}

#[test]
fn a_scrub_has_what_is_left_once_written_anew() {
    for stripes in KINDS {
        let below = fresh();
        let files = written(&below, stripes);
        let volume = open(&below, stripes);
        assert_eq!(scrub(&volume), []);
        rest(&volume);
        drop(volume);
        // Of each set one zone has something wrong in every fifth block.
        let layout = Striped::new(below.clone(), stripes, true).unwrap();
        let sets = layout.geometry().zone_count;
        let mut first = 0;
        for set in 0..sets {
            let zones = if set < stripes.metadata_sets {
                2
            } else {
                stripes.columns + 1
            };
            for block in (0..120).filter(|block| (block + set) % 5 == 0) {
                below.corrupt(ZoneId(first + set % zones), block, 77, 1);
            }
            first += zones;
        }
        let volume = open(&below, stripes);
        compare(&volume, &files);
        let found = scrub(&volume);
        assert!(!found.is_empty());
        assert!(
            found.iter().all(|damage| *damage == Damage::Copy),
            "{found:?}"
        );
        // What is open is looked at once it is not.
        drop(volume);
        let volume = open(&below, stripes);
        for _ in 0..4 {
            scrub(&volume);
            rest(&volume);
        }
        compare(&volume, &files);
    }
}

/// It was told as written anew elsewhere, and every scrub told the same again: a set that is written to is emptied once it is full.
#[test]
fn what_a_set_that_is_written_to_lacks_is_told_to_stay_until_it_is_full() {
    let below = fresh();
    let files = written(&below, Stripes::MIRROR);
    let volume = open(&below, Stripes::MIRROR);
    volume.write(files[0].0, 0, &[1; 50_000], NOW).unwrap();
    volume.sync().unwrap();
    let newest = |role| {
        let zones = volume.zones().into_iter();
        let of_role = zones.filter(move |zone| zone.entry.role == role);
        let newest = of_role.max_by_key(|zone| zone.entry.sequence).unwrap();
        newest.zone
    };
    for (count, set) in (1..).zip([newest(Role::Data), newest(Role::Log)]) {
        assert!(below.corrupt(ZoneId(2 * set.0 + 1), 0, 99, 1));
        let step = volume.scrub_step(ScrubCursor::default(), 1 << 20).unwrap();
        assert_eq!(step.findings.len(), count, "{step:?}");
        for finding in step.findings {
            assert!(
                finding.reason.ends_with("once the set is full"),
                "{finding:?}"
            );
        }
    }
}

/// A read-only opening writes nothing, whatever a crash left.
#[test]
fn what_is_opened_for_reading_is_left_as_it_is() {
    for stripes in KINDS {
        let below = fresh();
        let files = written(&below, stripes);
        let before = below.counters();
        let options = Options {
            read_only: true,
            ..Options::default()
        };
        compare(&open_with(&below, stripes, options), &files);
        assert_eq!(below.counters().changes(), before.changes());
    }
}

/// What the power may leave of a volume while something is done to its small files.
struct Crashed {
    stripes: Stripes,
    files: Vec<Ino>,
    seed: u64,
    moments: Vec<Snapshot>,
}

impl Crashed {
    fn new(seed: u64, stripes: Stripes, change: impl Fn(&Volume, Ino, usize)) -> Crashed {
        let mut config = SimConfig::new(162, 128).capacity(120).reordering(seed);
        config = if seed.is_multiple_of(3) {
            config.host_file()
        } else {
            config
        };
        config.tears_blocks = true;
        let below = Arc::new(SimDevice::new(config));
        let device = Striped::new(below.clone(), stripes, true).unwrap();
        let options = FormatOptions {
            now: NOW,
            ..FormatOptions::default()
        };
        Volume::format(Arc::new(device), &options).unwrap();
        let volume = open(&below, stripes);
        let files: Vec<Ino> = (0..12).map(|_| create(&volume).unwrap()).collect();
        volume.sync().unwrap();
        below.record_snapshots(3);
        for (number, ino) in files.iter().enumerate() {
            change(&volume, *ino, 4096 * (1 + number % 5));
        }
        Crashed {
            stripes,
            files,
            seed,
            moments: below.take_snapshots(),
        }
    }

    /// With files that are written and synced.
    fn written(seed: u64, stripes: Stripes) -> Crashed {
        Crashed::new(seed, stripes, |volume, ino, len| {
            volume.write(ino, 0, &content(ino, len), NOW).unwrap();
            volume.sync_file(ino).unwrap();
        })
    }

    /// The device after a power cut at some of the moments.
    fn devices(&self, count: usize) -> impl Iterator<Item = Arc<SimDevice>> {
        let moments = self.moments.iter().take(count);
        moments.map(|moment| Arc::new(moment.persisted(&mut Sampled::new(self.seed))))
    }

    /// What a mount finds in the files.
    fn found(&self, below: &Arc<SimDevice>, what: &str) -> Vec<Vec<u8>> {
        let volume = open(below, self.stripes);
        let read = self.files.iter().map(|ino| {
            let mut buf = vec![0; 8 * 4096];
            match volume.read(*ino, 0, &mut buf) {
                Ok(read) => buf.truncate(read),
                Err(error) => panic!("seed {}, {:?}, {what}: {error}", self.seed, self.stripes),
            }
            buf
        });
        read.collect()
    }

    /// A mount finds the same without any one zone, of those that hold something and are `of` these.
    fn survives(&self, below: &Arc<SimDevice>, believed: &[Vec<u8>], of: impl Fn(u32) -> bool) {
        let zones = below.report(0..below.geometry().zone_count).unwrap();
        let used = (0..).zip(zones);
        let used = used.filter(|(zone, info)| info.state != ZoneState::Empty && of(*zone));
        for (lost, _) in used {
            let below = Arc::new(below.snapshot().intact());
            below.set_offline(ZoneId(lost));
            let what = format!("without zone {lost}");
            assert!(
                self.found(&below, &what) == believed,
                "seed {}, {:?}, {what}",
                self.seed,
                self.stripes
            );
        }
    }
}

/// What recovery believes after a crash, torn blocks included, does not hang on one zone when the mount is done.
#[test]
fn what_recovery_found_survives_the_loss_of_any_zone() {
    let mut torn = 0;
    for (seed, stripes) in (0..24).flat_map(|seed| KINDS.map(|stripes| (seed, stripes))) {
        let crashed = Crashed::written(seed, stripes);
        for below in crashed.devices(6) {
            let before = below.counters().written_blocks();
            let believed = crashed.found(&below, "after the crash");
            torn += u32::from(below.counters().written_blocks() > before);
            let step = 1 + seed as u32 % 3;
            crashed.survives(&below, &believed, |lost| lost.is_multiple_of(step));
        }
    }
    assert!(torn > 0);
}

/// The same where the power fails again, at any moment of the mount.
#[test]
fn a_mount_that_is_cut_off_leaves_nothing_on_one_zone_for_good() {
    for (seed, stripes) in (0..8).flat_map(|seed| KINDS.map(|stripes| (seed, stripes))) {
        let crashed = Crashed::written(seed, stripes);
        for once in crashed.devices(6) {
            for commands in 0..40 {
                let below = Arc::new(once.snapshot().intact());
                below.cut_after(commands);
                if let Ok(device) = Striped::new(below.clone(), stripes, true) {
                    let _ = Volume::open(Arc::new(device), Options::default());
                }
                if !below.is_cut() {
                    break;
                }
                let below = Arc::new(below.persisted(seed + commands));
                let believed = crashed.found(&below, "after two crashes");
                crashed.survives(&below, &believed, |_| true);
            }
        }
    }
}

/// The same where the journal is longer than it may be, so that there is a checkpoint as soon as may be. It came before what hung on one
/// zone was written anew, and was all that the next mount knew.
#[test]
fn a_checkpoint_comes_after_what_is_written_anew() {
    let mut written_anew = 0;
    for seed in 0..24 {
        let crashed = Crashed::new(seed, Stripes::MIRROR, |volume, ino, len| {
            for _ in 0..8 {
                volume.write(ino, 0, &content(ino, len), NOW).unwrap();
                volume.sync_file(ino).unwrap();
            }
        });
        // The journal is full by then.
        for moment in crashed.moments.iter().rev().step_by(3).take(6) {
            let once = Arc::new(moment.persisted(&mut Sampled::new(seed)));
            let options = || Options {
                journal_bytes_max: 1 << 12,
                ..Options::default()
            };
            let whole = Arc::new(once.snapshot().intact());
            let volume = open_with(&whole, Stripes::MIRROR, options());
            if volume.statistics().blocks_moved == 0 {
                continue;
            }
            written_anew += 1;
            for commands in 0..80 {
                let below = Arc::new(once.snapshot().intact());
                below.cut_after(commands);
                if let Ok(device) = Striped::new(below.clone(), Stripes::MIRROR, true) {
                    let _ = Volume::open(Arc::new(device), options());
                }
                if !below.is_cut() {
                    break;
                }
                let below = Arc::new(below.persisted(seed + commands));
                let believed = crashed.found(&below, "after two crashes");
                crashed.survives(&below, &believed, |_| true);
            }
        }
    }
    assert!(written_anew > 0);
}

/// The same where later records of what was under way have the data elsewhere: at other blocks of the file, or shared with another
/// one and then there alone.
#[test]
fn what_was_moved_before_the_crash_survives_the_loss_of_any_zone() {
    for (seed, stripes) in (0..24).flat_map(|seed| KINDS.map(|stripes| (seed, stripes))) {
        let crashed = Crashed::new(seed, stripes, |volume, ino, len| {
            volume.write(ino, 0, &content(ino, len), NOW).unwrap();
            if ino.0 % 4 < 2 {
                let range = (0, 4096);
                let layout = Layout::of(volume);
                layout.shift(ino, range, Shift::Insert, NOW).unwrap();
            } else {
                // The one before it gets what this one has, and this one loses it.
                let to = Ino(ino.0 - 1);
                let range = CloneRange {
                    from: ino,
                    from_offset: 0,
                    to,
                    to_offset: 0,
                    len: len as u64,
                    when: CloneWhen::Always,
                };
                volume.clone_range(&range, NOW).unwrap();
                volume.truncate(ino, 0, NOW).unwrap();
            }
            volume.sync_file(ino).unwrap();
        });
        for below in crashed.devices(8) {
            let believed = crashed.found(&below, "after the crash");
            crashed.survives(&below, &believed, |_| true);
        }
    }
}

/// The same where a zone failed with the crash, and goes altogether once the volume is mounted.
#[test]
fn what_a_failed_zone_alone_has_is_written_anew_before_it_goes() {
    for (seed, stripes) in (0..16).flat_map(|seed| KINDS.map(|stripes| (seed, stripes))) {
        let crashed = Crashed::written(seed, stripes);
        for once in crashed.devices(6) {
            let zones = once.report(0..once.geometry().zone_count).unwrap();
            let used = (0..).zip(zones).filter(|(_, zone)| zone.write_pointer > 0);
            for (zone, _) in used {
                let below = Arc::new(once.snapshot().intact());
                below.set_read_only(ZoneId(zone));
                let believed = crashed.found(&below, "with a zone that is read-only");
                below.set_offline(ZoneId(zone));
                let found = crashed.found(&below, "without it");
                assert!(found == believed, "seed {seed}, {stripes:?}, zone {zone}");
            }
        }
    }
}

/// Cleaning maps the parts that a file still has of a compressed frame one by one. What of that a crash leaves in one zone of a
/// stripe set alone is written anew, as the frame it is part of.
#[test]
fn parts_of_a_compressed_frame_are_written_anew_as_what_they_are() {
    const BLOCK: usize = 4096;
    for (seed, stripes) in (0..16).flat_map(|seed| KINDS.map(|stripes| (seed, stripes))) {
        let config = SimConfig::new(162, 128).capacity(120).volatile_cache();
        let below = Arc::new(SimDevice::new(config));
        let device = Striped::new(below.clone(), stripes, true).unwrap();
        Volume::format(Arc::new(device), &FormatOptions::default()).unwrap();
        let volume = open(&below, stripes);
        // Of each file what is beside one block in the middle stays in the frame that all of it was written in.
        let mut expected = Vec::new();
        for number in 0..10 {
            let ino = create(&volume).unwrap();
            let mut content: Vec<u8> = (0..12 * BLOCK)
                .map(|at| (at / 1024 * 7 + at % 3 + number) as u8)
                .collect();
            volume.write(ino, 0, &content, NOW).unwrap();
            volume.sync_file(ino).unwrap();
            let middle = noise(ino.0, BLOCK);
            let at = (1 + number) * BLOCK;
            volume.write(ino, at as u64, &middle, NOW).unwrap();
            content[at..at + BLOCK].copy_from_slice(&middle);
            expected.push((ino, content));
            // What lies beside it goes, so that there is something to clean.
            let beside = create(&volume).unwrap();
            volume
                .write(beside, 0, &noise(99, 50 * BLOCK), NOW)
                .unwrap();
            volume.sync_file(beside).unwrap();
            volume.truncate(beside, 0, NOW).unwrap();
        }
        volume.sync().unwrap();
        volume.step(Task::Checkpoint).unwrap();
        below.record_snapshots(1);
        while volume.step(Task::Clean).unwrap() == Progress::Worked {}
        volume.sync().unwrap();
        let moments = below.take_snapshots();
        for moment in &moments {
            let below = Arc::new(moment.persisted(&mut Sampled::new(seed)));
            let volume = open(&below, stripes);
            for (ino, content) in &expected {
                let mut buf = vec![0; content.len()];
                volume.read(*ino, 0, &mut buf).unwrap();
                let wrong = buf.chunks(BLOCK).zip(content.chunks(BLOCK));
                let wrong = wrong.map(|(is, should)| is != should);
                let wrong: Vec<bool> = wrong.collect();
                assert!(
                    !wrong.contains(&true),
                    "seed {seed}, {stripes:?}, inode {ino}: {wrong:?}"
                );
            }
        }
    }
}

/// A zone of a set may have what another has no room for on the host.
#[test]
fn a_host_that_was_full_for_a_set_has_all_that_was_written_later() {
    for stripes in KINDS {
        let below = fresh();
        let mut files = written(&below, stripes);
        let volume = open(&below, stripes);
        for _ in 0..12 {
            let ino = create(&volume).unwrap();
            volume.write(ino, 0, &content(ino, 30_000), NOW).unwrap();
            below.inject(Fault {
                times: None,
                ..Fault::of_zone(FaultTarget::Write, FaultKind::HostFull)
            });
            for _ in 0..3 {
                let written = volume.step(Task::WriteBack);
                assert!(
                    matches!(written, Err(Error::Device(DeviceError::HostFull))),
                    "{written:?}"
                );
            }
            below.heal();
            volume.sync().unwrap();
            files.push((ino, 30_000));
        }
        assert!(!volume.is_read_only());
        compare(&volume, &files);
        drop(volume);
        compare(&open(&below, stripes), &files);
    }
}

/// What is sent to a set goes to a place, of which a full host may have taken a part: the set was left, and each try took one.
#[test]
fn trying_again_on_a_full_host_uses_up_no_sets() {
    for stripes in KINDS {
        let below = fresh();
        let mut files = written(&below, stripes);
        let volume = open(&below, stripes);
        let (ino, synced) = (create(&volume).unwrap(), create(&volume).unwrap());
        volume.sync().unwrap();
        for file in [ino, synced] {
            volume.write(file, 0, &content(file, 300_000), NOW).unwrap();
        }
        below.inject(Fault {
            times: None,
            ..Fault::of_zone(FaultTarget::Write, FaultKind::HostFull)
        });
        // Those that were written to before are left once each.
        let mut free = Vec::new();
        for _ in 0..40 {
            let results = [
                volume.step(Task::WriteBack).map(drop),
                volume.sync_file(synced),
            ];
            for written in results {
                assert!(
                    matches!(written, Err(Error::Device(DeviceError::HostFull))),
                    "{written:?}"
                );
            }
            let zones = volume.zones();
            let now = zones.iter().filter(|zone| zone.entry.role == Role::Free);
            free.push(now.count());
        }
        assert!(free[20] == free[39], "{stripes:?}: {free:?}");
        below.heal();
        volume.sync().unwrap();
        assert!(!volume.is_read_only());
        files.extend([(ino, 300_000), (synced, 300_000)]);
        compare(&volume, &files);
        drop(volume);
        compare(&open(&below, stripes), &files);
    }
}
