//! chown: who may give a file to whom, and what it does to the mode.

use std::os::unix::fs::{MetadataExt, symlink};

use anyhow::Result;
use rustix::fs::{Gid, Uid};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::{ALICE, BOB};

super::statements!("owner":
    a_user_cannot_give_a_file_away,
    an_owner_gives_a_file_to_a_group_of_its_own_only,
    others_may_change_nothing,
    a_symlink_itself_can_change_owner,
    it_works_through_a_descriptor,
    access_follows_the_new_owner,
);

fn owner(path: impl AsRef<std::path::Path>) -> Result<(u32, u32)> {
    let meta = meta(path)?;
    Ok((meta.uid(), meta.gid()))
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
