//! Placement: which zone runs of blocks go to, and blocks packed into runs. It takes the zones that are there and wins none.

use persimmon_sync::atomic::AtomicBool;
use persimmon_sync::{Arc, OnceLock};

mod compressed;
mod packing;
mod placing;

use crate::fair_lock::{FairGuard, FairLock};
use crate::space::Space;
use crate::store::Store;

pub(crate) use compressed::{Compressed, packed_runs};
pub(crate) use packing::Exchange;
pub(crate) use placing::{Lack, Places, Placing, ToPlace};

/// See the module.
pub(crate) struct Placement {
    store: Arc<Store>,
    space: Arc<Space>,
    packing_lock: FairLock,
    /// Packing found no room: it is not tried again before the next checkpoint.
    packing_failed: AtomicBool,
    /// Called when a zone was taken for file data.
    zone_taken: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Placement {
    pub(crate) fn new(store: &Arc<Store>, space: &Arc<Space>) -> Placement {
        Placement {
            store: Arc::clone(store),
            space: Arc::clone(space),
            packing_lock: FairLock::default(),
            packing_failed: AtomicBool::new(false),
            zone_taken: OnceLock::new(),
        }
    }

    /// Keeps others from packing.
    pub(crate) fn hold_packing(&self) -> Option<FairGuard<'_>> {
        self.packing_lock.try_lock()
    }

    /// Has `call` told whenever a zone was taken for file data, so that there may be something to clean:
    /// long before the next look at it is due where much is written. It is called by whoever writes, and
    /// is not to wait. Only the first one given is called.
    pub(crate) fn on_zone_taken(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.zone_taken.set(Box::new(call));
    }

    pub(crate) fn tell_zone_taken(&self) {
        if let Some(call) = self.zone_taken.get() {
            call();
        }
    }
}
