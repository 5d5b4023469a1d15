//! link: several names of one file.

use std::os::unix::fs::{MetadataExt, symlink};

use anyhow::Result;
use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::BOB;

super::statements!("link":
    link_following_a_symlink_names_its_target,
    link_to_another_filesystem_is_exdev,
    link_needs_write_permission_on_the_directory,
);

fn link(
    old: impl AsRef<std::path::Path>,
    new: impl AsRef<std::path::Path>,
) -> rustix::io::Result<()> {
    rustix::fs::link(old.as_ref(), new.as_ref())
}

fn link_following_a_symlink_names_its_target(place: &Place) -> Result<()> {
    file(place.at("a"), b"")?;
    symlink("a", place.at("s"))?;
    rustix::fs::linkat(
        CWD,
        place.at("s"),
        CWD,
        place.at("b"),
        AtFlags::SYMLINK_FOLLOW,
    )?;
    equal(meta(place.at("b"))?.ino(), meta(place.at("a"))?.ino())
}

fn link_to_another_filesystem_is_exdev(place: &Place) -> Result<()> {
    file(place.at("a"), b"")?;
    refused(link(place.at("a"), place.outside.join("a")), Errno::XDEV)
}

fn link_needs_write_permission_on_the_directory(place: &Place) -> Result<()> {
    file(place.at("a"), b"")?;
    chown(place.at("a"), Some(BOB.0), Some(BOB.0))?;
    dir(place.at("d"))?;
    BOB.run(|| refused(link(place.at("a"), place.at("d/b")), Errno::ACCESS))
}
