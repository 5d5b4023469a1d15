//! utimensat, and which calls move which times.

use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::{AtFlags, CWD, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::{ALICE, BOB};

super::statements!("times":
    both_times_are_set_to_the_nanosecond,
    omit_leaves_a_time_as_it_is,
    both_omitted_changes_nothing,
    now_is_the_present,
    times_before_1970_and_after_2106_are_kept,
    nanoseconds_out_of_range_are_einval,
    a_symlink_has_its_own_times,
    setting_a_time_needs_the_owner,
    setting_to_now_needs_only_write_permission,
    setting_times_moves_the_inode_time,
    a_new_file_has_the_present_in_all_three,
    a_write_moves_content_and_inode_time,
    a_read_moves_the_access_time_after_a_change,
    a_read_of_cached_pages_moves_it_too,
    birth_is_when_it_was_made,
    reading_moves_neither_content_nor_inode_time,
    extended_attributes_move_only_the_inode_time,
    a_time_that_was_set_survives_data_written_before,
    listing_a_directory_moves_its_access_time,
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

fn both_times_are_set_to_the_nanosecond(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    dir(place.at("d"))?;
    for name in ["f", "d"] {
        set(
            place.at(name),
            (1_000_000_000, 123_456_789),
            (1_234_567_890, 1),
        )?;
        equal(atime(place.at(name))?, (1_000_000_000, 123_456_789))?;
        equal(mtime(place.at(name))?, (1_234_567_890, 1))?;
    }
    Ok(())
}

fn omit_leaves_a_time_as_it_is(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    set(place.at("f"), (100, 1), (200, 2))?;
    set(place.at("f"), (0, OMIT), (300, 3))?;
    equal(
        (atime(place.at("f"))?, mtime(place.at("f"))?),
        ((100, 1), (300, 3)),
    )?;
    set(place.at("f"), (400, 4), (0, OMIT))?;
    equal(
        (atime(place.at("f"))?, mtime(place.at("f"))?),
        ((400, 4), (300, 3)),
    )
}

fn both_omitted_changes_nothing(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    equal(
        moved(place.at("f"), || {
            Ok(set(place.at("f"), (0, OMIT), (0, OMIT))?)
        })?,
        NEITHER,
    )
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

fn times_before_1970_and_after_2106_are_kept(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    for seconds in [-1, -2_000_000_000, 0, 1 << 31, (1 << 32) + 5, 3 << 32] {
        set(place.at("f"), (seconds, 7), (seconds, 999_999_999))?;
        equal(atime(place.at("f"))?, (seconds, 7))?;
        equal(mtime(place.at("f"))?, (seconds, 999_999_999))?;
    }
    Ok(())
}

fn nanoseconds_out_of_range_are_einval(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    refused(set(place.at("f"), (1, 1_000_000_000), (1, 0)), Errno::INVAL)?;
    refused(set(place.at("f"), (1, 0), (1, -1)), Errno::INVAL)
}

fn a_symlink_has_its_own_times(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    set(place.at("f"), (1, 0), (1, 0))?;
    symlink("f", place.at("s"))?;
    set(place.at("s"), (2, 0), (3, 0))?;
    equal(mtime(place.at("s"))?, (3, 0))?;
    equal(mtime(place.at("f"))?, (1, 0))
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

fn setting_times_moves_the_inode_time(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    let before = meta(place.at("f"))?;
    tick();
    set(place.at("f"), (1, 0), (1, 0))?;
    let after = meta(place.at("f"))?;
    ensure!((after.ctime(), after.ctime_nsec()) > (before.ctime(), before.ctime_nsec()));
    Ok(())
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

fn a_write_moves_content_and_inode_time(place: &Place) -> Result<()> {
    let path = place.at("f");
    let file = file(&path, b"content")?;
    equal(moved(&path, || Ok(file.write_all_at(b"x", 0)?))?, BOTH).context("overwriting")?;
    equal(moved(&path, || Ok(file.write_all_at(b"x", 100)?))?, BOTH).context("growing")
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

fn a_read_moves_the_access_time_after_a_change(place: &Place) -> Result<()> {
    let path = place.at("f");
    file(&path, b"content")?;
    set(&path, (1000, 0), (2000, 0))?;
    // Under relatime an access time not above the content's time moves at the next read.
    std::fs::read(&path)?;
    ensure!(
        atime(&path)?.0 > 2000,
        "access time still {:?}",
        atime(&path)?
    );
    Ok(())
}

fn reading_moves_neither_content_nor_inode_time(place: &Place) -> Result<()> {
    let path = place.at("f");
    file(&path, b"content")?;
    let read = || {
        std::fs::read(&path)?;
        meta(&path)?;
        Ok(open(&path, OFlags::RDONLY)?)
    };
    equal(moved(&path, read)?, NEITHER)
}

fn extended_attributes_move_only_the_inode_time(place: &Place) -> Result<()> {
    let path = place.at("f");
    file(&path, b"")?;
    let none = rustix::fs::XattrFlags::empty();
    let set = || Ok(rustix::fs::setxattr(&path, "user.x", b"1", none)?);
    equal(moved(&path, set)?, CTIME)?;
    equal(
        moved(&path, || Ok(rustix::fs::removexattr(&path, "user.x")?))?,
        CTIME,
    )
}

fn a_time_that_was_set_survives_data_written_before(place: &Place) -> Result<()> {
    // Archivers write, set the time, close: the data's way to the device must not stamp it again.
    let path = place.at("f");
    let file = file(&path, &noise(1, 300_000))?;
    set(&path, (1_000_000, 5), (2_000_000, 6))?;
    file.sync_all()?;
    drop(file);
    rustix::fs::syncfs(open(&place.dir, OFlags::RDONLY)?)?;
    equal(mtime(&path)?, (2_000_000, 6))?;
    equal(atime(&path)?, (1_000_000, 5))
}

fn listing_a_directory_moves_its_access_time(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    file(place.at("d/f"), b"")?;
    set(place.at("d"), (1000, 0), (2000, 0))?;
    equal(std::fs::read_dir(place.at("d"))?.count(), 1)?;
    ensure!(atime(place.at("d"))?.0 > 2000);
    Ok(())
}
