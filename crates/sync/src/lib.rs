//! What threads meet at: locks, condition variables, atomics.
//!
//! They are those of the standard library. Built with `--cfg interleave` they are those of
//! [shuttle](https://docs.rs/shuttle), under which threads are coroutines that a seed switches between wherever
//! they meet: what two threads do at once is then as repeatable as what one does
//! (`crates/sim/src/threads`). The engine and the layers above it take everything at which a thread may wait
//! from here; a lock of another kind would hold all of them up at once.

#[cfg(not(interleave))]
pub use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(interleave))]
pub use std::{sync::atomic, thread};

#[cfg(interleave)]
pub use shuttle::sync::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic,
};
#[cfg(interleave)]
pub use shuttle::thread;

// These wait for nobody. (What a `OnceLock` is set to has to be there already.)
pub use std::sync::{Arc, LockResult, OnceLock, PoisonError};

/// Where another thread may go on though this one waits for nothing: before a device is asked. Nothing but under
/// the scheduler.
pub fn meet() {
    #[cfg(interleave)]
    thread::yield_now();
}
