//! setuid, setgid and file capabilities: who clears them, and what new files inherit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use persimmon_vfs::{
    Allocate, Author, FILE_SIZE_MAX, Handle, Ino, OpenFlags, Options, Owner, OwnerKind, Processes,
    ROOT, SetAttr, WriteFlags, XattrMode,
};

use crate::fixture::{Fixture, READ_WRITE};

const STRANGER: Author = Author::User { pid: 0, gid: 4000 };

const KILL: WriteFlags = WriteFlags {
    author: STRANGER,
    data_sync: false,
    time: None,
    whole: false,
};

fn mode(fs: &Fixture) -> u32 {
    fs.at("f").mode & 0o7777
}

/// An open file remembers that there is nothing to clear. It must forget that when the mode or a
/// capability is set later.
#[test]
fn a_mode_set_while_the_file_is_open_is_noticed() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"x");
    let handle = fs.open(ino);
    fs.vfs.write(ino, handle, 0, b"y", KILL).unwrap();
    fs.chmod(ino, 0o4755);
    fs.vfs.write(ino, handle, 0, b"y", KILL).unwrap();
    assert_eq!(mode(&fs), 0o755);
    let name = b"security.capability";
    fs.vfs
        .setxattr(&fs.root, ino, name, b"cap", XattrMode::Either)
        .unwrap();
    fs.vfs
        .write(ino, handle, 0, b"y", WriteFlags::default())
        .unwrap();
    assert!(fs.vfs.getxattr(ino, name).is_err());
}

/// A writer looked at the inode, somebody set setuid, and then the writer noted that there was nothing
/// to clear: no write cleared it any more.
#[test]
fn a_mode_set_beside_a_write_is_noticed() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"x");
    let handle = fs.open(ino);
    let write = || fs.vfs.write(ino, handle, 0, b"y", KILL).unwrap();
    // Who has something to clear looks at the clock, after it has looked at the inode.
    fs.vfs
        .setxattr(
            &fs.root,
            ino,
            b"security.capability",
            b"cap",
            XattrMode::Either,
        )
        .unwrap();
    let (looked, has_looked) = std::sync::mpsc::channel();
    let (changed, has_changed) = std::sync::mpsc::channel();
    fs.clock.aside(move || {
        looked.send(()).unwrap();
        has_changed.recv().unwrap();
    });
    std::thread::scope(|scope| {
        scope.spawn(write);
        has_looked.recv().unwrap();
        fs.chmod(ino, 0o4755);
        changed.send(()).unwrap();
    });
    assert_eq!(mode(&fs), 0o4755, "the write came first");
    write();
    assert_eq!(mode(&fs), 0o755);
}

#[test]
fn chown_clears_them_for_everybody() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    let chown = SetAttr {
        uid: Some(0),
        ..SetAttr::default()
    };
    for (before, after) in [(0o6755, 0o755), (0o2745, 0o2745)] {
        fs.chmod(ino, before);
        fs.vfs
            .setxattr(
                &fs.root,
                ino,
                b"security.capability",
                b"c",
                XattrMode::Either,
            )
            .unwrap();
        fs.vfs.setattr(ino, Handle::NONE, &chown).unwrap();
        assert_eq!(mode(&fs), after);
        assert!(fs.vfs.getxattr(ino, b"security.capability").is_err());
    }
    let dir = fs.mkdir("d");
    fs.chmod(dir, 0o6755);
    fs.vfs.setattr(dir, Handle::NONE, &chown).unwrap();
    assert_eq!(fs.at("d").mode & 0o7777, 0o6755, "a directory keeps them");
    let both = SetAttr {
        mode: Some(0o4711),
        ..chown
    };
    fs.vfs.setattr(ino, Handle::NONE, &both).unwrap();
    assert_eq!(mode(&fs), 0o4711, "a mode set at the same time is meant");
}

#[test]
fn mkdir_takes_the_sticky_bit_alone() {
    let fs = Fixture::default();
    let attr = fs.vfs.mkdir(&fs.root, ROOT, b"d", 0o7777).unwrap();
    assert_eq!(attr.mode & 0o7777, 0o1777);
}

/// Process 7 is in group 50, process 8 has `CAP_FSETID`.
#[derive(Debug, Default)]
struct Table {
    asked: AtomicUsize,
}

impl Processes for Table {
    fn is_in_group(&self, pid: u32, gid: u32) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        (pid, gid) == (7, 50)
    }

    fn has_fsetid(&self, pid: u32) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        pid == 8
    }
}

/// A stranger's write left setgid on a file that its group may not execute, where every other filesystem
/// takes it (6666 became 2666), though whoever is in another group must not make such files.
#[test]
fn setgid_without_group_execute_is_kept_by_the_group_alone() {
    let table = Arc::new(Table::default());
    let fs = Fixture::new(Options {
        processes: Arc::clone(&table) as _,
        ..Options::default()
    });
    let ino = fs.file("f", b"x");
    let chgrp = SetAttr {
        gid: Some(50),
        ..SetAttr::default()
    };
    fs.vfs.setattr(ino, Handle::NONE, &chgrp).unwrap();
    let handle = fs.open(ino);
    let user = |pid, gid| Author::User { pid, gid };
    let superuser = |pid| Author::Superuser { pid, gid: 0 };
    for (author, before, after) in [
        (Author::Privileged, 0o6666, 0o6666),
        (user(1, 1), 0o6666, 0o666),
        (user(1, 50), 0o6666, 0o2666),
        (user(7, 1), 0o6666, 0o2666),
        (user(7, 1), 0o2666, 0o2666),
        (user(7, 1), 0o6676, 0o676),
        (user(1, 50), 0o6777, 0o777),
        (superuser(8), 0o6777, 0o6777),
        (superuser(1), 0o6777, 0o777),
        (superuser(1), 0o2666, 0o666),
    ] {
        let flags = WriteFlags {
            author,
            ..WriteFlags::default()
        };
        let shorter = SetAttr {
            size: Some(1),
            author,
            ..SetAttr::default()
        };
        let truncating = OpenFlags {
            truncate: true,
            author,
            ..READ_WRITE
        };
        let range = (ino, handle, 0, 4096);
        let ways: [(&str, &dyn Fn()); 6] = [
            ("write", &|| {
                fs.vfs.write(ino, handle, 0, b"yy", flags).unwrap();
            }),
            ("truncate", &|| {
                fs.vfs.setattr(ino, Handle::NONE, &shorter).unwrap();
            }),
            ("ftruncate", &|| {
                fs.vfs.setattr(ino, handle, &shorter).unwrap();
            }),
            ("open", &|| {
                let opened = fs.vfs.open(ino, truncating).unwrap();
                fs.vfs.release(ino, opened).unwrap();
            }),
            ("allocate", &|| allocate(&fs, author, range, false)),
            ("punch", &|| allocate(&fs, author, range, true)),
        ];
        for (way, change) in ways {
            fs.chmod(ino, before);
            change();
            assert_eq!(mode(&fs), after, "{way} of {before:o} by {author:?}");
        }
    }
    fs.chmod(ino, 0o644);
    let flags = WriteFlags {
        author: user(7, 1),
        ..WriteFlags::default()
    };
    let asked = table.asked.load(Ordering::Relaxed);
    for handle in [handle, Handle::NONE] {
        fs.vfs.write(ino, handle, 0, b"y", flags).unwrap();
    }
    let asked_now = table.asked.load(Ordering::Relaxed);
    assert_eq!(asked_now, asked, "a file with nothing to lose asks nobody");
}

fn allocate(
    fs: &Fixture,
    author: Author,
    (ino, handle, offset, len): (Ino, Handle, u64, u64),
    punch: bool,
) {
    let what = if punch {
        Allocate::Punch
    } else {
        Allocate::Reserve { keep_size: true }
    };
    let range = (offset, len);
    fs.vfs
        .fallocate_by(author, (ino, handle), range, what)
        .unwrap();
}

/// A change that was refused had taken setuid, setgid and the capability from the file before it was found out that it is refused.
#[test]
fn what_is_refused_takes_nothing() {
    let fs = Fixture::default();
    let quotas = persimmon_engine::Quotas::of(fs.vfs.volume());
    quotas.turn_on(false).unwrap();
    quotas.count().unwrap();
    let source = fs.file("source", &[1; 40_960]);
    let ino = fs.file("f", &[1; 40_960]);
    let give = SetAttr {
        uid: Some(7),
        ..SetAttr::default()
    };
    fs.vfs.setattr(ino, Handle::NONE, &give).unwrap();
    fs.vfs.sync().unwrap();
    let open = |more: OpenFlags| {
        let flags = OpenFlags {
            is_limited: true,
            ..more
        };
        fs.vfs.open(ino, flags).unwrap()
    };
    let handle = open(READ_WRITE);
    let appends = open(OpenFlags {
        append: true,
        ..READ_WRITE
    });
    let limit = |bytes| {
        let of = Owner {
            kind: OwnerKind::User,
            id: 7,
        };
        let limits = persimmon_engine::NewLimits {
            bytes_hard: Some(bytes),
            ..Default::default()
        };
        let now = persimmon_vfs::Clock::now(&*fs.clock);
        quotas.set(of, &limits, now).unwrap();
    };
    let immutable = |immutable| {
        let flags = persimmon_vfs::InodeFlags {
            immutable,
            ..Default::default()
        };
        fs.vfs.set_inode_flags(&fs.root, ino, flags).unwrap();
    };
    let size = |size| {
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        fs.vfs.setattr(ino, Handle::NONE, &set).unwrap();
    };
    let name = b"security.capability";
    fs.chmod(ino, 0o6755);
    fs.vfs
        .setxattr(&fs.root, ino, name, b"cap", XattrMode::Either)
        .unwrap();
    let check = |what: &str, done: Result<(), persimmon_vfs::Error>, errno| {
        assert_eq!(done.unwrap_err().errno(), errno, "{what}");
        assert_eq!(mode(&fs), 0o6755, "{what}");
        assert!(fs.vfs.getxattr(ino, name).is_ok(), "{what}");
    };
    let write = |handle, at| fs.vfs.write(ino, handle, at, &[2; 4096], KILL).map(drop);
    let allocate = |range, what| {
        let done = fs.vfs.fallocate_by(STRANGER, (ino, handle), range, what);
        done.map(drop)
    };
    let copy = |at| {
        let (from, to) = ((source, Handle::NONE, 0), (ino, handle, at));
        let done = fs.vfs.copy_file_range_by(STRANGER, from, to, 8192);
        done.map(drop)
    };
    let reserve = Allocate::Reserve { keep_size: true };
    limit(4096);
    check("write", write(handle, 1 << 20), libc::EDQUOT);
    check("append", write(appends, 0), libc::EDQUOT);
    check("allocate", allocate((1 << 20, 4096), reserve), libc::EDQUOT);
    check("clone", copy(1 << 20), libc::EDQUOT);
    check("copy", copy((1 << 20) + 1), libc::EDQUOT);
    limit(0);
    immutable(true);
    check("allocate", allocate((0, 4096), reserve), libc::EPERM);
    check("copy", copy(0), libc::EPERM);
    immutable(false);
    check("write", write(handle, u64::MAX >> 1), libc::EFBIG);
    check(
        "collapse",
        allocate((8192, 1 << 20), Allocate::Collapse),
        libc::EINVAL,
    );
    check(
        "collapse",
        allocate((1, 4096), Allocate::Collapse),
        libc::EINVAL,
    );
    check(
        "insert",
        allocate((1 << 20, 4096), Allocate::Insert),
        libc::EINVAL,
    );
    size(FILE_SIZE_MAX);
    fs.chmod(ino, 0o6755);
    fs.vfs
        .setxattr(&fs.root, ino, name, b"cap", XattrMode::Either)
        .unwrap();
    check("append", write(appends, 0), libc::EFBIG);
    check("insert", allocate((0, 4096), Allocate::Insert), libc::EFBIG);
    // What is done takes them.
    size(40_000);
    for what in ["write", "allocate", "clone", "copy"] {
        fs.chmod(ino, 0o6755);
        let done = match what {
            "write" => write(handle, 0),
            "allocate" => allocate((0, 4096), Allocate::Punch),
            "clone" => copy(0),
            _ => copy(1),
        };
        done.unwrap();
        assert_eq!(mode(&fs), 0o755, "{what}");
        assert!(fs.vfs.getxattr(ino, name).is_err(), "{what}");
    }
}

/// Who gives a file away takes setuid from it, and setgid as a change of content does; root alone leaves setgid that
/// its group may not execute.
#[test]
fn chown_by_a_user_goes_by_the_group_it_had() {
    let fs = Fixture::default();
    for (author, after) in [
        (Author::Privileged, 0o2666),
        (Author::User { pid: 0, gid: 50 }, 0o2666),
        (STRANGER, 0o666),
    ] {
        let ino = fs.file("f", b"x");
        let give = |gid, author| SetAttr {
            gid: Some(gid),
            author,
            ..SetAttr::default()
        };
        let set = |set| fs.vfs.setattr(ino, Handle::NONE, &set).unwrap();
        set(give(50, Author::Privileged));
        fs.chmod(ino, 0o6666);
        set(give(4000, author));
        assert_eq!(mode(&fs), after, "{author:?}");
        fs.unlink("f");
    }
}
