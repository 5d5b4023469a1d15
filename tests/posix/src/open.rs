//! open and creat: what each flag does.

use anyhow::Result;
use rustix::fs::OFlags;

use crate::door::{ALICE, BOB, Door, OpenFile};
use crate::expect::*;

crate::table!("open":
    creat_makes_an_empty_file_of_the_caller,
    creat_takes_the_umask_from_the_mode,
    creat_without_excl_opens_what_exists,
    trunc_empties_and_keeps_the_inode,
    append_writes_at_the_end_whoever_grew_it,
    a_new_file_is_writable_whatever_its_mode,
    a_setgid_directory_hands_its_group_on,
);

const RW: OFlags = OFlags::RDWR;

const NEW: OFlags = OFlags::CREATE.union(OFlags::EXCL).union(OFlags::RDWR);

fn creat_makes_an_empty_file_of_the_caller(d: &impl Door) -> Result<()> {
    d.as_user(ALICE, |d| Ok(d.open("new", NEW, 0o640)?))?;
    let meta = d.stat("new")?;
    equal(meta.mode, 0o100_640)?;
    equal((meta.uid, meta.gid), (ALICE.id, ALICE.id))?;
    equal((meta.size, meta.nlink, meta.blocks), (0, 1, 0))
}

fn creat_takes_the_umask_from_the_mode(d: &impl Door) -> Result<()> {
    for (umask, asked, due) in [(0, 0o777, 0o777), (0o027, 0o777, 0o750), (0o777, 0o666, 0)] {
        let path = format!("{umask:o}");
        d.with_umask(umask, |d| Ok(d.open(&path, NEW, asked)?))?;
        equal(d.mode(&path)?, due)?;
    }
    d.with_umask(0, |d| Ok(d.open("special", NEW, 0o6755)?))?;
    equal(d.mode("special")?, 0o6755)
}

fn creat_without_excl_opens_what_exists(d: &impl Door) -> Result<()> {
    d.file("file", b"content")?;
    let again = d.open("file", OFlags::CREATE | RW, 0o600)?;
    equal(again.content()?, b"content".to_vec())?;
    d.open("file", OFlags::CREATE | OFlags::TRUNC | RW, 0o600)?;
    equal(d.stat("file")?.size, 0)?;
    equal(d.mode("file")?, 0o644)
}

fn trunc_empties_and_keeps_the_inode(d: &impl Door) -> Result<()> {
    d.file("file", &noise(1, 20_000))?;
    d.chmod("file", 0o604)?;
    let before = d.stat("file")?;
    let moved = d.moved("file", || Ok(d.open("file", RW | OFlags::TRUNC, 0)?))?;
    equal(moved, BOTH)?;
    let after = d.stat("file")?;
    equal((after.size, after.blocks), (0, 0))?;
    equal((after.ino, after.mode), (before.ino, before.mode))
}

fn append_writes_at_the_end_whoever_grew_it(d: &impl Door) -> Result<()> {
    let plain = d.file("log", b"")?;
    let append = || d.open("log", OFlags::WRONLY | OFlags::APPEND, 0);
    let (first, second) = (append()?, append()?);
    first.write_all_at(b"one ", 0)?;
    second.write_all_at(b"two ", 0)?;
    plain.write_all_at(b"ONE", 0)?;
    // On Linux pwrite to such a descriptor appends, wherever it points.
    first.write_all_at(b"three", 1)?;
    d.holds("log", b"ONE two three")
}

fn a_new_file_is_writable_whatever_its_mode(d: &impl Door) -> Result<()> {
    d.as_user(ALICE, |d| {
        let file = d.open("file", NEW, 0o000)?;
        file.write_all_at(b"written", 0)?;
        equal(file.content()?, b"written".to_vec())
    })
}

fn a_setgid_directory_hands_its_group_on(d: &impl Door) -> Result<()> {
    d.dir("shared")?;
    d.chown("shared", Some(BOB.id), Some(7001))?;
    d.chmod("shared", 0o2777)?;
    d.as_user(ALICE, |d| {
        d.open("shared/file", NEW, 0o644)?;
        d.dir("shared/sub")
    })?;
    equal(d.stat("shared/file")?.gid, 7001)?;
    equal(d.stat("shared/sub")?.gid, 7001)?;
    equal(d.mode("shared/sub")?, 0o2755)?;
    // The caller is not in the group, so the new program file does not get its setgid bit.
    d.as_user(ALICE, |d| Ok(d.open("shared/prog", NEW, 0o2755)?))?;
    equal(d.mode("shared/prog")?, 0o755)?;
    let member = ALICE.in_group(7001);
    d.as_user(member, |d| Ok(d.open("shared/own", NEW, 0o2755)?))?;
    d.open("shared/root", NEW, 0o2755)?;
    for name in ["shared/own", "shared/root"] {
        equal(d.mode(name)?, 0o2755)?;
    }
    Ok(())
}
