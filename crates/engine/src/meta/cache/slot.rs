//! What the cache keeps for each page id.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::meta::page::Page;

/// Memory is taken for every page id, so a slot is kept small.
const _: () = assert!(size_of::<Slot>() == 16);

/// What the cache knows about a page id.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) page: Option<Arc<Page>>,
    pub(super) outline: Outline,
    pub(super) state: SlotState,
    /// Used since the clock's hand last came by.
    pub(super) referenced: AtomicBool,
}

/// What a descent must know of a page. It is kept in the slot too: slots are near each other in
/// memory, while the page itself is far away, once for its header and once more for what the
/// header leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::meta) struct Outline {
    count: u16,
    pub(in crate::meta) level: u8,
}

impl Outline {
    pub(super) fn of(page: &Page) -> Outline {
        Outline {
            count: page.count() as u16,
            level: page.level(),
        }
    }

    /// Items in the page.
    #[inline]
    pub(in crate::meta) fn count(self) -> usize {
        self.count.into()
    }
}

/// A set of what a slot can be.
#[derive(Clone, Copy, Default)]
pub(super) struct SlotState(u8);

impl SlotState {
    /// The id is in use.
    pub(super) const ALLOCATED: SlotState = SlotState(1);
    pub(super) const DIRTY: SlotState = SlotState(2);
    pub(super) const WRITING: SlotState = SlotState(4);
    /// In the list of dirty pages.
    pub(super) const IN_DIRTY: SlotState = SlotState(8);
    /// In the list of freed ids.
    pub(super) const IN_FREED: SlotState = SlotState(16);
    /// In the ring of the clock.
    pub(super) const IN_RING: SlotState = SlotState(32);

    #[inline]
    pub(super) fn has(self, one: SlotState) -> bool {
        self.0 & one.0 != 0
    }

    /// Sets or clears one, and returns what it was.
    #[inline]
    pub(super) fn put(&mut self, one: SlotState, on: bool) -> bool {
        let before = self.has(one);
        self.0 = if on { self.0 | one.0 } else { self.0 & !one.0 };
        before
    }
}
