//! Snapshots: what is in them, what may be changed in them, and the directory that lists them.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use persimmon_engine::{Progress, Task};
use persimmon_vfs::{
    Allocate, Attr, Error, Handle, Ino, Listing, OpenFlags, Options, ROOT, RenameMode, SNAPSHOTS,
    SetAttr, SetTime, SubvolumeId, Timestamp, WriteFlags, XattrMode,
};

use crate::fixture::{Fixture, READ_ONLY, READ_WRITE};

/// Takes a snapshot as whoever has a mount does.
fn take(fs: &Fixture, name: &str) -> Ino {
    let made = fs.vfs.mkdir(&fs.root, SNAPSHOTS, name.as_bytes(), 0o755);
    made.unwrap().ino
}

fn delete(fs: &Fixture, name: &str) {
    fs.vfs.rmdir(SNAPSHOTS, name.as_bytes()).unwrap();
}

/// Frees what deleted snapshots held.
fn settle(fs: &Fixture) {
    while fs.vfs.volume().step(Task::Settle).unwrap() == Progress::Worked {}
}

fn errno<T: std::fmt::Debug>(result: Result<T, Error>) -> i32 {
    result.unwrap_err().errno()
}

type Row = (String, Attr, Vec<u8>, usize, u64);

/// All below a directory: path, attributes but for the number and the access time, which this reading changes, extended attributes, length
/// and hash of content or target.
fn tree(fs: &Fixture, top: Ino) -> Vec<Row> {
    let mut found = Vec::new();
    let mut queue = vec![(String::new(), top)];
    while let Some((path, ino)) = queue.pop() {
        let attr = fs.vfs.getattr(ino).unwrap();
        assert_eq!(attr.ino.subvolume(), top.subvolume(), "{path}");
        let content = match attr.mode & libc::S_IFMT {
            libc::S_IFLNK => fs.vfs.readlink(ino).unwrap(),
            libc::S_IFREG => fs.content(ino),
            _ => Vec::new(),
        };
        let mut xattrs = Vec::new();
        let names = fs.vfs.listxattr(&fs.root, ino).unwrap();
        for name in names
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty())
        {
            xattrs.extend_from_slice(name);
            xattrs.extend(fs.vfs.getxattr(ino, name).unwrap());
        }
        let plain = Attr {
            ino: attr.ino.plain(),
            generation: 0,
            atime: Timestamp::default(),
            ..attr.written()
        };
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        found.push((path.clone(), plain, xattrs, content.len(), hasher.finish()));
        if attr.mode & libc::S_IFMT == libc::S_IFDIR {
            let list = |entry: &persimmon_vfs::Entry<'_>| {
                queue.push((
                    format!("{path}/{}", String::from_utf8_lossy(entry.name)),
                    entry.ino,
                ));
                Listing::More
            };
            let mut list = list;
            fs.vfs.readdir(ino, Handle::NONE, 2, &mut list).unwrap();
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Shows what differs alone.
fn assert_same(left: &[Row], right: &[Row]) {
    let only = |these: &[Row], those: &[Row]| -> Vec<Row> {
        let only = these.iter().filter(|row| !those.contains(row));
        only.cloned().collect()
    };
    let (left, right) = (only(left, right), only(right, left));
    assert!(left.is_empty() && right.is_empty(), "{left:#?}\n{right:#?}");
}

/// Files of all kinds and sizes, written: what is staged takes as many blocks as it may need.
fn populate(fs: &Fixture) {
    fs.mkdir("dir");
    fs.mkdir("dir/below");
    fs.file("small", b"a few bytes");
    let big: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
    fs.file("dir/big", &big);
    let sparse = fs.file("dir/below/sparse", b"begins");
    fs.write(sparse, 2 << 20, b"ends");
    fs.link("small", "dir/other name");
    let dir = fs.ino("dir");
    fs.vfs.symlink(&fs.root, dir, b"link", b"../small").unwrap();
    fs.vfs
        .mknod(&fs.root, dir, b"fifo", libc::S_IFIFO | 0o600, 0)
        .unwrap();
    let set = |ino: Ino, name: &[u8], value: &[u8]| {
        let either = XattrMode::Either;
        fs.vfs.setxattr(&fs.root, ino, name, value, either).unwrap();
    };
    set(fs.ino("small"), b"user.comment", b"as it was");
    set(dir, b"user.of", b"a directory");
    fs.mkdir("gone");
    fs.file("gone/file", &[7; 20_000]);
    fs.vfs.sync().unwrap();
}

/// Changes each of them in another way.
fn change_all(fs: &Fixture) {
    fs.write(fs.ino("small"), 2, b"XXXXXXXXXXXXXXXXXXXXXXXXXX");
    fs.write(fs.ino("dir/big"), 100_000, &[1; 50_000]);
    fs.truncate(fs.ino("dir/below/sparse"), 3);
    fs.unlink("dir/other name");
    fs.unlink("dir/link");
    fs.unlink("gone/file");
    fs.vfs.rmdir(ROOT, b"gone").unwrap();
    let (dir, root) = (fs.ino("dir"), ROOT);
    let replace = RenameMode::Replace;
    fs.vfs
        .rename(dir, b"below", root, b"moved", replace)
        .unwrap();
    fs.vfs
        .removexattr(fs.ino("small"), b"user.comment")
        .unwrap();
    let value = b"something else";
    let either = XattrMode::Either;
    fs.vfs
        .setxattr(&fs.root, dir, b"user.of", value, either)
        .unwrap();
    fs.chmod(fs.ino("dir/fifo"), 0o644);
    fs.file("dir/new", b"not there before");
    fs.vfs.sync().unwrap();
}

#[test]
fn a_snapshot_stays_as_it_was_whatever_changes() {
    let fs = Fixture::default();
    populate(&fs);
    let before = tree(&fs, ROOT);
    let first = take(&fs, "first");
    assert_same(&tree(&fs, first), &before);
    change_all(&fs);
    let changed = tree(&fs, ROOT);
    assert_ne!(changed, before);
    assert_same(&tree(&fs, first), &before);
    let second = take(&fs, "second");
    assert_same(&tree(&fs, second), &changed);
    fs.unlink("small");
    assert_same(&tree(&fs, first), &before);
    assert_same(&tree(&fs, second), &changed);

    let fs = fs.remount();
    assert_eq!(fs.names(".snapshots"), ["first", "second"]);
    let (first, second) = (fs.ino(".snapshots/first"), fs.ino(".snapshots/second"));
    assert_same(&tree(&fs, first), &before);
    assert_same(&tree(&fs, second), &changed);

    delete(&fs, "first");
    settle(&fs);
    assert_eq!(fs.names(".snapshots"), ["second"]);
    assert_same(&tree(&fs, second), &changed);
    assert_eq!(errno(fs.vfs.getattr(first)), libc::ESTALE);
    let fs = fs.remount();
    assert_same(&tree(&fs, fs.ino(".snapshots/second")), &changed);
    delete(&fs, "second");
    settle(&fs);
    fs.remount();
}

#[test]
fn what_was_taken_outlives_a_power_cut_once_it_was_synced() {
    let fs = Fixture::default();
    populate(&fs);
    let before = tree(&fs, ROOT);
    take(&fs, "kept");
    fs.vfs.fsyncdir(SNAPSHOTS, Handle::NONE).unwrap();
    change_all(&fs);
    fs.vfs.sync().unwrap();
    take(&fs, "lost or not");
    let fs = fs.after_power_cut(7);
    assert_same(&tree(&fs, fs.ino(".snapshots/kept")), &before);
}

#[test]
fn nothing_changes_in_a_read_only_snapshot() {
    let fs = Fixture::default();
    populate(&fs);
    let top = take(&fs, "s");
    let before = tree(&fs, top);
    let vfs = &fs.vfs;
    let (file, dir) = (fs.ino(".snapshots/s/small"), fs.ino(".snapshots/s/dir"));
    let none = Handle::NONE;
    let refused = [
        errno(vfs.open(file, READ_WRITE)),
        errno(vfs.open(
            file,
            OpenFlags {
                truncate: true,
                ..READ_ONLY
            },
        )),
        errno(vfs.write(file, none, 0, b"x", WriteFlags::default())),
        errno(vfs.setattr(
            file,
            none,
            &SetAttr {
                size: Some(0),
                ..SetAttr::default()
            },
        )),
        errno(vfs.setattr(
            file,
            none,
            &SetAttr {
                mode: Some(0),
                ..SetAttr::default()
            },
        )),
        errno(vfs.setattr(
            file,
            none,
            &SetAttr {
                atime: Some(SetTime::Now),
                ..SetAttr::default()
            },
        )),
        errno(vfs.fallocate(file, none, 0, 4096, Allocate::Punch)),
        errno(vfs.setxattr(&fs.root, file, b"user.x", b"", XattrMode::Either)),
        errno(vfs.setxattr(
            &fs.root,
            file,
            b"user.persimmon.lifetime",
            b"short",
            XattrMode::Either,
        )),
        errno(vfs.removexattr(file, b"user.comment")),
        errno(vfs.mknod(&fs.root, dir, b"n", libc::S_IFREG, 0)),
        errno(vfs.create(&fs.root, dir, b"n", 0o644, READ_WRITE)),
        errno(vfs.tmpfile(&fs.root, dir, 0o644, READ_WRITE)),
        errno(vfs.mkdir(&fs.root, dir, b"n", 0o755)),
        errno(vfs.symlink(&fs.root, dir, b"n", b"to")),
        errno(vfs.link(file, dir, b"n")),
        errno(vfs.unlink(dir, b"big")),
        errno(vfs.rmdir(dir, b"below")),
        errno(vfs.rename(dir, b"big", dir, b"bigger", RenameMode::Replace)),
        errno(vfs.rename(dir, b"big", dir, b"fifo", RenameMode::Exchange)),
        errno(vfs.access(&fs.root, file, 2)),
        errno(vfs.copy_file_range(
            (file, none, 0),
            (fs.ino(".snapshots/s/dir/big"), none, 0),
            4,
        )),
    ];
    assert_eq!(refused, [libc::EROFS; 22]);
    vfs.access(&fs.root, file, 4).unwrap();
    assert_same(&tree(&fs, top), &before);
}

/// Reading would set an access time, which is a change: it is left out, and the reading goes well.
#[test]
fn reading_a_snapshot_leaves_no_access_time() {
    for access_times in [
        persimmon_vfs::AccessTimes::Relative,
        persimmon_vfs::AccessTimes::Always,
    ] {
        let fs = Fixture::new(Options {
            access_times,
            ..Options::default()
        });
        let live = fs.file("f", b"content");
        take(&fs, "s");
        fs.clock.advance(200_000);
        let file = fs.ino(".snapshots/s/f");
        let before = fs.vfs.getattr(file).unwrap();
        let handle = fs.vfs.open(file, READ_ONLY).unwrap();
        assert!(!fs.vfs.opened_to_read(file, handle).unwrap());
        assert_eq!(fs.content(file), b"content");
        fs.vfs.fsync(file, handle).unwrap();
        fs.names(".snapshots/s");
        fs.vfs.flush_access_times().unwrap();
        assert_eq!(fs.vfs.getattr(file).unwrap(), before);
        let before = fs.vfs.getattr(live).unwrap().atime;
        fs.content(live);
        assert!(fs.vfs.getattr(live).unwrap().atime > before);
        fs.vfs.release(file, handle).unwrap();
        fs.remount();
    }
}

#[test]
fn names_do_not_reach_from_one_snapshot_into_another() {
    let fs = Fixture::default();
    populate(&fs);
    let taken = fs.vfs.take_snapshot(b"w", false).unwrap();
    let other = fs.vfs.take_snapshot(b"v", false).unwrap();
    let (w, v) = (ROOT.of(taken), ROOT.of(other));
    let vfs = &fs.vfs;
    let replace = RenameMode::Replace;
    for (from, to) in [(w, ROOT), (ROOT, w), (w, v)] {
        assert_eq!(
            errno(vfs.rename(from, b"small", to, b"new", replace)),
            libc::EXDEV
        );
        assert_eq!(
            errno(vfs.rename(from, b"dir", to, b"new", replace)),
            libc::EXDEV
        );
        let exchange = RenameMode::Exchange;
        assert_eq!(
            errno(vfs.rename(from, b"small", to, b"dir", exchange)),
            libc::EXDEV
        );
        let file = vfs.lookup(from, b"small").unwrap().ino;
        assert_eq!(errno(vfs.link(file, to, b"new")), libc::EXDEV);
    }
    vfs.rename(w, b"small", w, b"renamed", replace).unwrap();
    assert!(fs.exists(".snapshots/v/small") && fs.exists("small"));
}

/// Both that are written to, and the one that is not, go their own way, and each name leads within its own.
#[test]
fn writable_snapshots_go_their_own_way() {
    let fs = Fixture::default();
    populate(&fs);
    let before = tree(&fs, ROOT);
    let kept = take(&fs, "kept");
    let w = ROOT.of(fs.vfs.take_snapshot(b"w", false).unwrap());
    assert_same(&tree(&fs, w), &before);

    let made = fs.mkdir(".snapshots/w/made");
    assert_eq!(made.subvolume(), w.subvolume());
    let inside = fs.file(".snapshots/w/made/inside", b"in the snapshot");
    assert_eq!(fs.vfs.lookup(made, b"..").unwrap().ino, w);
    let replace = RenameMode::Replace;
    fs.vfs
        .rename(w, b"made", fs.ino(".snapshots/w/dir"), b"made", replace)
        .unwrap();
    assert_eq!(
        fs.vfs.lookup(made, b"..").unwrap().ino,
        fs.ino(".snapshots/w/dir")
    );
    // Not below itself, which the way up tells.
    let below = fs.ino(".snapshots/w/dir/made");
    let loop_made = fs.vfs.rename(w, b"dir", below, b"x", replace);
    assert_eq!(errno(loop_made), libc::EINVAL);
    fs.link(".snapshots/w/dir/made/inside", ".snapshots/w/linked");
    assert_eq!(fs.at(".snapshots/w/linked").ino, inside);
    let small = fs.ino(".snapshots/w/small");
    fs.write(small, 0, b"WRITTEN");
    fs.unlink(".snapshots/w/dir/big");
    let (attr, handle) = fs.vfs.tmpfile(&fs.root, w, 0o600, READ_WRITE).unwrap();
    fs.vfs
        .write(attr.ino, handle, 0, b"nameless", WriteFlags::default())
        .unwrap();
    fs.vfs.link(attr.ino, w, b"named").unwrap();
    fs.vfs.release(attr.ino, handle).unwrap();
    fs.content(small);
    assert_same(&tree(&fs, ROOT), &before);
    assert_same(&tree(&fs, kept), &before);

    change_all(&fs);
    assert_same(&tree(&fs, kept), &before);
    fs.vfs.sync().unwrap();
    let (main, own) = (tree(&fs, ROOT), tree(&fs, w));
    let fs = fs.remount();
    assert_same(&tree(&fs, ROOT), &main);
    assert_same(&tree(&fs, w), &own);
    assert_same(&tree(&fs, kept), &before);
    assert_eq!(fs.content(fs.ino(".snapshots/w/named")), b"nameless");

    delete(&fs, "kept");
    settle(&fs);
    let fs = fs.remount();
    assert_same(&tree(&fs, ROOT), &main);
    assert_same(&tree(&fs, w), &own);
}

/// What has no name any more and is open in a snapshot, and what lost its name there before a crash.
#[test]
fn unlinked_files_of_a_writable_snapshot_are_freed() {
    let fs = Fixture::default();
    fs.file("f", &[1; 40_000]);
    fs.file("g", &[2; 40_000]);
    fs.vfs.take_snapshot(b"w", false).unwrap();
    let (f, g) = (fs.ino(".snapshots/w/f"), fs.ino(".snapshots/w/g"));
    let handle = fs.open(f);
    fs.unlink(".snapshots/w/f");
    assert_eq!(fs.content(f), [1; 40_000]);
    fs.vfs.release(f, handle).unwrap();
    assert_eq!(errno(fs.vfs.getattr(f)), libc::ESTALE);
    fs.open(g);
    fs.unlink(".snapshots/w/g");
    fs.vfs.sync().unwrap();
    let fs = fs.after_power_cut(3);
    assert_eq!(errno(fs.vfs.getattr(g)), libc::ESTALE);
    assert_eq!(fs.content(fs.ino("g")), [2; 40_000]);
    assert_eq!(fs.content(fs.ino("f")), [1; 40_000]);
    fs.remount();
}

#[test]
fn the_directory_of_snapshots_is_found_and_not_listed() {
    let fs = Fixture::default();
    fs.file("f", b"x");
    let empty = fs.at(".snapshots");
    assert_eq!((empty.ino, empty.nlink, empty.size), (SNAPSHOTS, 2, 0));
    assert_eq!(empty.mode, libc::S_IFDIR | 0o755);
    assert_eq!(fs.names(""), ["f"]);
    let s = take(&fs, "s");
    let t = take(&fs, "t");
    assert_eq!(fs.names(""), ["f"]);
    assert_eq!(fs.at("").size, 1);
    assert_eq!(fs.names(".snapshots"), ["s", "t"]);
    let dir = fs.at(".snapshots");
    assert_eq!((dir.nlink, dir.size), (4, 2));
    assert!(dir.mtime > empty.mtime);
    assert_eq!(fs.vfs.lookup(SNAPSHOTS, b"..").unwrap().ino, ROOT);
    assert_eq!(fs.vfs.lookup(SNAPSHOTS, b".").unwrap().ino, SNAPSHOTS);
    assert_eq!(fs.vfs.lookup(s, b"..").unwrap().ino, SNAPSHOTS);
    // That in a snapshot lists none but those of the snapshot.
    assert_eq!(fs.names(".snapshots/s/.snapshots"), [""; 0]);
    assert_eq!(errno(fs.try_at(".snapshots/s/.snapshots/t")), libc::ENOENT);
    assert_eq!(errno(fs.vfs.lookup(SNAPSHOTS, b"u")), libc::ENOENT);

    let mut listed = Vec::new();
    let mut list = |entry: &persimmon_vfs::Entry<'_>, attr: Option<&Attr>| {
        assert_eq!(attr.unwrap().ino, entry.ino);
        listed.push((entry.name.to_vec(), entry.ino, entry.cookie));
        Listing::More
    };
    fs.vfs
        .readdirplus(SNAPSHOTS, Handle::NONE, 0, &mut list)
        .unwrap();
    let names: Vec<_> = listed
        .iter()
        .map(|(name, ino, _)| (&name[..], *ino))
        .collect();
    let expected: [(&[u8], Ino); 4] = [(b".", SNAPSHOTS), (b"..", ROOT), (b"s", s), (b"t", t)];
    assert_eq!(names, expected);
    // From a cookie it goes on where it was, whatever went meanwhile.
    let after_s = listed[2].2;
    delete(&fs, "s");
    let mut rest = Vec::new();
    let mut list = |entry: &persimmon_vfs::Entry<'_>| {
        rest.push(entry.name.to_vec());
        Listing::More
    };
    fs.vfs
        .readdir(SNAPSHOTS, Handle::NONE, after_s, &mut list)
        .unwrap();
    assert_eq!(rest, [b"t"]);
    assert!(fs.at(".snapshots").mtime > dir.mtime);
    let handle = fs.vfs.opendir(SNAPSHOTS).unwrap();
    fs.vfs.releasedir(SNAPSHOTS, handle).unwrap();
}

/// A number is not given to the next snapshot: a kernel may still know files by it.
#[test]
fn a_new_snapshot_is_not_taken_for_a_deleted_one() {
    let fs = Fixture::default();
    let s = take(&fs, "s");
    let before = fs.vfs.getattr(s).unwrap();
    delete(&fs, "s");
    assert_ne!(take(&fs, "s"), s);
    delete(&fs, "s");
    settle(&fs);
    // After that nobody knows any, but for clients of a server, who know the generation too.
    let fs = fs.remount();
    fs.clock.advance(1000);
    assert_eq!(take(&fs, "s"), s);
    let attr = fs.vfs.getattr(s).unwrap();
    assert_ne!(attr.generation, before.generation);
    assert_ne!(attr.generation, fs.at("").generation);
}

#[test]
fn snapshots_are_renamed_and_nothing_else_is_done_with_their_directory() {
    let fs = Fixture::default();
    let file = fs.file("f", b"x");
    let s = take(&fs, "s");
    take(&fs, "t");
    let vfs = &fs.vfs;
    let (replace, none) = (RenameMode::Replace, Handle::NONE);
    vfs.rename(SNAPSHOTS, b"s", SNAPSHOTS, b"renamed", replace)
        .unwrap();
    assert_eq!(fs.ino(".snapshots/renamed"), s);
    assert_eq!(
        errno(vfs.mkdir(&fs.root, SNAPSHOTS, b"t", 0o755)),
        libc::EEXIST
    );
    assert_eq!(
        errno(vfs.rename(SNAPSHOTS, b"renamed", SNAPSHOTS, b"t", replace)),
        libc::EEXIST
    );
    assert_eq!(
        errno(vfs.rename(SNAPSHOTS, b"gone", SNAPSHOTS, b"x", replace)),
        libc::ENOENT
    );
    assert_eq!(errno(vfs.rmdir(SNAPSHOTS, b"gone")), libc::ENOENT);
    let refused = [
        errno(vfs.rename(SNAPSHOTS, b"t", ROOT, b"t", replace)),
        errno(vfs.rename(ROOT, b"f", SNAPSHOTS, b"f", replace)),
        errno(vfs.rename(ROOT, b".snapshots", ROOT, b"other", replace)),
        errno(vfs.rename(ROOT, b"f", ROOT, b".snapshots", replace)),
        errno(vfs.rmdir(ROOT, b".snapshots")),
        errno(vfs.mknod(&fs.root, SNAPSHOTS, b"f", libc::S_IFREG, 0)),
        errno(vfs.create(&fs.root, SNAPSHOTS, b"f", 0o644, READ_WRITE)),
        errno(vfs.tmpfile(&fs.root, SNAPSHOTS, 0o644, READ_WRITE)),
        errno(vfs.symlink(&fs.root, SNAPSHOTS, b"f", b"to")),
        errno(vfs.link(file, SNAPSHOTS, b"f")),
        errno(vfs.unlink(SNAPSHOTS, b"t")),
        errno(vfs.setattr(
            SNAPSHOTS,
            none,
            &SetAttr {
                mode: Some(0),
                ..SetAttr::default()
            },
        )),
        errno(vfs.setxattr(&fs.root, SNAPSHOTS, b"user.x", b"", XattrMode::Either)),
    ];
    assert_eq!(refused, [libc::EPERM; 13]);
    assert_eq!(
        errno(vfs.mkdir(&fs.root, ROOT, b".snapshots", 0o755)),
        libc::EEXIST
    );
    assert_eq!(
        errno(vfs.create(&fs.root, ROOT, b".snapshots", 0o644, READ_WRITE)),
        libc::EISDIR
    );
    assert_eq!(errno(vfs.open(SNAPSHOTS, READ_ONLY)), libc::EISDIR);
    assert_eq!(errno(vfs.getxattr(SNAPSHOTS, b"user.x")), libc::ENODATA);
    assert_eq!(errno(vfs.readlink(SNAPSHOTS)), libc::EINVAL);
    assert_eq!(vfs.listxattr(&fs.root, SNAPSHOTS).unwrap(), b"");
    assert_eq!(fs.names(".snapshots"), ["renamed", "t"]);
    let fs = fs.remount();
    assert_eq!(fs.names(".snapshots"), ["renamed", "t"]);
}

#[test]
fn a_snapshot_that_is_written_to_is_not_deleted_and_readers_of_a_deleted_one_are_told() {
    let fs = Fixture::default();
    fs.file("f", b"live");
    let w = fs.vfs.take_snapshot(b"w", false).unwrap();
    let file = fs.ino(".snapshots/w/f");
    let writer = fs.open(file);
    assert_eq!(errno(fs.vfs.rmdir(SNAPSHOTS, b"w")), libc::EBUSY);
    fs.vfs.release(file, writer).unwrap();
    let reader = fs.vfs.open(file, READ_ONLY).unwrap();
    let dir = fs.vfs.opendir(ROOT.of(w)).unwrap();
    // Access times and staged data go with it.
    fs.write(file, 0, b"staged");
    fs.clock.advance(200_000);
    fs.content(file);
    assert!(fs.vfs.has_access_times());
    delete(&fs, "w");
    let mut buf = [0; 10];
    assert_eq!(errno(fs.vfs.read(file, reader, 0, &mut buf)), libc::ESTALE);
    assert_eq!(
        errno(fs.vfs.read(file, Handle::NONE, 0, &mut buf)),
        libc::ESTALE
    );
    let mut list = |_: &persimmon_vfs::Entry<'_>| Listing::More;
    assert_eq!(
        errno(fs.vfs.readdir(ROOT.of(w), dir, 0, &mut list)),
        libc::ESTALE
    );
    fs.vfs.release(file, reader).unwrap();
    fs.vfs.releasedir(ROOT.of(w), dir).unwrap();
    assert!(!fs.vfs.has_access_times());
    fs.vfs.sync().unwrap();
    assert_eq!(fs.content(fs.ino("f")), b"live");
    settle(&fs);
    fs.remount();
}

/// What a kernel would still refer to, and what is freed once it does not, goes with the snapshot.
#[test]
fn unlinked_files_that_are_held_go_with_their_snapshot() {
    let fs = Fixture::new(Options {
        hold_until_forget: true,
        ..Options::default()
    });
    fs.file("f", b"live");
    fs.vfs.take_snapshot(b"w", false).unwrap();
    let file = fs.ino(".snapshots/w/f");
    fs.unlink(".snapshots/w/f");
    assert!(fs.vfs.is_held(file));
    delete(&fs, "w");
    assert!(!fs.vfs.is_held(file));
    fs.vfs.forget(file);
    settle(&fs);
    assert_eq!(fs.content(fs.ino("f")), b"live");
    fs.remount();
}

/// Data is not copied out of a snapshot, and either side can be changed afterwards.
#[test]
fn files_are_copied_out_of_snapshots_by_sharing() {
    let fs = Fixture::default();
    let content: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 253) as u8).collect();
    fs.file("f", &content);
    fs.vfs.sync().unwrap();
    let s = take(&fs, "s");
    fs.unlink("f");
    let from = fs.vfs.lookup(s, b"f").unwrap().ino;
    let to = fs.file("restored", b"");
    let before = tree(&fs, s);
    let none = Handle::NONE;
    let mut at = 0;
    while at < content.len() as u64 {
        let left = content.len() as u64 - at;
        at += fs
            .vfs
            .copy_file_range((from, none, at), (to, none, at), left)
            .unwrap();
    }
    assert_eq!(fs.content(to), content);
    fs.write(to, 5000, b"changed");
    assert_same(&tree(&fs, s), &before);
    delete(&fs, "s");
    settle(&fs);
    let fs = fs.remount();
    assert_eq!(fs.content(fs.ino("restored"))[5000..5007], *b"changed");
    assert_eq!(fs.content(fs.ino("restored"))[10_000..], content[10_000..]);
}

#[test]
fn locks_and_handles_of_a_snapshots_file_are_its_own() {
    let fs = Fixture::default();
    let live = fs.file("f", b"x");
    let w = fs.vfs.take_snapshot(b"w", false).unwrap();
    let snap = live.of(w);
    let handle = fs.open(live);
    assert_eq!(
        errno(fs.vfs.read(snap, handle, 0, &mut [0; 1])),
        libc::EBADF
    );
    fs.vfs.release(live, handle).unwrap();
    let lock = |owner| persimmon_vfs::FileLock {
        owner: persimmon_vfs::LockOwner(owner),
        pid: 1,
        start: 0,
        end: u64::MAX,
        kind: persimmon_vfs::LockKind::Write,
    };
    fs.vfs.set_lock(live, &lock(1), false).unwrap();
    fs.vfs.set_lock(snap, &lock(2), false).unwrap();
    assert_eq!(errno(fs.vfs.set_lock(snap, &lock(3), false)), libc::EAGAIN);
}

#[test]
fn a_read_only_mount_shows_snapshots_and_takes_none() {
    let fs = Fixture::default();
    fs.file("f", b"content");
    take(&fs, "s");
    let fs = fs.remount_read_only();
    assert_eq!(fs.names(".snapshots"), ["s"]);
    assert_eq!(fs.content(fs.ino(".snapshots/s/f")), b"content");
    assert_eq!(
        errno(fs.vfs.mkdir(&fs.root, SNAPSHOTS, b"t", 0o755)),
        libc::EROFS
    );
    assert_eq!(errno(fs.vfs.rmdir(SNAPSHOTS, b"s")), libc::EROFS);
    let rename = fs
        .vfs
        .rename(SNAPSHOTS, b"s", SNAPSHOTS, b"t", RenameMode::Replace);
    assert_eq!(errno(rename), libc::EROFS);
}

#[test]
fn numbers_of_subvolumes_that_are_not_there_name_nothing() {
    let fs = Fixture::default();
    fs.file("f", b"x");
    for id in [1, 7, SubvolumeId::NONE.0 - 1] {
        let ino = ROOT.of(SubvolumeId(id));
        assert_eq!(errno(fs.vfs.getattr(ino)), libc::ESTALE);
        assert_eq!(errno(fs.vfs.lookup(ino, b"f")), libc::ESTALE);
        assert_eq!(errno(fs.vfs.opendir(ino)), libc::ESTALE);
        assert_eq!(
            errno(fs.vfs.mkdir(&fs.root, ino, b"d", 0o755)),
            libc::ESTALE
        );
        fs.vfs.forget(ino);
    }
}

/// Names that were removed while a snapshot has them are passed over, some thousand at a time.
#[test]
fn many_removed_names_are_passed_over() {
    const NAMES: usize = 9000;
    let fs = Fixture::default();
    let dir = fs.mkdir("dir");
    for at in 0..NAMES {
        let name = format!("name {at}");
        fs.vfs
            .mknod(&fs.root, dir, name.as_bytes(), 0o600, 0)
            .unwrap();
    }
    let snapshot = fs.vfs.take_snapshot(b"s", true).unwrap();
    let is_kept = |at: &usize| at % 3000 == 7;
    for at in (0..NAMES).filter(|at| !is_kept(at)) {
        fs.vfs.unlink(dir, format!("name {at}").as_bytes()).unwrap();
    }
    let names = |dir| {
        let mut names = BTreeSet::new();
        fs.vfs
            .readdir(dir, Handle::NONE, 2, &mut |entry| {
                assert!(names.insert(String::from_utf8(entry.name.to_vec()).unwrap()));
                Listing::More
            })
            .unwrap();
        names
    };
    let due = (0..NAMES).filter(is_kept).map(|at| format!("name {at}"));
    assert_eq!(names(dir), due.collect());
    assert_eq!(names(dir.of(snapshot)).len(), NAMES);
    fs.remount();
}
