//! What is measured: each row a rate, by two client threads.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};

use crate::volume::Noise;

const THREADS: u32 = 2;
const FILES: u32 = 10_000;
const SMALL_BYTES: usize = 1000;
const LARGE_BYTES: u64 = 256 << 20;
const PIECE: usize = 1 << 20;
const APPENDS: u32 = 300;

/// One row of the table.
pub struct Row {
    /// What is done.
    pub name: &'static str,
    /// Of what so many are done in a second.
    pub unit: &'static str,
    /// The least share of ext4's rate that is good enough.
    pub bar: f64,
    /// Measured on a fresh mount, with the kernel's caches dropped.
    pub cold: bool,
    /// Taken by the filesystem that does nothing too: requests, no data.
    pub requests_alone: bool,
    /// Makes what the row needs, unless it is there; not measured.
    pub prepare: fn(&Path) -> Result<()>,
    /// Does it; the rate.
    pub measure: fn(&Path) -> Result<f64>,
}

/// All rows, each building on what those before it left.
pub const ROWS: &[Row] = &[
    Row {
        name: "create",
        unit: "files/s",
        bar: 0.40,
        cold: false,
        requests_alone: true,
        prepare: make_folders,
        measure: create,
    },
    Row {
        name: "cold stat",
        unit: "files/s",
        bar: 0.40,
        cold: true,
        requests_alone: true,
        prepare: make_files,
        measure: stat,
    },
    Row {
        name: "unlink",
        unit: "files/s",
        bar: 0.40,
        cold: false,
        requests_alone: true,
        prepare: make_files,
        measure: unlink,
    },
    Row {
        name: "small files",
        unit: "files/s",
        bar: 0.40,
        cold: false,
        requests_alone: true,
        prepare: |_| Ok(()),
        measure: create_small,
    },
    Row {
        name: "rm -rf of them",
        unit: "files/s",
        bar: 0.60,
        cold: false,
        requests_alone: true,
        prepare: make_small,
        measure: remove_small,
    },
    Row {
        name: "sequential write",
        unit: "MB/s",
        bar: 0.60,
        cold: false,
        requests_alone: false,
        prepare: |_| Ok(()),
        measure: write,
    },
    Row {
        name: "sequential read",
        unit: "MB/s",
        bar: 0.60,
        cold: true,
        requests_alone: false,
        prepare: make_large,
        measure: read,
    },
    Row {
        name: "4 KiB append + fsync",
        unit: "appends/s",
        bar: 1.00,
        cold: false,
        requests_alone: false,
        prepare: |_| Ok(()),
        measure: append,
    },
];

fn folder(dir: &Path, thread: u32) -> PathBuf {
    dir.join(format!("thread-{thread}"))
}

fn file(dir: &Path, thread: u32, number: u32) -> PathBuf {
    folder(dir, thread).join(format!("file-{number:06}"))
}

fn large(dir: &Path, thread: u32) -> PathBuf {
    dir.join(format!("large-{thread}"))
}

/// Runs `body` in each thread, with its number; the seconds until the last is done.
fn seconds(body: impl Fn(u32) -> Result<()> + Sync) -> Result<f64> {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || body(thread)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .map_err(|_| anyhow!("a client thread panicked"))?
        })
    })?;
    Ok(start.elapsed().as_secs_f64())
}

/// Runs `body` for so many numbers in each thread; how many were done in a second.
fn rate(count: u32, body: impl Fn(u32, u32) -> Result<()> + Sync) -> Result<f64> {
    let seconds = seconds(|thread| (0..count).try_for_each(|number| body(thread, number)))?;
    Ok(f64::from(count * THREADS) / seconds)
}

fn make_folders(dir: &Path) -> Result<()> {
    for thread in 0..THREADS {
        std::fs::create_dir_all(folder(dir, thread))?;
    }
    Ok(())
}

fn make_files(dir: &Path) -> Result<()> {
    make_folders(dir)?;
    if !file(dir, 0, FILES - 1).exists() {
        create(dir)?;
    }
    Ok(())
}

fn create(dir: &Path) -> Result<f64> {
    rate(FILES, |thread, number| {
        File::create_new(file(dir, thread, number))?;
        Ok(())
    })
}

fn stat(dir: &Path) -> Result<f64> {
    rate(FILES, |thread, number| {
        ensure!(std::fs::metadata(file(dir, thread, number))?.is_file());
        Ok(())
    })
}

fn unlink(dir: &Path) -> Result<f64> {
    rate(FILES, |thread, number| {
        Ok(std::fs::remove_file(file(dir, thread, number))?)
    })
}

fn small_folder(dir: &Path, thread: u32) -> PathBuf {
    dir.join(format!("small-{thread}"))
}

/// As a program unpacks an archive: made, written by one call, closed.
fn create_small(dir: &Path) -> Result<f64> {
    let content = noise(SMALL_BYTES);
    for thread in 0..THREADS {
        std::fs::create_dir(small_folder(dir, thread))?;
    }
    rate(FILES, |thread, number| {
        let path = small_folder(dir, thread).join(format!("file-{number:06}"));
        Ok(File::create_new(path)?.write_all(&content)?)
    })
}

fn make_small(dir: &Path) -> Result<()> {
    if !small_folder(dir, 0).exists() {
        create_small(dir)?;
    }
    Ok(())
}

fn remove_small(dir: &Path) -> Result<f64> {
    let seconds = seconds(|thread| Ok(std::fs::remove_dir_all(small_folder(dir, thread))?))?;
    Ok(f64::from(FILES * THREADS) / seconds)
}

fn megabytes_per_second(seconds: f64) -> f64 {
    f64::from(THREADS) * LARGE_BYTES as f64 / 1e6 / seconds
}

fn make_large(dir: &Path) -> Result<()> {
    if !large(dir, 0).exists() {
        write(dir)?;
    }
    Ok(())
}

fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Noise(1).fill(&mut bytes);
    bytes
}

/// Up to the answer of fsync: what is only in memory is not written.
fn write(dir: &Path) -> Result<f64> {
    let piece = noise(PIECE);
    let seconds = seconds(|thread| {
        let mut file = File::create(large(dir, thread))?;
        for _ in 0..LARGE_BYTES / PIECE as u64 {
            file.write_all(&piece)?;
        }
        Ok(file.sync_all()?)
    })?;
    Ok(megabytes_per_second(seconds))
}

fn read(dir: &Path) -> Result<f64> {
    let seconds = seconds(|thread| {
        let mut file = File::open(large(dir, thread))?;
        let mut piece = vec![0; PIECE];
        let mut seen = 0;
        loop {
            match file.read(&mut piece)? {
                0 => break,
                len => seen += len as u64,
            }
        }
        ensure!(seen == LARGE_BYTES, "{seen} bytes read");
        Ok(())
    })?;
    Ok(megabytes_per_second(seconds))
}

fn append(dir: &Path) -> Result<f64> {
    let record = noise(4096);
    let seconds = seconds(|thread| {
        let mut options = OpenOptions::new();
        let path = dir.join(format!("log-{thread}"));
        let mut file = options.append(true).create(true).open(path)?;
        for _ in 0..APPENDS {
            file.write_all(&record)?;
            file.sync_all()?;
        }
        Ok(())
    })?;
    Ok(f64::from(APPENDS * THREADS) / seconds)
}
