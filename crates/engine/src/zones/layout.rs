//! Which zones may be used for what. On two devices those of the first hold the log and metadata,
//! those of the second file data; on one device each zone may be anything.
//!
//! What needs free zones asks for those of a part. With one device both parts are all zones, so who
//! is short of one is short of the other too; with two, file data leans on metadata (its extents, the
//! journal), and metadata on nothing: the first part is run as a volume is to which nobody writes
//! data, with all its reserves, and data keeps a zone for what cleaning moves and no more.

use std::ops::Range;

use persimmon_device::{Geometry, ZoneId};
use persimmon_format::table::Role;

/// What zones are free for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The log and metadata.
    Metadata,
    /// File data.
    Data,
}

/// A number of each part; of one device the same number for both.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PerPart<T>([T; 2]);

/// Where the parts are.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    zone_count: u32,
    /// 0: one device.
    metadata_zones: u32,
    log_candidates: Range<u32>,
}

impl Layout {
    pub(crate) fn of(geometry: &Geometry) -> Layout {
        Layout {
            zone_count: geometry.zone_count,
            metadata_zones: geometry.metadata_zones.min(geometry.zone_count),
            log_candidates: geometry.log_candidates(),
        }
    }

    /// Whether there are two devices.
    pub(crate) fn is_split(&self) -> bool {
        self.metadata_zones > 0
    }

    /// The parts that are not the same.
    pub(crate) fn parts(&self) -> &'static [Part] {
        match self.is_split() {
            true => &[Part::Metadata, Part::Data],
            false => &[Part::Data],
        }
    }

    /// Zones of a part.
    pub(crate) fn zones(&self, part: Part) -> Range<u32> {
        match part {
            _ if !self.is_split() => 0..self.zone_count,
            Part::Metadata => 0..self.metadata_zones,
            Part::Data => self.metadata_zones..self.zone_count,
        }
    }

    /// The part that a zone is in.
    pub(crate) fn part_of(&self, zone: ZoneId) -> Part {
        match zone.0 < self.metadata_zones {
            true => Part::Metadata,
            false => Part::Data,
        }
    }

    pub(crate) fn contains(&self, part: Part, zone: ZoneId) -> bool {
        self.zones(part).contains(&zone.0)
    }

    /// Whether a zone may be of the log.
    pub(crate) fn is_log_candidate(&self, zone: ZoneId) -> bool {
        self.log_candidates.contains(&zone.0)
    }

    /// All of those.
    pub(crate) fn log_candidates(&self) -> Range<u32> {
        self.log_candidates.clone()
    }

    /// Whether all zones of a part may be of the log.
    pub(crate) fn only_log_candidates(&self, part: Part) -> bool {
        let zones = self.zones(part);
        self.log_candidates.start <= zones.start && zones.end <= self.log_candidates.end
    }

    /// The number of a part.
    pub(crate) fn get<T: Copy>(&self, numbers: &PerPart<T>, part: Part) -> T {
        *self.of_part(numbers, part)
    }

    /// The same where it is not copied.
    pub(crate) fn of_part<'n, T>(&self, numbers: &'n PerPart<T>, part: Part) -> &'n T {
        let PerPart([one, data]) = numbers;
        match part {
            Part::Data if self.is_split() => data,
            _ => one,
        }
    }

    /// The same, to change it.
    pub(crate) fn get_mut<'n, T>(&self, numbers: &'n mut PerPart<T>, part: Part) -> &'n mut T {
        let PerPart([one, data]) = numbers;
        match part {
            Part::Data if self.is_split() => data,
            _ => one,
        }
    }

    /// Sums up by zone.
    pub(crate) fn sums(&self, by_zone: impl Iterator<Item = u64>) -> PerPart<u64> {
        let mut sums = PerPart::default();
        for (zone, number) in (0..).map(ZoneId).zip(by_zone) {
            *self.get_mut(&mut sums, self.part_of(zone)) += number;
        }
        sums
    }
}

impl<T: Copy + std::ops::Add<Output = T>> PerPart<T> {
    /// Of both parts of two devices; what is not there with one is zero.
    pub(crate) fn total(&self) -> T {
        self.0[0] + self.0[1]
    }
}

impl Part {
    /// The part that zones of a role are taken from.
    pub(crate) fn of(role: Role) -> Part {
        match role {
            Role::Data => Part::Data,
            Role::Log | Role::Metadata | Role::Free | Role::Retired => Part::Metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(conventional_zones: u32, metadata_zones: u32) -> Layout {
        Layout::of(&Geometry {
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
        })
    }

    #[test]
    fn one_device_has_one_part() {
        let layout = layout(10, 0);
        assert_eq!(layout.zones(Part::Metadata), 0..200);
        assert_eq!(layout.zones(Part::Data), 0..200);
        let sums = layout.sums(std::iter::repeat_n(1, 200));
        assert_eq!(layout.get(&sums, Part::Metadata), 200);
        assert_eq!(layout.get(&sums, Part::Data), 200);
        assert_eq!(sums.total(), 200);
        let candidates = |zone| layout.is_log_candidate(ZoneId(zone));
        assert!(!candidates(9) && candidates(10) && candidates(73) && !candidates(74));
        assert!(!layout.only_log_candidates(Part::Metadata));
    }

    #[test]
    fn two_devices_have_two() {
        let layout = layout(0, 40);
        let sums = layout.sums(std::iter::repeat_n(1, 200));
        assert_eq!(layout.get(&sums, Part::Metadata), 40);
        assert_eq!(layout.get(&sums, Part::Data), 160);
        assert_eq!(sums.total(), 200);
        assert_eq!(layout.part_of(ZoneId(39)), Part::Metadata);
        assert_eq!(layout.part_of(ZoneId(40)), Part::Data);
        assert!(layout.is_log_candidate(ZoneId(39)) && !layout.is_log_candidate(ZoneId(40)));
        assert!(layout.only_log_candidates(Part::Metadata));
        assert!(!layout.contains(Part::Data, ZoneId(39)));
    }
}
