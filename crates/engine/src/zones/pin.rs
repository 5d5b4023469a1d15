//! Pins. Readers pin a zone while they read outside the metadata lock: it is not reset meanwhile.
//! Its blocks may move: where they were they stay as they are. Who fills a zone pins it while what
//! was written is not in the tree yet: such a zone is not cleaned either, nor does a cut take it
//! for one that holds nothing.
//!
//! While it holds a pin a reader waits for the device, and for the metadata lock where it needs a dictionary: who waits for readers holds
//! neither.

use persimmon_sync::atomic::{AtomicU32, Ordering};
use persimmon_sync::{Alarm, Arc, Condvar, Mutex};

use persimmon_device::ZoneId;
use persimmon_device::per_zone::ZoneCells;

use super::entries::Touched;
use crate::faults::{Fault, fault};
use crate::invariant::invariant_holds;

#[derive(Debug, Default)]
struct Count {
    readers: AtomicU32,
    filling: AtomicU32,
    /// Times it was reset since the volume was opened.
    resets: AtomicU32,
}

#[derive(Debug)]
struct PinCounts {
    zones: ZoneCells<Count>,
    /// Threads that wait for readers.
    waiting: AtomicU32,
    lock: Mutex<()>,
    /// Zones of which it changed whether they are being filled.
    touched: Touched,
    changed: Condvar,
    alarm: Alarm,
}

/// Counts of pins, by zone.
#[derive(Clone, Debug)]
pub(crate) struct Pins(Arc<PinCounts>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reads,
    Fills,
}

impl Count {
    fn of(&self, kind: Kind) -> &AtomicU32 {
        match kind {
            Kind::Reads => &self.readers,
            Kind::Fills => &self.filling,
        }
    }
}

impl Pins {
    pub(super) fn new(zones: u32, touched: Touched, alarm: &Alarm) -> Pins {
        Pins(Arc::new(PinCounts {
            zones: ZoneCells::new(zones as usize),
            waiting: AtomicU32::new(0),
            lock: Mutex::new(()),
            touched,
            changed: Condvar::new(),
            alarm: alarm.clone(),
        }))
    }

    fn count(&self, zone: ZoneId, kind: Kind) -> Option<&AtomicU32> {
        Some(self.0.zones.get(zone.0 as usize)?.of(kind))
    }

    fn add(&self, zone: ZoneId, kind: Kind) -> Option<Pin> {
        let count = self.0.zones.make(zone.0 as usize)?;
        let others = count.of(kind).fetch_add(1, Ordering::SeqCst);
        invariant_holds!(
            self.0.alarm,
            others < u32::MAX / 2,
            "zone {zone} has {others} pins ({kind:?})"
        );
        if kind == Kind::Fills && others == 0 {
            self.0.touched.touch(zone);
        }
        Some(Pin {
            pins: self.clone(),
            zone,
            kind,
        })
    }

    /// For a reader. Call it while the address is known to be current: under the metadata lock.
    pub(crate) fn pin(&self, zone: ZoneId) -> Option<Pin> {
        self.add(zone, Kind::Reads)
    }

    /// For who fills the zone. Call it before the address is published in the tree.
    pub(crate) fn pin_filling(&self, zone: ZoneId) -> Option<Pin> {
        self.add(zone, Kind::Fills)
    }

    /// A zone was reset: what its blocks hold from now on is something else.
    pub(super) fn note_reset(&self, zone: ZoneId) {
        if let Some(count) = self.0.zones.make(zone.0 as usize) {
            count.resets.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn is_pinned(&self, zone: ZoneId, kind: Kind) -> bool {
        let count = self.count(zone, kind);
        count.is_some_and(|count| count.load(Ordering::SeqCst) > 0)
    }

    pub(crate) fn is_read(&self, zone: ZoneId) -> bool {
        self.is_pinned(zone, Kind::Reads)
    }

    pub(crate) fn is_filled(&self, zone: ZoneId) -> bool {
        self.is_pinned(zone, Kind::Fills) && !fault(Fault::FillingNotSeen)
    }

    /// Waits while `condition` holds, which readers can end.
    pub(crate) fn wait_while(&self, condition: impl Fn() -> bool) {
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
        let lock = self.0.lock.lock();
        drop(self.0.changed.wait_while(lock, |()| condition()));
        let waited = self.0.waiting.fetch_sub(1, Ordering::SeqCst);
        invariant_holds!(
            self.0.alarm,
            waited > 0,
            "{waited} wait for readers of zones, and one less"
        );
    }
}

/// Holds a zone until dropped.
#[derive(Debug)]
pub(crate) struct Pin {
    pins: Pins,
    zone: ZoneId,
    kind: Kind,
}

impl Pin {
    /// How often its zone was reset since the volume was opened; as long as this lives that does not change.
    pub(crate) fn resets(&self) -> u32 {
        let count = self.pins.0.zones.get(self.zone.0 as usize);
        count.map_or(0, |count| count.resets.load(Ordering::SeqCst))
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let counts = &self.pins.0;
        if let Some(count) = self.pins.count(self.zone, self.kind) {
            let before = count.fetch_sub(1, Ordering::SeqCst);
            let (zone, kind) = (self.zone, self.kind);
            invariant_holds!(
                counts.alarm,
                before > 0,
                "zone {zone} had {before} pins ({kind:?}), and one is taken back"
            );
            if self.kind == Kind::Fills && before == 1 {
                counts.touched.touch(self.zone);
            }
        }
        if self.kind == Kind::Reads && counts.waiting.load(Ordering::SeqCst) > 0 {
            let _lock = counts.lock.lock();
            counts.changed.notify_all();
        }
    }
}
