//! What moving compressed frames has left between them. They are moved a bounded number at a time, and what is placed at once ends with a
//! block that is not full. Moving them again wins nothing of that: of many small pieces cleaning would never have an end.

use persimmon_device::ZoneId;
use persimmon_device::per_zone::ZoneCells;
use persimmon_format::packed::PackUnits;
use persimmon_sync::atomic::{AtomicU64, Ordering};

/// In each zone, since the volume was opened.
pub(super) struct Padding(ZoneCells<AtomicU64>);

impl Padding {
    pub(super) fn none(zones: usize) -> Padding {
        Padding(ZoneCells::new(zones))
    }

    pub(super) fn add(&self, zone: ZoneId, PackUnits(units): PackUnits) {
        if units > 0
            && let Some(padding) = self.0.make(zone.0 as usize)
        {
            padding.fetch_add(units, Ordering::Relaxed);
        }
    }

    pub(super) fn of(&self, zone: ZoneId) -> PackUnits {
        let padding = self.0.get(zone.0 as usize);
        PackUnits(padding.map_or(0, |padding| padding.load(Ordering::Relaxed)))
    }

    /// The zone is free.
    pub(super) fn forget(&self, zone: ZoneId) {
        if let Some(padding) = self.0.get(zone.0 as usize) {
            padding.store(0, Ordering::Relaxed);
        }
    }
}
