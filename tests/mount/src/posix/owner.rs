//! chown: who may give a file to whom, and what it does to the mode.

use std::os::unix::fs::{MetadataExt, symlink};

use anyhow::{Context, Result};
use rustix::fs::{Gid, Uid};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::{ALICE, BOB};

super::statements!("owner":
    root_gives_a_file_to_anyone,
    minus_one_leaves_as_it_is,
    numbers_of_32_bits_are_kept,
    a_user_cannot_give_a_file_away,
    an_owner_gives_a_file_to_a_group_of_its_own_only,
    others_may_change_nothing,
    a_symlink_itself_can_change_owner,
    it_works_through_a_descriptor,
    setuid_and_setgid_go_with_the_owner,
    a_directory_keeps_its_setgid,
    it_moves_only_the_inode_time,
    access_follows_the_new_owner,
);

fn owner(path: impl AsRef<std::path::Path>) -> Result<(u32, u32)> {
    let meta = meta(path)?;
    Ok((meta.uid(), meta.gid()))
}

fn root_gives_a_file_to_anyone(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    chown(place.at("file"), Some(ALICE.0), Some(BOB.0))?;
    equal(owner(place.at("file"))?, (ALICE.0, BOB.0))?;
    refused(chown(place.at("none"), Some(1), Some(1)), Errno::NOENT)
}

fn minus_one_leaves_as_it_is(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    chown(place.at("file"), Some(10), None)?;
    chown(place.at("file"), None, Some(20))?;
    equal(owner(place.at("file"))?, (10, 20))?;
    chown(place.at("file"), None, None)?;
    equal(owner(place.at("file"))?, (10, 20))
}

fn numbers_of_32_bits_are_kept(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    chown(place.at("file"), Some(4_294_967_293), Some(3_000_000_000))?;
    equal(owner(place.at("file"))?, (4_294_967_293, 3_000_000_000))
}

fn a_user_cannot_give_a_file_away(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    chown(place.at("file"), Some(ALICE.0), Some(ALICE.0))?;
    ALICE.run(|| {
        refused(chown(place.at("file"), Some(BOB.0), None), Errno::PERM)?;
        Ok(chown(place.at("file"), Some(ALICE.0), None)?)
    })
}

fn an_owner_gives_a_file_to_a_group_of_its_own_only(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    chown(place.at("file"), Some(ALICE.0), Some(ALICE.0))?;
    ALICE.run_in(&[7000], || {
        refused(chown(place.at("file"), None, Some(7001)), Errno::PERM)?;
        Ok(chown(place.at("file"), None, Some(7000))?)
    })?;
    equal(owner(place.at("file"))?, (ALICE.0, 7000))
}

fn others_may_change_nothing(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    chmod(place.at("file"), 0o666)?;
    BOB.run(|| {
        refused(chown(place.at("file"), Some(BOB.0), None), Errno::PERM)?;
        refused(chown(place.at("file"), None, Some(BOB.0)), Errno::PERM)
    })
}

fn a_symlink_itself_can_change_owner(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    symlink("file", place.at("s"))?;
    chown(place.at("s"), Some(5), Some(6))?;
    equal(owner(place.at("s"))?, (5, 6))?;
    equal(owner(place.at("file"))?, (0, 0))?;
    std::os::unix::fs::chown(place.at("s"), Some(7), Some(8))?;
    equal(owner(place.at("file"))?, (7, 8))?;
    equal(owner(place.at("s"))?, (5, 6))
}

fn it_works_through_a_descriptor(place: &Place) -> Result<()> {
    let file = file(place.at("file"), b"")?;
    rustix::fs::fchown(&file, Some(Uid::from_raw(9)), Some(Gid::from_raw(10)))?;
    equal(owner(place.at("file"))?, (9, 10))
}

fn setuid_and_setgid_go_with_the_owner(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    chown(place.at("file"), Some(ALICE.0), Some(ALICE.0))?;
    chmod(place.at("file"), 0o6755)?;
    ALICE.run_in(&[7000], || Ok(chown(place.at("file"), None, Some(7000))?))?;
    equal(mode(place.at("file"))?, 0o755).context("by the owner")?;
    chmod(place.at("file"), 0o6755)?;
    chown(place.at("file"), Some(BOB.0), None)?;
    equal(mode(place.at("file"))?, 0o755).context("by root")?;
    // Without group execute the bit means mandatory locking, not a privilege.
    chmod(place.at("file"), 0o2745)?;
    chown(place.at("file"), Some(ALICE.0), None)?;
    equal(mode(place.at("file"))?, 0o2745)
}

fn a_directory_keeps_its_setgid(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    chmod(place.at("d"), 0o2775)?;
    chown(place.at("d"), Some(ALICE.0), Some(BOB.0))?;
    equal(mode(place.at("d"))?, 0o2775)
}

fn it_moves_only_the_inode_time(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    equal(
        moved(place.at("file"), || {
            Ok(chown(place.at("file"), Some(5), None)?)
        })?,
        CTIME,
    )
}

fn access_follows_the_new_owner(place: &Place) -> Result<()> {
    file(place.at("file"), b"secret")?;
    chown(place.at("file"), Some(ALICE.0), Some(ALICE.0))?;
    chmod(place.at("file"), 0o600)?;
    let read = || errno(std::fs::read(place.at("file")));
    BOB.run(|| refused(read(), Errno::ACCESS))?;
    chown(place.at("file"), Some(BOB.0), None)?;
    BOB.run(|| Ok(read().map(|_| ())?))?;
    ALICE.run(|| refused(read(), Errno::ACCESS))
}
