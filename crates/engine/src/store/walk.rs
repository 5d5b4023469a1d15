//! Walking many items of the tree, a bounded number under each hold of the metadata lock. A page that is not in memory is
//! fetched without the lock, and the walk goes on behind the last item it has seen: each page is looked at about once, and
//! none has to stay in memory, however many there are.

use std::cell::Cell;
use std::ops::{Bound, ControlFlow, RangeBounds};

use persimmon_format::Key;

use super::PageFaults;
use super::Store;
use crate::error::Result;
use crate::meta::View;

/// Items looked at under one hold of the lock.
const ITEMS: usize = 1024;

/// What a walk looks at.
#[derive(Clone, Copy)]
pub(crate) enum Walked {
    /// What the subvolume of its first key shows, under that subvolume's keys.
    Shown,
    /// The items of all versions, under the keys that they have.
    Stored,
}

impl Store {
    /// Looks at each item in a range of keys, in order, and hands on what `pick` makes of it. `pick` runs under the lock,
    /// once for each item; `visit` runs without it. Ends at the first page that cannot be read. Items that come or go
    /// meanwhile may be seen or not; all others are seen once.
    pub(crate) fn walk<T>(
        &self,
        keys: impl RangeBounds<Key>,
        pick: impl FnMut(Key, &[u8]) -> Option<T>,
        mut visit: impl FnMut(T),
    ) -> Result<()> {
        self.walk_while(keys, pick, |item| {
            visit(item);
            ControlFlow::Continue(())
        })
    }

    /// The same of all items of all versions.
    pub(crate) fn walk_stored<T>(
        &self,
        mut pick: impl FnMut(Key, &[u8]) -> Option<T>,
        mut visit: impl FnMut(T),
    ) -> Result<()> {
        let mut from = Bound::Unbounded;
        loop {
            let (picked, last) = self.look(Walked::Stored, from, &.., &mut pick)?;
            picked.into_iter().for_each(&mut visit);
            match last {
                Some(key) => from = Bound::Excluded(key),
                None => return Ok(()),
            }
        }
    }

    /// [`Store::walk`] until `visit` breaks. Holds no more in memory than what `pick` makes of 1,024 items.
    pub fn walk_while<T>(
        &self,
        keys: impl RangeBounds<Key>,
        mut pick: impl FnMut(Key, &[u8]) -> Option<T>,
        mut visit: impl FnMut(T) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut from = keys.start_bound().cloned();
        loop {
            let (picked, last) = self.look(Walked::Shown, from, &keys, &mut pick)?;
            if picked.into_iter().any(|item| visit(item).is_break()) {
                return Ok(());
            }
            match last {
                Some(key) => from = Bound::Excluded(key),
                None => return Ok(()),
            }
        }
    }

    /// The first items of a walk, from this bound on: what `pick` made of them, and the last one if there may be more
    /// behind it.
    pub(crate) fn look<T>(
        &self,
        walked: Walked,
        from: Bound<Key>,
        keys: &impl RangeBounds<Key>,
        mut pick: impl FnMut(Key, &[u8]) -> Option<T>,
    ) -> Result<(Vec<T>, Option<Key>)> {
        let mut page_faults = PageFaults::of(self);
        let end = keys.end_bound().cloned();
        let (mut picked, mut from, mut seen, mut last) = (Vec::new(), from, 0, None);
        loop {
            let (before, reached) = (last, Cell::new(None));
            let (result, missing) = {
                let meta = self.meta();
                let view = View::new(&meta, &self.key);
                let visit = |key, value: &[u8]| {
                    if !keys.contains(&key) {
                        last = None;
                        return Ok(ControlFlow::Break(()));
                    }
                    seen += 1;
                    last = Some(key);
                    picked.extend(pick(key, value));
                    Ok(if seen < ITEMS {
                        ControlFlow::Continue(())
                    } else {
                        ControlFlow::Break(())
                    })
                };
                let result = match walked {
                    Walked::Shown => view.scan_some_from((from, end), &reached, visit),
                    Walked::Stored => view.scan_stored((from, end), visit).map(|()| None),
                };
                (result, view.missing())
            };
            match (result, missing) {
                (Err(_), Some(page)) => {
                    let visited = last.filter(|_| last != before).map(Bound::Excluded);
                    // What is not shown is passed over once, too.
                    let next = reached.get().map(Bound::Included).or(visited);
                    if let Some(next) = next.filter(|next| *next != from) {
                        page_faults.forget();
                        from = next;
                    }
                    page_faults.fetch(page)?;
                }
                (Err(error), None) => return Err(error),
                (Ok(Some(next)), _) if seen < ITEMS => {
                    page_faults.forget();
                    from = Bound::Included(next);
                }
                (Ok(_), _) => return Ok((picked, last.filter(|_| seen == ITEMS))),
            }
        }
    }
}
