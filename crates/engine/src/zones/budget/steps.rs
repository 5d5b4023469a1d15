//! How much changes at once, and what the next checkpoint takes for it.

use super::Budget;
use super::pages::Pages;

/// Operations that one transaction should have at most, or frames one group of moved blocks, on the largest volumes.
const OPS_MAX: usize = 512;
/// Pages that become dirty at once at most, by one of those: each may change a leaf, and some split.
const DIRTIED_AT_ONCE: u64 = OPS_MAX as u64 * 3 / 2;
/// Blocks by which the journal may go past where it is to end, besides an eighth of the shortest: what is
/// buffered when it gets there, and footers.
pub(in crate::zones) const JOURNAL_OVERSHOOT: u64 = 384;

impl Budget {
    /// Blocks by which the journal may go past where it is to end.
    pub(crate) fn journal_overshoot(&self) -> u64 {
        self.journal_blocks_reserved / 8 + JOURNAL_OVERSHOOT
    }

    /// Blocks that a checkpoint of these pages may take, and of those that become dirty before it is asked for.
    pub(crate) fn next_checkpoint_blocks(&self, pages: Pages) -> u64 {
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
    pub(crate) fn spare_zones(&self) -> u32 {
        self.large.as_ref().map_or(0, |large| large.spare_zones)
    }
}
