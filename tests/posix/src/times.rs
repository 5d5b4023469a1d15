//! utimensat, and which calls move which times.

use anyhow::{Context, Result, ensure};
use rustix::fs::OFlags;

use crate::door::SetTime::{At, Now, Omit};
use crate::door::{Door, OpenFile};
use crate::expect::*;

crate::table!("times":
    both_times_are_set_to_the_nanosecond,
    omit_leaves_a_time_as_it_is,
    both_omitted_changes_nothing,
    now_is_later_than_before,
    times_before_1970_and_after_2106_are_kept,
    a_symlink_has_its_own_times,
    setting_times_moves_the_inode_time,
    a_write_moves_content_and_inode_time,
    a_read_moves_the_access_time_after_a_change,
    reading_moves_neither_content_nor_inode_time,
    extended_attributes_move_only_the_inode_time,
    a_time_that_was_set_survives_data_written_before,
    listing_a_directory_moves_its_access_time,
);

fn both_times_are_set_to_the_nanosecond(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    d.dir("d")?;
    for name in ["f", "d"] {
        d.utimens(name, At(1_000_000_000, 123_456_789), At(1_234_567_890, 1))?;
        equal(d.stat(name)?.atime, (1_000_000_000, 123_456_789))?;
        equal(d.stat(name)?.mtime, (1_234_567_890, 1))?;
    }
    Ok(())
}

fn omit_leaves_a_time_as_it_is(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    d.utimens("f", At(100, 1), At(200, 2))?;
    d.utimens("f", Omit, At(300, 3))?;
    equal(
        (d.stat("f")?.atime, d.stat("f")?.mtime),
        ((100, 1), (300, 3)),
    )?;
    d.utimens("f", At(400, 4), Omit)?;
    equal(
        (d.stat("f")?.atime, d.stat("f")?.mtime),
        ((400, 4), (300, 3)),
    )
}

fn both_omitted_changes_nothing(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    equal(d.moved("f", || Ok(d.utimens("f", Omit, Omit)?))?, NEITHER)
}

fn now_is_later_than_before(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    let before = d.stat("f")?;
    d.utimens("f", At(5, 5), At(6, 6))?;
    d.tick();
    d.utimens("f", Omit, Now)?;
    let after = d.stat("f")?;
    ensure!(after.mtime > before.mtime, "{after:?}, before {before:?}");
    equal(after.atime, (5, 5))
}

fn times_before_1970_and_after_2106_are_kept(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    for seconds in [-1, -2_000_000_000, 0, 1 << 31, (1 << 32) + 5, 3 << 32] {
        d.utimens("f", At(seconds, 7), At(seconds, 999_999_999))?;
        equal(d.stat("f")?.atime, (seconds, 7))?;
        equal(d.stat("f")?.mtime, (seconds, 999_999_999))?;
    }
    Ok(())
}

fn a_symlink_has_its_own_times(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    d.utimens("f", At(1, 0), At(1, 0))?;
    d.symlink("f", "s")?;
    d.utimens("s", At(2, 0), At(3, 0))?;
    equal(d.stat("s")?.mtime, (3, 0))?;
    equal(d.stat("f")?.mtime, (1, 0))
}

fn setting_times_moves_the_inode_time(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    let before = d.stat("f")?.ctime;
    d.tick();
    d.utimens("f", At(1, 0), At(1, 0))?;
    ensure!(d.stat("f")?.ctime > before);
    Ok(())
}

fn a_write_moves_content_and_inode_time(d: &impl Door) -> Result<()> {
    let file = d.file("f", b"content")?;
    equal(d.moved("f", || Ok(file.write_all_at(b"x", 0)?))?, BOTH).context("overwriting")?;
    equal(d.moved("f", || Ok(file.write_all_at(b"x", 100)?))?, BOTH).context("growing")
}

fn a_read_moves_the_access_time_after_a_change(d: &impl Door) -> Result<()> {
    d.file("f", b"content")?;
    d.utimens("f", At(1000, 0), At(2000, 0))?;
    // Under relatime an access time not above the content's time moves at the next read.
    d.edit("f")?.content()?;
    ensure!(
        d.stat("f")?.atime.0 > 2000,
        "access time still {:?}",
        d.stat("f")?.atime
    );
    Ok(())
}

fn reading_moves_neither_content_nor_inode_time(d: &impl Door) -> Result<()> {
    d.file("f", b"content")?;
    let read = || {
        d.edit("f")?.content()?;
        d.stat("f")?;
        Ok(d.open("f", OFlags::RDONLY, 0)?)
    };
    equal(d.moved("f", read)?, NEITHER)
}

fn extended_attributes_move_only_the_inode_time(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    equal(
        d.moved("f", || Ok(d.setxattr("f", "user.x", b"1")?))?,
        CTIME,
    )?;
    equal(d.moved("f", || Ok(d.removexattr("f", "user.x")?))?, CTIME)
}

fn a_time_that_was_set_survives_data_written_before(d: &impl Door) -> Result<()> {
    // Archivers write, set the time, close: the data's way to the device must not stamp it again.
    let file = d.file("f", &noise(1, 300_000))?;
    d.utimens("f", At(1_000_000, 5), At(2_000_000, 6))?;
    file.sync()?;
    drop(file);
    d.sync()?;
    equal(d.stat("f")?.mtime, (2_000_000, 6))?;
    equal(d.stat("f")?.atime, (1_000_000, 5))
}

fn listing_a_directory_moves_its_access_time(d: &impl Door) -> Result<()> {
    d.dir("d")?;
    d.file("d/f", b"")?;
    d.utimens("d", At(1000, 0), At(2000, 0))?;
    equal(d.list("d")?.len(), 1)?;
    ensure!(d.stat("d")?.atime.0 > 2000);
    Ok(())
}
