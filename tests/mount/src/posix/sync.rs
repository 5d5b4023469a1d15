//! fsync, fdatasync, sync and the flags that mean them. What they promise is proved by killing the daemon.

use std::io::Write;

use anyhow::Result;
use rustix::fs::{CWD, OFlags};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;

super::statements!("sync":
    every_way_of_syncing_is_there,
    a_reader_may_sync,
    syncing_changes_neither_content_nor_times,
    o_sync_and_o_dsync_write_as_ever,
    many_threads_may_sync_one_file,
    what_cannot_be_synced_is_einval,
);

fn every_way_of_syncing_is_there(place: &Place) -> Result<()> {
    let mut file = file(place.at("f"), &noise(1, 100_000))?;
    rustix::fs::fsync(&file)?;
    file.write_all(b"more")?;
    rustix::fs::fdatasync(&file)?;
    file.write_all(b"more")?;
    rustix::fs::syncfs(&file)?;
    rustix::fs::sync();
    let dir = open(&place.dir, OFlags::RDONLY)?;
    rustix::fs::fsync(&dir)?;
    rustix::fs::fdatasync(&dir)?;
    rustix::fs::fsync(&file)?;
    Ok(rustix::fs::fsync(&file)?)
}

fn a_reader_may_sync(place: &Place) -> Result<()> {
    file(place.at("f"), b"x")?;
    Ok(rustix::fs::fsync(open(place.at("f"), OFlags::RDONLY)?)?)
}

fn syncing_changes_neither_content_nor_times(place: &Place) -> Result<()> {
    let file = file(place.at("f"), &noise(1, 300_000))?;
    equal(moved(place.at("f"), || Ok(file.sync_all()?))?, NEITHER)?;
    holds(place.at("f"), &noise(1, 300_000))
}

fn o_sync_and_o_dsync_write_as_ever(place: &Place) -> Result<()> {
    for (name, flag) in [("sync", OFlags::SYNC), ("dsync", OFlags::DSYNC)] {
        let flags = OFlags::CREATE | OFlags::RDWR | flag;
        let mut file = create(place.at(name), flags, 0o644)?;
        for size in [1usize, 4096, 10_000, 300_000] {
            file.write_all(&noise(size as u64, size))?;
        }
        let due: Vec<u8> = [1usize, 4096, 10_000, 300_000]
            .into_iter()
            .flat_map(|size| noise(size as u64, size))
            .collect();
        holds(place.at(name), &due)?;
    }
    Ok(())
}

fn many_threads_may_sync_one_file(place: &Place) -> Result<()> {
    file(place.at("f"), b"")?;
    in_threads(4, |_| {
        let mut file = open(place.at("f"), OFlags::WRONLY | OFlags::APPEND)?;
        for _ in 0..50 {
            file.write_all(&[b'x'; 100])?;
            file.sync_data()?;
        }
        Ok(())
    })?;
    holds(place.at("f"), &[b'x'; 20_000])
}

fn what_cannot_be_synced_is_einval(place: &Place) -> Result<()> {
    rustix::fs::mkfifoat(CWD, place.at("fifo"), 0o644.into())?;
    let fifo = open(place.at("fifo"), OFlags::RDWR)?;
    refused(rustix::fs::fsync(&fifo), Errno::INVAL)
}
