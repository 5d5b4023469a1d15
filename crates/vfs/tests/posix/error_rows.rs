//! The errors, one row each.

use persimmon_vfs::{
    Allocate, Error, FILE_SIZE_MAX, FileLock, Handle, Ino, LINKS_MAX, Listing, LockKind, LockOwner,
    OpenFlags, Options, ROOT, RenameMode, Result, SeekTo, SetAttr, WriteFlags, XattrMode,
};

use crate::fixture::{Fixture, READ_WRITE};

/// An operation, and the error it answers when something is so.
pub struct Row {
    pub operation: &'static str,
    pub errno: &'static str,
    pub when: &'static str,
    pub run: fn(&Fixture) -> Result<()>,
}

/// The tree the rows run in: files, directories, a link, a FIFO.
pub fn tree() -> Fixture {
    let fs = Fixture::default();
    fs.file("f", b"hello");
    fs.file("g", b"world");
    fs.mkdir("d");
    fs.file("d/x", b"inside");
    fs.mkdir("d/sub");
    fs.mkdir("e");
    fs.vfs.symlink(&fs.root, ROOT, b"s", b"f").unwrap();
    fs.vfs
        .mknod(&fs.root, ROOT, b"p", libc::S_IFIFO | 0o644, 0)
        .unwrap();
    fs
}

fn long() -> Vec<u8> {
    vec![b'n'; 256]
}

/// A number that names nothing.
const NOWHERE: Ino = Ino(1 << 40);

macro_rules! rows {
    ($($operation:literal $errno:ident $when:literal $run:expr;)*) => {
        vec![$(Row {
            operation: $operation,
            errno: stringify!($errno),
            when: $when,
            run: |fs| { let run: fn(&Fixture) -> _ = $run; run(fs).map(|_| ()) },
        }),*]
    };
}

pub fn size(bytes: u64) -> SetAttr {
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

fn lookup_rows() -> Vec<Row> {
    rows! {
        "lookup" ENOENT "no such name" |fs| fs.vfs.lookup(ROOT, b"none");
        "lookup" ENOTDIR "the parent is a file" |fs| fs.vfs.lookup(fs.ino("f"), b"x");
        "lookup" ENAMETOOLONG "more than 255 bytes" |fs| fs.vfs.lookup(ROOT, &long());
        "lookup" EINVAL "a name with a slash" |fs| fs.vfs.lookup(ROOT, b"d/x");
        "lookup" ESTALE "the parent is gone" |fs| fs.vfs.lookup(NOWHERE, b"x");
        "getattr" ESTALE "the inode is gone" |fs| fs.vfs.getattr(NOWHERE);
        "readlink" EINVAL "not a symbolic link" |fs| fs.vfs.readlink(fs.ino("f"));
        "readlink" ESTALE "the inode is gone" |fs| fs.vfs.readlink(NOWHERE);
    }
}

fn make_rows() -> Vec<Row> {
    rows! {
        "mknod" EEXIST "the name is taken" |fs| fs.vfs.mknod(&fs.root, ROOT, b"f", 0o644, 0);
        "mknod" EEXIST "the name is taken by a link that leads nowhere" |fs| {
            fs.vfs.symlink(&fs.root, ROOT, b"dangling", b"nowhere")?;
            fs.vfs.mknod(&fs.root, ROOT, b"dangling", 0o644, 0)
        };
        "mknod" ENOTDIR "the parent is a file"
            |fs| fs.vfs.mknod(&fs.root, fs.ino("f"), b"x", 0o644, 0);
        "mknod" ENAMETOOLONG "more than 255 bytes"
            |fs| fs.vfs.mknod(&fs.root, ROOT, &long(), 0o644, 0);
        "mknod" EPERM "a directory" |fs| fs.vfs.mknod(&fs.root, ROOT, b"n", libc::S_IFDIR, 0);
        "mknod" EINVAL "a type that does not exist"
            |fs| fs.vfs.mknod(&fs.root, ROOT, b"n", 0o030_644, 0);
        "mknod" ENOENT "the parent was removed" |fs| {
            let dir = fs.ino("e");
            fs.vfs.opendir(dir)?;
            fs.vfs.rmdir(ROOT, b"e")?;
            fs.vfs.mknod(&fs.root, dir, b"n", 0o644, 0)
        };
        "mkdir" EEXIST "the name is taken" |fs| fs.vfs.mkdir(&fs.root, ROOT, b"d", 0o755);
        "mkdir" EEXIST "the name is \"..\"" |fs| fs.vfs.mkdir(&fs.root, ROOT, b"..", 0o755);
        "mkdir" ENOTDIR "the parent is a file"
            |fs| fs.vfs.mkdir(&fs.root, fs.ino("f"), b"x", 0o755);
        "mkdir" ENAMETOOLONG "more than 255 bytes"
            |fs| fs.vfs.mkdir(&fs.root, ROOT, &long(), 0o755);
        "mkdir" EMLINK "the parent has 2147483647 links" |fs| {
            let dir = fs.ino("d");
            set_nlink(fs, dir);
            fs.vfs.mkdir(&fs.root, dir, b"one-more", 0o755)
        };
        "symlink" EEXIST "the name is taken" |fs| fs.vfs.symlink(&fs.root, ROOT, b"f", b"t");
        "symlink" ENAMETOOLONG "a target of more than 4095 bytes"
            |fs| fs.vfs.symlink(&fs.root, ROOT, b"n", &[b't'; 4096]);
        "symlink" ENOENT "an empty target" |fs| fs.vfs.symlink(&fs.root, ROOT, b"n", b"");
        "symlink" EINVAL "a target with a zero byte"
            |fs| fs.vfs.symlink(&fs.root, ROOT, b"n", b"a\0b");
        "create" EEXIST "the name is taken, O_EXCL" |fs| {
            let flags = OpenFlags { exclusive: true, ..READ_WRITE };
            fs.vfs.create(&fs.root, ROOT, b"f", 0o644, flags)
        };
        "create" EISDIR "the name is a directory's"
            |fs| fs.vfs.create(&fs.root, ROOT, b"d", 0o644, READ_WRITE);
        "create" ELOOP "the name is a symbolic link's"
            |fs| fs.vfs.create(&fs.root, ROOT, b"s", 0o644, READ_WRITE);
        "create" ENAMETOOLONG "more than 255 bytes"
            |fs| fs.vfs.create(&fs.root, ROOT, &long(), 0o644, READ_WRITE);
        "create" ENOTDIR "the parent is a file"
            |fs| fs.vfs.create(&fs.root, fs.ino("f"), b"n", 0o644, READ_WRITE);
        "tmpfile" EINVAL "not for writing" |fs| {
            let flags = OpenFlags { read: true, ..OpenFlags::default() };
            fs.vfs.tmpfile(&fs.root, ROOT, 0o600, flags)
        };
        "tmpfile" ENOTDIR "not a directory"
            |fs| fs.vfs.tmpfile(&fs.root, fs.ino("f"), 0o600, READ_WRITE);
    }
}

fn link_rows() -> Vec<Row> {
    rows! {
        "link" EEXIST "the name is taken" |fs| fs.vfs.link(fs.ino("f"), ROOT, b"g");
        "link" EPERM "a directory" |fs| fs.vfs.link(fs.ino("d"), ROOT, b"n");
        "link" ENOTDIR "the parent is a file" |fs| fs.vfs.link(fs.ino("f"), fs.ino("g"), b"n");
        "link" ENAMETOOLONG "more than 255 bytes" |fs| fs.vfs.link(fs.ino("f"), ROOT, &long());
        "link" EMLINK "the file has 2147483647 links" |fs| {
            let ino = fs.ino("f");
            set_nlink(fs, ino);
            fs.vfs.link(ino, ROOT, b"one-more")
        };
        "link" ENOENT "the file has lost its last name" |fs| {
            let ino = fs.ino("f");
            fs.open(ino);
            fs.unlink("f");
            fs.vfs.link(ino, ROOT, b"n")
        };
        "link" ENOENT "a temporary file made with O_EXCL" |fs| {
            let flags = OpenFlags { exclusive: true, ..READ_WRITE };
            let (attr, _) = fs.vfs.tmpfile(&fs.root, ROOT, 0o600, flags)?;
            fs.vfs.link(attr.ino, ROOT, b"n")
        };
        "unlink" ENOENT "no such name" |fs| fs.vfs.unlink(ROOT, b"none");
        "unlink" EISDIR "a directory" |fs| fs.vfs.unlink(ROOT, b"d");
        "unlink" ENOTDIR "the parent is a file" |fs| fs.vfs.unlink(fs.ino("f"), b"x");
        "unlink" ENAMETOOLONG "more than 255 bytes" |fs| fs.vfs.unlink(ROOT, &long());
        "rmdir" ENOENT "no such name" |fs| fs.vfs.rmdir(ROOT, b"none");
        "rmdir" ENOTDIR "not a directory" |fs| fs.vfs.rmdir(ROOT, b"f");
        "rmdir" ENOTDIR "a symbolic link" |fs| fs.vfs.rmdir(ROOT, b"s");
        "rmdir" ENOTEMPTY "the directory has entries" |fs| fs.vfs.rmdir(ROOT, b"d");
        "rmdir" ENOTEMPTY "the name is \"..\"" |fs| fs.vfs.rmdir(fs.ino("d"), b"..");
        "rmdir" EINVAL "the name is \".\"" |fs| fs.vfs.rmdir(fs.ino("d"), b".");
        "rmdir" ENAMETOOLONG "more than 255 bytes" |fs| fs.vfs.rmdir(ROOT, &long());
    }
}

fn rename_to(fs: &Fixture, from: &str, to: &str, mode: RenameMode) -> Result<()> {
    let (from_dir, from) = fs.split(from);
    let (to_dir, to) = fs.split(to);
    fs.vfs.rename(from_dir, from, to_dir, to, mode)
}

fn rename_rows() -> Vec<Row> {
    use RenameMode::{Exchange, NoReplace, Replace};
    rows! {
        "rename" ENOENT "no such name" |fs| rename_to(fs, "none", "n", Replace);
        "rename" ENOENT "RENAME_EXCHANGE without a target"
            |fs| rename_to(fs, "f", "none", Exchange);
        "rename" EEXIST "RENAME_NOREPLACE onto a name that is taken"
            |fs| rename_to(fs, "f", "g", NoReplace);
        "rename" EISDIR "a file onto a directory" |fs| rename_to(fs, "f", "e", Replace);
        "rename" ENOTDIR "a directory onto a file" |fs| rename_to(fs, "e", "f", Replace);
        "rename" ENOTDIR "the new parent is a file"
            |fs| fs.vfs.rename(ROOT, b"f", fs.ino("g"), b"n", Replace);
        "rename" ENOTEMPTY "onto a directory that has entries"
            |fs| rename_to(fs, "e", "d", Replace);
        "rename" EINVAL "a directory into itself" |fs| rename_to(fs, "d", "d/n", Replace);
        "rename" EINVAL "a directory below itself" |fs| rename_to(fs, "d", "d/sub/n", Replace);
        "rename" EINVAL "an exchange that would put a directory below itself"
            |fs| rename_to(fs, "d/x", "d", Exchange);
        "rename" EINVAL "the name is \".\"" |fs| fs.vfs.rename(ROOT, b".", ROOT, b"n", Replace);
        "rename" EINVAL "flags that are not offered" |_| RenameMode::from_linux(1 << 3);
        "rename" ENAMETOOLONG "more than 255 bytes"
            |fs| fs.vfs.rename(ROOT, b"f", ROOT, &long(), Replace);
    }
}

fn attribute_rows() -> Vec<Row> {
    rows! {
        "setattr" EISDIR "the size of a directory"
            |fs| fs.vfs.setattr(fs.ino("d"), Handle::NONE, &size(0));
        "setattr" EINVAL "the size of a FIFO"
            |fs| fs.vfs.setattr(fs.ino("p"), Handle::NONE, &size(0));
        "setattr" EFBIG "a size past 2^63-1"
            |fs| fs.vfs.setattr(fs.ino("f"), Handle::NONE, &size(FILE_SIZE_MAX + 1));
        "setattr" EBADF "the size through a handle for reading" |fs| {
            let flags = OpenFlags { read: true, ..OpenFlags::default() };
            let handle = fs.vfs.open(fs.ino("f"), flags)?;
            fs.vfs.setattr(fs.ino("f"), handle, &size(0))
        };
        "setattr" ESTALE "the inode is gone"
            |fs| fs.vfs.setattr(NOWHERE, Handle::NONE, &size(0));
        "access" EACCES "the mode forbids it" |fs| {
            fs.chmod(fs.ino("f"), 0o600);
            fs.vfs.access(&crate::fixture::user(5, 5), fs.ino("f"), 4)
        };
        "access" EACCES "root executes what nobody may"
            |fs| fs.vfs.access(&fs.root, fs.ino("f"), 1);
        "getxattr" ENODATA "no such attribute" |fs| fs.vfs.getxattr(ROOT, b"user.none");
        "getxattr" EOPNOTSUPP "a namespace that does not exist"
            |fs| fs.vfs.getxattr(ROOT, b"system.other");
        "setxattr" EEXIST "XATTR_CREATE on one that exists" |fs| {
            fs.vfs.setxattr(&fs.root, ROOT, b"user.a", b"1", XattrMode::Create)?;
            fs.vfs.setxattr(&fs.root, ROOT, b"user.a", b"1", XattrMode::Create)
        };
        "setxattr" ENODATA "XATTR_REPLACE on one that does not"
            |fs| fs.vfs.setxattr(&fs.root, ROOT, b"user.a", b"1", XattrMode::Replace);
        "setxattr" ENOSPC "a value of more than 3900 bytes"
            |fs| fs.vfs.setxattr(&fs.root, ROOT, b"user.a", &[0; 3901], XattrMode::Either);
        "setxattr" ENOSPC "names of an inode's attributes of more than 65512 bytes" |fs| {
            (0..400).try_for_each(|n| {
                let name = format!("user.{n:0200}").into_bytes();
                fs.vfs.setxattr(&fs.root, ROOT, &name, b"", XattrMode::Either)
            })
        };
        "setxattr" E2BIG "a value of more than 65536 bytes"
            |fs| fs.vfs.setxattr(&fs.root, ROOT, b"user.a", &[0; 65537], XattrMode::Either);
        "setxattr" ERANGE "a name of more than 255 bytes" |fs| {
            let name = [b"user.".as_slice(), &[b'n'; 251]].concat();
            fs.vfs.setxattr(&fs.root, ROOT, &name, b"", XattrMode::Either)
        };
        "setxattr" EPERM "user. on a symbolic link"
            |fs| fs.vfs.setxattr(&fs.root, fs.ino("s"), b"user.a", b"", XattrMode::Either);
        "setxattr" EOPNOTSUPP "a namespace that does not exist"
            |fs| fs.vfs.setxattr(&fs.root, ROOT, b"a", b"", XattrMode::Either);
        "setxattr" EINVAL "a name that is only a namespace"
            |fs| fs.vfs.setxattr(&fs.root, ROOT, b"user.", b"", XattrMode::Either);
        "setxattr" EINVAL "an access control list that is none"
            |fs| fs.vfs.setxattr(
                &fs.root, ROOT, b"system.posix_acl_access", b"x", XattrMode::Either
            );
        "setxattr" EINVAL "a lifetime that does not exist"
            |fs| fs.vfs.setxattr(
                &fs.root, ROOT, b"user.persimmon.lifetime", b"brief", XattrMode::Either
            );
        "removexattr" ENODATA "no such attribute" |fs| fs.vfs.removexattr(ROOT, b"user.none");
    }
}

fn read_through(fs: &Fixture, flags: OpenFlags) -> Result<usize> {
    let handle = fs.vfs.open(fs.ino("f"), flags)?;
    fs.vfs.read(fs.ino("f"), handle, 0, &mut [0; 10])
}

fn write_at(fs: &Fixture, flags: OpenFlags, offset: u64) -> Result<u64> {
    let handle = fs.vfs.open(fs.ino("f"), flags)?;
    fs.vfs
        .write(fs.ino("f"), handle, offset, b"data", WriteFlags::default())
        .map(|written| written.end)
}

fn file_rows() -> Vec<Row> {
    rows! {
        "open" EISDIR "a directory" |fs| fs.vfs.open(fs.ino("d"), READ_WRITE);
        "open" ELOOP "a symbolic link" |fs| fs.vfs.open(fs.ino("s"), READ_WRITE);
        "open" ENXIO "a FIFO: the kernel's to open" |fs| fs.vfs.open(fs.ino("p"), READ_WRITE);
        "open" ESTALE "the inode is gone" |fs| fs.vfs.open(NOWHERE, READ_WRITE);
        "open" ENFILE "more than handles_max open files" |_| {
            let fs = Fixture::new(Options { handles_max: 1, ..Options::default() });
            let ino = fs.file("f", b"");
            fs.vfs.open(ino, READ_WRITE)?;
            fs.vfs.open(ino, READ_WRITE)
        };
        "read" EBADF "a handle for writing" |fs| {
            read_through(fs, OpenFlags { read: false, ..READ_WRITE })
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
        "write" EBADF "a handle for reading" |fs| {
            write_at(fs, OpenFlags { write: false, ..READ_WRITE }, 0)
        };
        "write" EFBIG "past 2^63-1" |fs| write_at(fs, READ_WRITE, FILE_SIZE_MAX - 3);
        "release" EBADF "released before" |fs| {
            let handle = fs.vfs.open(fs.ino("f"), READ_WRITE)?;
            fs.vfs.release(fs.ino("f"), handle)?;
            fs.vfs.release(fs.ino("f"), handle)
        };
        "fsync" EBADF "a handle of another file" |fs| {
            let handle = fs.vfs.open(fs.ino("f"), READ_WRITE)?;
            fs.vfs.fsync(fs.ino("g"), handle)
        };
        "fallocate" EINVAL "no length"
            |fs| fs.vfs.fallocate(fs.ino("f"), Handle::NONE, 0, 0, Allocate::Punch);
        "fallocate" EFBIG "past 2^63-1"
            |fs| fs.vfs.fallocate(fs.ino("f"), Handle::NONE, 1, FILE_SIZE_MAX, Allocate::Punch);
        "fallocate" EOPNOTSUPP "collapse, insert, unshare"
            |_| Allocate::from_linux(libc::FALLOC_FL_COLLAPSE_RANGE);
        "fallocate" EBADF "a handle for reading" |fs| {
            let flags = OpenFlags { write: false, ..READ_WRITE };
            let handle = fs.vfs.open(fs.ino("f"), flags)?;
            fs.vfs.fallocate(fs.ino("f"), handle, 0, 1, Allocate::Punch)
        };
        "lseek" ENXIO "data at or past the end"
            |fs| fs.vfs.seek(fs.ino("f"), Handle::NONE, 5, SeekTo::Data);
        "lseek" ENXIO "a hole past the end"
            |fs| fs.vfs.seek(fs.ino("f"), Handle::NONE, 6, SeekTo::Hole);
        "copy_file_range" EINVAL "ranges of one file that overlap" |fs| {
            let ino = fs.ino("f");
            fs.vfs.copy_file_range((ino, Handle::NONE, 0), (ino, Handle::NONE, 2), 3)
        };
        "copy_file_range" EBADF "a target for reading" |fs| {
            let flags = OpenFlags { write: false, ..READ_WRITE };
            let handle = fs.vfs.open(fs.ino("g"), flags)?;
            fs.vfs.copy_file_range((fs.ino("f"), Handle::NONE, 0), (fs.ino("g"), handle, 0), 3)
        };
    }
}

fn directory_and_lock_rows() -> Vec<Row> {
    rows! {
        "opendir" ENOTDIR "not a directory" |fs| fs.vfs.opendir(fs.ino("f"));
        "readdir" ENOTDIR "not a directory"
            |fs| fs.vfs.readdir(fs.ino("f"), Handle::NONE, 0, &mut |_| Listing::More);
        "readdir" EBADF "a handle of another directory" |fs| {
            let handle = fs.vfs.opendir(fs.ino("d"))?;
            fs.vfs.readdir(ROOT, handle, 0, &mut |_| Listing::More)
        };
        "fcntl" EAGAIN "another holds the lock" |fs| {
            fs.vfs.set_lock(fs.ino("f"), &record(1, LockKind::Write), false)?;
            fs.vfs.set_lock(fs.ino("f"), &record(2, LockKind::Read), false)
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
        "flock" EAGAIN "another holds the lock" |fs| {
            fs.vfs.flock(fs.ino("f"), LockOwner(1), LockKind::Write, false)?;
            fs.vfs.flock(fs.ino("f"), LockOwner(2), LockKind::Write, false)
        };
    }
}

pub fn all_rows() -> Vec<Row> {
    [
        lookup_rows(),
        make_rows(),
        link_rows(),
        rename_rows(),
        attribute_rows(),
        file_rows(),
        directory_and_lock_rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
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
