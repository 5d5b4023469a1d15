//! A lock for what is read all the time by many threads.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

#[cfg(not(interleave))]
use crossbeam_utils::sync as system;
#[cfg(interleave)]
use shuttle::sync as system;

#[cfg(interleave)]
use system::{RwLock as Lock, RwLockReadGuard as ReadGuard, RwLockWriteGuard as WriteGuard};
#[cfg(not(interleave))]
use system::{
    ShardedLock as Lock, ShardedLockReadGuard as ReadGuard, ShardedLockWriteGuard as WriteGuard,
};

use crate::{Alarm, Watch};

/// Lets many threads look at what it guards, or one change it. Readers share nothing that they write to: there are eight locks, of which
/// a thread that reads takes its own, and one that writes all. With one lock two threads that did nothing but read were no quicker
/// than one, for its memory went from one processor to the other each time.
pub struct ShardedRwLock<T> {
    alarm: Alarm,
    inner: Lock<T>,
}

/// The lock of a [`ShardedRwLock`] for reading, until dropped.
pub type ShardedReadGuard<'a, T> = ReadGuard<'a, T>;

/// The lock of a [`ShardedRwLock`] for writing, until dropped.
pub struct ShardedWriteGuard<'a, T> {
    // Dropped first, and only that: the alarm is raised before the lock is free.
    _watch: Watch<'a>,
    inner: WriteGuard<'a, T>,
}

impl<T> ShardedRwLock<T> {
    /// As of [`Mutex::watched`](crate::Mutex::watched). Who only reads changes nothing.
    pub fn watched(value: T, alarm: &Alarm) -> ShardedRwLock<T> {
        ShardedRwLock {
            alarm: alarm.clone(),
            inner: Lock::new(value),
        }
    }

    /// Waits until nobody writes.
    pub fn read(&self) -> ShardedReadGuard<'_, T> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody reads or writes.
    pub fn write(&self) -> ShardedWriteGuard<'_, T> {
        ShardedWriteGuard {
            _watch: Watch::new(Some(&self.alarm)),
            inner: self.inner.write().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

impl<T> Deref for ShardedWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for ShardedWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

#[cfg(all(test, not(interleave)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn panics(work: impl FnOnce()) {
        assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
    }

    #[test]
    fn a_panic_while_writing_raises_the_alarm_and_one_while_reading_does_not() {
        let alarm = Alarm::default();
        let lock = ShardedRwLock::watched(0, &alarm);
        panics(|| {
            *lock.write() = 1;
            let _reading = lock.read();
            panic!("while reading");
        });
        assert!(!alarm.is_raised(), "a reader changes nothing");
        panics(|| {
            let _guard = lock.write();
            panic!("half way");
        });
        assert!(alarm.is_raised());
        assert_eq!(*lock.read(), 1, "the lock is free");
    }

    #[test]
    fn readers_see_all_of_a_change_or_nothing() {
        let lock = ShardedRwLock::watched((0, 0), &Alarm::default());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while lock.read().0 < 10_000 {
                        let seen = lock.read();
                        assert_eq!(seen.0, seen.1);
                    }
                });
            }
            for n in 1..=10_000 {
                let mut value = lock.write();
                value.0 = n;
                value.1 = n;
            }
        });
    }
}
