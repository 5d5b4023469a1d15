//! Damage in what deleted snapshots had.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use crate::common::content::{open, read, settle, valid_blocks, write};
use crate::common::{NOW, create, fresh, noise};
use persimmon_engine::{Error, Intent};
use persimmon_format::inode::Inode;
use persimmon_format::{Compression, Key, SubvolumeId};
use persimmon_sim::SimConfig;

const BLOCK: usize = 4096;
const MAIN: SubvolumeId = SubvolumeId::MAIN;

/// What a deleted snapshot has of one file cannot be freed: all else is freed, of it and of others. A writer on a full volume was told of the
/// damage, and no deleted snapshot gave any room back any more.
#[test]
fn damage_in_one_file_keeps_nothing_else_of_deleted_snapshots() {
    let device = fresh(SimConfig::new(60, 512));
    let volume = open(&device, Compression::None);
    let [bad, good] = [(); 2].map(|()| create(&volume).unwrap());
    for ino in [bad, good] {
        write(&volume, ino, 0, &noise(ino.0, 10 * BLOCK));
    }
    volume.sync().unwrap();
    let before = valid_blocks(&volume);
    let [one, other] = [&b"one"[..], b"other"].map(|name| {
        let id = volume.snapshots().take(MAIN, name, false, NOW).unwrap();
        let made = volume.update::<_, Error>(Intent::Grow, |tx| {
            let ino = tx.new_ino().of(id);
            tx.put_inode(
                ino,
                &Inode {
                    mode: 0o100_644,
                    nlink: 1,
                    ..Inode::default()
                },
            );
            Ok(ino)
        });
        for ino in [good.of(id), made.unwrap()] {
            write(&volume, ino, 0, &noise(ino.0, 200 * BLOCK));
        }
        volume.sync().unwrap();
        id
    });
    let put = volume.update::<_, Error>(Intent::Grow, |tx| {
        tx.put(Key::extent(bad.of(one), 50), vec![0xff; 3]);
        Ok(())
    });
    put.unwrap();
    assert!(valid_blocks(&volume) >= before + 800);
    for id in [one, other] {
        volume.snapshots().delete(id).unwrap();
    }
    settle(&volume);
    assert_eq!(valid_blocks(&volume), before);
    volume.close().unwrap();
    drop(volume);
    // What is left is no other snapshot's.
    let volume = open(&device, Compression::None);
    settle(&volume);
    let id = volume.snapshots().take(MAIN, b"new", false, NOW).unwrap();
    for ino in [bad, good] {
        let content = read(&volume, ino.of(id), 0, 100 * BLOCK);
        assert!(content == noise(ino.0, 10 * BLOCK));
    }
    volume.snapshots().delete(id).unwrap();
    settle(&volume);
    assert_eq!(valid_blocks(&volume), before);
}
