//! One picture of what space there is: the counts of zones and pages of one moment. Whatever decides about space is a function of it.

use super::Space;
use crate::meta::PageCache;
use crate::zones::{Budget, DeviceKind, Pages, ZoneCounts};

/// See the module.
#[derive(Clone, Copy)]
pub(crate) struct View<'s> {
    pub(super) budget: &'s Budget,
    pub(super) zones: ZoneCounts,
    /// Pages that checkpoints are still to write, of one under way all.
    pub(crate) changed: Pages,
    /// A checkpoint writes no more pages than there are.
    pub(super) tree: Pages,
}

impl Space {
    /// What there is now, with reclaimable zones as of the last look at all zones that changed.
    pub(crate) fn view(&self) -> View<'_> {
        self.view_of(self.store.zones.counts())
    }

    /// What there is now.
    pub(crate) fn view_now(&self) -> View<'_> {
        self.view_of(self.store.zones.counts_now())
    }

    fn view_of(&self, zones: ZoneCounts) -> View<'_> {
        let meta = self.store.meta();
        let pages = |count: fn(&PageCache) -> (usize, usize)| {
            let (count, writing) = count(&meta.cache);
            Pages {
                count: count as u64,
                writing: writing as u64,
                all: meta.cache.allocated() as u64,
                written: meta.mat.written(),
            }
        };
        View {
            budget: &self.store.zones.budget,
            zones,
            changed: pages(|cache| (cache.dirty(), cache.writing())),
            tree: pages(|cache| (cache.allocated(), 0)),
        }
    }

    /// Pages that checkpoints are still to write, of one under way all.
    pub(crate) fn changed_pages(&self) -> Pages {
        self.view().changed
    }
}

impl View<'_> {
    /// Zones that are free for a device.
    pub(crate) fn free(&self, device: DeviceKind) -> u32 {
        self.zones.free(&self.budget.layout, device)
    }

    /// Zones of a device that are being reset, or wait for it.
    pub(crate) fn in_reset(&self, device: DeviceKind) -> u32 {
        self.zones.in_reset(&self.budget.layout, device)
    }

    /// Zones of a device that are free, or will be as soon as their reset is done.
    pub(crate) fn coming(&self, device: DeviceKind) -> u32 {
        self.free(device) + self.in_reset(device)
    }

    /// Zones of both devices that are being reset, or wait for it.
    pub(crate) fn all_in_reset(&self) -> u32 {
        let devices = self.budget.layout.devices().iter();
        devices.map(|device| self.in_reset(*device)).sum()
    }

    /// Zones of a device that the next checkpoint frees.
    pub(crate) fn reclaimable(&self, device: DeviceKind) -> u32 {
        self.zones.reclaimable(&self.budget.layout, device)
    }
}
