//! symlink and readlink.

use anyhow::Result;
use rustix::io::Errno;

use crate::door::{ALICE, Door};
use crate::expect::*;

crate::table!("symlink":
    the_target_comes_back_byte_for_byte,
    the_longest_target_is_kept_and_a_longer_one_refused,
    a_link_is_owned_by_its_maker_and_open_to_all,
    removing_a_link_leaves_its_target,
);

fn the_target_comes_back_byte_for_byte(d: &impl Door) -> Result<()> {
    for len in [1, 2, 59, 60, 61, 255, 256, 1000, 4000] {
        let target = "t".repeat(len);
        let path = len.to_string();
        d.symlink(&target, &path)?;
        equal(d.readlink(&path)?.to_string_lossy().len(), len)?;
        equal(d.readlink(&path)?, target.into())?;
        equal(d.stat(&path)?.size, len as u64)?;
    }
    let odd = "a//b/../ \u{e9}\u{4e2d}\n*";
    d.symlink(odd, "odd")?;
    equal(d.readlink("odd")?, odd.into())
}

fn the_longest_target_is_kept_and_a_longer_one_refused(d: &impl Door) -> Result<()> {
    let longest = "x/".repeat(2047) + "y"; // PATH_MAX counts the closing zero.
    d.symlink(&longest, "longest")?;
    equal(d.readlink("longest")?, longest.into())?;
    let longer = "x/".repeat(2048);
    refused(d.symlink(longer, "longer"), Errno::NAMETOOLONG)
}

fn a_link_is_owned_by_its_maker_and_open_to_all(d: &impl Door) -> Result<()> {
    d.as_user(ALICE, |d| Ok(d.symlink("x", "s")?))?;
    let meta = d.stat("s")?;
    equal(meta.mode, 0o120_777)?;
    equal((meta.uid, meta.gid, meta.nlink), (ALICE.id, ALICE.id, 1))
}

fn removing_a_link_leaves_its_target(d: &impl Door) -> Result<()> {
    d.file("file", b"content")?;
    d.symlink("file", "s")?;
    d.unlink("s")?;
    d.gone("s")?;
    d.holds("file", b"content")
}
