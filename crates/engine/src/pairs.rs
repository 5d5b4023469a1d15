//! Pairs: on a volume with two copies each zone of the log and of metadata has a partner that
//! holds the same blocks. Addresses name the first of the two, the one with the smaller number.

use persimmon_sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use persimmon_device::ZoneId;
use persimmon_device::per_zone::ZoneCells;

/// Which zones are partners.
#[derive(Clone, Debug)]
pub(crate) struct Pairs(Arc<ZoneCells<AtomicU32>>);

impl Pairs {
    /// Of so many zones; none has a partner.
    pub(crate) fn new(zones: u32) -> Pairs {
        Pairs(Arc::new(ZoneCells::new(zones as usize)))
    }

    fn slot(&self, zone: ZoneId) -> Option<&AtomicU32> {
        self.0.get(zone.0 as usize)
    }

    /// The zone that holds the same.
    pub(crate) fn partner(&self, zone: ZoneId) -> Option<ZoneId> {
        // One more than the partner's number is stored.
        self.slot(zone)?
            .load(Ordering::Acquire)
            .checked_sub(1)
            .map(ZoneId)
    }

    /// Makes two zones a pair.
    pub(crate) fn join(&self, one: ZoneId, other: ZoneId) {
        for (zone, partner) in [(one, other), (other, one)] {
            if let Some(slot) = self.0.make(zone.0 as usize) {
                slot.store(partner.0.saturating_add(1), Ordering::Release);
            }
        }
    }

    /// Makes a zone and its partner, if it has one, zones like others. Returns the partner.
    pub(crate) fn separate(&self, zone: ZoneId) -> Option<ZoneId> {
        let partner = self.partner(zone)?;
        for zone in [zone, partner] {
            if let Some(slot) = self.slot(zone) {
                slot.store(0, Ordering::Release);
            }
        }
        Some(partner)
    }

    /// The zone that addresses name.
    pub(crate) fn first(&self, zone: ZoneId) -> ZoneId {
        self.partner(zone).map_or(zone, |partner| zone.min(partner))
    }

    /// Whether a zone stands in for another.
    pub(crate) fn is_second(&self, zone: ZoneId) -> bool {
        self.first(zone) != zone
    }

    /// A zone and its partner.
    pub(crate) fn both(&self, zone: ZoneId) -> impl Iterator<Item = ZoneId> {
        std::iter::once(zone).chain(self.partner(zone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partners_name_the_first() {
        let pairs = Pairs::new(8);
        pairs.join(ZoneId(5), ZoneId(2));
        assert_eq!(pairs.partner(ZoneId(2)), Some(ZoneId(5)));
        assert_eq!(pairs.first(ZoneId(5)), ZoneId(2));
        assert!(pairs.is_second(ZoneId(5)) && !pairs.is_second(ZoneId(2)));
        assert_eq!(pairs.first(ZoneId(4)), ZoneId(4));
        assert_eq!(pairs.separate(ZoneId(5)), Some(ZoneId(2)));
        assert_eq!(pairs.partner(ZoneId(2)), None);
        assert_eq!(pairs.separate(ZoneId(2)), None);
        // Past the end of the device there is nothing.
        assert_eq!(pairs.partner(ZoneId(8)), None);
    }
}
