//! mkdir and rmdir.

use std::os::unix::fs::MetadataExt;

use anyhow::Result;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::BOB;

super::statements!("directory":
    mkdir_needs_write_permission_on_the_parent,
    mkdir_accepts_a_trailing_slash,
    rmdir_needs_write_permission_on_the_parent,
    a_removed_directory_that_is_open_is_dead_and_empty,
    the_root_of_the_mount_stays,
);

fn mkdir(path: impl AsRef<std::path::Path>, mode: u32) -> rustix::io::Result<()> {
    rustix::fs::mkdir(path.as_ref(), Mode::from_raw_mode(mode))
}

fn rmdir(path: impl AsRef<std::path::Path>) -> rustix::io::Result<()> {
    rustix::fs::rmdir(path.as_ref())
}

fn mkdir_needs_write_permission_on_the_parent(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    BOB.run(|| refused(mkdir(place.at("d/new"), 0o755), Errno::ACCESS))
}

fn mkdir_accepts_a_trailing_slash(place: &Place) -> Result<()> {
    mkdir(place.at("d/"), 0o755)?;
    equal(meta(place.at("d"))?.is_dir(), true)?;
    rmdir(place.at("d/"))?;
    gone(place.at("d"))
}

fn rmdir_needs_write_permission_on_the_parent(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    dir(place.at("d/sub"))?;
    chown(place.at("d/sub"), Some(BOB.0), Some(BOB.0))?;
    BOB.run(|| refused(rmdir(place.at("d/sub")), Errno::ACCESS))
}

fn a_removed_directory_that_is_open_is_dead_and_empty(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    let opened = open(place.at("d"), OFlags::RDONLY | OFlags::DIRECTORY)?;
    rmdir(place.at("d"))?;
    equal(opened.metadata()?.nlink(), 0)?;
    let flags = OFlags::CREATE | OFlags::RDWR;
    refused(
        rustix::fs::openat(&opened, "new", flags, Mode::RWXU),
        Errno::NOENT,
    )?;
    refused(
        rustix::fs::mkdirat(&opened, "new", Mode::RWXU),
        Errno::NOENT,
    )?;
    refused(rustix::fs::symlinkat("x", &opened, "new"), Errno::NOENT)?;
    refused(
        rustix::fs::statat(&opened, "x", AtFlags::empty()),
        Errno::NOENT,
    )?;
    let names = rustix::fs::Dir::read_from(&opened)?.collect::<Result<Vec<_>, _>>();
    let others = names
        .unwrap_or_default()
        .into_iter()
        .filter(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."));
    equal(others.count(), 0)
}

fn the_root_of_the_mount_stays(place: &Place) -> Result<()> {
    let mut root = place.dir.clone();
    root.pop();
    refused(rmdir(&root), Errno::BUSY)?;
    refused(
        rustix::fs::rename(&root, place.outside.join("moved")),
        Errno::BUSY,
    )?;
    refused(rmdir(root.join(".")), Errno::INVAL)
}
