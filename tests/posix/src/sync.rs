//! fsync, fdatasync, sync and the flags that mean them. What they promise is proved by cutting the power.

use anyhow::Result;
use rustix::fs::OFlags;

use crate::door::{Door, OpenFile};
use crate::expect::*;

crate::table!("sync":
    every_way_of_syncing_is_there,
    a_reader_may_sync,
    syncing_changes_neither_content_nor_times,
    o_sync_and_o_dsync_write_as_ever,
    many_threads_may_sync_one_file,
);

fn every_way_of_syncing_is_there(d: &impl Door) -> Result<()> {
    let file = d.file("f", &noise(1, 100_000))?;
    file.sync()?;
    file.write_all_at(b"more", 100_000)?;
    file.sync_data()?;
    file.write_all_at(b"more", 100_004)?;
    d.sync()?;
    let dir = d.open(".", OFlags::RDONLY, 0)?;
    dir.sync()?;
    dir.sync_data()?;
    file.sync()?;
    Ok(file.sync()?)
}

fn a_reader_may_sync(d: &impl Door) -> Result<()> {
    d.file("f", b"x")?;
    Ok(d.open("f", OFlags::RDONLY, 0)?.sync()?)
}

fn syncing_changes_neither_content_nor_times(d: &impl Door) -> Result<()> {
    let file = d.file("f", &noise(1, 300_000))?;
    equal(d.moved("f", || Ok(file.sync()?))?, NEITHER)?;
    d.holds("f", &noise(1, 300_000))
}

fn o_sync_and_o_dsync_write_as_ever(d: &impl Door) -> Result<()> {
    for (name, flag) in [("sync", OFlags::SYNC), ("dsync", OFlags::DSYNC)] {
        let flags = OFlags::CREATE | OFlags::RDWR | flag;
        let file = d.open(name, flags, 0o644)?;
        let mut due = Vec::new();
        for size in [1usize, 4096, 10_000, 300_000] {
            let bytes = noise(size as u64, size);
            file.write_all_at(&bytes, due.len() as u64)?;
            due.extend(bytes);
        }
        d.holds(name, &due)?;
    }
    Ok(())
}

fn many_threads_may_sync_one_file(d: &impl Door) -> Result<()> {
    d.file("f", b"")?;
    in_threads(4, |_| {
        let file = d.open("f", OFlags::WRONLY | OFlags::APPEND, 0)?;
        for _ in 0..50 {
            file.write_all_at(&[b'x'; 100], 0)?;
            file.sync_data()?;
        }
        Ok(())
    })?;
    d.holds("f", &[b'x'; 20_000])
}
