//! What is known of each zone, and which of them changed since somebody looked.

use std::num::NonZeroU32;

use persimmon_sync::atomic::{AtomicU64, Ordering};
use persimmon_sync::{Arc, Mutex, MutexGuard};

use persimmon_device::ZoneId;
use persimmon_device::per_zone::PerZone;
use persimmon_format::packed::PackUnits;
use persimmon_format::table::Role;

use super::failure::ZoneFailure;
use super::lifetime::Life;

/// There is one for every zone, so it is kept small.
const _: () = assert!(size_of::<ZoneEntry>() == 56);

/// What is done with a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing was written to it since its last reset.
    #[default]
    Empty,
    /// A writer of it exists.
    Open,
    /// Something was written to it, and nobody writes to it.
    Closed,
    /// It is being reset, or waits for it.
    InReset,
    /// As closed; its last reset failed.
    ResetFailed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ZoneEntry {
    pub(super) role: Role,
    pub(super) lifetime: u8,
    pub(super) write_pointer: u32,
    pub(super) capacity: u32,
    pub(super) resets: u32,
    pub(super) sequence: u64,
    pub(super) last_write: u64,
    /// Of the blocks in it, on average; of data zones [`Life::born`] is `last_write` in the ZIT.
    pub(super) life: Life,
    pub(super) state: State,
    /// It is free, or on its way, and the host keeps its space for it: since this one of such resets.
    pub(super) keeps_space: Option<NonZeroU32>,
    /// It has failed for good.
    pub(super) failure: Option<ZoneFailure>,
    /// Something in it is left only once of what is to survive the loss of any zone: it is to be emptied.
    pub(super) lacks_redundancy: bool,
}

impl ZoneEntry {
    /// Nothing valid is in it, and nothing goes into it: a checkpoint can free it.
    pub(super) fn is_reclaimable(&self, valid: PackUnits) -> bool {
        matches!(self.state, State::Closed | State::ResetFailed)
            && valid == PackUnits::ZERO
            && !matches!(self.role, Role::Log | Role::Retired)
    }

    /// A writer of it exists.
    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// The device does not say it is empty.
    pub(super) fn is_used(&self) -> bool {
        self.state != State::Empty
    }

    /// It is being reset, or waits for it.
    pub(super) fn is_in_reset(&self) -> bool {
        self.state == State::InReset
    }

    /// Nobody writes to it any more.
    pub(super) fn close(&mut self) {
        if matches!(self.state, State::Empty | State::Open) {
            self.state = State::Closed;
        }
    }

    /// It can be taken into use.
    pub(super) fn is_free(&self) -> bool {
        self.role == Role::Free && !self.is_used() && self.capacity > 0
    }
}

/// The entries of all zones. Whoever changes one touches it.
pub(super) struct Entries {
    list: PerZone<ZoneEntry>,
    touched: Touched,
}

impl Entries {
    pub(super) fn new(list: PerZone<ZoneEntry>, touched: Touched) -> Entries {
        Entries { list, touched }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// All zones there are.
    pub(super) fn zones(&self) -> impl Iterator<Item = ZoneId> + use<> {
        self.zones_from(0)
    }

    /// Those from this one on.
    pub(super) fn zones_from(&self, first: u32) -> impl Iterator<Item = ZoneId> + use<> {
        (first..self.list.len() as u32).map(ZoneId)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ZoneId, &ZoneEntry)> {
        self.zones().zip(self.list.iter())
    }

    pub(super) fn get(&self, zone: ZoneId) -> Option<&ZoneEntry> {
        self.list.get(zone.0 as usize)
    }

    pub(super) fn get_mut(&mut self, zone: ZoneId) -> Option<&mut ZoneEntry> {
        self.touched.touch(zone);
        self.list.get_mut(zone.0 as usize)
    }
}

/// Zones of which something changed since they were taken. They are as many as were changed, however
/// many there are.
#[derive(Clone, Debug)]
pub(super) struct Touched(Arc<Marks>);

#[derive(Debug)]
struct Marks {
    zones: u32,
    /// A bit for each zone.
    is_listed: Box<[AtomicU64]>,
    list: Mutex<Vec<ZoneId>>,
}

impl Touched {
    /// Of so many zones; none is touched.
    pub(super) fn none(zones: u32) -> Touched {
        Touched(Arc::new(Marks {
            zones,
            is_listed: (0..zones.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            list: Mutex::default(),
        }))
    }

    /// The word that a zone has a bit of, and that bit.
    fn mark(&self, ZoneId(zone): ZoneId) -> Option<(&AtomicU64, u64)> {
        let word = self.0.is_listed.get(zone as usize / 64);
        let word = word.filter(|_| zone < self.0.zones)?;
        Some((word, 1 << (zone % 64)))
    }

    fn list(&self) -> MutexGuard<'_, Vec<ZoneId>> {
        self.0.list.lock()
    }

    /// Something of a zone has changed, or is about to under a lock that who takes the zones holds.
    pub(super) fn touch(&self, zone: ZoneId) {
        // What came before this is seen by who takes the zone, whether it is listed now or was before.
        if let Some((word, bit)) = self.mark(zone)
            && word.fetch_or(bit, Ordering::AcqRel) & bit == 0
        {
            self.list().push(zone);
        }
    }

    /// Takes those that were touched. Changes from here on touch them again.
    pub(super) fn take(&self) -> Vec<ZoneId> {
        let zones = std::mem::take(&mut *self.list());
        for zone in &zones {
            if let Some((word, bit)) = self.mark(*zone) {
                word.fetch_and(!bit, Ordering::AcqRel);
            }
        }
        zones
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_listed_once_and_again_after_it_was_taken() {
        let touched = Touched::none(4);
        assert!(touched.take().is_empty());
        for zone in [2, 1, 2, 2, 9] {
            touched.touch(ZoneId(zone));
        }
        assert_eq!(touched.take(), [ZoneId(2), ZoneId(1)]);
        touched.touch(ZoneId(2));
        assert_eq!(touched.take(), [ZoneId(2)]);
    }
}
