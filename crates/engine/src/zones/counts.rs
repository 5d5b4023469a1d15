//! How much of each zone something refers to. It is counted in packing units, because packed extents share blocks.

use persimmon_sync::Alarm;
use persimmon_sync::atomic::{AtomicBool, AtomicU64, Ordering};

use persimmon_device::ZoneId;
use persimmon_device::per_zone::ZoneCells;
use persimmon_format::packed::PackUnits;
use persimmon_format::table::{Role, ZitEntry};

use super::entries::Touched;
use crate::faults::{Fault, fault};
use crate::invariant::invariant_or_damage;

/// Set in the count of a zone from which more was taken than it had: somewhere blocks are live that it does not count.
/// From then on it counts one packing unit at least, so that the zone is never taken for empty, until somebody counts anew.
const MISCOUNTED: u64 = 1 << 63;

/// Valid counts of all zones.
pub(super) struct ValidCounts {
    zones: ZoneCells<AtomicU64>,
    /// Of all zones, in file data.
    data: AtomicU64,
    /// And in metadata, with all copies.
    metadata: AtomicU64,
    /// Zones that hold each block of metadata; counted is what the first of them has.
    copies: u64,
    touched: Touched,
    /// What contradicts the counts stops the volume. Not while replay applies records that the zone table has counted
    /// already, nor where a repair counts anew: what the counts are then is overwritten.
    are_complete: AtomicBool,
    alarm: Alarm,
}

/// What zones count, added up one by one.
#[derive(Default)]
pub(super) struct Sums {
    data: u64,
    metadata: u64,
}

impl Sums {
    pub(super) fn add(&mut self, role: Role, PackUnits(units): PackUnits) {
        match role {
            Role::Metadata => self.metadata += units,
            _ => self.data += units,
        }
    }
}

impl ValidCounts {
    /// As these entries have them.
    pub(super) fn new<'e>(
        zones: usize,
        entries: impl Iterator<Item = &'e ZitEntry>,
        copies: u32,
        touched: Touched,
        alarm: &Alarm,
    ) -> ValidCounts {
        let counts = ValidCounts {
            zones: ZoneCells::new(zones),
            data: AtomicU64::new(0),
            metadata: AtomicU64::new(0),
            copies: copies.into(),
            touched,
            are_complete: AtomicBool::new(true),
            alarm: alarm.clone(),
        };
        counts.set_all(entries);
        counts
    }

    /// As these entries have them, whatever was counted before: for zones that were in another use by then too.
    pub(super) fn set_all<'e>(&self, entries: impl Iterator<Item = &'e ZitEntry>) {
        let (mut data, mut metadata) = (0, 0);
        for (zone, entry) in (0..).map(ZoneId).zip(entries) {
            let PackUnits(units) = entry.pack_units();
            if self.stored(zone) != units {
                let valid = self.zones.make(zone.0 as usize);
                valid.inspect(|valid| valid.store(units, Ordering::Relaxed));
                self.touched.touch(zone);
            }
            match entry.role {
                Role::Metadata => metadata += units * self.copies,
                _ => data += units,
            }
        }
        self.data.store(data, Ordering::Relaxed);
        self.metadata.store(metadata, Ordering::Relaxed);
    }

    /// Whether the counts are all there is: what contradicts them stops the volume.
    pub(super) fn set_complete(&self, are_complete: bool) {
        self.are_complete.store(are_complete, Ordering::Relaxed);
    }

    /// What is valid in a zone.
    pub(super) fn of(&self, zone: ZoneId) -> PackUnits {
        match self.stored(zone) {
            count if count & MISCOUNTED != 0 => PackUnits((count & !MISCOUNTED).max(1)),
            count => PackUnits(count),
        }
    }

    fn stored(&self, zone: ZoneId) -> u64 {
        let valid = self.zones.get(zone.0 as usize);
        valid.map_or(0, |valid| valid.load(Ordering::Acquire))
    }

    /// What is valid in all zones of metadata, with all copies; or in all others.
    pub(super) fn live(&self, role: Role) -> PackUnits {
        let (live, _) = self.live_of(role);
        PackUnits(live.load(Ordering::Relaxed))
    }

    /// So much more of a zone in this role is referenced.
    pub(super) fn add(&self, role: Role, zone: ZoneId, PackUnits(units): PackUnits) {
        if let Some(valid) = self.zones.make(zone.0 as usize) {
            let (live, copies) = self.live_of(role);
            valid.fetch_add(units, Ordering::Relaxed);
            self.touched.touch(zone);
            live.fetch_add(units * copies, Ordering::Relaxed);
        }
    }

    /// So much less. Where the zone counts too little for that it keeps what it counts: were it clamped to nothing, the
    /// zone would look empty, and the next checkpoint would reset it with live data in it.
    pub(super) fn sub(&self, role: Role, zone: ZoneId, PackUnits(units): PackUnits) {
        let Some(valid) = self.zones.get(zone.0 as usize) else {
            return;
        };
        let taken = units + u64::from(role == Role::Data && fault(Fault::ValidMiscounted));
        let less = |count: u64| {
            let is_miscounted = count & MISCOUNTED != 0;
            let left = (!is_miscounted).then(|| count.checked_sub(taken));
            left.flatten()
        };
        let before = valid.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        self.touched.touch(zone);
        match before {
            Ok(_) => {
                let (live, copies) = self.live_of(role);
                self.sub_live(role, live, units * copies);
            }
            Err(count) => {
                valid.fetch_or(MISCOUNTED, Ordering::Relaxed);
                let is_complete = self.are_complete.load(Ordering::Relaxed);
                let count = count & !MISCOUNTED;
                invariant_or_damage!(
                    self.alarm,
                    !is_complete,
                    "zone {zone} counts {count} valid packing units, and {units} more become invalid ({role:?})"
                );
            }
        }
    }

    /// So much of a zone in this role is referenced, whatever was counted before.
    pub(super) fn set(&self, role: Role, zone: ZoneId, PackUnits(units): PackUnits) {
        if let Some(valid) = self.zones.make(zone.0 as usize) {
            let (live, copies) = self.live_of(role);
            let before = valid.swap(units, Ordering::Relaxed) & !MISCOUNTED;
            self.touched.touch(zone);
            live.fetch_add(units * copies, Ordering::Relaxed);
            self.sub_live(role, live, before * copies);
        }
    }

    /// Whether the counts of all zones, as those in their roles have them, are those of all together. Nobody counts
    /// meanwhile. A zone whose count is too low would be reset with live data in it.
    pub(super) fn agree(&self, sums: Sums) -> bool {
        let Sums { data, metadata } = sums;
        let metadata = metadata * self.copies;
        let (of_data, of_metadata) = (self.live(Role::Data).0, self.live(Role::Metadata).0);
        invariant_or_damage!(
            self.alarm,
            (data, metadata) == (of_data, of_metadata)
                || !self.are_complete.load(Ordering::Relaxed),
            "the zones count {data} valid packing units of data and {metadata} of metadata, all together {of_data} and {of_metadata}"
        )
    }

    fn sub_live(&self, role: Role, live: &AtomicU64, less: u64) {
        let before = live.fetch_sub(less, Ordering::Relaxed);
        let is_complete = self.are_complete.load(Ordering::Relaxed);
        invariant_or_damage!(
            self.alarm,
            before >= less || !is_complete,
            "all zones count {before} valid packing units ({role:?}), and {less} become invalid"
        );
    }

    /// Where live packing units of a role are counted, and how often.
    fn live_of(&self, role: Role) -> (&AtomicU64, u64) {
        match role {
            Role::Metadata => (&self.metadata, self.copies),
            _ => (&self.data, 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(alarm: &Alarm) -> ValidCounts {
        let entries = [ZitEntry {
            role: Role::Data,
            valid: 2,
            ..ZitEntry::default()
        }];
        ValidCounts::new(1, entries.iter(), 1, Touched::none(1), alarm)
    }

    /// The count was clamped to nothing: the zone looked empty, and the next checkpoint reset it with live data in it.
    #[test]
    fn a_zone_that_counts_too_little_never_looks_empty() {
        let alarm = Alarm::default();
        let counts = counts(&alarm);
        let (zone, block) = (ZoneId(0), PackUnits::of_blocks(1));
        counts.sub(Role::Data, zone, block);
        assert!(!alarm.is_raised());
        counts.sub(Role::Data, zone, PackUnits::of_blocks(2));
        assert!(alarm.is_raised());
        assert_eq!(counts.of(zone), block);
        for _ in 0..3 {
            counts.sub(Role::Data, zone, block);
            assert!(counts.of(zone) > PackUnits::ZERO);
        }
        assert_eq!(counts.live(Role::Data), block);
        // Whoever counts anew knows better.
        counts.set(Role::Data, zone, PackUnits::ZERO);
        assert_eq!(counts.of(zone), PackUnits::ZERO);
        assert_eq!(counts.live(Role::Data), PackUnits::ZERO);
    }

    #[test]
    fn counts_that_are_not_complete_yet_contradict_nothing() {
        let alarm = Alarm::default();
        let counts = counts(&alarm);
        counts.set_complete(false);
        counts.sub(Role::Data, ZoneId(0), PackUnits::of_blocks(3));
        assert!(!alarm.is_raised());
        assert!(counts.of(ZoneId(0)) > PackUnits::ZERO);
    }
}
