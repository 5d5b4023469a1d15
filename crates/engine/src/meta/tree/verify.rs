//! Checking a whole tree.

use std::collections::HashSet;

use persimmon_format::{Key, PageId};

use super::{KEY_MIN, TreeDamage, TreeError, damaged};
use crate::meta::cache::PageCache;

/// What a tree consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Level of the root.
    pub height: u8,
    /// Pages, inner ones too.
    pub pages: usize,
    /// Leaves.
    pub leaves: usize,
    /// Leaves without items.
    pub empty_leaves: usize,
    /// Items in leaves.
    pub items: usize,
    /// Bytes of slots and values in all pages.
    pub used_bytes: usize,
}

/// Checks the place of every page in the tree: id, level, range of keys, one parent.
///
/// # Errors
/// The first page that is missing or damaged.
pub fn verify(cache: &PageCache, root: PageId) -> Result<Shape, TreeError> {
    let height = cache.get(root)?.level();
    let mut shape = Shape {
        height,
        ..Shape::default()
    };
    let mut seen = HashSet::new();
    let mut todo = vec![Place {
        id: root,
        level: height,
        lower: KEY_MIN,
        upper: None,
    }];
    while let Some(place) = todo.pop() {
        let page = cache.get(place.id)?;
        let refuse = |damage| Err(damaged(place.id, damage));
        if page.id() != place.id {
            return refuse(TreeDamage::Id(page.id()));
        }
        if page.level() != place.level {
            return refuse(TreeDamage::Level(page.level()));
        }
        if !seen.insert(place.id) {
            return refuse(TreeDamage::Shared);
        }
        let count = page.count();
        if count > 0 {
            let (first, last) = (page.key(0), page.key(count - 1));
            if first < place.lower
                || (place.level > 0 && first != place.lower)
                || place.upper.is_some_and(|upper| last >= upper)
            {
                return refuse(TreeDamage::Range);
            }
        }
        shape.pages += 1;
        shape.used_bytes += page.used_bytes();
        if place.level == 0 {
            shape.leaves += 1;
            shape.empty_leaves += usize::from(count == 0);
            shape.items += count;
            continue;
        }
        todo.extend((0..count).map(|slot| Place {
            id: page.child(slot),
            level: place.level - 1,
            lower: page.key(slot),
            upper: if slot + 1 < count {
                Some(page.key(slot + 1))
            } else {
                place.upper
            },
        }));
    }
    Ok(shape)
}

/// Where a page is and what it must be.
struct Place {
    id: PageId,
    level: u8,
    lower: Key,
    upper: Option<Key>,
}
