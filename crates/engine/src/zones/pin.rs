//! Pins: a pinned zone is neither reset nor cleaned. Readers pin while they read outside the
//! metadata lock, writers while what they wrote is not in the tree yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use persimmon_device::ZoneId;

/// Counts of pins, by zone.
#[derive(Clone, Debug)]
pub(crate) struct Pins(Arc<[AtomicU32]>);

impl Pins {
    pub(crate) fn new(zones: u32) -> Pins {
        Pins((0..zones).map(|_| AtomicU32::new(0)).collect())
    }

    /// Pins a zone. Call it while the address is known to be current: under the metadata lock,
    /// or before it is published there.
    pub(crate) fn pin(&self, zone: ZoneId) -> Option<Pin> {
        self.0.get(zone.0 as usize)?.fetch_add(1, Ordering::AcqRel);
        Some(Pin {
            pins: self.clone(),
            zone,
        })
    }

    pub(crate) fn count(&self, zone: ZoneId) -> u32 {
        let count = self.0.get(zone.0 as usize);
        count.map_or(0, |count| count.load(Ordering::Acquire))
    }

    pub(crate) fn is_pinned(&self, zone: ZoneId) -> bool {
        self.count(zone) > 0
    }
}

/// Holds a zone until dropped.
#[derive(Debug)]
pub(crate) struct Pin {
    pins: Pins,
    zone: ZoneId,
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let Some(count) = self.pins.0.get(self.zone.0 as usize) {
            count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
