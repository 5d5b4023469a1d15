//! Space: what users may still fill. Everything staged has its space set aside when it is
//! written, so that flushing never finds the volume full.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use persimmon_device::BLOCK_SIZE;

use crate::Volume;
use crate::error::Result;
use crate::zones::budget::Budget;

/// Blocks a dirty page is counted as, until a checkpoint says how many it takes.
const DIRTY_PAGE_BLOCKS: u64 = 3;

/// Longest wait for a landing before looking again for something to fly.
const LANDING_WAIT: Duration = Duration::from_millis(20);

/// Space set aside for staged blocks.
#[derive(Debug)]
pub(crate) struct Space {
    staged_blocks: AtomicU64,
    staged_blocks_peak: AtomicU64,
    turn: Mutex<()>,
    given_back: Condvar,
    staged_blocks_max: AtomicU64,
    /// The same where zones are short. What is staged of a file lands at once, and until then the
    /// zones it fills cannot be cleaned: it must not need more of them than are kept for that.
    staged_blocks_max_short: AtomicU64,
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
    pub(crate) fn new(staging_bytes_max: usize, budget: &Budget) -> Space {
        let space = Space {
            staged_blocks: AtomicU64::new(0),
            staged_blocks_peak: AtomicU64::new(0),
            turn: Mutex::new(()),
            given_back: Condvar::new(),
            staged_blocks_max: AtomicU64::new(0),
            staged_blocks_max_short: AtomicU64::new(0),
        };
        space.set_staging(staging_bytes_max as u64, budget);
        space
    }

    /// How much may be staged from now on.
    pub(crate) fn set_staging(&self, bytes_max: u64, budget: &Budget) {
        // A flight holds the zones it fills: on small volumes it must leave some to clean.
        let blocks_max = bytes_max / BLOCK_SIZE as u64;
        let blocks_max = blocks_max.min(budget.user_blocks / 16).max(64);
        let short = blocks_max.min(budget.usable_blocks).max(64);
        self.staged_blocks_max.store(blocks_max, Ordering::Relaxed);
        self.staged_blocks_max_short.store(short, Ordering::Relaxed);
    }

    fn staged_blocks_max(&self) -> u64 {
        self.staged_blocks_max.load(Ordering::Relaxed)
    }

    fn staged_blocks_max_short(&self) -> u64 {
        self.staged_blocks_max_short.load(Ordering::Relaxed)
    }

    /// How much may be staged.
    pub(crate) fn staging_bytes_max(&self) -> u64 {
        self.staged_blocks_max() * BLOCK_SIZE as u64
    }

    pub(crate) fn staged_blocks(&self) -> u64 {
        self.staged_blocks.load(Ordering::Relaxed)
    }

    /// Sets blocks aside whatever is left: for overwriting, which frees as much as it takes.
    pub(crate) fn take(&self, blocks: u64) {
        let before = self.staged_blocks.fetch_add(blocks, Ordering::Relaxed);
        self.staged_blocks_peak
            .fetch_max(before + blocks, Ordering::Relaxed);
    }

    pub(crate) fn staged_blocks_peak(&self) -> u64 {
        self.staged_blocks_peak.load(Ordering::Relaxed)
    }

    pub(crate) fn give_back(&self, blocks: u64) {
        self.staged_blocks.fetch_sub(blocks, Ordering::Relaxed);
        drop(self.turn.lock().unwrap_or_else(PoisonError::into_inner));
        self.given_back.notify_all();
    }

    /// Waits until the buffer is no longer full, or for a while: flights of others are to land.
    pub(crate) fn wait_for_landing(&self) {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if self.staged_blocks() >= self.staged_blocks_max_short() {
            drop(self.given_back.wait_timeout(turn, LANDING_WAIT));
        }
    }
}

impl Volume {
    /// Whether writers should help to empty the staging buffer.
    pub(crate) fn staging_is_full(&self) -> bool {
        let (space, staged) = (&self.space, self.space.staged_blocks());
        if staged < space.staged_blocks_max_short() {
            return false;
        }
        let zones = space
            .staged_blocks_max()
            .div_ceil(self.zones.budget.usable_blocks.max(1));
        let are_short =
            || u64::from(self.zones.free_zones()) <= u64::from(self.data_floor()) + 2 * zones;
        staged >= space.staged_blocks_max() || are_short()
    }

    /// Free zones left alone by new data. A checkpoint writes no more pages than there are.
    pub(crate) fn data_floor(&self) -> u32 {
        let pages = self.meta().cache.allocated();
        self.zones.data_floor(pages)
    }

    /// Blocks that can still be promised to somebody.
    pub(crate) fn available_blocks(&self) -> u64 {
        let user_blocks = self.zones.user_blocks();
        user_blocks.saturating_sub(self.taken_blocks())
    }

    fn overdrawn(&self) -> bool {
        self.taken_blocks() > self.zones.user_blocks()
    }

    fn taken_blocks(&self) -> u64 {
        let (dirty, reserved) = {
            let meta = self.meta();
            let riding = meta.riding.bytes().div_ceil(BLOCK_SIZE as u64);
            (meta.cache.dirty() as u64, meta.reserved_blocks + riding)
        };
        self.zones
            .live_blocks()
            .saturating_add(self.space.staged_blocks())
            .saturating_add(reserved)
            .saturating_add(dirty * DIRTY_PAGE_BLOCKS * u64::from(self.zones.budget.copies))
    }

    /// Sets blocks aside, if there are so many.
    pub(crate) fn reserve(&self, blocks: u64) -> bool {
        // Taken first and given back if it was too much: of several at a time none gets what
        // another has.
        self.space.take(blocks);
        if self.overdrawn() {
            self.space.give_back(blocks);
            return false;
        }
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
            total_bytes: self.zones.user_blocks() * BLOCK_SIZE as u64,
            available_bytes: self.available_blocks() * BLOCK_SIZE as u64,
            inodes: self.meta().inodes,
        }
    }
}
