//! Walking many items of the tree, a bounded number under each hold of the metadata lock.

use std::ops::ControlFlow;

use persimmon_format::Key;

use crate::Volume;
use crate::error::{Error, Result};

/// Items looked at under one hold of the lock.
const ITEMS: usize = 1024;

impl Volume {
    /// Looks at each item from `from` on, in order, and hands on what `pick` makes of it. `pick`
    /// runs under the lock, and again for items of a page that had to be fetched; `visit` does
    /// neither. Ends at the first page that cannot be read.
    pub(crate) fn walk<T>(
        &self,
        mut from: Key,
        mut pick: impl FnMut(Key, &[u8]) -> Option<T>,
        mut visit: impl FnMut(T),
    ) -> Result<()> {
        loop {
            let mut picked = Vec::new();
            let mut next = None;
            self.view::<_, Error>(|view| {
                picked.clear();
                next = None;
                let mut seen = 0;
                view.scan(from, |key, value| {
                    if seen == ITEMS {
                        next = Some(key);
                        return Ok(ControlFlow::Break(()));
                    }
                    seen += 1;
                    picked.extend(pick(key, value));
                    Ok(ControlFlow::Continue(()))
                })
            })?;
            picked.into_iter().for_each(&mut visit);
            match next {
                Some(key) => from = key,
                None => return Ok(()),
            }
        }
    }
}
