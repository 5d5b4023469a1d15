//! Cleaning: valid blocks of a victim move elsewhere, so that the next checkpoint can reset it.
//!
//! Data zones: summaries name the owners of the blocks, and the tree tells which blocks are still live. Moved blocks go
//! to zones of their own, sorted by file and offset. Moves are journaled like users' writes, so that a
//! checkpoint that frees zones need not write the changed pages. Until then the old copy
//! stays. A victim is done when its valid count is zero. Blocks that summaries miss are found in the tree.
//! Metadata zones: the pages in the victim are marked dirty, and the next checkpoint writes them
//! elsewhere.

mod cursor;
mod demand;
mod gain;
mod low_space;
mod moving;
mod throttle;

use persimmon_sync::MutexGuard;
use std::collections::HashMap;

use persimmon_device::ZoneId;
use persimmon_format::table::Role;

use crate::Volume;
use crate::error::{Error, Result};
use crate::meta::Intent;
use crate::statistics::add;
use crate::zones::table::ZoneStatus;
use crate::zones::trace::VictimReason;
use crate::zones::{DeviceKind, VictimPolicy};

pub(crate) use cursor::CleaningCursor;
pub use demand::{CleanState, CleanStep};
pub(crate) use throttle::CleaningDebt;

/// Blocks moved at once.
const MOVE_BLOCKS: u64 = 1024;
/// Blocks moved in one step ahead of need: nobody waits for more of them than these.
const STEP_BLOCKS: u64 = 64;
/// The least free-zone target in blocks, however few they are as a share: what is written at once is no less on small
/// volumes, and where free zones run out some are cleaned that would have become empty by themselves.
const FREE_TARGET_BLOCKS: u64 = 3000;
/// The free-zone target is at most this share of the slack zones: what is kept free
/// is not there for garbage.
const FREE_TARGET_SHARE_MAX: u32 = 8;
/// Rounds without a zone gained before the volume counts as full.
const ROUNDS_MAX: usize = 64;
/// Rounds that win less than this share of a zone before a caller that removes something goes on without room: it is not
/// refused if no zone is gained, and cleaning is tried again at every change.
const ROUNDS_MAX_SHRINK: usize = 4;
const WON_SHARE_MIN: u64 = 64;

/// The zones of a device by what they are good for.
struct Stock {
    free: u32,
    /// Zones that are being reset.
    in_reset: u32,
    /// Zones that the next checkpoint frees.
    reclaimable: u32,
    /// Zones that the next whole checkpoint frees.
    evacuating: u32,
    /// New data leaves so many zones free.
    reserve: u32,
    /// The free-zone target: so many more are to be free or reclaimable.
    target: u32,
    /// So many more may be on their way from reclaimable to free.
    lag: u32,
}

impl Stock {
    /// Whether cleaning has to empty a zone.
    fn is_short(&self) -> bool {
        self.free + self.in_reset + self.reclaimable + self.evacuating
            < self.reserve + self.target + self.lag
    }
}

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

/// How a step of cleaning ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stepped {
    /// There is more to do in this victim.
    GoesOn,
    /// There is nothing more to do in it.
    Emptied,
    /// There is no victim, or no room to move its blocks.
    Idle,
}

impl Volume {
    /// Cleans in the foreground until new data can have a zone.
    pub(crate) fn make_room(&self) -> Result<()> {
        let is_short = || self.zones.free_zones(DeviceKind::Data) <= self.watermark_to_pass();
        if !self.await_resets(is_short) {
            return Ok(());
        }
        let (_lock, _midst) = (self.cleaning_lock.lock(), self.in_midst());
        if self.zones.budget.large.is_some() {
            return self.win_spare_zone();
        }
        self.clean_above(DeviceKind::Data, || self.watermark_to_pass(), Intent::Grow)
    }

    /// Frees zones because the host below the device has no space for one more: reclaimable zones take space of the host,
    /// which gets it back or uses it for what is written next. False if nothing was won.
    pub(crate) fn free_for_host(&self) -> bool {
        let free_zones = || self.zones.free_zones(DeviceKind::Data);
        let before = free_zones();
        let (_lock, _midst) = (self.cleaning_lock.lock(), self.in_midst());
        // Another thread may have done it meanwhile.
        if free_zones() <= before
            && self.zones.all_reclaimable_zones() > 0
            && let Err(error) = self.checkpoint_zones()
        {
            tracing::warn!(%error, "zones could not be freed for the host");
        }
        self.zones.complete_resets(&self.media);
        free_zones() > before
    }

    /// Frees reclaimable zones although enough zones are free: their space is the host's, and others wait for it. False
    /// if there was nothing to free.
    pub(crate) fn free_for_idle_host(&self) -> Result<bool> {
        let reclaimable = self.zones.all_reclaimable_zones();
        if reclaimable == 0 || !self.media.space_is_hosts() {
            return Ok(false);
        }
        let (_lock, _midst) = (self.cleaning_lock.lock(), self.in_midst());
        self.checkpoint_zones()?;
        self.zones.complete_resets(&self.media);
        // Zones that are being read stay.
        Ok(self.zones.all_reclaimable_zones() < reclaimable)
    }

    /// The largest number of free zones that is not enough for new data. Where all free zones are reserved for the log, that is
    /// any number: otherwise a caller that finds no zone would look for one again and again, and no thread would clean.
    fn watermark_to_pass(&self) -> u32 {
        let reserve = self.low_watermark(DeviceKind::Data);
        if self.zones.may_take_for_data() {
            reserve
        } else {
            reserve.max(self.zones.free_zones(DeviceKind::Data))
        }
    }

    /// Checkpoints take zones below the low watermark, because they must not fail. What they took is won back
    /// here, before there are more changes for the next one; metadata alone could fill the volume
    /// with old pages otherwise. [`Error::NoSpace`] if that does not succeed.
    pub(crate) fn restore_low_watermark(&self, intent: Intent) -> Result<()> {
        if self.zones.budget.large.is_some() {
            return self.keep_a_zone_for_metadata();
        }
        if self.metadata_is_short() && self.await_resets(|| self.metadata_is_short()) {
            let (_lock, _midst) = (self.cleaning_lock.lock(), self.in_midst());
            self.win_metadata_zones(intent)?;
        }
        Ok(())
    }

    /// Waits for resets under way while the caller `is_short` of zones. Returns whether it still is.
    fn await_resets(&self, is_short: impl Fn() -> bool) -> bool {
        loop {
            let seen = self.zones.resets_ended();
            if !is_short() {
                return false;
            }
            if !self.zones.complete_a_reset(&self.media, seen) {
                return true;
            }
        }
    }

    fn metadata_is_short(&self) -> bool {
        self.zones.free_zones(DeviceKind::Metadata) < self.low_watermark(DeviceKind::Metadata)
    }

    /// Cleans until a checkpoint has the zones it may need. The caller holds the lock.
    fn win_metadata_zones(&self, intent: Intent) -> Result<()> {
        self.clean_above(
            DeviceKind::Metadata,
            || self.low_watermark(DeviceKind::Metadata).saturating_sub(1),
            intent,
        )
    }

    /// Wins zones of the metadata device before file data is moved, on two devices: checkpoints write the pages that
    /// change, and moving file data wins no zone for them.
    fn keep_metadata_zones(&self) -> Result<()> {
        if self.zones.budget.layout.is_split() && self.metadata_is_short() {
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
        let free_zones = || self.zones.free_zones(device);
        let reclaimable_zones = || self.zones.reclaimable_zones(device);
        let in_reset = || self.zones.zones_in_reset(device);
        let is_short = || free_zones() <= reserve();
        let mut progress = Rounds {
            zones: free_zones(),
            blocks: self.zones.free_blocks(device),
            blocks_min: self.zones.budget.zone_blocks(device) / WON_SHARE_MIN + 1,
            rounds_without_zone: 0,
            rounds_without_blocks: 0,
        };
        if progress.zones + in_reset() + self.free_zone_target(device) < self.reserved_zones(device)
        {
            // Space is low: no zones are reserved for a long journal any more.
            self.zones.shorten_journal(0);
        }
        while self.await_resets(is_short) {
            add(&self.media.counters.stalls, 1);
            let is_first = progress.rounds_without_zone == 0;
            if !is_first {
                let blocks = self.zones.journal_blocks();
                self.zones.shorten_journal(blocks - blocks / 4);
            }
            let nothing_changed = reclaimable_zones() == 0 && self.meta().cache.changed() == 0;
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
                return Err(self.zones.want_of_zones());
            }
            if !is_first || emptied.pages || reclaimable_zones() == 0 {
                self.checkpoint()?
            } else {
                self.checkpoint_zones()?
            }
            if self.await_resets(is_short) {
                self.zones.wait_for_readers();
            }
            progress.note(free_zones(), self.zones.free_blocks(device));
            if progress.is_hopeless(intent) {
                return Err(self.zones.want_of_zones());
            }
        }
        Ok(())
    }

    /// The error that cleaning gives to a caller that waits for room: not the damage in another file.
    fn as_told_to_writers(&self, error: Error) -> Error {
        if !matches!(error, Error::ItemDamaged { .. }) {
            return error;
        }
        tracing::error!(%error, "cleaning for what is written");
        self.zones.want_of_zones()
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
            (self.zones.slack_zones(device) / 32).clamp(2, self.free_zone_target(device).max(2))
        };
        let is_enough =
            || self.zones.reclaimable_zones(device) + self.zones.zones_in_reset(device) >= wanted;
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
            let Some((victim, why)) = self.choose_urgently(device, choice) else {
                break;
            };
            // Zones that others won come first, if there are any.
            if has_chosen && !self.is_affordable(&victim) {
                break;
            }
            (has_chosen, emptied.any) = (true, true);
            add(&self.media.counters.cleaning_foreground, 1);
            self.zones.tell_victim(victim.zone, why.into(), true);
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
                self.checkpoint_state().evacuating.insert(victim.zone);
                // Where one victim wins no zone, several share the cost of the checkpoint's tables.
                let kept = self.zones.budget.dirty_pages_reserved;
                if is_first || self.meta().cache.changed() >= kept {
                    break;
                }
            }
        }
        Ok(emptied)
    }

    /// A victim where a caller waits for room. There may be none that pays.
    fn choose_urgently(
        &self,
        device: DeviceKind,
        choice: VictimPolicy,
    ) -> Option<(ZoneStatus, VictimPolicy)> {
        let evacuating = self.checkpoint_state().evacuating.clone();
        let choose = |choice, of: Option<Role>| {
            let is_of = |z: &ZoneStatus| of.is_none_or(|role| role == z.entry.role);
            let may = |z: &ZoneStatus| !evacuating.contains(&z.zone) && is_of(z);
            Some((self.choose_victim_of(device, choice, may)?, choice))
        };
        match choice {
            VictimPolicy::Score | VictimPolicy::Garbage => {
                let scored = (choice == VictimPolicy::Score)
                    .then(|| choose(choice, None))
                    .flatten();
                let first = scored.or_else(|| choose(VictimPolicy::Garbage, Some(Role::Data)));
                let metadata = || choose(VictimPolicy::Metadata, None);
                let Some(data) = first.filter(|(victim, _)| victim.entry.role == Role::Data) else {
                    return first.or_else(metadata);
                };
                let wins_more = |(other, _): &(ZoneStatus, VictimPolicy)| {
                    self.wins_more(other, &data.0, data.1 == VictimPolicy::Garbage)
                };
                metadata().filter(wins_more).or(Some(data))
            }
            VictimPolicy::Metadata => choose(choice, None),
        }
    }

    /// The free-zone target: zones that cleaning ahead keeps free or reclaimable beyond the reserve, to be
    /// filled between two checkpoints.
    fn free_zone_target(&self, device: DeviceKind) -> u32 {
        let options = self.cleaning_options();
        let slack = self.zones.slack_zones(device);
        let share = u64::from(slack) * u64::from(options.free_target_basis_points) / 10_000;
        let at_least = match options.free_target_basis_points {
            0 => 0,
            _ => {
                let zones =
                    FREE_TARGET_BLOCKS.div_ceil(self.zones.budget.zone_blocks(device) + 1) as u32;
                zones.min(self.slack_share(device))
            }
        };
        let target = (share.min(u32::MAX.into()) as u32).max(at_least);
        let target = target.max(options.free_target_zones_min.max(1));
        match self.zones.budget.large {
            // With few zones none is kept free for what is not needed yet.
            Some(_) => target.min(slack.saturating_sub(self.zones.budget.zones_reserved()) / 2),
            None => target,
        }
    }

    /// How many of the slack zones may be kept free.
    fn slack_share(&self, device: DeviceKind) -> u32 {
        self.zones.slack_zones(device) / FREE_TARGET_SHARE_MAX
    }

    /// Takes a step of cleaning ahead of need: as zones fill, others are emptied, one for one. False if there was no
    /// reason to.
    pub(crate) fn clean_ahead(&self) -> Result<bool> {
        let may_take = |device| self.zones.free_zones(device) > self.cleaning_reserve(device);
        let may_move = may_take(DeviceKind::Metadata) && may_take(DeviceKind::Data);
        let devices = self.zones.budget.layout.devices().iter();
        if may_move && self.choose_failing().is_some() {
            let stepped = self.clean_first(devices.rev(), STEP_BLOCKS)?;
            return Ok(stepped != Stepped::Idle);
        }
        if !self.stock(DeviceKind::Metadata).is_short() {
            self.zones.secure_journal_blocks();
        }
        let short = devices.filter(|device| self.stock(**device).is_short());
        Ok(self.clean_first(short, STEP_BLOCKS)? != Stepped::Idle)
    }

    /// Frees reclaimable zones when nearly all free zones are filled: a checkpoint costs the same, however
    /// many zones it frees. False if there was no reason to.
    pub(crate) fn free_ahead(&self) -> Result<bool> {
        for device in self.zones.budget.layout.devices() {
            let stock = self.stock(*device);
            let is_short = stock.is_short();
            let Stock {
                free,
                in_reset,
                reclaimable,
                evacuating,
                reserve,
                target,
                lag,
            } = stock;
            let coming = free + in_reset;
            // While other zones are being emptied it waits for some of them, unless the last free one is about to be taken.
            let enough = if is_short && coming > reserve + lag + 1 {
                (target / 4).max(1)
            } else {
                1
            };
            if coming > reserve + target / 2 + lag {
                continue;
            }
            // A checkpoint may gain nothing: readers may pin the reclaimable zones.
            let gained = || {
                let in_reset = self.zones.zones_in_reset(*device);
                in_reset + self.zones.free_zones(*device) > coming
            };
            if reclaimable >= enough {
                self.checkpoint_zones()?;
                return Ok(gained());
            }
            if evacuating > 0 && (!is_short || coming <= reserve + 1) {
                self.checkpoint()?;
                return Ok(gained());
            }
        }
        Ok(false)
    }

    fn stock(&self, device: DeviceKind) -> Stock {
        // Only metadata zones are evacuated by the next whole checkpoint: they count as reclaimable.
        let evacuating = match device {
            DeviceKind::Data => 0,
            DeviceKind::Metadata => self.checkpoint_state().evacuating.len() as u32,
        };
        let target = self.free_zone_target(device);
        // Target and lag together are no more than may be kept free.
        let lag_max = self.slack_share(device).saturating_sub(target);
        Stock {
            free: self.zones.free_zones(device),
            in_reset: self.zones.zones_in_reset(device),
            reclaimable: self.zones.reclaimable_zones(device),
            evacuating,
            reserve: self.reserved_zones(device),
            target,
            lag: self.zones.taken_in_a_reset().min(lag_max),
        }
    }

    /// Cleans a zone that has failed, or else the best victim, or what is left to do in one. False if there
    /// is none.
    pub(crate) fn clean_one(&self) -> Result<bool> {
        self.zones.complete_resets(&self.media);
        loop {
            // The data device comes first.
            let devices = self.zones.budget.layout.devices().iter();
            match self.clean_first(devices.rev(), MOVE_BLOCKS)? {
                Stepped::GoesOn => {}
                Stepped::Emptied => return Ok(true),
                Stepped::Idle => return Ok(false),
            }
        }
    }

    /// A step on the first of these devices on which there is something to do.
    fn clean_first<'p>(
        &self,
        devices: impl Iterator<Item = &'p DeviceKind>,
        blocks_max: u64,
    ) -> Result<Stepped> {
        for device in devices {
            let stepped = self.clean_some(*device, blocks_max)?;
            if stepped != Stepped::Idle {
                return Ok(stepped);
            }
        }
        Ok(Stepped::Idle)
    }

    /// A step of cleaning: goes on with the victim under way, or begins with the next.
    fn clean_some(&self, device: DeviceKind, blocks_max: u64) -> Result<Stepped> {
        let (_lock, _midst) = (self.cleaning_lock.lock(), self.in_midst());
        let Some(mut cursor) = self
            .take_cursor(device)
            .or_else(|| self.next_cursor(device))
        else {
            return Ok(Stepped::Idle);
        };
        let victim = *cursor.victim();
        match self.advance(&mut cursor, blocks_max) {
            Ok(true) => {
                self.cleaning_cursors().push(cursor);
                Ok(Stepped::GoesOn)
            }
            // A whole checkpoint moves its pages. It can wait: no caller waits for the zone.
            Ok(false) if victim.entry.role == Role::Metadata && !victim.must_be_emptied() => {
                self.checkpoint_state().evacuating.insert(victim.zone);
                Ok(Stepped::Emptied)
            }
            Ok(false) if victim.entry.role == Role::Metadata => {
                self.checkpoint()?;
                Ok(Stepped::Emptied)
            }
            Ok(false) => Ok(Stepped::Emptied),
            // There is room soon: a caller that needs it waits, but not with this lock.
            Err(error) if error.is_want_of_zones() && self.zones.zones_in_reset(device) > 0 => {
                Ok(Stepped::Idle)
            }
            Err(error) if error.is_want_of_zones() && self.zones.reclaimable_zones(device) > 0 => {
                let coming = || self.zones.free_zones(device) + self.zones.zones_in_reset(device);
                let before = coming();
                self.checkpoint_zones()?;
                Ok(if coming() > before {
                    Stepped::Emptied
                } else {
                    Stepped::Idle
                })
            }
            Err(error) if error.is_want_of_zones() => {
                self.checkpoint()?;
                Ok(Stepped::Idle)
            }
            Err(error) => Err(error),
        }
    }

    /// Empties the victim of file data that is under way on a device, as far as possible. False if there is
    /// none. The caller holds the lock.
    fn finish_cursor(&self, device: DeviceKind) -> Result<bool> {
        let Some(mut cursor) = self.take_cursor(device) else {
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

    fn cleaning_cursors(&self) -> MutexGuard<'_, Vec<CleaningCursor>> {
        self.cleaning_cursors.lock()
    }

    /// The victim under way on a device, or a failed one anywhere.
    fn take_cursor(&self, device: DeviceKind) -> Option<CleaningCursor> {
        let layout = &self.zones.budget.layout;
        let mut cursors = self.cleaning_cursors();
        let wanted = |cursor: &CleaningCursor| {
            let victim = cursor.victim();
            layout.contains(device, victim.zone) || victim.must_be_emptied()
        };
        let at = cursors.iter().position(wanted)?;
        let cursor = cursors.swap_remove(at);
        drop(cursors);
        // A victim without room for its live blocks is given up for another one. A zone that must be emptied would be chosen again.
        let may_go_on =
            cursor.victim().must_be_emptied() || self.may_be_emptied_ahead()(cursor.victim());
        may_go_on.then_some(cursor)
    }

    fn next_cursor(&self, device: DeviceKind) -> Option<CleaningCursor> {
        let failing = self.choose_failing();
        let why = match failing {
            Some(_) => VictimReason::Failing,
            None => VictimReason::Score,
        };
        let victim = failing.or_else(|| {
            let evacuating = self.checkpoint_state().evacuating.clone();
            let may_be = self.may_be_emptied_ahead();
            let stays = |z: &ZoneStatus| !evacuating.contains(&z.zone) && may_be(z);
            let first = self.choose_victim_of(device, VictimPolicy::Score, stays)?;
            if first.entry.role != Role::Data || self.is_affordable(&first) {
                return Some(first);
            }
            self.choose_victim_of(device, VictimPolicy::Metadata, stays)
                .filter(|other| self.is_affordable(other) && self.wins_more(other, &first, false))
        })?;
        add(&self.media.counters.cleaning_background, 1);
        self.zones.tell_victim(victim.zone, why, false);
        Some(self.begin_cursor(&victim))
    }

    /// A failed zone, or a zone of a pair of which one has failed, that is not empty yet.
    fn choose_failing(&self) -> Option<ZoneStatus> {
        if self.zones.failed_zones() == 0 {
            return None;
        }
        let waits = |z: &&ZoneStatus| {
            z.must_be_emptied() && !self.zones.is_filled(z.zone) && !self.is_unproductive(z)
        };
        self.zones.status().iter().find(waits).copied()
    }

    fn choose_victim_of(
        &self,
        device: DeviceKind,
        choice: VictimPolicy,
        wanted: impl Fn(&ZoneStatus) -> bool,
    ) -> Option<ZoneStatus> {
        let share_min = self.cleaning_options().metadata_garbage_percent;
        let may =
            |z: &ZoneStatus| wanted(z) && !self.zones.is_filled(z.zone) && !self.is_unproductive(z);
        self.zones.choose_victim(device, choice, share_min, may)
    }

    fn unproductive(&self) -> MutexGuard<'_, HashMap<ZoneId, u64>> {
        self.unproductive.lock()
    }

    /// Whether cleaning the zone was tried in its present use and moved nothing.
    fn is_unproductive(&self, zone: &ZoneStatus) -> bool {
        self.unproductive().get(&zone.zone) == Some(&zone.entry.sequence)
    }
}
