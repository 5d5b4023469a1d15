//! chmod, and when the set-user-id and set-group-id bits go.

use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};

use anyhow::Result;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::{ALICE, BOB, without_fsetid};

super::statements!("mode":
    only_owner_and_root_may,
    it_works_through_a_descriptor,
    it_follows_symlinks,
    an_open_descriptor_keeps_its_access,
    setgid_goes_when_the_owner_is_not_in_the_group,
    setgid_stays_when_the_owner_is_in_the_group,
    root_without_cap_fsetid_is_a_user,
);

fn only_owner_and_root_may(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    chown(place.at("file"), Some(ALICE.0), Some(ALICE.0))?;
    chmod(place.at("file"), 0o666)?;
    BOB.run(|| refused(chmod(place.at("file"), 0o600), Errno::PERM))?;
    ALICE.run(|| Ok(chmod(place.at("file"), 0o600)?))?;
    equal(mode(place.at("file"))?, 0o600)
}

fn it_works_through_a_descriptor(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    let reader = open(place.at("file"), OFlags::RDONLY)?;
    rustix::fs::fchmod(&reader, 0o751.into())?;
    equal(mode(place.at("file"))?, 0o751)
}

fn it_follows_symlinks(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    symlink("file", place.at("s"))?;
    chmod(place.at("s"), 0o600)?;
    equal(mode(place.at("file"))?, 0o600)
}

fn an_open_descriptor_keeps_its_access(place: &Place) -> Result<()> {
    file(place.at("file"), b"before")?;
    chown(place.at("file"), Some(ALICE.0), None)?;
    ALICE.run(|| {
        let mut opened = edit(place.at("file"))?;
        chmod(place.at("file"), 0)?;
        opened.write_all(b"AFTER")?;
        equal(content(&opened)?, b"AFTERe".to_vec())
    })
}

fn setgid_goes_when_the_owner_is_not_in_the_group(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    chown(place.at("file"), Some(ALICE.0), Some(7000))?;
    ALICE.run(|| Ok(chmod(place.at("file"), 0o6755)?))?;
    equal(mode(place.at("file"))?, 0o4755)
}

fn setgid_stays_when_the_owner_is_in_the_group(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    chown(place.at("file"), Some(ALICE.0), Some(7000))?;
    ALICE.run_in(&[7000], || Ok(chmod(place.at("file"), 0o6755)?))?;
    equal(mode(place.at("file"))?, 0o6755)
}

fn root_without_cap_fsetid_is_a_user(place: &Place) -> Result<()> {
    file(place.at("file"), b"content")?;
    chown(place.at("file"), Some(ALICE.0), Some(7000))?;
    for (bits, due) in [(0o6777, 0o777), (0o6666, 0o666), (0o2767, 0o767)] {
        chmod(place.at("file"), bits)?;
        without_fsetid(|| Ok(edit(place.at("file"))?.write_all_at(b"x", 0)?))?;
        equal(mode(place.at("file"))?, due)?;
        chmod(place.at("file"), bits)?;
        without_fsetid(|| Ok(edit(place.at("file"))?.set_len(3)?))?;
        equal(mode(place.at("file"))?, due)?;
    }
    Ok(())
}
