//! A turn: work that only one thread does at a time, I/O included. Unlike a lock it guards no
//! data, and it is handed on in the order in which it was asked for: who takes it again and again
//! makes nobody wait for more than one of them.

use persimmon_sync::{Condvar, Mutex, MutexGuard};

/// Who takes it works alone; others wait for their turn.
#[derive(Debug, Default)]
pub struct Turn {
    tickets: Mutex<Tickets>,
    given_back: Condvar,
}

#[derive(Debug, Default)]
struct Tickets {
    /// Of whoever asks next.
    next: u64,
    /// Of who has the turn; if that is the next one, nobody has it.
    now: u64,
}

/// The turn, until dropped.
#[derive(Debug)]
#[must_use]
pub struct Taken<'a>(&'a Turn);

impl Turn {
    fn tickets(&self) -> MutexGuard<'_, Tickets> {
        self.tickets.lock()
    }

    /// Waits until it is the caller's turn.
    pub fn take(&self) -> Taken<'_> {
        let mut tickets = self.tickets();
        let own = tickets.next;
        tickets.next += 1;
        let waits = |tickets: &mut Tickets| tickets.now != own;
        let waited = self.given_back.wait_while(tickets, waits);
        drop(waited);
        Taken(self)
    }

    /// Takes it if nobody has it.
    pub(crate) fn try_take(&self) -> Option<Taken<'_>> {
        let mut tickets = self.tickets();
        if tickets.now != tickets.next {
            return None;
        }
        tickets.next += 1;
        Some(Taken(self))
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.tickets().now += 1;
        // Only one of those who wait has the next ticket.
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
        let (turn, others) = (Turn::default(), AtomicU32::new(0));
        let taken = turn.take();
        assert!(turn.try_take().is_none());
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let _turn = turn.take();
                    others.fetch_add(1, Ordering::Relaxed);
                });
            }
            while turn.tickets().next < 4 {
                thread::yield_now();
            }
            drop(taken);
            // Who comes back takes its place behind those who wait.
            let _turn = turn.take();
            assert_eq!(others.load(Ordering::Relaxed), 3);
        });
        assert!(turn.try_take().is_some());
    }
}
