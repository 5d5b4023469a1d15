//! Which victim is emptied next.

use persimmon_device::ZoneId;
use persimmon_format::table::Role;
use persimmon_sync::MutexGuard;

use super::Cleaner;
use super::cursor::CleaningCursor;
use crate::statistics::add;
use crate::zones::table::ZoneStatus;
use crate::zones::trace::VictimReason;
use crate::zones::{DeviceKind, EvacuationRoom, VictimPolicy};

/// Most times that the wait before a zone is tried again doubles.
const TRIES_DOUBLED_MAX: u32 = 10;

/// A zone whose cleaning moved nothing: what is live in it could not be read, or was on its way into the tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unproductive {
    /// Of the zone's use.
    sequence: u64,
    tries: u32,
    /// The number of the checkpoint after which it is tried again.
    again: u64,
}

impl Cleaner {
    /// Has a victim gone on with later.
    pub(crate) fn keep_cursor(&self, cursor: CleaningCursor) {
        self.cleaning_cursors().push(cursor);
    }

    fn cleaning_cursors(&self) -> MutexGuard<'_, Vec<CleaningCursor>> {
        self.cleaning_cursors.lock()
    }

    /// The victim under way on a device, or a failed one anywhere.
    pub(crate) fn take_cursor(&self, device: DeviceKind) -> Option<CleaningCursor> {
        let layout = &self.store.zones.budget.layout;
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

    pub(crate) fn next_cursor(&self, device: DeviceKind) -> Option<CleaningCursor> {
        let failing = self.choose_failing();
        let why = match failing {
            Some(_) => VictimReason::Failing,
            None => VictimReason::Score,
        };
        let victim = failing.or_else(|| {
            let evacuating = self.store.on_device().evacuating.clone();
            let may_be = self.may_be_emptied_ahead();
            let stays = |z: &ZoneStatus| !evacuating.contains(&z.zone) && may_be(z);
            let first = self.choose_victim_of(device, VictimPolicy::Score, stays)?;
            if first.entry.role != Role::Data || self.is_affordable(&first) {
                return Some(first);
            }
            self.choose_victim_of(device, VictimPolicy::Metadata, stays)
                .filter(|other| self.is_affordable(other) && self.wins_more(other, &first, false))
        })?;
        add(&self.store.media.counters.cleaning_background, 1);
        self.store.zones.tell_victim(victim.zone, why, false);
        Some(self.begin_cursor(&victim))
    }

    /// A victim where a caller waits for room. There may be none that pays. If `pages_leave` already with the next checkpoint, that may be why
    /// data cannot move before it: then that checkpoint comes first, unless further pages win more than data does.
    pub(crate) fn choose_urgently(
        &self,
        device: DeviceKind,
        choice: VictimPolicy,
        pages_leave: bool,
    ) -> Option<(ZoneStatus, VictimPolicy)> {
        let evacuating = self.store.on_device().evacuating.clone();
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
                let wins_more = |(other, _): &(ZoneStatus, VictimPolicy)| match pages_leave {
                    true => self.gain(other).is_better_than(&self.gain(&data.0)),
                    false => self.wins_more(other, &data.0, data.1 == VictimPolicy::Garbage),
                };
                metadata().filter(wins_more).or(Some(data))
            }
            VictimPolicy::Metadata => choose(choice, None),
        }
    }

    /// A failed zone, a zone of a pair of which one has failed, or one that lacks redundancy, that is not empty yet.
    pub(crate) fn choose_failing(&self) -> Option<ZoneStatus> {
        let checkpoint = self.store.on_device().number;
        let waits = |z: &ZoneStatus| {
            !self.store.zones.is_filled(z.zone) && !self.is_unproductive(z, checkpoint)
        };
        self.store.zones.choose_failing(waits)
    }

    /// A zone that must be emptied and of which nothing could be moved when that was tried.
    pub(crate) fn unmovable(&self) -> Option<ZoneId> {
        let was_tried = |z: &ZoneStatus| {
            let tried = self.unproductive.lock().get(&z.zone).copied();
            tried.is_some_and(|tried| tried.sequence == z.entry.sequence)
        };
        let zone = self.store.zones.choose_failing(was_tried)?;
        Some(zone.zone)
    }

    pub(crate) fn choose_victim_of(
        &self,
        device: DeviceKind,
        choice: VictimPolicy,
        wanted: impl Fn(&ZoneStatus) -> bool,
    ) -> Option<ZoneStatus> {
        let share_min = self.store.tuned.cleaning().metadata_garbage_percent;
        let checkpoint = self.store.on_device().number;
        let may = |z: &ZoneStatus| {
            wanted(z) && !self.store.zones.is_filled(z.zone) && !self.is_unproductive(z, checkpoint)
        };
        self.store
            .zones
            .choose_victim(device, choice, share_min, may)
    }

    /// Cleaning a zone has moved nothing, or found no room for it: it is tried again when twice as many checkpoints were written as before it was tried now.
    pub(crate) fn note_unproductive(&self, zone: ZoneId, sequence: u64) {
        let checkpoint = self.store.on_device().number;
        let mut unproductive = self.unproductive.lock();
        let tries = match unproductive.get(&zone) {
            Some(before) if before.sequence == sequence => before.tries + 1,
            _ => 0,
        };
        let again = checkpoint.saturating_add(1 << tries.min(TRIES_DOUBLED_MAX));
        let entry = Unproductive {
            sequence,
            tries,
            again,
        };
        unproductive.insert(zone, entry);
    }

    /// Whether cleaning this zone, since it was last taken into use, moved nothing, and is not to be tried again before a later checkpoint
    /// than this. Only one that has failed is tried again: of the others there are better ones, and where there are none a volume
    /// that is full has no room for what trying costs.
    fn is_unproductive(&self, zone: &ZoneStatus, checkpoint: u64) -> bool {
        let tried = self.unproductive.lock().get(&zone.zone).copied();
        let tried = tried.filter(|tried| tried.sequence == zone.entry.sequence);
        tried.is_some_and(|tried| checkpoint < tried.again || !zone.must_be_emptied())
    }

    /// Which victims may be begun with: there is room for what is live in them.
    pub(crate) fn may_be_emptied(&self) -> impl Fn(&ZoneStatus) -> bool {
        self.fits(self.store.zones.evacuation_room(self.space.changed_pages()))
    }

    fn fits(&self, room: EvacuationRoom) -> impl Fn(&ZoneStatus) -> bool {
        let weights = self.weights();
        move |z| {
            let gain = weights.gain(z, self.store.zones.valid_blocks(z.zone));
            room.fits(z.entry.role, gain.moved, gain.again)
        }
    }

    /// The same for cleaning ahead of need: as long as there is next to no garbage, what is overwritten may become garbage as a
    /// whole, and foreground cleaning knows better which zone to take.
    pub(super) fn may_be_emptied_ahead(&self) -> impl Fn(&ZoneStatus) -> bool {
        let is_quiet =
            self.store.zones.in_low_space() && self.space.free_zone_target(DeviceKind::Data) == 0;
        let room = self.store.zones.evacuation_room(self.space.changed_pages());
        let fits = self.fits(room);
        move |z| {
            let role = z.entry.role;
            fits(z) && room.is_best(role, z.zone) && (!is_quiet || role == Role::Metadata)
        }
    }

    /// The zone of data with most garbage.
    pub(crate) fn most_garbage(&self) -> Option<ZoneStatus> {
        let is_data = |z: &ZoneStatus| z.entry.role == Role::Data;
        self.choose_victim_of(DeviceKind::Data, VictimPolicy::Garbage, is_data)
    }
}

#[cfg(test)]
mod tests {
    use persimmon_format::table::Role;
    use persimmon_sim::SimConfig;

    use crate::cleaning::Cleaner;
    use crate::engine::tests::engine;
    use crate::zones::failure::ZoneFailure;
    use crate::zones::table::ZoneStatus;

    /// A zone whose blocks could not be read once was not cleaned again before the next mount, not even one that had failed.
    #[test]
    fn a_zone_that_could_not_be_moved_is_tried_again() {
        let engine = engine(SimConfig::new(40, 128));
        let cleaner = Cleaner::new(&engine.store, &engine.space, &engine.placement);
        let mut zone = engine.store.zones.status()[3];
        zone.failure = Some(ZoneFailure::ReadOnly);
        zone.entry.role = Role::Data;
        zone.entry.valid = 1;
        let is_left =
            |zone: &ZoneStatus| cleaner.is_unproductive(zone, engine.store.on_device().number);
        assert!(!is_left(&zone));
        for checkpoints in [1, 2, 4, 8] {
            cleaner.note_unproductive(zone.zone, zone.entry.sequence);
            for _ in 0..checkpoints {
                assert!(is_left(&zone));
                engine.checkpoints.write().unwrap();
            }
            assert!(!is_left(&zone));
        }
        zone.failure = None;
        assert!(cleaner.is_unproductive(&zone, u64::MAX));
        // In another use it is another zone.
        cleaner.note_unproductive(zone.zone, zone.entry.sequence + 1);
        assert!(!is_left(&zone));
    }
}
