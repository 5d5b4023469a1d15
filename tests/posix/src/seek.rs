//! SEEK_DATA and SEEK_HOLE.

use anyhow::{Result, ensure};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::door::{Door, OpenFile};
use crate::expect::*;

crate::table!("seek":
    a_file_without_holes_has_one_at_its_end,
    holes_and_data_are_told_apart,
    positions_at_or_past_the_end_are_enxio,
    a_hole_at_the_end_is_found,
    unsynced_data_counts_as_data,
    a_punched_hole_is_found,
    the_map_of_a_random_sparse_file_loses_no_data,
);

const MIB: u64 = 1 << 20;

fn a_file_without_holes_has_one_at_its_end(d: &impl Door) -> Result<()> {
    let file = d.file("f", &noise(1, 100_000))?;
    file.sync()?;
    for from in [0, 1, 4096, 50_000, 99_999] {
        equal(file.next_data(from)?, from)?;
        equal(file.next_hole(from)?, 100_000)?;
    }
    Ok(())
}

/// 1 MiB of data at 2 MiB and at 6 MiB of a file of 8 MiB.
fn islands<D: Door>(d: &D) -> Result<D::File> {
    let file = d.file("f", b"")?;
    file.truncate(8 * MIB)?;
    file.write_all_at(&noise(1, MIB as usize), 2 * MIB)?;
    file.write_all_at(&noise(2, MIB as usize), 6 * MIB)?;
    Ok(file)
}

fn told_apart(file: &impl OpenFile) -> Result<()> {
    for (from, next_data, next_hole) in [
        (0, 2 * MIB, 0),
        (MIB, 2 * MIB, MIB),
        (2 * MIB, 2 * MIB, 3 * MIB),
        (2 * MIB + 12_345, 2 * MIB + 12_345, 3 * MIB),
        (3 * MIB, 6 * MIB, 3 * MIB),
        (6 * MIB, 6 * MIB, 7 * MIB),
    ] {
        equal(
            (file.next_data(from)?, file.next_hole(from)?),
            (next_data, next_hole),
        )?;
    }
    refused(file.next_data(7 * MIB), Errno::NXIO)?;
    equal(file.next_hole(7 * MIB)?, 7 * MIB)
}

fn holes_and_data_are_told_apart(d: &impl Door) -> Result<()> {
    let file = islands(d)?;
    file.sync()?;
    told_apart(&file)
}

fn positions_at_or_past_the_end_are_enxio(d: &impl Door) -> Result<()> {
    let empty = d.file("empty", b"")?;
    refused(empty.next_data(0), Errno::NXIO)?;
    refused(empty.next_hole(0), Errno::NXIO)?;
    let file = d.file("f", b"content")?;
    for from in [7, 8, 1 << 40] {
        refused(file.next_data(from), Errno::NXIO)?;
        refused(file.next_hole(from), Errno::NXIO)?;
    }
    Ok(())
}

fn a_hole_at_the_end_is_found(d: &impl Door) -> Result<()> {
    let file = d.file("f", &noise(1, 4096))?;
    file.truncate(5 * MIB)?;
    file.sync()?;
    equal(file.next_hole(0)?, 4096)?;
    refused(file.next_data(8192), Errno::NXIO)
}

fn unsynced_data_counts_as_data(d: &impl Door) -> Result<()> {
    told_apart(&islands(d)?)
}

fn a_punched_hole_is_found(d: &impl Door) -> Result<()> {
    let file = d.file("f", &noise(1, 4 << 20))?;
    file.sync()?;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    file.allocate(punch, MIB, MIB)?;
    equal(file.next_hole(0)?, MIB)?;
    equal(file.next_data(MIB)?, 2 * MIB)?;
    equal(file.next_hole(2 * MIB)?, 4 * MIB)
}

fn the_map_of_a_random_sparse_file_loses_no_data(d: &impl Door) -> Result<()> {
    let file = d.file("f", b"")?;
    let mut due = vec![0u8; 16 << 20];
    file.truncate(due.len() as u64)?;
    let mut dice = Noise(9);
    for step in 0..60u64 {
        let at = dice.below(15 << 20) as usize;
        let bytes = noise(step, 1 + dice.below(40_000) as usize);
        file.write_all_at(&bytes, at as u64)?;
        due[at..at + bytes.len()].copy_from_slice(&bytes);
        if step % 9 == 0 {
            file.sync_data()?;
        }
    }
    let (mut at, mut seen, mut mapped) = (0, vec![0u8; due.len()], 0);
    while let Ok(start) = file.next_data(at) {
        let end = file.next_hole(start)?;
        ensure!(start >= at && end > start, "data {start}..{end} after {at}");
        let bytes = file.read(start, (end - start) as usize)?;
        seen[start as usize..end as usize].copy_from_slice(&bytes);
        mapped += end - start;
        at = end;
    }
    same_bytes(&seen, &due)?;
    ensure!(mapped < 8 << 20, "{mapped} bytes called data");
    Ok(())
}
