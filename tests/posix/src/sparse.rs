//! Files with more holes than data, up to the largest offsets.

use anyhow::{Result, ensure};

use crate::door::{Door, OpenFile};
use crate::expect::*;

crate::table!("sparse":
    holes_take_no_space,
    a_byte_at_each_power_of_two_up_to_8_tib,
    the_last_byte_below_8_eib_can_be_written,
    a_huge_file_can_be_cut_and_removed,
    a_write_across_many_holes_fills_them,
);

fn holes_take_no_space(d: &impl Door) -> Result<()> {
    let file = d.file("f", b"")?;
    file.truncate(1 << 40)?;
    equal(file.stat()?.blocks, 0)?;
    file.write_all_at(b"x", 1 << 39)?;
    file.sync()?;
    let blocks = file.stat()?.blocks;
    ensure!((1..=64).contains(&blocks), "{blocks} blocks for one byte");
    equal(file.read((1 << 39) - 1, 3)?, vec![0, b'x', 0])
}

fn write_and_read(file: &impl OpenFile, at: u64) -> Result<()> {
    let bytes = noise(at, 100);
    file.write_all_at(&bytes, at)?;
    same_bytes(&file.read(at, 100)?, &bytes)
}

fn a_byte_at_each_power_of_two_up_to_8_tib(d: &impl Door) -> Result<()> {
    let file = d.file("f", b"")?;
    for power in 10..=43 {
        write_and_read(&file, (1 << power) - 50)?;
        equal(file.stat()?.size, (1 << power) + 50)?;
    }
    file.sync()?;
    for power in 10..=43u32 {
        same_bytes(
            &file.read((1 << power) - 50, 100)?,
            &noise((1 << power) - 50, 100),
        )?;
    }
    Ok(())
}

fn the_last_byte_below_8_eib_can_be_written(d: &impl Door) -> Result<()> {
    let file = d.file("f", b"")?;
    // The kernel itself ends at i64::MAX - 4096 for whole pages.
    let at = (i64::MAX as u64 & !4095) - 4096;
    write_and_read(&file, at)?;
    equal(file.stat()?.size, at + 100)?;
    file.sync()?;
    write_and_read(&file, at + 1000)?;
    equal(file.read(1 << 62, 10)?, vec![0; 10])
}

fn a_huge_file_can_be_cut_and_removed(d: &impl Door) -> Result<()> {
    let file = d.file("f", b"")?;
    for step in 0..200u64 {
        file.write_all_at(&noise(step, 5000), step << 32)?;
    }
    file.sync()?;
    file.truncate(100 << 32)?;
    file.sync()?;
    let blocks = file.stat()?.blocks;
    ensure!(blocks <= 100 * 24, "{blocks} blocks left");
    same_bytes(&file.read(99 << 32, 5000)?, &noise(99, 5000))?;
    drop(file);
    d.unlink("f")?;
    d.gone("f")
}

fn a_write_across_many_holes_fills_them(d: &impl Door) -> Result<()> {
    let file = d.file("f", b"")?;
    for step in 0..100u64 {
        file.write_all_at(b"island", step * 10_000)?;
    }
    file.sync()?;
    let due = noise(1, 1_000_000);
    file.write_all_at(&due, 0)?;
    d.holds("f", &due)
}
