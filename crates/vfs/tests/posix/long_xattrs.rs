//! Extended attributes whose values are longer than an item of the tree.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use persimmon_engine::{Intent, Progress, Task};
use persimmon_format::name::{ITEM_END, keep_bits};
use persimmon_format::xattr::{PIECE_LEN, SLOT_ITEMS, piece_key};
use persimmon_format::zone_header::LONG_XATTRS;
use persimmon_format::{Key, KeyKind};
use persimmon_posix_tests::list_of;
use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{Caller, Error, Ino, Options, ROOT, Result, SNAPSHOTS, XattrMode};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::crash::at_every_cut;
use crate::features::take_feature;
use crate::fixture::Fixture;

const A: &[u8] = b"user.a";
const B: &[u8] = b"user.b";

/// Content that does not compress, with zeros in between: a piece of one zero byte is none.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |at| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if at % PIECE_LEN == 0 { 0 } else { state as u8 }
    };
    (0..len).map(next).collect()
}

fn set(fs: &Fixture, ino: Ino, name: &[u8], value: &[u8]) -> Result<()> {
    let either = XattrMode::Either;
    fs.vfs.setxattr(&fs.root, ino, name, value, either)
}

/// Pieces that the tree has of an inode, attributes, and all else.
fn items(fs: &Fixture, ino: Ino) -> (usize, usize, usize) {
    let mut found = (0, 0, 0);
    let all = Key::inode(ino)..Key::inode(Ino(ino.0 + 1));
    let scanned = fs.vfs.volume().view::<_, persimmon_engine::Error>(|view| {
        found = (0, 0, 0);
        view.scan(all.clone(), |key, _| {
            match key.kind {
                KeyKind::XATTR if key.item >= ITEM_END => found.0 += 1,
                KeyKind::XATTR => found.1 += 1,
                _ => found.2 += 1,
            }
            Ok(ControlFlow::Continue(()))
        })
    });
    scanned.unwrap();
    found
}

fn change(fs: &Fixture, change: impl Fn(&mut persimmon_engine::Transaction<'_>)) {
    let changed =
        fs.vfs
            .volume()
            .update::<(), persimmon_engine::Error>(Intent::Grow, |transaction| {
                change(transaction);
                Ok(())
            });
    changed.unwrap();
}

/// The slot of the first long value of an inode.
fn first_slot(fs: &Fixture, ino: Ino) -> u64 {
    let mut found = None;
    let from = Key::new(ino, KeyKind::XATTR, ITEM_END)..Key::new(ino, KeyKind::SYMLINK, 0);
    let scanned = fs.vfs.volume().view::<_, persimmon_engine::Error>(|view| {
        view.scan(from.clone(), |key, _| {
            found = Some((key.item - ITEM_END) / SLOT_ITEMS);
            Ok(ControlFlow::Break(()))
        })
    });
    scanned.unwrap();
    found.unwrap()
}

#[test]
fn values_of_every_length_up_to_64_kib_take_the_place_of_each_other() {
    let mut fs = Fixture::default();
    let ino = fs.file("f", b"");
    let long = |len: usize| if len > 3900 { len.div_ceil(4000) } else { 0 };
    let lens = [
        0, 3899, 3900, 3901, 4000, 4001, 3900, 8000, 65_536, 65_535, 5, 64_001, 64_000, 4001,
        65_536,
    ];
    for (round, len) in lens.into_iter().enumerate() {
        let value = noise(round as u64, len);
        set(&fs, ino, A, &value).unwrap();
        assert_eq!(fs.vfs.getxattr(ino, A).unwrap(), value, "{len}");
        assert_eq!(items(&fs, ino), (long(len), 1, 1), "{len} bytes");
        set(&fs, ino, B, &noise(9, 65_536 - len)).unwrap();
        fs = fs.remount();
        assert_eq!(fs.vfs.getxattr(ino, A).unwrap(), value, "{len}");
        assert_eq!(fs.vfs.getxattr(ino, B).unwrap(), noise(9, 65_536 - len));
        assert_eq!(
            fs.vfs.listxattr(&fs.root, ino).unwrap().len(),
            A.len() + B.len() + 2
        );
        fs.vfs.removexattr(ino, B).unwrap();
    }
    let refused = set(&fs, ino, A, &[1; 65_537]).unwrap_err();
    assert_eq!(refused.errno(), libc::E2BIG);
    let exists = fs
        .vfs
        .setxattr(&fs.root, ino, A, &[1; 5000], XattrMode::Create);
    assert!(matches!(exists, Err(Error::Exists)));
    assert_eq!(fs.vfs.getxattr(ino, A).unwrap(), noise(14, 65_536));
    fs.vfs.removexattr(ino, A).unwrap();
    assert_eq!(items(&fs, ino), (0, 0, 1));
    let absent = fs
        .vfs
        .setxattr(&fs.root, ino, A, &[1; 5000], XattrMode::Replace);
    assert!(matches!(absent, Err(Error::NoAttribute)));
    fs.remount();
}

#[test]
fn an_inode_has_many_long_values_and_all_go_with_it() {
    let mut fs = Fixture::default();
    let ino = fs.file("f", b"content");
    let name = |n: u64| format!("user.{n}").into_bytes();
    for n in 0..300 {
        set(&fs, ino, &name(n), &noise(n, 40_000 + n as usize)).unwrap();
    }
    assert_eq!(items(&fs, ino).0, 11 * 300 - 1);
    fs = fs.remount();
    for n in 0..300 {
        let value = fs.vfs.getxattr(ino, &name(n)).unwrap();
        assert_eq!(value, noise(n, 40_000 + n as usize), "{n}");
    }
    fs.unlink("f");
    assert_eq!(items(&fs, ino), (0, 0, 0));
    fs.remount();
}

/// The slot that a name's hash begins with may be another's.
#[test]
fn long_values_of_names_that_collide() {
    keep_bits(0);
    let mut fs = Fixture::default();
    let ino = fs.file("f", b"");
    let name = |n: u64| format!("user.{n}").into_bytes();
    for n in 0..80 {
        set(&fs, ino, &name(n), &noise(n, 5000)).unwrap();
    }
    for n in (0..80).step_by(3) {
        fs.vfs.removexattr(ino, &name(n)).unwrap();
    }
    for n in 80..110 {
        set(&fs, ino, &name(n), &noise(n, 20_000)).unwrap();
    }
    fs = fs.remount();
    for n in 0..110 {
        let value = fs.vfs.getxattr(ino, &name(n));
        match (n % 3 == 0 && n < 80, n < 80) {
            (true, _) => assert!(matches!(value, Err(Error::NoAttribute))),
            (_, true) => assert_eq!(value.unwrap(), noise(n, 5000)),
            _ => assert_eq!(value.unwrap(), noise(n, 20_000)),
        }
    }
    // A slot that somebody has whose hash did not say so: the next one is taken.
    let slot = first_slot(&fs, ino);
    let (_, before, _) = items(&fs, ino);
    fs.vfs.removexattr(ino, &name(1)).unwrap();
    set(&fs, ino, &name(1), &noise(1, 9000)).unwrap();
    assert_eq!(items(&fs, ino).1, before);
    assert!(first_slot(&fs, ino) <= slot + 1);
    fs.remount();
    keep_bits(u64::MAX);
}

/// What a power cut leaves is what there was after one of the changes since the last sync: no value of parts of two.
#[test]
fn a_power_cut_leaves_values_whole() {
    type State = BTreeMap<(usize, u8), Vec<u8>>;
    for seed in 0..12u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let config = SimConfig::new(24, 256);
        let device = SimDevice::new(match seed % 3 {
            0 => config,
            1 => config.volatile_cache().reordering(seed),
            _ => config.host_file().reordering(seed),
        });
        let mut fs = Fixture::on(Arc::new(device), Options::default());
        let inos = [fs.file("a", b""), fs.file("b", b"b"), fs.mkdir("c")];
        fs.vfs.sync().unwrap();
        let mut states: Vec<State> = vec![State::new()];
        for cut in 0..4 {
            for op in 0..rng.random_range(5..40) {
                let mut now = states.last().unwrap().clone();
                let (file, name) = (rng.random_range(0..3), rng.random_range(0..3u8));
                let text = [b"user.".as_slice(), &[b'a' + name]].concat();
                if rng.random_ratio(1, 4) {
                    let removed = fs.vfs.removexattr(inos[file], &text);
                    assert_eq!(removed.is_ok(), now.remove(&(file, name)).is_some());
                } else {
                    let len = [
                        rng.random_range(0..=65_536),
                        rng.random_range(0..9000),
                        rng.random_range(3890..=3910),
                        65_536,
                    ][rng.random_range(0..4)];
                    let value = noise(seed << 20 | cut << 10 | op, len);
                    set(&fs, inos[file], &text, &value).unwrap();
                    now.insert((file, name), value);
                }
                states.push(now);
                match rng.random_range(0..12) {
                    0 => fs.vfs.sync().unwrap(),
                    1 => drop(fs.vfs.volume().step(Task::Checkpoint).unwrap()),
                    _ => continue,
                }
                states.drain(..states.len() - 1);
            }
            fs = fs.after_power_cut(seed * 10 + cut);
            let mut found = State::new();
            for (file, ino) in inos.into_iter().enumerate() {
                let names = fs.vfs.listxattr(&fs.root, ino).unwrap();
                for name in names.split(|byte| *byte == 0).filter(|n| !n.is_empty()) {
                    let value = fs.vfs.getxattr(ino, name).unwrap();
                    found.insert((file, name[5] - b'a'), value);
                }
            }
            assert!(
                states.contains(&found),
                "seed {seed}, cut {cut}: none of {} states",
                states.len()
            );
            states = vec![found];
        }
        fs.remount();
    }
}

/// At every command of the device.
#[test]
fn a_long_value_is_set_as_a_whole_or_not_at_all() {
    let (old, new) = (noise(1, 30_000), noise(2, 65_536));
    at_every_cut(
        |fs| {
            let ino = fs.file("f", b"");
            set(fs, ino, A, &old).unwrap();
        },
        |fs, synced: &mut bool| {
            set(fs, fs.ino("f"), A, &new)?;
            fs.vfs.sync()?;
            *synced = true;
            fs.vfs.volume().step(Task::Checkpoint)?;
            Ok(())
        },
        |fs, synced| {
            let value = fs.vfs.getxattr(fs.ino("f"), A).unwrap();
            assert!(value == new || value == old && !synced);
        },
    );
}

#[test]
fn a_full_volume_refuses_a_long_value_and_loses_nothing() {
    let device = SimDevice::new(SimConfig::new(24, 256).fast());
    let mut fs = Fixture::on(Arc::new(device), Options::default());
    let name = |n: u64| format!("user.{n}").into_bytes();
    let ino = fs.file("f", b"");
    let refused_at = (0..10_000).find(|n| match set(&fs, ino, &name(*n), &noise(*n, 65_536)) {
        Ok(()) => false,
        Err(Error::NoSpace) => true,
        Err(error) => panic!("{error}"),
    });
    let full = refused_at.unwrap();
    assert!(full > 20, "{full}");
    // One that is there may not get longer, and stays what it is.
    for _ in 0..2 {
        for n in 0..full {
            let value = fs.vfs.getxattr(ino, &name(n)).unwrap();
            assert_eq!(value, noise(n, 65_536), "{n}");
        }
        let listed = fs.vfs.getxattr(ino, &name(full));
        assert!(matches!(listed, Err(Error::NoAttribute)));
        fs = fs.remount();
    }
    for n in 0..full / 2 {
        fs.vfs.removexattr(ino, &name(n)).unwrap();
    }
    fs.vfs.sync().unwrap();
    for n in 0..full / 4 {
        set(&fs, ino, &name(n), &noise(n + 7, 65_536)).unwrap();
    }
    fs = fs.remount();
    for n in 0..full / 4 {
        assert_eq!(
            fs.vfs.getxattr(ino, &name(n)).unwrap(),
            noise(n + 7, 65_536)
        );
    }
    fs.unlink("f");
    fs.remount();
}

/// A value of which a piece is gone, or another's, is the trouble of that attribute alone.
#[test]
fn a_value_with_a_damaged_piece_is_eio() {
    for case in 0..5 {
        let fs = Fixture::default();
        let ino = fs.file("f", b"");
        let other = fs.file("g", b"");
        set(&fs, ino, A, &noise(1, 20_000)).unwrap();
        let slot = first_slot(&fs, ino);
        set(&fs, ino, B, &noise(2, 20_000)).unwrap();
        set(&fs, other, A, &noise(3, 20_000)).unwrap();
        change(&fs, |tx| match case {
            0 => tx.delete(piece_key(ino, slot, 0)),
            1 => tx.delete(piece_key(ino, slot, 2)),
            2 => tx.delete(piece_key(ino, slot, 4)),
            3 => tx.put(piece_key(ino, slot, 1), vec![2; 4001]),
            _ => tx.put(piece_key(ino, slot, 1), vec![1; 4001]),
        });
        let eio = |result: Result<()>| assert_eq!(result.unwrap_err().errno(), libc::EIO);
        eio(fs.vfs.getxattr(ino, A).map(drop));
        assert!(!fs.vfs.is_read_only());
        assert_eq!(fs.vfs.getxattr(ino, B).unwrap(), noise(2, 20_000));
        assert_eq!(fs.vfs.getxattr(other, A).unwrap(), noise(3, 20_000));
        assert_eq!(fs.vfs.listxattr(&fs.root, ino).unwrap().len(), 14);
        // It can be set anew, and removed.
        if case % 2 == 0 {
            set(&fs, ino, A, &noise(4, 9000)).unwrap();
            assert_eq!(fs.vfs.getxattr(ino, A).unwrap(), noise(4, 9000));
            assert_eq!(items(&fs, ino), (3 + 5, 2, 1));
        }
        fs.vfs.removexattr(ino, A).unwrap();
        assert_eq!(items(&fs, ino), (5, 1, 1));
        fs.remount();
    }
}

#[test]
fn a_volume_without_the_feature_keeps_its_bound() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    set(&fs, ino, A, &noise(1, 3900)).unwrap();
    let key = fs.vfs.volume().identity().key();
    fs.vfs.close().unwrap();
    take_feature(&fs.device, &key, LONG_XATTRS);
    let fs = fs.reopen();
    assert_eq!(fs.vfs.volume().identity().incompatible & LONG_XATTRS, 0);
    assert_eq!(fs.vfs.getxattr(ino, A).unwrap(), noise(1, 3900));
    for (len, error) in [
        (3901, libc::ENOSPC),
        (65_536, libc::ENOSPC),
        (65_537, libc::E2BIG),
    ] {
        let refused = set(&fs, ino, A, &vec![1; len]).unwrap_err();
        assert_eq!(refused.errno(), error, "{len}");
    }
    let list = list_of(488);
    let refused = set(&fs, ino, b"system.posix_acl_access", &list);
    assert_eq!(refused.unwrap_err().errno(), libc::E2BIG);
    set(&fs, ino, b"system.posix_acl_access", &list_of(487)).unwrap();
    assert_eq!(fs.vfs.getxattr(ino, A).unwrap(), noise(1, 3900));
    fs.remount();
}

#[test]
fn a_snapshot_has_the_value_that_was() {
    let mut fs = Fixture::default();
    let values = [noise(1, 65_536), noise(2, 12_000), b"short".to_vec()];
    let files: Vec<String> = (0..3).map(|n| format!("f{n}")).collect();
    let live: Vec<Ino> = files.iter().map(|name| fs.file(name, b"")).collect();
    for (ino, value) in live.iter().zip(&values) {
        set(&fs, *ino, A, value).unwrap();
    }
    let taken = fs.vfs.mkdir(&fs.root, SNAPSHOTS, b"s", 0o755).unwrap().ino;
    set(&fs, live[0], A, b"short now").unwrap();
    set(&fs, live[1], A, &noise(7, 30_000)).unwrap();
    set(&fs, live[2], A, &noise(8, 65_536)).unwrap();
    let check = |fs: &Fixture| {
        for (name, value) in files.iter().zip(&values) {
            let ino = fs.vfs.lookup(taken, name.as_bytes()).unwrap().ino;
            assert_eq!(&fs.vfs.getxattr(ino, A).unwrap(), value, "{name}");
        }
        assert_eq!(fs.vfs.getxattr(live[0], A).unwrap(), b"short now");
        assert_eq!(fs.vfs.getxattr(live[1], A).unwrap(), noise(7, 30_000));
        assert_eq!(fs.vfs.getxattr(live[2], A).unwrap(), noise(8, 65_536));
    };
    check(&fs);
    fs = fs.remount();
    check(&fs);
    for ino in &live {
        fs.vfs.removexattr(*ino, A).unwrap();
        assert!(matches!(fs.vfs.getxattr(*ino, A), Err(Error::NoAttribute)));
        set(&fs, *ino, B, &noise(9, 10_000)).unwrap();
    }
    fs.unlink("f1");
    fs = fs.remount();
    for (name, value) in files.iter().zip(&values) {
        let ino = fs.vfs.lookup(taken, name.as_bytes()).unwrap().ino;
        assert_eq!(&fs.vfs.getxattr(ino, A).unwrap(), value, "{name}");
    }
    // What hides the snapshot's attributes and pieces is no damage.
    fs.vfs.volume().step(Task::Checkpoint).unwrap();
    let mut cursor = Some(persimmon_engine::ScrubCursor::default());
    while let Some(at) = cursor {
        let step = fs.vfs.volume().scrub_step(at, 1000).unwrap();
        assert!(step.findings.is_empty(), "{:#?}", step.findings);
        cursor = step.next;
    }
    fs.vfs.rmdir(SNAPSHOTS, b"s").unwrap();
    while fs.vfs.volume().step(Task::Settle).unwrap() == Progress::Worked {}
    assert_eq!(items(&fs, live[0]), (3, 1, 1));
    assert_eq!(items(&fs, live[1]), (0, 0, 0));
    fs.remount();
}

#[test]
fn a_clone_has_long_values_that_are_not_too_many() {
    let fs = Fixture::default();
    let (from, to) = (fs.mkdir("from"), fs.mkdir("to"));
    let (some, much) = (fs.file("from/some", b"1"), fs.file("from/much", b"2"));
    set(&fs, some, A, &noise(1, 9000)).unwrap();
    set(&fs, much, A, &noise(2, 65_536)).unwrap();
    let done = fs
        .vfs
        .clone_entries(&fs.root, from, to, (0, usize::MAX))
        .unwrap();
    assert_eq!((done.made.len(), done.left.len()), (1, 1));
    assert_eq!(done.left[0].ino, much);
    assert_eq!(
        fs.vfs.getxattr(fs.ino("to/some"), A).unwrap(),
        noise(1, 9000)
    );
    fs.vfs.removexattr(some, A).unwrap();
    let fs = fs.remount();
    assert_eq!(
        fs.vfs.getxattr(fs.ino("to/some"), A).unwrap(),
        noise(1, 9000)
    );
}

/// What is made in a directory gets both its lists, each in pieces.
#[test]
fn lists_of_511_entries_are_set_followed_and_inherited() {
    let mut fs = Fixture::default();
    let (access, default) = (
        b"system.posix_acl_access".as_slice(),
        b"system.posix_acl_default".as_slice(),
    );
    let dir = fs.mkdir("d");
    for name in [access, default] {
        let refused = set(&fs, dir, name, &list_of(512)).unwrap_err();
        assert_eq!(refused.errno(), libc::E2BIG);
        set(&fs, dir, name, &list_of(511)).unwrap();
        assert_eq!(fs.vfs.getxattr(dir, name).unwrap(), list_of(511));
    }
    let below = fs.mkdir("d/below");
    assert_eq!(items(&fs, below), (4, 2, 1));
    fs = fs.remount();
    for name in [access, default] {
        assert_eq!(fs.vfs.getxattr(below, name).unwrap().len(), 4092);
    }
    let file = fs.file("d/below/file", b"");
    assert_eq!(items(&fs, file), (2, 1, 1));
    let named = Caller {
        uid: 1500,
        gid: 1500,
        ..Caller::default()
    };
    fs.vfs.access(&named, file, 4).unwrap();
    fs.chmod(file, 0o700);
    let refused = fs.vfs.access(&named, file, 4).unwrap_err();
    assert_eq!(refused.errno(), libc::EACCES);
    fs.chmod(file, 0o770);
    fs.vfs.access(&named, file, 4).unwrap();
    fs.vfs.removexattr(file, access).unwrap();
    assert_eq!(items(&fs, file), (0, 0, 1));
    assert_eq!(fs.vfs.getattr(ROOT).unwrap().ino, ROOT);
    fs.remount();
}
