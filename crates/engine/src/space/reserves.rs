//! Reserves: how many free zones each user of zones leaves to the others. A user with a larger reserve waits earlier. Users that
//! must not wait find zones where the others stop:
//!
//! | who takes a zone | leaves alone |
//! |---|---|
//! | new data, and changes of metadata | the low watermark: all that the others may need |
//! | blocks that cleaning moved | what a checkpoint of the pages changed so far needs, and the log |
//! | data that failed elsewhere | zones for the log |
//! | pages of a checkpoint | zones for the log, and one for chunks |
//! | chunks of a checkpoint | zones for the log |
//! | the log | none |
//!
//! Cleaning ahead of need keeps a target of zones free beyond [`View::reserved`]. On two devices data has zones of its own; one of
//! them is left to cleaning.

use persimmon_format::page::PAGE_BLOCKS_MAX;

use super::Space;
use super::View;
use crate::zones::budget::DATA_RESERVE_APART;
use crate::zones::{DeviceKind, Pages, Reserve};

/// Who takes a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// New data.
    Data,
    /// Live blocks of a victim.
    Moved,
    /// Data that failed elsewhere.
    Rewritten,
    /// Pages of a checkpoint.
    Pages,
    /// Pages that live longer than others, for which a zone is opened only while there are plenty.
    ColdPages,
    /// The chunks that end a checkpoint.
    Chunks,
}

/// How long the journal is reckoned to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Journal {
    /// As long as it is to get.
    Wanted,
    /// As long as zones were secured for: nobody waits for the zones of a longer one.
    Secured,
}

impl Space {
    /// What a piece of work leaves to the others now.
    pub(crate) fn leaves(&self, work: Work) -> Reserve {
        let view = match work {
            Work::Data => self.view_for(DeviceKind::Data),
            _ => self.view(),
        };
        view.leaves(work)
    }

    /// What there is, for the low watermark of a device. While more zones are free than that, the last look at reclaimable
    /// zones will do; otherwise some may have become reclaimable since.
    pub(crate) fn view_for(&self, device: DeviceKind) -> View<'_> {
        let view = self.view();
        if view.free(device) > view.low_watermark(device) {
            view
        } else {
            self.view_now()
        }
    }
}

impl View<'_> {
    /// What a piece of work leaves to the others.
    pub(crate) fn leaves(&self, work: Work) -> Reserve {
        let (budget, split) = (self.budget, self.is_apart(DeviceKind::Data));
        let zones = match work {
            Work::Data => self.low_watermark(DeviceKind::Data),
            Work::Moved => self.left_by_cleaning(DeviceKind::Data),
            Work::Rewritten if split => 0,
            Work::Rewritten => budget.log_reserve,
            Work::Pages => self.left_by_pages(),
            Work::ColdPages => budget.data_reserve_max,
            Work::Chunks if budget.large.is_some() => 0,
            Work::Chunks => budget.log_reserve,
        };
        match work {
            // They end the journal too, so of the zones that the log can take they leave it no more than they leave in all.
            Work::Chunks if budget.large.is_none() => Reserve {
                zones: Some(zones),
                log_candidates: zones,
            },
            _ => self.leaving(Some(zones)),
        }
    }

    /// The reserve of who leaves so many free zones, or takes none: of the zones that the log can take no more than are reserved for
    /// it, for what is left to others must be theirs to take.
    pub(crate) fn leaving(&self, zones: Option<u32>) -> Reserve {
        let (budget, counts) = (self.budget, &self.zones);
        let journal_blocks = budget.journal_blocks_reserved.min(counts.journal_blocks);
        Reserve {
            zones,
            log_candidates: self.log_growth(journal_blocks) + budget.copies,
        }
    }

    /// Free zones that new data and new changes leave alone. Reclaimable ones and those on their way are as good as free, as long
    /// as there are others for what is written until they are reset, and one for cleaning.
    pub(crate) fn low_watermark(&self, device: DeviceKind) -> u32 {
        let reserve = self.reserved(device, Journal::Secured);
        if self.is_apart(device) {
            return reserve;
        }
        // What a checkpoint takes beyond what was reckoned it takes from nobody: new changes wait then.
        let reserved = reserve + self.zones.under_way.unwrap_or_default().zones;
        let least = (self.left_by_cleaning(DeviceKind::Metadata) + 1).min(reserved);
        let coming = self.reclaimable(DeviceKind::Metadata) + self.in_reset(DeviceKind::Metadata);
        reserve.saturating_sub(coming).max(least)
    }

    /// The reserve of a device with nothing on its way: free zones for the log and chunks, a checkpoint that writes all pages of the
    /// tree and what is added until it comes, a zone that one before that begins with, a zone for what cleaning moves, and those that
    /// the log may still grow into. They were reserved for what a checkpoint under way has taken.
    pub(crate) fn reserved(&self, device: DeviceKind, journal: Journal) -> u32 {
        if self.is_apart(device) {
            return DATA_RESERVE_APART;
        }
        let budget = self.budget;
        let zones = match &budget.large {
            Some(large) => large.spare_zones,
            None => {
                let pages = self.checkpoint_zones(self.tree, false);
                let zones = self.left_by_pages() + pages + budget.copies;
                (zones + 1).min(budget.data_reserve_max)
            }
        };
        let journal_blocks = match journal {
            Journal::Wanted => self.zones.journal_blocks,
            Journal::Secured => self.zones.journal_blocks_secured,
        };
        let under_way = self.zones.under_way.unwrap_or_default();
        (zones + self.log_growth(journal_blocks)).saturating_sub(under_way.zones)
    }

    /// Free zones of a device left alone by what cleaning moves: for the log and chunks, and for a checkpoint of the pages changed so
    /// far. With few of them cleaning may use what is otherwise reserved for all. A checkpoint that begins a zone takes none from
    /// cleaning: what is left of that zone counts, and while it is used up cleaning has the zone that changes have left for it.
    pub(crate) fn left_by_cleaning(&self, device: DeviceKind) -> u32 {
        let (budget, counts) = (self.budget, &self.zones);
        if self.is_apart(device) {
            return 0;
        }
        if counts.last_spare_borrowed {
            return budget.spare_zones().saturating_sub(2);
        }
        let growth = self.log_growth(counts.journal_blocks_secured);
        // The log takes one zone after the other, and waits for those that are being reset: they are as good as
        // free for it, but for the next one. If they never come its journal ends earlier.
        let coming = self.in_reset(DeviceKind::Metadata);
        let growth = growth.saturating_sub(coming).max(growth.min(budget.copies));
        let zones = match &budget.large {
            Some(large) => large.spare_zones - 1,
            None => {
                let zones = self.left_by_pages() + self.checkpoint_zones(self.changed, true);
                zones.min(budget.data_reserve_max - 1)
            }
        };
        zones + growth
    }

    /// Free zones left alone by the pages of a checkpoint: for the log, and for the chunks that follow them, or those of a
    /// checkpoint of the zones alone, which frees what pages wrote that found no room.
    pub(super) fn left_by_pages(&self) -> u32 {
        match self.budget.large {
            Some(_) => 0,
            None => self.budget.log_reserve + self.budget.copies,
        }
    }

    /// Zones that the log may take before a checkpoint gives some back, with a journal of so many blocks. How long it is does
    /// not count: no more than that is to come, for once free zones are short one that is longer is ended.
    fn log_growth(&self, journal_blocks: u64) -> u32 {
        let (budget, counts) = (self.budget, &self.zones);
        if budget.large.is_some() {
            return 0;
        }
        // One that is longer already may go on into one zone more until it is ended.
        let zones = |blocks| self.zones_for(blocks);
        let growth = (zones(journal_blocks) + budget.copies).saturating_sub(counts.log_zones);
        let all = journal_blocks + budget.journal_overshoot();
        let missing = all.saturating_sub(counts.log_blocks_left.into());
        // A checkpoint may have to begin a zone all the same, and leaves this one to the log.
        growth
            .max(budget.copies)
            .min(zones(missing).max(budget.copies))
    }

    /// Zones that a checkpoint of these pages may still take, and of those that become dirty before it is
    /// asked for, beside what is left of a zone that it `goes_on` with; and before it one under way, beside
    /// what that has had.
    pub(super) fn checkpoint_zones(&self, pages: Pages, goes_on: bool) -> u32 {
        let counts = &self.zones;
        let (left, had) = match goes_on {
            true => (
                counts.metadata_blocks_left,
                counts.under_way.map_or(0, |under_way| under_way.blocks),
            ),
            false => (0, 0),
        };
        let under_way = Pages {
            count: pages.writing,
            ..pages
        };
        let next = self.budget.next_checkpoint_blocks(pages);
        let blocks = match pages.writing {
            // At the zone's end there may be no room for a page.
            0 => next.saturating_sub(left.saturating_sub(PAGE_BLOCKS_MAX as u32).into()),
            _ => next + under_way.blocks().saturating_sub(had.into()),
        };
        self.zones_for(blocks)
    }

    /// Zones for metadata, with all copies, in which so many blocks fit.
    pub(super) fn zones_for(&self, blocks: u64) -> u32 {
        let zones = blocks.div_ceil(self.budget.metadata_zone_blocks);
        u32::try_from(zones * u64::from(self.budget.copies)).unwrap_or(u32::MAX)
    }

    /// Whether neither the log nor metadata needs a zone of this device.
    fn is_apart(&self, device: DeviceKind) -> bool {
        device == DeviceKind::Data && self.budget.layout.is_split()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::zones::budget::ZoneCapacities;
    use crate::zones::budget::tests::geometry;
    use crate::zones::{Budget, Written, ZoneCounts};

    /// A view of a volume without a log, with so many zones, copies, changed pages and pages in all.
    fn view(budget: &Budget, changed: u64, all: u64, written: Written) -> View<'_> {
        let pages = |count| Pages {
            count,
            writing: 0,
            all,
            written,
        };
        View {
            budget,
            zones: ZoneCounts::default(),
            changed: pages(changed),
            tree: pages(all),
        }
    }

    #[test]
    fn reserves_follow_the_pages() {
        let geometry = geometry(1000, 512);
        let capacities = ZoneCapacities::all(512);
        for copies in [1, 2] {
            let budget =
                Budget::new(&geometry, capacities, 0, copies, &Options::default()).unwrap();
            let mut before = 0;
            for pages in (0..10_000).step_by(50) {
                let incompressible = Written {
                    pages: 100,
                    blocks: 400,
                };
                let all = view(&budget, pages, pages, incompressible);
                let changes = all.reserved(DeviceKind::Data, Journal::Secured);
                assert!(changes >= before);
                // Cleaning has a zone that new data has left to it, whatever is dirty.
                let cleaning = all.left_by_cleaning(DeviceKind::Data);
                assert!(cleaning < changes, "{pages} pages: {cleaning}, {changes}");
                let few = view(&budget, pages.min(500), pages, incompressible);
                let few = few.left_by_cleaning(DeviceKind::Data);
                let is_full = changes >= budget.data_reserve_max;
                assert!(few + copies < changes || is_full);
                before = changes;
                // Pages of two blocks need less, and too few tell nothing.
                let of = |count, pages_written| Pages {
                    count,
                    writing: 0,
                    all: pages,
                    written: Written {
                        pages: pages_written,
                        blocks: 2 * pages_written,
                    },
                };
                assert_eq!(of(pages, 100).blocks(), (pages * 17).div_ceil(8));
                assert_eq!(of(pages, 10).blocks(), all.tree.blocks());
                // Some of them may be the large ones.
                assert_eq!(of(pages / 2, 100).blocks(), pages / 2 * 4);
            }
            assert!(before >= budget.data_reserve_max);
        }
    }

    /// Who takes zones in the order in which the others wait for it finds no fewer than it leaves.
    #[test]
    fn who_must_not_wait_leaves_less() {
        let geometry = geometry(1000, 512);
        let capacities = ZoneCapacities::all(512);
        for (copies, changed, all) in [(1, 0, 0), (1, 300, 5000), (2, 40, 40), (2, 900, 20_000)] {
            let budget =
                Budget::new(&geometry, capacities, 0, copies, &Options::default()).unwrap();
            let written = Written {
                pages: all,
                blocks: 3 * all,
            };
            let view = view(&budget, changed, all, written);
            let zones = |work| view.leaves(work).zones.unwrap();
            let order = [Work::Data, Work::Moved, Work::Pages, Work::Chunks].map(zones);
            assert!(order.is_sorted_by(|more, less| more > less), "{order:?}");
            assert!(zones(Work::Rewritten) <= zones(Work::Moved));
        }
    }
}
