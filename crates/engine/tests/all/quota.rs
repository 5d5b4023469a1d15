//! Quota in transactions: what cannot be is refused before anything of it happens, and records keep their bounds.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use std::sync::Arc;

use crate::common::content::{large_zones, open, open_with, read, text, write};
use crate::common::{NOW, create, fresh, noise, unlink};
use persimmon_engine::{CleanState, Deltas, Error, Intent, Progress, Quotas, Task};
use persimmon_format::inode::Inode;
use persimmon_format::quota::{Counting, QuotaState};
use persimmon_format::table::Role;
use persimmon_format::{Compression, Ino, Key, SubvolumeId};
use persimmon_sim::SimConfig;

/// It would have failed half way, after which nothing is written any more.
#[test]
fn items_that_mean_nothing_are_refused_and_change_nothing() {
    let volume = open(&fresh(large_zones()), Compression::None);
    for key in [QuotaState::KEY, Key::subvolume(SubvolumeId(5))] {
        let put = volume.update::<_, Error>(Intent::Shrink, |tx| {
            tx.put(key, vec![0xff; 3]);
            Ok(())
        });
        assert!(put.is_err(), "{key:?}");
        create(&volume).unwrap();
        volume.sync().unwrap();
    }
    assert_eq!(Quotas::of(&volume).state().counting, Counting::Off);
}

#[test]
fn records_have_fewer_operations_while_owners_are_counted() {
    let device = fresh(large_zones());
    let volume = open(&device, Compression::None);
    let before = volume.transaction_ops_max();
    let quotas = Quotas::of(&volume);
    quotas.turn_on(false).unwrap();
    assert_eq!(volume.transaction_ops_max(), before / 4);
    volume.close().unwrap();
    drop(volume);
    let volume = open(&device, Compression::None);
    assert_eq!(volume.transaction_ops_max(), before / 4);
    Quotas::of(&volume).turn_off().unwrap();
    assert_eq!(volume.transaction_ops_max(), before);
}

/// Cleaning compresses anew what a file still has of a frame. Where the record of that tells no inode but the version's, nobody had looked
/// for what its owner takes, and the next mount ended there.
#[test]
fn owners_of_what_cleaning_compressed_anew_are_found_after_a_crash() {
    const BLOCK: usize = 4096;
    let device = fresh(large_zones());
    let volume = open_with(&device, Compression::Lz4, Deltas::Always);
    Quotas::of(&volume).turn_on(false).unwrap();
    let owned = |id: u32| {
        let made = volume.update::<_, Error>(Intent::Grow, |tx| {
            let ino = tx.new_ino();
            let inode = Inode {
                mode: 0o100_644,
                nlink: 1,
                uid: id,
                gid: id,
                ..Inode::default()
            };
            tx.put_inode(ino, &inode);
            Ok(ino)
        });
        made.unwrap()
    };
    // As many owners as are in several leaves.
    for id in 1..1000 {
        owned(id);
    }
    let file = owned(5000);
    let mut content = text(1, 32 * BLOCK);
    write(&volume, file, 0, &content);
    volume.sync().unwrap();
    content[4 * BLOCK..4 * BLOCK + 100].fill(7);
    write(
        &volume,
        file,
        4 * BLOCK,
        &content[4 * BLOCK..4 * BLOCK + 100],
    );
    volume.sync_file(file).unwrap();
    let rest = noise(1, 26 * BLOCK);
    write(&volume, file, 6 * BLOCK, &rest);
    content[6 * BLOCK..].copy_from_slice(&rest);
    let beside = create(&volume).unwrap();
    write(&volume, beside, 0, &noise(2, 2500 * BLOCK));
    volume.sync().unwrap();
    volume.truncate(beside, 0, NOW).unwrap();
    volume.step(Task::Checkpoint).unwrap();
    let sectors = |volume: &persimmon_engine::Volume| volume.attr(file).unwrap().unwrap().sectors;
    let before = sectors(&volume);
    while volume.step(Task::Clean).unwrap() == Progress::Worked {}
    volume.sync().unwrap();
    let after = sectors(&volume);
    assert!(after < before);
    let volume = open_with(
        &Arc::new(device.snapshot().intact()),
        Compression::Lz4,
        Deltas::Always,
    );
    assert_eq!(sectors(&volume), after);
    assert!(read(&volume, file, 0, content.len()) == content);
}

/// Pieces of blocks were moved one at a time where owners are counted and zones are small, and each took a block: nothing was won, and a full
/// volume was cleaned for ever.
#[test]
fn pieces_of_blocks_are_moved_together_while_owners_are_counted() {
    let device = fresh(SimConfig::new(44, 256));
    let volume = open(&device, Compression::Lz4);
    Quotas::of(&volume).turn_on(false).unwrap();
    while volume.step(Task::Count).unwrap() == Progress::Worked {}
    // A block, and a piece of one.
    let inos: Vec<Ino> = (0..2000)
        .map(|n| {
            let ino = create(&volume).unwrap();
            write(&volume, ino, 0, &noise(n, 5000));
            ino
        })
        .collect();
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    let gone: Vec<Ino> = inos.iter().copied().step_by(2).collect();
    unlink(&volume, &gone);
    volume.reclaim(&gone).unwrap();
    // What is left between pieces that were moved is nothing to be won: it ends.
    let goes_on = || volume.clean_step(None).unwrap().state == CleanState::GoesOn;
    assert!((0..600).any(|_| !goes_on()), "cleaning does not end");
    let zones = volume.zones();
    let of_data = zones.iter().filter(|zone| zone.entry.role == Role::Data);
    let filled = of_data.filter(|zone| !zone.open && zone.entry.valid > 0);
    let valid: Vec<u32> = filled.map(|zone| zone.entry.valid).collect();
    let (used, all) = (valid.iter().sum::<u32>(), 256 * valid.len() as u32);
    assert!(valid.len() >= 4, "{valid:?}");
    assert!(used * 4 > all * 3, "{used} of {all} blocks: {valid:?}");
}
