//! The throttle of writers: where cleaning ahead of need does not keep up, a writer moves a few blocks for each block that it
//! writes, long before free zones run out and all writers would wait for whole victims.

use persimmon_sync::atomic::{AtomicU64, Ordering};

use super::Reclaimer;
use super::ahead::STEP_BLOCKS;
use crate::error::Result;
use crate::space::Journal;
use crate::zones::DeviceKind;

/// Blocks written between two looks at the cleaning debt.
const LOOK_BLOCKS: u64 = 16;
/// A step pays off at least so many blocks of the debt: looking and reading cost something, too.
const STEP_BLOCKS_MIN: u64 = 16;

/// Blocks written that no blocks were moved for yet.
#[derive(Debug, Default)]
pub(super) struct CleaningDebt {
    blocks: AtomicU64,
}

impl CleaningDebt {
    /// Adds written blocks. Once it is time to look it returns all of them, and the debt is zero again.
    fn add(&self, blocks: u64) -> Option<u64> {
        let add = |debt: u64| match debt + blocks {
            all if all >= LOOK_BLOCKS => Some(0),
            all => Some(all),
        };
        let order = Ordering::Relaxed;
        let before = self.blocks.fetch_update(order, order, add).unwrap_or(0);
        (before + blocks >= LOOK_BLOCKS).then_some(before + blocks)
    }
}

impl Reclaimer {
    /// Throttles a writer: moves blocks for those that are about to be written. A failure here is not the writer's
    /// concern: a writer that needs a zone and finds none gets an error there.
    pub(crate) fn throttle(&self, blocks: u64) {
        let Some(blocks) = self.cleaning_debt.add(blocks) else {
            return;
        };
        let mut debt = self.debt_for(blocks);
        while debt > 0 {
            match self.throttle_step(debt.min(STEP_BLOCKS)) {
                Ok(Some(moved)) => debt = debt.saturating_sub(moved.max(STEP_BLOCKS_MIN)),
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(%error, "cleaning for what is written");
                    return;
                }
            }
        }
    }

    /// A step in a victim of file data. Returns the number of moved blocks, and `None` where a writer cannot do
    /// more: checkpoints, metadata zones and searching the tree are left to cleaning ahead.
    fn throttle_step(&self, blocks_max: u64) -> Result<Option<u64>> {
        let (_lock, _midst) = (self.cleaning_lock.lock(), self.store.in_midst());
        let before = self.store.media.counters.snapshot().blocks_moved;
        let cursor = self.cleaner.take_cursor(DeviceKind::Data);
        let Some(mut cursor) = cursor.or_else(|| self.cleaner.next_cursor(DeviceKind::Data)) else {
            return Ok(None);
        };
        if !cursor.is_plain() {
            self.cleaner.keep_cursor(cursor);
            return Ok(None);
        }
        match self.advance(&mut cursor, blocks_max) {
            Ok(true) => {
                self.cleaner.keep_cursor(cursor);
                Ok(Some(
                    self.store.media.counters.snapshot().blocks_moved - before,
                ))
            }
            Ok(false) => Ok(None),
            Err(error) if error.is_want_of_zones() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Blocks to be moved for so many written: none as long as half of the free-zone target is left. Below that, for each
    /// block, what it costs to gain one, times a factor that grows up to two as the rest of the target goes: at one half
    /// of that half as much is gained as is written.
    fn debt_for(&self, written: u64) -> u64 {
        let target = self.space.free_zone_target(DeviceKind::Data);
        if target == 0 {
            return 0;
        }
        let zone_blocks = self.store.zones.budget.data_zone_blocks.max(1);
        let half = u64::from(target) * zone_blocks / 2;
        let (free, reserve) = (
            self.store.zones.free_zones(DeviceKind::Data),
            self.space
                .view()
                .reserved(DeviceKind::Data, Journal::Secured),
        );
        let enough = half / zone_blocks + 1;
        if u64::from(free.saturating_sub(reserve)) >= enough {
            return 0;
        }
        let coming = self.store.zones.reclaimable_zones(DeviceKind::Data)
            + self.store.zones.zones_in_reset(DeviceKind::Data);
        let zones = (free + coming).saturating_sub(reserve);
        // Streams have zones of their own: a stream cannot use what is left in the open zones of others.
        let open = self.store.zones.unwritten_blocks().min(zone_blocks);
        let missing = half.saturating_sub(u64::from(zones) * zone_blocks + open);
        let cost = self.cleaner.cost();
        let one_for_one = written.saturating_mul(cost) / 16;
        one_for_one.saturating_mul(2 * missing) / half.max(1)
    }
}
