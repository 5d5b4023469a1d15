//! statfs and statvfs tell the truth.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::fs::OFlags;

use super::expect::*;
use crate::check::Place;

super::statements!("statfs":
    the_numbers_fit_each_other,
    free_space_follows_what_is_written,
    inodes_are_counted,
    it_answers_for_every_file_alike,
    allocated_blocks_are_those_of_the_content,
);

struct Space {
    total: u64,
    free: u64,
    available: u64,
}

fn space(place: &Place) -> Result<Space> {
    let stat = rustix::fs::statvfs(&place.dir)?;
    Ok(Space {
        total: stat.f_blocks * stat.f_frsize,
        free: stat.f_bfree * stat.f_frsize,
        available: stat.f_bavail * stat.f_frsize,
    })
}

fn the_numbers_fit_each_other(place: &Place) -> Result<()> {
    let stat = rustix::fs::statvfs(&place.dir)?;
    equal(stat.f_namemax, 255)?;
    ensure!(stat.f_bsize >= 512 && stat.f_frsize >= 512);
    let space = space(place)?;
    ensure!(space.available <= space.free && space.free <= space.total);
    ensure!(space.total > 1 << 30, "{} bytes in all", space.total);
    ensure!(stat.f_ffree <= stat.f_files && stat.f_ffree > 0);
    Ok(())
}

fn free_space_follows_what_is_written(place: &Place) -> Result<()> {
    const SIZE: u64 = 100 << 20;
    let sync = || -> Result<()> { Ok(rustix::fs::syncfs(open(&place.dir, OFlags::RDONLY)?)?) };
    sync()?;
    let before = space(place)?.available;
    std::fs::write(place.at("f"), noise(1, SIZE as usize))?;
    let unsynced = before.saturating_sub(space(place)?.available);
    sync()?;
    let taken = before.saturating_sub(space(place)?.available);
    for (what, bytes) in [("before", unsynced), ("after", taken)] {
        ensure!(
            (SIZE * 95 / 100..SIZE * 110 / 100).contains(&bytes),
            "{bytes} bytes taken by {SIZE} {what} syncing"
        );
    }
    std::fs::remove_file(place.at("f"))?;
    let start = Instant::now();
    while before.saturating_sub(space(place)?.available) > SIZE / 20 {
        ensure!(
            start.elapsed() < Duration::from_secs(20),
            "the space does not come back"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn inodes_are_counted(place: &Place) -> Result<()> {
    let used = || -> Result<u64> {
        let stat = rustix::fs::statvfs(&place.dir)?;
        Ok(stat.f_files - stat.f_ffree)
    };
    let before = used()?;
    for number in 0..500 {
        file(place.at(number.to_string()), b"")?;
    }
    equal(used()? - before, 500)?;
    for number in 0..500 {
        std::fs::remove_file(place.at(number.to_string()))?;
    }
    let start = Instant::now();
    while used()? != before {
        ensure!(
            start.elapsed() < Duration::from_secs(20),
            "{} inodes used, {before} before",
            used()?
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn it_answers_for_every_file_alike(place: &Place) -> Result<()> {
    let file = file(place.at("f"), b"")?;
    let (by_dir, by_file) = (
        rustix::fs::statvfs(&place.dir)?,
        rustix::fs::fstatvfs(&file)?,
    );
    equal(
        (by_dir.f_blocks, by_dir.f_fsid),
        (by_file.f_blocks, by_file.f_fsid),
    )
}

fn allocated_blocks_are_those_of_the_content(place: &Place) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let file = file(place.at("f"), &noise(1, 1_000_000))?;
    file.sync_all()?;
    let bytes = file.metadata()?.blocks() * 512;
    ensure!(
        (1_000_000..1_100_000).contains(&bytes),
        "{bytes} bytes allocated"
    );
    Ok(())
}
