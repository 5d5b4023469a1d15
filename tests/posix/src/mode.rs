//! chmod, and when the set-user-id and set-group-id bits go.

use anyhow::{Context, Result};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use crate::door::{ALICE, BOB, Door, OpenFile};
use crate::expect::*;

crate::table!("mode":
    every_bit_is_kept,
    it_decides_for_owner_group_and_others,
    it_moves_only_the_inode_time,
    changes_of_content_take_privileges_as_linux_does,
);

fn every_bit_is_kept(d: &impl Door) -> Result<()> {
    d.file("file", b"")?;
    d.dir("dir")?;
    for bits in [0, 0o777, 0o4711, 0o2755, 0o1777, 0o7777, 0o123, 0o644] {
        for name in ["file", "dir"] {
            d.chmod(name, bits)?;
            equal(d.mode(name)?, bits)?;
        }
    }
    refused(d.chmod("none", 0o644), Errno::NOENT)
}

fn it_decides_for_owner_group_and_others(d: &impl Door) -> Result<()> {
    d.file("file", b"")?;
    d.chown("file", Some(ALICE.id), Some(7000))?;
    let may = |who, mask| match who {
        None => Ok(d.access("file", mask).is_ok()),
        Some(user) => d.as_user(user, |d| Ok(d.access("file", mask).is_ok())),
    };
    for bits in 0..8 {
        for (who, shift) in [(ALICE, 6), (BOB.in_group(7000), 3), (BOB, 0)] {
            d.chmod("file", bits << shift)?;
            for mask in 0..8 {
                equal(may(Some(who), mask)?, bits & mask == mask)
                    .with_context(|| format!("{who:?}, mode {:o}, {mask}", bits << shift))?;
            }
            // Root executes what somebody may, and reads and writes all.
            equal((may(None, 1)?, may(None, 6)?), (bits & 1 != 0, true))?;
        }
    }
    // The class is chosen first: an owner without rights gains nothing from those of others.
    d.chmod("file", 0o077)?;
    equal(may(Some(ALICE), 4)?, false)
}

fn it_moves_only_the_inode_time(d: &impl Door) -> Result<()> {
    d.file("file", b"")?;
    equal(d.moved("file", || Ok(d.chmod("file", 0o600)?))?, CTIME)
}

/// A program file of Alice's with these bits, in group 7000.
fn program(d: &impl Door, bits: u32) -> Result<()> {
    d.file("file", &noise(1, 10_000))?;
    d.chown("file", Some(ALICE.id), Some(7000))?;
    d.edit("file")?.sync()?;
    d.chmod("file", bits)?;
    equal(d.mode("file")?, bits)
}

const WAYS: [&str; 7] = [
    "write", "shrink", "grow", "allocate", "punch", "open", "copy",
];

/// Changes the content of `file` in one of these ways.
fn change(d: &impl Door, way: &str) -> Result<()> {
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let file = d.edit("file")?;
    match way {
        "write" => file.write_all_at(b"x", 10)?,
        "shrink" => file.truncate(100)?,
        "grow" => d.truncate("file", 20_000)?,
        "allocate" => file.allocate(FallocateFlags::empty(), 0, 20_000)?,
        "punch" => file.allocate(punch, 0, 4096)?,
        "open" => drop(d.open("file", OFlags::WRONLY | OFlags::TRUNC, 0)?),
        _ => drop(file.copy_to(0, &file, 4096, 4096)?),
    }
    Ok(())
}

/// Who changes a file of group 7000, by which call, and what is left of its mode. A stranger kept setgid where the group
/// may not execute the file (6666 became 2666, on ext4 it becomes 666). A kernel that knew the mode showed the old one to who asked for
/// that alone.
fn changes_of_content_take_privileges_as_linux_does(d: &impl Door) -> Result<()> {
    let callers = [None, Some(ALICE), Some(BOB), Some(BOB.in_group(7000))];
    for (who, way) in callers.iter().flat_map(|who| WAYS.map(|way| (who, way))) {
        for bits in [
            0o6777, 0o6767, 0o6666, 0o2666, 0o2676, 0o4666, 0o2777, 0o1666,
        ] {
            program(d, bits)?;
            let due = match who {
                None => bits,
                Some(user) if bits & 0o010 == 0 && user.group == Some(7000) => bits & !0o4000,
                Some(_) => bits & !0o6000,
            };
            match who {
                None => change(d, way),
                Some(user) => d.as_user(*user, |d| change(d, way)),
            }
            .and_then(|()| equal(d.mode_alone("file")?, due))
            .and_then(|()| equal(d.mode("file")?, due))
            .with_context(|| format!("{way} of {bits:o} by {who:?}"))?;
            d.unlink("file")?;
        }
    }
    Ok(())
}
