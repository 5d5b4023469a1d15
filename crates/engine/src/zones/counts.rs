//! How much of each zone something refers to. It is counted in grains, for packed pieces share blocks; who wants blocks asks for them.

use persimmon_sync::atomic::{AtomicU64, Ordering};

use persimmon_device::ZoneId;
use persimmon_device::per_zone::ZoneCells;
use persimmon_format::packed::Grains;
use persimmon_format::table::{Role, ZitEntry};

use super::entries::Touched;

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
}

impl ValidCounts {
    /// As these entries have them.
    pub(super) fn new<'e>(
        zones: usize,
        entries: impl Iterator<Item = &'e ZitEntry>,
        copies: u32,
        touched: Touched,
    ) -> ValidCounts {
        let counts = ValidCounts {
            zones: ZoneCells::new(zones),
            data: AtomicU64::new(0),
            metadata: AtomicU64::new(0),
            copies: copies.into(),
            touched,
        };
        counts.set_all(entries);
        counts
    }

    /// As these entries have them, whatever was counted before: for zones that were in another use by then too.
    pub(super) fn set_all<'e>(&self, entries: impl Iterator<Item = &'e ZitEntry>) {
        let (mut data, mut metadata) = (0, 0);
        for (zone, entry) in (0..).map(ZoneId).zip(entries) {
            let Grains(grains) = entry.grains();
            if self.of(zone) != Grains(grains) {
                let valid = self.zones.make(zone.0 as usize);
                valid.inspect(|valid| valid.store(grains, Ordering::Relaxed));
                self.touched.touch(zone);
            }
            match entry.role {
                Role::Metadata => metadata += grains * self.copies,
                _ => data += grains,
            }
        }
        self.data.store(data, Ordering::Relaxed);
        self.metadata.store(metadata, Ordering::Relaxed);
    }

    /// What is valid in a zone.
    pub(super) fn of(&self, zone: ZoneId) -> Grains {
        let valid = self.zones.get(zone.0 as usize);
        Grains(valid.map_or(0, |valid| valid.load(Ordering::Acquire)))
    }

    /// What is valid in all zones of metadata, with all copies; or in all others.
    pub(super) fn live(&self, role: Role) -> Grains {
        let (live, _) = self.live_of(role);
        Grains(live.load(Ordering::Relaxed))
    }

    /// So much more of a zone in this role is referenced.
    pub(super) fn add(&self, role: Role, zone: ZoneId, Grains(grains): Grains) {
        if let Some(valid) = self.zones.make(zone.0 as usize) {
            let (live, copies) = self.live_of(role);
            valid.fetch_add(grains, Ordering::Relaxed);
            self.touched.touch(zone);
            live.fetch_add(grains * copies, Ordering::Relaxed);
        }
    }

    /// So much less.
    pub(super) fn sub(&self, role: Role, zone: ZoneId, Grains(grains): Grains) {
        if let Some(valid) = self.zones.get(zone.0 as usize) {
            let (live, copies) = self.live_of(role);
            // A damaged table may count too few: a count that wrapped would make the zone look full.
            let less = |count: u64| Some(count.saturating_sub(grains));
            let before = valid.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            let less = before.unwrap_or_default().min(grains) * copies;
            self.touched.touch(zone);
            live.fetch_sub(less, Ordering::Relaxed);
        }
    }

    /// So much of a zone in this role is referenced, whatever was counted before.
    pub(super) fn set(&self, role: Role, zone: ZoneId, Grains(grains): Grains) {
        if let Some(valid) = self.zones.make(zone.0 as usize) {
            let (live, copies) = self.live_of(role);
            let before = valid.swap(grains, Ordering::Relaxed);
            self.touched.touch(zone);
            live.fetch_add(grains * copies, Ordering::Relaxed);
            live.fetch_sub(before * copies, Ordering::Relaxed);
        }
    }

    /// Where live grains of a role are counted, and how often.
    fn live_of(&self, role: Role) -> (&AtomicU64, u64) {
        match role {
            Role::Metadata => (&self.metadata, self.copies),
            _ => (&self.data, 1),
        }
    }
}
