//! mknod: FIFOs, sockets and devices.

use anyhow::Result;

use crate::door::{Door, OpenFile};
use crate::expect::*;

crate::table!("node":
    device_numbers_are_kept_whole,
    mknod_makes_a_regular_file,
    nodes_have_no_size,
);

fn device_numbers_are_kept_whole(d: &impl Door) -> Result<()> {
    for (number, device) in [(1, 3), (259, 1_000_000), (4095, 1_048_575)]
        .into_iter()
        .enumerate()
    {
        for kind in [0o020_000, 0o060_000] {
            let path = format!("{number}-{kind:o}");
            d.mknod(&path, kind | 0o600, device)?;
            let stat = d.stat(&path)?;
            equal((stat.mode, stat.rdev), (kind | 0o600, device))?;
        }
    }
    Ok(())
}

fn mknod_makes_a_regular_file(d: &impl Door) -> Result<()> {
    d.mknod("file", 0o100_644, (0, 0))?;
    d.edit("file")?.write_all_at(b"content", 0)?;
    d.holds("file", b"content")
}

fn nodes_have_no_size(d: &impl Door) -> Result<()> {
    for kind in [0o010_000, 0o140_000, 0o020_000] {
        let path = format!("{kind:o}");
        d.mknod(&path, kind | 0o644, (1, 3))?;
        let stat = d.stat(&path)?;
        equal((stat.size, stat.blocks, stat.nlink), (0, 0, 1))?;
        equal(stat.mode, kind | 0o644)?;
        let is_device = kind == 0o020_000;
        equal(stat.rdev, if is_device { (1, 3) } else { (0, 0) })?;
    }
    Ok(())
}
