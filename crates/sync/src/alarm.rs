//! What a panic in the midst of a change tells everybody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Raised for good once a thread has panicked in the midst of a change. Copies are one alarm.
///
/// Nothing waits for it, so it is no meeting point of the scheduler either.
#[derive(Clone, Debug, Default)]
pub struct Alarm(Arc<AtomicBool>);

impl Alarm {
    /// Whether it was raised.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Raises it.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Release);
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
    pub(crate) fn new(alarm: Option<&'a Alarm>) -> Watch<'a> {
        Watch {
            alarm,
            was_panicking: std::thread::panicking(),
        }
    }

    /// Raises the alarm now if the thread is panicking: for destructors that let others go on. Whether it did.
    pub fn look(&self) -> bool {
        let panics = !self.was_panicking && std::thread::panicking();
        if let Some(alarm) = self.alarm.filter(|_| panics) {
            alarm.raise();
        }
        panics
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.look();
    }
}
