//! fallocate in all its modes.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use anyhow::{Context, Result, ensure};
use rustix::fs::{CWD, FallocateFlags as Mode, OFlags};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;

super::statements!("allocate":
    allocating_grows_the_file_with_zeros,
    allocating_keeps_what_is_there,
    keep_size_takes_blocks_behind_the_end,
    a_punched_hole_reads_as_zeros,
    a_punched_hole_gives_blocks_back,
    punching_behind_the_end_changes_nothing,
    punching_without_keep_size_is_eopnotsupp,
    a_zeroed_range_reads_as_zeros,
    zeroing_with_keep_size_keeps_the_size,
    collapsing_works_or_is_eopnotsupp,
    inserting_works_or_is_eopnotsupp,
    bad_arguments_are_refused,
    what_is_no_regular_file_is_refused,
    random_calls_equal_those_in_memory,
    it_moves_the_times,
);

fn allocate(file: &File, mode: Mode, offset: u64, len: u64) -> rustix::io::Result<()> {
    rustix::fs::fallocate(file, mode, offset, len)
}

const PUNCH: Mode = Mode::PUNCH_HOLE.union(Mode::KEEP_SIZE);

fn allocating_grows_the_file_with_zeros(place: &Place) -> Result<()> {
    let file = file(place.at("f"), b"start")?;
    allocate(&file, Mode::empty(), 0, 100_000)?;
    let mut due = b"start".to_vec();
    due.resize(100_000, 0);
    holds(place.at("f"), &due)?;
    ensure!(
        file.metadata()?.blocks() * 512 >= 98_304,
        "nothing allocated"
    );
    allocate(&file, Mode::empty(), 150_000, 1)?;
    equal(file.metadata()?.len(), 150_001)
}

fn allocating_keeps_what_is_there(place: &Place) -> Result<()> {
    let due = noise(1, 50_000);
    let file = file(place.at("f"), &due)?;
    allocate(&file, Mode::empty(), 1000, 30_000)?;
    holds(place.at("f"), &due)?;
    file.sync_all()?;
    allocate(&file, Mode::empty(), 0, 50_000)?;
    holds(place.at("f"), &due)
}

fn keep_size_takes_blocks_behind_the_end(place: &Place) -> Result<()> {
    let file = file(place.at("f"), b"x")?;
    allocate(&file, Mode::KEEP_SIZE, 0, 1 << 20)?;
    equal(file.metadata()?.len(), 1)?;
    // The block that holds the byte may be counted by its bytes.
    let blocks = file.metadata()?.blocks();
    ensure!(blocks > 255 * 8, "{blocks} blocks");
    file.write_all_at(b"y", 500_000)?;
    let mut due = b"x".to_vec();
    due.resize(500_000, 0);
    due.push(b'y');
    holds(place.at("f"), &due)
}

/// Zeros `offset..offset + len` of a file of noise by `mode`, synced before or not, and compares.
fn zeros(place: &Place, mode: Mode) -> Result<()> {
    const SIZE: usize = 100_000;
    for (offset, len) in [
        (0, 1),
        (0, 4096),
        (4096, 8192),
        (1, 4095),
        (5000, 100),
        (4095, 50_002),
        (0, SIZE),
    ] {
        for synced in [false, true] {
            let path = place.at(format!("{offset}-{len}-{synced}"));
            let mut due = noise(2, SIZE);
            let file = file(&path, &due)?;
            if synced {
                file.sync_all()?;
            }
            allocate(&file, mode, offset as u64, len as u64)?;
            due[offset..offset + len].fill(0);
            holds(&path, &due)?;
            file.sync_all()?;
            holds(&path, &due)?;
        }
    }
    Ok(())
}

fn a_punched_hole_reads_as_zeros(place: &Place) -> Result<()> {
    zeros(place, PUNCH)
}

fn a_punched_hole_gives_blocks_back(place: &Place) -> Result<()> {
    let file = file(place.at("f"), &noise(1, 1 << 20))?;
    file.sync_all()?;
    let before = file.metadata()?.blocks();
    allocate(&file, PUNCH, 256 << 10, 512 << 10)?;
    file.sync_all()?;
    let after = file.metadata()?.blocks();
    ensure!(
        before - after >= 1000,
        "{before} blocks before, {after} after"
    );
    equal(file.metadata()?.len(), 1 << 20)
}

fn punching_behind_the_end_changes_nothing(place: &Place) -> Result<()> {
    let due = noise(1, 5000);
    let file = file(place.at("f"), &due)?;
    allocate(&file, PUNCH, 10_000, 5000)?;
    holds(place.at("f"), &due)?;
    allocate(&file, PUNCH, 4990, 5000)?;
    let mut due = noise(1, 4990);
    due.resize(5000, 0);
    holds(place.at("f"), &due)
}

fn punching_without_keep_size_is_eopnotsupp(place: &Place) -> Result<()> {
    let file = file(place.at("f"), b"content")?;
    refused(allocate(&file, Mode::PUNCH_HOLE, 0, 1), Errno::OPNOTSUPP)
}

fn a_zeroed_range_reads_as_zeros(place: &Place) -> Result<()> {
    zeros(place, Mode::ZERO_RANGE)?;
    let file = file(place.at("grown"), b"x")?;
    allocate(&file, Mode::ZERO_RANGE, 0, 10_000)?;
    holds(place.at("grown"), &[0; 10_000])
}

fn zeroing_with_keep_size_keeps_the_size(place: &Place) -> Result<()> {
    let file = file(place.at("f"), &noise(1, 5000))?;
    allocate(&file, Mode::ZERO_RANGE | Mode::KEEP_SIZE, 4000, 10_000)?;
    let mut due = noise(1, 4000);
    due.resize(5000, 0);
    holds(place.at("f"), &due)
}

/// True when the call worked; false when it is cleanly not offered and the file is as before.
fn offered(
    place: &Place,
    file: &File,
    mode: Mode,
    offset: u64,
    len: u64,
    before: &[u8],
) -> Result<bool> {
    match allocate(file, mode, offset, len) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP) => holds(place.at("f"), before).map(|()| false),
        Err(error) => Err(error.into()),
    }
}

fn collapsing_works_or_is_eopnotsupp(place: &Place) -> Result<()> {
    let before = noise(6, 50_000);
    let file = file(place.at("f"), &before)?;
    if offered(place, &file, Mode::COLLAPSE_RANGE, 8192, 16_384, &before)? {
        holds(
            place.at("f"),
            &[&before[..8192], &before[24_576..]].concat(),
        )?;
        refused(allocate(&file, Mode::COLLAPSE_RANGE, 1, 4096), Errno::INVAL)?;
    }
    Ok(())
}

fn inserting_works_or_is_eopnotsupp(place: &Place) -> Result<()> {
    let before = noise(6, 50_000);
    let file = file(place.at("f"), &before)?;
    if offered(place, &file, Mode::INSERT_RANGE, 8192, 16_384, &before)? {
        holds(
            place.at("f"),
            &[&before[..8192], &[0; 16_384], &before[8192..]].concat(),
        )?;
        refused(allocate(&file, Mode::INSERT_RANGE, 1, 4096), Errno::INVAL)?;
    }
    Ok(())
}

fn bad_arguments_are_refused(place: &Place) -> Result<()> {
    let file = file(place.at("f"), b"content")?;
    let reader = open(place.at("f"), OFlags::RDONLY)?;
    refused(allocate(&file, Mode::empty(), 0, 0), Errno::INVAL)?;
    refused(allocate(&file, Mode::empty(), u64::MAX, 1), Errno::INVAL)?;
    refused(
        allocate(&file, Mode::empty(), i64::MAX as u64, 1),
        Errno::FBIG,
    )?;
    refused(allocate(&reader, Mode::empty(), 0, 1), Errno::BADF)?;
    refused(
        allocate(&file, Mode::COLLAPSE_RANGE | Mode::KEEP_SIZE, 0, 4096),
        Errno::OPNOTSUPP,
    )?;
    refused(
        allocate(&file, Mode::from_bits_retain(0x4000), 0, 1),
        Errno::OPNOTSUPP,
    )?;
    holds(place.at("f"), b"content")
}

fn what_is_no_regular_file_is_refused(place: &Place) -> Result<()> {
    rustix::fs::mkfifoat(CWD, place.at("fifo"), 0o644.into())?;
    let fifo = open(place.at("fifo"), OFlags::RDWR)?;
    refused(allocate(&fifo, Mode::empty(), 0, 1), Errno::SPIPE)?;
    let dir = open(&place.dir, OFlags::RDONLY)?;
    refused(allocate(&dir, Mode::empty(), 0, 1), Errno::BADF)
}

fn random_calls_equal_those_in_memory(place: &Place) -> Result<()> {
    let file = file(place.at("f"), b"")?;
    let mut due: Vec<u8> = Vec::new();
    let mut dice = Noise(21);
    for step in 0..600u64 {
        let (at, len) = (
            dice.below(300_000) as usize,
            1 + dice.below(60_000) as usize,
        );
        let end = at + len;
        let zero = |due: &mut Vec<u8>| {
            let (at, end) = (at.min(due.len()), end.min(due.len()));
            due[at..end].fill(0);
        };
        match dice.below(6) {
            0 => {
                allocate(&file, Mode::empty(), at as u64, len as u64)?;
                due.resize(due.len().max(end), 0);
            }
            1 => allocate(&file, Mode::KEEP_SIZE, at as u64, len as u64)?,
            2 => {
                allocate(&file, PUNCH, at as u64, len as u64)?;
                zero(&mut due);
            }
            3 => {
                allocate(&file, Mode::ZERO_RANGE, at as u64, len as u64)?;
                zero(&mut due);
                due.resize(due.len().max(end), 0);
            }
            4 => {
                file.set_len(at as u64)?;
                due.resize(at, 0);
            }
            _ => {
                let bytes = noise(step, len);
                file.write_all_at(&bytes, at as u64)?;
                due.resize(due.len().max(end), 0);
                due[at..end].copy_from_slice(&bytes);
            }
        }
        if step % 11 == 0 {
            file.sync_data()?;
        }
        if step % 5 == 0 {
            holds(place.at("f"), &due).with_context(|| format!("step {step}"))?;
        }
    }
    holds(place.at("f"), &due)
}

fn it_moves_the_times(place: &Place) -> Result<()> {
    let file = file(place.at("f"), &noise(1, 10_000))?;
    let grow = || Ok(allocate(&file, Mode::empty(), 0, 20_000)?);
    equal(moved(place.at("f"), grow)?.ctime, true)?;
    equal(
        moved(place.at("f"), || Ok(allocate(&file, PUNCH, 0, 5000)?))?,
        BOTH,
    )
}
