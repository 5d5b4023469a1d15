//! truncate and ftruncate.

use anyhow::{Context, Result, ensure};

use crate::door::{Door, OpenFile};
use crate::expect::*;

crate::table!("truncate":
    a_file_is_cut_at_any_byte,
    a_file_grows_with_zeros,
    what_was_cut_off_never_comes_back,
    cutting_gives_blocks_back,
    it_moves_content_and_inode_time,
    random_lengths_and_writes_equal_those_in_memory,
    a_large_file_can_be_cut_and_grown_again,
);

fn a_file_is_cut_at_any_byte(d: &impl Door) -> Result<()> {
    let due = noise(3, 20_000);
    for len in [0, 1, 100, 4095, 4096, 4097, 8192, 12_345, 19_999, 20_000] {
        for synced in [false, true] {
            let path = format!("{len}-{synced}");
            let file = d.file(&path, &due)?;
            if synced {
                file.sync()?;
            }
            d.truncate(&path, len)?;
            equal(d.stat(&path)?.size, len)?;
            d.holds(&path, &due[..len as usize])?;
        }
    }
    Ok(())
}

fn a_file_grows_with_zeros(d: &impl Door) -> Result<()> {
    for len in [6, 4096, 4097, 100_000, 3_000_000] {
        let path = len.to_string();
        d.file(&path, b"start")?;
        d.truncate(&path, len)?;
        let mut due = b"start".to_vec();
        due.resize(len as usize, 0);
        d.holds(&path, &due)?;
    }
    Ok(())
}

fn what_was_cut_off_never_comes_back(d: &impl Door) -> Result<()> {
    for cut in [0usize, 10, 4096, 5000, 9999] {
        for synced in [false, true] {
            let path = format!("{cut}-{synced}");
            let file = d.file(&path, &noise(9, 10_000))?;
            if synced {
                file.sync()?;
            }
            file.truncate(cut as u64)?;
            if synced {
                file.sync()?;
            }
            file.truncate(10_000)?;
            let mut due = noise(9, cut);
            due.resize(10_000, 0);
            d.holds(&path, &due)
                .with_context(|| format!("cut at {cut}, synced {synced}"))?;
        }
    }
    Ok(())
}

fn cutting_gives_blocks_back(d: &impl Door) -> Result<()> {
    let file = d.file("file", &noise(1, 1 << 20))?;
    file.sync()?;
    let full = d.stat("file")?.blocks;
    ensure!(full >= 2048, "{full} blocks for 1 MiB");
    file.truncate(512 << 10)?;
    file.sync()?;
    let half = d.stat("file")?.blocks;
    ensure!((1024..=1056).contains(&half), "{half} blocks for half");
    file.truncate(0)?;
    file.sync()?;
    equal(d.stat("file")?.blocks, 0)
}

fn it_moves_content_and_inode_time(d: &impl Door) -> Result<()> {
    d.file("file", b"content")?;
    equal(d.moved("file", || Ok(d.truncate("file", 3)?))?, BOTH)?;
    equal(d.moved("file", || Ok(d.truncate("file", 3000)?))?, BOTH)
}

fn random_lengths_and_writes_equal_those_in_memory(d: &impl Door) -> Result<()> {
    let file = d.file("file", b"")?;
    let mut due: Vec<u8> = Vec::new();
    let mut dice = Noise(11);
    for step in 0..400 {
        let len = dice.below(40_000) as usize;
        file.truncate(len as u64)?;
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
        d.holds("file", &due)
            .with_context(|| format!("step {step}"))?;
    }
    Ok(())
}

fn a_large_file_can_be_cut_and_grown_again(d: &impl Door) -> Result<()> {
    let due = noise(12, 8 << 20);
    let file = d.file("file", &due)?;
    file.sync()?;
    for len in [5_000_001u64, 100, 8 << 20, 0, 4 << 20] {
        file.truncate(len)?;
    }
    d.holds("file", &vec![0; 4 << 20])
}
