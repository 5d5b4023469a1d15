//! Flags of inodes: append-only and immutable.

use anyhow::{Context, Result};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use crate::door::{ALICE, Door, OpenFile, SetTime};
use crate::expect::*;

crate::table!("flags":
    flags_read_back,
    nothing_of_an_immutable_file_changes,
    an_immutable_directory_gets_and_loses_no_names,
    an_append_only_file_is_written_at_its_end_alone,
    an_append_only_directory_loses_no_names,
    nobody_but_root_protects_a_file,
    a_file_that_is_protected_no_more_changes_again,
);

const IMMUTABLE: u32 = 0x10;
const APPEND_ONLY: u32 = 0x20;
const NO_DUMP: u32 = 0x40;

/// Runs a body with flags set, and takes them away whatever it says: what is left in place has to be removable.
fn with(d: &impl Door, path: &str, flags: u32, body: impl FnOnce() -> Result<()>) -> Result<()> {
    d.set_flags(path, flags).context("setting flags")?;
    let result = body();
    d.set_flags(path, 0).context("taking flags away")?;
    result
}

fn flags_read_back(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    d.dir("d")?;
    for path in ["f", "d"] {
        for flags in [IMMUTABLE, APPEND_ONLY, NO_DUMP, IMMUTABLE | NO_DUMP] {
            with(d, path, flags, || equal(d.flags(path)? & 0x70, flags))?;
        }
        equal(d.flags(path)? & 0x70, 0)?;
    }
    Ok(())
}

/// What neither flag lets happen to a file.
fn names_and_attributes_stay(d: &impl Door, path: &str) -> Result<()> {
    let denied = Errno::PERM;
    refused(d.unlink(path), denied)?;
    refused(d.rename(path, "other"), denied)?;
    refused(d.rename("plain", path), denied)?;
    refused(d.link(path, "other"), denied)?;
    refused(d.chmod(path, 0o600), denied)?;
    refused(d.chown(path, Some(1), None), denied)?;
    refused(
        d.utimens(path, SetTime::At(7, 0), SetTime::At(7, 0)),
        denied,
    )?;
    refused(d.truncate(path, 0), denied)?;
    refused(d.setxattr(path, "user.a", b"b"), denied)?;
    refused(d.removexattr(path, "user.kept"), denied)?;
    refused(d.open(path, OFlags::RDWR, 0), denied)?;
    refused(d.open(path, OFlags::WRONLY | OFlags::TRUNC, 0), denied)
}

fn nothing_of_an_immutable_file_changes(d: &impl Door) -> Result<()> {
    d.file("f", b"content")?;
    let plain = d.file("plain", b"and more")?;
    d.setxattr("f", "user.kept", b"v")?;
    let open = d.edit("f")?;
    with(d, "f", IMMUTABLE, || {
        // Writing goes on where it was open before; these do not.
        refused(plain.copy_to(0, &open, 0, 8), Errno::PERM)?;
        refused(open.allocate(FallocateFlags::empty(), 0, 4096), Errno::PERM)?;
        names_and_attributes_stay(d, "f")?;
        refused(d.open("f", OFlags::WRONLY | OFlags::APPEND, 0), Errno::PERM)?;
        refused(d.utimens("f", SetTime::Now, SetTime::Now), Errno::PERM)?;
        equal(d.getxattr("f", "user.kept")?, b"v".to_vec())?;
        d.holds("f", b"content")
    })
}

fn an_immutable_directory_gets_and_loses_no_names(d: &impl Door) -> Result<()> {
    d.dir("d")?;
    d.file("d/f", b"content")?;
    d.dir("d/sub")?;
    d.file("plain", b"")?;
    let denied = Errno::PERM;
    with(d, "d", IMMUTABLE, || {
        refused(
            d.open("d/new", OFlags::CREATE | OFlags::RDWR, 0o644),
            denied,
        )?;
        refused(d.mkdir("d/new", 0o755), denied)?;
        refused(d.symlink("x", "d/new"), denied)?;
        refused(d.link("plain", "d/new"), denied)?;
        refused(d.unlink("d/f"), denied)?;
        refused(d.rmdir("d/sub"), denied)?;
        refused(d.rename("d/f", "out"), denied)?;
        refused(d.rename("plain", "d/in"), denied)?;
        refused(d.rename("d", "e"), denied)?;
        // What is in it is no part of it.
        d.edit("d/f")?.write_all_at(b"new", 0)?;
        d.holds("d/f", b"newtent")
    })
}

fn an_append_only_file_is_written_at_its_end_alone(d: &impl Door) -> Result<()> {
    d.file("f", b"content")?;
    d.file("plain", b"")?;
    d.setxattr("f", "user.kept", b"v")?;
    with(d, "f", APPEND_ONLY, || {
        names_and_attributes_stay(d, "f")?;
        let file = d.open("f", OFlags::WRONLY | OFlags::APPEND, 0)?;
        file.write_all_at(b" and more", 7)?;
        refused(
            file.allocate(
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                0,
                4096,
            ),
            Errno::PERM,
        )?;
        d.utimens("f", SetTime::Now, SetTime::Now)?;
        d.holds("f", b"content and more")
    })
}

fn an_append_only_directory_loses_no_names(d: &impl Door) -> Result<()> {
    d.dir("d")?;
    d.file("d/f", b"content")?;
    d.file("plain", b"")?;
    let denied = Errno::PERM;
    with(d, "d", APPEND_ONLY, || {
        d.file("d/new", b"is made")?;
        d.rename("plain", "d/in")?;
        refused(d.unlink("d/f"), denied)?;
        refused(d.rename("d/f", "out"), denied)?;
        refused(d.rename("d/new", "d/f"), denied)
    })
}

fn nobody_but_root_protects_a_file(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    d.chown("f", Some(ALICE.id), Some(ALICE.id))?;
    d.as_user(ALICE, |d| {
        for flags in [IMMUTABLE, APPEND_ONLY] {
            refused(d.set_flags("f", flags), Errno::PERM)?;
        }
        Ok(d.set_flags("f", NO_DUMP)?)
    })
}

fn a_file_that_is_protected_no_more_changes_again(d: &impl Door) -> Result<()> {
    d.file("f", b"content")?;
    for flags in [IMMUTABLE, APPEND_ONLY] {
        with(d, "f", flags, || Ok(()))?;
    }
    d.edit("f")?.write_all_at(b"new", 0)?;
    d.unlink("f")?;
    d.gone("f")
}
