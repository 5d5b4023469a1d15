//! Overwrites through a descriptor that syncs each write.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::stamp::{BLOCK, stamped, version};
use super::{Worker, sync_dir};
use crate::posix::expect::Noise;

/// Blocks of the file.
const BLOCKS: u64 = 512;

/// Overwrites runs of blocks of one file through `O_DSYNC` or `O_SYNC`.
pub(super) struct Blocks {
    name: &'static str,
    flag: i32,
    /// Blocks written at once at most.
    run_max: u64,
    acknowledged: Vec<u64>,
    /// What is being overwritten: each of these blocks may have its next version.
    pending: Range<usize>,
    /// Versions are given out in order, so that the next of each block is known.
    dice: Noise,
    file: Option<File>,
}

impl Blocks {
    pub fn new(name: &'static str, flag: i32, run_max: u64) -> Blocks {
        Blocks {
            name,
            flag,
            run_max,
            acknowledged: vec![0; BLOCKS as usize],
            pending: 0..0,
            dice: Noise(1),
            file: None,
        }
    }
}

impl Worker for Blocks {
    fn name(&self) -> &'static str {
        self.name
    }

    fn step(&mut self, _: &Path) -> Result<()> {
        let file = self.file.as_ref().context("the file of this round")?;
        let start = self.dice.below(BLOCKS);
        let end = BLOCKS.min(start + 1 + self.dice.below(self.run_max));
        self.pending = start as usize..end as usize;
        let run: Vec<u8> = (start..end)
            .flat_map(|place| stamped(place, self.acknowledged[place as usize] + 1))
            .collect();
        file.write_all_at(&run, start * BLOCK as u64)?;
        for version in &mut self.acknowledged[self.pending.clone()] {
            *version += 1;
        }
        self.pending = 0..0;
        Ok(())
    }

    fn verify(&mut self, dir: &Path) -> Result<()> {
        let path = dir.join("file");
        if !path.exists() {
            ensure!(
                self.acknowledged.iter().all(|version| *version == 0),
                "it is gone"
            );
            let file = File::create(&path)?;
            file.set_len(BLOCKS * BLOCK as u64)?;
            file.sync_all()?;
            sync_dir(dir)?;
        }
        let found = std::fs::read(&path)?;
        ensure!(
            found.len() == self.acknowledged.len() * BLOCK,
            "size {}",
            found.len()
        );
        for (place, block) in found.chunks(BLOCK).enumerate() {
            let found = version(place as u64, block)?;
            let due = self.acknowledged[place];
            ensure!(
                found == due || (self.pending.contains(&place) && found == due + 1),
                "block {place} has version {found}, {due} was acknowledged"
            );
            self.acknowledged[place] = found;
        }
        self.pending = 0..0;
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(self.flag);
        self.file = Some(options.open(&path)?);
        Ok(())
    }

    fn let_go(&mut self) {
        self.file = None;
    }
}
