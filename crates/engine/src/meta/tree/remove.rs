//! Removing, and giving up pages that hold too little.

use persimmon_format::{Key, PageId};

use super::node::Node;
use super::{Path, TreeError, finger, leaf_for};
use crate::meta::cache::PageCache;
use crate::meta::page::CAPACITY_BYTES;

/// A page with less than this is joined with a neighbour.
const UNDERFULL_BYTES: usize = CAPACITY_BYTES / 4;
/// Two pages are joined up to this; the rest is room for what comes next.
const JOINED_BYTES_MAX: usize = CAPACITY_BYTES / 8 * 7;

/// Removes `key`. Returns whether it was there.
///
/// Needs [`super::ensure_resident`] for `key` before. Without it, or in a damaged tree, nothing
/// may happen, and the cache has a [fault](PageCache::fault).
pub fn remove(cache: &mut PageCache, root: &mut PageId, key: &Key) -> bool {
    try_remove(cache, root, key).unwrap_or_else(|fault| {
        cache.set_fault(fault);
        false
    })
}

fn try_remove(cache: &mut PageCache, root: &mut PageId, key: &Key) -> Result<bool, TreeError> {
    let leaf = leaf_for(cache, *root, key)?;
    let Ok(index) = finger::search(&leaf, key) else {
        return Ok(false);
    };
    let id = leaf.page.id();
    cache.edit(id, |leaf| leaf.remove(index))?;
    let leaf = cache.get(id)?;
    let is_empty = leaf.count() == 0;
    if leaf.used_bytes() >= UNDERFULL_BYTES {
        return Ok(true);
    }
    let path = Path::to(cache, *root, key)?;
    if !is_empty {
        join_upwards(cache, root, &path, 0)?;
    } else if let Some(above) = remove_branch(cache, root, &path)? {
        join_upwards(cache, root, &path, above)?;
    }
    Ok(true)
}

/// Removes the empty leaf at the end of the path, with the inner pages that lead nowhere else,
/// if the leaf that takes over its range is in memory. Returns how far above the leaf the page is
/// that lost a child.
fn remove_branch(
    cache: &mut PageCache,
    root: &mut PageId,
    path: &Path,
) -> Result<Option<usize>, TreeError> {
    let mut above = 1;
    let (parent, index) = loop {
        let Some((id, index)) = path.ancestor(above) else {
            // Nothing else is left in the tree: the leaf becomes the root.
            for above in 1..=path.depth {
                path.page(above).into_iter().for_each(|id| cache.free(id));
            }
            *root = path.leaf;
            return Ok(None);
        };
        if cache.get(id)?.count() > 1 {
            break (id, index);
        }
        above += 1;
    };
    if !heir_resident(cache, parent, index) {
        return Ok(None);
    }
    let lower = cache.get(parent)?.key(index);
    cache.edit(parent, |page| page.remove(index))?;
    if index == 0 {
        lower_bound(cache, parent, &lower)?;
    }
    for below in 0..above {
        path.page(below).into_iter().for_each(|id| cache.free(id));
    }
    Ok(Some(above))
}

/// Whether the pages down to the leaf are in memory that takes over the range of slot `index`:
/// the last leaf of the slot before, or the first of the next if there is none.
fn heir_resident(cache: &PageCache, id: PageId, index: usize) -> bool {
    let walk = || -> Result<(), TreeError> {
        let mut node = Node::again(cache.get(id)?);
        let mut slot = if index > 0 { index - 1 } else { 1 };
        while node.level > 0 {
            node = node.child_in_range(cache, slot)?;
            slot = if index > 0 {
                node.count().saturating_sub(1)
            } else {
                0
            };
        }
        Ok(())
    };
    walk().is_ok()
}

/// Sets the lower bound of a page and of the pages at its left edge.
fn lower_bound(cache: &mut PageCache, id: PageId, lower: &Key) -> Result<(), TreeError> {
    let mut id = id;
    while cache.get(id)?.level() > 0 {
        id = cache.edit(id, |page| {
            page.set_key(0, lower);
            page.child(0)
        })?;
    }
    Ok(())
}

/// Joins the page `above` levels above the leaf with a neighbour if it is underfull and the
/// neighbour is in memory and has room; then the same with its parent, up to the root.
fn join_upwards(
    cache: &mut PageCache,
    root: &mut PageId,
    path: &Path,
    above: usize,
) -> Result<(), TreeError> {
    for above in above..path.depth {
        let (Some(id), Some((parent, index))) = (path.page(above), path.ancestor(above + 1)) else {
            break;
        };
        if cache.get(id)?.used_bytes() >= UNDERFULL_BYTES {
            return Ok(());
        }
        let left = index
            .checked_sub(1)
            .is_some_and(|left| joinable(cache, parent, left));
        if !left && !joinable(cache, parent, index) {
            return Ok(());
        }
        join(cache, parent, if left { index - 1 } else { index })?;
    }
    shrink(cache, root)
}

/// Whether the children at slots `left` and the next exist, are in memory, follow each other and
/// fit one page.
fn joinable(cache: &PageCache, parent: PageId, left: usize) -> bool {
    let Ok(page) = cache.get(parent) else {
        return false;
    };
    if left + 1 >= page.count() || page.child(left) == page.child(left + 1) {
        return false;
    }
    let parent = Node::again(page);
    match (
        parent.child_in_range(cache, left),
        parent.child_in_range(cache, left + 1),
    ) {
        (Ok(left), Ok(right)) => {
            left.page.used_bytes() + right.page.used_bytes() <= JOINED_BYTES_MAX
        }
        _ => false,
    }
}

/// Moves what the child at slot `left + 1` holds to the one at slot `left`.
fn join(cache: &mut PageCache, parent: PageId, left: usize) -> Result<(), TreeError> {
    let page = cache.get(parent)?;
    let (left_id, right_id) = (page.child(left), page.child(left + 1));
    let right = cache.share(right_id)?;
    let items = cache.get(left_id)?.count() + right.count();
    cache.edit(parent, |page| page.remove(left + 1))?;
    cache.edit(left_id, |page| page.append(&right))?;
    let are_all = cache.get(left_id)?.count() == items;
    cache.must_hold(
        are_all,
        left_id,
        "an item got lost where two pages were joined",
    )?;
    cache.free(right_id);
    Ok(())
}

/// Takes away roots with a single child.
fn shrink(cache: &mut PageCache, root: &mut PageId) -> Result<(), TreeError> {
    loop {
        let page = cache.get(*root)?;
        if page.level() == 0 || page.count() != 1 {
            return Ok(());
        }
        let only = page.child(0);
        if Node::again(page).child_in_range(cache, 0).is_err() {
            return Ok(());
        }
        cache.free(*root);
        *root = only;
    }
}
