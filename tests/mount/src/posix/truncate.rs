//! truncate and ftruncate.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{CWD, OFlags};
use rustix::io::Errno;

use super::expect::*;
use crate::check::Place;
use crate::sys::BOB;

super::statements!("truncate":
    a_file_is_cut_at_any_byte,
    a_file_grows_with_zeros,
    what_was_cut_off_never_comes_back,
    cutting_gives_blocks_back,
    it_needs_write_permission,
    it_needs_a_descriptor_for_writing,
    it_refuses_what_is_no_regular_file,
    a_negative_length_is_einval,
    a_length_beyond_every_file_is_refused,
    it_moves_content_and_inode_time,
    random_lengths_and_writes_equal_those_in_memory,
    a_large_file_can_be_cut_and_grown_again,
);

fn truncate(path: impl AsRef<Path>, len: i64) -> rustix::io::Result<()> {
    crate::sys::truncate(path.as_ref(), len)
}

fn a_file_is_cut_at_any_byte(place: &Place) -> Result<()> {
    let due = noise(3, 20_000);
    for len in [0, 1, 100, 4095, 4096, 4097, 8192, 12_345, 19_999, 20_000] {
        for synced in [false, true] {
            let path = place.at(format!("{len}-{synced}"));
            let file = file(&path, &due)?;
            if synced {
                file.sync_all()?;
            }
            truncate(&path, len)?;
            equal(meta(&path)?.len(), len as u64)?;
            holds(&path, &due[..len as usize])?;
        }
    }
    Ok(())
}

fn a_file_grows_with_zeros(place: &Place) -> Result<()> {
    for len in [6, 4096, 4097, 100_000, 3_000_000] {
        let path = place.at(len.to_string());
        file(&path, b"start")?;
        truncate(&path, len)?;
        let mut due = b"start".to_vec();
        due.resize(len as usize, 0);
        holds(&path, &due)?;
    }
    Ok(())
}

fn what_was_cut_off_never_comes_back(place: &Place) -> Result<()> {
    for cut in [0usize, 10, 4096, 5000, 9999] {
        for synced in [false, true] {
            let path = place.at(format!("{cut}-{synced}"));
            let file = file(&path, &noise(9, 10_000))?;
            if synced {
                file.sync_all()?;
            }
            file.set_len(cut as u64)?;
            if synced {
                file.sync_all()?;
            }
            file.set_len(10_000)?;
            let mut due = noise(9, cut);
            due.resize(10_000, 0);
            holds(&path, &due).with_context(|| format!("cut at {cut}, synced {synced}"))?;
        }
    }
    Ok(())
}

fn cutting_gives_blocks_back(place: &Place) -> Result<()> {
    let path = place.at("file");
    let file = file(&path, &noise(1, 1 << 20))?;
    file.sync_all()?;
    let full = meta(&path)?.blocks();
    anyhow::ensure!(full >= 2048, "{full} blocks for 1 MiB");
    file.set_len(512 << 10)?;
    file.sync_all()?;
    let half = meta(&path)?.blocks();
    anyhow::ensure!((1024..=1056).contains(&half), "{half} blocks for half");
    file.set_len(0)?;
    file.sync_all()?;
    equal(meta(&path)?.blocks(), 0)
}

fn it_needs_write_permission(place: &Place) -> Result<()> {
    file(place.at("file"), b"content")?;
    BOB.run(|| refused(truncate(place.at("file"), 0), Errno::ACCESS))?;
    holds(place.at("file"), b"content")
}

fn it_needs_a_descriptor_for_writing(place: &Place) -> Result<()> {
    file(place.at("file"), b"content")?;
    let reader = open(place.at("file"), OFlags::RDONLY)?;
    refused(rustix::fs::ftruncate(&reader, 0), Errno::INVAL)?;
    holds(place.at("file"), b"content")
}

fn it_refuses_what_is_no_regular_file(place: &Place) -> Result<()> {
    dir(place.at("d"))?;
    rustix::fs::mkfifoat(CWD, place.at("fifo"), 0o644.into())?;
    file(place.at("file"), b"")?;
    refused(truncate(place.at("d"), 0), Errno::ISDIR)?;
    refused(truncate(place.at("fifo"), 0), Errno::INVAL)?;
    refused(truncate(place.at("none"), 0), Errno::NOENT)?;
    refused(truncate(place.at("file/x"), 0), Errno::NOTDIR)
}

fn a_negative_length_is_einval(place: &Place) -> Result<()> {
    file(place.at("file"), b"content")?;
    refused(truncate(place.at("file"), -1), Errno::INVAL)?;
    holds(place.at("file"), b"content")
}

fn a_length_beyond_every_file_is_refused(place: &Place) -> Result<()> {
    // Either the filesystem's largest file is smaller, or it holds a file of this length.
    file(place.at("file"), b"content")?;
    match truncate(place.at("file"), i64::MAX) {
        Ok(()) => equal(meta(place.at("file"))?.len(), i64::MAX as u64),
        Err(Errno::FBIG | Errno::INVAL) => holds(place.at("file"), b"content"),
        Err(error) => Err(error.into()),
    }
}

fn it_moves_content_and_inode_time(place: &Place) -> Result<()> {
    let path = place.at("file");
    file(&path, b"content")?;
    equal(moved(&path, || Ok(truncate(&path, 3)?))?, BOTH)?;
    equal(moved(&path, || Ok(truncate(&path, 3000)?))?, BOTH)
}

fn random_lengths_and_writes_equal_those_in_memory(place: &Place) -> Result<()> {
    let path = place.at("file");
    let file = file(&path, b"")?;
    let mut due: Vec<u8> = Vec::new();
    let mut dice = Noise(11);
    for step in 0..400 {
        let len = dice.below(40_000) as usize;
        file.set_len(len as u64)?;
        due.resize(len, 0);
        let at = dice.below(40_000) as usize;
        let bytes = noise(step, 1 + dice.below(5000) as usize);
        file.write_all_at(&bytes, at as u64)?;
        if due.len() < at + bytes.len() {
            due.resize(at + bytes.len(), 0);
        }
        due[at..at + bytes.len()].copy_from_slice(&bytes);
        if step % 7 == 0 {
            file.sync_data()?;
        }
        holds(&path, &due).with_context(|| format!("step {step}"))?;
    }
    Ok(())
}

fn a_large_file_can_be_cut_and_grown_again(place: &Place) -> Result<()> {
    let path = place.at("file");
    let due = noise(12, 8 << 20);
    let file = file(&path, &due)?;
    file.sync_all()?;
    for len in [5_000_001u64, 100, 8 << 20, 0, 4 << 20] {
        file.set_len(len)?;
    }
    holds(&path, &vec![0; 4 << 20])
}
