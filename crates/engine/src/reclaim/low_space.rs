//! The low-space mode of cleaning, where zones are large and few are free: it empties one zone at a time, to the end, and
//! only if there is room for all that is live in it (`zones/large.rs`).

use persimmon_device::ZoneId;
use persimmon_format::table::Role;

use super::Reclaimer;
use crate::cleaning::FOUND_MAX;
use crate::error::{Error, Result};
use crate::space::policy::{ROUNDS_MAX, WON_SHARE_MIN};
use crate::statistics::add;
use crate::zones::table::ZoneStatus;
use crate::zones::{DeviceKind, LastSpare, VictimPolicy};

/// Rounds without success before giving up.
const FRUITLESS_MAX: u32 = 3;

/// Fewer blocks are not worth moving unless the zone becomes empty.
const PART_MIN: u64 = 32;

/// A zone of data is emptied for metadata only if at least this share of it is garbage.
const RELIEF_SHARE_MIN: u64 = 8;

/// What a round did.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    /// Emptied this zone, of which so many blocks are still live.
    Emptied(ZoneId, u32),
    /// Had the log or metadata take another zone.
    Prepared(LastSpare),
}

impl Reclaimer {
    /// Wins back the spare that users borrowed, or enough room for them to go on. The caller holds the cleaning lock.
    pub(crate) fn win_spare_zone(&self) -> Result<()> {
        self.store.zones.wait_for_data_writers();
        self.win_large_zones(|| self.store.zones.in_low_space() && !self.store.zones.can_go_on())
    }

    /// Wins back the zone that log and metadata share before there are more changes.
    pub(crate) fn keep_a_zone_for_metadata(&self) -> Result<()> {
        let is_short = || self.store.zones.zones_are_missing();
        if is_short() && self.await_resets(is_short) {
            let (_lock, _midst) = (self.cleaning_lock.lock(), self.store.in_midst());
            self.win_large_zones(is_short)?;
        }
        if self.store.zones.in_low_space() && self.victim_to_relieve_metadata().is_some() {
            let (_lock, _midst) = (self.cleaning_lock.lock(), self.store.in_midst());
            self.relieve_metadata()?;
        }
        Ok(())
    }

    /// Before metadata takes the last zone, the live pages of one of its zones must fit there, behind the coming checkpoints. If
    /// they do not, this data zone is emptied first: that rewrites leaves, which makes garbage in zones of metadata, and frees a
    /// zone.
    fn victim_to_relieve_metadata(&self) -> Option<ZoneStatus> {
        let changed = self.space.changed_pages();
        if !self.store.zones.metadata_is_to_take_last(changed) {
            return None;
        }
        let metadata =
            self.cleaner
                .choose_victim_of(DeviceKind::Data, VictimPolicy::Metadata, |_| true)?;
        let needed = self.cleaner.gain(&metadata).written();
        if self.store.zones.fits_in_last(needed, changed) {
            return None;
        }
        let may = self.cleaner.may_be_emptied();
        let fits = |z: &ZoneStatus| z.entry.role == Role::Data && may(z);
        let data = self
            .cleaner
            .choose_victim_of(DeviceKind::Data, VictimPolicy::Garbage, fits)?;
        let least = self.store.zones.budget.metadata_zone_blocks / RELIEF_SHARE_MIN;
        (self.cleaner.gain(&data).garbage >= least).then_some(data)
    }

    /// Empties that zone. The caller holds the lock.
    fn relieve_metadata(&self) -> Result<()> {
        if !self.await_resets(|| self.victim_to_relieve_metadata().is_some()) {
            return Ok(());
        }
        let done = match (
            self.store.zones.reclaimable_zones(DeviceKind::Data),
            self.victim_to_relieve_metadata(),
        ) {
            (0, None) => Ok(()),
            (0, Some(victim)) => self.empty(&victim).map(|_| ()),
            (reclaimable, _) => self.checkpoint_zones().map(|()| {
                if self.store.zones.reclaimable_zones(DeviceKind::Data) >= reclaimable {
                    self.store.zones.wait_for_readers();
                }
            }),
        };
        match done {
            // This was a precaution. A caller that needs the room gets the error later.
            Err(error) if !error.passes() => Err(error),
            _ => Ok(()),
        }
    }

    /// Empties whole zones while `is_short`. Each real win of room begins the limits anew.
    fn win_large_zones(&self, is_short: impl Fn() -> bool) -> Result<()> {
        let free = || self.store.zones.free_zones(DeviceKind::Data);
        let mut last = None;
        let mut fruitless = 0;
        let mut most = self.store.zones.free_blocks(DeviceKind::Data);
        let budget = &self.store.zones.budget;
        let won_min = budget.metadata_zone_blocks / WON_SHARE_MIN + 1;
        // Enough rounds for several zones of metadata: one wins nothing until it is empty.
        let rounds_of_zone = budget
            .metadata_zone_blocks
            .div_ceil(self.pages_per_checkpoint() as u64);
        let rounds_max = ROUNDS_MAX as u64 + 4 * rounds_of_zone;
        let mut rounds = 0;
        while self.await_resets(&is_short) {
            add(&self.store.media.counters.stalls, 1);
            if self.store.zones.reclaimable_zones(DeviceKind::Data) > 0 {
                let before = free();
                self.checkpoint_zones()?;
                if self.await_resets(|| free() <= before) {
                    self.store.zones.wait_for_readers();
                    fruitless += 1;
                }
            } else if self.store.zones.log_waits()
                || self.store.zones.log_is_to_leave(self.space.changed_pages())
            {
                self.checkpoint()?;
                fruitless += 1;
            } else {
                self.store.zones.wait_for_data_writers();
                let done = self.empty_one();
                let done = done.map_err(|error| self.as_told_to_writers(error))?;
                let is_in_vain = matches!(done, Done::Prepared(_)) || last == Some(done);
                fruitless += u32::from(is_in_vain);
                last = Some(done);
            }
            let room = self.store.zones.free_blocks(DeviceKind::Data);
            if room >= most + won_min {
                (most, fruitless, rounds) = (room, 0, 0);
            }
            rounds += 1;
            if fruitless > FRUITLESS_MAX || rounds > rounds_max {
                return Err(self.store.zones.want_of_zones());
            }
        }
        Ok(())
    }

    /// Empties the zone that wins most for what it costs.
    fn empty_one(&self) -> Result<Done> {
        let may = self.cleaner.may_be_emptied();
        let fits = |z: &ZoneStatus| z.entry.role == Role::Data && may(z);
        let data = self
            .cleaner
            .choose_victim_of(DeviceKind::Data, VictimPolicy::Garbage, fits);
        let metadata =
            self.cleaner
                .choose_victim_of(DeviceKind::Data, VictimPolicy::Metadata, &may);
        // If cleaning borrows the last spare, the live blocks of any zone of data fit.
        let most = data.or_else(|| self.cleaner.most_garbage());
        let wins_more =
            |z: &ZoneStatus| most.is_none_or(|most| self.cleaner.wins_more(z, &most, true));
        if let Some(victim) = metadata.filter(wins_more).or(data) {
            return self.empty(&victim);
        }
        match (self.empty_into_last(), metadata) {
            (Err(error), Some(victim)) if error.passes() => self.empty(&victim),
            (done, _) => done,
        }
    }

    /// Empties a zone where no victim fits, because a crash ended the borrowed zone early. Cleaning borrows the last spare, after log
    /// or metadata have had it if they need it soon.
    fn empty_into_last(&self) -> Result<Done> {
        let found_at_once = FOUND_MAX as u64;
        match self
            .store
            .zones
            .borrow_last_spare(found_at_once, self.space.changed_pages())
        {
            LastSpare::Taken => return Err(Error::NoSpace),
            LastSpare::ForLog => {
                self.checkpoint()?;
                return Ok(Done::Prepared(LastSpare::ForLog));
            }
            LastSpare::ForMetadata { blocks, .. } if blocks >= PART_MIN => {
                return self.empty_in_part(blocks);
            }
            last @ LastSpare::ForMetadata { leaves, .. } => {
                let victim =
                    self.cleaner
                        .choose_victim_of(DeviceKind::Data, VictimPolicy::Metadata, |_| true);
                let leaves = |z: &ZoneStatus| leaves.saturating_sub(self.cleaner.gain(z).again);
                // What is left of the zone is no garbage that another checkpoint could win.
                if let Some(victim) = victim.filter(|victim| leaves(victim) >= PART_MIN) {
                    self.empty_of_pages(victim.zone, leaves(&victim) as usize)?;
                    let left = self.store.zones.valid_blocks(victim.zone);
                    return Ok(Done::Emptied(victim.zone, left));
                }
                self.store.zones.leave_metadata_zone(&self.store.media);
                self.checkpoint()?;
                return Ok(Done::Prepared(last));
            }
            LastSpare::Borrowed => {}
        }
        let emptied = self.cleaner.most_garbage().ok_or(Error::NoSpace);
        let emptied = emptied.and_then(|victim| self.empty(&victim));
        self.store.zones.return_last_spare();
        emptied
    }

    /// Moves `blocks` of the zone with most garbage into open zones, so that the rest needs less room.
    fn empty_in_part(&self, blocks: u64) -> Result<Done> {
        let victim = self.cleaner.most_garbage().ok_or(Error::NoSpace)?;
        let live = || u64::from(self.store.zones.valid_blocks(victim.zone));
        let least = live().saturating_sub(blocks);
        let mut cursor = self.cleaner.begin_cursor(&victim);
        while live() > least {
            match self.advance(&mut cursor, PART_MIN) {
                // Each packed extent may be in another leaf.
                Ok(true)
                    if self
                        .store
                        .zones
                        .metadata_goes_on(self.space.changed_pages()) => {}
                Ok(_) => break,
                Err(error) if error.passes() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(Done::Emptied(
            victim.zone,
            self.store.zones.valid_blocks(victim.zone),
        ))
    }

    fn empty(&self, victim: &ZoneStatus) -> Result<Done> {
        let zone = victim.zone;
        add(&self.store.media.counters.cleaning_foreground, 1);
        self.store
            .zones
            .tell_victim(zone, VictimPolicy::Garbage.into(), true);
        match victim.entry.role {
            Role::Metadata => self.empty_of_pages(zone, usize::MAX)?,
            _ => self.clean(victim)?,
        }
        Ok(Done::Emptied(zone, self.store.zones.valid_blocks(zone)))
    }

    /// All pages of the zone, or `most` of them, have a place. One checkpoint takes as many as memory holds: fewer checkpoints write
    /// fewer chunks and blocks of the log.
    fn empty_of_pages(&self, zone: ZoneId, most: usize) -> Result<()> {
        let pages = self.store.move_metadata_from(zone);
        for page in pages
            .into_iter()
            .take(self.pages_per_checkpoint().min(most))
        {
            self.cleaner.mark_page(zone, page)?;
        }
        self.checkpoint()
    }

    fn pages_per_checkpoint(&self) -> usize {
        (self.store.zones.budget.dirty_pages_max / 2).max(1)
    }
}
