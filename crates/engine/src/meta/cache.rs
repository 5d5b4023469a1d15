//! The metadata pages in memory.
//!
//! Pages are shared and copied on write: a checkpoint's cut takes references to the dirty pages
//! and writes them while the tree changes on. A page is *dirty* if it was changed since the last
//! cut, *writing* from the cut until the new place of what was cut is known, else *clean*. Only
//! clean pages may be evicted.
//!
//! The cache also says which page ids are in use. Ids are dense; the smallest free one is taken.

mod slot;

use persimmon_sync::atomic::Ordering;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use persimmon_format::PageId;

use persimmon_sync::Alarm;

use super::error::{Missing, TreeDamage, TreeError};
use super::page::Page;
use crate::invariant::{invariant_holds, invariant_sub};

pub(super) use slot::Outline;
use slot::{Slot, SlotState};

/// How many pages the clock looks at for each that should go.
const EVICT_STEPS_PER_PAGE: usize = 64;

thread_local! {
    /// Pages that this thread has looked at, in any cache. Of the thread, since a counter that all readers share would
    /// cost each of them more than the page does.
    static LOOKED_AT: Cell<u64> = const { Cell::new(0) };
}

/// Pages that the calling thread has looked at so far, to be compared with a later answer.
pub(crate) fn looked_at() -> u64 {
    LOOKED_AT.get()
}

/// Shapes that caches had. A number for each is used once, by whichever cache of the process.
static SHAPES: AtomicU64 = AtomicU64::new(1);

/// The pages in memory, by id.
#[derive(Default)]
pub struct PageCache {
    slots: Vec<Slot>,
    free_ids: BinaryHeap<Reverse<u64>>,
    /// Ids made dirty since the last cut; some may be free or clean again.
    dirty_ids: Vec<PageId>,
    /// Ids freed since the last cut; some may be in use again.
    freed_ids: Vec<PageId>,
    /// Resident ids, and some that were resident, for the clock.
    ring: Vec<PageId>,
    hand: usize,
    resident: usize,
    dirty: usize,
    writing: usize,
    fault: Option<TreeError>,
    alarm: Alarm,
    /// 0: nothing was ever in it.
    shape: u64,
}

impl PageCache {
    /// An empty cache of a volume without pages.
    #[must_use]
    pub fn new() -> PageCache {
        PageCache::default()
    }

    /// A state that cannot be raises this alarm.
    pub(crate) fn watch(&mut self, alarm: &Alarm) {
        self.alarm = alarm.clone();
    }

    /// An empty cache of a volume whose page ids in use are those below `limit` of which
    /// `in_use` says so. Takes memory (16 bytes) for every id below `limit`.
    #[must_use]
    pub fn with_ids(limit: u64, mut in_use: impl FnMut(PageId) -> bool) -> PageCache {
        let mut cache = PageCache::new();
        for id in 0..limit {
            let allocated = in_use(PageId(id));
            let mut slot = Slot::default();
            slot.state.put(SlotState::ALLOCATED, allocated);
            cache.slots.push(slot);
            if !allocated {
                cache.free_ids.push(Reverse(id));
            }
        }
        cache
    }

    /// The page, if it is in memory.
    ///
    /// # Errors
    /// [`Missing`] if it is not, or if no page has this id.
    #[inline]
    pub fn get(&self, id: PageId) -> Result<&Page, Missing> {
        self.get_outlined(id).map(|(page, _)| page)
    }

    /// The page and its outline, without a look at the page itself.
    ///
    /// # Errors
    /// As [`PageCache::get`].
    #[inline]
    pub(super) fn get_outlined(&self, id: PageId) -> Result<(&Page, Outline), Missing> {
        LOOKED_AT.set(LOOKED_AT.get().wrapping_add(1));
        match self.slot(id) {
            Some(Slot {
                page: Some(page),
                outline,
                referenced,
                ..
            }) => {
                // Looking first keeps the cache line shared between readers.
                if !referenced.load(Ordering::Relaxed) {
                    referenced.store(true, Ordering::Relaxed);
                }
                Ok((page, *outline))
            }
            _ => Err(Missing(id)),
        }
    }

    /// Another number once a page came into memory or left it, or an inner page changed: what was found on the way to a leaf holds until then.
    #[inline]
    pub(super) fn shape(&self) -> u64 {
        self.shape
    }

    fn change_shape(&mut self) {
        self.shape = SHAPES.fetch_add(1, Ordering::Relaxed);
    }

    /// A reference to the page as it is now, which later changes do not touch.
    ///
    /// # Errors
    /// As [`PageCache::get`].
    pub fn share(&self, id: PageId) -> Result<Arc<Page>, Missing> {
        self.slot(id)
            .and_then(|slot| slot.page.clone())
            .ok_or(Missing(id))
    }

    /// Changes the page; it is dirty from now on. Whoever shares it keeps it as it was.
    ///
    /// # Errors
    /// As [`PageCache::get`]; then nothing is done.
    #[inline]
    pub fn edit<T>(
        &mut self,
        id: PageId,
        change: impl FnOnce(&mut Page) -> T,
    ) -> Result<T, Missing> {
        self.mark_dirty(id)?;
        let slot = self.slot_mut(id).ok_or(Missing(id))?;
        let page = Arc::make_mut(slot.page.as_mut().ok_or(Missing(id))?);
        let was_inner = page.level() > 0;
        let result = change(page);
        let is_inner = page.level() > 0;
        slot.outline = Outline::of(page);
        *slot.referenced.get_mut() = true;
        if was_inner || is_inner {
            self.change_shape();
        }
        Ok(result)
    }

    /// Whether a page in memory is dirty.
    pub(super) fn is_dirty(&self, id: PageId) -> bool {
        self.slot(id)
            .is_some_and(|slot| slot.state.has(SlotState::DIRTY))
    }

    /// Marks a page dirty without changing it, so that the next checkpoint moves it.
    ///
    /// # Errors
    /// As [`PageCache::get`].
    pub fn mark_dirty(&mut self, id: PageId) -> Result<(), Missing> {
        let slot = self.slot_mut(id).ok_or(Missing(id))?;
        if slot.page.is_none() {
            return Err(Missing(id));
        }
        if !slot.state.put(SlotState::DIRTY, true) {
            let listed = slot.state.put(SlotState::IN_DIRTY, true);
            self.dirty += 1;
            if !listed {
                self.dirty_ids.push(id);
            }
        }
        Ok(())
    }

    /// Takes in a page read from the device. False, and the page is dropped, if it is in memory
    /// already, is not in use (any more), or is another page than `id`.
    ///
    /// The caller makes sure, under the lock that guards this cache, that the allocation table
    /// still maps `id` to the address that was read: in the meantime the page may have been
    /// changed, written elsewhere and evicted.
    pub fn insert_clean(&mut self, id: PageId, page: Arc<Page>) -> bool {
        let wanted = page.id() == id
            && self
                .slot(id)
                .is_some_and(|slot| slot.state.has(SlotState::ALLOCATED) && slot.page.is_none());
        if wanted {
            self.install(id, page);
        }
        wanted
    }

    /// Takes a free id for a new page, which [`PageCache::put_new`] brings.
    pub fn alloc_id(&mut self) -> PageId {
        let id = match self.free_ids.pop() {
            Some(Reverse(id)) => PageId(id),
            None => {
                self.slots.push(Slot::default());
                PageId(self.slots.len() as u64 - 1)
            }
        };
        if let Some(slot) = self.slot_mut(id) {
            let was_allocated = slot.state.put(SlotState::ALLOCATED, true);
            let is_resident = slot.page.is_some();
            invariant_holds!(
                self.alarm,
                !was_allocated && !is_resident,
                "page id {id} is given out, and is in use (in memory: {is_resident})"
            );
        }
        id
    }

    /// Takes in a new page under the id it was made with; it is dirty.
    pub fn put_new(&mut self, page: Arc<Page>) {
        let id = page.id();
        invariant_holds!(
            self.alarm,
            self.is_allocated(id),
            "page {id} is put into memory, and its id is free"
        );
        self.install(id, page);
        let resident = self.mark_dirty(id);
        invariant_holds!(
            self.alarm,
            resident.is_ok(),
            "page {id} is not in memory, where it was just put"
        );
    }

    /// Gives a page's id back; the page is gone. Nothing happens if the id is not in use.
    pub fn free(&mut self, id: PageId) {
        let Some(slot) = self
            .slot_mut(id)
            .filter(|slot| slot.state.has(SlotState::ALLOCATED))
        else {
            return;
        };
        slot.state.put(SlotState::ALLOCATED, false);
        let was_resident = slot.page.take().is_some();
        let was_dirty = slot.state.put(SlotState::DIRTY, false);
        // What a cut holds of the page may still be written; it is no matter of this id any more.
        let was_writing = slot.state.put(SlotState::WRITING, false);
        let listed = slot.state.put(SlotState::IN_FREED, true);
        self.change_shape();
        invariant_sub!(
            self.alarm,
            self.resident,
            usize::from(was_resident),
            "pages in memory"
        );
        invariant_sub!(
            self.alarm,
            self.dirty,
            usize::from(was_dirty),
            "dirty pages"
        );
        invariant_sub!(
            self.alarm,
            self.writing,
            usize::from(was_writing),
            "pages being written"
        );
        if !listed {
            self.freed_ids.push(id);
        }
        self.free_ids.push(Reverse(id.0));
    }

    /// The cut of a checkpoint: every dirty page as it is now. They are writing from now on.
    pub fn take_dirty(&mut self) -> Vec<(PageId, Arc<Page>)> {
        let mut cut = Vec::with_capacity(self.dirty);
        for id in std::mem::take(&mut self.dirty_ids) {
            let Some(slot) = self.slot_mut(id) else {
                continue;
            };
            slot.state.put(SlotState::IN_DIRTY, false);
            let was_dirty = slot.state.put(SlotState::DIRTY, false);
            let is_resident = slot.page.is_some();
            if let (true, Some(page)) = (was_dirty, slot.page.as_ref()) {
                cut.push((id, Arc::clone(page)));
                let was_writing = slot.state.put(SlotState::WRITING, true);
                self.writing += usize::from(!was_writing);
                invariant_sub!(self.alarm, self.dirty, 1, "dirty pages");
            }
            invariant_holds!(
                self.alarm,
                is_resident || !was_dirty,
                "page {id} is dirty, and not in memory"
            );
        }
        invariant_holds!(
            self.alarm,
            self.dirty == 0,
            "{} pages are dirty that no list names",
            self.dirty
        );
        self.dirty = 0;
        invariant_holds!(
            self.alarm,
            self.writing <= self.resident && cut.len() <= self.writing,
            "{} pages are cut, {} being written, {} in memory",
            cut.len(),
            self.writing,
            self.resident
        );
        cut
    }

    /// With the cut: the ids in use at the last cut, or since, that are free now.
    pub fn take_freed(&mut self) -> Vec<PageId> {
        let mut freed = std::mem::take(&mut self.freed_ids);
        freed.retain(|&id| {
            self.slot_mut(id).is_some_and(|slot| {
                slot.state.put(SlotState::IN_FREED, false);
                !slot.state.has(SlotState::ALLOCATED)
            })
        });
        freed
    }

    /// The pages of the cut are written and their new addresses known.
    pub fn finish_writing(&mut self, ids: impl IntoIterator<Item = PageId>) {
        for id in ids {
            if let Some(slot) = self.slot_mut(id) {
                let was_writing = slot.state.put(SlotState::WRITING, false);
                invariant_sub!(
                    self.alarm,
                    self.writing,
                    usize::from(was_writing),
                    "pages being written"
                );
            }
        }
    }

    /// The checkpoint failed: what it cut is dirty, and freed, again, unless it changed since.
    pub fn redirty(
        &mut self,
        pages: impl IntoIterator<Item = PageId>,
        freed: impl IntoIterator<Item = PageId>,
    ) {
        for id in pages {
            let writing = |slot: &mut Slot| slot.state.put(SlotState::WRITING, false);
            if self.slot_mut(id).is_some_and(writing) {
                invariant_sub!(self.alarm, self.writing, 1, "pages being written");
                // Missing if it was freed since.
                let _ = self.mark_dirty(id);
            }
        }
        for id in freed {
            let Some(slot) = self.slot_mut(id) else {
                continue;
            };
            if !slot.state.has(SlotState::ALLOCATED) && !slot.state.put(SlotState::IN_FREED, true) {
                self.freed_ids.push(id);
            }
        }
    }

    /// Evicts clean pages not used lately until at most `limit` of them are in memory, dirty ones
    /// and those being written, which cannot go, on top. Returns how many went. The work is
    /// bounded by the pages above the limit, so one call may not be enough.
    pub fn evict(&mut self, limit: usize) -> usize {
        let mut evicted = 0;
        let limit = limit + self.dirty + self.writing;
        // At most twice around: the first time takes away the references.
        let wanted = self.resident.saturating_sub(limit);
        let mut steps = (2 * self.ring.len()).min(EVICT_STEPS_PER_PAGE * wanted);
        while self.resident > limit && steps > 0 && !self.ring.is_empty() {
            steps -= 1;
            if self.hand >= self.ring.len() {
                self.hand = 0;
            }
            let id = self.ring[self.hand];
            let Some(slot) = self.slot_mut(id) else { break };
            let clean = !slot.state.has(SlotState::DIRTY) && !slot.state.has(SlotState::WRITING);
            if slot.page.is_none() {
                slot.state.put(SlotState::IN_RING, false);
            } else if clean && !std::mem::take(slot.referenced.get_mut()) {
                slot.state.put(SlotState::IN_RING, false);
                slot.page = None;
                invariant_sub!(self.alarm, self.resident, 1, "pages in memory");
                evicted += 1;
            } else {
                self.hand += 1;
                continue;
            }
            self.ring.swap_remove(self.hand);
        }
        if evicted > 0 {
            self.change_shape();
        }
        evicted
    }

    /// Pages in memory.
    #[must_use]
    pub fn resident(&self) -> usize {
        self.resident
    }

    /// Pages in memory that may be evicted, or a few less.
    #[must_use]
    pub fn clean(&self) -> usize {
        invariant_holds!(
            self.alarm,
            self.dirty.max(self.writing) <= self.resident,
            "{} pages in memory have changed, {} are being written, of {}",
            self.dirty,
            self.writing,
            self.resident
        );
        // A page that changes again while it is written counts twice: where nearly all do, more count than there are.
        self.resident.saturating_sub(self.dirty + self.writing)
    }

    /// Pages changed since the last cut.
    #[must_use]
    pub fn dirty(&self) -> usize {
        self.dirty
    }

    /// Pages that differ from the last durable checkpoint: changed since the last cut, or still
    /// being written; one that is both counts twice.
    #[must_use]
    pub fn changed(&self) -> usize {
        self.dirty + self.writing
    }

    /// Of those, the ones being written.
    #[must_use]
    pub fn writing(&self) -> usize {
        self.writing
    }

    /// Page ids in use.
    #[must_use]
    pub fn allocated(&self) -> usize {
        let (ids, free) = (self.slots.len(), self.free_ids.len());
        let are_fewer =
            invariant_holds!(self.alarm, free <= ids, "{free} page ids of {ids} are free");
        if are_fewer { ids - free } else { ids }
    }

    /// One more than the largest id ever used: the size of the allocation table.
    #[must_use]
    pub fn id_limit(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Whether a page of this id exists.
    #[must_use]
    pub fn is_allocated(&self, id: PageId) -> bool {
        self.slot(id)
            .is_some_and(|slot| slot.state.has(SlotState::ALLOCATED))
    }

    /// What kept a change from being made wholly: the tree is damaged, or the change was made
    /// without [`super::tree::ensure_resident`]. Nothing of this cache may be written from then
    /// on; [`super::tree::ensure_resident`] returns the fault too.
    #[must_use]
    pub fn fault(&self) -> Option<TreeError> {
        self.fault
    }

    pub(super) fn set_fault(&mut self, fault: TreeError) {
        let fault = match fault {
            // To fetch the page now would be of no use: the change is lost.
            TreeError::Missing(page) => TreeError::Damaged {
                page,
                damage: TreeDamage::Gone,
            },
            other => other,
        };
        self.fault.get_or_insert(fault);
    }

    /// An error that ends the change, and stops the volume, where a page is not what a change must have made of it.
    pub(super) fn must_hold(&self, holds: bool, page: PageId, what: &str) -> Result<(), TreeError> {
        if invariant_holds!(self.alarm, holds, "metadata page {page}: {what}") {
            Ok(())
        } else {
            Err(TreeError::Damaged {
                page,
                damage: TreeDamage::Gone,
            })
        }
    }

    fn install(&mut self, id: PageId, page: Arc<Page>) {
        let Some(slot) = self.slot_mut(id) else {
            return;
        };
        *slot.referenced.get_mut() = true;
        slot.outline = Outline::of(&page);
        let is_its = page.id() == id;
        let was_resident = slot.page.replace(page).is_some();
        let in_ring = slot.state.put(SlotState::IN_RING, true);
        self.resident += usize::from(!was_resident);
        if !in_ring {
            self.ring.push(id);
        }
        self.change_shape();
        invariant_holds!(
            self.alarm,
            is_its && !was_resident,
            "page {id} is put into memory where another is (its own: {is_its})"
        );
    }

    #[inline]
    fn slot(&self, id: PageId) -> Option<&Slot> {
        index(id).and_then(|index| self.slots.get(index))
    }

    fn slot_mut(&mut self, id: PageId) -> Option<&mut Slot> {
        index(id).and_then(|index| self.slots.get_mut(index))
    }
}

/// Ids come from the device too: one beyond the address space is no index.
#[inline]
fn index(id: PageId) -> Option<usize> {
    usize::try_from(id.0).ok()
}
