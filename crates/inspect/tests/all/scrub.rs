//! The engine's scrub of a volume in use: damage of every kind is found where it is, and work that
//! goes on meanwhile is never taken for damage.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use crate::support::{
    FILE, add, addr, content, footer, formatted, formatted_with, now, open, pages, populate,
};
use persimmon_engine::{Damage, ScrubCursor, ScrubFinding, Task, Volume};
use persimmon_format::inode::ROOT;
use persimmon_format::table::Role;
use persimmon_format::{Addr, DeviceId, Ino};
use persimmon_inspect::Inspector;
use persimmon_inspect::dump::{Dump, Target, dump};
use persimmon_sim::SimDevice;

/// A whole scrub; `between` runs after each step.
fn scrub(volume: &Volume, mut between: impl FnMut(u64)) -> (Vec<ScrubFinding>, u64) {
    let (mut findings, mut bytes) = (Vec::new(), 0);
    let mut cursor = Some(ScrubCursor::default());
    let mut steps = 0;
    while let Some(at) = cursor {
        let step = volume.scrub_step(at, 256).unwrap();
        assert!(step.bytes <= 3 << 20, "{} bytes in one step", step.bytes);
        findings.extend(step.findings);
        bytes += step.bytes;
        cursor = step.next;
        between(steps);
        steps += 1;
    }
    (findings, bytes)
}

fn used() -> (Arc<SimDevice>, Volume, Vec<Ino>) {
    let device = formatted();
    let volume = open(&device);
    let mut files = populate(&volume);
    let big = add(&volume, ROOT, "big", FILE);
    volume.write(big, 0, &content(5, 2 << 20), now(3)).unwrap();
    files.push(big);
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    for n in 0..5 {
        let ino = add(&volume, ROOT, &format!("late {n}"), FILE);
        volume.write(ino, 0, &content(n, 9000), now(8)).unwrap();
        volume.sync_file(ino).unwrap();
    }
    (device, volume, files)
}

#[test]
fn a_sound_volume_is_read_whole_and_without_a_finding() {
    let (_, volume, _) = used();
    let expected = volume.scrub_bytes();
    let (findings, bytes) = scrub(&volume, |_| {});
    assert_eq!(findings, []);
    assert!(
        bytes >= expected && bytes < expected + expected / 8,
        "{bytes} of {expected}"
    );
}

#[test]
fn damage_of_every_kind_is_found_where_it_is() {
    let (device, volume, _) = used();
    let footer = footer(&device);
    let live = |list: &[String]| {
        list.iter()
            .map(|a| addr(a))
            .find(|a| *a != Addr::ZERO)
            .unwrap()
    };
    let mat = live(&footer.mat_chunks);
    let log = addr(&footer.addr);
    let inspector = Inspector::open(&*device).unwrap();
    let all = Target::Keys {
        from: None,
        to: None,
    };
    let Dump::Keys(items) = dump(&inspector, &all).unwrap() else {
        panic!("no items")
    };
    let extents = items.iter().filter(|item| item.kind == "extent");
    let frames: Vec<_> = extents
        .filter_map(|item| Some((item, item.value.0.split_once(" blocks at ")?)))
        .collect();
    let (item, (blocks, at)) = frames
        .iter()
        .find(|(_, (n, _))| n.parse::<u32>().unwrap() > 9)
        .unwrap();
    let data = addr(at).offset(7);
    let count = blocks.parse::<u32>().unwrap();
    let cases = [
        (Damage::Header, Addr::new(DeviceId(0), mat.zone(), 0)),
        (Damage::MatChunk, mat),
        (Damage::ZitChunk, live(&footer.zit_chunks)),
        (Damage::Page, addr(&pages(&device)[2].addr)),
        (Damage::Data, data),
        // A checkpoint is written in its place.
        (Damage::Log, log),
    ];
    for (damage, at) in cases {
        assert!(device.corrupt(at.zone(), at.block(), 1234, 0x40));
        let (findings, _) = scrub(&volume, |_| {});
        let told: Vec<_> = findings.iter().map(|f| (f.damage, f.addr)).collect();
        assert_eq!(told, [(damage, at)], "{findings:?}");
        if damage == Damage::Data {
            assert_eq!(findings[0].file, Some((Ino(item.ino), item.item + 7)));
            // Neighbours are one finding.
            assert!(device.corrupt(at.zone(), at.block() + 1, 0, 1) && count > 8);
            let (findings, _) = scrub(&volume, |_| {});
            assert_eq!((findings.len(), findings[0].blocks), (1, 2));
            device.corrupt(at.zone(), at.block() + 1, 0, 1);
        }
        device.corrupt(at.zone(), at.block(), 1234, 0x40);
    }
    assert_eq!(scrub(&volume, |_| {}).0, []);
}

/// Of two copies one is in a zone that went offline: that was told for every block of it, and drove the damage of
/// files out of the 10,000 findings that are shown. It is told once a zone, and as a warning.
#[test]
fn a_zone_of_copies_that_is_offline_is_told_once() {
    let device = formatted_with(2);
    let volume = open(&device);
    populate(&volume);
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    let late = add(&volume, ROOT, "late", FILE);
    volume.sync_file(late).unwrap();
    assert_eq!(scrub(&volume, |_| {}).0, []);
    let zones = volume.zones();
    let twice = zones
        .iter()
        .filter(|zone| zone.entry.role == Role::Metadata && zone.partner.is_some());
    let twice: Vec<_> = twice.map(|zone| zone.zone).collect();
    assert!(twice.len() > 1, "{twice:?}");
    for zone in twice {
        let device = Arc::new(device.snapshot().intact());
        let volume = open(&device);
        device.set_offline(zone);
        volume.step(Task::Examine).unwrap();
        let (findings, _) = scrub(&volume, |_| {});
        let told: Vec<_> = findings.iter().map(|f| (f.damage, f.addr)).collect();
        let once = (Damage::Copy, Addr::new(DeviceId(0), zone, 0));
        assert_eq!(told, [once], "{findings:#?}");
    }
}

/// An offline zone: everything in it, by file.
#[test]
fn a_zone_that_is_offline_is_told_by_files() {
    let (device, volume, files) = used();
    let zones = volume.zones();
    let zone = zones
        .iter()
        .filter(|zone| zone.entry.role == Role::Data)
        .max_by_key(|zone| zone.entry.valid)
        .unwrap();
    device.set_offline(zone.zone);
    let (findings, _) = scrub(&volume, |_| {});
    let data = findings.iter().filter(|f| f.damage == Damage::Data);
    let blocks: u32 = data.clone().map(|f| f.blocks).sum();
    assert_eq!(blocks, zone.entry.valid);
    assert!(
        data.clone()
            .all(|f| f.addr.zone() == zone.zone && f.file.is_some())
    );
    let inos = data.filter_map(|f| f.file).map(|(ino, _)| ino).collect();
    let paths = volume.paths(&inos);
    assert_eq!(paths.len(), inos.len());
    let deep = volume.paths(&files.iter().copied().collect());
    assert_eq!(deep.len(), files.len());
    let last = b"/directory 0/directory 1/directory 2/directory 3/file 11";
    assert_eq!(deep[&files[50]], last);
}

/// Between any two steps files are overwritten, removed, cleaned, checkpointed.
#[test]
fn work_that_goes_on_is_not_taken_for_damage() {
    let (_, volume, mut files) = used();
    for round in 0..6u64 {
        let (findings, _) = scrub(&volume, |step| {
            let turn = step + round * 7;
            let ino = files[(turn * 13) as usize % files.len()];
            let at = turn * 12_345 % 100_000;
            volume
                .write(ino, at, &content(turn, 60_000), now(9))
                .unwrap();
            match turn % 5 {
                0 => volume.sync_file(ino).unwrap(),
                1 => volume.truncate(ino, at, now(9)).unwrap(),
                2 => drop(volume.step(Task::Clean).unwrap()),
                3 => drop(volume.step(Task::Checkpoint).unwrap()),
                _ => drop(volume.step(Task::WriteBack).unwrap()),
            }
            if turn % 11 == 0 {
                let new = add(&volume, ROOT, &format!("new {turn} {round}"), FILE);
                volume.write(new, 0, &content(turn, 9000), now(9)).unwrap();
                files.push(new);
            }
        });
        assert_eq!(findings, []);
    }
}

/// The same with threads, so that a step is interrupted anywhere.
#[test]
fn threads_that_work_meanwhile_are_not_taken_for_damage() {
    let (_, volume, files) = used();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let running = || !stop.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in (0u64..).take_while(|_| running()) {
                let ino = files[(turn * 13) as usize % files.len()];
                volume
                    .write(ino, turn * 12_345 % 100_000, &content(turn, 60_000), now(9))
                    .unwrap();
                volume.sync_file(ino).unwrap();
            }
        });
        scope.spawn(|| {
            while running() {
                volume.step(Task::Clean).unwrap();
                volume.step(Task::Checkpoint).unwrap();
            }
        });
        for _ in 0..30 {
            assert_eq!(scrub(&volume, |_| {}).0, []);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// What a crash cut off in the log is no damage.
#[test]
fn a_log_that_a_crash_cut_off_is_sound() {
    for cut in 0..12 {
        let (device, volume, files) = used();
        device.cut_after(2 + cut);
        for (n, ino) in files.iter().enumerate() {
            let done = volume
                .write(*ino, 0, &content(n as u64, 20_000), now(9))
                .and_then(|_| volume.sync_file(*ino));
            if done.is_err() {
                break;
            }
        }
        let crashed = Arc::new(device.persisted(cut));
        let volume = open(&crashed);
        assert_eq!(scrub(&volume, |_| {}).0, []);
    }
}

/// With two copies damage to one is a warning, and all else is as before.
#[test]
fn a_damaged_copy_is_told_as_such() {
    let device = Arc::new(crate::support::device());
    let options = persimmon_engine::FormatOptions {
        copies: 2,
        uuid: std::array::from_fn(|i| i as u8),
        secret: [7; 32],
        ..Default::default()
    };
    Volume::format(device.clone(), &options).unwrap();
    let volume = open(&device);
    populate(&volume);
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    assert_eq!(scrub(&volume, |_| {}).0, []);
    let page = addr(&pages(&device)[2].addr);
    let log = addr(&footer(&device).addr);
    for at in [page, log] {
        assert!(device.corrupt(at.zone(), at.block(), 1234, 0x40));
        let (findings, _) = scrub(&volume, |_| {});
        let told: Vec<_> = findings.iter().map(|f| (f.damage, f.addr)).collect();
        assert_eq!(told, [(Damage::Copy, at)], "{findings:?}");
        assert!(device.corrupt(at.zone(), at.block(), 1234, 0x40));
    }
}
