//! Reserves among the zones for metadata: for the log, for checkpoints, and for cleaning. [`crate::reserves`] says who leaves them.

use persimmon_format::page::PAGE_BLOCKS_MAX;

use super::Budget;
use super::pages::{Begun, Pages};

/// Blocks by which the journal may go past where it is to end, besides an eighth of the shortest: what is
/// buffered when it gets there, and footers.
pub(in crate::zones) const JOURNAL_OVERSHOOT: u64 = 384;
/// Operations that one transaction should have at most, or frames one group of moved blocks, on the largest volumes.
const OPS_MAX: usize = 512;
/// Pages that become dirty at once at most, by one of those: each may change a leaf, and some split.
const DIRTIED_AT_ONCE: u64 = OPS_MAX as u64 * 3 / 2;

impl Budget {
    /// Zones reserved for the log to grow into before a checkpoint gives some back, where it has so many, so
    /// many blocks are left in the last of them, and the journal is to get so long. How long it is does
    /// not count: no more than that is to come, for once free zones are short one that is longer is ended.
    pub(crate) fn log_growth(&self, log_zones: u32, begun_blocks: u32, journal_blocks: u64) -> u32 {
        if self.large.is_some() {
            return 0;
        }
        let zones = |blocks: u64| {
            let zones = blocks.div_ceil(self.metadata_zone_blocks) * u64::from(self.copies);
            u32::try_from(zones).unwrap_or(u32::MAX)
        };
        // One that is longer already may go on into one zone more until it is ended.
        let growth = (zones(journal_blocks) + self.copies).saturating_sub(log_zones);
        let all = journal_blocks + self.journal_overshoot();
        let missing = all.saturating_sub(begun_blocks.into());
        // A checkpoint may have to begin a zone all the same, and leaves this one to the log.
        growth.max(self.copies).min(zones(missing).max(self.copies))
    }

    /// Blocks by which the journal may go past where it is to end.
    fn journal_overshoot(&self) -> u64 {
        self.journal_blocks_reserved / 8 + JOURNAL_OVERSHOOT
    }

    /// Free zones for metadata below which a journal has to end that has what is always reserved for it: for a
    /// zone of the log, for what is still added to it, and for a checkpoint of these pages; and of those, the
    /// ones that must be zones that the log can take.
    pub(crate) fn journal_reserve(
        &self,
        changed: Pages,
        begun: Begun,
        log_blocks_left: u32,
    ) -> (u32, u32) {
        if let Some(large) = &self.large {
            return (large.spare_zones - 1, 0);
        }
        let more = self.journal_overshoot();
        let more = more.saturating_sub(log_blocks_left.into());
        let more = more.div_ceil(self.metadata_zone_blocks) * u64::from(self.copies);
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let pages = self.checkpoint_zones(changed, begun);
        (self.pages_reserve() + more + pages, self.log_reserve + more)
    }

    /// Free zones left alone by the pages of a checkpoint: for the log, and for the chunks that follow them, or those of a
    /// checkpoint of the zones alone, which frees what pages wrote that found no room.
    pub(crate) fn pages_reserve(&self) -> u32 {
        match self.large {
            Some(_) => 0,
            None => self.log_reserve + self.copies,
        }
    }

    /// The same by those chunks.
    pub(crate) fn chunks_reserve(&self) -> u32 {
        match self.large {
            Some(_) => 0,
            None => self.log_reserve,
        }
    }

    /// Free zones for metadata left alone by new changes, beside those that the log may grow into, where
    /// the tree has these pages: for the log and chunks, a checkpoint that writes all of them and what
    /// is added until it comes, a zone that one before that begins with, and a zone for what cleaning moves.
    pub(crate) fn changes_reserve(&self, tree: Pages) -> u32 {
        if let Some(large) = &self.large {
            return large.spare_zones;
        }
        let zones =
            self.pages_reserve() + self.checkpoint_zones(tree, Begun::default()) + self.copies;
        (zones + 1).min(self.data_reserve_max)
    }

    /// Free zones for metadata left alone by cleaning, beside those that the log may grow into: for the log and chunks,
    /// and for a checkpoint of these pages. With few of them cleaning may use what is otherwise reserved
    /// for all. A checkpoint that begins a zone takes none from cleaning: what is left of that zone counts, and
    /// while it is used up cleaning has the zone that changes have left for it.
    pub(crate) fn cleaning_reserve(&self, changed: Pages, begun: Begun) -> u32 {
        if let Some(large) = &self.large {
            return large.spare_zones - 1;
        }
        let zones = self.pages_reserve() + self.checkpoint_zones(changed, begun);
        zones.min(self.data_reserve_max - 1)
    }

    /// Zones that a checkpoint of these pages may still take, and of those that become dirty before it is
    /// asked for, beside what is left of a zone that it goes on with; and before it one under way, beside
    /// what that has had.
    fn checkpoint_zones(&self, pages: Pages, begun: Begun) -> u32 {
        let under_way = Pages {
            count: pages.writing,
            ..pages
        };
        let next = self.next_checkpoint_blocks(pages);
        let blocks = match pages.writing {
            // At the zone's end there may be no room for a page.
            0 => next.saturating_sub(begun.left.saturating_sub(PAGE_BLOCKS_MAX as u32).into()),
            _ => next + under_way.blocks().saturating_sub(begun.had.into()),
        };
        (blocks.div_ceil(self.metadata_zone_blocks) * u64::from(self.copies)) as u32
    }

    /// Blocks that a checkpoint of these pages may take, and of those that become dirty before it is asked for.
    pub(in crate::zones) fn next_checkpoint_blocks(&self, pages: Pages) -> u64 {
        let more = (self.dirty_pages_reserved as u64 / 8).min(DIRTIED_AT_ONCE);
        let next = Pages {
            count: pages.count + more,
            all: pages.all + more,
            ..pages
        };
        next.blocks() + self.chunk_blocks_max
    }

    /// Operations that one transaction should have at most, or frames one group of moved blocks: each may dirty a page before the next look
    /// at the bounds, of so many pages that there is room for.
    pub(crate) fn ops_max(&self, pages: usize) -> usize {
        (pages.min(self.dirty_pages_reserved) / 8).clamp(4, OPS_MAX)
    }

    /// Where zones are large, those that new data leaves free.
    pub(in crate::zones) fn spare_zones(&self) -> u32 {
        self.large.as_ref().map_or(0, |large| large.spare_zones)
    }
}
