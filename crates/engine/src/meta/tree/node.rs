//! Descending.

use persimmon_format::{Ino, Key, KeyKind, PageId, VersionId};

use super::{TreeDamage, TreeError, damaged};
use crate::meta::cache::PageCache;
use crate::meta::error::Missing;
use crate::meta::page::{Expected, Page};

/// The smallest key: lower bound of the root.
pub(super) const KEY_MIN: Key = Key {
    ino: Ino(0),
    kind: KeyKind(0),
    item: 0,
    version: VersionId(0),
};

/// A page on the way down, and what is known about it without looking at it.
#[derive(Clone)]
pub(super) struct Node<'a> {
    pub(super) page: &'a Page,
    pub(super) level: u8,
    pub(super) expected: Expected,
}

impl<'a> Node<'a> {
    #[inline]
    pub(super) fn root(cache: &'a PageCache, id: PageId) -> Result<Node<'a>, Missing> {
        let (page, outline) = cache.get_outlined(id)?;
        let expected = Expected {
            count: outline.count(),
            lower: KEY_MIN,
            upper: None,
        };
        Ok(Node {
            page,
            level: outline.level,
            expected,
        })
    }

    /// An inner page that was come to before, whatever its bounds are.
    pub(super) fn again(page: &'a Page) -> Node<'a> {
        let expected = Expected {
            count: page.count(),
            lower: KEY_MIN,
            upper: None,
        };
        Node {
            page,
            level: page.level(),
            expected,
        }
    }

    /// Items in the page.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.expected.count
    }

    /// The slot of this inner page whose child's range holds `key`.
    #[inline]
    pub(super) fn slot_for(&self, key: &Key) -> usize {
        self.page.child_index_expecting(key, &self.expected)
    }

    /// The last slot of this inner page whose child's range begins below `key`.
    pub(super) fn slot_below(&self, key: &Key) -> Option<usize> {
        let (Ok(above) | Err(above)) = self.page.search(key);
        above.checked_sub(1)
    }

    /// The child at `slot` of this inner page, which must be one level below.
    #[inline]
    pub(super) fn child(&self, cache: &'a PageCache, slot: usize) -> Result<Node<'a>, TreeError> {
        let id = self.page.child(slot);
        let (page, outline) = cache.get_outlined(id)?;
        if outline.level + 1 != self.level {
            return Err(damaged(id, TreeDamage::Level(outline.level)));
        }
        let upper = if slot + 1 < self.expected.count {
            Some(self.page.key(slot + 1))
        } else {
            self.expected.upper
        };
        let lower = self.page.key(slot);
        let expected = Expected {
            count: outline.count(),
            lower,
            upper,
        };
        Ok(Node {
            page,
            level: outline.level,
            expected,
        })
    }

    /// [`Node::child`], whose keys must also be in the range that this page gives it.
    #[inline]
    pub(super) fn child_in_range(
        &self,
        cache: &'a PageCache,
        slot: usize,
    ) -> Result<Node<'a>, TreeError> {
        let node = self.child(cache, slot)?;
        let Expected {
            count,
            lower,
            upper,
        } = &node.expected;
        let Some(last) = count.checked_sub(1) else {
            return Ok(node);
        };
        let first = node.page.key(0);
        let from_lower = first == *lower || (node.level == 0 && first > *lower);
        if from_lower && upper.is_none_or(|upper| node.page.key(last) < upper) {
            Ok(node)
        } else {
            Err(damaged(self.page.child(slot), TreeDamage::Range))
        }
    }

    /// Where `key` is in this leaf, or where it would have to be inserted. Quicker if that is at `near`.
    #[inline]
    pub(super) fn search(&self, key: &Key, near: usize) -> Result<usize, usize> {
        self.page.search_expecting(key, &self.expected, near)
    }
}
