//! read and write: positions, holes, sizes, and many at once.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use anyhow::{Result, ensure};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;

super::statements!("io":
    reading_ends_at_the_end,
    a_write_past_the_end_leaves_zeros_between,
    a_small_write_changes_only_its_bytes,
    an_empty_write_changes_nothing,
    vectors_are_read_and_written_in_order,
    positions_belong_to_the_open_file_description,
    seeking_before_the_start_is_refused,
    a_write_is_seen_at_once_through_every_descriptor,
    random_writes_equal_the_same_writes_in_memory,
    a_large_write_arrives_whole,
    appends_of_many_threads_are_neither_lost_nor_torn,
    writers_of_one_file_at_different_places_do_not_disturb,
);

fn reading_ends_at_the_end(place: &Place) -> Result<()> {
    let file = file(place.at("file"), b"0123456789")?;
    let mut buffer = [0; 8];
    equal(file.read_at(&mut buffer, 6)?, 4)?;
    equal(&buffer[..4], b"6789")?;
    equal(file.read_at(&mut buffer, 10)?, 0)?;
    equal(file.read_at(&mut buffer, 1 << 40)?, 0)?;
    equal(file.read_at(&mut [], 0)?, 0)
}

fn a_write_past_the_end_leaves_zeros_between(place: &Place) -> Result<()> {
    for gap in [1u64, 4095, 4096, 4097, 100_000, 10_000_000] {
        let path = place.at(gap.to_string());
        let file = file(&path, b"start")?;
        file.write_all_at(b"end", 5 + gap)?;
        let mut due = b"start".to_vec();
        due.resize(5 + gap as usize, 0);
        due.extend_from_slice(b"end");
        holds(&path, &due)?;
    }
    Ok(())
}

fn a_small_write_changes_only_its_bytes(place: &Place) -> Result<()> {
    let mut due = noise(10, 3 * 4096 + 100);
    let path = place.at("file");
    let file = file(&path, &due)?;
    file.sync_all()?;
    for (at, len) in [(0, 1), (4095, 2), (8191, 1), (5000, 100), (12_288, 50)] {
        let bytes = noise(at, len);
        file.write_all_at(&bytes, at)?;
        due[at as usize..at as usize + len].copy_from_slice(&bytes);
        holds(&path, &due)?;
    }
    file.sync_all()?;
    holds(&path, &due)
}

fn an_empty_write_changes_nothing(place: &Place) -> Result<()> {
    let path = place.at("file");
    let file = file(&path, b"x")?;
    equal(moved(&path, || Ok(file.write_at(b"", 100)?))?, NEITHER)?;
    holds(&path, b"x")
}

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

fn a_write_is_seen_at_once_through_every_descriptor(place: &Place) -> Result<()> {
    let path = place.at("file");
    let writer = file(&path, b"")?;
    let reader = open(&path, OFlags::RDONLY)?;
    for round in 0..200u64 {
        let bytes = noise(round, 700);
        writer.write_all_at(&bytes, round * 500)?;
        equal(reader.metadata()?.len(), round * 500 + 700)?;
        let mut seen = vec![0; 700];
        reader.read_exact_at(&mut seen, round * 500)?;
        same_bytes(&seen, &bytes)?;
    }
    Ok(())
}

fn random_writes_equal_the_same_writes_in_memory(place: &Place) -> Result<()> {
    let path = place.at("file");
    let file = file(&path, b"")?;
    let mut due: Vec<u8> = Vec::new();
    let mut dice = Noise(7);
    for step in 0..3000u64 {
        let at = dice.below(600_000);
        match dice.below(20) {
            0 => {
                file.set_len(at)?;
                due.resize(at as usize, 0);
            }
            1 => file.sync_data()?,
            2..=7 => {
                let mut seen = vec![0; dice.below(50_000) as usize];
                let got = file.read_at(&mut seen, at)?;
                let end = due.len().min(at as usize + seen.len());
                let part = due.get(at as usize..end).unwrap_or_default();
                same_bytes(&seen[..got], part)?;
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
    holds(&path, &due)
}

fn a_large_write_arrives_whole(place: &Place) -> Result<()> {
    let due = noise(5, 32 << 20);
    let mut file = file(place.at("file"), b"")?;
    file.write_all(&due)?;
    same_bytes(&content(&file)?, &due)?;
    file.sync_all()?;
    drop(file);
    holds(place.at("file"), &due)
}

fn appends_of_many_threads_are_neither_lost_nor_torn(place: &Place) -> Result<()> {
    const THREADS: u32 = 4;
    const RECORDS: u32 = 500;
    let path = place.at("log");
    file(&path, b"")?;
    let work = |thread: u32| -> Result<()> {
        let mut log = open(&path, OFlags::WRONLY | OFlags::APPEND)?;
        for record in 0..RECORDS {
            let line = format!("{thread:04} {record:06} {}\n", "x".repeat(87));
            equal(log.write(line.as_bytes())?, 100)?;
        }
        Ok(())
    };
    in_threads(THREADS, work)?;
    let text = String::from_utf8(std::fs::read(&path)?)?;
    let mut next = [0; THREADS as usize];
    for line in text.lines() {
        ensure!(line.len() == 99, "torn line {line:?}");
        let thread: usize = line[..4].parse()?;
        equal(line[5..11].parse::<u32>()?, next[thread])?;
        next[thread] += 1;
    }
    equal(next, [RECORDS; THREADS as usize])
}

fn writers_of_one_file_at_different_places_do_not_disturb(place: &Place) -> Result<()> {
    const SLOT: u64 = 3000; // Neighbours share blocks.
    let path = place.at("file");
    let file: File = file(&path, b"")?;
    in_threads(4, |thread| {
        for slot in (u64::from(thread)..400).step_by(4) {
            file.write_all_at(&noise(slot, SLOT as usize), slot * SLOT)?;
        }
        Ok(())
    })?;
    let due: Vec<u8> = (0..400)
        .flat_map(|slot| noise(slot, SLOT as usize))
        .collect();
    holds(&path, &due)
}
