//! Checkpoints of the zones alone: they free zones, and leave the pages that changed to the journal.

use persimmon_device::per_zone::PerZone;
use persimmon_sync::atomic::Ordering;
use std::collections::BTreeSet;

use persimmon_format::footer::Footer;
use persimmon_format::table::ZitEntry;
use persimmon_format::{Addr, Lsn};

use super::Checkpoints;
use super::changes::Changes;
use super::tables::ValidCounts;
use crate::error::Result;
use crate::faults::{Fault, fault};
use crate::invariant::invariant;
use crate::statistics::add;

/// Which journals a checkpoint of the zones alone may let stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Journal {
    /// Those that may still go on.
    WithinBounds,
    /// All: a whole checkpoint, which would end it, has found no room.
    OfAnyLength,
}

impl Checkpoints {
    /// Frees the zones in which nothing is valid: by a checkpoint of the zones alone, if that can be.
    ///
    /// It says of the tree what the last whole checkpoint said, and of the zones what there is now;
    /// between both lies the journal, whose records are durable and which has every change
    /// of the tree. So its cut is as good as any, and costs some chunks of the ZIT and a footer.
    pub(crate) fn write_zones(&self) -> Result<()> {
        self.store.check_writable()?;
        self.store.log.wait_for_rewrites()?;
        {
            let (lock, _midst) = (self.checkpoint_lock.lock(), self.store.in_midst());
            let written = self.write_zone_checkpoint(Journal::WithinBounds);
            drop(lock);
            self.store.zones.start_resets(&self.store.media);
            if written? {
                return Ok(());
            }
        }
        self.write()
    }

    /// False if it has to be a whole one: the journal since the last one does not have it all, not
    /// all of it can be replayed, or it is as long as it may get.
    pub(super) fn write_zone_checkpoint(&self, journal: Journal) -> Result<bool> {
        // The zones that go are named by the tree on the device. Were the journal lost that knows better,
        // summaries would still tell where cleaning moved most of what was in them.
        self.complete_summaries(|writer| writer.has_moved);
        self.store.examine();
        let (before, properties) = {
            let on_device = self.store.on_device();
            (on_device.footer.clone(), on_device.properties.clone())
        };
        // What the volume is has changed: its table of zones may be longer than a footer with what it was can tell.
        let Some(before) = before.filter(|before| before.properties == properties) else {
            return Ok(false);
        };
        let (log, mut zones) = {
            let _meta = self.store.meta_mut();
            self.store.check_writable()?;
            if self.store.unlogged.load(Ordering::Relaxed) {
                return Ok(false);
            }
            (self.store.log.cut(), self.store.zones.cut())
        };
        let is_too_long = journal == Journal::WithinBounds && self.space.journal_is_full();
        if is_too_long || !log.is_sound || log.last_failure > before.cut {
            return Ok(false);
        }
        self.store
            .log
            .write(&self.store.media, &self.store.zones, log.lsn)?;
        self.store.examine();
        if self.store.log.has_failures(&log) || self.store.zones.log_is_failing() {
            return Ok(false);
        }
        let number = self.next_checkpoint();
        let changes = match self.changes(&zones.entries, log.lsn > before.cut) {
            Some(changes) => changes,
            None => {
                let mut written = BTreeSet::new();
                let mut counts = ValidCounts {
                    live: &self.store.zones,
                    cut: &mut zones.entries,
                };
                self.write_zit(number, &mut counts, &mut written)?;
                Changes {
                    overrides: self.overrides(&zones, &written),
                    counts: Vec::new(),
                }
            }
        };
        self.reset_early(Fault::ResetBeforeZones, &mut zones.resets);
        self.store.media.flush()?;
        invariant!(
            self.store.media.alarm,
            number > before.checkpoint && log.lsn >= before.cut,
            "checkpoint {number} counts records up to {}, after checkpoint {} with those up to {}",
            log.lsn,
            before.checkpoint,
            before.cut
        );
        self.check_zone_clocks(&before, zones.write_clock, zones.next_sequence)?;
        let footer = Footer {
            checkpoint: number,
            counted: Lsn(log.lsn.0 + u64::from(fault(Fault::CountedTooHigh))),
            write_clock: zones.write_clock,
            next_zone_sequence: zones.next_sequence,
            zit: self.store.on_device().zit_chunks.clone(),
            overrides: changes.overrides,
            counts: changes.counts,
            ..before
        };
        // The part of the log that is needed begins where it did.
        let unneeded = self.store.log.write_footer(
            &self.store.media,
            &self.store.zones,
            &footer.encode(),
            footer.counted,
            None,
        )?;
        self.store.on_device().footer = Some(footer);
        add(&self.store.media.counters.zone_checkpoints, 1);
        self.store
            .zones
            .queue_resets(&self.store.media, unneeded.iter().map(|zone| zone.zone));
        self.store.examine();
        if self.store.zones.log_is_failing() {
            // Without the journal the footer leads to a tree that names what lies in these zones.
            return Ok(false);
        }
        self.reset_unused(&zones.resets);
        Ok(true)
    }

    /// What the next footer tells of zones in place of chunks, if it is one that has a place for it. None where chunks are to be
    /// written.
    fn changes(&self, now: &PerZone<ZitEntry>, past_cut: bool) -> Option<Changes> {
        let state = self.store.on_device();
        let are_all_written = state.zit_chunks.iter().all(|addr| *addr != Addr::ZERO);
        if !past_cut || !are_all_written {
            return None;
        }
        Changes::between(
            &state.written_zit,
            now,
            self.store.zones.budget.metadata_zone_blocks,
        )
    }
}
