//! A lock of the standard library, also where a seed schedules the threads.
//!
//! For what is below or beside the code that the scheduler tries: memory that all runs of a process share, the simulated
//! device, the harness. Its holder never waits for another thread of the run nor lets one go on ([`crate::meet`]), so one
//! step of the scheduler is the longest that it is held; and threads that the scheduler knows nothing of may take it.

use std::sync::{self, PoisonError, TryLockError};

/// Lets one thread at a time at what it guards. It is not poisoned, as no lock here is.
#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

/// The lock of a [`Mutex`], until dropped.
pub type MutexGuard<'a, T> = sync::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    /// A lock of what is whole between any two statements, whoever panics where.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(sync::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, unless another thread has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// What it guards.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
