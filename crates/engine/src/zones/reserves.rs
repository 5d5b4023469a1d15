//! Zones reserved for the log and for checkpoints, with the log as long as it is now and with what the checkpoint under way has
//! taken. The budget says what is reserved with nothing under way.

use persimmon_device::ZoneId;

use super::budget::{Begun, Budget, JOURNAL_BLOCKS_MIN, Pages};
use super::entries::ZoneEntry;
use super::layout::DeviceKind;
use super::stream::Stream;
use super::table::{Table, Zones};

/// The journal is to get at least as long as this part of what is always reserved for it.
const JOURNAL_SHARE_LEAST: u64 = 4;

/// Zones of a checkpoint that is being written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnderWay {
    /// Zones that it has begun.
    pub(super) zones: u32,
    /// Blocks of those, and what was left in the one that it goes on with.
    pub(super) blocks: u32,
}

/// The checkpoint under way is written, or given up, when this is dropped.
pub(crate) struct WritingPages<'a>(pub(super) &'a Zones);

impl Drop for WritingPages<'_> {
    fn drop(&mut self) {
        self.0.lock().under_way = None;
    }
}

impl Zones {
    /// Free zones reserved for metadata, with a tree of these pages: those of the
    /// budget, and those that the log may still grow into before the next checkpoint. They were reserved for what a
    /// checkpoint under way has taken.
    pub(crate) fn changes_reserve(&self, tree: Pages) -> u32 {
        let table = self.lock();
        table.changes_reserve(tree, table.journal_blocks, &self.budget)
    }

    /// [`Zones::changes_reserve`] with a journal no longer than zones were secured for: nobody waits for the zones of
    /// a longer one.
    pub(crate) fn secured_changes_reserve(&self, tree: Pages) -> u32 {
        let table = self.lock();
        table.changes_reserve(tree, table.journal_blocks_secured, &self.budget)
    }

    /// Of [`Zones::secured_changes_reserve`], what a checkpoint under way has taken.
    pub(crate) fn taken_by_checkpoint(&self) -> u32 {
        self.lock().under_way.unwrap_or_default().zones
    }

    /// Free zones for metadata left alone by cleaning, with these changed pages.
    pub(crate) fn cleaning_reserve(&self, changed: Pages) -> u32 {
        let table = self.lock();
        if table.last_spare_borrowed {
            return self.budget.spare_zones().saturating_sub(2);
        }
        let growth = table.log_growth(table.journal_blocks_secured, &self.budget);
        // The log takes one zone after the other, and waits for those that are being reset: they are as good as
        // free for it, but for the next one. If they never come its journal ends earlier.
        let coming = self
            .budget
            .layout
            .get(&table.in_reset, DeviceKind::Metadata);
        let growth = growth
            .saturating_sub(coming)
            .max(growth.min(self.budget.copies));
        self.budget.cleaning_reserve(changed, table.begun()) + growth
    }

    /// A whole checkpoint is being written from now on.
    pub(crate) fn begin_pages(&self) -> WritingPages<'_> {
        let mut table = self.lock();
        let blocks = table.metadata_blocks_left;
        table.under_way = Some(UnderWay { zones: 0, blocks });
        WritingPages(self)
    }

    /// Whether so few zones are left, once some are put `aside`, that a journal has to end which is longer than what is always reserved
    /// for it.
    pub(crate) fn are_short_for_journal(&self, changed: Pages, aside: u32) -> bool {
        let table = self.lock();
        let (begun, begun_log) = (table.begun(), table.log_blocks_left);
        let (all, log) = self.budget.journal_reserve(changed, begun, begun_log);
        let candidates = self.budget.layout.log_candidates();
        // Who needs a zone for the log or a checkpoint waits for those on their way.
        let comes = |entry: &ZoneEntry| entry.is_free() || entry.in_reset;
        let free = |zone: u32| table.entries.get(ZoneId(zone)).is_some_and(comes);
        let of_part = |zones| self.budget.layout.get(zones, DeviceKind::Metadata);
        of_part(&table.free_zones) + of_part(&table.in_reset) <= all.saturating_add(aside)
            || candidates.filter(|zone| free(*zone)).count() <= log as usize
    }

    /// Blocks that the journal is to get as long as, as long as free zones are not short.
    pub(crate) fn journal_blocks(&self) -> u64 {
        self.lock().journal_blocks
    }

    /// No more than so many from now on, within the bounds: that is where a journal had to end.
    pub(crate) fn shorten_journal(&self, blocks: u64) {
        self.set_journal_blocks(blocks.min(self.journal_blocks()));
    }

    /// Sets how long the journal is to get, within the bounds. It may be less than is always reserved for it, where that does not pay.
    pub(crate) fn set_journal_blocks(&self, blocks: u64) {
        let (least, most) = (
            (self.budget.journal_blocks_reserved / JOURNAL_SHARE_LEAST).max(JOURNAL_BLOCKS_MIN),
            self.budget.journal_blocks_max,
        );
        let mut table = self.lock();
        table.journal_blocks = blocks.clamp(least, most);
        table.journal_blocks_secured = table.journal_blocks_secured.min(table.journal_blocks);
    }

    /// Zones for all of the journal have been won.
    pub(crate) fn secure_journal_blocks(&self) {
        let mut table = self.lock();
        table.journal_blocks_secured = table.journal_blocks;
    }
}

impl Table {
    /// Zones that the log may take before a checkpoint gives some back, with a journal of so many blocks.
    pub(super) fn log_growth(&self, blocks: u64, budget: &Budget) -> u32 {
        budget.log_growth(self.log_zones, self.log_blocks_left, blocks)
    }

    fn changes_reserve(&self, tree: Pages, journal_blocks: u64, budget: &Budget) -> u32 {
        let reserve = budget.changes_reserve(tree) + self.log_growth(journal_blocks, budget);
        reserve.saturating_sub(self.under_way.unwrap_or_default().zones)
    }

    /// Room in zones that is there for pages.
    fn begun(&self) -> Begun {
        Begun {
            left: self.metadata_blocks_left,
            had: self.under_way.map_or(0, |under_way| under_way.blocks),
        }
    }

    /// The zone of a stream takes no more.
    pub(super) fn forget_begun(&mut self, stream: Stream) {
        if stream == Stream::Metadata {
            let left = std::mem::take(&mut self.metadata_blocks_left);
            if let Some(under_way) = &mut self.under_way {
                // Of what was left some may have been taken before the checkpoint began.
                under_way.blocks = under_way.blocks.saturating_sub(left);
            }
        }
    }

    /// A zone that was taken for this stream is free again.
    pub(super) fn untake(&mut self, stream: Stream, budget: &Budget) {
        if stream == Stream::Metadata
            && let Some(under_way) = &mut self.under_way
        {
            under_way.zones = under_way.zones.saturating_sub(budget.copies);
        }
    }
}
