//! A place in the tree that can move from leaf to leaf, checking the ranges of pages as it goes.
//!
//! Every inner page has to begin with the lower bound that the page above gives it, and to end below the next one's: so even in a damaged tree
//! the ranges of leaves that are come to follow each other without a gap. The next leaf is the one that holds the upper bound of this one, and
//! every walk ends.

use persimmon_format::{Key, PageId};

use super::node::Node;
use super::{TreeError, checked_root, finger, leaf_for};
use crate::meta::cache::PageCache;
use crate::meta::page::Page;

#[derive(Clone)]
pub(super) struct Cursor<'a> {
    cache: &'a PageCache,
    root: PageId,
    leaf: Node<'a>,
}

impl<'a> Cursor<'a> {
    /// At the leaf whose range holds `key`; and where the key is in it, or would have to be
    /// inserted.
    #[inline]
    pub(super) fn seek(
        cache: &'a PageCache,
        root: PageId,
        key: &Key,
    ) -> Result<(Cursor<'a>, Result<usize, usize>), TreeError> {
        let leaf = leaf_for(cache, root, key)?;
        let place = finger::search(&leaf, key);
        Ok((Cursor { cache, root, leaf }, place))
    }

    #[inline]
    pub(super) fn leaf(&self) -> &'a Page {
        self.leaf.page
    }

    /// The bound below which all keys of the leaf are, and from which on those of the next one are; `None` at the last leaf.
    #[inline]
    pub(super) fn upper(&self) -> Option<&Key> {
        self.leaf.expected.upper.as_ref()
    }

    /// Moves to the next leaf. False, and nothing changes, at the last one.
    pub(super) fn forward(&mut self) -> Result<bool, TreeError> {
        let Some(upper) = self.leaf.expected.upper else {
            return Ok(false);
        };
        self.leaf = leaf_for(self.cache, self.root, &upper)?;
        Ok(true)
    }

    /// Moves to the leaf before. False, and nothing changes, at the first one.
    pub(super) fn back(&mut self) -> Result<bool, TreeError> {
        let lower = self.leaf.expected.lower;
        let mut node = checked_root(self.cache, self.root)?;
        while node.level > 0 {
            let Some(slot) = node.slot_below(&lower) else {
                return Ok(false);
            };
            node = node.child_in_range(self.cache, slot)?;
        }
        let is_before = node.expected.lower < lower;
        if is_before {
            self.leaf = node;
        }
        Ok(is_before)
    }
}
