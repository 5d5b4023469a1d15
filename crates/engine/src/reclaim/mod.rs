//! Reclaim: the only caller of cleaning and of checkpoints. Who needs room, or is about to change something, comes here and waits here.

use persimmon_sync::Arc;

mod ahead;
mod bounds;
mod demand;
mod foreground;
mod host;
mod low_space;
mod placing;
mod throttle;

use crate::checkpoint::Checkpoints;
use crate::cleaning::Cleaner;
use crate::fair_lock::FairLock;
use crate::placement::Placement;
use crate::space::Space;
use crate::store::Store;

pub use demand::{CleanState, CleanStep};
use throttle::CleaningDebt;

/// Blocks moved at once.
const MOVE_BLOCKS: u64 = 1024;
/// Rounds without a zone gained before the volume counts as full.
const ROUNDS_MAX: usize = 64;
/// A round that wins less than this share of a zone has won nothing.
const WON_SHARE_MIN: u64 = 64;

/// See the module.
pub(crate) struct Reclaimer {
    store: Arc<Store>,
    space: Arc<Space>,
    placement: Arc<Placement>,
    checkpoints: Arc<Checkpoints>,
    cleaner: Arc<Cleaner>,
    /// One thread at a time moves blocks.
    cleaning_lock: FairLock,
    cleaning_debt: CleaningDebt,
}

impl Reclaimer {
    pub(crate) fn new(
        store: &Arc<Store>,
        space: &Arc<Space>,
        placement: &Arc<Placement>,
        checkpoints: &Arc<Checkpoints>,
        cleaner: &Arc<Cleaner>,
    ) -> Reclaimer {
        Reclaimer {
            store: Arc::clone(store),
            space: Arc::clone(space),
            placement: Arc::clone(placement),
            checkpoints: Arc::clone(checkpoints),
            cleaner: Arc::clone(cleaner),
            cleaning_lock: FairLock::default(),
            cleaning_debt: CleaningDebt::default(),
        }
    }
}
