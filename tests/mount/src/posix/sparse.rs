//! Files with more holes than data, up to the largest offsets.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use anyhow::{Result, ensure};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;

super::statements!("sparse":
    holes_take_no_space,
    a_byte_at_each_power_of_two_up_to_8_tib,
    the_last_byte_below_8_eib_can_be_written,
    a_write_past_the_largest_offset_is_refused,
    a_huge_file_can_be_cut_and_removed,
    a_write_across_many_holes_fills_them,
);

fn holes_take_no_space(place: &Place) -> Result<()> {
    let file = file(place.at("f"), b"")?;
    file.set_len(1 << 40)?;
    equal(file.metadata()?.blocks(), 0)?;
    file.write_all_at(b"x", 1 << 39)?;
    file.sync_all()?;
    let blocks = file.metadata()?.blocks();
    ensure!((1..=64).contains(&blocks), "{blocks} blocks for one byte");
    let mut bytes = [9; 3];
    file.read_exact_at(&mut bytes, (1 << 39) - 1)?;
    equal(bytes, [0, b'x', 0])
}

fn write_and_read(file: &File, at: u64) -> Result<()> {
    let bytes = noise(at, 100);
    file.write_all_at(&bytes, at)?;
    let mut seen = vec![0; 100];
    file.read_exact_at(&mut seen, at)?;
    same_bytes(&seen, &bytes)
}

fn a_byte_at_each_power_of_two_up_to_8_tib(place: &Place) -> Result<()> {
    let file = file(place.at("f"), b"")?;
    for power in 10..=43 {
        write_and_read(&file, (1 << power) - 50)?;
        equal(file.metadata()?.len(), (1 << power) + 50)?;
    }
    file.sync_all()?;
    for power in 10..=43u32 {
        let mut seen = vec![0; 100];
        file.read_exact_at(&mut seen, (1 << power) - 50)?;
        same_bytes(&seen, &noise((1 << power) - 50, 100))?;
    }
    Ok(())
}

fn the_last_byte_below_8_eib_can_be_written(place: &Place) -> Result<()> {
    let file = file(place.at("f"), b"")?;
    // The kernel itself ends at i64::MAX - 4096 for whole pages.
    let at = (i64::MAX as u64 & !4095) - 4096;
    write_and_read(&file, at)?;
    equal(file.metadata()?.len(), at + 100)?;
    file.sync_all()?;
    write_and_read(&file, at + 1000)?;
    let mut seen = [1; 10];
    file.read_exact_at(&mut seen, 1 << 62)?;
    equal(seen, [0; 10])
}

fn a_write_past_the_largest_offset_is_refused(place: &Place) -> Result<()> {
    let file = file(place.at("f"), b"")?;
    let write = file.write_at(b"xx", i64::MAX as u64);
    refused_with(errno(write), &[Errno::FBIG, Errno::INVAL])?;
    equal(file.metadata()?.len(), 0)
}

fn a_huge_file_can_be_cut_and_removed(place: &Place) -> Result<()> {
    let file = file(place.at("f"), b"")?;
    for step in 0..200u64 {
        file.write_all_at(&noise(step, 5000), step << 32)?;
    }
    file.sync_all()?;
    file.set_len(100 << 32)?;
    file.sync_all()?;
    let blocks = file.metadata()?.blocks();
    ensure!(blocks <= 100 * 24, "{blocks} blocks left");
    let mut seen = vec![0; 5000];
    file.read_exact_at(&mut seen, 99 << 32)?;
    same_bytes(&seen, &noise(99, 5000))?;
    drop(file);
    std::fs::remove_file(place.at("f"))?;
    gone(place.at("f"))
}

fn a_write_across_many_holes_fills_them(place: &Place) -> Result<()> {
    let file = file(place.at("f"), b"")?;
    for step in 0..100u64 {
        file.write_all_at(b"island", step * 10_000)?;
    }
    file.sync_all()?;
    let due = noise(1, 1_000_000);
    file.write_all_at(&due, 0)?;
    holds(place.at("f"), &due)
}
