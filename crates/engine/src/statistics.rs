//! Counters. What the device was sent is counted where it is sent, by class.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why bytes are written to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// File data, first time.
    Data,
    /// File data moved by cleaning.
    CleanedData,
    /// Summary blocks and zone headers.
    Summary,
    /// Metadata pages.
    Metadata,
    /// Metadata pages moved by cleaning.
    CleanedMetadata,
    /// Journal blocks.
    Journal,
    /// Footers and table chunks.
    Checkpoint,
}

const CLASSES: usize = 7;

/// Live counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    written: [AtomicU64; CLASSES],
    pub(crate) user_bytes: AtomicU64,
    pub(crate) write_commands: AtomicU64,
    pub(crate) read_commands: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) resets: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) zone_checkpoints: AtomicU64,
    pub(crate) cleaning_foreground: AtomicU64,
    pub(crate) cleaning_background: AtomicU64,
    pub(crate) blocks_moved: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) records: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn wrote(&self, class: Class, bytes: u64) {
        add(&self.written[class as usize], bytes);
        add(&self.write_commands, 1);
    }

    pub(crate) fn snapshot(&self) -> Statistics {
        let get = |c: &AtomicU64| c.load(Ordering::Relaxed);
        let class = |c: Class| get(&self.written[c as usize]);
        Statistics {
            user_bytes: get(&self.user_bytes),
            data_bytes: class(Class::Data),
            cleaned_data_bytes: class(Class::CleanedData),
            summary_bytes: class(Class::Summary),
            metadata_bytes: class(Class::Metadata),
            cleaned_metadata_bytes: class(Class::CleanedMetadata),
            journal_bytes: class(Class::Journal),
            checkpoint_bytes: class(Class::Checkpoint),
            write_commands: get(&self.write_commands),
            read_commands: get(&self.read_commands),
            read_bytes: get(&self.read_bytes),
            flushes: get(&self.flushes),
            resets: get(&self.resets),
            checkpoints: get(&self.checkpoints),
            zone_checkpoints: get(&self.zone_checkpoints),
            cleaning_foreground: get(&self.cleaning_foreground),
            cleaning_background: get(&self.cleaning_background),
            blocks_moved: get(&self.blocks_moved),
            stalls: get(&self.stalls),
            commits: get(&self.commits),
            records: get(&self.records),
            staged_bytes_peak: 0,
        }
    }
}

/// What a volume did since it was opened. Bytes are as sent to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// File data that was flushed, as the user wrote it (whole blocks).
    pub user_bytes: u64,
    /// File data written.
    pub data_bytes: u64,
    /// File data moved by cleaning.
    pub cleaned_data_bytes: u64,
    /// Summary blocks and zone headers.
    pub summary_bytes: u64,
    /// Metadata pages.
    pub metadata_bytes: u64,
    /// Metadata pages moved by cleaning.
    pub cleaned_metadata_bytes: u64,
    /// Journal blocks.
    pub journal_bytes: u64,
    /// Footers and table chunks.
    pub checkpoint_bytes: u64,
    /// Write and append commands.
    pub write_commands: u64,
    /// Read commands.
    pub read_commands: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Device flushes.
    pub flushes: u64,
    /// Zone resets.
    pub resets: u64,
    /// Checkpoints, those of the zones alone left out.
    pub checkpoints: u64,
    /// Checkpoints of the zones alone.
    pub zone_checkpoints: u64,
    /// Victims cleaned because somebody waited for room.
    pub cleaning_foreground: u64,
    /// Victims cleaned ahead.
    pub cleaning_background: u64,
    /// Blocks moved by cleaning.
    pub blocks_moved: u64,
    /// Operations that had to wait for a checkpoint or for cleaning.
    pub stalls: u64,
    /// Journal commits.
    pub commits: u64,
    /// Redo records.
    pub records: u64,
    /// The most file data that waited in memory, bytes.
    pub staged_bytes_peak: u64,
}

impl Statistics {
    /// What was done since `before`, an earlier moment of the same volume; the peak stays as it is.
    #[must_use]
    pub fn since(&self, before: &Statistics) -> Statistics {
        Statistics {
            user_bytes: self.user_bytes - before.user_bytes,
            data_bytes: self.data_bytes - before.data_bytes,
            cleaned_data_bytes: self.cleaned_data_bytes - before.cleaned_data_bytes,
            summary_bytes: self.summary_bytes - before.summary_bytes,
            metadata_bytes: self.metadata_bytes - before.metadata_bytes,
            cleaned_metadata_bytes: self.cleaned_metadata_bytes - before.cleaned_metadata_bytes,
            journal_bytes: self.journal_bytes - before.journal_bytes,
            checkpoint_bytes: self.checkpoint_bytes - before.checkpoint_bytes,
            write_commands: self.write_commands - before.write_commands,
            read_commands: self.read_commands - before.read_commands,
            read_bytes: self.read_bytes - before.read_bytes,
            flushes: self.flushes - before.flushes,
            resets: self.resets - before.resets,
            checkpoints: self.checkpoints - before.checkpoints,
            zone_checkpoints: self.zone_checkpoints - before.zone_checkpoints,
            cleaning_foreground: self.cleaning_foreground - before.cleaning_foreground,
            cleaning_background: self.cleaning_background - before.cleaning_background,
            blocks_moved: self.blocks_moved - before.blocks_moved,
            stalls: self.stalls - before.stalls,
            commits: self.commits - before.commits,
            records: self.records - before.records,
            staged_bytes_peak: self.staged_bytes_peak,
        }
    }

    /// All bytes sent to the device.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        self.data_bytes
            + self.cleaned_data_bytes
            + self.summary_bytes
            + self.metadata_bytes
            + self.cleaned_metadata_bytes
            + self.journal_bytes
            + self.checkpoint_bytes
    }

    /// Bytes sent to the device per byte the user flushed; 0 before the first.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        if self.user_bytes == 0 {
            0.0
        } else {
            self.device_bytes() as f64 / self.user_bytes as f64
        }
    }
}
