//! unlink, and files that stay open without a name.

use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::BOB;

super::statements!("unlink":
    unlink_needs_write_permission_on_the_directory,
    unlink_needs_no_permission_on_the_file,
    an_open_file_without_a_name_can_be_changed_in_every_way,
    the_space_comes_back_after_the_last_close,
    a_trailing_slash_is_enotdir,
    unlinkat_removes_directories_only_when_told,
);

fn unlink(path: impl AsRef<std::path::Path>) -> rustix::io::Result<()> {
    rustix::fs::unlink(path.as_ref())
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
