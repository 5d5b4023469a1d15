//! What commands cost, and the queues in which they wait for their die.

use std::time::Duration;

use persimmon_device::{BLOCK_SIZE, Command, Geometry, ZoneId};

/// Time of a command: a fixed part and one for each KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// For the command, however much it moves.
    pub command: Duration,
    /// For each KiB on top.
    pub per_kib: Duration,
}

impl Cost {
    /// A fixed part and one for each KiB, both in nanoseconds.
    #[must_use]
    pub const fn from_nanos(command: u64, per_kib: u64) -> Cost {
        Cost {
            command: Duration::from_nanos(command),
            per_kib: Duration::from_nanos(per_kib),
        }
    }

    /// Of a command that moves so many blocks.
    #[must_use]
    pub fn of_blocks(&self, blocks: u32) -> Duration {
        let kib = blocks.saturating_mul((BLOCK_SIZE / 1024) as u32);
        self.command
            .saturating_add(self.per_kib.saturating_mul(kib))
    }
}

/// Which zones share a die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dies {
    /// None: all zones work in parallel.
    OnePerZone,
    /// Zone `z` belongs to die `z` modulo this number; 0 counts as 1.
    Striped(u32),
}

/// Which dies a read waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// The one of its zone, like all other commands.
    OfZone,
    /// So many that nothing else waits for: each zone is spread over all of them, a stripe of so many
    /// blocks on each. A read takes its time on each die that it needs, for the stripes that are there.
    Spread {
        /// How many.
        dies: u32,
        /// Blocks of a stripe.
        stripe_blocks: u32,
    },
}

/// How long the commands of a device take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Which zones share a die.
    pub dies: Dies,
    /// Which dies reads wait for.
    pub reads: Reads,
    /// Writes and appends.
    pub write: Cost,
    /// Reads.
    pub read: Cost,
    /// A reset.
    pub reset: Duration,
    /// A finish.
    pub finish: Duration,
    /// An open or a close.
    pub open_close: Duration,
    /// A flush, from its submission; only devices with a volatile cache are sent any.
    pub flush: Duration,
}

impl Default for Timing {
    /// A drive whose zones work in parallel: a write or a read of n KiB takes 10 us + 0.9 us x n, a
    /// flush 600 us, resets, finishes, opens and closes 10 us.
    fn default() -> Timing {
        let transfer = Cost::from_nanos(10_000, 900);
        Timing {
            dies: Dies::OnePerZone,
            reads: Reads::OfZone,
            write: transfer,
            read: transfer,
            reset: transfer.command,
            finish: transfer.command,
            open_close: transfer.command,
            flush: Duration::from_micros(600),
        }
    }
}

impl Timing {
    /// A drive after the Western Digital Ultrastar DC ZN540, as K. Doekemeijer et al. measured it ("Performance
    /// Characterization of NVMe Flash Devices with Zoned Namespaces", CLUSTER 2023), in round figures: a write of 4 KiB takes
    /// some 11 us, and one zone takes about 1 GB/s; reads wait for flash, some 70 us, many at the same time in one zone too,
    /// and are not delayed by writes, which the drive buffers; resetting a full zone takes some 16 ms, finishing one that is
    /// nearly full 3. It keeps what it has completed when power fails.
    #[must_use]
    pub fn zn540() -> Timing {
        Timing {
            reads: Reads::Spread {
                dies: 64,
                stripe_blocks: 4,
            },
            write: Cost::from_nanos(8_000, 900),
            read: Cost::from_nanos(68_000, 700),
            reset: Duration::from_millis(16),
            finish: Duration::from_millis(3),
            ..Timing::default()
        }
    }

    /// A disk with one arm, shingled: a read takes 8 ms wherever it is and 250 MB/s on top, what is written
    /// is buffered and goes out in order.
    #[must_use]
    pub fn disk() -> Timing {
        Timing {
            dies: Dies::Striped(1),
            write: Cost::from_nanos(100_000, 4_000),
            read: Cost::from_nanos(8_000_000, 4_000),
            reset: Duration::from_millis(1),
            finish: Duration::from_millis(1),
            ..Timing::default()
        }
    }

    /// Of one command, once its die is free.
    #[must_use]
    pub fn of(&self, command: &Command) -> Duration {
        match command {
            Command::Read { blocks, .. } => self.read.of_blocks(*blocks),
            Command::Write { data, .. } | Command::Append { data, .. } => {
                self.write.of_blocks(Command::data_blocks(data))
            }
            Command::Reset { .. } => self.reset,
            Command::Finish { .. } => self.finish,
            Command::Open { .. } | Command::Close { .. } => self.open_close,
            Command::Record => Duration::ZERO,
            Command::Flush => self.flush,
        }
    }
}

/// The queues of a device: when each die has done all it was given.
pub(crate) struct Schedule {
    timing: Timing,
    dies: Vec<Duration>,
    /// The same of dies that are only read.
    read_dies: Vec<Duration>,
}

impl Schedule {
    pub fn new(timing: Timing, geometry: &Geometry) -> Schedule {
        let dies = match timing.dies {
            Dies::OnePerZone => geometry.zone_count,
            Dies::Striped(dies) => dies.clamp(1, geometry.zone_count.max(1)),
        };
        let read_dies = match timing.reads {
            Reads::OfZone => 0,
            Reads::Spread { dies, .. } => dies.max(1),
        };
        Schedule {
            timing,
            dies: vec![Duration::ZERO; dies as usize],
            read_dies: vec![Duration::ZERO; read_dies as usize],
        }
    }

    /// Takes a command that is submitted at `now`; answers when it completes.
    pub fn take(&mut self, command: &Command, now: Duration) -> Duration {
        if let Command::Read {
            zone,
            block,
            blocks,
        } = command
            && let Reads::Spread { stripe_blocks, .. } = self.timing.reads
        {
            return self.read((*zone, *block), *blocks, stripe_blocks.max(1), now);
        }
        let takes = self.timing.of(command);
        let free = match command {
            Command::Record | Command::Flush => None,
            Command::Read { zone, .. }
            | Command::Write { zone, .. }
            | Command::Append { zone, .. }
            | Command::Reset { zone, .. }
            | Command::Finish { zone }
            | Command::Open { zone }
            | Command::Close { zone } => self.die(*zone),
        };
        match free {
            Some(free) => {
                *free = now.max(*free).saturating_add(takes);
                *free
            }
            // A flush, or a command to a device without zones.
            None => now.saturating_add(takes),
        }
    }

    /// A read over dies of its own; answers when the last of them is done.
    fn read(
        &mut self,
        (zone, block): (ZoneId, u32),
        blocks: u32,
        stripe_blocks: u32,
        now: Duration,
    ) -> Duration {
        let (mut at, end, mut done) = (block, block.saturating_add(blocks), now);
        let dies = self.read_dies.len() as u64;
        while at < end {
            let stripe = at / stripe_blocks;
            let next = (stripe + 1).saturating_mul(stripe_blocks).min(end);
            let takes = self.timing.read.of_blocks(next - at);
            // Zones begin on different dies.
            let die = (u64::from(zone.0) * 7 + u64::from(stripe)) % dies.max(1);
            if let Some(free) = self.read_dies.get_mut(die as usize) {
                *free = now.max(*free).saturating_add(takes);
                done = done.max(*free);
            }
            at = next;
        }
        done
    }

    fn die(&mut self, zone: ZoneId) -> Option<&mut Duration> {
        let dies = self.dies.len();
        self.dies.get_mut(zone.0 as usize % dies.max(1))
    }
}
