//! unlink, and files that stay open without a name.

use anyhow::{Result, ensure};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::door::{Door, OpenFile};
use crate::expect::*;

crate::table!("unlink":
    a_removed_name_is_gone,
    an_open_file_outlives_its_name,
    the_name_can_be_used_again_while_the_old_file_is_open,
    every_kind_of_file_can_be_removed,
);

fn a_removed_name_is_gone(d: &impl Door) -> Result<()> {
    d.file("a", b"x")?;
    d.unlink("a")?;
    d.gone("a")?;
    refused(d.open("a", OFlags::RDONLY, 0), Errno::NOENT)?;
    equal(d.list(".")?.len(), 0)
}

fn an_open_file_outlives_its_name(d: &impl Door) -> Result<()> {
    let due = noise(4, 100_000);
    let file = d.file("a", &due)?;
    let again = d.open("a", OFlags::RDONLY, 0)?;
    d.unlink("a")?;
    equal(file.stat()?.nlink, 0)?;
    same_bytes(&file.content()?, &due)?;
    file.write_all_at(b"more", 100_000)?;
    file.sync()?;
    drop(file);
    same_bytes(&again.content()?, &[due, b"more".to_vec()].concat())
}

fn the_name_can_be_used_again_while_the_old_file_is_open(d: &impl Door) -> Result<()> {
    let old = d.file("a", b"old")?;
    d.unlink("a")?;
    let new = d.file("a", b"new")?;
    ensure!(old.stat()?.ino != new.stat()?.ino, "one inode");
    equal(old.content()?, b"old".to_vec())?;
    drop(old);
    d.holds("a", b"new")
}

fn every_kind_of_file_can_be_removed(d: &impl Door) -> Result<()> {
    d.symlink("x", "symlink")?;
    let kinds = [
        ("fifo", 0o010_644),
        ("socket", 0o140_644),
        ("char", 0o020_644),
        ("block", 0o060_644),
    ];
    for (name, mode) in kinds {
        d.mknod(name, mode, (1, 3))?;
    }
    for name in ["symlink", "fifo", "socket", "char", "block"] {
        d.unlink(name)?;
        d.gone(name)?;
    }
    Ok(())
}
