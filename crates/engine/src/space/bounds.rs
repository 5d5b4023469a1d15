//! Bounds: how long the journal and how many the dirty pages get before there is a checkpoint.

use persimmon_sync::atomic::Ordering;

use super::Space;

impl Space {
    /// Pages changed since what is durable, and those that a recovery would change besides.
    pub(crate) fn pages_to_bound(&self) -> usize {
        let meta = self.store.meta();
        meta.cache.changed() + meta.journal_inline.replayed_pages()
    }

    /// Whether as many pages are changed as may be. Where zones are short those are as many as there is room for on a full
    /// volume.
    pub(crate) fn pages_are_many(&self) -> bool {
        let (pages, budget) = (self.pages_to_bound(), &self.store.zones.budget);
        pages >= budget.dirty_pages_max
            || pages >= budget.dirty_pages_reserved && self.are_short_for_pages()
    }

    /// Whether zones are short for a checkpoint of more pages than there is always room for. Before the next look at it
    /// data may take as many as fit what is staged.
    pub(crate) fn are_short_for_pages(&self) -> bool {
        let aside = self.zones_for_staged();
        let changed = self.changed_pages();
        self.store.zones.are_short_for_journal(changed, aside)
    }

    /// Whether the journal is as long as it may get. Where zones are short that is as long as there is room for on
    /// a full volume.
    pub(crate) fn journal_is_full(&self) -> bool {
        let blocks = self.store.log.blocks_to_replay();
        blocks >= self.store.zones.budget.journal_blocks_max
            || blocks >= self.journal_blocks_when_short() && self.are_short_for_journal()
    }

    /// Blocks of journal for which there is room however short zones are.
    pub(crate) fn journal_blocks_when_short(&self) -> u64 {
        let reserved = self.store.zones.budget.journal_blocks_reserved;
        reserved.min(self.store.zones.journal_blocks())
    }

    pub(crate) fn are_short_for_journal(&self) -> bool {
        self.store
            .zones
            .are_short_for_journal(self.changed_pages(), 0)
    }

    /// Whether the journal has got as long as it is to get.
    pub(crate) fn journal_is_long(&self) -> bool {
        self.store.log.blocks_to_replay() >= self.store.zones.journal_blocks()
    }

    /// Whether a checkpoint should be written ahead.
    pub(crate) fn checkpoint_is_due(&self) -> bool {
        let budget = &self.store.zones.budget;
        let percent = self
            .store
            .tuned
            .checkpoint_due_percent
            .load(Ordering::Relaxed);
        let pages = self.pages_to_bound() * 100;
        pages >= budget.dirty_pages_max * percent as usize
            || pages >= budget.dirty_pages_reserved * percent as usize && self.are_short_for_pages()
            || self.store.log.blocks_to_replay() * 100
                >= budget.journal_blocks_max * u64::from(percent)
            || self.journal_is_long()
            || self.store.log.blocks_to_replay() * 100
                >= self.journal_blocks_when_short() * u64::from(percent)
                && self.are_short_for_journal()
    }
}
