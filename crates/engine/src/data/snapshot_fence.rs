//! What is staged over blocks that the file has takes no room of its own, since writing it frees those. Not so if a snapshot has them by then:
//! nothing that is staged so may be left when one is taken.

use persimmon_sync::Mutex;
use persimmon_sync::atomic::{AtomicU64, Ordering};

/// Tells whether a snapshot was taken since, or is being taken.
#[derive(Default)]
pub(super) struct SnapshotFence {
    /// Odd while one is being taken.
    passes: AtomicU64,
    taking: Mutex<()>,
}

impl SnapshotFence {
    /// A moment before which no snapshot is being taken; waits for one that is.
    pub(super) fn moment(&self) -> u64 {
        loop {
            let passes = self.passes.load(Ordering::SeqCst);
            if passes.is_multiple_of(2) {
                return passes;
            }
            drop(self.taking.lock());
        }
    }

    /// Whether none is being taken, nor was since this moment. To be asked with the file's lock held under which something is staged: whoever
    /// takes a snapshot writes back the file after that.
    pub(super) fn is_since(&self, moment: u64) -> bool {
        self.passes.load(Ordering::SeqCst) == moment
    }

    /// Whether a snapshot is being taken.
    pub(super) fn is_taking(&self) -> bool {
        !self.passes.load(Ordering::SeqCst).is_multiple_of(2)
    }

    /// Runs what writes back all that is staged and then takes a snapshot.
    pub(super) fn take<R>(&self, take: impl FnOnce() -> R) -> R {
        let _taking = self.taking.lock();
        self.passes.fetch_add(1, Ordering::SeqCst);
        let taken = take();
        self.passes.fetch_add(1, Ordering::SeqCst);
        taken
    }
}
