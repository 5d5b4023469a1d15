//! Exchanges of two names, each of which must be done once: for done twice it is undone, and nothing in the directories tells. Of each that is
//! under way the ledger has which inode had the first name before.
//!
//! A thread has one place. By the time it exchanges again, what it has exchanged before is answered. A place of a daemon that died may be of a
//! request that the kernel sends again; it is taken by others only where there is no free one, the oldest first.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use persimmon_sync::Mutex;

use super::region::WORD;
use super::{AT_EXCHANGES, Ledger};

/// Places: for the threads of many daemons.
const PLACES: usize = 512;
/// Request and inode.
const WORDS: usize = 2;
pub const BYTES: usize = PLACES * WORDS * WORD;

/// The places of this daemon's threads.
#[derive(Default)]
pub struct Exchanges(Mutex<HashMap<ThreadId, usize>>);

impl Ledger {
    /// Two names are about to be exchanged by a request, the first of which is that of inode `first`. True if it was done already, by a daemon
    /// before this one.
    pub fn exchanging(&self, request: u64, first: u64, resent: bool) -> bool {
        let mut taken = self.exchanges.0.lock();
        let thread = thread::current().id();
        let before = resent.then(|| (0..PLACES).find(|place| self.exchange(*place) == request));
        if let Some(place) = before.flatten() {
            if let Some(other) = taken.insert(thread, place).filter(|other| *other != place) {
                self.request_at(other).store(0, Ordering::Release);
            }
            return self.first_at(place).load(Ordering::Acquire) != first;
        }
        let free = || {
            let mut others = (0..PLACES).filter(|place| !taken.values().any(|own| own == place));
            let empty = others.clone().find(|place| self.exchange(*place) == 0);
            empty.or_else(|| {
                let first = others.next()?;
                Some(others.fold(first, |oldest, place| {
                    match self.exchange(place) < self.exchange(oldest) {
                        true => place,
                        false => oldest,
                    }
                }))
            })
        };
        // Threads that serve the kernel are fewer than places.
        let place = taken.get(&thread).copied().or_else(free).unwrap_or(0);
        taken.insert(thread, place);
        self.request_at(place).store(0, Ordering::Release);
        self.first_at(place).store(first, Ordering::Release);
        self.request_at(place).store(request, Ordering::Release);
        false
    }

    fn exchange(&self, place: usize) -> u64 {
        self.request_at(place).load(Ordering::Acquire)
    }

    fn request_at(&self, place: usize) -> &AtomicU64 {
        self.region.word(AT_EXCHANGES + place * WORDS * WORD)
    }

    fn first_at(&self, place: usize) -> &AtomicU64 {
        self.region.word(AT_EXCHANGES + place * WORDS * WORD + WORD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(ledger: &Ledger) -> std::sync::Arc<Ledger> {
        Ledger::open(ledger.memory().unwrap(), [7; 16]).unwrap()
    }

    fn on_its_own_thread(ledger: &Ledger, request: u64, first: u64) -> bool {
        thread::scope(|scope| {
            let exchanging = || ledger.exchanging(request, first, false);
            scope.spawn(exchanging).join().unwrap()
        })
    }

    /// There was one place: an exchange on another thread took it before the first one was answered, which was then done again, and so undone.
    #[test]
    fn an_exchange_is_known_though_others_came_after_it() {
        let ledger = Ledger::new([7; 16]).unwrap();
        assert!(!on_its_own_thread(&ledger, 7, 100));
        assert!(!on_its_own_thread(&ledger, 8, 200));
        let ledger = next(&ledger);
        // Inode 101 has the name of 100 by now; 200 still has its own.
        assert!(ledger.exchanging(7, 101, true));
        assert!(!ledger.exchanging(8, 200, true));
        // Not noted before: it was not done.
        assert!(!ledger.exchanging(9, 300, true));
        assert!(ledger.exchanging(9, 301, true));
    }

    #[test]
    fn a_place_is_for_one_request_after_the_other_of_a_thread() {
        let ledger = Ledger::new([7; 16]).unwrap();
        for request in 1..10_000 {
            assert!(!ledger.exchanging(request, 100, false));
        }
        let used = (0..PLACES).filter(|place| ledger.exchange(*place) != 0);
        assert_eq!(used.count(), 1);
    }

    /// Daemons that die again and again leave places that nobody asks for any more; what the last ones left is there.
    #[test]
    fn the_oldest_places_are_taken_first() {
        let mut ledger = Ledger::new([7; 16]).unwrap();
        let last = 3 * PLACES as u64;
        for request in 1..=last {
            assert!(!ledger.exchanging(request, 100, false));
            ledger = next(&ledger);
        }
        for request in last - PLACES as u64 + 1..=last {
            assert!(ledger.exchanging(request, 101, true));
            ledger = next(&ledger);
        }
    }
}
