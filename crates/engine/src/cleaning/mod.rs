//! Cleaning: valid blocks of a victim move elsewhere, so that the next checkpoint can reset it.
//!
//! Data zones: summaries name the owners of the blocks, and the tree tells which blocks are still live. Moved blocks go
//! to zones of their own, sorted by file and offset. Moves are journaled like users' writes, so that a
//! checkpoint that frees zones need not write the changed pages. Until then the old copy
//! stays. A victim is done when its valid count is zero. Blocks that summaries miss are found in the tree.
//! Metadata zones: the pages in the victim are marked dirty, and the next checkpoint writes them
//! elsewhere.
//!
//! A step neither waits for room nor writes a checkpoint. Who takes it ([`reclaim`](crate::reclaim)) keeps the bounds before.

use persimmon_sync::atomic::{AtomicU64, Ordering};
use persimmon_sync::{Arc, Mutex};
use std::collections::HashMap;

use persimmon_device::ZoneId;

mod choice;
mod cursor;
mod folding;
mod gain;
mod moving;

use crate::placement::Placement;
use crate::space::Space;
use crate::store::Store;
use crate::zones::table::ZoneStatus;

use choice::Unproductive;
pub(crate) use cursor::{CleaningCursor, FOUND_MAX};

/// Most blocks to be moved for one gained, whatever is live in a victim.
const COST_MAX: u64 = 32;

/// Empties zones, a step at a time. The holder of the lock of reclaim calls it.
pub(crate) struct Cleaner {
    store: Arc<Store>,
    space: Arc<Space>,
    placement: Arc<Placement>,
    /// Victims under way, at most one of a device.
    cleaning_cursors: Mutex<Vec<CleaningCursor>>,
    /// Zones whose cleaning moved nothing.
    unproductive: Mutex<HashMap<ZoneId, Unproductive>>,
    /// Blocks to be moved for sixteen gained, in the last victim.
    cost: AtomicU64,
}

impl Cleaner {
    pub(super) fn new(
        store: &Arc<Store>,
        space: &Arc<Space>,
        placement: &Arc<Placement>,
    ) -> Cleaner {
        Cleaner {
            store: Arc::clone(store),
            space: Arc::clone(space),
            placement: Arc::clone(placement),
            cleaning_cursors: Mutex::watched(Vec::new(), &store.media.alarm),
            unproductive: Mutex::default(),
            cost: AtomicU64::new(0),
        }
    }

    /// Blocks to be moved for sixteen gained, in the last victim of file data.
    pub(crate) fn cost(&self) -> u64 {
        self.cost.load(Ordering::Relaxed)
    }

    /// The cost of a gained block is that of this victim from now on.
    fn set_cost(&self, victim: &ZoneStatus) {
        let valid = u64::from(victim.entry.valid);
        let garbage = u64::from(victim.capacity).saturating_sub(valid).max(1);
        let cost = (16 * valid / garbage).min(16 * COST_MAX);
        self.cost.store(cost, Ordering::Relaxed);
    }
}
