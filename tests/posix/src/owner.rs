//! chown, and what it does to the mode.

use anyhow::{Context, Result};
use rustix::io::Errno;

use crate::door::{ALICE, BOB, Door};
use crate::expect::*;

crate::table!("owner":
    root_gives_a_file_to_anyone,
    minus_one_leaves_as_it_is,
    numbers_of_32_bits_are_kept,
    a_symlink_itself_can_change_owner,
    setuid_and_setgid_go_with_the_owner,
    a_directory_keeps_its_setgid,
    it_moves_only_the_inode_time,
);

fn owner(d: &impl Door, path: &str) -> Result<(u32, u32)> {
    let stat = d.stat(path)?;
    Ok((stat.uid, stat.gid))
}

fn root_gives_a_file_to_anyone(d: &impl Door) -> Result<()> {
    d.file("file", b"")?;
    d.chown("file", Some(ALICE.id), Some(BOB.id))?;
    equal(owner(d, "file")?, (ALICE.id, BOB.id))?;
    refused(d.chown("none", Some(1), Some(1)), Errno::NOENT)
}

fn minus_one_leaves_as_it_is(d: &impl Door) -> Result<()> {
    d.file("file", b"")?;
    d.chown("file", Some(10), None)?;
    d.chown("file", None, Some(20))?;
    equal(owner(d, "file")?, (10, 20))?;
    d.chown("file", None, None)?;
    equal(owner(d, "file")?, (10, 20))
}

fn numbers_of_32_bits_are_kept(d: &impl Door) -> Result<()> {
    d.file("file", b"")?;
    d.chown("file", Some(4_294_967_293), Some(3_000_000_000))?;
    equal(owner(d, "file")?, (4_294_967_293, 3_000_000_000))
}

fn a_symlink_itself_can_change_owner(d: &impl Door) -> Result<()> {
    d.file("file", b"")?;
    d.symlink("file", "s")?;
    d.chown("s", Some(5), Some(6))?;
    equal(owner(d, "s")?, (5, 6))?;
    equal(owner(d, "file")?, (0, 0))
}

fn setuid_and_setgid_go_with_the_owner(d: &impl Door) -> Result<()> {
    d.file("file", b"")?;
    d.chown("file", Some(ALICE.id), Some(ALICE.id))?;
    d.chmod("file", 0o6755)?;
    d.as_user(ALICE.in_group(7000), |d| {
        Ok(d.chown("file", None, Some(7000))?)
    })?;
    equal(d.mode("file")?, 0o755).context("by the owner")?;
    d.chmod("file", 0o6755)?;
    d.chown("file", Some(BOB.id), None)?;
    equal(d.mode("file")?, 0o755).context("by root")?;
    // Without group execute the bit means mandatory locking, not a privilege.
    d.chmod("file", 0o2745)?;
    d.chown("file", Some(ALICE.id), None)?;
    equal(d.mode("file")?, 0o2745)
}

fn a_directory_keeps_its_setgid(d: &impl Door) -> Result<()> {
    d.dir("d")?;
    d.chmod("d", 0o2775)?;
    d.chown("d", Some(ALICE.id), Some(BOB.id))?;
    equal(d.mode("d")?, 0o2775)
}

fn it_moves_only_the_inode_time(d: &impl Door) -> Result<()> {
    d.file("file", b"")?;
    equal(
        d.moved("file", || Ok(d.chown("file", Some(5), None)?))?,
        CTIME,
    )
}
