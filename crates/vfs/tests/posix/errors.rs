//! Every error an operation can answer without the volume being full or broken, one row each: here those that only a
//! caller by inode number and handle meets. The table of all doors has the others, and docs/POSIX.md lists both.

use std::collections::BTreeSet;

use persimmon_posix_tests::errors::ROWS;
use persimmon_vfs::{
    Allocate, Error, FILE_SIZE_MAX, FileLock, Handle, Ino, LINKS_MAX, Listing, LockKind, LockOwner,
    OpenFlags, Options, ROOT, RenameMode, Result, SetAttr, WriteFlags, XattrMode,
};

use crate::fixture::{Fixture, READ_WRITE};

/// An operation, and the error it answers when something is so.
struct Row {
    operation: &'static str,
    errno: (&'static str, i32),
    when: &'static str,
    run: fn(&Fixture) -> Result<()>,
}

/// The tree the rows run in: files, directories, a FIFO.
fn tree() -> Fixture {
    let fs = Fixture::default();
    fs.file("f", b"hello");
    fs.file("g", b"world");
    fs.mkdir("d");
    fs.mkdir("e");
    fs.vfs
        .mknod(&fs.root, ROOT, b"p", libc::S_IFIFO | 0o644, 0)
        .unwrap();
    fs
}

/// A number that names nothing.
const NOWHERE: Ino = Ino(1 << 40);

fn size(bytes: u64) -> SetAttr {
    SetAttr {
        size: Some(bytes),
        ..SetAttr::default()
    }
}

fn record(owner: u64, kind: LockKind) -> FileLock {
    FileLock {
        owner: LockOwner(owner),
        pid: 0,
        start: 0,
        end: 99,
        kind,
    }
}

fn set_nlink(fs: &Fixture, ino: Ino) {
    fs.vfs
        .volume()
        .update(persimmon_engine::Intent::Shrink, |tx| {
            let mut inode = tx.inode(ino)?.unwrap();
            inode.nlink = LINKS_MAX;
            tx.put_inode(ino, &inode);
            Ok::<_, Error>(())
        })
        .unwrap();
}

macro_rules! rows {
    ($($operation:literal $errno:ident $when:literal $run:expr;)*) => {
        vec![$(Row {
            operation: $operation,
            errno: (stringify!($errno), libc::$errno),
            when: $when,
            run: |fs| { let run: fn(&Fixture) -> _ = $run; run(fs).map(|_| ()) },
        }),*]
    };
}

fn all_rows() -> Vec<Row> {
    rows! {
        "lookup" EINVAL "a name with a slash" |fs| fs.vfs.lookup(ROOT, b"d/x");
        "lookup" ESTALE "the parent is gone" |fs| fs.vfs.lookup(NOWHERE, b"x");
        "getattr" ESTALE "the inode is gone" |fs| fs.vfs.getattr(NOWHERE);
        "readlink" ESTALE "the inode is gone" |fs| fs.vfs.readlink(NOWHERE);
        "mknod" ENOENT "the parent was removed" |fs| {
            let dir = fs.ino("e");
            fs.vfs.opendir(dir)?;
            fs.vfs.rmdir(ROOT, b"e")?;
            fs.vfs.mknod(&fs.root, dir, b"n", 0o644, 0)
        };
        "mkdir" EMLINK "the parent has 2147483647 links" |fs| {
            let dir = fs.ino("d");
            set_nlink(fs, dir);
            fs.vfs.mkdir(&fs.root, dir, b"one-more", 0o755)
        };
        "symlink" EINVAL "a target with a zero byte"
            |fs| fs.vfs.symlink(&fs.root, ROOT, b"n", b"a\0b");
        "link" EMLINK "the file has 2147483647 links" |fs| {
            let ino = fs.ino("f");
            set_nlink(fs, ino);
            fs.vfs.link(ino, ROOT, b"one-more")
        };
        "rename" EINVAL "the name is \".\"" |fs| fs.vfs.rename(ROOT, b".", ROOT, b"n", RenameMode::Replace);
        "setattr" EFBIG "a size past 2^63-1"
            |fs| fs.vfs.setattr(fs.ino("f"), Handle::NONE, &size(FILE_SIZE_MAX + 1));
        "setattr" EBADF "the size through a handle for reading" |fs| {
            let flags = OpenFlags { read: true, ..OpenFlags::default() };
            let handle = fs.vfs.open(fs.ino("f"), flags)?;
            fs.vfs.setattr(fs.ino("f"), handle, &size(0))
        };
        "setattr" ESTALE "the inode is gone"
            |fs| fs.vfs.setattr(NOWHERE, Handle::NONE, &size(0));
        "open" ENXIO "a FIFO: the kernel's to open" |fs| fs.vfs.open(fs.ino("p"), READ_WRITE);
        "open" ESTALE "the inode is gone" |fs| fs.vfs.open(NOWHERE, READ_WRITE);
        "open" ENFILE "more than handles_max open files" |_| {
            let fs = Fixture::new(Options { handles_max: 1, ..Options::default() });
            let ino = fs.file("f", b"");
            fs.vfs.open(ino, READ_WRITE)?;
            fs.vfs.open(ino, READ_WRITE)
        };
        "read" EBADF "a handle of another file" |fs| {
            let handle = fs.vfs.open(fs.ino("f"), READ_WRITE)?;
            fs.vfs.read(fs.ino("g"), handle, 0, &mut [0; 10])
        };
        "read" EBADF "a handle that was released" |fs| {
            let handle = fs.vfs.open(fs.ino("f"), READ_WRITE)?;
            fs.vfs.release(fs.ino("f"), handle)?;
            fs.vfs.read(fs.ino("f"), handle, 0, &mut [0; 10])
        };
        "write" EFBIG "past 2^63-1" |fs| fs.vfs.write(
                fs.ino("f"), Handle::NONE, FILE_SIZE_MAX - 3, b"data", WriteFlags::default()
            );
        "release" EBADF "released before" |fs| {
            let handle = fs.vfs.open(fs.ino("f"), READ_WRITE)?;
            fs.vfs.release(fs.ino("f"), handle)?;
            fs.vfs.release(fs.ino("f"), handle)
        };
        "fsync" EBADF "a handle of another file" |fs| {
            let handle = fs.vfs.open(fs.ino("f"), READ_WRITE)?;
            fs.vfs.fsync(fs.ino("g"), handle)
        };
        "readdir" ENOTDIR "not a directory"
            |fs| fs.vfs.readdir(fs.ino("f"), Handle::NONE, 0, &mut |_| Listing::More);
        "readdir" EBADF "a handle of another directory" |fs| {
            let handle = fs.vfs.opendir(fs.ino("d"))?;
            fs.vfs.readdir(ROOT, handle, 0, &mut |_| Listing::More)
        };
        "fcntl" EINVAL "a range that ends before it begins" |fs| {
            let lock = FileLock { start: 2, end: 1, ..record(1, LockKind::Read) };
            fs.vfs.set_lock(fs.ino("f"), &lock, false)
        };
        "fcntl" ENOLCK "more than locks_max locks" |_| {
            let fs = Fixture::new(Options { locks_max: 1, ..Options::default() });
            let ino = fs.file("f", b"");
            fs.vfs.set_lock(ino, &record(1, LockKind::Read), false)?;
            fs.vfs.set_lock(ino, &record(2, LockKind::Read), false)
        };
    }
}

#[test]
fn every_row_answers_its_error() {
    let mut wrong = Vec::new();
    for row in all_rows() {
        let fs = tree();
        let name = format!("{} {}: {}", row.operation, row.errno.0, row.when);
        match (row.run)(&fs) {
            Ok(()) => wrong.push(format!("{name}: succeeded")),
            Err(error) if error.errno() != row.errno.1 => wrong.push(format!("{name}: {error}")),
            Err(_) => {}
        }
        assert!(!fs.exists("n"), "{name} made a name");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// docs/POSIX.md promises these rows: one line `| operation | error | when |` each.
#[test]
fn the_document_lists_the_same_rows() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/POSIX.md");
    let document = std::fs::read_to_string(path).unwrap();
    let lines = document.lines().map(str::to_owned);
    let written: BTreeSet<String> = lines
        .filter(|line| line.starts_with("| `") && line.contains("` | `E"))
        .collect();
    let own = all_rows();
    let own = own.iter().map(|row| (row.operation, row.errno.0, row.when));
    let tested: BTreeSet<String> = own
        .chain(ROWS.iter().copied())
        .map(|(operation, errno, when)| format!("| `{operation}` | `{errno}` | {when} |"))
        .collect();
    let missing: Vec<_> = tested.difference(&written).collect();
    let untested: Vec<_> = written.difference(&tested).collect();
    assert!(missing.is_empty(), "not in docs/POSIX.md: {missing:#?}");
    assert!(untested.is_empty(), "in docs/POSIX.md only: {untested:#?}");
}

#[test]
fn a_read_only_filesystem_refuses_every_change() {
    let fs = Fixture::new(Options {
        read_only: true,
        ..Options::default()
    });
    let vfs = &fs.vfs;
    let root = &fs.root;
    let refused: Vec<(&str, Result<()>)> = vec![
        ("mknod", vfs.mknod(root, ROOT, b"n", 0o644, 0).map(drop)),
        ("mkdir", vfs.mkdir(root, ROOT, b"n", 0o755).map(drop)),
        ("symlink", vfs.symlink(root, ROOT, b"n", b"t").map(drop)),
        (
            "create",
            vfs.create(root, ROOT, b"n", 0o644, READ_WRITE).map(drop),
        ),
        (
            "tmpfile",
            vfs.tmpfile(root, ROOT, 0o600, READ_WRITE).map(drop),
        ),
        ("link", vfs.link(ROOT, ROOT, b"n").map(drop)),
        ("unlink", vfs.unlink(ROOT, b"n")),
        ("rmdir", vfs.rmdir(ROOT, b"n")),
        (
            "rename",
            vfs.rename(ROOT, b"a", ROOT, b"b", RenameMode::Replace),
        ),
        (
            "set_inode_flags",
            vfs.set_inode_flags(root, ROOT, persimmon_vfs::InodeFlags::default()),
        ),
        (
            "setattr",
            vfs.setattr(ROOT, Handle::NONE, &size(0)).map(drop),
        ),
        (
            "setxattr",
            vfs.setxattr(root, ROOT, b"user.a", b"", XattrMode::Either),
        ),
        ("removexattr", vfs.removexattr(ROOT, b"user.a")),
        ("open", vfs.open(ROOT, READ_WRITE).map(drop)),
        (
            "write",
            vfs.write(ROOT, Handle::NONE, 0, b"x", WriteFlags::default())
                .map(drop),
        ),
        (
            "fallocate",
            vfs.fallocate(ROOT, Handle::NONE, 0, 1, Allocate::Punch),
        ),
    ];
    for (operation, result) in refused {
        assert!(matches!(result, Err(Error::ReadOnly)), "{operation}");
    }
    vfs.getattr(ROOT).unwrap();
    vfs.sync().unwrap();
}
