//! link: several names of one file.

use std::os::unix::fs::{MetadataExt, symlink};

use anyhow::Result;
use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::BOB;

super::statements!("link":
    both_names_are_one_file,
    the_file_lives_until_its_last_name_goes,
    link_refuses_a_name_that_exists,
    link_refuses_a_directory,
    link_of_nothing_is_enoent,
    link_of_a_symlink_names_the_symlink_itself,
    link_following_a_symlink_names_its_target,
    link_to_another_filesystem_is_exdev,
    link_needs_write_permission_on_the_directory,
    link_moves_only_the_inode_time_of_the_file,
    fifos_and_devices_can_have_several_names,
    a_file_without_a_name_cannot_get_one_back,
    two_thousand_names_of_one_file,
);

fn link(
    old: impl AsRef<std::path::Path>,
    new: impl AsRef<std::path::Path>,
) -> rustix::io::Result<()> {
    rustix::fs::link(old.as_ref(), new.as_ref())
}

fn both_names_are_one_file(place: &Place) -> Result<()> {
    file(place.at("a"), b"content")?;
    link(place.at("a"), place.at("b"))?;
    let (a, b) = (meta(place.at("a"))?, meta(place.at("b"))?);
    equal((a.ino(), a.nlink()), (b.ino(), 2))?;
    std::fs::write(place.at("b"), b"changed")?;
    holds(place.at("a"), b"changed")?;
    chmod(place.at("a"), 0o600)?;
    equal(mode(place.at("b"))?, 0o600)
}

fn the_file_lives_until_its_last_name_goes(place: &Place) -> Result<()> {
    file(place.at("a"), b"content")?;
    dir(place.at("d"))?;
    link(place.at("a"), place.at("d/b"))?;
    std::fs::remove_file(place.at("a"))?;
    holds(place.at("d/b"), b"content")?;
    equal(meta(place.at("d/b"))?.nlink(), 1)
}

fn link_refuses_a_name_that_exists(place: &Place) -> Result<()> {
    file(place.at("a"), b"a")?;
    file(place.at("b"), b"b")?;
    dir(place.at("d"))?;
    symlink("nowhere", place.at("dangling"))?;
    for name in ["a", "b", "d", "dangling"] {
        refused(link(place.at("a"), place.at(name)), Errno::EXIST)?;
    }
    equal(meta(place.at("a"))?.nlink(), 1)?;
    holds(place.at("b"), b"b")
}

fn link_refuses_a_directory(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    refused(link(place.at("d"), place.at("e")), Errno::PERM)
}

fn link_of_nothing_is_enoent(place: &Place) -> Result<()> {
    file(place.at("a"), b"")?;
    refused(link(place.at("none"), place.at("b")), Errno::NOENT)?;
    refused(link(place.at("a"), place.at("none/b")), Errno::NOENT)?;
    refused(link(place.at("a"), place.at("a/b")), Errno::NOTDIR)
}

fn link_of_a_symlink_names_the_symlink_itself(place: &Place) -> Result<()> {
    symlink("nowhere", place.at("s"))?;
    link(place.at("s"), place.at("t"))?;
    equal(meta(place.at("t"))?.ino(), meta(place.at("s"))?.ino())?;
    equal(std::fs::read_link(place.at("t"))?, "nowhere".into())
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

fn link_moves_only_the_inode_time_of_the_file(place: &Place) -> Result<()> {
    file(place.at("a"), b"")?;
    equal(
        moved(place.at("a"), || Ok(link(place.at("a"), place.at("b"))?))?,
        CTIME,
    )?;
    let remove = || Ok(std::fs::remove_file(place.at("b"))?);
    equal(moved(place.at("a"), remove)?, CTIME)
}

fn fifos_and_devices_can_have_several_names(place: &Place) -> Result<()> {
    rustix::fs::mkfifoat(CWD, place.at("fifo"), 0o644.into())?;
    link(place.at("fifo"), place.at("again"))?;
    equal(meta(place.at("again"))?.nlink(), 2)
}

fn a_file_without_a_name_cannot_get_one_back(place: &Place) -> Result<()> {
    let file = file(place.at("a"), b"")?;
    std::fs::remove_file(place.at("a"))?;
    let path = crate::sys::proc_path(&file);
    let link = rustix::fs::linkat(CWD, path, CWD, place.at("b"), AtFlags::SYMLINK_FOLLOW);
    refused(link, Errno::NOENT)
}

fn two_thousand_names_of_one_file(place: &Place) -> Result<()> {
    file(place.at("0"), b"content")?;
    for number in 1..2000 {
        link(place.at("0"), place.at(number.to_string()))?;
    }
    equal(meta(place.at("1234"))?.nlink(), 2000)?;
    for number in 0..1999 {
        std::fs::remove_file(place.at(number.to_string()))?;
    }
    equal(meta(place.at("1999"))?.nlink(), 1)?;
    holds(place.at("1999"), b"content")
}
