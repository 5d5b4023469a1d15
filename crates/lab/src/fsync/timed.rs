//! Volumes on a device in virtual time, files on them, and what happens while clients use them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use persimmon_device::BLOCK_SIZE;
use persimmon_engine::{Deltas, FormatOptions, FsyncOrder, Options, Statistics, Task, Volume};
use persimmon_format::Ino;
use persimmon_format::inode::Timestamp;

use super::{Noise, Outcome};
use crate::chores::nameless_file;
use crate::measure::MeasureError;
use persimmon_sim::time::{Client, Player, Timing, Turn, VirtualClock};
use persimmon_sim::{Counters, SimConfig, SimDevice};

/// Of a zone: 32 MiB.
const ZONE_BLOCKS: u32 = 8192;
/// Zones that are open and active at most.
const ACTIVE: u32 = 14;
/// How often a mount looks whether a checkpoint is due.
const TICK: Duration = Duration::from_millis(50);
/// Blocks of one write while a file is made.
const PIECE_BLOCKS: u64 = 256;

/// A volume on a timed device.
pub struct Timed {
    /// It keeps the time.
    pub device: Arc<SimDevice>,
    /// On it.
    pub volume: Arc<Volume>,
}

/// How to make one.
#[derive(Clone, Copy)]
pub struct Setup {
    /// Power-loss protection: no volatile cache.
    pub plp: bool,
    /// Order of data and record in an fsync.
    pub order: FsyncOrder,
    /// Zones of 32 MiB.
    pub zones: u32,
    /// Which blocks are written as deltas.
    pub deltas: Deltas,
}

impl Setup {
    /// On 96 zones.
    #[must_use]
    pub fn new(plp: bool, order: FsyncOrder) -> Setup {
        Setup {
            plp,
            order,
            zones: 96,
            deltas: Deltas::None,
        }
    }

    /// How it is opened.
    #[must_use]
    pub fn options(self) -> Options {
        Options {
            fsync: self.order,
            deltas: self.deltas,
            ..Options::default()
        }
    }

    /// A new one, opened.
    ///
    /// # Errors
    /// The volume.
    pub fn volume(self) -> Outcome<Timed> {
        let mut config = SimConfig::new(self.zones, ZONE_BLOCKS)
            .limits(Some(ACTIVE), Some(ACTIVE))
            .fast()
            .timed(Timing::default());
        if !self.plp {
            config = config.volatile_cache();
        }
        let device = Arc::new(SimDevice::new(config));
        Volume::format(Arc::clone(&device) as _, &FormatOptions::default())?;
        let (volume, _) = Volume::open(Arc::clone(&device) as _, self.options())?;
        Ok(Timed {
            device,
            volume: Arc::new(volume),
        })
    }
}

/// What happened between two moments.
pub struct Sample {
    /// Virtual time.
    pub time: Duration,
    /// What the volume counted.
    pub statistics: Statistics,
    /// What the device counted.
    pub counters: Counters,
}

impl Timed {
    /// The clock of the device.
    ///
    /// # Errors
    /// There is none.
    pub fn clock(&self) -> Outcome<&VirtualClock> {
        let clock = self.device.clock();
        clock.ok_or_else(|| MeasureError::Plan("the device has no clock".into()))
    }

    /// A file of `blocks` blocks, written in order, without a name.
    ///
    /// # Errors
    /// The volume.
    pub fn file(&self, blocks: u64, noise: &mut Noise) -> Outcome<Ino> {
        let ino = nameless_file(&self.volume)?;
        for block in (0..blocks).step_by(PIECE_BLOCKS as usize) {
            let len = PIECE_BLOCKS.min(blocks - block) as usize * BLOCK_SIZE;
            let offset = block * BLOCK_SIZE as u64;
            self.volume
                .write(ino, offset, noise.bytes(len), Timestamp::default())?;
        }
        self.volume.sync()?;
        Ok(ino)
    }

    /// Overwrites every block of a file once on average, at random and unsynced: its extents are
    /// as scattered as they get.
    ///
    /// # Errors
    /// The volume.
    pub fn age(&self, ino: Ino, blocks: u64, noise: &mut Noise) -> Outcome<()> {
        self.age_by(ino, blocks, 1, noise)
    }

    /// The same by pieces of so many blocks.
    ///
    /// # Errors
    /// The volume.
    pub fn age_by(&self, ino: Ino, blocks: u64, piece: u64, noise: &mut Noise) -> Outcome<()> {
        let len = piece as usize * BLOCK_SIZE;
        for _ in 0..blocks / piece {
            let offset = noise.below(blocks / piece) * len as u64;
            self.volume
                .write(ino, offset, noise.bytes(len), Timestamp::default())?;
        }
        self.volume.sync()?;
        self.volume.step(Task::Checkpoint)?;
        Ok(())
    }

    /// Runs clients in threads, and one more that writes checkpoints when they are due. The sample ends with
    /// the last of `clients`.
    ///
    /// # Errors
    /// What a client met, or the clock.
    pub fn run<'a>(&'a self, clients: Vec<Client<'a, Outcome<()>>>) -> Outcome<Sample> {
        let clock = self.clock()?;
        let before = self.moment()?;
        let at_work = AtomicUsize::new(clients.len());
        let at_work = &at_work;
        let mut all: Vec<Client<'_, Outcome<Option<Moment>>>> = Vec::new();
        for client in clients {
            all.push(Box::new(move || {
                let result = client();
                at_work.fetch_sub(1, Ordering::Relaxed);
                result?;
                self.moment().map(Some)
            }));
        }
        all.push(Box::new(move || {
            while at_work.load(Ordering::Relaxed) > 0 {
                clock.sleep(TICK);
                self.volume.step(Task::CheckpointIfDue)?;
            }
            Ok(None)
        }));
        let mut last: Option<Moment> = None;
        for end in clock.run(all)? {
            let end = end?;
            if end.as_ref().map(|end| end.time) > last.as_ref().map(|end| end.time) {
                last = end;
            }
        }
        let end = last.ok_or_else(|| MeasureError::Plan("there are no clients".into()))?;
        Ok(end.since(&before))
    }

    /// Lets one client do its rounds, and then what comes last, while another writes checkpoints when they are due. There are
    /// no threads: the same is measured each time.
    ///
    /// # Errors
    /// What the client met, or the clock.
    pub fn rounds(
        &self,
        count: u64,
        mut round: impl FnMut(u64) -> Outcome<()>,
        last: impl Fn() -> Outcome<()>,
    ) -> Outcome<Sample> {
        let before = self.moment()?;
        let (mut done, mut end) = (0, None);
        let client: Player<'_, MeasureError> = Box::new(|| {
            if done < count {
                round(done)?;
                done += 1;
                return Ok(Turn::Again(Duration::ZERO));
            }
            last()?;
            end = Some(self.moment()?);
            Ok(Turn::Over)
        });
        let checkpoints: Player<'_, MeasureError> = Box::new(|| {
            self.volume.step(Task::CheckpointIfDue)?;
            Ok(Turn::Again(TICK))
        });
        self.clock()?.play(vec![client], vec![checkpoints])?;
        let end = end.ok_or_else(|| MeasureError::Plan("the client did not end".into()))?;
        Ok(end.since(&before))
    }

    fn moment(&self) -> Outcome<Moment> {
        Ok(Moment {
            time: self.clock()?.now(),
            statistics: self.volume.statistics(),
            counters: self.device.counters(),
        })
    }
}

struct Moment {
    time: Duration,
    statistics: Statistics,
    counters: Counters,
}

impl Moment {
    fn since(&self, before: &Moment) -> Sample {
        Sample {
            time: self.time - before.time,
            statistics: self.statistics.since(&before.statistics),
            counters: counters_since(&self.counters, &before.counters),
        }
    }
}

fn counters_since(now: &Counters, before: &Counters) -> Counters {
    Counters {
        reads: now.reads - before.reads,
        read_blocks: now.read_blocks - before.read_blocks,
        writes: now.writes - before.writes,
        write_blocks: now.write_blocks - before.write_blocks,
        appends: now.appends - before.appends,
        append_blocks: now.append_blocks - before.append_blocks,
        resets: now.resets - before.resets,
        finishes: now.finishes - before.finishes,
        opens: now.opens - before.opens,
        closes: now.closes - before.closes,
        flushes: now.flushes - before.flushes,
        errors: now.errors - before.errors,
    }
}
