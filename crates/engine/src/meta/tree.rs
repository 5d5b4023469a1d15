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
mod finger;
mod insert;
mod node;
mod range;
mod remove;
mod verify;

use std::sync::Arc;

use persimmon_format::{Key, PageId};

use super::cache::PageCache;
pub use super::error::{TreeDamage, TreeError};
use super::page::{LEVEL_MAX, Page};

use cursor::Cursor;
pub use insert::insert;
use node::{KEY_MIN, Node};
pub use range::{Range, floor, range, range_from_floor};
pub use remove::remove;
pub use verify::{Shape, verify};

/// A root is at most one level higher than pages that are read may be.
const ROOT_LEVEL_MAX: u8 = LEVEL_MAX + 1;

fn damaged(page: PageId, damage: TreeDamage) -> TreeError {
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
    let leaf = leaf_for(cache, root, key)?;
    let index = finger::search(&leaf, key).ok();
    Ok(index.map(|index| leaf.page.value(index)))
}

/// Whether the leaf that `key` belongs into is dirty.
///
/// # Errors
/// A page on the way is missing or damaged.
pub fn is_in_dirty_leaf(cache: &PageCache, root: PageId, key: &Key) -> Result<bool, TreeError> {
    Ok(cache.is_dirty(leaf_for(cache, root, key)?.page.id()))
}

/// The leaf that `key` belongs into, and every page above it, is in memory and in its range.
#[inline]
fn leaf_for<'a>(cache: &'a PageCache, root: PageId, key: &Key) -> Result<Node<'a>, TreeError> {
    match finger::find(cache, root, key) {
        Some(leaf) => Ok(leaf),
        None => descend_to(cache, root, key),
    }
}

/// Goes down from the root to the leaf that `key` belongs into.
fn descend_to<'a>(cache: &'a PageCache, root: PageId, key: &Key) -> Result<Node<'a>, TreeError> {
    let mut node = checked_root(cache, root)?;
    while node.level > 0 {
        node = node.child_in_range(cache, node.slot_for(key))?;
    }
    finger::keep(cache, root, &node);
    Ok(node)
}

/// Checks that all pages that inserting or removing `key` needs are in memory.
///
/// # Errors
/// A page on the way is missing or damaged, or the cache has a fault.
pub fn ensure_resident(cache: &PageCache, root: PageId, key: &Key) -> Result<(), TreeError> {
    if let Some(fault) = cache.fault() {
        return Err(fault);
    }
    leaf_for(cache, root, key).map(drop)
}

/// [`ensure_resident`], and that the items before and after `key` are in memory.
///
/// Where a batch looks for neighbours ([`floor`], [`range`]) between its changes, it does so once
/// before them, and calls this for every key it will remove: then looking for neighbours in the
/// midst of the batch misses no page either, whichever of its keys are gone by then.
///
/// # Errors
/// A page is missing or damaged, or the cache has a fault.
pub fn ensure_around(cache: &PageCache, root: PageId, key: &Key) -> Result<(), TreeError> {
    ensure_all_around(cache, root, key, key)
}

/// [`ensure_around`] of all keys from `first` to `last`.
///
/// # Errors
/// A page is missing or damaged, or the cache has a fault.
pub fn ensure_all_around(
    cache: &PageCache,
    root: PageId,
    first: &Key,
    last: &Key,
) -> Result<(), TreeError> {
    if let Some(fault) = cache.fault() {
        return Err(fault);
    }
    let (mut cursor, place) = Cursor::seek(cache, root, first)?;
    if matches!(place, Ok(0) | Err(0)) {
        let mut cursor = cursor.clone();
        while cursor.back()? && cursor.leaf().count() == 0 {}
    }
    let ends_behind = |leaf: &Page| {
        let index = leaf.count().checked_sub(1);
        index.is_some_and(|index| leaf.key(index) > *last)
    };
    while !ends_behind(cursor.leaf()) && cursor.forward()? {}
    Ok(())
}

/// The root, which must not be too high, and have no lower bound.
fn checked_root(cache: &PageCache, id: PageId) -> Result<Node<'_>, TreeError> {
    let node = Node::root(cache, id)?;
    let level = node.level;
    if level > ROOT_LEVEL_MAX {
        return Err(damaged(id, TreeDamage::Level(level)));
    }
    if level > 0 && node.page.key(0) != KEY_MIN {
        return Err(damaged(id, TreeDamage::Range));
    }
    Ok(node)
}

/// The way from the root to a leaf.
struct Path {
    /// Inner pages and the slot taken in each; the first `depth` count.
    steps: [(PageId, usize); ROOT_LEVEL_MAX as usize + 1],
    depth: usize,
    leaf: PageId,
}

impl Path {
    /// The way to the leaf whose range holds `key`.
    fn to(cache: &PageCache, root: PageId, key: &Key) -> Result<Path, TreeError> {
        let mut path = Path {
            steps: [(PageId(0), 0); ROOT_LEVEL_MAX as usize + 1],
            depth: 0,
            leaf: root,
        };
        let mut node = Node::root(cache, root)?;
        while node.level > 0 {
            let slot = node.slot_for(key);
            let Some(step) = path.steps.get_mut(path.depth) else {
                return Err(damaged(root, TreeDamage::Level(node.level)));
            };
            *step = (path.leaf, slot);
            path.depth += 1;
            path.leaf = node.page.child(slot);
            node = node.child(cache, slot)?;
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
