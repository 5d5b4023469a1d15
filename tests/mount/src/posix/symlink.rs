//! symlink and readlink.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use anyhow::Result;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::BOB;

super::statements!("symlink":
    paths_go_through_links,
    a_dangling_link_is_enoent,
    a_loop_is_eloop,
    forty_links_are_followed_and_not_more,
    a_link_has_its_own_owner_and_times,
    symlink_needs_write_permission_on_the_directory,
);

fn paths_go_through_links(place: &Place) -> Result<()> {
    dir(place.at("real"))?;
    file(place.at("real/file"), b"content")?;
    symlink("real", place.at("relative"))?;
    symlink(place.at("real"), place.at("absolute"))?;
    symlink("../real/./file", place.at("real/up"))?;
    holds(place.at("relative/file"), b"content")?;
    holds(place.at("absolute/file"), b"content")?;
    holds(place.at("relative/up"), b"content")?;
    equal(
        std::fs::metadata(place.at("absolute/up"))?.ino(),
        meta(place.at("real/file"))?.ino(),
    )
}

fn a_dangling_link_is_enoent(place: &Place) -> Result<()> {
    symlink("nowhere", place.at("s"))?;
    refused(open(place.at("s"), OFlags::RDONLY), Errno::NOENT)?;
    refused(errno(std::fs::metadata(place.at("s"))), Errno::NOENT)?;
    meta(place.at("s"))?;
    Ok(())
}

fn a_loop_is_eloop(place: &Place) -> Result<()> {
    symlink("b", place.at("a"))?;
    symlink("a", place.at("b"))?;
    symlink("self", place.at("self"))?;
    for name in ["a", "b", "self", "a/x"] {
        refused(open(place.at(name), OFlags::RDONLY), Errno::LOOP)?;
    }
    Ok(())
}

fn forty_links_are_followed_and_not_more(place: &Place) -> Result<()> {
    file(place.at("0"), b"end")?;
    for number in 1..=41 {
        symlink((number - 1).to_string(), place.at(number.to_string()))?;
    }
    // The check's own directory may be reached through links, so start there.
    let base = std::fs::canonicalize(&place.dir)?;
    holds(base.join("40"), b"end")?;
    refused(open(base.join("41"), OFlags::RDONLY), Errno::LOOP)
}

fn a_link_has_its_own_owner_and_times(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    symlink("file", place.at("s"))?;
    chown(place.at("s"), Some(77), Some(78))?;
    let link = meta(place.at("s"))?;
    equal((link.uid(), link.gid()), (77, 78))?;
    equal(meta(place.at("file"))?.uid(), 0)?;
    chmod(place.at("s"), 0o600)?;
    equal(mode(place.at("file"))?, 0o600)?;
    equal(mode(place.at("s"))?, 0o777)
}

fn symlink_needs_write_permission_on_the_directory(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    let path = place.at("d/s");
    BOB.run(|| refused(errno(symlink(Path::new("x"), &path)), Errno::ACCESS))
}
