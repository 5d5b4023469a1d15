//! A full volume: ENOSPC when writing, never later, and ways out of it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::posix::expect::{Noise, errno, noise, same_bytes};
use crate::scenario::{Scenario, TestBed};
use crate::snapshot::sync_tree;

const SIZE: u64 = 256 << 20;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "full::writing_ends_in_enospc_and_everything_written_is_kept",
        run: writing_ends_in_enospc_and_everything_written_is_kept,
        limit_seconds: 200,
        only_persimmon: false,
    },
    Scenario {
        name: "full::creating_ends_in_enospc_and_removing_works",
        run: creating_ends_in_enospc_and_removing_works,
        limit_seconds: 900,
        only_persimmon: false,
    },
    Scenario {
        name: "full::allocated_space_can_be_written",
        run: allocated_space_can_be_written,
        limit_seconds: 200,
        only_persimmon: false,
    },
    Scenario {
        name: "full::filling_and_emptying_ten_times",
        run: filling_and_emptying_ten_times,
        limit_seconds: 300,
        only_persimmon: false,
    },
];

/// Writes files of `bytes` numbered from 0 until the volume is full; how many are whole.
fn fill(dir: &Path, bytes: usize) -> Result<u64> {
    for number in 0.. {
        let path = dir.join(number.to_string());
        let result = errno(std::fs::write(&path, noise(number, bytes)));
        match result {
            Ok(()) => {}
            Err(Errno::NOSPC) => {
                // The piece that did not fit may be there in part, or not at all.
                if path.exists() {
                    std::fs::remove_file(&path)?;
                }
                return Ok(number);
            }
            Err(error) => return Err(error).with_context(|| format!("writing file {number}")),
        }
    }
    bail!("it never was full")
}

fn verify(dir: &Path, files: u64, bytes: usize) -> Result<()> {
    for number in 0..files {
        let found = std::fs::read(dir.join(number.to_string()))?;
        same_bytes(&found, &noise(number, bytes)).with_context(|| format!("file {number}"))?;
    }
    Ok(())
}

fn writing_ends_in_enospc_and_everything_written_is_kept(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("full-write", SIZE, &[])?;
    volume.mount(&[])?;
    let files = fill(&volume.dir, 1 << 20)?;
    // What was accepted must reach the device: a full volume refuses at the write, not at the sync.
    sync_tree(&volume.dir)?;
    ensure!(
        files << 20 > SIZE / 2,
        "only {files} MiB of {} fitted",
        SIZE >> 20
    );
    let stat = rustix::fs::statvfs(&volume.dir)?;
    let left = stat.f_bavail * stat.f_frsize;
    ensure!(
        left < SIZE / 20,
        "{left} bytes are called available on a full volume"
    );
    verify(&volume.dir, files, 1 << 20)?;
    volume.unmount()?;
    volume.fsck()?;
    volume.mount(&[])?;
    verify(&volume.dir, files, 1 << 20)?;
    // Removing makes room for as much again, and overwriting in place goes on working.
    for number in 0..files / 2 {
        std::fs::remove_file(volume.dir.join(number.to_string()))?;
    }
    let file = OpenOptions::new()
        .write(true)
        .open(volume.dir.join((files - 1).to_string()))?;
    for round in 0..50 {
        file.write_all_at(&noise(round, 1 << 20), 0)?;
        file.sync_all()?;
    }
    drop(file);
    let again = volume.dir.join("again");
    std::fs::create_dir(&again)?;
    let more = fill(&again, 1 << 20)?;
    ensure!(
        more + 8 >= files / 2,
        "{more} files fit after {} went",
        files / 2
    );
    verify(&again, more, 1 << 20)?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

fn creating_ends_in_enospc_and_removing_works(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("full-create", SIZE / 4, &[])?;
    volume.mount(&[])?;
    let files = fill(&volume.dir, 700)?;
    ensure!(files > 1000, "only {files} files");
    sync_tree(&volume.dir)?;
    verify(&volume.dir, files, 700)?;
    // Every way to shrink works on a full volume: truncation, renaming over a file, removal.
    for number in 0..20 {
        OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(volume.dir.join(number.to_string()))
            .context("truncating on a full volume")?;
    }
    for number in 20..40u64 {
        let (from, to) = (number.to_string(), (number + 20).to_string());
        std::fs::rename(volume.dir.join(from), volume.dir.join(to))
            .context("renaming on a full volume")?;
    }
    for entry in std::fs::read_dir(&volume.dir)? {
        let path = entry?.path();
        if path.is_file() {
            std::fs::remove_file(path).context("removing from a full volume")?;
        }
    }
    sync_tree(&volume.dir)?;
    let again = fill(&volume.dir, 700)?;
    ensure!(
        again > files * 9 / 10,
        "{again} files fit after {files} had"
    );
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

fn allocated_space_can_be_written(bed: &TestBed) -> Result<()> {
    const BYTES: u64 = 32 << 20;
    let mut volume = bed.volume("full-allocate", SIZE, &[])?;
    volume.mount(&[])?;
    let file = File::create_new(volume.dir.join("allocated"))?;
    // A first byte, which may be kept with the inode, changes nothing of the promise.
    file.write_all_at(b"x", 0)?;
    file.sync_all()?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, BYTES)?;
    let rest = volume.dir.join("rest");
    std::fs::create_dir(&rest)?;
    let files = fill(&rest, 1 << 20)?;
    sync_tree(&volume.dir)?;
    let more = rustix::fs::fallocate(&file, FallocateFlags::empty(), BYTES, SIZE);
    ensure!(
        more == Err(Errno::NOSPC),
        "allocating more than there is: {more:?}"
    );
    let mut order: Vec<u64> = (0..BYTES >> 16).collect();
    let mut dice = Noise(5);
    for at in (1..order.len()).rev() {
        order.swap(at, dice.below(at as u64 + 1) as usize);
    }
    for part in &order {
        file.write_all_at(&noise(*part, 1 << 16), part << 16)
            .context("writing to allocated space on a full volume")?;
    }
    file.sync_all()?;
    drop(file);
    let found = std::fs::read(volume.dir.join("allocated"))?;
    for part in order {
        let at = (part << 16) as usize;
        same_bytes(&found[at..at + (1 << 16)], &noise(part, 1 << 16))?;
    }
    verify(&rest, files, 1 << 20)?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

fn filling_and_emptying_ten_times(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("full-cycles", SIZE / 2, &[])?;
    volume.mount(&[])?;
    let mut first = None;
    for round in 0..10 {
        let dir = volume.dir.join(round.to_string());
        std::fs::create_dir(&dir)?;
        let files = fill(&dir, 200_000).with_context(|| format!("round {round}"))?;
        let first = *first.get_or_insert(files);
        ensure!(
            files * 100 >= first * 95,
            "round {round}: {files} files, {first} at first"
        );
        verify(&dir, files, 200_000)?;
        std::fs::remove_dir_all(&dir)?;
        let mut note = OpenOptions::new()
            .append(true)
            .create(true)
            .open(volume.dir.join("note"))?;
        writeln!(note, "round {round}")?;
        sync_tree(&volume.dir)?;
    }
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}
