//! The errors of walking a path, the same for every call that takes one.

use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Timestamps, XattrFlags};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::{self, BOB};

super::statements!("errors":
    a_file_on_the_way_is_enotdir,
    a_missing_directory_on_the_way_is_enoent,
    a_loop_on_the_way_is_eloop,
    a_name_of_256_bytes_is_enametoolong,
    a_closed_directory_on_the_way_is_eacces,
    the_inode_of_a_closed_file_can_still_be_seen,
);

type Call = fn(&Path) -> rustix::io::Result<()>;

/// Every call that takes a path, with that path put where it walks.
const CALLS: &[(&str, Call)] = &[
    ("open", |path| open(path, OFlags::RDONLY).map(drop)),
    ("creat", |path| {
        create(path, OFlags::CREATE | OFlags::WRONLY, 0o644).map(drop)
    }),
    ("stat", |path| rustix::fs::stat(path).map(drop)),
    ("lstat", |path| rustix::fs::lstat(path).map(drop)),
    ("access", |path| {
        rustix::fs::access(path, rustix::fs::Access::EXISTS)
    }),
    ("mkdir", |path| rustix::fs::mkdir(path, Mode::RWXU)),
    ("rmdir", |path| rustix::fs::rmdir(path)),
    ("unlink", |path| rustix::fs::unlink(path)),
    ("symlink", |path| rustix::fs::symlink("x", path)),
    ("readlink", |path| {
        rustix::fs::readlink(path, Vec::new()).map(drop)
    }),
    ("link from", |path| rustix::fs::link(path, "/nowhere")),
    ("rename from", |path| {
        rustix::fs::rename(path, path.with_file_name("x"))
    }),
    ("mknod", |path| {
        rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0)
    }),
    ("chmod", |path| chmod(path, 0o644)),
    ("lchown", |path| chown(path, Some(0), None)),
    ("truncate", |path| sys::truncate(path, 0)),
    ("utimensat", |path| {
        let now = rustix::fs::Timespec {
            tv_sec: 0,
            tv_nsec: libc::UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())
    }),
    ("setxattr", |path| {
        rustix::fs::setxattr(path, "user.x", b"x", XattrFlags::empty())
    }),
    ("getxattr", |path| {
        rustix::fs::getxattr(path, "user.x", &mut [0u8; 8][..]).map(drop)
    }),
    ("listxattr", |path| {
        rustix::fs::listxattr(path, &mut [0u8; 8][..]).map(drop)
    }),
    ("removexattr", |path| {
        rustix::fs::removexattr(path, "user.x")
    }),
    ("statfs", |path| rustix::fs::statfs(path).map(drop)),
];

fn all_refuse(path: &Path, errno: Errno) -> Result<()> {
    for (name, call) in CALLS {
        refused(call(path), errno).with_context(|| format!("{name} {}", path.display()))?;
    }
    Ok(())
}

fn a_file_on_the_way_is_enotdir(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    symlink("f", place.at("s"))?;
    all_refuse(&place.at("f/x"), Errno::NOTDIR)?;
    all_refuse(&place.at("f/x/y"), Errno::NOTDIR)?;
    all_refuse(&place.at("s/x"), Errno::NOTDIR)
}

fn a_missing_directory_on_the_way_is_enoent(place: &Place) -> Result<()> {
    symlink("nowhere", place.at("s"))?;
    all_refuse(&place.at("none/x"), Errno::NOENT)?;
    all_refuse(&place.at("s/x"), Errno::NOENT)
}

fn a_loop_on_the_way_is_eloop(place: &Place) -> Result<()> {
    symlink("b", place.at("a"))?;
    symlink("a", place.at("b"))?;
    all_refuse(&place.at("a/x"), Errno::LOOP)
}

fn a_name_of_256_bytes_is_enametoolong(place: &Place) -> Result<()> {
    all_refuse(&place.at("n".repeat(256)), Errno::NAMETOOLONG)?;
    all_refuse(&place.at("n".repeat(256)).join("x"), Errno::NAMETOOLONG)
}

fn a_closed_directory_on_the_way_is_eacces(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    file(place.at("d/x"), b"")?;
    dir(place.at("d/sub"))?;
    file(place.at("d/sub/x"), b"")?;
    chmod(place.at("d"), 0o700)?;
    BOB.run(|| {
        all_refuse(&place.at("d/x"), Errno::ACCESS)?;
        all_refuse(&place.at("d/sub/x"), Errno::ACCESS)?;
        all_refuse(&place.at("d/none"), Errno::ACCESS)
    })
}

fn the_inode_of_a_closed_file_can_still_be_seen(place: &Place) -> Result<()> {
    file(place.at("f"), b"secret")?;
    chmod(place.at("f"), 0)?;
    BOB.run(|| {
        equal(meta(place.at("f"))?.len(), 6)?;
        refused(open(place.at("f"), OFlags::RDONLY), Errno::ACCESS)
    })
}
