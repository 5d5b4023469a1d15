//! Reclaim: the only caller of cleaning and of checkpoints. Who needs room, or is about to change something, comes here and waits here.

use persimmon_sync::Arc;
use persimmon_sync::atomic::AtomicU64;

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
use crate::error::Result;
use crate::fair_lock::FairLock;
use crate::meta::Intent;
use crate::placement::Placement;
use crate::space::Space;
use crate::store::Store;
use crate::zones::PerDevice;

pub use demand::{CleanState, CleanStep};
use throttle::CleaningDebt;

/// Blocks moved at once.
const MOVE_BLOCKS: u64 = 1024;

/// What somebody needs of the reclaimer, who waits until it is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// A change of the metadata may begin: journal and dirty pages are within their bounds, and there are zones for a checkpoint.
    Change(Intent),
    /// A whole checkpoint is written: what dirty pages take is known then, and no record before it is needed.
    Checkpoint,
    /// No zone of the log has failed, so that something may be acknowledged.
    SoundLog,
}

/// What the background threads ask it for, where there is a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// A step of emptying a victim.
    Clean,
    /// A checkpoint that frees zones.
    Free,
    /// The same although enough are free, where their space is a host's.
    FreeForHost,
}

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
    /// Before the checkpoint of this number no cleaning ahead of need finds room on a device.
    no_room_before: PerDevice<AtomicU64>,
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
            no_room_before: PerDevice::default(),
        }
    }

    /// Does what somebody needs, and waits until it is done.
    pub(crate) fn serve(&self, demand: Demand) -> Result<()> {
        match demand {
            Demand::Change(intent) => {
                self.keep_bounds()?;
                match self.restore_low_watermark(intent) {
                    Err(error) if intent == Intent::Shrink && error.passes() => Ok(()),
                    other => other,
                }
            }
            Demand::Checkpoint => self.checkpoint(),
            Demand::SoundLog => self.secure_log(),
        }
    }

    /// Does what is due ahead of need. False if nothing was, or nothing was gained.
    pub(crate) fn work_ahead(&self, ahead: Ahead) -> Result<bool> {
        match ahead {
            Ahead::Clean => self.clean_ahead(),
            Ahead::Free => self.free_ahead(),
            Ahead::FreeForHost => self.free_for_idle_host(),
        }
    }
}
