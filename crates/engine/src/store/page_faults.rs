//! Page faults: pages that a look at the tree needs and that are not in memory. They are fetched with no lock held, and the
//! look begins again, or goes on behind the last item it has seen ([`Store::walk`]).

use persimmon_sync::atomic::Ordering;

use persimmon_format::PageId;
use persimmon_format::table::MatEntry;

use super::Store;
use crate::error::{Error, Result};
use crate::invariant::{invariant, invariant_holds};
use crate::meta::cache::looked_at;
use crate::meta::{Meta, store};
use crate::statistics::add;

/// After so many pages for one look none is evicted until it is over. All that it needs must be in memory together: where
/// many look at once, or the cache has become smaller meanwhile, each would lose what it has to the others for ever.
const PINNED_AFTER: usize = 128;

/// The page faults of one look at the tree.
pub(crate) struct PageFaults<'s> {
    store: &'s Store,
    /// A page that does not exist.
    gone: Option<PageId>,
    fetched: usize,
    /// Pages this thread had looked at before.
    looked_at_before: u64,
}

impl<'s> PageFaults<'s> {
    pub(crate) fn of(store: &'s Store) -> PageFaults<'s> {
        PageFaults {
            store,
            gone: None,
            fetched: 0,
            looked_at_before: looked_at(),
        }
    }

    /// Reads a page into memory. No lock is held meanwhile. A page that was freed after
    /// the fault is no error: the next look does not need it. Only a page that a look needs
    /// again is missing from a damaged tree.
    pub(crate) fn fetch(&mut self, id: PageId) -> Result<()> {
        self.fetched += 1;
        if self.fetched == PINNED_AFTER {
            self.store
                .looks_that_pin_pages
                .fetch_add(1, Ordering::AcqRel);
        }
        self.store.fetch(id, &mut self.gone)
    }

    /// The look goes on from a later place and needs none of the pages it had missed before: they may be evicted.
    pub(crate) fn forget(&mut self) {
        if self.fetched >= PINNED_AFTER {
            let before = self
                .store
                .looks_that_pin_pages
                .fetch_sub(1, Ordering::AcqRel);
            invariant_holds!(
                self.store.media.alarm,
                before > 0,
                "{before} looks keep pages in memory, and one less"
            );
        }
        self.fetched = 0;
    }
}

impl Drop for PageFaults<'_> {
    fn drop(&mut self) {
        self.forget();
        let looked_at = looked_at().wrapping_sub(self.looked_at_before);
        add(&self.store.media.counters.pages_looked_at, looked_at);
    }
}

impl Store {
    fn fetch(&self, id: PageId, gone: &mut Option<PageId>) -> Result<()> {
        loop {
            let (entry, _pin) = {
                let meta = self.meta();
                if meta.cache.get(id).is_ok() {
                    return Ok(());
                }
                if !meta.cache.is_allocated(id) && gone.replace(id) != Some(id) {
                    return Ok(());
                }
                let entry = meta.mat.get(id).ok_or_else(|| Error::no_such_page(id))?;
                (entry, self.zones.pin(entry.addr.zone()))
            };
            add(&self.media.counters.pages_fetched, 1);
            let page = store::fetch(&self.media, &self.key, id, entry);
            self.examine();
            let mut meta = self.meta_mut();
            if meta.mat.get(id) != Some(entry) {
                // It was written elsewhere meanwhile; look again.
                continue;
            }
            let page = page.inspect_err(|error| self.lost_page(id, entry, error))?;
            invariant!(
                self.media.alarm,
                page.id() == id,
                "page {} was read as page {id}",
                page.id()
            );
            meta.cache.insert_clean(id, page);
            let limit = self.cached_pages_max();
            // A look at the tree needs several pages at once: some room is always left for them.
            if meta.cache.clean() > limit + limit / 8 + 64 {
                self.evict_pages(&mut meta, limit);
            }
            return Ok(());
        }
    }

    /// Evicts clean pages until so many are left, unless somebody needs many.
    pub(crate) fn evict_pages(&self, meta: &mut Meta, limit: usize) {
        if self.looks_that_pin_pages.load(Ordering::Acquire) == 0 {
            meta.cache.evict(limit);
        }
    }

    /// A page that is damaged, or in a zone that has failed, is lost: what it held is not guessed.
    fn lost_page(&self, id: PageId, entry: MatEntry, error: &Error) {
        let lost = match error {
            Error::Device(_) => self.zones.has_failed(entry.addr.zone()),
            _ => true,
        };
        if lost && self.check_writable().is_ok() {
            tracing::error!(page = id.0, %error, "a metadata page is lost, no more changes are made");
            self.make_read_only();
        }
    }
}
