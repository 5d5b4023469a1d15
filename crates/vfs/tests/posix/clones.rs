//! Clones of what is in a directory, many files in a record.

use std::collections::BTreeMap;
use std::sync::Arc;

use persimmon_engine::Quotas;
use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{
    AccessTimes, Caller, ClonedEntries, FileKind, Handle, Ino, InodeFlags, Listing, NamedIno,
    Options, Result, SetAttr, SetTime, Timestamp, WriteFlags, XattrMode,
};

use crate::crash::at_every_cut;
use crate::fixture::{Fixture, READ_WRITE};

/// All of a directory, in calls of a bounded size.
fn clone_all(fs: &Fixture, from: Ino, to: Ino, names_max: usize) -> Result<ClonedEntries> {
    let mut all = ClonedEntries::default();
    let mut cookie = 0;
    loop {
        let some = fs
            .vfs
            .clone_entries(&fs.root, from, to, (cookie, names_max))?;
        all.files += some.files;
        all.bytes += some.bytes;
        all.made.extend(some.made);
        all.left.extend(some.left);
        match some.next {
            Some(next) => cookie = next,
            None => return Ok(all),
        }
    }
}

fn noise(seed: u8, len: usize) -> Vec<u8> {
    let mut state = u32::from(seed) + 1;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(next).collect()
}

fn make(fs: &Fixture, dir: Ino, name: &str, content: &[u8]) -> Ino {
    let made = fs
        .vfs
        .mknod(&fs.root, dir, name.as_bytes(), 0o640, 0)
        .unwrap();
    fs.write(made.ino, 0, content);
    made.ino
}

/// Names and contents of the files in a directory.
fn files(fs: &Fixture, dir: Ino) -> BTreeMap<String, Vec<u8>> {
    let mut found = Vec::new();
    let list = &mut |entry: &persimmon_vfs::Entry<'_>| {
        if entry.kind == FileKind::Regular {
            found.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.ino));
        }
        Listing::More
    };
    fs.vfs.readdir(dir, Handle::NONE, 0, list).unwrap();
    found
        .into_iter()
        .map(|(name, ino)| (name, fs.content(ino)))
        .collect()
}

fn names(entries: &[NamedIno]) -> Vec<&str> {
    let mut names: Vec<&str> = entries
        .iter()
        .map(|named| std::str::from_utf8(&named.name).unwrap())
        .collect();
    names.sort_unstable();
    names
}

const SIZES: [usize; 8] = [0, 1, 100, 4096, 5000, 40_000, 300_001, 900_000];

#[test]
fn clones_have_content_and_attributes_of_their_sources() {
    let fs = Fixture::new(Options {
        access_times: AccessTimes::Never,
        ..Options::default()
    });
    let (from, to) = (fs.mkdir("from"), fs.mkdir("to"));
    let (uid, gid, time) = (
        7,
        8,
        Timestamp {
            seconds: 5,
            nanoseconds: 6,
        },
    );
    for (at, size) in SIZES.iter().enumerate() {
        let mut content = noise(at as u8, *size);
        if at % 2 == 1 && at < 7 {
            // It compresses to some two thirds.
            content.chunks_mut(96).for_each(|chunk| {
                let len = chunk.len() / 3;
                chunk[..len].fill(0);
            });
        }
        let ino = make(&fs, from, &format!("f{at}"), &content);
        let set = SetAttr {
            mode: Some(0o4751),
            uid: Some(uid),
            gid: Some(gid),
            atime: Some(SetTime::At(time)),
            mtime: Some(SetTime::At(time)),
            ..SetAttr::default()
        };
        fs.vfs.setattr(ino, Handle::NONE, &set).unwrap();
        for (name, value) in [
            (&b"user.a"[..], &b"b"[..]),
            (b"trusted.c", b""),
            (b"user.persimmon.compression", b"zstd:3"),
        ] {
            fs.vfs
                .setxattr(&fs.root, ino, name, value, XattrMode::Create)
                .unwrap();
        }
        let flags = InodeFlags {
            compress: true,
            no_dump: true,
            immutable: at == 3,
            ..InodeFlags::default()
        };
        fs.vfs.set_inode_flags(&fs.root, ino, flags).unwrap();
    }
    // A hole between data, and one at the end.
    let holes = make(&fs, from, "holes", &[1; 10_000]);
    fs.write(holes, 1 << 20, &[2; 10_000]);
    let set = SetAttr {
        size: Some(3 << 20),
        ..SetAttr::default()
    };
    fs.vfs.setattr(holes, Handle::NONE, &set).unwrap();
    fs.vfs
        .symlink(&fs.root, from, b"link", b"to/where")
        .unwrap();
    fs.vfs
        .mknod(&fs.root, from, b"fifo", libc::S_IFIFO | 0o600, 0)
        .unwrap();
    fs.vfs.mkdir(&fs.root, from, b"dir", 0o755).unwrap();
    let linked = make(&fs, from, "linked", b"twice");
    fs.vfs.link(linked, from, b"linked too").unwrap();
    make(&fs, from, "taken", b"source");
    make(&fs, to, "taken", b"target");

    for (names_max, to) in [(usize::MAX, to), (1, fs.mkdir("by one"))] {
        let done = clone_all(&fs, from, to, names_max).unwrap();
        let mut left = vec!["dir", "linked", "linked too"];
        if names_max > 1 {
            left.push("taken");
        }
        assert_eq!(names(&done.left), left);
        assert_eq!(done.made.len() as u64, done.files + 2);
        let due: usize = SIZES.iter().sum();
        assert!(
            done.bytes as usize >= due + 20_000 && done.bytes < due as u64 + 40_000,
            "{done:?}"
        );
        let (there, here) = (files(&fs, from), files(&fs, to));
        for at in 0..SIZES.len() {
            let name = format!("f{at}");
            assert!(there[&name] == here[&name], "{name}");
            let ino = fs.vfs.lookup(to, name.as_bytes()).unwrap().ino;
            let source = fs.vfs.lookup(from, name.as_bytes()).unwrap();
            let attr = fs.vfs.getattr(ino).unwrap();
            assert_eq!(
                (attr.mode & 0o7777, attr.uid, attr.gid, attr.nlink),
                (0o4751, uid, gid, 1)
            );
            assert_eq!((attr.atime, attr.mtime), (time, time));
            assert_eq!((attr.size, attr.blocks), (source.size, source.blocks));
            assert!(attr.ctime > source.mtime && attr.btime > source.btime);
            assert_eq!(fs.vfs.getxattr(ino, b"user.a").unwrap(), b"b");
            let list = fs.vfs.listxattr(&Caller::root(), ino).unwrap();
            assert_eq!(list.split(|byte| *byte == 0).count(), 4);
            let flags = fs.vfs.inode_flags(ino).unwrap();
            assert_eq!(
                (flags.compress, flags.no_dump, flags.immutable),
                (true, true, false)
            );
        }
        assert!(there["holes"] == here["holes"]);
        let link = fs.vfs.lookup(to, b"link").unwrap();
        assert_eq!(fs.vfs.readlink(link.ino).unwrap(), b"to/where");
        assert_eq!(fs.vfs.lookup(to, b"fifo").unwrap().kind(), FileKind::Fifo);
        assert_eq!(
            fs.vfs.getattr(to).unwrap().size,
            done.made.len() as u64 + u64::from(names_max > 1)
        );
    }
    let taken = fs.vfs.lookup(to, b"taken").unwrap().ino;
    assert_eq!(fs.content(taken), b"target");
    // What is written to one is its own.
    let clone = fs.vfs.lookup(to, b"f7").unwrap().ino;
    let before = files(&fs, from);
    fs.write(clone, 100_000, &[9; 5000]);
    assert!(files(&fs, from) == before);
    fs.remount();
}

#[test]
fn clones_of_a_snapshot_are_as_it_is() {
    let fs = Fixture::default();
    let (from, to) = (fs.mkdir("from"), fs.mkdir("to"));
    for (at, size) in SIZES.iter().enumerate() {
        make(&fs, from, &format!("f{at}"), &noise(at as u8, *size));
    }
    let due = files(&fs, from);
    let snapshot = fs.vfs.take_snapshot(b"s", true).unwrap();
    for name in due.keys() {
        let ino = fs.vfs.lookup(from, name.as_bytes()).unwrap().ino;
        fs.write(ino, 50, &noise(77, 60_000));
    }
    let changed = files(&fs, from);
    let done = clone_all(&fs, from.of(snapshot), to, usize::MAX).unwrap();
    assert_eq!((done.left.len(), done.files), (0, SIZES.len() as u64));
    assert!(files(&fs, to) == due);
    let again = fs.mkdir("again");
    clone_all(&fs, from, again, usize::MAX).unwrap();
    assert!(files(&fs, again) == changed);
    assert!(
        fs.vfs
            .clone_entries(&fs.root, from, from.of(snapshot), (0, 1000))
            .is_err()
    );
    fs.vfs.delete_snapshot(b"s").unwrap();
    assert!(files(&fs, to) == due && files(&fs, again) == changed);
    fs.remount();
}

/// What is staged of a file, and what somebody stages of it right after, are told apart.
#[test]
fn what_was_written_before_is_cloned() {
    let fs = Fixture::default();
    let (from, to) = (fs.mkdir("from"), fs.mkdir("to"));
    let (attr, handle) = fs
        .vfs
        .create(&fs.root, from, b"f", 0o644, READ_WRITE)
        .unwrap();
    let put = |at: u64, bytes: &[u8]| {
        let flags = WriteFlags::default();
        fs.vfs.write(attr.ino, handle, at, bytes, flags).unwrap();
    };
    put(0, &noise(1, 200_000));
    fs.vfs.fsync(attr.ino, handle).unwrap();
    put(70_000, &noise(2, 9000));
    let due = fs.content(attr.ino);
    clone_all(&fs, from, to, usize::MAX).unwrap();
    put(70_000, &noise(3, 9000));
    fs.vfs.fsync(attr.ino, handle).unwrap();
    assert!(files(&fs, to)["f"] == due);
    fs.vfs.release(attr.ino, handle).unwrap();
    fs.remount();
}

/// A block that is compressed alone cannot be shared: what is stored of it is put again, while it is short.
#[test]
fn single_compressed_blocks_are_put_again() {
    const FILES: usize = 300;
    let device = Arc::new(SimDevice::new(SimConfig::new(64, 1024).fast()));
    let engine = persimmon_engine::Options {
        compression: persimmon_format::Compression::Lz4,
        ..persimmon_engine::Options::default()
    };
    let fs = Fixture::with_engine(device, engine, Options::default());
    let (from, to) = (fs.mkdir("from"), fs.mkdir("to"));
    let content = |at: usize, len: usize| {
        let mut content = noise(at as u8, len);
        content.resize(4000, 0);
        content
    };
    for at in 0..FILES {
        make(&fs, from, &format!("f{at}"), &content(at, 500 + at));
    }
    make(&fs, from, "long", &content(1, 3000));
    fs.vfs.sync().unwrap();
    let done = clone_all(&fs, from, to, usize::MAX).unwrap();
    assert_eq!(names(&done.left), ["long"]);
    assert_eq!(done.files as usize, FILES);
    assert_eq!(files(&fs, to).len(), FILES);
    fs.vfs.sync().unwrap();
    let fs = fs.after_power_cut(1);
    let (there, here) = (files(&fs, fs.ino("from")), files(&fs, fs.ino("to")));
    assert!(here.len() == FILES && here.iter().all(|(name, bytes)| there[name] == *bytes));
    let changed = fs.ino("to/f0");
    fs.write(changed, 100, &[9; 50]);
    fs.vfs.sync().unwrap();
    assert!(fs.content(fs.ino("from/f0")) == content(0, 500));
    // Of clones too, one name after the other, and of what may not be packed yet. A block with a delta is cloned by itself.
    fs.unlink("to/f0");
    let (to, again, third) = (fs.ino("to"), fs.mkdir("again"), fs.mkdir("third"));
    let due = files(&fs, to);
    for (from, to, names_max) in [(to, again, 1), (again, third, usize::MAX)] {
        let done = clone_all(&fs, from, to, names_max).unwrap();
        // For some the tree may have no room before others are packed.
        let made = files(&fs, to);
        assert_eq!(made.len() + done.left.len(), due.len());
        assert!(made.len() > FILES / 2 && made.iter().all(|(name, bytes)| due[name] == *bytes));
    }
    fs.remount();
}

/// After a crash each file is there whole, or not at all; those of which a sync told are there.
#[test]
fn a_crash_leaves_whole_clones() {
    const FILES: usize = 40;
    let content = |at: usize| noise(at as u8, [10, 5000, 70_000][at % 3]);
    at_every_cut(
        |fs| {
            let from = fs.mkdir("from");
            fs.mkdir("to");
            for at in 0..FILES {
                make(fs, from, &format!("f{at}"), &content(at));
            }
        },
        |fs, synced: &mut usize| {
            let (from, to) = (fs.ino("from"), fs.ino("to"));
            let mut cookie = Some(0);
            while let Some(after) = cookie {
                let some = fs.vfs.clone_entries(&fs.root, from, to, (after, 60))?;
                fs.vfs.fsyncdir(to, Handle::NONE)?;
                *synced += some.made.len();
                cookie = some.next;
            }
            Ok(())
        },
        |fs, synced| {
            let found = files(fs, fs.ino("to"));
            assert!(found.len() >= *synced, "{} of {synced}", found.len());
            let due = files(fs, fs.ino("from"));
            assert_eq!(due.len(), FILES);
            for (name, bytes) in &found {
                assert!(due[name] == *bytes, "{name}");
            }
        },
    );
}

/// What clones take is counted for their owners. Where limits count, each file is looked at by itself.
#[test]
fn clones_count_and_limits_are_kept() {
    let fs = Fixture::default();
    let from = fs.mkdir("from");
    for (at, size) in SIZES.iter().enumerate() {
        let ino = make(&fs, from, &format!("f{at}"), &noise(at as u8, *size));
        let set = SetAttr {
            uid: Some(at as u32),
            ..SetAttr::default()
        };
        fs.vfs.setattr(ino, Handle::NONE, &set).unwrap();
    }
    let quotas = Quotas::of(fs.vfs.volume());
    quotas.turn_on(true).unwrap();
    quotas.count().unwrap();
    let to = fs.mkdir("to");
    let done = clone_all(&fs, from, to, usize::MAX).unwrap();
    assert_eq!((done.files, done.left.len()), (SIZES.len() as u64, 0));
    let (user, to) = (
        Caller {
            uid: 7,
            ..Caller::root()
        },
        fs.mkdir("by a user"),
    );
    let done = fs
        .vfs
        .clone_entries(&user, from, to, (0, usize::MAX))
        .unwrap();
    assert_eq!((done.files, done.left.len()), (0, SIZES.len()));
    fs.remount();
}
