//! The metadata tree: a B+tree of [`Page`]s in a [`PageCache`].
//!
//! Reading needs the pages on its way and returns [`TreeError::Missing`] for the first that is not
//! in memory. Changing cannot fail: [`ensure_resident`] comes first, for every key of a batch, and
//! whatever the changes of the batch then do to the tree keeps their pages in memory. For that, a
//! leaf that became empty is removed only if the leaf that takes over its range is in memory;
//! else it stays, empty, until a neighbour goes or is filled again.
//!
//! Pages come from the device: they are well formed, but the tree they form may be anything.
//! A page must have the level its parent says, so every descent ends; iteration checks that keys
//! ascend, so it ends too.

mod cursor;
mod insert;
mod range;
mod remove;
mod verify;

use std::sync::Arc;

use persimmon_format::{Ino, Key, KeyKind, PageId, SnapshotId};
use thiserror::Error;

use super::cache::{Missing, PageCache};
use super::page::{LEVEL_MAX, Page};

use cursor::Cursor;
pub use insert::insert;
pub use range::{Range, floor, range};
pub use remove::remove;
pub use verify::{Shape, verify};

/// The smallest key: lower bound of the root.
const KEY_MIN: Key = Key {
    ino: Ino(0),
    kind: KeyKind(0),
    item: 0,
    snapshot: SnapshotId(0),
};

/// Why an operation on the tree did not go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TreeError {
    /// A page must be fetched first.
    #[error("metadata page {0} is not in memory")]
    Missing(PageId),
    /// A page, well formed in itself, does not fit the tree at this place.
    #[error("metadata page {page} is damaged: {damage}")]
    Damaged {
        /// The page.
        page: PageId,
        /// What is wrong.
        damage: Damage,
    },
    /// A value is longer than a page may hold, bytes.
    #[error("a value of {0} bytes is too long for the metadata tree")]
    ValueLength(usize),
}

/// How a page does not fit its place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Damage {
    /// Its level is not one below its parent's, or is too high for a root.
    #[error("its level is {0}")]
    Level(u8),
    /// It holds keys outside the range its parent gives it.
    #[error("its keys are outside its range")]
    Range,
    /// Two pages refer to it.
    #[error("it is referred to twice")]
    Shared,
    /// It says it is another page.
    #[error("it is page {0}")]
    Id(PageId),
    /// It was not in memory in the middle of a change: it has been freed under another page that
    /// refers to it too, or the change was made without [`ensure_resident`].
    #[error("it went missing during a change")]
    Gone,
}

impl From<Missing> for TreeError {
    fn from(Missing(id): Missing) -> TreeError {
        TreeError::Missing(id)
    }
}

fn damaged(page: PageId, damage: Damage) -> TreeError {
    TreeError::Damaged { page, damage }
}

/// Makes an empty tree and returns its root.
pub fn create(cache: &mut PageCache) -> PageId {
    let root = cache.alloc_id();
    cache.put_new(Arc::new(Page::new(root, 0)));
    root
}

/// The value of `key`.
///
/// # Errors
/// A page on the way is missing or damaged.
pub fn get<'a>(
    cache: &'a PageCache,
    root: PageId,
    key: &Key,
) -> Result<Option<&'a [u8]>, TreeError> {
    let mut page = cache.get(root)?;
    while page.level() > 0 {
        page = child(cache, page, page.child_index(key))?;
    }
    Ok(page.search(key).ok().map(|index| page.value(index)))
}

/// Checks that all pages that inserting or removing `key` needs are in memory.
///
/// # Errors
/// A page on the way is missing or damaged, or the cache has a fault.
pub fn ensure_resident(cache: &PageCache, root: PageId, key: &Key) -> Result<(), TreeError> {
    if let Some(fault) = cache.fault() {
        return Err(fault);
    }
    Cursor::seek(cache, root, key).map(|_| ())
}

/// The child of an inner page at slot `index`, which must be one level below.
#[inline]
fn child<'a>(cache: &'a PageCache, page: &Page, index: usize) -> Result<&'a Page, TreeError> {
    let id = page.child(index);
    let child = cache.get(id)?;
    if child.level() + 1 == page.level() {
        Ok(child)
    } else {
        Err(damaged(id, Damage::Level(child.level())))
    }
}

/// [`child`], whose keys must also be in the range that slot `index` gives it.
fn child_in_range<'a>(
    cache: &'a PageCache,
    page: &Page,
    index: usize,
) -> Result<&'a Page, TreeError> {
    let child = child(cache, page, index)?;
    let Some(last) = child.count().checked_sub(1) else {
        return Ok(child);
    };
    let lower = page.key(index);
    let first_fits = match child.level() {
        0 => child.key(0) >= lower,
        _ => child.key(0) == lower,
    };
    if first_fits && (index + 1 >= page.count() || child.key(last) < page.key(index + 1)) {
        Ok(child)
    } else {
        Err(damaged(page.child(index), Damage::Range))
    }
}

/// The way from the root to a leaf.
struct Path {
    /// Inner pages and the slot taken in each; the first `depth` count.
    steps: [(PageId, usize); LEVEL_MAX as usize + 2],
    depth: usize,
    leaf: PageId,
}

impl Path {
    /// The way to the leaf whose range holds `key`.
    fn to(cache: &PageCache, root: PageId, key: &Key) -> Result<Path, TreeError> {
        let mut path = Path {
            steps: [(PageId(0), 0); LEVEL_MAX as usize + 2],
            depth: 0,
            leaf: root,
        };
        let mut page = cache.get(root)?;
        while page.level() > 0 {
            let index = page.child_index(key);
            let Some(step) = path.steps.get_mut(path.depth) else {
                return Err(damaged(root, Damage::Level(page.level())));
            };
            *step = (path.leaf, index);
            path.depth += 1;
            path.leaf = page.child(index);
            page = child(cache, page, index)?;
        }
        Ok(path)
    }

    /// The inner page `above` levels above the leaf, with the slot taken. None above the root.
    fn ancestor(&self, above: usize) -> Option<(PageId, usize)> {
        self.depth
            .checked_sub(above)
            .and_then(|at| self.steps.get(at).copied())
    }

    /// The page `above` levels above the leaf; the leaf itself for 0.
    fn page(&self, above: usize) -> Option<PageId> {
        match above {
            0 => Some(self.leaf),
            _ => self.ancestor(above).map(|(id, _)| id),
        }
    }
}

#[cfg(test)]
mod tests;
