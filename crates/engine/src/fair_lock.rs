//! A fair lock for work that only one thread does at a time, I/O included. It guards no data, and
//! threads get it in the order in which they asked for it: a thread that takes it again and again
//! makes another thread wait for one hold at most.

use persimmon_sync::{Condvar, Mutex, MutexGuard};

/// The holder works alone. Other threads wait, and get the lock in the order in which they asked.
#[derive(Debug, Default)]
pub struct FairLock {
    tickets: Mutex<Tickets>,
    given_back: Condvar,
}

#[derive(Debug, Default)]
struct Tickets {
    /// The ticket of the next thread that asks.
    next: u64,
    /// The ticket of the holder. If it is the next one, no thread holds the lock.
    now: u64,
}

/// Holds the lock until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct FairGuard<'a>(&'a FairLock);

impl FairLock {
    fn tickets(&self) -> MutexGuard<'_, Tickets> {
        self.tickets.lock()
    }

    /// Waits until the lock is the caller's.
    pub fn lock(&self) -> FairGuard<'_> {
        let mut tickets = self.tickets();
        let own = tickets.next;
        tickets.next += 1;
        let waits = |tickets: &mut Tickets| tickets.now != own;
        let waited = self.given_back.wait_while(tickets, waits);
        drop(waited);
        FairGuard(self)
    }

    /// Takes the lock if no thread holds it.
    pub(crate) fn try_lock(&self) -> Option<FairGuard<'_>> {
        let mut tickets = self.tickets();
        if tickets.now != tickets.next {
            return None;
        }
        tickets.next += 1;
        Some(FairGuard(self))
    }
}

impl Drop for FairGuard<'_> {
    fn drop(&mut self) {
        self.0.tickets().now += 1;
        // Only one of the waiting threads has the next ticket.
        self.0.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use persimmon_sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn goes_round_in_order() {
        let (lock, others) = (FairLock::default(), AtomicU32::new(0));
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let _guard = lock.lock();
                    others.fetch_add(1, Ordering::Relaxed);
                });
            }
            while lock.tickets().next < 4 {
                thread::yield_now();
            }
            drop(guard);
            // A thread that comes back is behind those that wait.
            let _guard = lock.lock();
            assert_eq!(others.load(Ordering::Relaxed), 3);
        });
        assert!(lock.try_lock().is_some());
    }
}
