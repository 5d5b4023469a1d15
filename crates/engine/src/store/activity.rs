//! Whether anything happens on a volume. Threads that look for background work sleep while nothing does.

use persimmon_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::fmt;
use std::sync::OnceLock;

use super::Store;

type Wake = Box<dyn Fn() + Send + Sync>;

/// A count of what there may be background work for, and who sleeps until something happens.
#[derive(Default)]
pub struct Activity {
    count: AtomicU64,
    sleepers: AtomicUsize,
    wake: OnceLock<Wake>,
    due: OnceLock<Wake>,
}

impl Activity {
    /// Something happened that there may be background work for: also above the volume, such as access times or appends that are in memory
    /// alone. Call it after others can see that.
    pub fn note(&self) {
        // A sleeper registers first and looks at the count then. Either it sees this, or it is seen here.
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0
            && let Some(wake) = self.wake.get()
        {
            wake();
        }
    }

    /// A number that grows with whatever there may be background work for.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Has `wake` called when something happens while there is a [`Sleeper`]. The caller may hold locks, so it is not to wait. Only the
    /// first one given is called.
    pub fn on_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// Has `call` called when so much is staged that it is time to write some of it back: long before the next look where much is
    /// written. It is called by whoever writes, and is not to wait. Only the first one given is called.
    pub fn on_write_back_due(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.due.set(Box::new(call));
    }

    /// It is time to write something back.
    pub(crate) fn write_back_due(&self) {
        if let Some(call) = self.due.get() {
            call();
        }
    }

    /// For who is about to sleep until the [`count`](Self::count) grows. Ask for that number after this, and sleep only if it is still
    /// the one for which there was no work left.
    pub fn sleeper(&self) -> Sleeper<'_> {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        Sleeper(self)
    }
}

/// Somebody sleeps until something happens. As long as it lives, whatever happens wakes.
pub struct Sleeper<'a>(&'a Activity);

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.0.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl fmt::Debug for Sleeper<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sleeper")
    }
}

impl fmt::Debug for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Activity").field(&self.count()).finish()
    }
}

impl Store {
    /// Asks the device about the zones that answered with errors.
    pub(crate) fn examine(&self) {
        self.note_failures(|| self.zones.examine(&self.media));
    }

    /// Runs what may find that zones have failed: they are to be emptied, and somebody is to be told of what is lost.
    pub(crate) fn note_failures(&self, examine: impl FnOnce()) {
        let before = self.zones.failed_zones();
        examine();
        if self.zones.failed_zones() != before {
            self.activity.note();
        }
    }
}
