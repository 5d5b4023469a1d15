//! Which zones may be used for what. On two devices those of the first hold the log and metadata,
//! those of the second file data; on one device each zone may be anything.
//!
//! A caller that needs free zones asks for those of a device. With one device both kinds are all zones, so a caller
//! that is short of one is short of the other, too. With two, file data depends on metadata (its extents, the
//! journal), and metadata on nothing: the metadata device works like a volume to which nobody writes
//! data, with all its reserves, and the data device reserves one zone for what cleaning moves and no more.

use std::ops::Range;

use persimmon_device::label::LABEL_ZONES;
use persimmon_device::{Geometry, MetadataZones, ZoneId};
use persimmon_format::table::Role;

/// What the zones of a device are for. With one device both kinds are that device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    /// The log and metadata.
    Metadata,
    /// File data.
    Data,
}

/// A number of each device; of one device the same number for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PerDevice<T>([T; 2]);

/// Which zones are on which device.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    zone_count: u32,
    /// None: one device.
    metadata_zones: MetadataZones,
    log_candidates: Vec<u32>,
    /// Those, and what was of the log before the volume got a device for metadata: where a mount looks for it. In order.
    log_places: Vec<u32>,
}

impl Layout {
    pub(crate) fn of(geometry: &Geometry) -> Layout {
        Layout {
            zone_count: geometry.zone_count,
            metadata_zones: geometry.metadata_zones.before(geometry.zone_count),
            log_candidates: geometry.log_candidates(),
            log_places: {
                let mut places = geometry.log_places();
                places.sort_unstable();
                places
            },
        }
    }

    /// Whether there are two devices.
    pub(crate) fn is_split(&self) -> bool {
        !self.metadata_zones.is_none()
    }

    /// The kinds that are different devices.
    pub(crate) fn devices(&self) -> &'static [DeviceKind] {
        if self.is_split() {
            &[DeviceKind::Metadata, DeviceKind::Data]
        } else {
            &[DeviceKind::Data]
        }
    }

    /// How many zones a device has.
    pub(crate) fn zone_count(&self, device: DeviceKind) -> u32 {
        let metadata = self.metadata_zones.count();
        match device {
            _ if !self.is_split() => self.zone_count,
            DeviceKind::Metadata => metadata,
            DeviceKind::Data => {
                let given_up = self.given_up().len() as u32;
                self.zone_count.saturating_sub(metadata + given_up)
            }
        }
    }

    /// Numbers that no device has: where a volume of one device had its last zones, before it got another one for metadata, the label of
    /// the first one is. They look as if they had failed.
    pub(crate) fn given_up(&self) -> Range<u32> {
        let added = Some(&self.metadata_zones).filter(|zones| zones.are_added());
        let first = added.and_then(|zones| zones.runs().first());
        first.map_or(0..0, |run| run.start.saturating_sub(LABEL_ZONES)..run.start)
    }

    /// The device that a zone is on.
    pub(crate) fn device_of(&self, zone: ZoneId) -> DeviceKind {
        if self.metadata_zones.contains(zone.0) {
            DeviceKind::Metadata
        } else {
            DeviceKind::Data
        }
    }

    pub(crate) fn contains(&self, device: DeviceKind, zone: ZoneId) -> bool {
        zone.0 < self.zone_count && (!self.is_split() || self.device_of(zone) == device)
    }

    /// Whether a zone may become one of this role. What a zone holds may have another one, if the volume got a device for metadata
    /// later.
    pub(crate) fn suits(&self, zone: ZoneId, role: Role) -> bool {
        match role {
            Role::Log | Role::Metadata => self.contains(DeviceKind::Metadata, zone),
            Role::Data => self.contains(DeviceKind::Data, zone),
            Role::Free | Role::Retired => true,
        }
    }

    /// Whether a zone is one for data, and what it holds belongs elsewhere.
    pub(crate) fn is_misplaced(&self, zone: ZoneId, role: Role) -> bool {
        !self.suits(zone, role) && self.contains(DeviceKind::Data, zone)
    }

    /// Whether a zone may be of the log.
    pub(crate) fn is_log_candidate(&self, zone: ZoneId) -> bool {
        self.log_candidates.binary_search(&zone.0).is_ok()
    }

    /// Whether a mount looks for the log in a zone.
    pub(crate) fn is_log_place(&self, zone: ZoneId) -> bool {
        self.log_places.binary_search(&zone.0).is_ok()
    }

    /// All of those that may be of the log.
    pub(crate) fn log_candidates(&self) -> impl Iterator<Item = ZoneId> {
        self.log_candidates.iter().copied().map(ZoneId)
    }

    /// Whether all zones of a device may be of the log.
    pub(crate) fn only_log_candidates(&self, device: DeviceKind) -> bool {
        let is_of_log = device == DeviceKind::Metadata || !self.is_split();
        is_of_log && self.log_candidates.len() >= self.zone_count(device) as usize
    }

    /// The number of a device.
    pub(crate) fn get<T: Copy>(&self, numbers: &PerDevice<T>, device: DeviceKind) -> T {
        *self.of_device(numbers, device)
    }

    /// The same where it is not copied.
    pub(crate) fn of_device<'n, T>(&self, numbers: &'n PerDevice<T>, device: DeviceKind) -> &'n T {
        let PerDevice([one, data]) = numbers;
        match device {
            DeviceKind::Data if self.is_split() => data,
            _ => one,
        }
    }

    /// The same, to change it.
    pub(crate) fn get_mut<'n, T>(
        &self,
        numbers: &'n mut PerDevice<T>,
        device: DeviceKind,
    ) -> &'n mut T {
        let PerDevice([one, data]) = numbers;
        match device {
            DeviceKind::Data if self.is_split() => data,
            _ => one,
        }
    }

    /// Sums up by zone.
    pub(crate) fn sums(&self, by_zone: impl Iterator<Item = u64>) -> PerDevice<u64> {
        let mut sums = PerDevice::default();
        for (zone, number) in (0..).map(ZoneId).zip(by_zone) {
            *self.get_mut(&mut sums, self.device_of(zone)) += number;
        }
        sums
    }
}

impl<T: Copy + std::ops::Add<Output = T>> PerDevice<T> {
    /// The sum over both devices. With one device the second number is zero.
    pub(crate) fn total(&self) -> T {
        self.0[0] + self.0[1]
    }
}

impl DeviceKind {
    /// The device that zones of a role are taken from.
    pub(crate) fn of(role: Role) -> DeviceKind {
        match role {
            Role::Data => DeviceKind::Data,
            Role::Log | Role::Metadata | Role::Free | Role::Retired => DeviceKind::Metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(conventional_zones: u32, metadata_zones: MetadataZones) -> Geometry {
        Geometry {
            zone_count: 200,
            zone_blocks: 64,
            conventional_zones,
            metadata_zones,
            max_open: None,
            max_active: None,
            max_transfer_blocks: 256,
            max_append_blocks: 256,
            volatile_cache: true,
            write_pointer_is_proof: false,
            stripes: None,
        }
    }

    fn layout(conventional_zones: u32, metadata_zones: u32) -> Layout {
        let metadata_zones = MetadataZones::first(metadata_zones);
        Layout::of(&geometry(conventional_zones, metadata_zones))
    }

    #[test]
    fn one_device_is_both() {
        let layout = layout(10, 0);
        assert_eq!(layout.zone_count(DeviceKind::Metadata), 200);
        assert_eq!(layout.zone_count(DeviceKind::Data), 200);
        let sums = layout.sums(std::iter::repeat_n(1, 200));
        assert_eq!(layout.get(&sums, DeviceKind::Metadata), 200);
        assert_eq!(layout.get(&sums, DeviceKind::Data), 200);
        assert_eq!(sums.total(), 200);
        let candidates = |zone| layout.is_log_candidate(ZoneId(zone));
        assert!(!candidates(9) && candidates(10) && candidates(73) && !candidates(74));
        assert!(!layout.only_log_candidates(DeviceKind::Metadata));
    }

    #[test]
    fn two_devices_have_two() {
        let layout = layout(0, 40);
        let sums = layout.sums(std::iter::repeat_n(1, 200));
        assert_eq!(layout.get(&sums, DeviceKind::Metadata), 40);
        assert_eq!(layout.get(&sums, DeviceKind::Data), 160);
        assert_eq!(sums.total(), 200);
        assert_eq!(layout.device_of(ZoneId(39)), DeviceKind::Metadata);
        assert_eq!(layout.device_of(ZoneId(40)), DeviceKind::Data);
        assert!(layout.is_log_candidate(ZoneId(39)) && !layout.is_log_candidate(ZoneId(40)));
        assert!(layout.only_log_candidates(DeviceKind::Metadata));
        assert!(!layout.contains(DeviceKind::Data, ZoneId(39)));
        assert!(layout.given_up().is_empty());
    }

    /// A volume of 40 zones got a device of 60 for metadata, and then both got more.
    #[test]
    fn zones_that_were_given_up_for_a_label_are_none() {
        let geometry = geometry(0, MetadataZones::of([40..100, 120..130]));
        let added = Layout::of(&geometry);
        assert_eq!(added.given_up(), 38..40);
        assert_eq!(added.zone_count(DeviceKind::Metadata), 70);
        assert_eq!(added.zone_count(DeviceKind::Data), 200 - 70 - 2);
        // Until it grows it does not know of the other device.
        let before = Layout::of(&geometry.first(40));
        assert!(!before.is_split() && before.given_up().is_empty());
        assert_eq!(before.zone_count(DeviceKind::Data), 40);
    }
}
