//! Locks without poisoning.

use std::fmt;
use std::ops::{Deref, DerefMut};

#[cfg(interleave)]
use shuttle::sync as system;
#[cfg(not(interleave))]
use std::sync as system;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::atomic::{AtomicUsize, Ordering};
use crate::{Alarm, Watch};

/// Lets one thread at a time at what it guards.
#[derive(Default)]
pub struct Mutex<T> {
    alarm: Option<Alarm>,
    inner: system::Mutex<T>,
}

/// The lock of a [`Mutex`], until dropped.
pub struct MutexGuard<'a, T> {
    // Dropped first: the alarm is raised before the lock is free.
    watch: Watch<'a>,
    inner: system::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    /// A lock of what is whole between any two statements, whoever panics where.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex {
            alarm: None,
            inner: system::Mutex::new(value),
        }
    }

    /// A lock of what a panic may leave half changed: that raises the alarm before anybody else gets it.
    pub fn watched(value: T, alarm: &Alarm) -> Mutex<T> {
        Mutex {
            alarm: Some(alarm.clone()),
            inner: system::Mutex::new(value),
        }
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            watch: Watch::new(self.alarm.as_ref()),
            inner: self.inner.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// What it guards, which nobody else can have.
    pub fn get_mut(&mut self) -> &mut T {
        let value = self.inner.get_mut();
        value.unwrap_or_else(PoisonError::into_inner)
    }

    /// What it guards.
    pub fn into_inner(self) -> T {
        self.inner
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Raises the lock's alarm, if it has one, should this thread panic while the watch lives.
    pub fn watch(&self) -> Watch<'_> {
        Watch::new(self.alarm.as_ref())
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// Lets many threads look at what it guards, or one change it.
#[derive(Default)]
pub struct RwLock<T>(system::RwLock<T>);

/// The lock of a [`RwLock`] for reading, until dropped.
pub type RwLockReadGuard<'a, T> = system::RwLockReadGuard<'a, T>;

/// The lock of a [`RwLock`] for writing, until dropped.
pub type RwLockWriteGuard<'a, T> = system::RwLockWriteGuard<'a, T>;

impl<T> RwLock<T> {
    /// As of [`Mutex::new`].
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(system::RwLock::new(value))
    }

    /// Waits until nobody writes.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody reads or writes.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where threads wait until others tell them to look again. What they look at changes under the lock that they wait with.
///
/// To tell nobody is cheap: the standard library asks the system each time, a small fsync nine times. Nobody is missed, because who
/// waits is counted before the lock is given back: who changes something under the lock after that finds the count.
#[derive(Default)]
pub struct Condvar {
    inner: system::Condvar,
    waiting: AtomicUsize,
}

impl Condvar {
    /// One that nobody waits at.
    pub fn new() -> Condvar {
        Condvar::default()
    }

    /// Gives the lock back until it is told of.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let MutexGuard { watch, inner } = guard;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let waited = self.inner.wait(inner);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        let inner = waited.unwrap_or_else(PoisonError::into_inner);
        MutexGuard { watch, inner }
    }

    /// The same as long as `condition` holds.
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let mut guard = guard;
        while condition(&mut guard) {
            guard = self.wait(guard);
        }
        guard
    }

    /// The same once, and for so long at most.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        longest: Duration,
    ) -> MutexGuard<'a, T> {
        let MutexGuard { watch, inner } = guard;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let waited = self.inner.wait_timeout(inner, longest);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        let inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        MutexGuard { watch, inner }
    }

    /// The same as long as `condition` holds, and for so long at most.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        longest: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let begun = Instant::now();
        let mut guard = guard;
        while condition(&mut guard) {
            let Some(left) = longest.checked_sub(begun.elapsed()) else {
                break;
            };
            if left.is_zero() {
                break;
            }
            guard = self.wait_timeout(guard, left);
        }
        guard
    }

    /// Has one of those look again.
    pub fn notify_one(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.inner.notify_one();
        }
    }

    /// Has all of them look again.
    pub fn notify_all(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.inner.notify_all();
        }
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condvar")
    }
}

#[cfg(all(test, not(interleave)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn panics(work: impl FnOnce()) {
        assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
    }

    /// One who was counted too late, or taken off the count too early, would wait for ever.
    #[test]
    fn who_waits_is_told_of_every_change() {
        const TURNS: u32 = 20_000;
        let (turn, changed) = (Mutex::new(0), Condvar::new());
        std::thread::scope(|scope| {
            for own in 0..3 {
                let (turn, changed) = (&turn, &changed);
                scope.spawn(move || {
                    loop {
                        let waits = |turn: &mut u32| *turn < TURNS && *turn % 3 != own;
                        let mut turn = changed.wait_while(turn.lock(), waits);
                        *turn += u32::from(*turn < TURNS);
                        let is_over = *turn >= TURNS;
                        drop(turn);
                        changed.notify_all();
                        if is_over {
                            return;
                        }
                    }
                });
            }
        });
        assert_eq!(changed.waiting.load(Ordering::SeqCst), 0);
    }

    /// A panic under a lock, and the next holder went on with what the first had half changed.
    #[test]
    fn a_panic_under_a_lock_raises_the_alarm_before_the_lock_is_free() {
        let alarm = Alarm::default();
        let mutex = Mutex::watched(0, &alarm);
        std::thread::scope(|scope| {
            let guard = mutex.lock();
            let waiting = scope.spawn(|| {
                let guard = mutex.lock();
                (*guard, alarm.is_raised())
            });
            panics(|| {
                let mut guard = guard;
                *guard = 1;
                panic!("half way");
            });
            let seen = waiting.join().ok();
            assert_eq!(seen, Some((1, true)));
        });
    }

    #[test]
    fn a_destructor_that_a_panic_elsewhere_runs_is_not_interrupted() {
        struct Locks<'a>(&'a Mutex<u32>);
        impl Drop for Locks<'_> {
            fn drop(&mut self) {
                *self.0.lock() += 1;
            }
        }
        let alarm = Alarm::default();
        let mutex = Mutex::watched(0, &alarm);
        panics(|| {
            let _locks = Locks(&mutex);
            panic!("elsewhere");
        });
        assert_eq!((*mutex.lock(), alarm.is_raised()), (1, false));
    }

    #[test]
    fn waiting_keeps_the_watch() {
        let alarm = Alarm::default();
        let (mutex, told) = (Mutex::watched(false, &alarm), Condvar::new());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let guard = told.wait_while(mutex.lock(), |is| !*is);
                assert!(!*guard, "half way");
            });
            *mutex.lock() = true;
            told.notify_all();
            assert!(waits.join().is_err());
        });
        assert!(alarm.is_raised());
    }
}
