//! Walking many items of the tree, a bounded number under each hold of the metadata lock.

use std::ops::{Bound, ControlFlow, RangeBounds};

use persimmon_format::{Ino, Key, KeyKind};

use crate::Volume;
use crate::error::{Error, Result};

/// Items looked at under one hold of the lock.
const ITEMS: usize = 1024;
/// The same for each page that the cache may hold: the pages that the items are in must be in memory
/// together.
const ITEMS_PER_PAGE: usize = 4;

impl Volume {
    /// Looks at each item in a range of keys, in order, and hands on what `pick` makes of it. `pick`
    /// runs under the lock, and again for items of a page that had to be fetched; `visit` does
    /// neither. Ends at the first page that cannot be read.
    pub(crate) fn walk<T>(
        &self,
        keys: impl RangeBounds<Key>,
        mut pick: impl FnMut(Key, &[u8]) -> Option<T>,
        mut visit: impl FnMut(T),
    ) -> Result<()> {
        let mut from = match keys.start_bound() {
            Bound::Included(key) | Bound::Excluded(key) => *key,
            Bound::Unbounded => Key::new(Ino(0), KeyKind(0), 0),
        };
        loop {
            let (picked, next) = self.look(from, &keys, &mut pick)?;
            picked.into_iter().for_each(&mut visit);
            match next {
                Some(key) => from = key,
                None => return Ok(()),
            }
        }
    }

    /// The first items of a walk, from this key on: what `pick` made of them, and where it goes on.
    pub(crate) fn look<T>(
        &self,
        from: Key,
        keys: &impl RangeBounds<Key>,
        mut pick: impl FnMut(Key, &[u8]) -> Option<T>,
    ) -> Result<(Vec<T>, Option<Key>)> {
        let items = (self.cached_pages_max() * ITEMS_PER_PAGE).clamp(64, ITEMS);
        let (mut picked, mut next) = (Vec::new(), None);
        self.view::<_, Error>(|view| {
            picked.clear();
            next = None;
            let mut seen = 0;
            view.scan(from, |key, value| {
                if seen == items {
                    next = Some(key);
                }
                if seen == items || !keys.contains(&key) {
                    return Ok(ControlFlow::Break(()));
                }
                seen += 1;
                picked.extend(pick(key, value));
                Ok(ControlFlow::Continue(()))
            })
        })?;
        Ok((picked, next))
    }
}
