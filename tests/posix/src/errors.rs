//! Errors, one row each: the tables of docs/POSIX.md list the same rows. A call that answers an error changes nothing.

use anyhow::{Error, Result};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;

use crate::Statement;
use crate::door::{BOB, Door, Lock, OpenFile};
use crate::expect::*;

const FILE: u32 = 0o100_644;
const FIFO: u32 = 0o010_644;
const NEW: OFlags = OFlags::CREATE.union(OFlags::RDWR);
const TMP: OFlags = OFlags::TMPFILE.union(OFlags::RDWR);
const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
const ACCESS_LIST: &str = "system.posix_acl_access";

fn long() -> String {
    "n".repeat(256)
}

/// Files, directories, a link, a FIFO; then `run` must be refused and leave no trace.
fn refuses<D: Door, T, E: Into<Error>>(
    door: &D,
    errno: Errno,
    run: impl FnOnce(&D) -> Result<T, E>,
) -> Result<()> {
    door.file("f", b"hello")?;
    door.file("g", b"world")?;
    door.dir("d")?;
    door.file("d/x", b"inside")?;
    door.dir("d/sub")?;
    door.dir("e")?;
    door.symlink("f", "s")?;
    door.mknod("p", FIFO, (0, 0))?;
    match run(door).map(drop).map_err(E::into) {
        Ok(()) => refused(Ok(()), errno)?,
        Err(error) => match error.downcast_ref() {
            Some(found) => refused::<()>(Err(*found), errno)?,
            None => return Err(error),
        },
    }
    let mut left: Vec<_> = door.list("d")?.into_iter().map(|e| e.name).collect();
    left.sort();
    equal(left, vec!["sub".into(), "x".into()])?;
    door.gone("n")
}

macro_rules! rows {
    ($($operation:literal $errno:ident $when:literal $run:expr;)*) => {
        /// The rows as docs/POSIX.md has them: operation, error, when.
        pub const ROWS: &[(&str, &str, &str)] = &[
            $(($operation, stringify!($errno), $when)),*
        ];

        pub(crate) fn statements<D: Door>() -> Vec<Statement<D>> {
            vec![$(Statement {
                name: concat!("posix::errors::", $operation, " ", stringify!($errno), ": ", $when),
                run: |door| refuses(door, Errno::from_raw_os_error(libc::$errno), $run),
            }),*]
        }
    };
}

rows! {
    "lookup" ENOENT "no such name" |d| d.stat("none");
    "lookup" ENOTDIR "the parent is a file" |d| d.stat("f/x");
    "lookup" ENAMETOOLONG "more than 255 bytes" |d| d.stat(long());
    "readlink" EINVAL "not a symbolic link" |d| d.readlink("f");

    "mknod" EEXIST "the name is taken" |d| d.mknod("f", FILE, (0, 0));
    "mknod" EEXIST "the name is taken by a link that leads nowhere" |d| {
        d.symlink("nowhere", "dangling")?;
        d.mknod("dangling", FILE, (0, 0))
    };
    "mknod" ENOTDIR "the parent is a file" |d| d.mknod("f/x", FILE, (0, 0));
    "mknod" ENAMETOOLONG "more than 255 bytes" |d| d.mknod(long(), FILE, (0, 0));
    "mknod" EPERM "a directory" |d| d.mknod("n", 0o040_755, (0, 0));
    "mknod" EINVAL "a type that does not exist" |d| d.mknod("n", 0o030_644, (0, 0));
    "mkdir" EEXIST "the name is taken" |d| d.mkdir("d", 0o755);
    "mkdir" EEXIST "the name is \"..\"" |d| d.mkdir("..", 0o755);
    "mkdir" ENOTDIR "the parent is a file" |d| d.mkdir("f/x", 0o755);
    "mkdir" ENAMETOOLONG "more than 255 bytes" |d| d.mkdir(long(), 0o755);
    "symlink" EEXIST "the name is taken" |d| d.symlink("t", "f");
    "symlink" ENAMETOOLONG "a target of more than 4095 bytes" |d| d.symlink("t".repeat(4096), "n");
    "symlink" ENOENT "an empty target" |d| d.symlink("", "n");
    "create" EEXIST "the name is taken, O_EXCL" |d| d.open("f", NEW | OFlags::EXCL, 0o644);
    "create" EISDIR "the name is a directory's" |d| d.open("d", NEW, 0o644);
    "create" ELOOP "the name is a symbolic link's" |d| d.open("s", NEW | OFlags::NOFOLLOW, 0o644);
    "create" ENAMETOOLONG "more than 255 bytes" |d| d.open(long(), NEW, 0o644);
    "create" ENOTDIR "the parent is a file" |d| d.open("f/n", NEW, 0o644);
    "tmpfile" EINVAL "not for writing" |d| d.open(".", OFlags::TMPFILE | OFlags::RDONLY, 0o600);
    "tmpfile" ENOTDIR "not a directory" |d| d.open("f", TMP, 0o600);

    "link" EEXIST "the name is taken" |d| d.link("f", "g");
    "link" EPERM "a directory" |d| d.link("d", "n");
    "link" ENOTDIR "the parent is a file" |d| d.link("f", "g/n");
    "link" ENAMETOOLONG "more than 255 bytes" |d| d.link("f", long());
    "link" ENOENT "the file has lost its last name" |d| {
        let file = d.edit("f")?;
        d.unlink("f")?;
        d.link_open(&file, "n")
    };
    "link" ENOENT "a temporary file made with O_EXCL" |d| {
        let file = d.open(".", TMP | OFlags::EXCL, 0o600)?;
        d.link_open(&file, "n")
    };
    "unlink" ENOENT "no such name" |d| d.unlink("none");
    "unlink" EISDIR "a directory" |d| d.unlink("d");
    "unlink" ENOTDIR "the parent is a file" |d| d.unlink("f/x");
    "unlink" ENAMETOOLONG "more than 255 bytes" |d| d.unlink(long());
    "rmdir" ENOENT "no such name" |d| d.rmdir("none");
    "rmdir" ENOTDIR "not a directory" |d| d.rmdir("f");
    "rmdir" ENOTDIR "a symbolic link" |d| d.rmdir("s");
    "rmdir" ENOTEMPTY "the directory has entries" |d| d.rmdir("d");
    "rmdir" ENOTEMPTY "the name is \"..\"" |d| d.rmdir("d/..");
    "rmdir" EINVAL "the name is \".\"" |d| d.rmdir("d/.");
    "rmdir" ENAMETOOLONG "more than 255 bytes" |d| d.rmdir(long());

    "rename" ENOENT "no such name" |d| d.rename("none", "n");
    "rename" ENOENT "RENAME_EXCHANGE without a target"
        |d| d.rename_with("f", "none", RenameFlags::EXCHANGE);
    "rename" EEXIST "RENAME_NOREPLACE onto a name that is taken"
        |d| d.rename_with("f", "g", RenameFlags::NOREPLACE);
    "rename" EISDIR "a file onto a directory" |d| d.rename("f", "e");
    "rename" ENOTDIR "a directory onto a file" |d| d.rename("e", "f");
    "rename" ENOTDIR "the new parent is a file" |d| d.rename("f", "g/n");
    "rename" ENOTEMPTY "onto a directory that has entries" |d| d.rename("e", "d");
    "rename" EINVAL "a directory into itself" |d| d.rename("d", "d/n");
    "rename" EINVAL "a directory below itself" |d| d.rename("d", "d/sub/n");
    "rename" EINVAL "an exchange that would put a directory below itself"
        |d| d.rename_with("d/x", "d", RenameFlags::EXCHANGE);
    "rename" EINVAL "flags that are not offered"
        |d| d.rename_with("f", "n", RenameFlags::WHITEOUT | RenameFlags::EXCHANGE);
    "rename" ENAMETOOLONG "more than 255 bytes" |d| d.rename("f", long());

    "setattr" EISDIR "the size of a directory" |d| d.truncate("d", 0);
    "setattr" EINVAL "the size of a FIFO" |d| d.truncate("p", 0);
    "access" EACCES "the mode forbids it" |d| {
        d.chmod("f", 0o600)?;
        d.as_user(BOB, |d| Ok(d.access("f", 4)?))
    };
    "access" EACCES "root executes what nobody may" |d| d.access("f", 1);
    "getxattr" ENODATA "no such attribute" |d| d.getxattr("f", "user.none");
    "getxattr" EOPNOTSUPP "a namespace that does not exist" |d| d.getxattr("f", "system.other");
    "setxattr" EEXIST "XATTR_CREATE on one that exists" |d| {
        d.setxattr("f", "user.a", b"1")?;
        d.setxattr_with("f", "user.a", b"1", XattrFlags::CREATE)
    };
    "setxattr" ENODATA "XATTR_REPLACE on one that does not"
        |d| d.setxattr_with("f", "user.a", b"1", XattrFlags::REPLACE);
    "setxattr" ENOSPC "names of an inode's attributes of more than 65485 bytes" |d| {
        (0..400).try_for_each(|n| d.setxattr("f", &format!("user.{n:0200}"), b""))
    };
    "setxattr" E2BIG "a value of more than 65536 bytes" |d| d.setxattr("f", "user.a", &[0; 65537]);
    "setxattr" E2BIG "an access control list of more than 511 entries"
        |d| d.setxattr("f", ACCESS_LIST, &crate::list_of(512));
    "setxattr" ERANGE "a name of more than 255 bytes"
        |d| d.setxattr("f", &format!("user.{}", "n".repeat(251)), b"");
    "setxattr" EPERM "user. on a symbolic link" |d| d.setxattr("s", "user.a", b"");
    "setxattr" EOPNOTSUPP "a namespace that does not exist" |d| d.setxattr("f", "a", b"");
    "setxattr" EINVAL "a name that is only a namespace" |d| d.setxattr("f", "user.", b"");
    "setxattr" EINVAL "an access control list that is none" |d| d.setxattr("f", ACCESS_LIST, b"x");
    "setxattr" EINVAL "a lifetime that does not exist"
        |d| d.setxattr("f", "user.persimmon.lifetime", b"brief");
    "removexattr" ENODATA "no such attribute" |d| d.removexattr("f", "user.none");

    "open" EISDIR "a directory" |d| d.open("d", OFlags::RDWR, 0);
    "open" ELOOP "a symbolic link" |d| d.open("s", OFlags::RDWR | OFlags::NOFOLLOW, 0);
    "read" EBADF "a handle for writing"
        |d| d.open("f", OFlags::WRONLY, 0)?.read_at(&mut [0; 10], 0);
    "write" EBADF "a handle for reading" |d| d.open("f", OFlags::RDONLY, 0)?.write_at(b"data", 0);
    "fallocate" EINVAL "no length" |d| d.edit("f")?.allocate(PUNCH, 0, 0);
    "fallocate" EFBIG "past 2^63-1" |d| d.edit("f")?.allocate(PUNCH, 1, i64::MAX as u64);
    "fallocate" EINVAL "a range to collapse or insert that is not of whole blocks"
        |d| d.edit("f")?.allocate(FallocateFlags::INSERT_RANGE, 0, 512);
    "fallocate" EINVAL "a range to collapse that does not end before the file"
        |d| d.edit("f")?.allocate(FallocateFlags::COLLAPSE_RANGE, 0, 4096);
    "fallocate" EOPNOTSUPP "unshare"
        |d| d.edit("f")?.allocate(FallocateFlags::UNSHARE_RANGE, 0, 4096);
    "fallocate" EBADF "a handle for reading"
        |d| d.open("f", OFlags::RDONLY, 0)?.allocate(PUNCH, 0, 1);
    "lseek" ENXIO "data at or past the end" |d| d.edit("f")?.next_data(5);
    "lseek" ENXIO "a hole past the end" |d| d.edit("f")?.next_hole(6);
    "copy_file_range" EINVAL "ranges of one file that overlap" |d| {
        let file = d.edit("f")?;
        file.copy_to(0, &file, 2, 3)
    };
    "copy_file_range" EBADF "a target for reading"
        |d| d.edit("f")?.copy_to(0, &d.open("g", OFlags::RDONLY, 0)?, 0, 3);

    "opendir" ENOTDIR "not a directory" |d| d.list("f");

    "fcntl" EAGAIN "another holds the lock" |d| {
        let (one, other) = (d.edit("f")?, d.edit("f")?);
        one.lock(Lock::Write, 0, 100)?;
        other.lock(Lock::Read, 0, 100)
    };
    "flock" EAGAIN "another holds the lock" |d| {
        let (one, other) = (d.edit("f")?, d.edit("f")?);
        one.flock(FlockOperation::NonBlockingLockExclusive)?;
        other.flock(FlockOperation::NonBlockingLockExclusive)
    };
}
