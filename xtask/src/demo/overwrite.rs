//! A volume 85 % full, overwritten at random until the cleaner has worked.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Page;
use super::counters::Counters;
use crate::volume::{Noise, Volume, go_on};

const BLOCK: usize = 4096;
/// Written at once at most, blocks.
const RUN_BLOCKS_MAX: usize = 64;
/// Blocks that the cleaner must have moved.
const MOVED_MIN: u64 = 5_000;
const PATIENCE: Duration = Duration::from_secs(40);

pub fn show(page: &mut Page, volume: &Volume, counters: &mut Counters) -> Result<()> {
    let mut versions = Vec::new();
    page.step("overwrite, 85 % full", || {
        let stat = rustix::fs::statvfs(&volume.dir)?;
        let bytes = stat.f_bavail * stat.f_frsize * 85 / 100;
        versions = vec![0; usize::try_from(bytes)? / BLOCK];
        overwrite(volume, &mut versions)
    })?;
    page.step("read it all back", || {
        counters.add(volume)?;
        volume.unmount()?;
        volume.mount()?;
        compare(volume, &versions)?;
        counters.add(volume)?;
        volume.unmount()?;
        let said = volume.fsck()?;
        volume.mount()?;
        Ok(format!(
            "remounted: all {} blocks hold what was written last; fsck --data: {said}",
            versions.len()
        ))
    })
}

/// What a block holds in its `version`.
fn content(block: usize, version: u32, bytes: &mut [u8]) {
    Noise((block as u64) << 32 | u64::from(version)).fill(bytes);
}

fn write(file: &File, versions: &[u32], first: usize, count: usize) -> Result<()> {
    let mut bytes = vec![0; count * BLOCK];
    for (at, bytes) in bytes.chunks_mut(BLOCK).enumerate() {
        content(first + at, versions[first + at], bytes);
    }
    let offset = (first * BLOCK) as u64;
    file.write_all_at(&bytes, offset)
        .with_context(|| format!("writing {count} blocks at block {first}"))
}

fn overwrite(volume: &Volume, versions: &mut [u32]) -> Result<String> {
    let file = File::create(volume.dir.join("overwritten"))?;
    for first in (0..versions.len()).step_by(RUN_BLOCKS_MAX) {
        let count = RUN_BLOCKS_MAX.min(versions.len() - first);
        write(&file, versions, first, count)?;
    }
    let (mut dice, mut blocks, start) = (Noise(1), 0, Instant::now());
    loop {
        go_on()?;
        for _ in 0..200 {
            // Sizes from 4 KiB to 256 KiB, each power of two as often.
            let count = 1 << dice.below(7);
            let first = dice.below((versions.len() - count) as u64) as usize;
            for version in &mut versions[first..first + count] {
                *version += 1;
            }
            write(&file, versions, first, count)?;
            blocks += count;
        }
        let moved = volume.json("stats", &volume.dir)?["blocks_moved"].as_u64();
        let moved = moved.context("a counter of blocks moved")?;
        if moved >= MOVED_MIN && blocks >= versions.len() {
            file.sync_all()?;
            return Ok(format!(
                "{} MiB filled, {} MiB overwritten; the cleaner moved {moved} blocks",
                (versions.len() * BLOCK) >> 20,
                (blocks * BLOCK) >> 20
            ));
        }
        ensure!(
            start.elapsed() < PATIENCE,
            "the cleaner moved only {moved} blocks while {blocks} were overwritten"
        );
    }
}

fn compare(volume: &Volume, versions: &[u32]) -> Result<()> {
    let file = File::open(volume.dir.join("overwritten"))?;
    let (mut found, mut expected) = (vec![0; BLOCK], vec![0; BLOCK]);
    for (block, version) in versions.iter().enumerate() {
        file.read_exact_at(&mut found, (block * BLOCK) as u64)
            .with_context(|| format!("reading block {block}"))?;
        content(block, *version, &mut expected);
        ensure!(
            found == expected,
            "block {block} is not of version {version}"
        );
    }
    Ok(())
}
