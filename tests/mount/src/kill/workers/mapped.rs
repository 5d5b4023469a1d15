//! Stores into a shared map, made durable by msync or fsync.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::stamp::{BLOCK, is_mixture, stamped, version};
use super::{Worker, sync_dir};
use crate::posix::expect::Noise;
use crate::sys::{Map, memory_file};

/// Blocks of the file.
const BLOCKS: usize = 128;

/// Stores blocks through a map and syncs some of them, or all.
pub(super) struct Mapped {
    /// Version of each block that is durable.
    acknowledged: Vec<u64>,
    /// The newest version of each that may have been stored.
    stored: Vec<u64>,
    dice: Noise,
    round: Option<Round>,
}

/// What is kept open from one mount to the next kill.
struct Round {
    file: File,
    map: Map,
    /// Where blocks are read into the map from.
    source: File,
}

impl Default for Mapped {
    fn default() -> Self {
        Mapped {
            acknowledged: vec![0; BLOCKS],
            stored: vec![0; BLOCKS],
            dice: Noise(4),
            round: None,
        }
    }
}

impl Worker for Mapped {
    fn name(&self) -> &'static str {
        "mapped"
    }

    fn step(&mut self, _: &Path) -> Result<()> {
        let round = self.round.as_ref().context("the map of this round")?;
        let start = self.dice.below(BLOCKS as u64) as usize;
        let end = BLOCKS.min(start + 1 + self.dice.below(4) as usize);
        for place in start..end {
            self.stored[place] += 1;
            let block = stamped(place as u64, self.stored[place]);
            round.source.write_all_at(&block, 0)?;
            round.map.read_into(place * BLOCK, BLOCK, &round.source)?;
        }
        let durable = match self.dice.below(5) {
            0..=2 => {
                round.map.sync_range(start * BLOCK, (end - start) * BLOCK)?;
                start..end
            }
            3 => {
                round.file.sync_data()?;
                0..BLOCKS
            }
            // The next sync of all is theirs too.
            _ => 0..0,
        };
        for place in durable {
            self.acknowledged[place] = self.stored[place];
        }
        Ok(())
    }

    fn verify(&mut self, dir: &Path) -> Result<()> {
        let path = dir.join("file");
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(&path)?;
        if self.acknowledged.iter().all(|version| *version == 0) {
            file.set_len((BLOCKS * BLOCK) as u64)?;
        }
        let found = std::fs::read(&path)?;
        ensure!(found.len() == BLOCKS * BLOCK, "size {}", found.len());
        for (place, block) in found.chunks(BLOCK).enumerate() {
            let (due, newest) = (self.acknowledged[place], self.stored[place]);
            if due == newest {
                let found = version(place as u64, block)?;
                ensure!(
                    found == due,
                    "block {place} has version {found}, {due} was acknowledged"
                );
                continue;
            }
            // A page may be written back while it is being stored to.
            ensure!(
                is_mixture(place as u64, due..=newest, block),
                "block {place} holds none of the versions {due} to {newest}"
            );
            file.write_all_at(&stamped(place as u64, newest), (place * BLOCK) as u64)?;
            self.acknowledged[place] = newest;
        }
        file.sync_all()?;
        sync_dir(dir)?;
        let map = Map::new(&file, BLOCKS * BLOCK, true)?;
        let source = memory_file("a block", BLOCK as u64)?;
        self.round = Some(Round { file, map, source });
        Ok(())
    }

    fn let_go(&mut self) {
        self.round = None;
    }
}
