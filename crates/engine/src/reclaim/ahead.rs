//! Cleaning ahead of need, a step at a time, and the checkpoints that free what it emptied.

use persimmon_device::ZoneId;
use persimmon_format::table::Role;
use persimmon_sync::atomic::{AtomicU64, Ordering};

use super::{MOVE_BLOCKS, Reclaimer};
use crate::error::Result;
use crate::space::policy::{self, Next};
use crate::zones::{Candidates, DeviceKind};

/// Blocks moved in one step ahead of need: nobody waits for more of them than these.
pub(super) const STEP_BLOCKS: u64 = 64;

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

impl Reclaimer {
    /// Takes a step of cleaning ahead of need: as zones fill, others are emptied, one for one. False if there was no
    /// reason to.
    pub(super) fn clean_ahead(&self) -> Result<bool> {
        let may_move = self.may_move();
        if self.store.zones.keep_log_candidates() == Candidates::Reclaimable {
            let before = self.store.zones.log_candidates_coming();
            self.checkpoint_zones()?;
            // Readers may pin them.
            if self.store.zones.log_candidates_coming() > before {
                return Ok(true);
            }
        }
        let devices = self.store.zones.budget.layout.devices().iter();
        let devices = devices.filter(|device| !self.found_no_room(**device));
        if may_move && self.cleaner.choose_failing().is_some() {
            let stepped = self.clean_first(devices.rev(), STEP_BLOCKS)?;
            return Ok(stepped != Stepped::Idle);
        }
        if !self.space.stock(DeviceKind::Metadata).is_short() {
            self.store.zones.secure_journal_blocks();
        }
        let short = devices.filter(|device| self.space.stock(**device).is_short());
        Ok(self.clean_first(short, STEP_BLOCKS)? != Stepped::Idle)
    }

    /// Whether cleaning found no room on a device, and no checkpoint was written since that could have made some: another try would cost
    /// one, and so on for ever where nobody does anything.
    fn found_no_room(&self, device: DeviceKind) -> bool {
        let number = self.store.on_device().number;
        number < self.no_room_before(device).load(Ordering::Relaxed)
    }

    fn note_no_room(&self, device: DeviceKind) {
        let number = self.store.on_device().number;
        self.no_room_before(device)
            .store(number + 1, Ordering::Relaxed);
    }

    fn no_room_before(&self, device: DeviceKind) -> &AtomicU64 {
        let layout = &self.store.zones.budget.layout;
        layout.of_device(&self.no_room_before, device)
    }

    /// Whether cleaning may take a zone for what it moves, whichever that is.
    pub(super) fn may_move(&self) -> bool {
        let view = self.space.view();
        let may_take = |device| view.free(device) > view.left_by_cleaning(device);
        may_take(DeviceKind::Metadata) && may_take(DeviceKind::Data)
    }

    /// Frees zones ahead of need. False if there was no reason to, or nothing was gained.
    pub(super) fn free_ahead(&self) -> Result<bool> {
        for device in self.store.zones.budget.layout.devices() {
            let coming = || self.space.view_now().coming(*device);
            let (stock, before) = (self.space.stock(*device), coming());
            match policy::free_ahead(&stock) {
                None => continue,
                Some(Next::FreeZones) => self.checkpoint_zones()?,
                Some(_) => self.checkpoint()?,
            }
            // A checkpoint may gain nothing: readers may pin the reclaimable zones.
            return Ok(coming() > before);
        }
        Ok(false)
    }

    /// Cleans a zone that has failed, or else the best victim, or what is left to do in one. False if there
    /// is none.
    pub(crate) fn clean_one(&self) -> Result<bool> {
        self.store.zones.complete_resets(&self.store.media);
        loop {
            // The data device comes first.
            let devices = self.store.zones.budget.layout.devices().iter();
            match self.clean_first(devices.rev(), MOVE_BLOCKS)? {
                Stepped::GoesOn => {}
                Stepped::Emptied => return Ok(true),
                Stepped::Idle => return Ok(false),
            }
        }
    }

    /// Cleans the zones that must be emptied, as far as that is possible before the next checkpoint, and no others.
    pub(crate) fn empty_failing(&self) -> Result<()> {
        while self.cleaner.choose_failing().is_some() && self.clean_one()? {}
        Ok(())
    }

    /// A zone that must be emptied and of which nothing could be moved when that was tried.
    pub(crate) fn unmovable(&self) -> Option<ZoneId> {
        self.cleaner.unmovable()
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
        let (_lock, _midst) = (self.cleaning_lock.lock(), self.store.in_midst());
        let Some(mut cursor) = self
            .cleaner
            .take_cursor(device)
            .or_else(|| self.cleaner.next_cursor(device))
        else {
            return Ok(Stepped::Idle);
        };
        let victim = *cursor.victim();
        match self.advance(&mut cursor, blocks_max) {
            Ok(true) => {
                self.cleaner.keep_cursor(cursor);
                Ok(Stepped::GoesOn)
            }
            // A whole checkpoint moves its pages. It can wait: no caller waits for the zone.
            Ok(false) if victim.entry.role == Role::Metadata && !victim.must_be_emptied() => {
                self.store.on_device().evacuating.insert(victim.zone);
                Ok(Stepped::Emptied)
            }
            Ok(false) if victim.entry.role == Role::Metadata => {
                self.checkpoint()?;
                Ok(Stepped::Emptied)
            }
            Ok(false) => Ok(Stepped::Emptied),
            // There is room soon: a caller that needs it waits, but not with this lock.
            Err(error)
                if error.is_want_of_zones() && self.store.zones.zones_in_reset(device) > 0 =>
            {
                Ok(Stepped::Idle)
            }
            Err(error)
                if error.is_want_of_zones() && self.store.zones.reclaimable_zones(device) > 0 =>
            {
                let coming = || self.space.view().coming(device);
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
                self.note_no_room(device);
                if victim.must_be_emptied() {
                    // Others have their turn.
                    self.cleaner
                        .note_unproductive(victim.zone, victim.entry.sequence);
                }
                Ok(Stepped::Idle)
            }
            Err(error) => Err(error),
        }
    }
}
