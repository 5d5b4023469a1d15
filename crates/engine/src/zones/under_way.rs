//! What a checkpoint under way has taken, and how long the journal is to get.

use super::Zones;
use super::budget::{Budget, JOURNAL_BLOCKS_MIN};
use super::stream::Stream;
use super::table::Table;
use super::zone_counts::UnderWay;

/// The journal is to get at least as long as this part of what is always reserved for it.
const JOURNAL_SHARE_LEAST: u64 = 4;

/// The checkpoint under way is written, or given up, when this is dropped.
pub(crate) struct WritingPages<'a>(&'a Zones);

impl Drop for WritingPages<'_> {
    fn drop(&mut self) {
        self.0.lock().counts.under_way = None;
    }
}

impl Zones {
    /// A whole checkpoint is being written from now on.
    pub(crate) fn begin_pages(&self) -> WritingPages<'_> {
        let mut table = self.lock();
        let blocks = table.counts.metadata_blocks_left;
        table.counts.under_way = Some(UnderWay { zones: 0, blocks });
        WritingPages(self)
    }

    /// No more than so many from now on, within the bounds: that is where a journal had to end.
    pub(crate) fn shorten_journal(&self, blocks: u64) {
        self.set_journal_blocks(blocks.min(self.counts().journal_blocks));
    }

    /// Sets how long the journal is to get, within the bounds. It may be less than is always reserved for it, where that does not pay.
    pub(crate) fn set_journal_blocks(&self, blocks: u64) {
        let (least, most) = (
            (self.budget.journal_blocks_reserved / JOURNAL_SHARE_LEAST).max(JOURNAL_BLOCKS_MIN),
            self.budget.journal_blocks_max,
        );
        let mut table = self.lock();
        table.counts.journal_blocks = blocks.clamp(least, most);
        table.counts.journal_blocks_secured = table
            .counts
            .journal_blocks_secured
            .min(table.counts.journal_blocks);
    }

    /// Zones for all of the journal have been won.
    pub(crate) fn secure_journal_blocks(&self) {
        let mut table = self.lock();
        table.counts.journal_blocks_secured = table.counts.journal_blocks;
    }
}

impl Table {
    /// The zone of a stream takes no more.
    pub(super) fn forget_begun(&mut self, stream: Stream) {
        if stream == Stream::Metadata {
            let left = std::mem::take(&mut self.counts.metadata_blocks_left);
            if let Some(under_way) = &mut self.counts.under_way {
                // Of what was left some may have been taken before the checkpoint began.
                under_way.blocks = under_way.blocks.saturating_sub(left);
            }
        }
    }

    /// A zone that was taken for this stream is free again.
    pub(super) fn untake(&mut self, stream: Stream, budget: &Budget) {
        if stream == Stream::Metadata
            && let Some(under_way) = &mut self.counts.under_way
        {
            under_way.zones = under_way.zones.saturating_sub(budget.copies);
        }
    }
}
