//! Sticky directories: who may remove and rename what others own.

use anyhow::Result;
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::{ALICE, BOB, User};

super::statements!("sticky":
    a_stranger_removes_nothing,
    a_stranger_renames_nothing,
    a_stranger_replaces_nothing,
    the_owner_of_the_file_may,
    the_owner_of_the_directory_may,
    without_the_bit_everyone_may,
);

/// A directory of root's open to all with Alice's file and directory in it.
fn shared(place: &Place, bits: u32) -> Result<()> {
    dir(place.at("d"))?;
    chmod(place.at("d"), bits)?;
    ALICE.run(|| {
        file(place.at("d/file"), b"x")?;
        dir(place.at("d/sub"))
    })
}

fn remove(place: &Place, user: User) -> Result<(rustix::io::Result<()>, rustix::io::Result<()>)> {
    user.run(|| {
        Ok((
            rustix::fs::unlink(place.at("d/file")),
            rustix::fs::rmdir(place.at("d/sub")),
        ))
    })
}

fn a_stranger_removes_nothing(place: &Place) -> Result<()> {
    shared(place, 0o1777)?;
    let (file, dir) = remove(place, BOB)?;
    refused(file, Errno::PERM)?;
    refused(dir, Errno::PERM)
}

fn a_stranger_renames_nothing(place: &Place) -> Result<()> {
    shared(place, 0o1777)?;
    BOB.run(|| {
        for name in ["d/file", "d/sub"] {
            refused(
                rustix::fs::rename(place.at(name), place.at("d/x")),
                Errno::PERM,
            )?;
            refused_with(
                rustix::fs::rename(place.at(name), place.at("x")),
                &[Errno::PERM, Errno::ACCESS],
            )?;
        }
        Ok(())
    })
}

fn a_stranger_replaces_nothing(place: &Place) -> Result<()> {
    shared(place, 0o1777)?;
    BOB.run(|| {
        file(place.at("d/bobs"), b"bob")?;
        refused(
            rustix::fs::rename(place.at("d/bobs"), place.at("d/file")),
            Errno::PERM,
        )
    })?;
    holds(place.at("d/file"), b"x")
}

fn the_owner_of_the_file_may(place: &Place) -> Result<()> {
    shared(place, 0o1777)?;
    ALICE.run(|| Ok(rustix::fs::rename(place.at("d/file"), place.at("d/new"))?))?;
    ALICE.run(|| Ok(rustix::fs::rename(place.at("d/new"), place.at("d/file"))?))?;
    let (file, dir) = remove(place, ALICE)?;
    file?;
    Ok(dir?)
}

fn the_owner_of_the_directory_may(place: &Place) -> Result<()> {
    shared(place, 0o1777)?;
    chown(place.at("d"), Some(BOB.0), Some(BOB.0))?;
    let (file, dir) = remove(place, BOB)?;
    file?;
    Ok(dir?)
}

fn without_the_bit_everyone_may(place: &Place) -> Result<()> {
    shared(place, 0o777)?;
    let (file, dir) = remove(place, BOB)?;
    file?;
    Ok(dir?)
}
