//! Reserves: how many free zones each user of zones leaves to the others. A user with a larger reserve waits earlier. Users that
//! must not wait find zones where the others stop:
//!
//! | who takes a zone | leaves alone |
//! |---|---|
//! | new data, and changes of metadata | [`Space::low_watermark`]: all that the others may need |
//! | blocks that cleaning moved | [`Space::cleaning_reserve`]: what a checkpoint of the pages changed so far needs, and the log |
//! | data that failed elsewhere | [`Space::rewrite_reserve`]: the log's |
//! | pages, then chunks of a checkpoint | `Budget::pages_reserve`, `Budget::chunks_reserve`: the log's |
//! | the log | none |
//!
//! Cleaning ahead of need keeps a target of zones free beyond [`Space::reserved_zones`]. On two devices data has zones of its own; one of
//! them is left to cleaning.

use super::Space;
use crate::meta::PageCache;
use crate::zones::budget::DATA_RESERVE_APART;
use crate::zones::{DeviceKind, Pages};

impl Space {
    /// The reserve of a device: free zones for a checkpoint of the whole tree, and for a journal as long as it is to get.
    pub(crate) fn reserved_zones(&self, device: DeviceKind) -> u32 {
        if self.is_apart(device) {
            DATA_RESERVE_APART
        } else {
            self.store.zones.changes_reserve(self.all_pages())
        }
    }

    /// The reserve of a device with a journal no longer than zones were secured for.
    pub(crate) fn secured_reserve(&self, device: DeviceKind) -> u32 {
        if self.is_apart(device) {
            DATA_RESERVE_APART
        } else {
            self.store.zones.secured_changes_reserve(self.all_pages())
        }
    }

    /// The low watermark of a device: free zones that new data and new changes leave alone now. Reclaimable ones and those on their way are as good as free, as long
    /// as there are others for what is written until they are reset, and one for cleaning.
    pub(crate) fn low_watermark(&self, device: DeviceKind) -> u32 {
        let reserve = self.secured_reserve(device);
        if self.is_apart(device) {
            return reserve;
        }
        let reclaimable = self.store.zones.reclaimable_zones(DeviceKind::Metadata);
        // What a checkpoint takes beyond what was reckoned it takes from nobody: new changes wait then.
        let reserved = reserve + self.store.zones.taken_by_checkpoint();
        let least = (self.cleaning_reserve(DeviceKind::Metadata) + 1).min(reserved);
        let coming = reclaimable + self.store.zones.zones_in_reset(DeviceKind::Metadata);
        reserve.saturating_sub(coming).max(least)
    }

    /// Free zones of a device left alone by what cleaning moves.
    pub(crate) fn cleaning_reserve(&self, device: DeviceKind) -> u32 {
        if self.is_apart(device) {
            0
        } else {
            self.store.zones.cleaning_reserve(self.changed_pages())
        }
    }

    /// Free zones left alone by data that failed elsewhere.
    pub(crate) fn rewrite_reserve(&self) -> u32 {
        if self.is_apart(DeviceKind::Data) {
            0
        } else {
            self.store.zones.budget.log_reserve
        }
    }

    /// Pages that checkpoints are still to write, of one under way all.
    pub(crate) fn changed_pages(&self) -> Pages {
        self.pages(|cache| (cache.dirty(), cache.writing()))
    }

    /// A checkpoint writes no more pages than there are.
    fn all_pages(&self) -> Pages {
        self.pages(|cache| (cache.allocated(), 0))
    }

    fn pages(&self, count: impl Fn(&PageCache) -> (usize, usize)) -> Pages {
        let meta = self.store.meta();
        let (count, writing) = count(&meta.cache);
        Pages {
            count: count as u64,
            writing: writing as u64,
            all: meta.cache.allocated() as u64,
            written: meta.mat.written(),
        }
    }

    /// Whether neither the log nor metadata needs a zone of this device.
    fn is_apart(&self, device: DeviceKind) -> bool {
        device == DeviceKind::Data && self.store.zones.budget.layout.is_split()
    }
}
