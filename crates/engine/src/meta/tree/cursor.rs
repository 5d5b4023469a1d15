//! A place in the tree that can move from leaf to leaf, checking the ranges of pages as it goes.
//!
//! Ranges ascend strictly from leaf to leaf, and every inner page is entered through the one slot
//! that has its lower bound, so even in a tree that is damaged no page is come by twice and every
//! walk ends.

use persimmon_format::{Key, PageId};

use super::node::Node;
use super::{ROOT_LEVEL_MAX, TreeError, checked_root};
use crate::meta::cache::PageCache;
use crate::meta::page::Page;

#[derive(Clone)]
pub(super) struct Cursor<'a> {
    cache: &'a PageCache,
    /// Inner pages from the root on and the slot taken in each; the first `depth` count.
    steps: [Option<(&'a Page, usize)>; ROOT_LEVEL_MAX as usize],
    depth: usize,
    leaf: &'a Page,
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
        let root = checked_root(cache, root)?;
        let steps = [None; ROOT_LEVEL_MAX as usize];
        let mut cursor = Cursor {
            cache,
            steps,
            depth: 0,
            leaf: root.page,
        };
        let leaf = cursor.descend(root, |node| node.slot_for(key))?;
        Ok((cursor, leaf.search(key)))
    }

    pub(super) fn leaf(&self) -> &'a Page {
        self.leaf
    }

    /// Moves to the next leaf. False, and nothing changes, at the last one.
    pub(super) fn forward(&mut self) -> Result<bool, TreeError> {
        self.turn(
            |page, slot| (slot + 1 < page.count()).then_some(slot + 1),
            |_| 0,
        )
    }

    /// Moves to the leaf before. False, and nothing changes, at the first one.
    pub(super) fn back(&mut self) -> Result<bool, TreeError> {
        self.turn(
            |_, slot| slot.checked_sub(1),
            |node| node.count().saturating_sub(1),
        )
    }

    /// Goes up to the lowest page that has a slot further on, and down again from there.
    fn turn(
        &mut self,
        step: impl Fn(&Page, usize) -> Option<usize>,
        slot: impl Fn(&Node<'_>) -> usize,
    ) -> Result<bool, TreeError> {
        for at in (0..self.depth).rev() {
            let Some((page, taken)) = self.steps[at] else {
                break;
            };
            if let Some(next) = step(page, taken) {
                self.depth = at;
                let child = self.take(&Node::again(page, self.upper()), next)?;
                self.descend(child, slot)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    #[inline]
    fn descend(
        &mut self,
        mut node: Node<'a>,
        slot: impl Fn(&Node<'_>) -> usize,
    ) -> Result<Node<'a>, TreeError> {
        while node.level > 0 {
            node = self.take(&node, slot(&node))?;
        }
        Ok(node)
    }

    /// Goes down from an inner page to its child at `slot`.
    #[inline]
    fn take(&mut self, node: &Node<'a>, slot: usize) -> Result<Node<'a>, TreeError> {
        let child = node.child_in_range(self.cache, slot)?;
        // The level of a page at depth n is the root's less n, so there is a step for it.
        self.steps[self.depth] = Some((node.page, slot));
        self.depth += 1;
        self.leaf = child.page;
        Ok(child)
    }

    /// The bound that the pages on the way give to the keys of the one at `depth`.
    fn upper(&self) -> Option<Key> {
        self.steps[..self.depth]
            .iter()
            .rev()
            .flatten()
            .find(|(page, slot)| slot + 1 < page.count())
            .map(|(page, slot)| page.key(slot + 1))
    }
}
