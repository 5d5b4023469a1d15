//! Commands that several wait for: the data of a record, sent together with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use persimmon_device::{DeviceError, Pending};

use crate::media::wait_all;
use crate::turn::Turn;

/// Data that a record refers to and that was sent to the device together with it.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    commands: Mutex<Vec<Pending>>,
    failed: OnceLock<DeviceError>,
    turn: Turn,
    /// Commands were added that nobody has waited for yet.
    under_way: AtomicBool,
}

impl InFlight {
    /// Adds commands under way.
    pub(crate) fn add(&self, commands: Vec<Pending>) {
        self.under_way.store(true, Ordering::Release);
        self.commands
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(commands);
    }

    /// Whether one of the commands is known to have failed; does not wait.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.get().is_some()
    }

    /// Whether there may still be something to wait for; a hint.
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::Acquire)
    }

    /// Waits for all commands added so far. Whoever asks gets the same answer.
    pub(crate) fn settle(&self) -> Result<(), DeviceError> {
        let _turn = self.turn.take();
        let commands =
            std::mem::take(&mut *self.commands.lock().unwrap_or_else(PoisonError::into_inner));
        if let Err(error) = wait_all(commands) {
            let _ = self.failed.set(error);
        }
        self.under_way.store(false, Ordering::Release);
        self.failed.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}
