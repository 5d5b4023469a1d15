//! What a panic in the midst of a change, or a state that cannot be, tells everybody else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Raised for good once a thread has panicked in the midst of a change, or has found a state that cannot be. Copies are
/// one alarm.
///
/// Nothing waits for it, so it is no meeting point of the scheduler either.
#[derive(Clone, Debug, Default)]
pub struct Alarm(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_raised: AtomicBool,
    cause: OnceLock<Cause>,
}

/// A state that cannot be, and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Source file of the check.
    pub file: &'static str,
    /// Line of the check.
    pub line: u32,
    /// What does not hold, with the values.
    pub what: String,
    /// Damage on the device may explain it too. Otherwise it is a bug.
    pub may_be_damage: bool,
}

impl Alarm {
    /// Whether it was raised.
    #[must_use]
    #[inline]
    pub fn is_raised(&self) -> bool {
        self.0.is_raised.load(Ordering::Acquire)
    }

    /// Raises it.
    pub fn raise(&self) {
        self.0.is_raised.store(true, Ordering::Release);
    }

    /// Raises it, and says why, unless it was raised before: what a panic has cut short may look like anything. Whether it
    /// is raised for this cause.
    pub fn raise_because(&self, cause: Cause) -> bool {
        let is_first = !self.is_raised() && self.0.cause.set(cause).is_ok();
        self.raise();
        is_first
    }

    /// Why it was raised, if it was not for a panic.
    #[must_use]
    pub fn cause(&self) -> Option<&Cause> {
        self.0.cause.get()
    }

    /// Raises it if this thread panics while the watch lives.
    #[must_use]
    pub fn watch(&self) -> Watch<'_> {
        Watch::new(Some(self))
    }
}

/// As long as this lives a panic of its thread raises an alarm, before what is declared behind it is dropped.
#[derive(Debug)]
pub struct Watch<'a> {
    alarm: Option<&'a Alarm>,
    /// A destructor that runs because of a panic elsewhere is not interrupted by that.
    was_panicking: bool,
}

impl<'a> Watch<'a> {
    #[inline]
    pub(crate) fn new(alarm: Option<&'a Alarm>) -> Watch<'a> {
        Watch {
            alarm,
            was_panicking: std::thread::panicking(),
        }
    }

    /// Raises the alarm now if the thread is panicking: for destructors that let others go on. Whether it did.
    #[inline]
    pub fn look(&self) -> bool {
        let panics = !self.was_panicking && std::thread::panicking();
        if let Some(alarm) = self.alarm.filter(|_| panics) {
            alarm.raise();
        }
        panics
    }
}

impl Drop for Watch<'_> {
    #[inline]
    fn drop(&mut self) {
        self.look();
    }
}
