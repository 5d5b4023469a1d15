//! read and write: positions, holes, sizes, and many at once.

use std::io::{IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use anyhow::Result;
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;

super::statements!("io":
    vectors_are_read_and_written_in_order,
    positions_belong_to_the_open_file_description,
    seeking_before_the_start_is_refused,
    a_write_past_the_largest_offset_is_refused,
);

fn vectors_are_read_and_written_in_order(place: &Place) -> Result<()> {
    let mut file = file(place.at("file"), b"")?;
    let parts = [noise(1, 5000), noise(2, 1), noise(3, 9000)];
    let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    equal(file.write_vectored(&slices)?, 14_001)?;
    same_bytes(&content(&file)?, &parts.concat())?;
    let (mut one, mut two) = (vec![0; 10], vec![0; 13_991]);
    file.seek(SeekFrom::Start(0))?;
    let mut slices = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
    equal(file.read_vectored(&mut slices)?, 14_001)?;
    same_bytes(&[one, two].concat(), &parts.concat())
}

fn positions_belong_to_the_open_file_description(place: &Place) -> Result<()> {
    let mut first = file(place.at("file"), b"abcdef")?;
    first.seek(SeekFrom::Start(2))?;
    let mut twin = first.try_clone()?;
    let mut other = edit(place.at("file"))?;
    let mut byte = [0];
    twin.read_exact(&mut byte)?;
    equal(byte, *b"c")?;
    first.read_exact(&mut byte)?;
    equal(byte, *b"d")?;
    other.read_exact(&mut byte)?;
    equal(byte, *b"a")?;
    equal(first.seek(SeekFrom::End(-1))?, 5)?;
    equal(first.seek(SeekFrom::Current(10))?, 15)
}

fn seeking_before_the_start_is_refused(place: &Place) -> Result<()> {
    let mut file = file(place.at("file"), b"abc")?;
    refused(errno(file.seek(SeekFrom::End(-4))), Errno::INVAL)?;
    refused(errno(file.seek(SeekFrom::Current(-10))), Errno::INVAL)
}

fn a_write_past_the_largest_offset_is_refused(place: &Place) -> Result<()> {
    let file = file(place.at("f"), b"")?;
    let write = file.write_at(b"xx", i64::MAX as u64);
    refused_with(errno(write), &[Errno::FBIG, Errno::INVAL])?;
    equal(file.metadata()?.len(), 0)
}
