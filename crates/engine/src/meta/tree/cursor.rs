//! A place in the tree that can move from leaf to leaf, checking the ranges of pages as it goes.
//!
//! Ranges ascend strictly from leaf to leaf, and every inner page is entered through the one slot
//! that has its lower bound, so even in a tree that is damaged no page is come by twice and every
//! walk ends.

use persimmon_format::{Key, PageId};

use super::{Damage, KEY_MIN, TreeError, child_in_range, damaged};
use crate::meta::cache::PageCache;
use crate::meta::page::{LEVEL_MAX, Page};

const DEPTH_MAX: usize = LEVEL_MAX as usize + 1;

pub(super) struct Cursor<'a> {
    cache: &'a PageCache,
    /// Inner pages from the root on and the slot taken in each; the first `depth` count.
    steps: [Option<(&'a Page, usize)>; DEPTH_MAX],
    depth: usize,
    leaf: &'a Page,
}

impl<'a> Cursor<'a> {
    /// At the leaf whose range holds `key`.
    pub(super) fn seek(
        cache: &'a PageCache,
        root: PageId,
        key: &Key,
    ) -> Result<Cursor<'a>, TreeError> {
        let page = cache.get(root)?;
        if usize::from(page.level()) > DEPTH_MAX {
            return Err(damaged(root, Damage::Level(page.level())));
        }
        if page.level() > 0 && page.key(0) != KEY_MIN {
            return Err(damaged(root, Damage::Range));
        }
        let mut cursor = Cursor {
            cache,
            steps: [None; DEPTH_MAX],
            depth: 0,
            leaf: page,
        };
        cursor.descend(page, |page| page.child_index(key))?;
        Ok(cursor)
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
            |page| page.count().saturating_sub(1),
        )
    }

    /// Goes up to the lowest page that has a slot further on, and down again from there.
    fn turn(
        &mut self,
        step: impl Fn(&Page, usize) -> Option<usize>,
        slot: impl Fn(&Page) -> usize,
    ) -> Result<bool, TreeError> {
        for at in (0..self.depth).rev() {
            let Some((page, taken)) = self.steps[at] else {
                break;
            };
            if let Some(next) = step(page, taken) {
                self.depth = at;
                self.take(page, next)?;
                let page = self.leaf;
                self.descend(page, slot)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn descend(
        &mut self,
        mut page: &'a Page,
        slot: impl Fn(&Page) -> usize,
    ) -> Result<(), TreeError> {
        while page.level() > 0 {
            self.take(page, slot(page))?;
            page = self.leaf;
        }
        Ok(())
    }

    /// Goes down from an inner page to its child at `slot`, and checks that the child's keys are
    /// in the range that all its ancestors give it.
    fn take(&mut self, page: &'a Page, slot: usize) -> Result<(), TreeError> {
        let below = child_in_range(self.cache, page, slot)?;
        if slot + 1 == page.count() && below.count() > 0 {
            let upper = self.steps[..self.depth]
                .iter()
                .rev()
                .flatten()
                .find(|(page, slot)| slot + 1 < page.count())
                .map(|(page, slot)| page.key(slot + 1));
            if upper.is_some_and(|upper| below.key(below.count() - 1) >= upper) {
                return Err(damaged(page.child(slot), Damage::Range));
            }
        }
        // The level of a page at depth n is the root's less n, so there is a step for it.
        self.steps[self.depth] = Some((page, slot));
        self.depth += 1;
        self.leaf = below;
        Ok(())
    }
}
