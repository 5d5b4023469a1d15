//! Volumes in stripe sets, looked into without the engine: what any one zone of each set has lost or has wrong is read otherwise, told,
//! and mended.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::support::{FILE, add, assert_sound, content, now, numbers, populate};
use persimmon_device::{Striped, Stripes, ZoneId, ZonedDevice};
use persimmon_engine::{Deltas, FormatOptions, Options, Task, Volume};
use persimmon_format::Ino;
use persimmon_inspect::salvage::rebuild;
use persimmon_inspect::{CheckOptions, InspectError, Inspector, Report, Severity, check};
use persimmon_sim::{SimConfig, SimDevice};

const CAPACITY: u32 = 120;
const PARITY: Stripes = Stripes {
    columns: 3,
    metadata_sets: 24,
};
const KINDS: [Stripes; 2] = [Stripes::MIRROR, PARITY];

type Device = Arc<Striped<SimDevice>>;

fn striped(below: &Arc<SimDevice>, stripes: Stripes, for_writing: bool) -> Device {
    Arc::new(Striped::new(below.clone(), stripes, for_writing).unwrap())
}

fn open(below: &Arc<SimDevice>, stripes: Stripes) -> Volume {
    let options = Options {
        deltas: Deltas::Always,
        ..Options::default()
    };
    Volume::open(striped(below, stripes, true), options)
        .unwrap()
        .0
}

/// A volume with a bit of everything, and changes after its last checkpoint.
fn written(stripes: Stripes) -> Arc<SimDevice> {
    written_on(SimConfig::new(162, 128), stripes)
}

fn written_on(config: SimConfig, stripes: Stripes) -> Arc<SimDevice> {
    let below = Arc::new(SimDevice::new(config.capacity(CAPACITY)));
    let options = FormatOptions {
        now: now(1),
        ..FormatOptions::default()
    };
    Volume::format(striped(&below, stripes, true), &options).unwrap();
    let volume = open(&below, stripes);
    let files = populate(&volume);
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    let late = add(&volume, persimmon_format::inode::ROOT, "late", FILE);
    for ino in files.into_iter().take(8).chain([late]) {
        volume
            .write(ino, 4000, &content(ino.0, 9000), now(8))
            .unwrap();
        volume.sync_file(ino).unwrap();
    }
    below
}

fn look(below: &Arc<SimDevice>, stripes: Stripes) -> Report {
    let options = CheckOptions {
        data: true,
        ..CheckOptions::default()
    };
    check(&*striped(below, stripes, false), &options, &mut |_| {}).unwrap()
}

/// The zones of each set.
fn sets(below: &Arc<SimDevice>, stripes: Stripes) -> Vec<std::ops::Range<u32>> {
    let count = striped(below, stripes, false).geometry().zone_count;
    let mut next = 0;
    let sets = (0..count).map(|set| {
        let is_mirror = set < stripes.metadata_sets;
        let zones = if is_mirror { 2 } else { stripes.columns + 1 };
        next += zones;
        next - zones..next
    });
    sets.collect()
}

/// Has something wrong in every block of one zone of each set.
fn hurt(below: &Arc<SimDevice>, stripes: Stripes, member: u32) {
    for zones in sets(below, stripes) {
        let zone = ZoneId(zones.start + member % zones.len() as u32);
        for block in 0..CAPACITY {
            below.corrupt(zone, block, 77, 1);
            below.corrupt(zone, block, 0, 0x80);
        }
    }
}

/// Nothing is missing, wherever it was read.
fn assert_whole(report: &Report, sound: &Report) {
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_eq!(report.counts, sound.counts);
    assert_eq!(report.volume, sound.volume);
}

/// A salvage finds all that there is in the tree, and every summary.
fn assert_salvaged(below: &Arc<SimDevice>, stripes: Stripes, sound: &Arc<SimDevice>) {
    let found = [below, sound].map(|below| {
        let device = striped(below, stripes, false);
        let rebuilt = rebuild(&*device, &mut |_, _, _| {}).unwrap();
        let content = rebuilt.content(&mut |_, _, _| {}).unwrap();
        let mut items = Vec::new();
        content.scan(&mut |(key, value)| {
            items.push((key, value.to_vec()));
            std::ops::ControlFlow::Continue(())
        });
        let strays: Vec<_> = content.stray_blocks().keys().copied().collect();
        (items, strays, rebuilt.gaps().collect::<Vec<_>>())
    });
    assert!(found[0] == found[1]);
}

#[test]
fn a_sound_volume_has_no_findings() {
    for stripes in KINDS {
        let below = written(stripes);
        let report = look(&below, stripes);
        assert_sound(&report);
        assert!(report.counts.data_blocks_verified > 0);
        assert!(report.counts.records_replayed > 0);
    }
}

#[test]
fn what_is_wrong_in_one_zone_of_each_set_is_told_and_mended() {
    for stripes in KINDS {
        let sound = written(stripes);
        let whole = look(&sound, stripes);
        let used = used(&sound, stripes);
        for member in 0..=stripes.columns {
            let below = Arc::new(sound.snapshot().intact());
            hurt(&below, stripes, member);
            let found = look(&below, stripes);
            assert_whole(&found, &whole);
            let told: BTreeSet<String> = found
                .findings
                .iter()
                .filter(|finding| finding.number == 108)
                .map(|finding| finding.place.clone())
                .collect();
            assert_eq!(told, used, "{stripes:?} {member}");
            assert_salvaged(&below, stripes, &sound);
            mend(&below, stripes);
        }
    }
}

/// A compressed frame lies in more blocks than a command reads.
#[test]
fn what_takes_several_commands_is_read_otherwise_too() {
    for stripes in KINDS {
        let mut config = SimConfig::new(162, 128);
        config.geometry.max_transfer_blocks = 8;
        let sound = written_on(config, stripes);
        let whole = look(&sound, stripes);
        for member in 0..=stripes.columns {
            let below = Arc::new(sound.snapshot().intact());
            hurt(&below, stripes, member);
            assert_whole(&look(&below, stripes), &whole);
            assert_salvaged(&below, stripes, &sound);
        }
    }
}

/// Places of the sets that hold anything.
fn used(below: &Arc<SimDevice>, stripes: Stripes) -> BTreeSet<String> {
    let zones = open(&Arc::new(below.snapshot().intact()), stripes).zones();
    let used = zones.iter().filter(|zone| {
        zone.entry.valid > 0 || zone.entry.role == persimmon_format::table::Role::Log
    });
    used.map(|zone| format!("zone {}", zone.zone)).collect()
}

/// Checks and repairs in turn, as `fsck --repair --data` does; what is left is of the log.
fn mend(below: &Arc<SimDevice>, stripes: Stripes) {
    for _ in 0..10 {
        let found = look(below, stripes);
        if found.repairs.is_empty() {
            let left: BTreeSet<u16> = numbers(&found).into_iter().collect();
            assert!(
                found.is_clean() && left.iter().all(|n| [108, 206].contains(n)),
                "{:#?}",
                found.findings
            );
            assert!(
                found.findings.iter().filter(|f| f.number == 108).count() <= 1,
                "{:#?}",
                found.findings
            );
            return;
        }
        let volume = open(below, stripes);
        let repairs = &found.repairs;
        volume
            .repair(&repairs.ops, repairs.recount, repairs.partial)
            .unwrap();
        volume.empty_zones(&repairs.zones).unwrap();
        volume.reclaim(&volume.orphans().unwrap()).unwrap();
        volume.step(Task::Checkpoint).unwrap();
        volume.close().unwrap();
    }
    panic!(
        "repairing finds no end: {:#?}",
        look(below, stripes).findings
    );
}

#[test]
fn any_zone_may_be_lost() {
    for stripes in KINDS {
        let sound = written(stripes);
        let whole = look(&sound, stripes);
        let used = used(&sound, stripes);
        for (set, zones) in sets(&sound, stripes).into_iter().enumerate() {
            for (zone, is_readable) in zones.flat_map(|zone| [(zone, false), (zone, true)]) {
                let below = Arc::new(sound.snapshot().intact());
                match is_readable {
                    true => below.set_read_only(ZoneId(zone)),
                    false => below.set_offline(ZoneId(zone)),
                };
                let found = look(&below, stripes);
                assert_whole(&found, &whole);
                let place = format!("zone {set}");
                let warned: Vec<_> = found
                    .findings
                    .iter()
                    .filter(|f| f.severity == Severity::Warning)
                    .map(|f| (f.number, f.place.clone()))
                    .collect();
                if used.contains(&place) {
                    assert_eq!(warned, [(106, place)]);
                    assert_salvaged(&below, stripes, &sound);
                } else {
                    assert_eq!(warned, []);
                }
            }
        }
    }
}

/// A drive put into one zone what belongs into another, sealed as it should be: the header tells, and the other zones of the set have the right
/// one. What was synced after the checkpoint is in such a zone of the log.
#[test]
fn what_belongs_into_another_zone_is_read_otherwise() {
    for stripes in KINDS {
        let sound = written(stripes);
        let whole = look(&sound, stripes);
        let expected = engine_files(&sound, stripes);
        let sets = sets(&sound, stripes);
        let is_used = |zone: u32| sound.report(zone..zone + 1).unwrap()[0].write_pointer > 0;
        let used: Vec<_> = sets.iter().filter(|set| is_used(set.start)).collect();
        for (set, other) in used.iter().zip(used.iter().cycle().skip(1)) {
            let below = Arc::new(sound.snapshot().intact());
            for block in 0..CAPACITY {
                let read = sound.read(ZoneId(other.start), block, 1);
                let strayed = read.ok().filter(|_| is_used(other.start));
                if let Some(strayed) = strayed {
                    below.replace(ZoneId(set.start), block, strayed);
                }
            }
            assert_whole(&look(&below, stripes), &whole);
            assert_eq!(engine_files(&below, stripes), expected, "{set:?}");
        }
    }
}

/// What each file has, as the engine reads it.
fn engine_files(below: &Arc<SimDevice>, stripes: Stripes) -> Vec<(Ino, Vec<u8>)> {
    let volume = open(&Arc::new(below.snapshot().intact()), stripes);
    let numbers = (2..200).map(Ino);
    let files = numbers.filter_map(|ino| {
        let inode = volume.attr(ino).unwrap().filter(|inode| inode.is_file())?;
        let mut bytes = vec![0; (inode.size as usize).min(1 << 17)];
        let mut done = 0;
        while done < bytes.len() {
            done += volume.read(ino, done as u64, &mut bytes[done..]).unwrap();
        }
        Some((ino, bytes))
    });
    files.collect()
}

/// All together: in each set one zone is gone, or all wrong.
#[test]
fn one_zone_of_every_set_may_be_lost() {
    for stripes in KINDS {
        let sound = written(stripes);
        let whole = look(&sound, stripes);
        for member in 0..=stripes.columns {
            let below = Arc::new(sound.snapshot().intact());
            for zones in sets(&below, stripes) {
                below.set_offline(ZoneId(zones.start + member % zones.len() as u32));
            }
            assert_whole(&look(&below, stripes), &whole);
            assert_salvaged(&below, stripes, &sound);
        }
    }
}

#[test]
fn a_device_that_lost_its_label_is_told_so() {
    for stripes in KINDS {
        let below = written(stripes);
        let Err(error) = Inspector::open(&*below) else {
            panic!("{stripes:?}");
        };
        assert!(matches!(error, InspectError::Stripes), "{error}");
    }
}
