//! Data goes where its lifetime says: told by hints, kept in zones, over cleaning and remounts.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test from top to bottom"
)]

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::{NOW, create, fresh, noise, open};
use persimmon_engine::{Error, Intent, Task, Volume};
use persimmon_format::extent::Extent;
use persimmon_format::inode::Inode;
use persimmon_format::{Ino, Key, KeyKind, Lifetime, ZoneId};
use persimmon_sim::{SimConfig, SimDevice};

/// Enough zones for each stream to have one of its own.
fn roomy() -> Arc<SimDevice> {
    fresh(SimConfig::new(256, 128))
}

/// As many as of a drive of 64 GiB with zones of a gigabyte.
fn few() -> Arc<SimDevice> {
    fresh(SimConfig::new(64, 128))
}

fn tell(volume: &Volume, ino: Ino, told: Lifetime) {
    let lifetime = Lifetime::stored(Some(told));
    let set = volume.update::<_, Error>(Intent::Grow, |tx| {
        let inode = tx.inode(ino)?.ok_or(Error::NotFound(ino))?;
        tx.put_inode(ino, &Inode { lifetime, ..inode });
        Ok(())
    });
    set.unwrap();
}

/// Creates a file with so many blocks and writes it back.
fn file(volume: &Volume, told: Option<Lifetime>, blocks: usize) -> Ino {
    let ino = create(volume).unwrap();
    if let Some(told) = told {
        tell(volume, ino, told);
    }
    let data = noise(ino.0, blocks * 4096);
    volume.write(ino, 0, &data, NOW).unwrap();
    volume.commit_file(ino).unwrap();
    ino
}

/// The zones that a file lies in, and their lifetime classes.
fn zones_of(volume: &Volume, ino: Ino) -> BTreeSet<(ZoneId, u8)> {
    let zones = volume.zones();
    let mut found = BTreeSet::new();
    let scanned = volume.view::<_, Error>(|view| {
        let behind = Key::new(ino, KeyKind::ORPHAN, 0);
        view.scan(Key::extent(ino, 0)..behind, |_, value| {
            let extent = Extent::decode(value).unwrap();
            let addr = extent.addr().unwrap();
            let zone = &zones[addr.zone().0 as usize];
            found.insert((zone.zone, zone.entry.lifetime));
            Ok(ControlFlow::Continue(()))
        })
    });
    scanned.unwrap();
    found
}

fn classes_of(volume: &Volume, ino: Ino) -> Vec<u8> {
    let classes: BTreeSet<u8> = zones_of(volume, ino).iter().map(|(_, c)| *c).collect();
    classes.into_iter().collect()
}

/// A new file of each lifetime lies in zones of its class alone.
fn assert_kept_apart(volume: &Volume, told: [Lifetime; 4]) {
    for lifetime in told {
        let ino = file(volume, Some(lifetime), 20);
        let class = lifetime.class().map(|class| vec![class]);
        assert_eq!(Some(classes_of(volume, ino)), class);
    }
}

#[test]
fn each_lifetime_has_zones_of_its_own() {
    let volume = open(&roomy());
    let told = [
        Lifetime::Short,
        Lifetime::Medium,
        Lifetime::Long,
        Lifetime::Extreme,
    ];
    for _ in 0..3 {
        assert_kept_apart(&volume, told);
        // Nothing told, and told not to be known: what is overwritten decides.
        for none in [None, Some(Lifetime::None)] {
            let ino = file(&volume, none, 20);
            assert_eq!(classes_of(&volume, ino), [0]);
        }
    }
}

#[test]
fn what_an_open_file_was_told_goes_before_what_the_file_was() {
    let volume = open(&roomy());
    let ino = create(&volume).unwrap();
    tell(&volume, ino, Lifetime::Long);
    let write = |block: u64, told| {
        let data = noise(block, 16 * 4096);
        let hinted = volume.write_hinted(ino, block * 4096, &data, NOW, told);
        assert_eq!(hinted.unwrap(), data.len());
    };
    write(0, Some(Lifetime::Short));
    volume.commit_file(ino).unwrap();
    assert_eq!(classes_of(&volume, ino), [1]);
    // It counts for what is written so, not for what is written later.
    write(0, None);
    volume.commit_file(ino).unwrap();
    assert_eq!(classes_of(&volume, ino), [3]);
    // What is staged together goes together, as was said last.
    write(0, None);
    write(16, Some(Lifetime::Extreme));
    write(32, None);
    volume.commit_file(ino).unwrap();
    assert_eq!(classes_of(&volume, ino), [4]);
    write(0, Some(Lifetime::None));
    volume.commit_file(ino).unwrap();
    assert!(!classes_of(&volume, ino).contains(&3));
}

/// A hint that is set while data is staged counts for that data, as one set before it was written.
#[test]
fn a_hint_reaches_what_is_staged() {
    let volume = open(&roomy());
    let ino = create(&volume).unwrap();
    volume.write(ino, 0, &noise(1, 80_000), NOW).unwrap();
    tell(&volume, ino, Lifetime::Short);
    volume.commit_file(ino).unwrap();
    assert_eq!(classes_of(&volume, ino), [1]);
}

/// Zones are gone on with after a remount as what they were: also those that no checkpoint knows,
/// whose header alone tells.
#[test]
fn zones_keep_their_lifetimes_over_remounts() {
    for (checkpoint, close) in [(true, true), (false, true), (true, false), (false, false)] {
        let device = roomy();
        let volume = open(&device);
        let told = [Lifetime::Short, Lifetime::Long];
        let before = told.map(|lifetime| file(&volume, Some(lifetime), 20));
        let zones = before.map(|ino| zones_of(&volume, ino));
        if checkpoint {
            volume.step(Task::Checkpoint).unwrap();
        }
        if close {
            volume.close().unwrap()
        } else {
            volume.sync().unwrap()
        }
        drop(volume);
        let volume = open(&device);
        assert_eq!(before.map(|ino| zones_of(&volume, ino)), zones);
        let after = told.map(|lifetime| file(&volume, Some(lifetime), 20));
        assert_eq!(
            after.map(|ino| zones_of(&volume, ino)),
            zones,
            "{checkpoint} {close}"
        );
    }
}

/// Blocks moved from zones with a short lifetime and with a long one go to different zones.
#[test]
fn moved_blocks_of_hinted_data_stay_apart() {
    let volume = open(&roomy());
    let told = [Lifetime::Short, Lifetime::Extreme];
    let kept = told.map(|lifetime| {
        let files: Vec<Ino> = (0..30).map(|_| file(&volume, Some(lifetime), 20)).collect();
        let (kept, gone): (Vec<_>, Vec<_>) = files.into_iter().partition(|ino| ino.0 % 3 == 0);
        for ino in gone {
            volume.truncate(ino, 0, NOW).unwrap();
        }
        kept
    });
    let hinted = |(_, class): &(ZoneId, u8)| (1..=4).contains(class);
    while volume.step(Task::Clean).unwrap() == persimmon_engine::Progress::Worked {}
    let moved = kept.map(|files| {
        let zones = files.iter().flat_map(|ino| zones_of(&volume, *ino));
        zones.filter(|zone| !hinted(zone)).collect::<BTreeSet<_>>()
    });
    let [short, extreme] = &moved;
    assert!(!short.is_empty() && !extreme.is_empty());
    assert!(short.is_disjoint(extreme), "{short:?} {extreme:?}");
}

/// Where zones are few, what cleaning moves goes back to the lifetime that was told: zones of its own would be room that cleaning lacks.
#[test]
fn moved_blocks_of_hinted_data_go_back_to_few_zones() {
    let volume = open(&few());
    let told = [Lifetime::Short, Lifetime::Extreme];
    let kept = told.map(|lifetime| {
        let files: Vec<Ino> = (0..30).map(|_| file(&volume, Some(lifetime), 20)).collect();
        let (kept, gone): (Vec<_>, Vec<_>) = files.into_iter().partition(|ino| ino.0 % 3 == 0);
        for ino in gone {
            volume.truncate(ino, 0, NOW).unwrap();
        }
        kept
    });
    let moved_before = volume.statistics().blocks_moved;
    while volume.step(Task::Clean).unwrap() == persimmon_engine::Progress::Worked {}
    assert!(volume.statistics().blocks_moved >= moved_before + 100);
    for (lifetime, files) in told.iter().zip(kept) {
        for ino in files {
            let class = lifetime.class().map(|class| vec![class]);
            assert_eq!(Some(classes_of(&volume, ino)), class);
        }
    }
}

/// A volume of 64 zones let two of data be in the middle of being filled, whatever was written: logs of a database, its flushed
/// tables and those of three levels came to lie in the same zones, none of which ever died as a whole.
#[test]
fn few_zones_keep_hinted_lifetimes_apart() {
    let volume = open(&few());
    let told = [
        Lifetime::Extreme,
        Lifetime::Short,
        Lifetime::Long,
        Lifetime::Medium,
    ];
    for _ in 0..3 {
        assert_kept_apart(&volume, told);
    }
}
