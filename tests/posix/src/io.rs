//! read and write: positions, holes, sizes, and many at once.

use anyhow::{Result, ensure};
use rustix::fs::OFlags;

use crate::door::{Door, OpenFile};
use crate::expect::*;

crate::table!("io":
    reading_ends_at_the_end,
    a_write_past_the_end_leaves_zeros_between,
    a_small_write_changes_only_its_bytes,
    an_empty_write_changes_nothing,
    a_write_is_seen_at_once_through_every_descriptor,
    random_writes_equal_the_same_writes_in_memory,
    a_large_write_arrives_whole,
    appends_of_many_threads_are_neither_lost_nor_torn,
    writers_of_one_file_at_different_places_do_not_disturb,
);

fn reading_ends_at_the_end(d: &impl Door) -> Result<()> {
    let file = d.file("file", b"0123456789")?;
    let mut buffer = [0; 8];
    equal(file.read_at(&mut buffer, 6)?, 4)?;
    equal(&buffer[..4], b"6789")?;
    equal(file.read_at(&mut buffer, 10)?, 0)?;
    equal(file.read_at(&mut buffer, 1 << 40)?, 0)?;
    equal(file.read_at(&mut [], 0)?, 0)
}

fn a_write_past_the_end_leaves_zeros_between(d: &impl Door) -> Result<()> {
    for gap in [1u64, 4095, 4096, 4097, 100_000, 10_000_000] {
        let path = gap.to_string();
        let file = d.file(&path, b"start")?;
        file.write_all_at(b"end", 5 + gap)?;
        let mut due = b"start".to_vec();
        due.resize(5 + gap as usize, 0);
        due.extend_from_slice(b"end");
        d.holds(&path, &due)?;
    }
    Ok(())
}

fn a_small_write_changes_only_its_bytes(d: &impl Door) -> Result<()> {
    let mut due = noise(10, 3 * 4096 + 100);
    let file = d.file("file", &due)?;
    file.sync()?;
    for (at, len) in [(0, 1), (4095, 2), (8191, 1), (5000, 100), (12_288, 50)] {
        let bytes = noise(at, len);
        file.write_all_at(&bytes, at)?;
        due[at as usize..at as usize + len].copy_from_slice(&bytes);
        d.holds("file", &due)?;
    }
    file.sync()?;
    d.holds("file", &due)
}

fn an_empty_write_changes_nothing(d: &impl Door) -> Result<()> {
    let file = d.file("file", b"x")?;
    equal(d.moved("file", || Ok(file.write_at(b"", 100)?))?, NEITHER)?;
    d.holds("file", b"x")
}

fn a_write_is_seen_at_once_through_every_descriptor(d: &impl Door) -> Result<()> {
    let writer = d.file("file", b"")?;
    let reader = d.open("file", OFlags::RDONLY, 0)?;
    for round in 0..200u64 {
        let bytes = noise(round, 700);
        writer.write_all_at(&bytes, round * 500)?;
        equal(reader.stat()?.size, round * 500 + 700)?;
        same_bytes(&reader.read(round * 500, 700)?, &bytes)?;
    }
    Ok(())
}

fn random_writes_equal_the_same_writes_in_memory(d: &impl Door) -> Result<()> {
    let file = d.file("file", b"")?;
    let mut due: Vec<u8> = Vec::new();
    let mut dice = Noise(7);
    for step in 0..3000u64 {
        let at = dice.below(600_000);
        match dice.below(20) {
            0 => {
                file.truncate(at)?;
                due.resize(at as usize, 0);
            }
            1 => file.sync_data()?,
            2..=7 => {
                let len = dice.below(50_000) as usize;
                let end = due.len().min(at as usize + len);
                let part = due.get(at as usize..end).unwrap_or_default();
                same_bytes(&file.read(at, len)?, part)?;
            }
            _ => {
                let len = 1 + dice.below(if step % 10 == 0 { 100_000 } else { 6000 }) as usize;
                let bytes = noise(step, len);
                file.write_all_at(&bytes, at)?;
                let end = at as usize + len;
                if due.len() < end {
                    due.resize(end, 0);
                }
                due[at as usize..end].copy_from_slice(&bytes);
            }
        }
    }
    d.holds("file", &due)
}

fn a_large_write_arrives_whole(d: &impl Door) -> Result<()> {
    let due = noise(5, 16 << 20);
    let file = d.file("file", b"")?;
    file.write_all_at(&due, 0)?;
    same_bytes(&file.content()?, &due)?;
    file.sync()?;
    drop(file);
    d.holds("file", &due)
}

fn appends_of_many_threads_are_neither_lost_nor_torn(d: &impl Door) -> Result<()> {
    const THREADS: u32 = 4;
    const RECORDS: u32 = 500;
    d.file("log", b"")?;
    let work = |thread: u32| -> Result<()> {
        let log = d.open("log", OFlags::WRONLY | OFlags::APPEND, 0)?;
        for record in 0..RECORDS {
            let line = format!("{thread:04} {record:06} {}\n", "x".repeat(87));
            equal(log.write_at(line.as_bytes(), 0)?, 100)?;
        }
        Ok(())
    };
    in_threads(THREADS, work)?;
    let text = String::from_utf8(d.edit("log")?.content()?)?;
    let mut next = [0; THREADS as usize];
    for line in text.lines() {
        ensure!(line.len() == 99, "torn line {line:?}");
        let thread: usize = line[..4].parse()?;
        equal(line[5..11].parse::<u32>()?, next[thread])?;
        next[thread] += 1;
    }
    equal(next, [RECORDS; THREADS as usize])
}

fn writers_of_one_file_at_different_places_do_not_disturb(d: &impl Door) -> Result<()> {
    const SLOT: u64 = 3000; // Neighbours share blocks.
    let file = d.file("file", b"")?;
    in_threads(4, |thread| {
        for slot in (u64::from(thread)..400).step_by(4) {
            file.write_all_at(&noise(slot, SLOT as usize), slot * SLOT)?;
        }
        Ok(())
    })?;
    let due: Vec<u8> = (0..400)
        .flat_map(|slot| noise(slot, SLOT as usize))
        .collect();
    d.holds("file", &due)
}
