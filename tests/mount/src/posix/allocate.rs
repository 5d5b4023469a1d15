//! fallocate in all its modes.

use std::fs::File;

use anyhow::Result;
use rustix::fs::{CWD, FallocateFlags as Mode, OFlags};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;

super::statements!("allocate":
    collapsing_works_or_is_eopnotsupp,
    inserting_works_or_is_eopnotsupp,
    bad_arguments_are_refused,
    what_is_no_regular_file_is_refused,
);

fn allocate(file: &File, mode: Mode, offset: u64, len: u64) -> rustix::io::Result<()> {
    rustix::fs::fallocate(file, mode, offset, len)
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
