//! rename, with NOREPLACE and EXCHANGE.

use std::path::Path;

use anyhow::Result;
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::BOB;

super::statements!("rename":
    missing_names_are_enoent,
    dot_and_dotdot_are_refused,
    another_filesystem_is_exdev,
    the_directories_must_be_writable,
    a_moved_directory_must_be_writable_itself,
    flags_that_contradict_are_einval,
);

fn rename(old: impl AsRef<Path>, new: impl AsRef<Path>) -> rustix::io::Result<()> {
    rustix::fs::rename(old.as_ref(), new.as_ref())
}

fn rename_with(
    old: impl AsRef<Path>,
    new: impl AsRef<Path>,
    flags: RenameFlags,
) -> rustix::io::Result<()> {
    rustix::fs::renameat_with(CWD, old.as_ref(), CWD, new.as_ref(), flags)
}

fn missing_names_are_enoent(place: &Place) -> Result<()> {
    file(place.at("a"), b"")?;
    refused(rename(place.at("none"), place.at("b")), Errno::NOENT)?;
    refused(rename(place.at("a"), place.at("none/b")), Errno::NOENT)?;
    refused(rename(place.at("a"), place.at("a/b")), Errno::NOTDIR)?;
    refused(rename(place.at("a"), ""), Errno::NOENT)
}

fn dot_and_dotdot_are_refused(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    for name in ["d/.", "d/.."] {
        refused_with(
            rename(place.at(name), place.at("x")),
            &[Errno::BUSY, Errno::INVAL],
        )?;
        refused_with(
            rename(place.at("d"), place.at(name)),
            &[Errno::BUSY, Errno::INVAL],
        )?;
    }
    Ok(())
}

fn another_filesystem_is_exdev(place: &Place) -> Result<()> {
    file(place.at("a"), b"")?;
    refused(rename(place.at("a"), place.outside.join("a")), Errno::XDEV)
}

fn the_directories_must_be_writable(place: &Place) -> Result<()> {
    for name in ["closed", "open"] {
        dir(place.at(name))?;
        file(place.at(name).join("file"), b"")?;
        chown(place.at(name).join("file"), Some(BOB.0), None)?;
    }
    chmod(place.at("open"), 0o777)?;
    BOB.run(|| {
        let closed = place.at("closed/file");
        refused(rename(&closed, place.at("open/x")), Errno::ACCESS)?;
        refused(
            rename(place.at("open/file"), place.at("closed/x")),
            Errno::ACCESS,
        )?;
        Ok(rename(place.at("open/file"), place.at("open/x"))?)
    })
}

fn a_moved_directory_must_be_writable_itself(place: &Place) -> Result<()> {
    for name in ["one", "two"] {
        dir(place.at(name))?;
        chmod(place.at(name), 0o777)?;
    }
    dir(place.at("one/locked"))?; // Its own `..` would change, and Bob may not write it.
    BOB.run(|| {
        refused(
            rename(place.at("one/locked"), place.at("two/locked")),
            Errno::ACCESS,
        )?;
        Ok(rename(place.at("one/locked"), place.at("one/renamed"))?)
    })
}

fn flags_that_contradict_are_einval(place: &Place) -> Result<()> {
    file(place.at("a"), b"")?;
    file(place.at("b"), b"")?;
    let both = RenameFlags::EXCHANGE | RenameFlags::NOREPLACE;
    refused(
        rename_with(place.at("a"), place.at("b"), both),
        Errno::INVAL,
    )
}
