//! Room for who waits: rounds of emptying zones and of checkpoints that free them.

use persimmon_format::table::Role;

use super::{MOVE_BLOCKS, ROUNDS_MAX, Reclaimer, WON_SHARE_MIN};
use crate::cleaning::CleaningCursor;
use crate::error::{Error, Result};
use crate::meta::Intent;
use crate::space::Journal;
use crate::statistics::add;
use crate::zones::table::ZoneStatus;
use crate::zones::{DeviceKind, VictimPolicy};

/// Rounds that win less than this share of a zone before a caller that removes something goes on without room: it is not
/// refused if no zone is gained, and cleaning is tried again at every change.
const ROUNDS_MAX_SHRINK: usize = 4;

/// What a round of cleaning for a waiting caller has emptied.
#[derive(Default)]
struct Emptied {
    /// Anything at all.
    any: bool,
    /// Zones of metadata: their pages leave with a whole checkpoint.
    pages: bool,
}

/// What the rounds of cleaning for a waiting caller have won.
struct Rounds {
    /// Most zones that were free.
    zones: u32,
    rounds_without_zone: usize,
    /// Most blocks that there was room for.
    blocks: u64,
    /// A round that wins fewer blocks has won none.
    blocks_min: u64,
    rounds_without_blocks: usize,
}

impl Rounds {
    fn note(&mut self, zones: u32, blocks: u64) {
        self.rounds_without_zone = if zones > self.zones {
            0
        } else {
            self.rounds_without_zone + 1
        };
        self.zones = self.zones.max(zones);
        self.rounds_without_blocks = if blocks >= self.blocks + self.blocks_min {
            0
        } else {
            self.rounds_without_blocks + 1
        };
        self.blocks = self.blocks.max(blocks);
    }

    fn is_hopeless(&self, intent: Intent) -> bool {
        match intent {
            Intent::Grow => self.rounds_without_zone > ROUNDS_MAX,
            Intent::Shrink => self.rounds_without_blocks > ROUNDS_MAX_SHRINK,
        }
    }
}

impl Reclaimer {
    /// Cleans in the foreground until new data can have a zone.
    pub(crate) fn make_room(&self) -> Result<()> {
        let is_short = || self.store.zones.free_zones(DeviceKind::Data) <= self.watermark_to_pass();
        if !self.await_resets(is_short) {
            return Ok(());
        }
        let (_lock, _midst) = (self.cleaning_lock.lock(), self.store.in_midst());
        if self.store.zones.budget.large.is_some() {
            return self.win_spare_zone();
        }
        self.clean_above(DeviceKind::Data, || self.watermark_to_pass(), Intent::Grow)
    }

    /// The largest number of free zones that is not enough for new data. Where all free zones are reserved for the log, that is
    /// any number: otherwise a caller that finds no zone would look for one again and again, and no thread would clean.
    fn watermark_to_pass(&self) -> u32 {
        let reserve = self.space.low_watermark(DeviceKind::Data);
        if self
            .store
            .zones
            .may_take_for_data(self.space.view().leaving(None))
        {
            reserve
        } else {
            reserve.max(self.store.zones.free_zones(DeviceKind::Data))
        }
    }

    /// Checkpoints take zones below the low watermark, because they must not fail. What they took is won back
    /// here, before there are more changes for the next one; metadata alone could fill the volume
    /// with old pages otherwise. [`Error::NoSpace`] if that does not succeed.
    pub(crate) fn restore_low_watermark(&self, intent: Intent) -> Result<()> {
        if self.store.zones.budget.large.is_some() {
            return self.keep_a_zone_for_metadata();
        }
        if self.metadata_is_short() && self.await_resets(|| self.metadata_is_short()) {
            let (_lock, _midst) = (self.cleaning_lock.lock(), self.store.in_midst());
            self.win_metadata_zones(intent)?;
        }
        Ok(())
    }

    fn metadata_is_short(&self) -> bool {
        self.store.zones.free_zones(DeviceKind::Metadata)
            < self.space.low_watermark(DeviceKind::Metadata)
    }

    /// Cleans until a checkpoint has the zones it may need. The caller holds the lock.
    fn win_metadata_zones(&self, intent: Intent) -> Result<()> {
        self.clean_above(
            DeviceKind::Metadata,
            || {
                self.space
                    .low_watermark(DeviceKind::Metadata)
                    .saturating_sub(1)
            },
            intent,
        )
    }

    /// Wins zones of the metadata device before file data is moved, on two devices: checkpoints write the pages that
    /// change, and moving file data wins no zone for them.
    pub(super) fn keep_metadata_zones(&self) -> Result<()> {
        if self.store.zones.budget.layout.is_split() && self.metadata_is_short() {
            self.win_metadata_zones(Intent::Grow)
        } else {
            Ok(())
        }
    }

    /// Cleans until more zones of a device are free. The caller holds the lock.
    ///
    /// A caller that wants more room is refused once that takes too long. A caller that removes something goes on as long as
    /// there is more room than before, even far less than a zone: it needs the room, and must not be refused.
    fn clean_above(
        &self,
        device: DeviceKind,
        reserve: impl Fn() -> u32,
        intent: Intent,
    ) -> Result<()> {
        let free_zones = || self.store.zones.free_zones(device);
        let reclaimable_zones = || self.store.zones.reclaimable_zones(device);
        let in_reset = || self.store.zones.zones_in_reset(device);
        let is_short = || free_zones() <= reserve();
        let mut progress = Rounds {
            zones: free_zones(),
            blocks: self.store.zones.free_blocks(device),
            blocks_min: self.store.zones.budget.zone_blocks(device) / WON_SHARE_MIN + 1,
            rounds_without_zone: 0,
            rounds_without_blocks: 0,
        };
        if progress.zones + in_reset() + self.space.free_zone_target(device)
            < self.space.view().reserved(device, Journal::Wanted)
        {
            // Space is low: no zones are reserved for a long journal any more.
            self.store.zones.shorten_journal(0);
        }
        while self.await_resets(is_short) {
            add(&self.store.media.counters.stalls, 1);
            let is_first = progress.rounds_without_zone == 0;
            if !is_first {
                let blocks = self.store.zones.counts().journal_blocks;
                self.store.zones.shorten_journal(blocks - blocks / 4);
            }
            let nothing_changed =
                reclaimable_zones() == 0 && self.store.meta().cache.changed() == 0;
            // Another thread may free these zones at once: then there is no need to wait for so many.
            let before = free_zones();
            let is_served = || free_zones() > before && !is_short();
            let emptied = self.empty_some(device, is_first, is_served);
            let emptied = emptied.map_err(|error| self.as_told_to_writers(error))?;
            if is_served() || reclaimable_zones() == 0 && in_reset() > 0 {
                // Another thread has freed them meanwhile: they are free or being reset.
                continue;
            }
            if nothing_changed && !emptied.any && reclaimable_zones() == 0 {
                return Err(self.store.zones.want_of_zones());
            }
            if !is_first || emptied.pages || reclaimable_zones() == 0 {
                self.checkpoint()?
            } else {
                self.checkpoint_zones()?
            }
            if self.await_resets(is_short) {
                self.store.zones.wait_for_readers();
            }
            progress.note(free_zones(), self.store.zones.free_blocks(device));
            if progress.is_hopeless(intent) {
                return Err(self.store.zones.want_of_zones());
            }
        }
        Ok(())
    }

    /// The error that cleaning gives to a caller that waits for room: not the damage in another file.
    pub(super) fn as_told_to_writers(&self, error: Error) -> Error {
        if !matches!(error, Error::ItemDamaged { .. }) {
            return error;
        }
        tracing::error!(%error, "cleaning for what is written");
        self.store.zones.want_of_zones()
    }

    /// Empties victims until enough zones are reclaimable, or on their way to being free; or the caller `is_served`. In the first round of
    /// a wait by the best score, in later ones by most garbage.
    fn empty_some(
        &self,
        device: DeviceKind,
        is_first: bool,
        is_served: impl Fn() -> bool,
    ) -> Result<Emptied> {
        // A waiting caller goes on soon: one zone may be taken for moved blocks.
        let wanted = if is_first {
            2
        } else {
            (self.store.zones.slack_zones(device) / 32)
                .clamp(2, self.space.free_zone_target(device).max(2))
        };
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
            let Some((victim, why)) = self.cleaner.choose_urgently(device, choice) else {
                break;
            };
            // Zones that others won come first, if there are any.
            if has_chosen && !self.cleaner.is_affordable(&victim) {
                break;
            }
            (has_chosen, emptied.any) = (true, true);
            add(&self.store.media.counters.cleaning_foreground, 1);
            self.store.zones.tell_victim(victim.zone, why.into(), true);
            match self.clean(&victim) {
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

    /// Empties a victim as far as that can be.
    pub(crate) fn clean(&self, victim: &ZoneStatus) -> Result<()> {
        let mut cursor = self.cleaner.begin_cursor(victim);
        while self.advance(&mut cursor, MOVE_BLOCKS)? {}
        Ok(())
    }
}
