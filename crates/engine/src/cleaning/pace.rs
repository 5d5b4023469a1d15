//! Pace: where cleaning ahead of need does not keep up, those who write move blocks for what they write,
//! a few for each block, long before free zones run out and all would wait for whole victims.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{STEP_BLOCKS, Stepped};
use crate::Volume;
use crate::zones::Part;

/// Blocks written between two looks at what is to be paid for them.
const LOOK_BLOCKS: u64 = 16;

/// What was written and not paid for yet.
#[derive(Debug, Default)]
pub(crate) struct Unpaid(AtomicU64);

impl Unpaid {
    /// Adds blocks; answers all that are unpaid once it is time to look, and they count as paid.
    fn add(&self, blocks: u64) -> Option<u64> {
        let unpaid = self.0.fetch_add(blocks, Ordering::Relaxed) + blocks;
        (unpaid >= LOOK_BLOCKS).then(|| self.0.swap(0, Ordering::Relaxed))
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
            let before = self.statistics().blocks_moved;
            match self.clean_some(Part::Data, owed.min(STEP_BLOCKS)) {
                Ok(Stepped::GoesOn) => {}
                // The checkpoint that frees what is empty is for whoever cleans ahead: resets take long.
                Ok(Stepped::Emptied | Stepped::Idle) => return,
                Err(error) => {
                    tracing::debug!(%error, "cleaning for what is written");
                    return;
                }
            }
            owed = owed.saturating_sub(self.statistics().blocks_moved - before);
        }
    }

    /// Blocks to be moved for so many written. As long as half of the pool is left, none. Below that for each
    /// what gains a block, times up to two as the rest of the pool goes: at one half of that half as much is
    /// gained as is written.
    fn owed_for(&self, written: u64) -> u64 {
        let zone_blocks = self.zones.budget.usable_blocks;
        let half = u64::from(self.pool_zones(Part::Data)) * zone_blocks / 2;
        let (free, floor) = (self.zones.free_zones(Part::Data), self.data_floor());
        let enough = half / zone_blocks + 1;
        if u64::from(free.saturating_sub(floor)) >= enough {
            return 0;
        }
        let zones = (free + self.zones.dead_zones(Part::Data)).saturating_sub(floor);
        // Streams have zones of their own: what is left in all that are open is not there for each.
        let open = self.zones.unwritten_blocks().min(zone_blocks);
        let left = u64::from(zones) * zone_blocks + open;
        let missing = half.saturating_sub(left);
        if missing == 0 {
            return 0;
        }
        let (valid, garbage) = {
            let courses = self.courses();
            let victim = courses.iter().map(|course| *course.victim());
            let victim = victim.filter(|v| self.zones.budget.layout.contains(Part::Data, v.zone));
            victim.last().map_or((1, 1), |v| {
                let valid = u64::from(v.entry.valid);
                (valid, u64::from(v.capacity).saturating_sub(valid).max(1))
            })
        };
        (written * valid / garbage).saturating_mul(2 * missing) / half.max(1)
    }
}
