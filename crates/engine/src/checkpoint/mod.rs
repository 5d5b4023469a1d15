//! Checkpoints. The cut takes microseconds under the metadata lock; everything cut is then
//! written while work goes on: pages, changed chunks of the two tables, and, when all that and
//! all data up to the cut is durable, the footer. Only then are zones reset (`zones/resets.rs`), those
//! alone that the cut had found with nothing valid in them (I3).

use persimmon_sync::Arc;
use persimmon_sync::atomic::Ordering;
use std::collections::BTreeSet;

use persimmon_device::ZoneId;
use persimmon_format::footer::Footer;
use persimmon_format::table::MatEntry;
use persimmon_format::zone_header::{PROPERTIES, QUOTA};
use persimmon_format::{Lsn, PageId};

mod changes;
mod of_zones;
mod pages;
mod tables;

use crate::error::Result;
use crate::fair_lock::FairLock;
use crate::faults::{Fault, fault, unless};
use crate::invariant::{invariant, invariant_holds};
use crate::log;
use crate::meta::Page;
use crate::placement::Placement;
use crate::space::Space;
use crate::statistics::add;
use crate::store::Store;
use crate::zones::{self, DeviceKind, Stream, ZoneWriter};
use of_zones::Journal;
use tables::ValidCounts;

/// A whole checkpoint costs little where this many times its blocks were written since the one before.
const CHEAP_SHARE: u64 = 128;

/// Writes checkpoints, one at a time.
pub(crate) struct Checkpoints {
    store: Arc<Store>,
    space: Arc<Space>,
    placement: Arc<Placement>,
    checkpoint_lock: FairLock,
}

/// What a cut found.
struct Snapshot {
    pages: Vec<(PageId, Arc<Page>)>,
    freed: Vec<PageId>,
    /// Some of them have changes that are in no record.
    unlogged: bool,
    /// Blocks of journal that it ends.
    journal_blocks: u64,
    log: log::LogCut,
    zones: zones::ZoneCut,
    root: PageId,
    page_limit: u64,
    next_ino: u64,
    lot_end: u64,
    inodes: u64,
    reserved_blocks: u64,
    shared_end: u64,
    versions: u32,
    deltas: u64,
}

/// How writing a checkpoint ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Durable,
    /// Data of a record before the cut failed. The checkpoint takes a new cut once that data is
    /// rewritten elsewhere.
    RewritePending,
}

impl Checkpoints {
    pub(super) fn new(
        store: &Arc<Store>,
        space: &Arc<Space>,
        placement: &Arc<Placement>,
    ) -> Checkpoints {
        Checkpoints {
            store: Arc::clone(store),
            space: Arc::clone(space),
            placement: Arc::clone(placement),
            checkpoint_lock: FairLock::default(),
        }
    }

    /// Writes a checkpoint.
    pub(crate) fn write(&self) -> Result<()> {
        self.write_if(|| true)
    }

    /// Writes a checkpoint if `wanted` still holds when this thread has the lock. Others may take it while zones are
    /// reset.
    pub(crate) fn write_if(&self, wanted: impl Fn() -> bool) -> Result<()> {
        let written = self.write_locked(wanted);
        self.store.zones.start_resets(&self.store.media);
        written
    }

    fn write_locked(&self, wanted: impl Fn() -> bool) -> Result<()> {
        // Free zones after those were freed that it needed: what pages took that found no room comes back each time.
        let mut won = 0;
        loop {
            self.store.check_writable()?;
            self.store.log.wait_for_rewrites()?;
            // A panic in its midst leaves pages that look as if they were written.
            let (_lock, _midst) = (self.checkpoint_lock.lock(), self.store.in_midst());
            if !wanted() {
                return Ok(());
            }
            // Where its pages find no room, those of the zones alone are the way out: they need all changes in the journal.
            if self.store.zones.free_zones(DeviceKind::Metadata)
                > self.space.view().left_by_cleaning(DeviceKind::Metadata)
            {
                self.placement.pack_before_cut();
            }
            if self.store.zones.log_is_to_leave(self.space.changed_pages()) {
                let least = self.store.zones.log_blocks_least();
                self.store
                    .log
                    .fill_zone(&self.store.media, &self.store.zones, least)?;
            }
            self.complete_summaries(|_| true);
            self.store.examine();
            let mut snapshot = self.cut()?;
            let under_way = self.store.zones.begin_pages();
            let result = self.write_checkpoint(&mut snapshot);
            drop(under_way);
            if !matches!(result, Ok(Outcome::Durable)) {
                let mut meta = self.store.meta_mut();
                if snapshot.unlogged {
                    self.store.unlogged.store(true, Ordering::Relaxed);
                }
                meta.journal_inline.undo_cut();
                meta.cache.redirty(
                    snapshot.pages.iter().map(|(id, _)| *id),
                    std::mem::take(&mut snapshot.freed),
                );
            }
            match result {
                Ok(Outcome::Durable) => return Ok(()),
                Ok(Outcome::RewritePending) => {}
                Err(error) if error.passes() && self.free_for_pages(&mut won) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Frees reclaimable zones although the pages of a checkpoint have just found no room. False if that wins nothing, or no more
    /// than were `won` before and did not do. The caller holds the lock.
    fn free_for_pages(&self, won: &mut u32) -> bool {
        let free = || self.store.zones.free_zones(DeviceKind::Metadata);
        let before = free().max(*won);
        if self.store.zones.reclaimable_zones(DeviceKind::Metadata) == 0 {
            return false;
        }
        match self.write_zone_checkpoint(Journal::OfAnyLength) {
            // This is rare enough to hold the lock while zones are reset.
            Ok(_) => {
                self.store.zones.complete_resets(&self.store.media);
                *won = free();
                *won > before
            }
            Err(error) => {
                tracing::warn!(%error, "zones could not be freed for a checkpoint");
                false
            }
        }
    }

    /// Writes the summaries of open data zones that are `wanted`, and nobody writes to now, so that none is lost with a crash.
    fn complete_summaries(&self, wanted: impl Fn(&ZoneWriter) -> bool) {
        for mut writer in self.store.zones.take_unsummarised(wanted) {
            writer.complete_summary(&self.store.media, &self.store.key);
            self.store.zones.check_in(&self.store.media, writer);
        }
    }

    fn cut(&self) -> Result<Snapshot> {
        let mut meta = self.store.meta_mut();
        // A change that was found damaged half way must not become durable.
        self.store.check_writable()?;
        meta.journal_inline.cut();
        Ok(Snapshot {
            unlogged: self.store.unlogged.swap(false, Ordering::Relaxed),
            journal_blocks: self.store.log.blocks_to_replay(),
            pages: meta.cache.take_dirty(),
            freed: meta.cache.take_freed(),
            log: self.store.log.cut(),
            zones: self.store.zones.cut(),
            root: meta.root,
            page_limit: meta.cache.id_limit(),
            next_ino: meta.numbers.next(),
            lot_end: meta.numbers.recorded(),
            inodes: meta.inodes,
            reserved_blocks: meta.reserved_blocks,
            shared_end: meta.shared_end,
            versions: meta.versions.items(),
            deltas: meta.deltas,
        })
    }

    fn write_checkpoint(&self, snapshot: &mut Snapshot) -> Result<Outcome> {
        // Records up to the cut need not be durable themselves, but their data must be complete.
        self.store
            .log
            .write(&self.store.media, &self.store.zones, snapshot.log.lsn)?;
        if self.store.log.has_failures(&snapshot.log) {
            return Ok(Outcome::RewritePending);
        }
        let number = self.next_checkpoint();
        invariant!(
            self.store.media.alarm,
            snapshot.root.0 < snapshot.page_limit,
            "the root is page {}, of {}",
            snapshot.root,
            snapshot.page_limit
        );
        let cold = {
            let mut state = self.store.on_device();
            state.evacuating.clear();
            std::mem::take(&mut state.cold)
        };
        let mut written = BTreeSet::new();

        let (cold_pages, pages): (Vec<_>, Vec<_>) =
            snapshot.pages.iter().partition(|(id, _)| cold.contains(id));
        let mut places = self.write_pages(&pages, number, Stream::Metadata, &mut written)?;
        places.extend(self.write_pages(&cold_pages, number, Stream::ColdMetadata, &mut written)?);

        let mut counts = ValidCounts {
            live: &self.store.zones,
            cut: &mut snapshot.zones.entries,
        };
        let mut ids: Vec<PageId> = places.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        invariant!(
            self.store.media.alarm,
            ids.iter()
                .zip(ids.iter().skip(1))
                .all(|(one, next)| one < next),
            "a page has two places in one checkpoint"
        );
        let before = self.store.on_device().footer.clone();
        // From here on the MAT in memory is not what the last footer leads to. Had the pages found no room,
        // it still would be: a checkpoint of the zones alone can free those that they filled.
        self.store.on_device().footer = None;
        {
            let mut meta = self.store.meta_mut();
            let freed = snapshot.freed.drain(..);
            for id in freed.filter(|_| !fault(Fault::FreedPageKept)) {
                let old = meta.mat.set(id, MatEntry::NONE);
                counts.moved(old, MatEntry::NONE);
            }
            invariant!(
                self.store.media.alarm,
                places.len() == snapshot.pages.len(),
                "{} pages of {} have a place",
                places.len(),
                snapshot.pages.len()
            );
            for (id, entry) in &places {
                let old = meta.mat.set(*id, *entry);
                counts.moved(old, *entry);
            }
            meta.cache.finish_writing(places.iter().map(|(id, _)| *id));
        }
        snapshot.pages.clear();

        self.write_mat(number, &mut counts, &mut written)?;
        self.write_zit(number, &mut counts, &mut written)?;
        self.reset_early(Fault::ResetBeforeCheckpoint, &mut snapshot.zones.resets);
        unless(Fault::FooterBeforePages, || self.store.media.flush())?;
        let footer = self.footer(number, snapshot, &written);
        invariant!(
            self.store.media.alarm,
            footer.lot_end >= footer.next_ino,
            "inode numbers up to {} are given out, of a lot that ends at {}",
            footer.next_ino,
            footer.lot_end
        );
        if let Some(before) = before {
            invariant!(
                self.store.media.alarm,
                footer.cut >= before.cut,
                "the cut is at record {}, and was at {}",
                footer.cut,
                before.cut
            );
            self.check_zone_clocks(&before, footer.write_clock, footer.next_zone_sequence)?;
            invariant!(
                self.store.media.alarm,
                footer.lot_end >= before.lot_end && footer.checkpoint > before.checkpoint,
                "the lot of inode numbers ends at {}, and ended at {}",
                footer.lot_end,
                before.lot_end
            );
        }
        let unneeded = self.store.log.write_footer(
            &self.store.media,
            &self.store.zones,
            &footer.encode(),
            footer.cut,
            Some(&snapshot.log),
        )?;
        self.store.meta_mut().journal_inline.forget_cut();
        let blocks = places
            .iter()
            .map(|(_, entry)| u64::from(entry.blocks))
            .sum();
        self.weigh_journal(snapshot.journal_blocks, blocks, footer.write_clock);
        self.store.on_device().footer = Some(footer);
        add(&self.store.media.counters.checkpoints, 1);
        self.store
            .zones
            .queue_resets(&self.store.media, unneeded.iter().map(|zone| zone.zone));
        self.reset_unused(&snapshot.zones.resets);
        self.store
            .evict_pages(&mut self.store.meta_mut(), self.store.cached_pages_max());
        Ok(Outcome::Durable)
    }

    /// A checkpoint takes neither the write clock nor the zones' sequence back.
    fn check_zone_clocks(
        &self,
        before: &Footer,
        write_clock: u64,
        next_zone_sequence: u64,
    ) -> Result<()> {
        invariant!(
            self.store.media.alarm,
            write_clock >= before.write_clock && next_zone_sequence >= before.next_zone_sequence,
            "the write clock went from {} to {write_clock}, the next zone's sequence from {} to {next_zone_sequence}",
            before.write_clock,
            before.next_zone_sequence
        );
        Ok(())
    }

    /// Decides how long the next journal is to get, after one of so many blocks was ended by a checkpoint that wrote
    /// so many blocks of pages. Zones
    /// that the log does not take are worth more to cleaning, but each checkpoint writes pages anew: so the
    /// journal grows until that costs little of all that is written. Where each sync takes a block of the journal it
    /// gets long, where its blocks are full it stays short.
    fn weigh_journal(&self, journal_blocks: u64, page_blocks: u64, write_clock: u64) {
        let before = std::mem::replace(&mut self.store.on_device().write_clock, write_clock);
        invariant_holds!(
            self.store.media.alarm,
            write_clock >= before,
            "the write clock went from {before} back to {write_clock}"
        );
        let (wanted, written) = (
            self.store.zones.counts().journal_blocks,
            write_clock.saturating_sub(before),
        );
        // A journal this much longer would have gone with as much written as makes it cheap.
        let cheap = journal_blocks.saturating_mul(page_blocks * CHEAP_SHARE) / written.max(1);
        // One that was asked for very early tells nothing, one that was asked for early only whether a shorter one would do.
        let tells = match journal_blocks {
            blocks if blocks < wanted / 8 => false,
            blocks if blocks < wanted / 2 => cheap < blocks,
            _ => true,
        };
        if tells {
            let blocks = cheap.clamp(wanted / 4, wanted.saturating_mul(2));
            self.store.zones.set_journal_blocks(blocks);
        }
    }

    /// One that fails keeps its number: what it wrote is not taken for the next one's.
    fn next_checkpoint(&self) -> u64 {
        let mut state = self.store.on_device();
        let newest = state.footer.as_ref().map_or(0, |footer| footer.checkpoint);
        invariant_holds!(
            self.store.media.alarm,
            state.number >= newest,
            "checkpoint {newest} is written, and the last number was {}",
            state.number
        );
        state.number += 1;
        state.number
    }

    /// For two faults: resets what is to be reset once a footer is durable.
    fn reset_early(&self, mistake: Fault, zones: &mut Vec<ZoneId>) {
        if fault(mistake) {
            self.reset_unused(&std::mem::take(zones));
            self.store.zones.complete_resets(&self.store.media);
        }
    }

    /// Has the zones reset that a cut found with nothing valid in them, as far as there is still nothing. The
    /// caller holds the lock: so the next cut finds them on their way.
    fn reset_unused(&self, zones: &[ZoneId]) {
        let unused = zones
            .iter()
            .filter(|zone| self.store.zones.may_reset(**zone));
        self.store
            .zones
            .queue_resets(&self.store.media, unused.copied());
    }

    fn footer(&self, number: u64, snapshot: &Snapshot, written: &BTreeSet<ZoneId>) -> Footer {
        let geometry = self.store.media.geometry();
        let (properties, has_quota) = {
            let state = self.store.on_device();
            (state.properties.clone(), state.has_quota)
        };
        let mut features = self.store.identity.features();
        if properties.is_some() {
            features.incompatible |= PROPERTIES;
        }
        if has_quota {
            features.incompatible |= QUOTA;
        }
        Footer {
            features,
            properties,
            checkpoint: number,
            cut: Lsn(snapshot.log.lsn.0 + u64::from(fault(Fault::CutTooHigh))),
            counted: Lsn(snapshot.log.lsn.0 + u64::from(fault(Fault::CutTooHigh))),
            replay: snapshot.log.replay,
            root: snapshot.root,
            page_limit: snapshot.page_limit,
            next_ino: snapshot.next_ino,
            lot_end: snapshot.lot_end,
            inodes: snapshot.inodes,
            reserved_blocks: snapshot.reserved_blocks,
            write_clock: snapshot.zones.write_clock,
            next_zone_sequence: snapshot.zones.next_sequence,
            reserve_basis_points: self.store.reserve_basis_points,
            max_open: geometry.max_open.unwrap_or(0),
            max_active: geometry.max_active.unwrap_or(0),
            shared_end: snapshot.shared_end,
            versions: snapshot.versions,
            deltas: snapshot.deltas,
            mat: self.store.meta().mat.chunks().to_vec(),
            zit: self.store.on_device().zit_chunks.clone(),
            overrides: self.overrides(&snapshot.zones, written),
            counts: Vec::new(),
        }
    }
}
