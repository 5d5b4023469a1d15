//! Options that can be changed while the volume is in use, and are kept nowhere else.

use persimmon_sync::RwLock;
use persimmon_sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};

use crate::options::{CleaningOptions, Options};

/// See the module.
#[derive(Debug)]
pub(crate) struct Tuned {
    pub(crate) cache_bytes_max: AtomicUsize,
    pub(crate) checkpoint_due_percent: AtomicU32,
    /// What owners take is counted, or is about to be: a change of an inode changes their items too.
    pub(crate) counts_owners: AtomicBool,
    cleaning: RwLock<CleaningOptions>,
}

impl Tuned {
    pub(crate) fn new(options: &Options) -> Tuned {
        Tuned {
            cache_bytes_max: AtomicUsize::new(options.cache_bytes_max),
            checkpoint_due_percent: AtomicU32::new(options.checkpoint_due_percent),
            counts_owners: AtomicBool::new(false),
            cleaning: RwLock::new(options.cleaning),
        }
    }

    /// Thresholds of cleaning, as they are now.
    pub(crate) fn cleaning(&self) -> CleaningOptions {
        *self.cleaning.read()
    }

    pub(crate) fn change_cleaning(&self, change: impl FnOnce(&mut CleaningOptions)) {
        change(&mut self.cleaning.write());
    }
}
