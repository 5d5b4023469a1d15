//! Writes without any sync.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Result, ensure};

use super::Worker;
use super::stamp::{BLOCK, stamped, version};
use crate::posix::expect::Noise;

/// Overwrites large parts of a file without any sync: anything written may be there, nothing else.
pub(super) struct Unsynced {
    versions: u64,
    dice: Noise,
}

impl Default for Unsynced {
    fn default() -> Self {
        Unsynced {
            versions: 0,
            dice: Noise(3),
        }
    }
}

impl Unsynced {
    const BLOCKS: u64 = 2048;
}

impl Worker for Unsynced {
    fn name(&self) -> &'static str {
        "unsynced"
    }

    fn step(&mut self, dir: &Path) -> Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let file = options.open(dir.join("file"))?;
        self.versions += 1;
        let from = self.dice.below(Unsynced::BLOCKS - 64);
        if self.dice.below(50) == 0 {
            file.set_len(from * BLOCK as u64)?;
        }
        let blocks: Vec<u8> = (from..from + 1 + self.dice.below(63))
            .flat_map(|place| stamped(place, self.versions))
            .collect();
        file.write_all_at(&blocks, from * BLOCK as u64)?;
        Ok(())
    }

    fn verify(&mut self, dir: &Path) -> Result<()> {
        let path = dir.join("file");
        if !path.exists() {
            return Ok(());
        }
        let found = std::fs::read(&path)?;
        ensure!(
            found.len() as u64 <= Unsynced::BLOCKS * BLOCK as u64,
            "it is too long"
        );
        for (place, block) in found.chunks(BLOCK).enumerate() {
            let found = version(place as u64, block)?;
            ensure!(found <= self.versions, "block {place} is of the future");
        }
        Ok(())
    }
}
