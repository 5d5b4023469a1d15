//! Inserting and replacing.

use std::sync::Arc;

use persimmon_format::page::VALUE_LEN_MAX;
use persimmon_format::{Key, PageId};

use super::{KEY_MIN, Path, TreeDamage, TreeError, damaged, finger, leaf_for};
use crate::meta::cache::PageCache;
use crate::meta::page::Page;

/// Gives `key` the value `value` (at most [`persimmon_format::page::VALUE_LEN_MAX`] bytes).
/// Returns whether it replaced one.
///
/// Needs [`super::ensure_resident`] for `key` before. Without it, or in a damaged tree, nothing
/// may happen, and the cache has a [fault](PageCache::fault).
pub fn insert(cache: &mut PageCache, root: &mut PageId, key: &Key, value: &[u8]) -> bool {
    try_insert(cache, root, key, value).unwrap_or_else(|fault| {
        cache.set_fault(fault);
        false
    })
}

fn try_insert(
    cache: &mut PageCache,
    root: &mut PageId,
    key: &Key,
    value: &[u8],
) -> Result<bool, TreeError> {
    if value.len() > VALUE_LEN_MAX {
        return Err(TreeError::ValueLength(value.len()));
    }
    let leaf = leaf_for(cache, *root, key)?;
    let (index, replaced) = match finger::search(&leaf, key) {
        Ok(index) => (index, true),
        Err(index) => (index, false),
    };
    let leaf = leaf.page.id();
    let fitted = cache.edit(leaf, |leaf| {
        if !replaced {
            return leaf.insert(index, key, value);
        }
        let fitted = leaf.replace(index, value);
        if !fitted {
            leaf.remove(index);
        }
        fitted
    })?;
    if fitted {
        return Ok(replaced);
    }
    let path = Path::to(cache, *root, key)?;
    let mut split = divide(cache, leaf, index, key, value)?;
    for above in 1.. {
        let Some((parent, slot)) = path.ancestor(above) else {
            grow(cache, root, &split)?;
            break;
        };
        let page = cache.get(parent)?;
        let next = slot + 1;
        if split.lower <= page.key(slot) || (next < page.count() && split.lower >= page.key(next)) {
            return Err(damaged(parent, TreeDamage::Range));
        }
        let child = split.right.0.to_le_bytes();
        if cache.edit(parent, |page| page.insert(next, &split.lower, &child))? {
            break;
        }
        split = divide(cache, parent, next, &split.lower, &child)?;
    }
    Ok(replaced)
}

/// A new page right of the one it was split off.
struct Split {
    lower: Key,
    right: PageId,
}

/// Divides a full page in two and inserts the item that found no room.
fn divide(
    cache: &mut PageCache,
    id: PageId,
    index: usize,
    key: &Key,
    value: &[u8],
) -> Result<Split, TreeError> {
    let (level, items) = (cache.get(id)?.level(), cache.get(id)?.count());
    let right = cache.alloc_id();
    let mut page = Page::new(right, level);
    let lower = cache.edit(id, |left| left.split_insert(&mut page, index, key, value))?;
    let (kept, moved) = (cache.get(id)?.count(), page.count());
    cache.put_new(Arc::new(page));
    let are_all = kept + moved == items + 1;
    cache.must_hold(are_all, id, "an item got lost where a page was divided")?;
    Ok(Split { lower, right })
}

/// Puts a new root above the old one and the page split off it.
fn grow(cache: &mut PageCache, root: &mut PageId, split: &Split) -> Result<(), TreeError> {
    let level = cache.get(*root)?.level() + 1;
    let id = cache.alloc_id();
    let mut page = Page::new(id, level);
    let fitted = page.insert(0, &KEY_MIN, &root.0.to_le_bytes())
        && page.insert(1, &split.lower, &split.right.0.to_le_bytes());
    cache.must_hold(fitted, *root, "an empty page takes no two children")?;
    cache.put_new(Arc::new(page));
    *root = id;
    Ok(())
}
