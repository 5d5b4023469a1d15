//! What a volume really holds: files are written until there is no more room, and then all of them again. Space that
//! statfs promises and a write does not find, or that can be filled once and not overwritten, comes out here.

use std::sync::Arc;

use persimmon_device::BLOCK_SIZE;
use persimmon_engine::{Error, FormatOptions, Options, Volume};
use persimmon_format::Ino;
use persimmon_format::inode::Timestamp;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::chores::{background, nameless_file};
use persimmon_sim::device::pattern;
use persimmon_sim::{SimConfig, SimDevice};

/// Blocks of one write in file order.
const PIECE_BLOCKS: u64 = 256;
/// Blocks of a file at most.
const FILE_BLOCKS_MAX: u64 = 1 << 18;
/// Files at least, where the volume has the room.
const FILES_MIN: u64 = 16;
/// Blocks written between two looks at what is due in the background.
const TICK_BLOCKS: u64 = 2048;
/// Blocks that are read back.
const READ_BACK: u64 = 20_000;

/// In which order everything is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One file after the other, each from its beginning, in pieces of 1 MiB.
    Files,
    /// Each block for itself, in an order without any.
    Scattered,
}

/// A volume, and what is done to it.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Zones.
    pub zones: u32,
    /// Blocks of each.
    pub zone_blocks: u32,
    /// Zones open and active at most; `None`: any number.
    pub active_max: Option<u32>,
    /// Reserve of the volume, in hundredths of a percent; `None`: what a volume has if nobody says.
    pub reserve_basis_points: Option<u32>,
    /// Pages changed between two checkpoints.
    pub dirty_pages_max: usize,
    /// Zones of so many blocks are large.
    pub large_zone_blocks: u32,
    /// Order of writing again.
    pub order: Order,
    /// How often everything is written again.
    pub passes: f64,
    /// Of an order without any, and of what is read back.
    pub seed: u64,
}

/// What the volume held.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Bytes of the drive.
    pub drive_bytes: u64,
    /// Bytes that users may fill, as statfs told when nothing was written.
    pub total_bytes: u64,
    /// Bytes of files when there was no more room.
    pub written_bytes: u64,
    /// Everything sent to the drive while they were written again, for each of their bytes.
    pub write_amplification: f64,
}

struct Filled<'a> {
    volume: &'a Volume,
    files: Vec<(Ino, Vec<u64>)>,
    next_pattern: u64,
    until_tick: u64,
    bytes: Vec<u8>,
}

impl Room {
    fn mount(&self, device: &Arc<SimDevice>) -> Result<Volume, String> {
        let options = Options {
            dirty_pages_max: self.dirty_pages_max,
            large_zone_blocks: self.large_zone_blocks,
            ..Options::default()
        };
        persimmon_engine::invariant::panic_on_bugs();
        let opened = Volume::open(Arc::clone(device) as _, options);
        let (volume, _) = opened.map_err(|error| format!("mounting: {error}"))?;
        Ok(volume)
    }

    /// Does it.
    ///
    /// # Errors
    /// What failed, or was not as it was written.
    pub fn run(&self) -> Result<Held, String> {
        let config = SimConfig::new(self.zones, self.zone_blocks)
            .limits(self.active_max, self.active_max)
            .patterns();
        let device = Arc::new(SimDevice::new(config));
        let format = FormatOptions {
            reserve_basis_points: self.reserve_basis_points,
            ..FormatOptions::default()
        };
        let made = Volume::format(Arc::clone(&device) as _, &format);
        made.map_err(|error| format!("making a volume: {error}"))?;
        let volume = self.mount(&device)?;
        let total_bytes = volume.space().total_bytes;
        let mut filled = Filled {
            volume: &volume,
            files: Vec::new(),
            next_pattern: 1,
            until_tick: TICK_BLOCKS,
            bytes: vec![0; PIECE_BLOCKS as usize * BLOCK_SIZE],
        };
        filled.fill(total_bytes / BLOCK_SIZE as u64)?;
        let written_bytes = filled.blocks() * BLOCK_SIZE as u64;
        let before = volume.statistics();
        filled.write_again(self)?;
        volume.sync().map_err(|error| format!("syncing: {error}"))?;
        let done = volume.statistics().since(&before);
        let files = filled.files;
        let closed = volume.close();
        closed.map_err(|error| format!("unmounting: {error}"))?;
        drop(volume);
        read_back(&self.mount(&device)?, &files, self.seed)?;
        Ok(Held {
            drive_bytes: u64::from(self.zones) * u64::from(self.zone_blocks) * BLOCK_SIZE as u64,
            total_bytes,
            written_bytes,
            write_amplification: done.write_amplification(),
        })
    }
}

impl Filled<'_> {
    /// Writes files until there is no more room.
    fn fill(&mut self, blocks: u64) -> Result<(), String> {
        let file_blocks = (blocks / FILES_MIN).clamp(1, FILE_BLOCKS_MAX);
        loop {
            let ino = match nameless_file(self.volume) {
                Ok(ino) => ino,
                Err(Error::NoSpace) => return Ok(()),
                Err(error) => return Err(format!("making a file: {error}")),
            };
            self.files.push((ino, Vec::new()));
            for block in (0..file_blocks).step_by(PIECE_BLOCKS as usize) {
                let count = PIECE_BLOCKS.min(file_blocks - block);
                let written = self.write(self.files.len() - 1, block, count)?;
                if written < count {
                    let synced = self.volume.sync();
                    return synced.map_err(|error| format!("syncing the full volume: {error}"));
                }
            }
        }
    }

    /// Blocks of files.
    fn blocks(&self) -> u64 {
        self.files.iter().map(|(_, b)| b.len() as u64).sum()
    }

    fn write_again(&mut self, room: &Room) -> Result<(), String> {
        let piece = match room.order {
            Order::Files => PIECE_BLOCKS,
            Order::Scattered => 1,
        };
        let mut pieces = Vec::new();
        for (file, (_, numbers)) in self.files.iter().enumerate() {
            let starts = (0..numbers.len() as u64).step_by(piece as usize);
            pieces.extend(starts.map(|block| (file as u32, block as u32)));
        }
        if room.order == Order::Scattered {
            pieces.shuffle(&mut ChaCha8Rng::seed_from_u64(room.seed));
        }
        let count = (pieces.len() as f64 * room.passes) as usize;
        for (file, block) in pieces.iter().cycle().take(count) {
            let (file, block) = (*file as usize, u64::from(*block));
            let end = self.files.get(file).map_or(0, |(_, b)| b.len() as u64);
            let blocks = piece.min(end - block);
            let written = self.write(file, block, blocks)?;
            if written < blocks {
                return Err(format!(
                    "writing block {block} of file {file} again: no room"
                ));
            }
        }
        Ok(())
    }

    /// Writes, and answers how many blocks found room.
    fn write(&mut self, file: usize, block: u64, count: u64) -> Result<u64, String> {
        let Some((ino, numbers)) = self.files.get_mut(file) else {
            return Ok(0);
        };
        let bytes = self.bytes.get_mut(..count as usize * BLOCK_SIZE);
        let bytes = bytes.unwrap_or_default();
        pattern::fill(bytes, self.next_pattern);
        let offset = block * BLOCK_SIZE as u64;
        let done = self.volume.write(*ino, offset, bytes, Timestamp::default());
        let written = match done {
            Ok(written) => (written / BLOCK_SIZE) as u64,
            Err(Error::NoSpace) => 0,
            Err(error) => return Err(format!("writing: {error}")),
        };
        let length = numbers.len().max((block + written) as usize);
        numbers.resize(length, 0);
        let places = numbers.iter_mut().skip(block as usize);
        for (place, number) in places.take(written as usize).zip(self.next_pattern..) {
            *place = number;
        }
        self.next_pattern += count;
        self.until_tick = self.until_tick.saturating_sub(count);
        if self.until_tick == 0 {
            self.until_tick = TICK_BLOCKS;
            background(self.volume).map_err(|error| format!("background work: {error}"))?;
        }
        Ok(written)
    }
}

fn read_back(volume: &Volume, files: &[(Ino, Vec<u64>)], seed: u64) -> Result<(), String> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mut read, mut expected) = (vec![0; BLOCK_SIZE], vec![0; BLOCK_SIZE]);
    let written: Vec<_> = files.iter().filter(|(_, b)| !b.is_empty()).collect();
    for _ in 0..READ_BACK {
        let Some((ino, numbers)) = written.get(rng.random_range(0..written.len().max(1))) else {
            return Err("nothing could be written".to_owned());
        };
        let block = rng.random_range(0..numbers.len());
        let done = volume.read(*ino, (block * BLOCK_SIZE) as u64, &mut read);
        done.map_err(|error| format!("reading: {error}"))?;
        let number = numbers.get(block).copied().unwrap_or_default();
        pattern::fill(&mut expected, number);
        if read != expected {
            return Err(format!(
                "block {block} of inode {} is not what was written",
                ino.0
            ));
        }
    }
    Ok(())
}
