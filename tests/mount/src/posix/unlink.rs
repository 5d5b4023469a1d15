//! unlink, and files that stay open without a name.

use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::fs::{AtFlags, CWD, OFlags};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::BOB;

super::statements!("unlink":
    a_removed_name_is_gone,
    unlink_refuses_a_directory,
    unlink_of_nothing_is_enoent,
    unlink_needs_write_permission_on_the_directory,
    unlink_needs_no_permission_on_the_file,
    an_open_file_outlives_its_name,
    an_open_file_without_a_name_can_be_changed_in_every_way,
    the_name_can_be_used_again_while_the_old_file_is_open,
    the_space_comes_back_after_the_last_close,
    a_trailing_slash_is_enotdir,
    unlinkat_removes_directories_only_when_told,
    every_kind_of_file_can_be_removed,
);

fn unlink(path: impl AsRef<std::path::Path>) -> rustix::io::Result<()> {
    rustix::fs::unlink(path.as_ref())
}

fn a_removed_name_is_gone(place: &Place) -> Result<()> {
    file(place.at("a"), b"x")?;
    unlink(place.at("a"))?;
    gone(place.at("a"))?;
    refused(open(place.at("a"), OFlags::RDONLY), Errno::NOENT)?;
    equal(std::fs::read_dir(&place.dir)?.count(), 0)
}

fn unlink_refuses_a_directory(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    refused(unlink(place.at("d")), Errno::ISDIR)
}

fn unlink_of_nothing_is_enoent(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    refused(unlink(place.at("none")), Errno::NOENT)?;
    refused(unlink(place.at("none/x")), Errno::NOENT)?;
    refused(unlink(place.at("file/x")), Errno::NOTDIR)?;
    refused(unlink(""), Errno::NOENT)
}

fn unlink_needs_write_permission_on_the_directory(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    file(place.at("d/file"), b"")?;
    chown(place.at("d/file"), Some(BOB.0), Some(BOB.0))?;
    BOB.run(|| refused(unlink(place.at("d/file")), Errno::ACCESS))?;
    meta(place.at("d/file"))?;
    Ok(())
}

fn unlink_needs_no_permission_on_the_file(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    chmod(place.at("file"), 0)?;
    BOB.run(|| Ok(unlink(place.at("file"))?))?;
    gone(place.at("file"))
}

fn an_open_file_outlives_its_name(place: &Place) -> Result<()> {
    let due = noise(4, 100_000);
    let mut file = file(place.at("a"), &due)?;
    let again = open(place.at("a"), OFlags::RDONLY)?;
    unlink(place.at("a"))?;
    equal(file.metadata()?.nlink(), 0)?;
    same_bytes(&content(&file)?, &due)?;
    file.write_all(b"more")?;
    file.sync_all()?;
    drop(file);
    same_bytes(&content(&again)?, &[due, b"more".to_vec()].concat())
}

fn an_open_file_without_a_name_can_be_changed_in_every_way(place: &Place) -> Result<()> {
    let file = file(place.at("a"), &noise(4, 50_000))?;
    unlink(place.at("a"))?;
    rustix::fs::fchmod(&file, 0o600.into())?;
    rustix::fs::fchown(&file, Some(BOB.uid()), None)?;
    rustix::fs::fsetxattr(
        &file,
        "user.name",
        b"value",
        rustix::fs::XattrFlags::empty(),
    )?;
    file.set_len(10)?;
    file.set_len(5000)?;
    file.write_all_at(b"end", 8000)?;
    let meta = file.metadata()?;
    equal(
        (meta.mode(), meta.uid(), meta.len()),
        (0o100_600, BOB.0, 8003),
    )?;
    let mut due = noise(4, 10);
    due.resize(8000, 0);
    due.extend_from_slice(b"end");
    same_bytes(&content(&file)?, &due)
}

fn the_name_can_be_used_again_while_the_old_file_is_open(place: &Place) -> Result<()> {
    let old = file(place.at("a"), b"old")?;
    unlink(place.at("a"))?;
    let new = file(place.at("a"), b"new")?;
    ensure!(old.metadata()?.ino() != new.metadata()?.ino(), "one inode");
    equal(content(&old)?, b"old".to_vec())?;
    drop(old);
    holds(place.at("a"), b"new")
}

fn the_space_comes_back_after_the_last_close(place: &Place) -> Result<()> {
    const SIZE: u64 = 64 << 20;
    let free = || -> Result<u64> {
        let stat = rustix::fs::statvfs(&place.dir)?;
        Ok(stat.f_bfree * stat.f_frsize)
    };
    let mut file = file(place.at("a"), b"")?;
    let before = free()?;
    for part in 0..SIZE >> 20 {
        file.write_all(&noise(part, 1 << 20))?;
    }
    file.sync_all()?;
    let full = free()?;
    ensure!(
        before - full > SIZE * 9 / 10,
        "{} bytes taken",
        before - full
    );
    unlink(place.at("a"))?;
    ensure!(
        free()? < full + SIZE / 2,
        "space of an open file was given back"
    );
    drop(file);
    // The release of a closed file is not waited for by close.
    let start = Instant::now();
    while free()? < full + SIZE * 9 / 10 {
        ensure!(
            start.elapsed() < Duration::from_secs(20),
            "{} bytes came back of {SIZE}",
            free()?.saturating_sub(full)
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn a_trailing_slash_is_enotdir(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    refused(unlink(place.at("file/")), Errno::NOTDIR)?;
    meta(place.at("file"))?;
    Ok(())
}

fn unlinkat_removes_directories_only_when_told(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    dir(place.at("dir"))?;
    let remove = |name, flags| rustix::fs::unlinkat(CWD, place.at(name), flags);
    refused(remove("dir", AtFlags::empty()), Errno::ISDIR)?;
    refused(remove("file", AtFlags::REMOVEDIR), Errno::NOTDIR)?;
    remove("dir", AtFlags::REMOVEDIR)?;
    remove("file", AtFlags::empty())?;
    equal(std::fs::read_dir(&place.dir)?.count(), 0)
}

fn every_kind_of_file_can_be_removed(place: &Place) -> Result<()> {
    symlink("x", place.at("symlink"))?;
    rustix::fs::mkfifoat(CWD, place.at("fifo"), 0o644.into())?;
    for (name, kind) in [
        ("socket", rustix::fs::FileType::Socket),
        ("char", rustix::fs::FileType::CharacterDevice),
        ("block", rustix::fs::FileType::BlockDevice),
    ] {
        rustix::fs::mknodat(
            CWD,
            place.at(name),
            kind,
            0o644.into(),
            rustix::fs::makedev(1, 3),
        )?;
    }
    for name in ["symlink", "fifo", "socket", "char", "block"] {
        unlink(place.at(name))?;
        gone(place.at(name))?;
    }
    Ok(())
}
