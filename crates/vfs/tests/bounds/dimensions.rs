//! What there may be much of, and all requests, each where that might matter to it.

use persimmon_format::Lifetime;
use persimmon_vfs::{
    Allocate, Author, Error, FileLock, Handle, Ino, InodeFlags, Listing, LockKind, LockOwner, ROOT,
    RenameMode, SNAPSHOTS as DIRECTORY, SeekTo, SetAttr, SubvolumeId, WriteFlags, XattrMode,
};

use crate::world::{Dimension, Growth, READ_WRITE, Request, World};

const BLOCK: u64 = 4096;
const NONE: Handle = Handle::NONE;
const COMPRESS: InodeFlags = InodeFlags {
    compress: true,
    no_compress: false,
    inherits_project: false,
    append_only: false,
    immutable: false,
    no_dump: false,
};

macro_rules! requests {
    ($($name:literal $growth:ident $run:expr;)*) => {
        &[$(Request { name: $name, growth: Growth::$growth, run: $run }),*]
    };
}

pub static DIMENSIONS: &[Dimension] = &[
    ENTRIES, ATTRIBUTES, DEPTH, EXTENTS, DATA, HOLES, LINKS, ORPHANS, HANDLES, LOCKS, SNAPSHOTS,
];

/// What a request answers does not matter here.
fn done<T>(_: T) {}

fn mode(mode: u32) -> SetAttr {
    SetAttr {
        mode: Some(mode),
        ..SetAttr::default()
    }
}

fn size(size: u64) -> SetAttr {
    SetAttr {
        size: Some(size),
        ..SetAttr::default()
    }
}

fn name(n: u64) -> Vec<u8> {
    format!("{n:06}").into_bytes()
}

/// The file or directory that there is much of.
fn it(w: &World) -> Ino {
    w.at("it")
}

fn rename(w: &World, from: (Ino, &[u8]), to: (Ino, &[u8])) {
    let renamed = w
        .vfs
        .rename(from.0, from.1, to.0, to.1, RenameMode::Replace);
    renamed.unwrap();
}

const ENTRIES: Dimension = Dimension {
    name: "entries",
    sizes: &[1000, 10_000, 100_000],
    make: |w, n| {
        let it = w.mkdir(ROOT, "it");
        w.mkdir(ROOT, "other");
        for at in 0..n {
            w.file(it, &format!("{at:06}"));
        }
    },
    requests: requests! {
        "lookup" Flat |w, n| done(w.vfs.lookup(it(w), &name(n / 2)).unwrap());
        "lookup:nothing" Flat |w, _| done(w.vfs.lookup(it(w), b"nothing").unwrap_err());
        "getattr" Flat |w, _| done(w.vfs.getattr(it(w)).unwrap());
        "access" Flat |w, _| w.vfs.access(&w.root, it(w), 7).unwrap();
        "setattr" Flat |w, _| done(w.vfs.setattr(it(w), NONE, &mode(0o700)).unwrap());
        "mknod" Flat |w, _| done(w.file(it(w), "file"));
        "create" Flat |w, _| done(w.vfs.create(&w.root, it(w), b"created", 0o644, READ_WRITE).unwrap());
        "tmpfile" Flat |w, _| done(w.vfs.tmpfile(&w.root, it(w), 0o644, READ_WRITE).unwrap());
        "mkdir" Flat |w, _| done(w.mkdir(it(w), "directory"));
        "symlink" Flat |w, _| done(w.vfs.symlink(&w.root, it(w), b"link", b"target").unwrap());
        "readlink" Flat |w, _| done(w.vfs.readlink(w.vfs.lookup(it(w), b"link").unwrap().ino).unwrap());
        "link" Flat |w, _| done(w.vfs.link(w.vfs.lookup(it(w), b"file").unwrap().ino, it(w), b"second").unwrap());
        "rename:within" Flat |w, _| rename(w, (it(w), b"file"), (it(w), b"renamed"));
        "rename:over" Flat |w, n| rename(w, (it(w), b"renamed"), (it(w), &name(n / 3)));
        "rename:out" Flat |w, n| rename(w, (it(w), &name(n / 4)), (w.at("other"), b"moved"));
        "rename:directory" Flat |w, _| rename(w, (it(w), b"directory"), (w.at("other"), b"directory"));
        "unlink" Flat |w, n| w.vfs.unlink(it(w), &name(n / 5)).unwrap();
        "rmdir" Flat |w, _| w.vfs.rmdir(w.at("other"), b"directory").unwrap();
        "rmdir:full" Flat |w, _| done(w.vfs.rmdir(ROOT, b"it").unwrap_err());
        "fsyncdir" Flat |w, _| w.vfs.fsyncdir(it(w), NONE).unwrap();
        "opendir" Flat |w, _| {
            let handle = w.vfs.opendir(it(w)).unwrap();
            w.vfs.releasedir(it(w), handle).unwrap();
        };
        "releasedir" Flat |w, _| {
            let handle = w.vfs.opendir(it(w)).unwrap();
            w.vfs.releasedir(it(w), handle).unwrap();
        };
        "readdir:some" Flat |w, _| {
            let mut left = 100;
            let mut some = |_: &persimmon_vfs::Entry<'_>| {
                left -= 1;
                if left > 0 { Listing::More } else { Listing::Full }
            };
            w.vfs.readdir(it(w), NONE, 0, &mut some).unwrap();
        };
        "readdir" Linear |w, _| w.vfs.readdir(it(w), NONE, 0, &mut |_| Listing::More).unwrap();
        "readdirplus" Scattered |w, _| w.vfs.readdirplus(it(w), NONE, 0, &mut |_, _| Listing::More).unwrap();
        "statfs" Flat |w, _| done(w.vfs.statfs().unwrap());
        "statfs_at" Flat |w, _| done(w.vfs.statfs_at(it(w)).unwrap());
        "sync" Flat |w, _| w.vfs.sync().unwrap();
    },
};

fn attribute(n: u64) -> Vec<u8> {
    format!("user.{n:05}").into_bytes()
}

fn set(w: &World, name: &[u8], value: &[u8]) {
    let set = w
        .vfs
        .setxattr(&w.root, it(w), name, value, XattrMode::default());
    set.unwrap();
}

/// As many as may be with names of this length, nearly.
const ATTRIBUTES: Dimension = Dimension {
    name: "attributes",
    sizes: &[59, 590, 5900],
    make: |w, n| {
        w.file(ROOT, "it");
        for at in 0..n {
            set(w, &attribute(at), &[7; 3000]);
        }
    },
    requests: requests! {
        "getxattr" Flat |w, n| done(w.vfs.getxattr(it(w), &attribute(n / 2)).unwrap());
        "getxattr:nothing" Flat |w, _| done(w.vfs.getxattr(it(w), b"user.nothing").unwrap_err());
        "setxattr" Flat |w, _| set(w, b"user.new", b"value");
        "setxattr:again" Flat |w, n| set(w, &attribute(n / 3), b"shorter");
        "removexattr" Flat |w, n| w.vfs.removexattr(it(w), &attribute(n / 4)).unwrap();
        "inode_flags" Flat |w, _| done(w.vfs.inode_flags(it(w)).unwrap());
        "project" Flat |w, _| done(w.vfs.project(it(w)).unwrap());
        "set_inode_flags" Flat |w, _| w.vfs.set_inode_flags(&w.root, it(w), COMPRESS).unwrap();
        "getattr" Flat |w, _| done(w.vfs.getattr(it(w)).unwrap());
        "access" Flat |w, _| w.vfs.access(&w.root, it(w), 4).unwrap();
        "setattr" Flat |w, _| done(w.vfs.setattr(it(w), NONE, &mode(0o6755)).unwrap());
        "fallocate_by" Flat |w, _| done(w.vfs.fallocate_by(Author::default(), (it(w), NONE), (0, 4096), Allocate::Punch).unwrap());
        "copy_file_range_by" Flat |w, _| {
            let (from, to) = ((it(w), NONE, 0), (it(w), NONE, 8192));
            done(w.vfs.copy_file_range_by(Author::default(), from, to, 4096).unwrap());
        };
        "write" Flat |w, _| w.write(it(w), 0, b"content");
        "write_again" Flat |w, _| done(w.vfs.write_again(it(w), 0, b"content", (Default::default(), None)).unwrap());
        "listxattr" Linear |w, n| {
            let names = w.vfs.listxattr(&w.root, it(w)).unwrap();
            assert!(names.len() as u64 >= n * 11 - 11);
        };
        "unlink" Flat |w, _| {
            w.inos.borrow_mut().push(it(w));
            w.vfs.unlink(ROOT, b"it").unwrap();
        };
        "forget" Linear |w, _| w.vfs.forget(w.inos.borrow()[0]);
    },
};

const DEPTH: Dimension = Dimension {
    name: "depth",
    sizes: &[1000, 10_000, 100_000],
    make: |w, n| {
        let mut at = w.mkdir(ROOT, "it");
        for _ in 1..n {
            at = w.mkdir(at, "d");
        }
        w.mkdir(ROOT, "moved");
        w.file(ROOT, "file");
        w.inos.borrow_mut().push(at);
    },
    requests: requests! {
        "lookup" Flat |w, _| done(w.vfs.lookup(w.inos.borrow()[0], b"..").unwrap());
        "getattr" Flat |w, _| done(w.vfs.getattr(w.inos.borrow()[0]).unwrap());
        "mkdir" Flat |w, _| done(w.mkdir(w.inos.borrow()[0], "inner"));
        "rename:within" Flat |w, _| rename(w, (w.inos.borrow()[0], b"inner"), (w.inos.borrow()[0], b"named"));
        "rename:file" Flat |w, _| rename(w, (ROOT, b"file"), (w.inos.borrow()[0], b"file"));
        "rename:directory" Linear |w, _| rename(w, (ROOT, b"moved"), (w.inos.borrow()[0], b"moved"));
        "rename:loop" Linear |w, _| {
            let to = w.inos.borrow()[0];
            let refused = w.vfs.rename(ROOT, b"it", to, b"it", RenameMode::Replace);
            assert!(matches!(refused, Err(Error::Invalid(_))));
        };
        "rename:exchange" Linear |w, _| {
            w.mkdir(ROOT, "other");
            let to = w.inos.borrow()[0];
            let exchanged = w.vfs.rename(ROOT, b"other", to, b"named", RenameMode::Exchange);
            exchanged.unwrap();
        };
        "rmdir" Flat |w, _| w.vfs.rmdir(w.inos.borrow()[0], b"moved").unwrap();
    },
};

/// Space set aside in pieces, with holes between them.
const EXTENTS: Dimension = Dimension {
    name: "extents",
    sizes: &[1000, 10_000, 100_000],
    make: |w, n| {
        let it = w.file(ROOT, "it");
        w.file(ROOT, "copy");
        for at in 0..n {
            let what = Allocate::Reserve { keep_size: false };
            w.vfs
                .fallocate(it, NONE, at * 2 * BLOCK, BLOCK, what)
                .unwrap();
        }
    },
    requests: requests! {
        "read" Flat |w, n| done(w.vfs.read(it(w), NONE, n * BLOCK, &mut [0; 65_536]).unwrap());
        "write" Flat |w, n| w.write(it(w), n * BLOCK, b"content");
        "fsync" Flat |w, _| w.vfs.fsync(it(w), NONE).unwrap();
        "seek:hole" Flat |w, n| done(w.vfs.seek(it(w), NONE, n * BLOCK, SeekTo::Hole).unwrap());
        "seek:data" Linear |w, _| done(w.vfs.seek(it(w), NONE, 0, SeekTo::Data).unwrap());
        "storage" Flat |w, n| done(w.vfs.storage(it(w), n * BLOCK).unwrap());
        "copy_file_range" Flat |w, n| done(w.vfs.copy_file_range((it(w), NONE, n * BLOCK), (w.at("copy"), NONE, 0), 1 << 20).unwrap());
        "fallocate:punch" Flat |w, n| w.vfs.fallocate(it(w), NONE, n * BLOCK, 8 * BLOCK, Allocate::Punch).unwrap();
        "fallocate:punch all" Linear |w, n| w.vfs.fallocate(it(w), NONE, n * BLOCK, n * BLOCK / 2, Allocate::Punch).unwrap();
        "fallocate:zero" Linear |w, n| w.vfs.fallocate(it(w), NONE, n * BLOCK / 2, n * BLOCK / 4, Allocate::Zero { keep_size: true }).unwrap();
        "fallocate:collapse" Linear |w, n| w.vfs.fallocate(it(w), NONE, n * BLOCK / 2, 3 * BLOCK, Allocate::Collapse).unwrap();
        "fallocate:insert" Linear |w, n| w.vfs.fallocate(it(w), NONE, n * BLOCK / 2, 5 * BLOCK, Allocate::Insert).unwrap();
        "fallocate:reserve" Linear |w, n| w.vfs.fallocate(it(w), NONE, 0, n * BLOCK / 4, Allocate::Reserve { keep_size: true }).unwrap();
        "setattr:size" Linear |w, n| done(w.vfs.setattr(it(w), NONE, &size(n * BLOCK / 3)).unwrap());
        "unlink" Flat |w, _| {
            w.inos.borrow_mut().push(it(w));
            w.vfs.unlink(ROOT, b"it").unwrap();
        };
        "forget" Linear |w, _| w.vfs.forget(w.inos.borrow()[0]);
    },
};

/// Every other block is written.
const DATA: Dimension = Dimension {
    name: "data",
    sizes: &[300, 3000, 30_000],
    make: |w, n| {
        let it = w.file(ROOT, "it");
        w.file(ROOT, "copy");
        for at in 0..n {
            w.write(it, at * 2 * BLOCK, &[at as u8 | 1; BLOCK as usize]);
        }
    },
    requests: requests! {
        "read" Flat |w, n| done(w.vfs.read(it(w), NONE, n * BLOCK, &mut [0; 65_536]).unwrap());
        "read:all" Linear |w, n| {
            let mut all = vec![0; (n * 2 * BLOCK) as usize];
            w.vfs.read(it(w), NONE, 0, &mut all).unwrap();
        };
        "seek:data" Flat |w, n| done(w.vfs.seek(it(w), NONE, n * BLOCK + BLOCK, SeekTo::Data).unwrap());
        "copy_file_range" Linear |w, n| done(w.vfs.copy_file_range((it(w), NONE, 0), (w.at("copy"), NONE, 0), n * BLOCK).unwrap());
        "share_equal" Linear |w, n| done(w.vfs.share_equal((it(w), NONE, 0), (w.at("copy"), NONE, 0), (n * BLOCK, BLOCK), true).unwrap());
        "write" Linear |w, n| {
            let all = vec![3; (n * BLOCK) as usize];
            let written = w.vfs.write(it(w), NONE, 0, &all, WriteFlags::default()).unwrap();
            assert_eq!(written.len, all.len());
            w.vfs.sync().unwrap();
        };
        "open" Linear |w, _| {
            let truncate = persimmon_vfs::OpenFlags { truncate: true, ..READ_WRITE };
            let it = w.at("copy");
            let handle = w.vfs.open(it, truncate).unwrap();
            w.vfs.release(it, handle).unwrap();
        };
        "setattr:size" Linear |w, _| done(w.vfs.setattr(it(w), NONE, &size(0)).unwrap());
    },
};

const HOLES: Dimension = Dimension {
    name: "holes",
    sizes: &[1000, 10_000, 100_000, 1_000_000],
    make: |w, n| {
        let it = w.file(ROOT, "it");
        w.file(ROOT, "copy");
        w.write(it, n * BLOCK, b"end");
    },
    requests: requests! {
        "read" Flat |w, n| done(w.vfs.read(it(w), NONE, n * BLOCK / 2, &mut [0; 65_536]).unwrap());
        "read_batch" Flat |w, n| {
            let (mut one, mut other) = ([0; 65_536], [0; 4096]);
            let mut ranges: [(u64, &mut [u8]); 2] = [(n * BLOCK / 2, &mut one), (0, &mut other)];
            let read = w.vfs.read_batch(it(w), NONE, &mut ranges).unwrap();
            assert!(read.iter().all(Result::is_ok));
        };
        "seek:data" Flat |w, _| done(w.vfs.seek(it(w), NONE, 0, SeekTo::Data).unwrap());
        "seek:hole" Flat |w, _| done(w.vfs.seek(it(w), NONE, 0, SeekTo::Hole).unwrap());
        "write" Flat |w, n| w.write(it(w), n * BLOCK / 2, b"middle");
        "fallocate:punch" Flat |w, n| w.vfs.fallocate(it(w), NONE, 0, n * BLOCK, Allocate::Punch).unwrap();
        "copy_file_range" Flat |w, n| done(w.vfs.copy_file_range((it(w), NONE, n * BLOCK / 4), (w.at("copy"), NONE, 0), 1 << 20).unwrap());
        "setattr:size" Flat |w, n| done(w.vfs.setattr(it(w), NONE, &size(n * BLOCK / 3)).unwrap());
        "setattr:longer" Flat |w, n| done(w.vfs.setattr(it(w), NONE, &size(n * BLOCK * 3)).unwrap());
    },
};

const LINKS: Dimension = Dimension {
    name: "links",
    sizes: &[1000, 10_000, 100_000],
    make: |w, n| {
        let it = w.file(ROOT, "it");
        let directory = w.mkdir(ROOT, "links");
        for at in 0..n {
            w.vfs.link(it, directory, &name(at)).unwrap();
        }
    },
    requests: requests! {
        "link" Flat |w, _| done(w.vfs.link(it(w), ROOT, b"one more").unwrap());
        "getattr" Flat |w, _| done(w.vfs.getattr(it(w)).unwrap());
        "rename:over" Flat |w, n| rename(w, (w.at("links"), &name(n / 2)), (ROOT, b"one more"));
        "unlink" Flat |w, n| w.vfs.unlink(w.at("links"), &name(n / 3)).unwrap();
    },
};

/// Files that have lost their name while they were open, and are open no more, but the kernel still knows.
const ORPHANS: Dimension = Dimension {
    name: "orphans",
    sizes: &[100, 1000, 10_000],
    make: |w, n| {
        for _ in 0..n {
            let ino = w.file(ROOT, "it");
            w.write(ino, 0, b"content");
            w.vfs.unlink(ROOT, b"it").unwrap();
            w.inos.borrow_mut().push(ino);
        }
        w.file(ROOT, "it");
    },
    requests: requests! {
        "is_held" Flat |w, n| done(w.vfs.is_held(w.inos.borrow()[n as usize / 2]));
        "mknod" Flat |w, _| done(w.file(ROOT, "file"));
        "unlink" Flat |w, _| w.vfs.unlink(ROOT, b"file").unwrap();
        "open" Flat |w, _| done(w.open_file(it(w)));
        "forget" Flat |w, n| w.vfs.forget(w.inos.borrow()[n as usize / 3]);
        "forget_all" Linear |w, n| w.vfs.forget_all(&w.inos.borrow()[..n as usize / 2]);
        "reclaim_orphans" Linear |w, _| {
            let orphans = w.vfs.volume().orphans().unwrap();
            w.vfs.reclaim_orphans(&orphans).unwrap();
        };
        "close" Linear |w, _| w.vfs.close().unwrap();
    },
};

/// Files that are open, and have been read since they were written: their access times wait in memory.
const HANDLES: Dimension = Dimension {
    name: "handles",
    sizes: &[500, 5000, 50_000],
    make: |w, n| {
        let directory = w.mkdir(ROOT, "files");
        for at in 0..n {
            let ino = w.file(directory, &format!("{at:06}"));
            w.write(ino, 0, b"content");
            w.inos.borrow_mut().push(ino);
        }
        w.file(ROOT, "it");
    },
    requests: requests! {
        "open:each" Linear |w, _| {
            for ino in w.inos.borrow().iter() {
                let handle = w.open_file(*ino);
                w.vfs.read(*ino, handle, 0, &mut [0; 10]).unwrap();
            }
        };
        "open" Flat |w, _| done(w.open_file(it(w)));
        "read" Flat |w, _| done(w.vfs.read(it(w), w.open_file(it(w)), 0, &mut [0; 10]).unwrap());
        "flush" Flat |w, _| w.vfs.flush(it(w), w.open_file(it(w)), LockOwner(1)).unwrap();
        "needs_flush" Flat |w, _| done(w.vfs.needs_flush(w.open_file(it(w))));
        "opened_to_read" Flat |w, _| done(w.vfs.opened_to_read(it(w), w.open_file(it(w))).unwrap());
        "flush_through" Flat |w, _| w.vfs.flush_through(it(w), w.open_file(it(w))).unwrap();
        "release" Flat |w, _| w.vfs.release(it(w), w.open_file(it(w))).unwrap();
        "set_lifetime" Flat |w, _| w.vfs.set_lifetime(it(w), w.open_file(it(w)), Some(Lifetime::Short)).unwrap();
        "lifetime" Flat |w, _| done(w.vfs.lifetime(it(w), w.open_file(it(w))).unwrap());
        "fsync" Flat |w, _| w.vfs.fsync(it(w), NONE).unwrap();
        "has_access_times" Flat |w, _| done(w.vfs.has_access_times());
        "flush_access_times" Linear |w, _| w.vfs.flush_access_times().unwrap();
        "sync" Flat |w, _| w.vfs.sync().unwrap();
    },
};

fn lock(owner: u64, at: u64) -> FileLock {
    FileLock {
        owner: LockOwner(owner),
        pid: 1,
        start: at * 10,
        end: at * 10 + 5,
        kind: LockKind::Write,
    }
}

/// These look at no page; who holds them up is the table of locks, which each request goes through once.
const LOCKS: Dimension = Dimension {
    name: "locks",
    sizes: &[100, 1000, 10_000],
    make: |w, n| {
        let it = w.file(ROOT, "it");
        for at in 0..n {
            w.vfs.set_lock(it, &lock(1, at), false).unwrap();
        }
    },
    requests: requests! {
        "set_lock" Flat |w, n| w.vfs.set_lock(it(w), &lock(2, n + 5), false).unwrap();
        "test_lock" Flat |w, n| done(w.vfs.test_lock(it(w), &lock(3, n / 2)).unwrap());
        "flock" Flat |w, _| w.vfs.flock(it(w), LockOwner(1), LockKind::Read, false).unwrap();
        "release_locks" Flat |w, _| w.vfs.release_locks(it(w), LockOwner(1));
    },
};

/// Each has a change of its own: of a file, whose versions lie side by side in the tree.
const SNAPSHOTS: Dimension = Dimension {
    name: "snapshots",
    sizes: &[10, 100],
    make: |w, n| {
        let it = w.file(ROOT, "it");
        for at in 0..n {
            w.write(it, at * BLOCK, &[1; BLOCK as usize]);
            w.vfs.take_snapshot(&name(at), true).unwrap();
        }
    },
    requests: requests! {
        "snapshots" Flat |w, n| assert_eq!(w.vfs.snapshots().len() as u64, n);
        "snapshot_named" Flat |w, n| done(w.vfs.snapshot_named(&name(n / 2)).unwrap());
        "lookup:a snapshot" Flat |w, n| done(w.vfs.lookup(DIRECTORY, &name(n / 2)).unwrap());
        "readdir:snapshots" Flat |w, _| {
            w.vfs.readdir(DIRECTORY, NONE, 0, &mut |_| Listing::More).unwrap();
        };
        "getattr:in a snapshot" Linear |w, _| done(w.vfs.getattr(it(w).of(SubvolumeId(1))).unwrap());
        "read:in a snapshot" Linear |w, _| {
            done(w.vfs.read(it(w).of(SubvolumeId(5)), NONE, 0, &mut [0; 4096]).unwrap());
        };
        "take_snapshot" Linear |w, n| done(w.vfs.take_snapshot(&name(n), true).unwrap());
        "snapshot_directories" Flat |w, _| assert_eq!(w.vfs.snapshot_directories().len(), 1);
        "is_below_root" Flat |w, _| assert!(w.vfs.is_below_root(ROOT.of(SubvolumeId(5))));
        "take_snapshot_of" Linear |w, n| {
            done(w.vfs.take_snapshot_of(SubvolumeId(1), &name(n + 1), true).unwrap());
        };
        "rename_snapshot" Flat |w, n| {
            w.vfs.rename_snapshot(&name(n), b"renamed", RenameMode::Replace).unwrap();
        };
        "delete_snapshot" Linear |w, _| w.vfs.delete_snapshot(&name(3)).unwrap();
    },
};
