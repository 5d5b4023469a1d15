//! What threads meet at: locks, condition variables, atomics.
//!
//! They are those of the standard library. Built with `--cfg interleave` they are those of
//! [shuttle](https://docs.rs/shuttle), under which threads are coroutines that a seed switches between wherever
//! they meet: what two threads do at once is then as repeatable as what one does
//! (`crates/crash/src/threads`). The engine and the layers above it take everything at which a thread may wait
//! from here; a lock of another kind would hold all of them up at once, unless its holder waits for nobody ([`host`]).
//!
//! No lock here is poisoned. A lock whose state may be half changed when its holder panics is made with
//! [`Mutex::watched`] or [`ShardedRwLock::watched`]: the panic raises an [`Alarm`] before anybody else gets the lock, and who
//! owns the alarm stops (of a volume: nothing is sent to the device any more). Others guard what is whole between any two
//! statements.

mod alarm;
pub mod host;
mod lock;
mod per_thread;
mod sharded;

pub use alarm::{Alarm, Cause, Watch};
pub use lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use per_thread::PerThread;
pub use sharded::{ShardedReadGuard, ShardedRwLock, ShardedWriteGuard};

#[cfg(not(interleave))]
pub use std::{sync::atomic, thread};

#[cfg(interleave)]
pub use shuttle::sync::atomic;
#[cfg(interleave)]
pub use shuttle::thread;

/// Something shared that readers get without a lock, and without writing what others read.
pub use arc_swap::ArcSwapOption;
/// What lies in a line of a processor's cache by itself.
pub use crossbeam_utils::CachePadded;
// These wait for nobody. (What a `OnceLock` is set to has to be there already.)
pub use std::sync::{Arc, OnceLock};

/// Where another thread may go on though this one waits for nothing: before a device is asked. Nothing but under
/// the scheduler.
pub fn meet() {
    #[cfg(interleave)]
    thread::yield_now();
}
