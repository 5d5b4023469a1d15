//! A turn: work that only one thread does at a time, I/O included. Unlike a lock it guards no
//! data.

use std::sync::{Condvar, Mutex, PoisonError};

/// Who takes it works alone; others wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    taken: Mutex<bool>,
    given_back: Condvar,
}

/// The turn, until dropped.
pub(crate) struct Taken<'a>(&'a Turn);

impl Turn {
    pub(crate) fn take(&self) -> Taken<'_> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *taken {
            taken = self
                .given_back
                .wait(taken)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *taken = true;
        Taken(self)
    }

    /// Takes it if nobody has it.
    pub(crate) fn try_take(&self) -> Option<Taken<'_>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        // Not made where it is not taken: dropping it gives the turn back.
        (!std::mem::replace(&mut *taken, true)).then(|| Taken(self))
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.given_back.notify_one();
    }
}
