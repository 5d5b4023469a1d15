//! Space: what users may still fill. Everything staged has its space set aside when it is
//! written, so that flushing never finds the volume full.

use std::sync::atomic::{AtomicU64, Ordering};

use persimmon_device::BLOCK_SIZE;

use crate::Volume;
use crate::error::Result;

/// Blocks a dirty page is counted as, until a checkpoint says how many it takes.
const DIRTY_PAGE_BLOCKS: u64 = 3;

/// Space set aside for staged blocks.
#[derive(Debug)]
pub(crate) struct Space {
    staged_blocks: AtomicU64,
    pub(crate) staged_blocks_max: u64,
}

/// What statfs tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceReport {
    /// Bytes that users can fill in all.
    pub total_bytes: u64,
    /// Bytes that can still be written.
    pub available_bytes: u64,
    /// Inodes there are.
    pub inodes: u64,
}

impl Space {
    pub(crate) fn new(staging_bytes_max: usize) -> Space {
        Space {
            staged_blocks: AtomicU64::new(0),
            staged_blocks_max: (staging_bytes_max / BLOCK_SIZE).max(64) as u64,
        }
    }

    pub(crate) fn staged_blocks(&self) -> u64 {
        self.staged_blocks.load(Ordering::Relaxed)
    }

    /// Sets blocks aside whatever is left: for overwriting, which frees as much as it takes.
    pub(crate) fn take(&self, blocks: u64) {
        self.staged_blocks.fetch_add(blocks, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self, blocks: u64) {
        self.staged_blocks.fetch_sub(blocks, Ordering::Relaxed);
    }

    /// Whether writers should help to empty the staging buffer.
    pub(crate) fn is_over(&self) -> bool {
        self.staged_blocks() >= self.staged_blocks_max
    }
}

impl Volume {
    /// Blocks that can still be promised to somebody.
    pub(crate) fn available_blocks(&self) -> u64 {
        let (dirty, reserved) = {
            let meta = self.meta();
            (meta.cache.dirty() as u64, meta.reserved_blocks)
        };
        let taken = self.zones.live_blocks()
            + self.space.staged_blocks()
            + reserved
            + dirty * DIRTY_PAGE_BLOCKS;
        self.zones.budget.user_blocks.saturating_sub(taken)
    }

    /// Sets blocks aside, if there are so many.
    pub(crate) fn reserve(&self, blocks: u64) -> bool {
        if self.available_blocks() < blocks {
            return false;
        }
        self.space.take(blocks);
        true
    }

    /// What is staged and dirty is counted for more than it turns out to take. Before somebody is
    /// refused it is written. True if there was any: the count is worth another look.
    pub(crate) fn settle_space(&self) -> Result<bool> {
        let mut worked = false;
        while self.space.staged_blocks() > 0 && self.write_back()? {
            worked = true;
        }
        if self.meta().cache.dirty() > 0 {
            self.checkpoint()?;
            worked = true;
        }
        Ok(worked)
    }

    /// Space in the volume.
    #[must_use]
    pub fn space(&self) -> SpaceReport {
        SpaceReport {
            total_bytes: self.zones.budget.user_blocks * BLOCK_SIZE as u64,
            available_bytes: self.available_blocks() * BLOCK_SIZE as u64,
            inodes: self.meta().inodes,
        }
    }
}
