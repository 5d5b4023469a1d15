//! symlink and readlink.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use anyhow::Result;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::{ALICE, BOB};

super::statements!("symlink":
    the_target_comes_back_byte_for_byte,
    the_longest_target_is_kept_and_a_longer_one_refused,
    an_empty_target_is_enoent,
    symlink_refuses_a_name_that_exists,
    a_link_is_owned_by_its_maker_and_open_to_all,
    paths_go_through_links,
    a_dangling_link_is_enoent,
    a_loop_is_eloop,
    forty_links_are_followed_and_not_more,
    readlink_of_anything_else_is_einval,
    removing_a_link_leaves_its_target,
    a_link_has_its_own_owner_and_times,
    symlink_needs_write_permission_on_the_directory,
);

fn the_target_comes_back_byte_for_byte(place: &Place) -> Result<()> {
    for len in [1, 2, 59, 60, 61, 255, 256, 1000, 4000] {
        let target = "t".repeat(len);
        let path = place.at(len.to_string());
        symlink(&target, &path)?;
        equal(std::fs::read_link(&path)?.to_string_lossy().len(), len)?;
        equal(std::fs::read_link(&path)?, target.into())?;
        equal(meta(&path)?.len(), len as u64)?;
    }
    let odd = "a//b/../ \u{e9}\u{4e2d}\n*";
    symlink(odd, place.at("odd"))?;
    equal(std::fs::read_link(place.at("odd"))?, odd.into())
}

fn the_longest_target_is_kept_and_a_longer_one_refused(place: &Place) -> Result<()> {
    let longest = "x/".repeat(2047) + "y"; // PATH_MAX counts the closing zero.
    symlink(&longest, place.at("longest"))?;
    equal(std::fs::read_link(place.at("longest"))?, longest.into())?;
    let longer = "x/".repeat(2048);
    refused(
        errno(symlink(longer, place.at("longer"))),
        Errno::NAMETOOLONG,
    )
}

fn an_empty_target_is_enoent(place: &Place) -> Result<()> {
    refused(errno(symlink("", place.at("s"))), Errno::NOENT)
}

fn symlink_refuses_a_name_that_exists(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    dir(place.at("dir"))?;
    symlink("nowhere", place.at("link"))?;
    for name in ["file", "dir", "link"] {
        refused(errno(symlink("x", place.at(name))), Errno::EXIST)?;
    }
    equal(std::fs::read_link(place.at("link"))?, "nowhere".into())
}

fn a_link_is_owned_by_its_maker_and_open_to_all(place: &Place) -> Result<()> {
    ALICE.run(|| Ok(symlink("x", place.at("s"))?))?;
    let meta = meta(place.at("s"))?;
    equal(meta.mode(), 0o120_777)?;
    equal(
        (meta.uid(), meta.gid(), meta.nlink()),
        (ALICE.0, ALICE.0, 1),
    )
}

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

fn readlink_of_anything_else_is_einval(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    dir(place.at("dir"))?;
    let readlink = |name: &str| errno(std::fs::read_link(place.at(name)));
    refused(readlink("file"), Errno::INVAL)?;
    refused(readlink("dir"), Errno::INVAL)?;
    refused(readlink("none"), Errno::NOENT)?;
    refused(readlink("file/x"), Errno::NOTDIR)
}

fn removing_a_link_leaves_its_target(place: &Place) -> Result<()> {
    file(place.at("file"), b"content")?;
    symlink("file", place.at("s"))?;
    std::fs::remove_file(place.at("s"))?;
    gone(place.at("s"))?;
    holds(place.at("file"), b"content")
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
