//! SEEK_DATA and SEEK_HOLE.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Result, ensure};
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;

super::statements!("seek":
    a_file_without_holes_has_one_at_its_end,
    holes_and_data_are_told_apart,
    an_empty_file_has_neither,
    positions_at_or_past_the_end_are_enxio,
    a_hole_at_the_end_is_found,
    unsynced_data_counts_as_data,
    a_punched_hole_is_found,
    the_map_of_a_random_sparse_file_loses_no_data,
);

const MIB: u64 = 1 << 20;

fn data(file: &File, from: u64) -> rustix::io::Result<u64> {
    rustix::fs::seek(file, SeekFrom::Data(from))
}

fn hole(file: &File, from: u64) -> rustix::io::Result<u64> {
    rustix::fs::seek(file, SeekFrom::Hole(from))
}

fn a_file_without_holes_has_one_at_its_end(place: &Place) -> Result<()> {
    let file = file(place.at("f"), &noise(1, 100_000))?;
    file.sync_all()?;
    for from in [0, 1, 4096, 50_000, 99_999] {
        equal(data(&file, from)?, from)?;
        equal(hole(&file, from)?, 100_000)?;
    }
    Ok(())
}

/// 1 MiB of data at 2 MiB and at 6 MiB of a file of 8 MiB.
fn islands(place: &Place) -> Result<File> {
    let file = file(place.at("f"), b"")?;
    file.set_len(8 * MIB)?;
    file.write_all_at(&noise(1, MIB as usize), 2 * MIB)?;
    file.write_all_at(&noise(2, MIB as usize), 6 * MIB)?;
    Ok(file)
}

fn told_apart(file: &File) -> Result<()> {
    for (from, next_data, next_hole) in [
        (0, 2 * MIB, 0),
        (MIB, 2 * MIB, MIB),
        (2 * MIB, 2 * MIB, 3 * MIB),
        (2 * MIB + 12_345, 2 * MIB + 12_345, 3 * MIB),
        (3 * MIB, 6 * MIB, 3 * MIB),
        (6 * MIB, 6 * MIB, 7 * MIB),
    ] {
        equal(
            (data(file, from)?, hole(file, from)?),
            (next_data, next_hole),
        )?;
    }
    refused(data(file, 7 * MIB), Errno::NXIO)?;
    equal(hole(file, 7 * MIB)?, 7 * MIB)
}

fn holes_and_data_are_told_apart(place: &Place) -> Result<()> {
    let file = islands(place)?;
    file.sync_all()?;
    told_apart(&file)
}

fn an_empty_file_has_neither(place: &Place) -> Result<()> {
    let file = file(place.at("f"), b"")?;
    refused(data(&file, 0), Errno::NXIO)?;
    refused(hole(&file, 0), Errno::NXIO)
}

fn positions_at_or_past_the_end_are_enxio(place: &Place) -> Result<()> {
    let file = file(place.at("f"), b"content")?;
    for from in [7, 8, 1 << 40] {
        refused(data(&file, from), Errno::NXIO)?;
        refused(hole(&file, from), Errno::NXIO)?;
    }
    Ok(())
}

fn a_hole_at_the_end_is_found(place: &Place) -> Result<()> {
    let file = file(place.at("f"), &noise(1, 4096))?;
    file.set_len(5 * MIB)?;
    file.sync_all()?;
    equal(hole(&file, 0)?, 4096)?;
    refused(data(&file, 8192), Errno::NXIO)
}

fn unsynced_data_counts_as_data(place: &Place) -> Result<()> {
    told_apart(&islands(place)?)
}

fn a_punched_hole_is_found(place: &Place) -> Result<()> {
    let file = file(place.at("f"), &noise(1, 4 << 20))?;
    file.sync_all()?;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, MIB, MIB)?;
    equal(hole(&file, 0)?, MIB)?;
    equal(data(&file, MIB)?, 2 * MIB)?;
    equal(hole(&file, 2 * MIB)?, 4 * MIB)
}

fn the_map_of_a_random_sparse_file_loses_no_data(place: &Place) -> Result<()> {
    let file = file(place.at("f"), b"")?;
    let mut due = vec![0u8; 16 << 20];
    file.set_len(due.len() as u64)?;
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
    while let Ok(start) = data(&file, at) {
        let end = hole(&file, start)?;
        ensure!(start >= at && end > start, "data {start}..{end} after {at}");
        file.read_exact_at(&mut seen[start as usize..end as usize], start)?;
        mapped += end - start;
        at = end;
    }
    same_bytes(&seen, &due)?;
    ensure!(mapped < 8 << 20, "{mapped} bytes called data");
    Ok(())
}
