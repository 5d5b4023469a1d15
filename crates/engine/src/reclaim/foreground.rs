//! Foreground cleaning: a caller that waits for room carries out what the policy says, round by round.

use persimmon_format::Ino;
use persimmon_format::extent::Extent;
use persimmon_format::table::Role;

use super::{MOVE_BLOCKS, Reclaimer};
use crate::cleaning::CleaningCursor;
use crate::error::{Error, Result};
use crate::meta::Intent;
use crate::space::View;
use crate::space::policy::{Emptied, Need, Next, Seen, Wait, zones_wanted};
use crate::statistics::add;
use crate::zones::table::ZoneStatus;
use crate::zones::{Candidates, DeviceKind, VictimPolicy};

/// How often a zone is emptied for the log, or freed, before somebody goes on without.
const LOG_CANDIDATE_TRIES: u32 = 4;

impl Reclaimer {
    /// Wins a zone for new data.
    pub(super) fn make_room(&self) -> Result<()> {
        if !self.await_resets(|| self.is_short(Need::Data)) {
            return Ok(());
        }
        let (_lock, _midst) = (self.cleaning_lock.lock(), self.store.in_midst());
        if self.store.zones.budget.large.is_some() {
            self.win_spare_zone()
        } else {
            self.win_zones(Need::Data)
        }
    }

    /// Checkpoints take zones below the low watermark, because they must not fail. What they took is won back
    /// here, before there are more changes for the next one; metadata alone could fill the volume
    /// with old pages otherwise. [`Error::NoSpace`] if that does not succeed.
    pub(super) fn restore_low_watermark(&self, intent: Intent) -> Result<()> {
        self.win_log_candidate()?;
        if self.store.zones.budget.large.is_some() {
            return self.keep_a_zone_for_metadata();
        }
        let is_short = || self.is_short(Need::Change(intent));
        if is_short() && self.await_resets(is_short) {
            let (_lock, _midst) = (self.cleaning_lock.lock(), self.store.in_midst());
            self.win_zones(Need::Change(intent))?;
        }
        Ok(())
    }

    /// Where zones have failed and none is left that the log could take next, wins one before there are more changes.
    fn win_log_candidate(&self) -> Result<()> {
        let zones = &self.store.zones;
        let is_left = || zones.failed_zones() == 0 || zones.log_candidates_coming() > 0;
        for _ in 0..LOG_CANDIDATE_TRIES {
            if is_left() {
                break;
            }
            let done = match zones.keep_log_candidates() {
                Candidates::Left => break,
                Candidates::ToEmpty if !self.may_move() => break,
                Candidates::Reclaimable => self.checkpoint_zones(),
                Candidates::ToEmpty => self.empty_failing(),
            };
            match done.map_err(|error| self.as_told_to_writers(error)) {
                // The log has room as yet. A caller that has none gets the error later.
                Err(error) if !error.passes() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Wins zones of the metadata device before file data is moved, on two devices: checkpoints write the pages that
    /// change, and moving file data wins no zone for them.
    fn keep_metadata_zones(&self) -> Result<()> {
        let need = Need::Change(Intent::Grow);
        if self.store.zones.budget.layout.is_split() && self.is_short(need) {
            self.win_zones(need)
        } else {
            Ok(())
        }
    }

    fn is_short(&self, need: Need) -> bool {
        let view = self.space.view_for(need.device());
        view.is_short_for(need, self.may_take(need, &view))
    }

    /// Whether data, if it is that, could have one of the zones that are free.
    fn may_take(&self, need: Need, view: &View<'_>) -> bool {
        need != Need::Data || self.store.zones.may_take_for_data(view.leaving(None))
    }

    fn seen(&self, need: Need) -> Seen {
        let (view, device) = (self.space.view_now(), need.device());
        let is_short = view.is_short_for(need, self.may_take(need, &view));
        Seen {
            free: view.free(device),
            in_reset: view.in_reset(device),
            resets: view.all_in_reset(),
            reclaimable: view.reclaimable(device),
            blocks: self.store.zones.free_blocks(device),
            is_short,
            has_changes: self.store.meta().cache.changed() > 0,
        }
    }

    /// Cleans until there are zones enough. The caller holds the lock.
    fn win_zones(&self, need: Need) -> Result<()> {
        let (zones, device) = (&self.store.zones, need.device());
        let target = self.space.free_zone_target(device);
        if self.space.view().is_low(device, target) {
            // Space is low: no zones are reserved for a long journal any more.
            zones.shorten_journal(0);
        }
        let mut wait = Wait::new(need, zones.budget.zone_blocks(device), &self.seen(need));
        loop {
            // Before the look: one that ends meanwhile is not waited for.
            let ended = zones.resets_ended();
            match wait.next(&self.seen(need)) {
                Next::GoOn => return Ok(()),
                Next::AwaitReset => {
                    zones.complete_a_reset(&self.store.media, ended);
                }
                Next::Empty { is_first } => {
                    add(&self.store.media.counters.stalls, 1);
                    if !is_first {
                        let blocks = zones.counts().journal_blocks;
                        zones.shorten_journal(blocks - blocks / 4);
                    }
                    let is_served = || wait.is_served(&self.seen(need));
                    let emptied = self.empty_some(device, is_first, is_served);
                    wait.emptied(emptied.map_err(|error| self.as_told_to_writers(error))?);
                }
                Next::FreeZones => self.checkpoint_zones()?,
                Next::Checkpoint => self.checkpoint()?,
                Next::AwaitReaders => zones.wait_for_readers(),
                Next::Refuse => return Err(zones.want_of_zones()),
            }
        }
    }

    /// Empties victims until enough zones are reclaimable, or on their way to being free; or the caller `is_served`.
    fn empty_some(
        &self,
        device: DeviceKind,
        is_first: bool,
        is_served: impl Fn() -> bool,
    ) -> Result<Emptied> {
        let target = self.space.free_zone_target(device);
        let wanted = zones_wanted(is_first, self.store.zones.slack_zones(device), target);
        let is_enough = || {
            self.store.zones.reclaimable_zones(device) + self.store.zones.zones_in_reset(device)
                >= wanted
        };
        let mut choice = if is_first {
            VictimPolicy::Score
        } else {
            VictimPolicy::Garbage
        };
        let mut emptied = Emptied::default();
        let mut has_chosen = false;
        while !is_enough() && !is_served() {
            if self.finish_cursor(device)? {
                emptied.any = true;
                continue;
            }
            let chosen = self.cleaner.choose_urgently(device, choice, emptied.pages);
            let Some((victim, why)) = chosen else {
                break;
            };
            // Zones that others won come first, if there are any.
            if has_chosen && !self.cleaner.is_affordable(&victim) {
                break;
            }
            has_chosen = true;
            let live = self.store.zones.valid(victim.zone);
            add(&self.store.media.counters.cleaning_foreground, 1);
            self.store.zones.tell_victim(victim.zone, why.into(), true);
            let cleaned = self.clean(&victim);
            let is_left = cleaned.is_ok() && self.store.zones.valid(victim.zone) >= live;
            emptied.any |= victim.entry.role == Role::Metadata || !is_left;
            match cleaned {
                Ok(()) => {}
                Err(error) if error.is_want_of_zones() && victim.entry.role == Role::Metadata => {
                    break;
                }
                Err(error) if error.is_want_of_zones() => {
                    choice = VictimPolicy::Metadata;
                    continue;
                }
                Err(error) => return Err(error),
            }
            if victim.entry.role == Role::Metadata {
                emptied.pages = true;
                self.store.on_device().evacuating.insert(victim.zone);
                // Where one victim wins no zone, several share the cost of the checkpoint's tables.
                let kept = self.store.zones.budget.dirty_pages_reserved;
                if is_first || self.store.meta().cache.changed() >= kept {
                    break;
                }
            }
        }
        Ok(emptied)
    }

    /// The error that cleaning gives to a caller that waits for room: not the damage in another file.
    pub(super) fn as_told_to_writers(&self, error: Error) -> Error {
        if !matches!(error, Error::ItemDamaged { .. }) {
            return error;
        }
        tracing::error!(%error, "cleaning for what is written");
        self.store.zones.want_of_zones()
    }

    /// Empties the victim of file data that is under way on a device, as far as possible. False if there is
    /// none. The caller holds the lock.
    fn finish_cursor(&self, device: DeviceKind) -> Result<bool> {
        let Some(mut cursor) = self.cleaner.take_cursor(device) else {
            return Ok(false);
        };
        // A victim with metadata is chosen again: more decides about it, and nothing is lost.
        if cursor.victim().entry.role == Role::Metadata {
            return Ok(false);
        }
        loop {
            match self.advance(&mut cursor, MOVE_BLOCKS) {
                Ok(true) => {}
                Ok(false) => return Ok(true),
                // It is also checked when a victim is chosen.
                Err(error) if error.is_want_of_zones() => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// A step of cleaning, for which there is room: what it may need is won before it begins. False when there is nothing more to do.
    pub(super) fn advance(&self, cursor: &mut CleaningCursor, blocks_max: u64) -> Result<bool> {
        if cursor.is_to_move() {
            self.keep_metadata_zones()?;
            self.keep_bounds()?;
        } else if cursor.is_to_mark() {
            self.keep_dirty_bound()?;
        }
        self.cleaner.advance(cursor, blocks_max)
    }

    /// Writes extents of a zone anew elsewhere, each with its file and block. No checkpoint is written before all of them are: it would
    /// make them durable where they are.
    pub(crate) fn rewrite(
        &self,
        zone: &ZoneStatus,
        extents: impl Iterator<Item = (Ino, u64, Extent)>,
    ) -> Result<()> {
        let mut cursor = self.cleaner.cursor_of(zone, extents);
        while self.cleaner.advance(&mut cursor, MOVE_BLOCKS)? {
            self.write_buffered()?;
        }
        Ok(())
    }

    /// Empties a victim as far as that can be.
    pub(crate) fn clean(&self, victim: &ZoneStatus) -> Result<()> {
        let mut cursor = self.cleaner.begin_cursor(victim);
        while self.advance(&mut cursor, MOVE_BLOCKS)? {}
        Ok(())
    }
}
