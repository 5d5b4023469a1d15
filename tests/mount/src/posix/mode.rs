//! chmod, and when the set-user-id and set-group-id bits go.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};

use anyhow::{Context, Result};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::{ALICE, BOB, proc_path, without_fsetid};

super::statements!("mode":
    every_bit_is_kept,
    only_owner_and_root_may,
    it_works_through_a_descriptor,
    it_follows_symlinks,
    it_moves_only_the_inode_time,
    an_open_descriptor_keeps_its_access,
    setgid_goes_when_the_owner_is_not_in_the_group,
    setgid_stays_when_the_owner_is_in_the_group,
    a_write_of_a_user_clears_setuid_and_setgid,
    a_write_of_root_clears_nothing,
    a_write_leaves_setgid_without_group_execute,
    changes_of_content_take_privileges_as_linux_does,
    a_truncation_of_a_user_clears_setuid_and_setgid,
    a_shared_file_opened_with_trunc_loses_setuid_and_setgid,
    an_allocation_of_a_user_clears_setuid_and_setgid,
);

fn every_bit_is_kept(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    dir(place.at("dir"))?;
    for bits in [0, 0o777, 0o4711, 0o2755, 0o1777, 0o7777, 0o123, 0o644] {
        for name in ["file", "dir"] {
            chmod(place.at(name), bits)?;
            equal(mode(place.at(name))?, bits)?;
        }
    }
    refused(chmod(place.at("none"), 0o644), Errno::NOENT)
}

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

fn it_moves_only_the_inode_time(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    equal(
        moved(place.at("file"), || Ok(chmod(place.at("file"), 0o600)?))?,
        CTIME,
    )
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

/// A program file of Alice's with both bits, in group 7000.
fn program(place: &Place, name: &str, bits: u32) -> Result<File> {
    let file = file(place.at(name), &noise(1, 10_000))?;
    chown(place.at(name), Some(ALICE.0), Some(7000))?;
    chmod(place.at(name), bits)?;
    equal(mode(place.at(name))?, bits)?;
    Ok(file)
}

fn setgid_goes_when_the_owner_is_not_in_the_group(place: &Place) -> Result<()> {
    program(place, "file", 0o755)?;
    ALICE.run(|| Ok(chmod(place.at("file"), 0o6755)?))?;
    equal(mode(place.at("file"))?, 0o4755)
}

fn setgid_stays_when_the_owner_is_in_the_group(place: &Place) -> Result<()> {
    program(place, "file", 0o755)?;
    ALICE.run_in(&[7000], || Ok(chmod(place.at("file"), 0o6755)?))?;
    equal(mode(place.at("file"))?, 0o6755)
}

fn a_write_of_a_user_clears_setuid_and_setgid(place: &Place) -> Result<()> {
    for (name, bits, due) in [
        ("both", 0o6777, 0o777),
        ("uid", 0o4767, 0o767),
        ("gid", 0o2777, 0o777),
    ] {
        program(place, name, bits)?;
        BOB.run(|| Ok(edit(place.at(name))?.write_all(b"x")?))?;
        equal(mode(place.at(name))?, due).context(name)?;
    }
    // The owner's own write clears them as well.
    program(place, "own", 0o6777)?;
    ALICE.run(|| Ok(edit(place.at("own"))?.write_all_at(b"x", 100)?))?;
    equal(mode(place.at("own"))?, 0o777)
}

fn a_write_of_root_clears_nothing(place: &Place) -> Result<()> {
    let mut file = program(place, "file", 0o6755)?;
    file.write_all(b"x")?;
    equal(mode(place.at("file"))?, 0o6755)
}

fn a_write_leaves_setgid_without_group_execute(place: &Place) -> Result<()> {
    program(place, "file", 0o2766)?;
    BOB.run_in(&[7000], || Ok(edit(place.at("file"))?.write_all(b"x")?))?;
    equal(mode(place.at("file"))?, 0o2766)
}

/// Who changes a file of group 7000, by which call, and what is left of its mode. A stranger kept setgid where the group
/// may not execute the file (6666 became 2666, on ext4 it becomes 666).
fn changes_of_content_take_privileges_as_linux_does(place: &Place) -> Result<()> {
    type Change = fn(&File) -> Result<()>;
    const WAYS: &[(&str, Change)] = &[
        ("write", |file| Ok(file.write_all_at(b"x", 10)?)),
        ("truncate", |file| Ok(file.set_len(100)?)),
        ("allocate", |file| {
            Ok(fallocate(file, FallocateFlags::empty(), 0, 20_000)?)
        }),
        ("punch", |file| {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(fallocate(file, punch, 0, 4096)?)
        }),
        ("open", |file| {
            open(proc_path(file), OFlags::WRONLY | OFlags::TRUNC)?;
            Ok(())
        }),
        ("copy", |file| {
            let mut at = 4096;
            rustix::fs::copy_file_range(file, Some(&mut 0), file, Some(&mut at), 4096)?;
            Ok(())
        }),
    ];
    // Whether the caller is in the group, and has CAP_FSETID.
    let callers = [
        ("stranger", false, false),
        ("member", true, false),
        ("root", false, true),
        ("root without CAP_FSETID", false, false),
    ];
    file(place.at("file"), b"")?;
    for (who, in_group, privileged) in callers {
        for (way, change) in WAYS {
            for bits in [0o6777, 0o6767, 0o6666, 0o2666, 0o2676, 0o4666, 0o2777] {
                std::fs::remove_file(place.at("file"))?;
                program(place, "file", bits)?;
                let mut due = bits & !0o4000;
                if bits & 0o010 != 0 || !in_group {
                    due &= !0o2000;
                }
                if privileged {
                    due = bits;
                }
                let edit_it = || change(&edit(place.at("file"))?);
                match who {
                    "root" => edit_it(),
                    "member" => BOB.run_in(&[7000], edit_it),
                    "stranger" => BOB.run(edit_it),
                    _ => without_fsetid(edit_it),
                }
                .with_context(|| format!("{way} of {bits:o} by {who}"))?;
                equal(mode(place.at("file"))?, due)
                    .with_context(|| format!("{way} of {bits:o} by {who}"))?;
            }
        }
    }
    Ok(())
}

fn a_truncation_of_a_user_clears_setuid_and_setgid(place: &Place) -> Result<()> {
    for (name, size) in [("shrink", 100), ("grow", 20_000)] {
        program(place, name, 0o6777)?;
        BOB.run(|| Ok(edit(place.at(name))?.set_len(size)?))?;
        equal(mode(place.at(name))?, 0o777).context(name)?;
    }
    Ok(())
}

fn a_shared_file_opened_with_trunc_loses_setuid_and_setgid(place: &Place) -> Result<()> {
    program(place, "file", 0o6777)?;
    BOB.run(|| Ok(open(place.at("file"), OFlags::WRONLY | OFlags::TRUNC)?))?;
    equal(mode(place.at("file"))?, 0o777)
}

fn an_allocation_of_a_user_clears_setuid_and_setgid(place: &Place) -> Result<()> {
    program(place, "file", 0o6777)?;
    let flags = rustix::fs::FallocateFlags::empty();
    BOB.run(|| {
        Ok(rustix::fs::fallocate(
            edit(place.at("file"))?,
            flags,
            0,
            50_000,
        )?)
    })?;
    equal(mode(place.at("file"))?, 0o777)
}
