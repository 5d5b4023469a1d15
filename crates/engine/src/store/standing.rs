//! Whether a volume takes changes.

use persimmon_sync::Alarm;
use persimmon_sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;
use crate::invariant;

/// What decides whether a volume takes changes. Small and shared: who asks for each record of a log asks this, and touches no other
/// memory of the volume.
#[derive(Debug)]
pub struct Standing {
    /// It was opened so.
    opened_read_only: bool,
    alarm: Alarm,
    /// Damage was found while changing something: nothing more is written.
    broken: AtomicBool,
}

impl Standing {
    pub(super) fn new(opened_read_only: bool, alarm: Alarm) -> Standing {
        Standing {
            opened_read_only,
            alarm,
            broken: AtomicBool::new(false),
        }
    }

    /// Whether changes are refused, because it was opened so or because damage was found.
    #[must_use]
    #[inline]
    pub fn is_read_only(&self) -> bool {
        self.opened_read_only || self.alarm.is_raised() || self.broken.load(Ordering::Acquire)
    }

    /// The bug that was found, or the damage to counts, for which nothing more is written.
    #[must_use]
    pub fn bug(&self) -> Option<Error> {
        invariant::found(&self.alarm)
    }

    pub(super) fn make_read_only(&self) {
        self.broken.store(true, Ordering::Release);
    }
}
