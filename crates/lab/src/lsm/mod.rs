//! A database as RocksDB writes it, on a volume: where its files come to lie, and what cleaning has to move. Every key is
//! followed through logs, flushed tables and compactions, so that files die together as they do there; the hints are
//! RocksDB's. Nothing depends on time: a plan writes the same again and again.

mod run;
mod tree;

use persimmon_engine::Options;

/// Sizes of the database's files, and what it holds.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Entries.
    pub entries: u32,
    /// Bytes of one in a table.
    pub entry_bytes: u64,
    /// Of a table.
    pub table_bytes: u64,
    /// What is written to memory before it is flushed, and the first level below flushed tables.
    pub base_bytes: u64,
    /// The most that a compaction should read.
    pub compaction_bytes: u64,
}

/// A drive, a database on it, and what is written.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Zones of the drive.
    pub zones: u32,
    /// Blocks of each.
    pub zone_blocks: u32,
    /// Zones that may be open and active; `None`: any.
    pub active_max: Option<u32>,
    /// The database.
    pub shape: Shape,
    /// Entries written at random after the database was filled from the first to the last.
    pub overwrites: u64,
    /// Whether files carry hints.
    pub hints: bool,
    /// Of the order of overwriting.
    pub seed: u64,
    /// How the volume is opened.
    pub options: Options,
}

/// The database of `plugin/rocksdb/bench/tails.cc` on a drive of 1 GiB.
impl Default for Plan {
    fn default() -> Plan {
        Plan {
            zones: 64,
            zone_blocks: 4096,
            active_max: None,
            shape: Shape {
                entries: 135_000,
                entry_bytes: 4050,
                table_bytes: 4 << 20,
                base_bytes: 16 << 20,
                compaction_bytes: 16 << 20,
            },
            overwrites: 200_000,
            hints: true,
            seed: 1,
            options: Options::default(),
        }
    }
}

/// What a plan has written.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// By the database: logs and tables.
    pub database_blocks: u64,
    /// To the device, everything counted.
    pub device_blocks: u64,
    /// By cleaning.
    pub blocks_moved: u64,
    /// Operations that waited for cleaning or a checkpoint.
    pub stalls: u64,
    /// Zones that cleaning emptied, by lifetime class.
    pub victims: Vec<Victims>,
}

/// Zones of one lifetime class that cleaning emptied.
#[derive(Clone, Debug, Default)]
pub struct Victims {
    /// Lifetime class, as in the zone table.
    pub class: u8,
    /// How many.
    pub zones: u64,
    /// Blocks they held when they were chosen, and those that were live.
    pub blocks: u64,
    /// Of those, live ones.
    pub live_blocks: u64,
    /// How many held files of more than one hint.
    pub mixed: u64,
}

impl Outcome {
    /// Device blocks for each that the database wrote.
    #[must_use]
    pub fn device_share(&self) -> f64 {
        self.device_blocks as f64 / self.database_blocks.max(1) as f64
    }

    /// Of what the device was sent, the part that cleaning moved.
    #[must_use]
    pub fn moved_share(&self) -> f64 {
        self.blocks_moved as f64 / self.device_blocks.max(1) as f64
    }
}

pub use run::run;
