//! Zones on their way to being free. What a durable checkpoint needs no more waits here for the device, which
//! resets some at a time: on flash each takes milliseconds. No lock is held for that, other checkpoints are
//! written meanwhile, and each zone can be used as soon as it is reset.
//!
//! Who needs room waits for zones that are here before doing anything dearer; who waits does so for the device
//! alone, so anybody may.
//!
//! Nobody looks at a zone that is here: nothing refers to it, it is neither free nor reclaimable nor a victim, and its
//! entry in the ZIT stays as the cut found it. It leaves by [`Zones::note_end`] alone, and no reset outlives the
//! table that knows of it: who drops a volume, a recovery that failed too, waits for those under way.

use persimmon_sync::{Alarm, Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::num::NonZeroU32;

use persimmon_device::{Completion, DeviceError, Pending, ZoneId};
use persimmon_format::packed::PackUnits;
use persimmon_format::table::Role;

use super::Zones;
use super::entries::{State, ZoneEntry};
use super::layout::DeviceKind;
use super::trace::ZoneEvent;
use crate::error::Error;
use crate::invariant::{invariant_holds, invariant_or_damage, invariant_sub};
use crate::media::Media;

/// Of the zones, the part that may keep a host's space while they are free: what overwriting frees between two
/// checkpoints. It is given back once nobody takes zones any more.
const SPACE_KEPT_SHARE: u32 = 8;

/// In the place of an order: the zone may keep its space.
pub(super) const SUSPECTED: NonZeroU32 = NonZeroU32::MIN;

/// Which zones are to give their space back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// Those that were left it.
    Known,
    /// And those of which it is not known.
    Suspected,
}

/// Resets to be sent, and those under way. A zone is here once at most, as its entry in the table tells.
#[derive(Debug)]
pub(super) struct Resets {
    queue: Mutex<Queue>,
    /// One has ended, or can be waited for.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Going>,
    /// The oldest first.
    under_way: VecDeque<(Going, Pending)>,
    /// Those that somebody sends or waits for.
    in_hand: usize,
    /// Ended so far.
    ended: u64,
    /// Why the last one that failed did.
    failure: Option<Error>,
    /// The sequence of the next zone when it was last asked for.
    asked: u64,
    /// Sixteenths of zones that are taken into use while one is on its way: of late, the most count more.
    taken: u64,
}

/// A zone on its way.
#[derive(Clone, Copy, Debug)]
struct Going {
    zone: ZoneId,
    /// The host keeps its space for it.
    keeps_space: bool,
    /// It was free before, and gives its space back.
    was_free: bool,
    /// The sequence that the next zone was to have.
    since: u64,
}

impl Queue {
    /// Somebody has one less in hand.
    fn let_go(&mut self, alarm: &Alarm) {
        invariant_sub!(alarm, self.in_hand, 1, "resets in hand");
    }

    /// The next to be sent, if the device is to have one more.
    fn next(&mut self, at_once: usize) -> Option<Going> {
        if self.under_way.len() + self.in_hand >= at_once.max(1) {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.in_hand += 1;
        Some(next)
    }

    fn take_oldest(&mut self) -> Option<(Going, Pending)> {
        let oldest = self.under_way.pop_front()?;
        self.in_hand += 1;
        Some(oldest)
    }

    /// One is over, and so many zones were taken meanwhile, if that tells anything.
    fn note_end(&mut self, alarm: &Alarm, zones_taken: Option<u64>) {
        self.let_go(alarm);
        self.ended = self.ended.wrapping_add(1);
        let Some(zones_taken) = zones_taken else {
            return;
        };
        let taken = zones_taken.saturating_mul(16);
        let less = self.taken.saturating_sub(taken).div_ceil(8);
        self.taken = taken.max(self.taken - less);
    }
}

impl Resets {
    pub(super) fn new(alarm: &Alarm) -> Resets {
        Resets {
            queue: Mutex::watched(Queue::default(), alarm),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }
}

impl Drop for Resets {
    /// Whoever opens the volume next asks the device what its zones are: none may change after that. Those that
    /// were not sent are reclaimable for the next checkpoint.
    fn drop(&mut self) {
        let queue = self.queue.get_mut();
        for (going, pending) in queue.under_way.drain(..) {
            if let Err(error) = pending.wait() {
                tracing::warn!(zone = going.zone.0, %error, "zone could not be reset");
            }
        }
    }
}

impl Zones {
    /// Has zones that nobody needs reset, and their partners; a host is to keep the space of some, and that of
    /// log zones always: the log must go on where the host is full. They are sent by [`Zones::start_resets`].
    pub(crate) fn queue_resets(&self, media: &Media, zones: impl IntoIterator<Item = ZoneId>) {
        let mut may_keep = self.space_to_keep(media);
        for zone in zones {
            let partner = self.pairs.separate(zone);
            for zone in std::iter::once(zone).chain(partner) {
                // Who finds it on its way may wait for it.
                let mut table = self.lock();
                if !self.has_nothing_valid(zone) {
                    continue;
                }
                let entry = table.entries.get(zone);
                // It was reset already, with its partner: as the second of a pair of which a recovery resets both.
                if entry.is_some_and(ZoneEntry::is_free) {
                    continue;
                }
                let was_log = entry.is_some_and(|entry| entry.role == Role::Log);
                if table.begin_reset(zone, &self.budget) {
                    // It is not counted as reclaimable any more.
                    self.update_index(&mut table);
                    let keeps = !was_log && may_keep > 0;
                    if keeps {
                        may_keep -= 1;
                        table.keep_space(zone);
                    }
                    self.resets.lock().waiting.push_back(Going {
                        zone,
                        keeps_space: was_log || keeps,
                        was_free: false,
                        since: table.next_sequence,
                    });
                }
            }
        }
        // A log zone that failed and was left is not waited for by who commits.
        self.count_failed_again();
    }

    /// Whether nothing refers to a zone that is to be reset (I3). If something does it stays as it is.
    fn has_nothing_valid(&self, zone: ZoneId) -> bool {
        let valid = self.valid(zone);
        invariant_or_damage!(
            self.alarm,
            valid == PackUnits::ZERO,
            "zone {zone} is to be reset with {valid:?} valid in it"
        )
    }

    /// How many more zones may keep a host's space.
    fn space_to_keep(&self, media: &Media) -> usize {
        if !media.space_is_hosts() {
            return 0;
        }
        let table = self.lock();
        let kept = table
            .entries
            .iter()
            .filter(|(_, e)| e.keeps_space > Some(SUSPECTED))
            .count();
        let most = table.entries.len().div_ceil(SPACE_KEPT_SHARE as usize);
        most.saturating_sub(kept)
    }

    /// Whether no zone was taken into use since this was last asked.
    pub(crate) fn none_taken_since_asked(&self) -> bool {
        let next = self.lock().next_sequence;
        std::mem::replace(&mut self.resets.lock().asked, next) == next
    }

    /// Of free zones that were in use before, nobody knows after a mount which keep a host's space: a process that was
    /// killed gave none back. They do not count as such, but are given back like them once there is time.
    pub(crate) fn suspect_kept_space(&self, media: &Media) {
        if !media.space_is_hosts() {
            return;
        }
        let mut table = self.lock();
        for zone in table.entries.zones() {
            let entry = table.entries.get(zone);
            let was_used = entry.is_some_and(|entry| entry.is_free() && entry.resets > 0);
            if was_used && let Some(entry) = table.entries.get_mut(zone) {
                entry.keeps_space = Some(SUSPECTED);
            }
        }
    }

    /// Has the host take back the space of all free zones that keep it. False if there are none.
    pub(crate) fn give_space_back(&self, media: &Media, of: Keeping) -> bool {
        // Each search goes on behind the zone that the last one found: of a million none is looked at twice.
        let mut first = 0;
        while let Some(zone) = self.give_back_from(media, of, first) {
            first = zone.0 + 1;
        }
        first > 0
    }

    /// The same of one.
    pub(crate) fn give_a_zones_space_back(&self, media: &Media, of: Keeping) -> bool {
        self.give_back_from(media, of, 0).is_some()
    }

    fn give_back_from(&self, media: &Media, of: Keeping, first: u32) -> Option<ZoneId> {
        if !media.space_is_hosts() {
            return None;
        }
        let mut table = self.lock();
        let keeps = |entry: &ZoneEntry| {
            let is_meant = match of {
                Keeping::Known => entry.keeps_space > Some(SUSPECTED),
                Keeping::Suspected => entry.keeps_space.is_some(),
            };
            is_meant && entry.is_free()
        };
        let mut zones = table.entries.zones_from(first);
        let zone = zones.find(|zone| table.entries.get(*zone).is_some_and(keeps))?;
        // Nobody takes it meanwhile.
        table.take_from_free(zone, &self.budget);
        if let Some(entry) = table.entries.get_mut(zone) {
            entry.close();
            entry.keeps_space = None;
        }
        table.begin_reset(zone, &self.budget);
        self.resets.lock().waiting.push_back(Going {
            zone,
            keeps_space: false,
            was_free: true,
            since: table.next_sequence,
        });
        drop(table);
        self.complete_resets(media);
        Some(zone)
    }

    /// Sends as many resets as the device does at a time, and notes which are over. Waits for none.
    pub(crate) fn start_resets(&self, media: &Media) {
        self.note_ended(media);
        loop {
            let next = self.resets.lock().next(media.resets_at_once());
            let Some(going) = next else {
                return;
            };
            // Sent under no lock: some devices are done with it before they return.
            invariant_holds!(
                self.alarm,
                self.is_in_reset(going.zone) && !self.is_open(going.zone),
                "zone {} is to be reset, and is not in reset or is open",
                going.zone
            );
            let pending = if going.was_free {
                media.discard(going.zone)
            } else {
                media.start_reset(going.zone, going.keeps_space)
            };
            self.look_at(media, going, pending);
        }
    }

    /// Number of resets that ended. Callers read it before they look for room, for [`Zones::complete_a_reset`].
    pub(crate) fn resets_ended(&self) -> u64 {
        self.resets.lock().ended
    }

    /// Waits until more resets have ended than were `seen`, successfully or not. False if no reset is under way or
    /// waiting.
    pub(crate) fn complete_a_reset(&self, media: &Media, seen: u64) -> bool {
        self.start_resets(media);
        let mut queue = self.resets.lock();
        loop {
            if queue.ended != seen {
                return true;
            }
            if let Some((going, pending)) = queue.take_oldest() {
                drop(queue);
                self.note_end(media, going, pending.wait());
                self.start_resets(media);
                return true;
            }
            if queue.in_hand == 0 {
                if queue.waiting.is_empty() {
                    return false;
                }
                // Another thread put it into the queue after this one looked.
                drop(queue);
                self.start_resets(media);
                queue = self.resets.lock();
                continue;
            }
            // Other threads wait for all resets that are under way.
            queue = self.resets.changed.wait(queue);
        }
    }

    /// Waits until no reset is left.
    pub(crate) fn complete_resets(&self, media: &Media) {
        while self.complete_a_reset(media, self.resets_ended()) {}
    }

    /// Waits for the resets that are under way, and sends no others.
    pub(crate) fn complete_resets_under_way(&self, media: &Media) {
        loop {
            let oldest = self.resets.lock().take_oldest();
            let Some((going, pending)) = oldest else {
                return;
            };
            self.note_end(media, going, pending.wait());
        }
    }

    /// Why no zone is free for what must be written: there may be some that would be if the device had reset them.
    pub(crate) fn want_of_zones(&self) -> Error {
        let has_failed_resets = self.indexed().victim_index.reset_failed().next().is_some();
        let failure = self.resets.lock().failure.clone();
        match failure.filter(|_| has_failed_resets) {
            Some(error) => Error::ResetsFail {
                source: Box::new(error),
            },
            None => Error::NoSpace,
        }
    }

    /// Whether a zone is on its way to being free.
    pub(crate) fn is_in_reset(&self, zone: ZoneId) -> bool {
        let table = self.lock();
        let entry = table.entries.get(zone);
        entry.is_some_and(|entry| entry.is_in_reset())
    }

    /// Zones of a device that are being reset, or wait for it.
    pub(crate) fn zones_in_reset(&self, device: DeviceKind) -> u32 {
        self.counts().in_reset(&self.budget.layout, device)
    }

    /// Zones that are taken into use while one is on its way, about: so many more must be free.
    pub(crate) fn taken_in_a_reset(&self) -> u32 {
        let taken = self.resets.lock().taken.div_ceil(16);
        u32::try_from(taken).unwrap_or(u32::MAX)
    }

    /// Takes those off that are over.
    fn note_ended(&self, media: &Media) {
        let under_way = self.resets.lock().under_way.len();
        for _ in 0..under_way {
            let oldest = self.resets.lock().take_oldest();
            let Some((going, pending)) = oldest else {
                return;
            };
            self.look_at(media, going, pending);
        }
    }

    /// Whether one that is in hand is over; if not, it is under way.
    fn look_at(&self, media: &Media, going: Going, pending: Pending) {
        match pending.try_wait() {
            Ok(done) => self.note_end(media, going, done),
            Err(pending) => {
                let mut queue = self.resets.lock();
                queue.let_go(&self.alarm);
                queue.under_way.push_back((going, pending));
                drop(queue);
                self.resets.changed.notify_all();
            }
        }
    }

    /// The reset of a zone is over. Where it failed the zone stays as it is, and the next checkpoint tries
    /// again.
    fn note_end(&self, media: &Media, going: Going, done: Result<Completion, DeviceError>) {
        let zone = going.zone;
        match media.end_reset(zone, done) {
            Ok(()) => {
                let mut table = self.lock();
                if self.has_failed_in(&table, zone) {
                    // It was reset first, or the device says of it what it likes.
                    drop(table);
                    self.not_freed(zone, true);
                    return self.note_over(going);
                }
                invariant_or_damage!(
                    self.alarm,
                    self.valid(zone) == PackUnits::ZERO,
                    "zone {zone} was reset with {:?} valid in it",
                    self.valid(zone)
                );
                invariant_holds!(
                    self.alarm,
                    table
                        .entries
                        .get(zone)
                        .is_none_or(|entry| entry.is_in_reset() && !entry.is_open()),
                    "a reset of zone {zone} has ended that had not begun"
                );
                self.count_deaths(&mut table, zone);
                self.padding.forget(zone);
                self.pins.note_reset(zone);
                table.mark_free(zone, &self.budget, !going.was_free);
                drop(table);
                if !going.was_free {
                    self.trace.push(ZoneEvent::Reset { zone });
                }
            }
            Err(error) => {
                let retired = media
                    .report_zone(zone)
                    .is_some_and(|z| z.state.is_worn_out());
                tracing::warn!(zone = zone.0, retired, %error, "zone could not be reset");
                self.resets.lock().failure = Some(error);
                self.not_freed(zone, retired);
            }
        }
        self.note_over(going);
    }

    fn note_over(&self, going: Going) {
        let next = self.lock().next_sequence;
        invariant_holds!(
            self.alarm,
            next >= going.since,
            "the next zone's sequence is {next}, and was {} before",
            going.since
        );
        let taken = next.saturating_sub(going.since);
        self.resets
            .lock()
            .note_end(&self.alarm, (!going.was_free).then_some(taken));
        self.resets.changed.notify_all();
        self.returned.notify_all();
    }

    /// A zone could not be reset; `retired` if it never can be.
    fn not_freed(&self, zone: ZoneId, retired: bool) {
        let mut table = self.lock();
        table.end_reset(zone, &self.budget);
        if let Some(entry) = table.entries.get_mut(zone) {
            entry.state = State::ResetFailed;
            entry.keeps_space = None;
            let role = entry.role;
            let was_log = role == Role::Log;
            match (retired, was_log) {
                (true, _) => entry.role = Role::Retired,
                // It is out of the log: the next checkpoint tries again.
                (false, true) => entry.role = Role::Free,
                (false, false) => {}
            }
            let stays = entry.role == role;
            if was_log {
                table.forget_log_zone();
            }
            if !stays {
                table.leave_role(zone, role, &self.budget);
            }
        }
        self.count_failed(&table);
    }
}
