//! The lock of the table of zones, and its place in the order of locks.
//!
//! The tree's lock is taken before the table's, never while that is held: with a checkpoint waiting to change the
//! tree, a second reader waits for it, and it for the table. What is asked about zones while the table is searched
//! has to know what it needs of the tree beforehand. It is checked at each taking of the tree's lock, so
//! a test finds the wrong order though nothing waits.

use persimmon_sync::{Alarm, Condvar, Mutex, MutexGuard};
#[cfg(not(interleave))]
use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use super::table::Table;
#[cfg(not(interleave))]
use crate::invariant::invariant_holds;

/// The table, locked. When it is let go its counts are published.
pub(super) struct Locked<'t> {
    /// None only inside of [`Locked::wait`].
    table: Option<MutexGuard<'t, Table>>,
    _held: Held,
}

impl<'t> Locked<'t> {
    pub(super) fn of(table: &'t Mutex<Table>) -> Locked<'t> {
        let table = Some(table.lock());
        let _held = Held::begin();
        Locked { table, _held }
    }

    /// Waits until somebody tells of a change.
    pub(super) fn wait(mut self, changed: &Condvar) -> Locked<'t> {
        if let Some(table) = self.table.take() {
            table.publish();
            self.table = Some(changed.wait(table));
        }
        self
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // A change was left in its midst: nothing more is written, and locks that are taken on the way out may be refused.
        if std::thread::panicking() {
            return;
        }
        if let Some(table) = &self.table {
            table.publish();
        }
    }
}

impl Deref for Locked<'_> {
    type Target = Table;

    fn deref(&self) -> &Table {
        match &self.table {
            Some(table) => table,
            // `wait` has taken it, and gives `self` back with it.
            None => unreachable!("the table of zones is asked for while it is waited for"),
        }
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Table {
        match &mut self.table {
            Some(table) => table,
            None => unreachable!("the table of zones is changed while it is waited for"),
        }
    }
}

#[cfg(not(interleave))]
thread_local! {
    static TABLES_HELD: Cell<u32> = const { Cell::new(0) };
}

#[cfg(all(test, not(interleave)))]
thread_local! {
    /// Times that this thread took the lock of a table.
    pub(crate) static TAKEN: Cell<u32> = const { Cell::new(0) };
}

/// As long as this lives, this thread has a table.
struct Held;

impl Held {
    fn begin() -> Held {
        #[cfg(not(interleave))]
        TABLES_HELD.set(TABLES_HELD.get() + 1);
        #[cfg(all(test, not(interleave)))]
        TAKEN.set(TAKEN.get() + 1);
        Held
    }
}

#[cfg(not(interleave))]
impl Drop for Held {
    fn drop(&mut self) {
        TABLES_HELD.set(TABLES_HELD.get() - 1);
    }
}

/// To be called before the tree's lock is taken.
pub(crate) fn must_hold_none(alarm: &Alarm) {
    #[cfg(not(interleave))]
    {
        let held = TABLES_HELD.get();
        invariant_holds!(
            alarm,
            held == 0,
            "the tree's lock is taken with {held} of the table held, and comes first"
        );
    }
    #[cfg(interleave)]
    let _ = alarm;
}
