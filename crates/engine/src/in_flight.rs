//! Commands that several wait for: the data of a record, sent together with it.

use persimmon_sync::atomic::{AtomicBool, Ordering};
use persimmon_sync::{Arc, Mutex, OnceLock};

use persimmon_device::{DeviceError, Pending};

use crate::fair_lock::FairLock;
use crate::media::wait_all;

/// Writes sent to one zone at once. Its writer keeps them too: a failure is known to whoever
/// writes to this zone next, and to nobody who writes elsewhere.
#[derive(Debug)]
pub(crate) struct Writes {
    commands: Mutex<Vec<Pending>>,
    failed: OnceLock<DeviceError>,
    waiting: FairLock,
    completed: AtomicBool,
}

impl Writes {
    pub(crate) fn new(commands: Vec<Pending>) -> Arc<Writes> {
        Arc::new(Writes {
            commands: Mutex::new(commands),
            failed: OnceLock::new(),
            waiting: FairLock::default(),
            completed: AtomicBool::new(false),
        })
    }

    /// Whether one of them is known to have failed; does not wait.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.get().is_some()
    }

    /// Whether there may still be something to wait for; a hint.
    pub(crate) fn is_under_way(&self) -> bool {
        !self.completed.load(Ordering::Acquire)
    }

    /// Waits for all of them. Whoever asks gets the same answer.
    pub(crate) fn complete(&self) -> Result<(), DeviceError> {
        let _lock = self.waiting.lock();
        let commands = std::mem::take(&mut *self.commands.lock());
        if let Err(error) = wait_all(commands) {
            let _ = self.failed.set(error);
        }
        self.completed.store(true, Ordering::Release);
        self.failed.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}

/// Data that a record refers to and that was sent to the device together with it: writes to one
/// or several zones.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    writes: Mutex<Vec<Arc<Writes>>>,
    met: AtomicBool,
}

impl InFlight {
    fn writes(&self) -> Vec<Arc<Writes>> {
        self.writes.lock().clone()
    }

    /// Adds writes under way.
    pub(crate) fn add(&self, writes: Arc<Writes>) {
        self.writes.lock().push(writes);
    }

    /// For a batch that failed: true for the second of two callers, who come in either order. One completes its record, the
    /// other has mapped its data elsewhere.
    pub(crate) fn arrives_second(&self) -> bool {
        self.met.swap(true, Ordering::AcqRel)
    }

    /// Whether one of the commands is known to have failed; does not wait.
    pub(crate) fn has_failed(&self) -> bool {
        self.writes().iter().any(|writes| writes.has_failed())
    }

    /// Waits for all commands added so far. Whoever asks gets the same answer.
    pub(crate) fn complete(&self) -> Result<(), DeviceError> {
        let complete = |writes: &Arc<Writes>| writes.complete();
        self.writes().iter().map(complete).fold(Ok(()), Result::and)
    }
}
