//! Pace: where cleaning ahead of need does not keep up, those who write move blocks for what they write,
//! a few for each block, long before free zones run out and all would wait for whole victims.

use persimmon_sync::atomic::{AtomicU64, Ordering};

use super::STEP_BLOCKS;
use crate::Volume;
use crate::error::Result;
use crate::zones::Part;
use crate::zones::table::ZoneStatus;

/// Blocks written between two looks at what is to be paid for them.
const LOOK_BLOCKS: u64 = 16;
/// A step counts as so many blocks paid at least: looking and reading cost something too.
const STEP_BLOCKS_MIN: u64 = 16;
/// Blocks to be moved for one gained at most, whatever is live in a victim.
const PRICE_MAX: u64 = 32;

/// What was written and not paid for yet.
#[derive(Debug, Default)]
pub(crate) struct Unpaid {
    blocks: AtomicU64,
    /// Blocks to be moved for sixteen gained, in the last victim.
    price: AtomicU64,
}

impl Unpaid {
    /// Adds blocks; answers all that are unpaid once it is time to look, and they count as paid.
    fn add(&self, blocks: u64) -> Option<u64> {
        let add = |unpaid: u64| match unpaid + blocks {
            all if all >= LOOK_BLOCKS => Some(0),
            all => Some(all),
        };
        let order = Ordering::Relaxed;
        let before = self.blocks.fetch_update(order, order, add).unwrap_or(0);
        (before + blocks >= LOOK_BLOCKS).then_some(before + blocks)
    }

    /// The price is that of this victim from now on.
    pub(super) fn set_price(&self, victim: &ZoneStatus) {
        let valid = u64::from(victim.entry.valid);
        let garbage = u64::from(victim.capacity).saturating_sub(valid).max(1);
        let price = (16 * valid / garbage).min(16 * PRICE_MAX);
        self.price.store(price, Ordering::Relaxed);
    }
}

impl Volume {
    /// Moves blocks for those that are about to be written. What it fails at is not the writer's concern:
    /// who needs a zone and finds none is told.
    pub(crate) fn pay_for(&self, blocks: u64) {
        let Some(unpaid) = self.unpaid.add(blocks) else {
            return;
        };
        let mut owed = self.owed_for(unpaid);
        while owed > 0 {
            match self.pay_some(owed.min(STEP_BLOCKS)) {
                Ok(Some(paid)) => owed = owed.saturating_sub(paid.max(STEP_BLOCKS_MIN)),
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(%error, "cleaning for what is written");
                    return;
                }
            }
        }
    }

    /// A step in a victim of file data; answers the blocks that were moved. None where there is nothing more to
    /// be done by who writes: checkpoints, metadata zones and searching the tree are for whoever cleans ahead.
    fn pay_some(&self, blocks_max: u64) -> Result<Option<u64>> {
        let (_turn, _midst) = (self.cleaning_turn.take(), self.in_midst());
        let before = self.statistics().blocks_moved;
        let cursor = self.take_cursor(Part::Data);
        let Some(mut cursor) = cursor.or_else(|| self.next_cursor(Part::Data)) else {
            return Ok(None);
        };
        if !cursor.is_plain() {
            self.cleaning_cursors().push(cursor);
            return Ok(None);
        }
        match self.advance(&mut cursor, blocks_max) {
            Ok(true) => {
                self.cleaning_cursors().push(cursor);
                Ok(Some(self.statistics().blocks_moved - before))
            }
            Ok(false) => Ok(None),
            Err(error) if error.is_want_of_zones() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Blocks to be moved for so many written. As long as half of the target is left, none. Below that for each
    /// what gains a block, times up to two as the rest of the target goes: at one half of that half as much is
    /// gained as is written.
    fn owed_for(&self, written: u64) -> u64 {
        let target = self.free_zone_target(Part::Data);
        if target == 0 {
            return 0;
        }
        let zone_blocks = self.zones.budget.data_zone_blocks.max(1);
        let half = u64::from(target) * zone_blocks / 2;
        let (free, reserve) = (
            self.zones.free_zones(Part::Data),
            self.secured_reserve(Part::Data),
        );
        let enough = half / zone_blocks + 1;
        if u64::from(free.saturating_sub(reserve)) >= enough {
            return 0;
        }
        let coming =
            self.zones.reclaimable_zones(Part::Data) + self.zones.zones_in_reset(Part::Data);
        let zones = (free + coming).saturating_sub(reserve);
        // Streams have zones of their own: what is left in all that are open is not there for each.
        let open = self.zones.unwritten_blocks().min(zone_blocks);
        let missing = half.saturating_sub(u64::from(zones) * zone_blocks + open);
        let price = self.unpaid.price.load(Ordering::Relaxed);
        let one_for_one = written.saturating_mul(price) / 16;
        one_for_one.saturating_mul(2 * missing) / half.max(1)
    }
}
