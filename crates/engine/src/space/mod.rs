//! Space: what is promised to users, what each kind of work leaves to the others, and how long the journal and how many the dirty pages
//! may get. Nothing here waits and nothing is freed here: that is [`reclaim`](crate::reclaim).

use persimmon_sync::atomic::{AtomicBool, AtomicU64};
use persimmon_sync::{Arc, Condvar, Mutex};

mod bounds;
mod ledger;
pub(crate) mod policy;
mod quota;
mod reserves;
mod room;
mod staging;
mod targets;
mod view;

use crate::store::Store;

pub use ledger::Promised;
pub(crate) use ledger::Unwritten;
pub use quota::Admitted;
pub(crate) use quota::{BLOCK_SECTORS, QuotaLedger};
pub(crate) use reserves::{Journal, Work};
pub use room::SpaceReport;
pub(crate) use view::View;

/// What is promised, and the store whose zones it is promised of.
pub(crate) struct Space {
    store: Arc<Store>,
    staged_blocks: AtomicU64,
    staged_blocks_peak: AtomicU64,
    /// Preallocated, and not in the tree yet.
    unwritten_blocks: AtomicU64,
    /// Promised, and not staged yet.
    promised_blocks: AtomicU64,
    /// Held while a promise is made, from the look at what is left until it is taken.
    granting: Mutex<()>,
    lock: Mutex<()>,
    given_back: Condvar,
    staged_blocks_max: AtomicU64,
    /// The same where zones are short and next to nothing is garbage. What is staged of a file is committed at once, and until then the
    /// zones it fills cannot be cleaned: it must not need more of them than are reserved for that, or than cleaning
    /// wins of others.
    staged_blocks_max_short: AtomicU64,
    /// The spare blocks of the reserve may be filled too.
    reserve_allowed: AtomicBool,
    /// What of it is whose.
    pub(crate) quota: QuotaLedger,
}

impl Space {
    pub(crate) fn new(store: &Arc<Store>) -> Space {
        let space = Space {
            store: Arc::clone(store),
            staged_blocks: AtomicU64::new(0),
            staged_blocks_peak: AtomicU64::new(0),
            unwritten_blocks: AtomicU64::new(0),
            promised_blocks: AtomicU64::new(0),
            granting: Mutex::new(()),
            lock: Mutex::new(()),
            given_back: Condvar::new(),
            staged_blocks_max: AtomicU64::new(0),
            staged_blocks_max_short: AtomicU64::new(0),
            reserve_allowed: AtomicBool::new(false),
            quota: QuotaLedger::new(&store.media.alarm),
        };
        space.set_staging(store.options.staging_bytes_max as u64);
        space
    }
}
