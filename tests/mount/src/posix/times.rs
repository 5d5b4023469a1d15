//! utimensat, and which calls move which times.

use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::{ALICE, BOB};

super::statements!("times":
    now_is_the_present,
    nanoseconds_out_of_range_are_einval,
    setting_a_time_needs_the_owner,
    setting_to_now_needs_only_write_permission,
    a_new_file_has_the_present_in_all_three,
    a_read_of_cached_pages_moves_it_too,
    birth_is_when_it_was_made,
);

const OMIT: i64 = libc::UTIME_OMIT;
const NOW: i64 = libc::UTIME_NOW;

fn spec((seconds, nanoseconds): (i64, i64)) -> Timespec {
    Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    }
}

fn set(path: impl AsRef<Path>, atime: (i64, i64), mtime: (i64, i64)) -> rustix::io::Result<()> {
    let times = Timestamps {
        last_access: spec(atime),
        last_modification: spec(mtime),
    };
    rustix::fs::utimensat(CWD, path.as_ref(), &times, AtFlags::SYMLINK_NOFOLLOW)
}

fn atime(path: impl AsRef<Path>) -> Result<(i64, i64)> {
    let meta = meta(path)?;
    Ok((meta.atime(), meta.atime_nsec()))
}

fn mtime(path: impl AsRef<Path>) -> Result<(i64, i64)> {
    let meta = meta(path)?;
    Ok((meta.mtime(), meta.mtime_nsec()))
}

/// The clock that stamps files.
fn present() -> (i64, i64) {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    (now.tv_sec, now.tv_nsec)
}

fn now_is_the_present(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    set(place.at("f"), (5, 5), (6, 6))?;
    let before = present();
    set(place.at("f"), (0, NOW), (0, NOW))?;
    tick();
    let after = present();
    for time in [atime(place.at("f"))?, mtime(place.at("f"))?] {
        ensure!(
            before <= time && time <= after,
            "{before:?} {time:?} {after:?}"
        );
    }
    Ok(())
}

fn nanoseconds_out_of_range_are_einval(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    refused(set(place.at("f"), (1, 1_000_000_000), (1, 0)), Errno::INVAL)?;
    refused(set(place.at("f"), (1, 0), (1, -1)), Errno::INVAL)
}

fn setting_a_time_needs_the_owner(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    chown(place.at("f"), Some(ALICE.0), Some(ALICE.0))?;
    chmod(place.at("f"), 0o666)?;
    BOB.run(|| {
        refused(set(place.at("f"), (1, 0), (1, 0)), Errno::PERM)?;
        refused(set(place.at("f"), (0, NOW), (0, OMIT)), Errno::PERM)
    })?;
    ALICE.run(|| Ok(set(place.at("f"), (1, 0), (1, 0))?))
}

fn setting_to_now_needs_only_write_permission(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    BOB.run(|| refused(set(place.at("f"), (0, NOW), (0, NOW)), Errno::ACCESS))?;
    chmod(place.at("f"), 0o666)?;
    BOB.run(|| Ok(set(place.at("f"), (0, NOW), (0, NOW))?))
}

fn a_new_file_has_the_present_in_all_three(place: &Place) -> Result<()> {
    let before = present();
    file(place.at("f"), b"")?;
    dir(place.at("d"))?;
    symlink("x", place.at("s"))?;
    rustix::fs::mkfifoat(CWD, place.at("p"), 0o644.into())?;
    tick();
    let after = present();
    for name in ["f", "d", "s", "p"] {
        let meta = meta(place.at(name))?;
        let ctime = (meta.ctime(), meta.ctime_nsec());
        for time in [atime(place.at(name))?, mtime(place.at(name))?, ctime] {
            ensure!(
                before <= time && time <= after,
                "{name}: {before:?} {time:?} {after:?}"
            );
        }
    }
    Ok(())
}

/// What was just written is in the kernel's cache: reading it did not move the access time, whoever opened it.
fn a_read_of_cached_pages_moves_it_too(place: &Place) -> Result<()> {
    for round in 0..3 {
        let path = place.at(format!("f{round}"));
        file(&path, &noise(round, 10_000))?;
        set(&path, (1000, 0), (2000, 0))?;
        std::fs::OpenOptions::new()
            .write(true)
            .open(&path)?
            .write_all_at(b"x", 100)?;
        std::fs::read(&path)?;
        ensure!(atime(&path)?.0 > 2000, "round {round}: {:?}", atime(&path)?);
    }
    Ok(())
}

/// There was none: `stat -c %W` said 0.
fn birth_is_when_it_was_made(place: &Place) -> Result<()> {
    let before = std::time::SystemTime::now() - std::time::Duration::from_secs(1);
    file(place.at("f"), b"x")?;
    dir(place.at("d"))?;
    for name in ["f", "d"] {
        let path = place.at(name);
        let born = meta(&path)?.created().context("no time of birth")?;
        let after = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
        ensure!((before..after).contains(&born), "{name}: {born:?}");
        chmod(&path, 0o700)?;
        set(&path, (1000, 0), (2000, 0))?;
        equal(meta(&path)?.created()?, born)?;
        equal(
            meta(&path)?.modified()?,
            std::time::UNIX_EPOCH + std::time::Duration::from_secs(2000),
        )?;
    }
    Ok(())
}
