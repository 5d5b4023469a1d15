//! Very many items that only a snapshot shows: what walks over them does so in pieces, and goes on where it was.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use std::ops::ControlFlow;

use crate::common::content::{check_stored, clone, large_zones, open, open_as, read, write};
use crate::common::{NOW, create, fresh, noise, unlink};
use persimmon_engine::{Error, Intent, Options, Progress, Quotas, Seek, Task, Volume};
use persimmon_format::inode::Inode;
use persimmon_format::quota::{Counting, Owner, OwnerKind};
use persimmon_format::{Compression, Ino, Key, KeyKind, SubvolumeId};

/// More than are looked at at a time.
const MANY: u64 = 9000;
const AT_ONCE: u64 = 100;

/// A change of many items, some in each transaction.
fn in_pieces(volume: &Volume, change: impl Fn(&mut persimmon_engine::Transaction<'_>, u64)) {
    for first in (0..MANY).step_by(AT_ONCE as usize) {
        volume
            .update::<_, Error>(Intent::Grow, |tx| {
                (first..first + AT_ONCE).for_each(|n| change(tx, n));
                Ok(())
            })
            .unwrap();
    }
}

fn settle(volume: &Volume) {
    while volume.step(Task::Settle).unwrap() == Progress::Worked {}
}

/// The items of an inode that are stored, but for those that hide others.
fn stored_of(volume: &Volume, ino: Ino) -> usize {
    let mut found = 0;
    volume
        .snapshots()
        .walk_stored(
            |key, value| (key.ino == ino && !key.is_whiteout(value)).then_some(()),
            |()| found += 1,
        )
        .unwrap();
    found
}

#[test]
fn a_directory_whose_names_only_a_snapshot_has_is_freed() {
    let volume = open(&fresh(large_zones()), Compression::None);
    let name = |dir: Ino, n: u64| Key::new(dir, KeyKind::DIR_ENTRY, n << 32);
    for keeps_some in [false, true] {
        let dir = create(&volume).unwrap();
        in_pieces(&volume, |tx, n| tx.put(name(dir, n), b"a name".to_vec()));
        let before = stored_of(&volume, dir);
        let snapshot = volume
            .snapshots()
            .take(SubvolumeId::MAIN, b"one", true, NOW)
            .unwrap();
        // Names of its own, or what hides those of the snapshot.
        in_pieces(&volume, |tx, n| match keeps_some && n % 3 == 0 {
            true => tx.put(name(dir, n), b"another".to_vec()),
            false => tx.delete(name(dir, n)),
        });
        unlink(&volume, &[dir]);
        volume.reclaim(&[dir]).unwrap();
        assert!(volume.attr(dir).unwrap().is_none());
        assert!(volume.orphans().unwrap().is_empty());
        assert_eq!(stored_of(&volume, dir), before);
        check_stored(&volume);
        let last = name(dir.of(snapshot), MANY - 1);
        let shown = volume.view::<_, Error>(|view| Ok(view.get(&last)?.is_some()));
        assert!(shown.unwrap());
        volume.snapshots().delete(snapshot).unwrap();
        settle(&volume);
        assert_eq!(stored_of(&volume, dir), 0);
        check_stored(&volume);
    }
}

#[test]
fn inodes_behind_those_that_only_a_snapshot_has_are_counted() {
    let volume = open(&fresh(large_zones()), Compression::None);
    let inode = Inode {
        mode: 0o100_644,
        nlink: 1,
        uid: 7,
        ..Inode::default()
    };
    let put = |tx: &mut persimmon_engine::Transaction<'_>| {
        let ino = tx.new_ino();
        tx.put_inode(ino, &inode);
        ino
    };
    let first = volume
        .update::<_, Error>(Intent::Grow, |tx| Ok(put(tx)))
        .unwrap();
    in_pieces(&volume, |tx, _| {
        put(tx);
    });
    // One with many attributes among them.
    let bulky = create(&volume).unwrap();
    let attribute = |n: u64| Key::new(bulky, KeyKind::XATTR, n << 32);
    in_pieces(&volume, |tx, n| tx.put(attribute(n), b"value".to_vec()));
    let last = volume
        .update::<_, Error>(Intent::Grow, |tx| Ok(put(tx)))
        .unwrap();
    volume
        .snapshots()
        .take(SubvolumeId::MAIN, b"one", true, NOW)
        .unwrap();
    in_pieces(&volume, |tx, n| tx.delete(Key::inode(Ino(first.0 + 1 + n))));
    unlink(&volume, &[bulky]);
    volume.reclaim(&[bulky]).unwrap();
    let quotas = Quotas::of(&volume);
    quotas.turn_on(false).unwrap();
    while volume.step(Task::Count).unwrap() == Progress::Worked {}
    assert_eq!(quotas.state().counting, Counting::All);
    let owner = Owner {
        kind: OwnerKind::User,
        id: 7,
    };
    assert_eq!(quotas.get(owner).unwrap().usage.inodes, 2);
    assert!(last.0 > first.0 + MANY);
}

/// Of all that was made since, a walk through a snapshot looks at each page a few times: it began again with each page that was not in memory,
/// and kept all of them there until it came to its end.
#[test]
fn a_walk_passes_over_what_is_hidden_once() {
    let device = fresh(large_zones());
    let volume = open(&device, Compression::None);
    let first = create(&volume).unwrap();
    let snapshot = volume
        .snapshots()
        .take(SubvolumeId::MAIN, b"one", true, NOW)
        .unwrap();
    let inode = Inode {
        mode: 0o100_644,
        nlink: 1,
        ..Inode::default()
    };
    for _ in 0..5 {
        in_pieces(&volume, |tx, _| {
            let ino = tx.new_ino();
            tx.put_inode(ino, &inode);
        });
    }
    volume.step(Task::Checkpoint).unwrap();
    drop(volume);
    let options = Options {
        cache_bytes_max: 32 * 16_384,
        ..Options::default()
    };
    let volume = open_as(&device, options);
    let before = volume.statistics();
    let mut found = Vec::new();
    let keys = Key::inode(first.of(snapshot))..;
    let pick = |key: Key, _: &[u8]| (key.kind == KeyKind::INODE).then_some(key.ino);
    let walked = volume.walk_while(keys, pick, |ino| {
        found.push(ino);
        ControlFlow::Continue(())
    });
    walked.unwrap();
    assert_eq!(found, [first.of(snapshot)]);
    let did = volume.statistics().since(&before);
    assert!(did.pages_fetched > 100, "{did:?}");
    let looks = did.pages_looked_at / did.pages_fetched;
    assert!(looks < 10, "{looks} looks a page: {did:?}");
}

/// A file that was emptied while a snapshot has its blocks, very many of them, and has got a few anew.
#[test]
fn a_file_is_sought_through_and_cloned_over_what_only_a_snapshot_has() {
    const BLOCK: usize = 4096;
    let volume = open(&fresh(large_zones()), Compression::None);
    let (ino, copy) = (create(&volume).unwrap(), create(&volume).unwrap());
    // None goes on in the next one.
    for n in 0..3000 {
        write(&volume, ino, 2 * n * BLOCK, &noise(1, BLOCK));
    }
    volume.sync().unwrap();
    volume
        .snapshots()
        .take(SubvolumeId::MAIN, b"one", true, NOW)
        .unwrap();
    volume.truncate(ino, 0, NOW).unwrap();
    let new = noise(2, BLOCK);
    for at in [2500, 5000] {
        write(&volume, ino, at * BLOCK, &new);
    }
    volume.truncate(ino, 8000 * BLOCK as u64, NOW).unwrap();
    volume.sync().unwrap();
    let seek = |from: usize, what| {
        let found = volume.seek(ino, (from * BLOCK) as u64, what).unwrap();
        found.map(|byte| byte as usize / BLOCK)
    };
    assert_eq!(seek(0, Seek::Data), Some(2500));
    assert_eq!(seek(2501, Seek::Data), Some(5000));
    assert_eq!(seek(5001, Seek::Data), None);
    assert_eq!(seek(0, Seek::Hole), Some(0));
    assert_eq!(seek(2500, Seek::Hole), Some(2501));
    let len = 8000 * BLOCK;
    write(&volume, copy, 0, &noise(3, 6000 * BLOCK));
    assert_eq!(clone(&volume, (ino, 0), (copy, 0), len), len);
    let content = read(&volume, ino, 0, len);
    assert!(read(&volume, copy, 0, len) == content);
    assert!(content[5000 * BLOCK..5001 * BLOCK] == new);
    assert!(content.iter().filter(|byte| **byte != 0).count() < 2 * BLOCK);
    check_stored(&volume);
}
