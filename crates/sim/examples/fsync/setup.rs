//! Devices, volumes and files to measure on, and what is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use persimmon_engine::{
    Error, FormatOptions, FsyncOrder, Intent, Options, Statistics, Task, Volume,
};
use persimmon_format::Ino;
use persimmon_format::inode::{Inode, Timestamp};
use persimmon_sim::time::{Client, Timing, VirtualClock};
use persimmon_sim::{Counters, SimConfig, SimDevice};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub type Failure = Box<dyn std::error::Error + Send + Sync>;
pub type Outcome<T> = Result<T, Failure>;

pub const BLOCK: usize = 4096;
/// Of a zone: 32 MiB.
pub const ZONE_BLOCKS: u32 = 8192;
/// Zones that are open and active at most.
const ACTIVE: u32 = 14;
/// How often a mount looks whether a checkpoint is due.
const TICK: Duration = Duration::from_millis(50);

/// A volume on a timed device.
pub struct Timed {
    pub device: Arc<SimDevice>,
    pub volume: Arc<Volume>,
}

/// How to make one.
#[derive(Clone, Copy)]
pub struct Setup {
    /// Power-loss protection: no volatile cache.
    pub plp: bool,
    pub order: FsyncOrder,
    pub zones: u32,
}

impl Setup {
    pub fn new(plp: bool, order: FsyncOrder) -> Setup {
        Setup {
            plp,
            order,
            zones: 96,
        }
    }

    pub fn options(self) -> Options {
        Options {
            fsync: self.order,
            ..Options::default()
        }
    }

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
    pub time: Duration,
    pub statistics: Statistics,
    pub counters: Counters,
}

impl Timed {
    pub fn clock(&self) -> Outcome<&VirtualClock> {
        self.device.clock().ok_or_else(|| "no clock".into())
    }

    /// A file of `blocks` blocks, written in order, without a name.
    pub fn file(&self, blocks: u64, noise: &mut Noise) -> Outcome<Ino> {
        let ino = self.volume.update::<_, Error>(Intent::Grow, |tx| {
            let ino = tx.new_ino();
            let inode = Inode {
                mode: 0o100_644,
                nlink: 1,
                ..Inode::default()
            };
            tx.put_inode(ino, &inode);
            Ok(ino)
        })?;
        let piece = 256;
        for block in (0..blocks).step_by(piece as usize) {
            let len = piece.min(blocks - block) as usize * BLOCK;
            let offset = block * BLOCK as u64;
            self.volume
                .write(ino, offset, noise.bytes(len), Timestamp::default())?;
        }
        self.volume.sync()?;
        Ok(ino)
    }

    /// Overwrites every block of a file once on average, at random and unsynced: its extents are
    /// as scattered as they get.
    pub fn age(&self, ino: Ino, blocks: u64, noise: &mut Noise) -> Outcome<()> {
        self.age_by(ino, blocks, 1, noise)
    }

    /// The same by pieces of so many blocks.
    pub fn age_by(&self, ino: Ino, blocks: u64, piece: u64, noise: &mut Noise) -> Outcome<()> {
        let len = piece as usize * BLOCK;
        for _ in 0..blocks / piece {
            let offset = noise.below(blocks / piece) * len as u64;
            self.volume
                .write(ino, offset, noise.bytes(len), Timestamp::default())?;
        }
        self.volume.sync()?;
        self.volume.step(Task::Checkpoint)?;
        Ok(())
    }

    /// Runs clients, and one more that writes checkpoints when they are due. The sample ends with
    /// the last of `clients`.
    pub fn run<'a>(&'a self, clients: Vec<Client<'a, Outcome<()>>>) -> Outcome<Sample> {
        let clock = self.clock()?;
        let (start, before) = (clock.now(), self.volume.statistics());
        let counters = self.device.counters();
        let at_work = AtomicUsize::new(clients.len());
        let at_work = &at_work;
        let mut all: Vec<Client<'_, Outcome<Option<End>>>> = Vec::new();
        for client in clients {
            all.push(Box::new(move || {
                let result = client();
                at_work.fetch_sub(1, Ordering::Relaxed);
                result?;
                Ok(Some(End {
                    time: clock.now(),
                    statistics: self.volume.statistics(),
                    counters: self.device.counters(),
                }))
            }));
        }
        all.push(Box::new(move || {
            while at_work.load(Ordering::Relaxed) > 0 {
                clock.sleep(TICK);
                self.volume.step(Task::CheckpointIfDue)?;
            }
            Ok(None)
        }));
        let mut last: Option<End> = None;
        for end in clock.run(all)? {
            let end = end?;
            if end.as_ref().map(|end| end.time) > last.as_ref().map(|end| end.time) {
                last = end;
            }
        }
        let end = last.ok_or("no clients")?;
        Ok(Sample {
            time: end.time - start,
            statistics: end.statistics.since(&before),
            counters: counters_since(&end.counters, &counters),
        })
    }
}

/// A moment.
struct End {
    time: Duration,
    statistics: Statistics,
    counters: Counters,
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
        flushes: now.flushes - before.flushes,
        ..*now
    }
}

/// Microseconds.
pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// A row's mark, and its share of the bars missed.
pub fn verdict(holds: bool) -> (&'static str, u32) {
    if holds { ("yes", 0) } else { ("**no**", 1) }
}

/// Random offsets, and bytes that do not compress.
pub struct Noise {
    rng: ChaCha8Rng,
    pool: Vec<u8>,
}

impl Noise {
    pub fn new(seed: u64) -> Noise {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut pool = vec![0; 2 << 20];
        rng.fill(&mut pool[..]);
        Noise { rng, pool }
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.rng.random_range(0..limit)
    }

    /// At most 1 MiB.
    pub fn bytes(&mut self, len: usize) -> &[u8] {
        let at = self.rng.random_range(0..self.pool.len() - len);
        self.pool.get(at..at + len).unwrap_or_default()
    }
}
