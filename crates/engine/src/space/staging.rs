//! How much may be staged, and when staged data is to be written back.

use persimmon_sync::atomic::Ordering;
use std::time::Duration;

use persimmon_device::BLOCK_SIZE;

use super::Space;
use super::reserves::Journal;
use crate::zones::DeviceKind;
use crate::zones::budget::STAGED_BLOCKS_MIN;

/// Of the zones that nothing live would need, beyond the reserved free ones, this part may be filled at once while zones
/// are short: as long as the rest is garbage, cleaning wins others meanwhile.
const STAGED_SPARE_SHARE: u32 = 4;

/// How often it is looked whether it is time to write back, while the buffer fills.
const STAGED_STEPS: u64 = 8;

/// Longest wait for a batch before looking again for something to write back.
const WRITE_BACK_WAIT: Duration = Duration::from_millis(20);

impl Space {
    /// How much may be staged from now on.
    pub(crate) fn set_staging(&self, bytes_max: u64) {
        let budget = &self.store.zones.budget;
        // A batch holds the zones it fills: on small volumes it must leave some to clean.
        let blocks_max = bytes_max / BLOCK_SIZE as u64;
        let fillable = if budget.layout.is_split() {
            // All of it may lie in the tree.
            budget.user_blocks.min(budget.metadata_blocks)
        } else {
            budget.user_blocks
        };
        let blocks_max = blocks_max.min(fillable / 16).max(STAGED_BLOCKS_MIN);
        let at_once = match &budget.large {
            Some(large) => large.staged_blocks,
            None => budget.data_zone_blocks,
        };
        let short = blocks_max.min(at_once).max(STAGED_BLOCKS_MIN);
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

    /// Whether writers should help to empty the staging buffer.
    pub(crate) fn staging_is_full(&self) -> bool {
        let (space, staged) = (&self, self.staged_blocks());
        staged >= space.staged_blocks_max_short() && staged >= self.staged_blocks_now()
    }

    /// Whether enough is staged to write some of it before it is time to make it durable.
    pub(crate) fn write_back_is_due(&self) -> bool {
        let (space, staged) = (&self, self.staged_blocks());
        2 * staged >= space.staged_blocks_max_short() && 2 * staged >= self.staged_blocks_now()
    }

    /// Whether `blocks` more, which are staged by now, may have made it time to write some back: asked for each eighth of what may be
    /// staged, for it is a look at all counts.
    pub(crate) fn write_back_becomes_due(&self, blocks: u64) -> bool {
        let step = (self.staged_blocks_max_short() / STAGED_STEPS).max(1);
        let after = self.staged_blocks();
        after / step != after.saturating_sub(blocks) / step && self.write_back_is_due()
    }

    /// Zones that all that may be staged fills.
    pub(crate) fn zones_for_staged(&self) -> u32 {
        let usable = self.store.zones.budget.data_zone_blocks.max(1);
        let zones = self.staged_blocks_max().div_ceil(usable);
        u32::try_from(zones).unwrap_or(u32::MAX)
    }

    /// Blocks that may be staged now.
    fn staged_blocks_now(&self) -> u64 {
        let (space, usable) = (&self, self.store.zones.budget.data_zone_blocks.max(1));
        let (most, short) = (space.staged_blocks_max(), space.staged_blocks_max_short());
        let zones = self.zones_for_staged();
        let view = self.view();
        let reserve = view.reserved(DeviceKind::Data, Journal::Wanted);
        let plenty = reserve.saturating_add(zones.saturating_mul(2));
        if view.free(DeviceKind::Data) > plenty {
            return most;
        }
        let spare = self
            .store
            .zones
            .slack_zones(DeviceKind::Data)
            .saturating_sub(reserve);
        let blocks = u64::from(spare / STAGED_SPARE_SHARE) * usable;
        blocks.clamp(short.min(most), most)
    }

    /// Waits for a short time until batches of other threads have made room in the buffer.
    pub(crate) fn wait_for_write_back(&self) {
        let lock = self.lock.lock();
        if self.staged_blocks() >= self.staged_blocks_max_short() {
            drop(self.given_back.wait_timeout(lock, WRITE_BACK_WAIT));
        }
    }
}
