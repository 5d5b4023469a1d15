//! Appends, each followed by fsync or fdatasync.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::{Result, ensure};

use super::{Worker, sync_dir};
use crate::posix::expect::noise;

/// Appends records and syncs each.
pub(super) struct Appender {
    name: &'static str,
    sync: fn(&File) -> std::io::Result<()>,
    acknowledged: Vec<u8>,
    pending: Vec<u8>,
    steps: u64,
}

impl Appender {
    const BYTES_MAX: usize = 1 << 20;

    pub fn new(name: &'static str, sync: fn(&File) -> std::io::Result<()>) -> Appender {
        Appender {
            name,
            sync,
            acknowledged: Vec::new(),
            pending: Vec::new(),
            steps: 0,
        }
    }
}

impl Worker for Appender {
    fn name(&self) -> &'static str {
        self.name
    }

    fn step(&mut self, dir: &Path) -> Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.append(true).create(true).open(dir.join("log"))?;
        if self.acknowledged.is_empty() {
            sync_dir(dir)?;
        }
        self.steps += 1;
        let len = match self.steps % 9 {
            0 => 70_000,
            1..=3 => 5000,
            _ => 150,
        };
        self.pending = noise(self.steps, len);
        file.write_all(&self.pending)?;
        (self.sync)(&file)?;
        self.acknowledged.append(&mut self.pending);
        Ok(())
    }

    fn verify(&mut self, dir: &Path) -> Result<()> {
        let path = dir.join("log");
        let found = if path.exists() {
            std::fs::read(&path)?
        } else {
            Vec::new()
        };
        ensure!(
            found.len() >= self.acknowledged.len(),
            "{} bytes of {} acknowledged",
            found.len(),
            self.acknowledged.len()
        );
        let (kept, more) = found.split_at(self.acknowledged.len());
        ensure!(kept == self.acknowledged, "acknowledged bytes changed");
        ensure!(
            self.pending.starts_with(more),
            "{} bytes after the acknowledged ones are not those written",
            more.len()
        );
        self.pending.clear();
        self.acknowledged = found;
        if self.acknowledged.len() > Appender::BYTES_MAX {
            std::fs::remove_file(&path)?;
            sync_dir(dir)?;
            self.acknowledged.clear();
        }
        Ok(())
    }
}
