//! Bounds: how long the journal and how many the dirty pages get before there is a checkpoint.

use persimmon_sync::atomic::Ordering;

use super::Space;
use super::View;
use crate::zones::DeviceKind;

impl Space {
    /// Pages changed since what is durable, and those that a recovery would change besides.
    fn pages_to_bound(&self) -> usize {
        let meta = self.store.meta();
        meta.cache.changed() + meta.journal_inline.replayed_pages()
    }

    /// Whether as many pages are changed as may be. Where zones are short those are as many as there is room for on a full
    /// volume.
    pub(crate) fn pages_are_many(&self) -> bool {
        let (pages, budget) = (self.pages_to_bound(), &self.store.zones.budget);
        pages >= budget.dirty_pages_max
            || pages >= budget.dirty_pages_reserved && self.are_short_for_pages(0)
    }

    /// Whether zones are short for a checkpoint of more pages than there is always room for. Before the next look at it
    /// data may take as many as fit what is staged.
    fn are_short_for_pages(&self, ahead: u32) -> bool {
        self.are_short_for(self.zones_for_staged() + ahead)
    }

    /// Whether so few zones are left, once some are put `aside`, that a journal has to end which is longer than what is always reserved
    /// for it.
    fn are_short_for(&self, aside: u32) -> bool {
        let view = self.view();
        let wanted = view.wanted_by_journal();
        let device = DeviceKind::Metadata;
        // Who needs a zone for the log or a checkpoint waits for those on their way.
        view.coming(device) <= wanted.zones.saturating_add(aside)
            || self.store.zones.log_candidates_coming() <= wanted.log_candidates
    }

    /// Whether the journal is as long as it may get. Where zones are short that is as long as there is room for on
    /// a full volume.
    pub(crate) fn journal_is_full(&self) -> bool {
        let blocks = self.store.log.blocks_to_replay();
        blocks >= self.store.zones.budget.journal_blocks_max
            || blocks >= self.journal_blocks_when_short() && self.are_short_for_journal(0)
    }

    /// Blocks of journal for which there is room however short zones are.
    fn journal_blocks_when_short(&self) -> u64 {
        let reserved = self.store.zones.budget.journal_blocks_reserved;
        reserved.min(self.store.zones.counts().journal_blocks)
    }

    fn are_short_for_journal(&self, ahead: u32) -> bool {
        // With large zones there is none to spare for what data takes before the next look.
        let aside = match self.store.zones.budget.large {
            Some(_) => self.zones_for_staged(),
            None => 0,
        };
        self.are_short_for(aside + ahead)
    }

    /// Zones by which the background is ahead of who would have to wait for its checkpoint. Where zones are large, what is more than is
    /// always reserved has to be written before the last of them are taken; otherwise the reserves grow with what there is.
    fn zones_ahead(&self) -> u32 {
        u32::from(self.store.zones.budget.large.is_some())
    }

    /// Whether the journal has got as long as it is to get.
    fn journal_is_long(&self) -> bool {
        self.store.log.blocks_to_replay() >= self.store.zones.counts().journal_blocks
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
            || pages >= budget.dirty_pages_reserved * percent as usize
                && self.are_short_for_pages(self.zones_ahead())
            || self.store.log.blocks_to_replay() * 100
                >= budget.journal_blocks_max * u64::from(percent)
            || self.journal_is_long()
            || self.store.log.blocks_to_replay() * 100
                >= self.journal_blocks_when_short() * u64::from(percent)
                && self.are_short_for_journal(self.zones_ahead())
    }
}

/// Free zones for metadata below which a journal has to end that has what is always reserved for it.
struct WantedByJournal {
    zones: u32,
    /// Those of them that must be zones that the log can take.
    log_candidates: u32,
}

impl View<'_> {
    /// For a zone of the log, for what is still added to it, and for a checkpoint of the pages changed so far.
    fn wanted_by_journal(&self) -> WantedByJournal {
        let (budget, counts) = (self.budget, &self.zones);
        if let Some(large) = &budget.large {
            // In low-space mode neither journal nor checkpoint is larger than what is always reserved: there is room for what was more
            // before it begins.
            return WantedByJournal {
                zones: large.spare_zones + 1 + self.checkpoint_zones(self.changed, true),
                log_candidates: 0,
            };
        }
        let more = budget.journal_overshoot();
        let more = self.zones_for(more.saturating_sub(counts.log_blocks_left.into()));
        let pages = self.checkpoint_zones(self.changed, true);
        WantedByJournal {
            zones: self.left_by_pages() + more + pages,
            log_candidates: budget.log_reserve + more,
        }
    }
}
