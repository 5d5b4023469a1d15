//! What a checkpoint of the zones alone tells of them without writing their table anew: overwriting in no order changes the
//! count of nearly every zone between two of these, and little else. The counts alone fit the footer.

use persimmon_device::per_zone::PerZone;
use persimmon_format::ZoneId;
use persimmon_format::footer::Valid;
use persimmon_format::log::BODY_LEN;
use persimmon_format::table::ZitEntry;

/// Entries that a footer takes: past so many the chunks are written once, instead of these again and again.
const OVERRIDES_MAX: usize = 96;
/// Bytes of one in a footer.
const OVERRIDE_LEN: usize = 4 + ZitEntry::LEN;
/// Bytes of a count in a footer at most, in zones of up to 8 GiB that are next to each other.
const COUNT_LEN: usize = 1 + 4 + 1;
/// Blocks that all this may take of the log.
const BLOCKS_MAX: usize = 16;
/// And no more than this part of a zone.
const ZONE_SHARE: u64 = 8;

/// Changes of the ZIT.
pub(super) struct Changes {
    /// Zones with another entry.
    pub(super) overrides: Vec<(ZoneId, ZitEntry)>,
    /// Zones in which only the count is another.
    pub(super) counts: Vec<(ZoneId, Valid)>,
}

impl Changes {
    /// Between what is in the chunks and now, with zones of so many blocks. None where chunks are to be written: they take
    /// less, or soon will, or the log has not the room.
    pub(super) fn between(
        written: &PerZone<ZitEntry>,
        now: &PerZone<ZitEntry>,
        zone_blocks: u64,
    ) -> Option<Changes> {
        let mut changes = Changes {
            overrides: Vec::new(),
            counts: Vec::new(),
        };
        let mut chunks = 0;
        let mut chunk_before = None;
        let changed = written.changed(now);
        let entries = changed.filter_map(|zone| Some((zone, written.get(zone)?, now.get(zone)?)));
        for (zone, written, now) in entries {
            let chunk = Some(zone / ZitEntry::PER_CHUNK);
            chunks += usize::from(chunk != chunk_before);
            chunk_before = chunk;
            let (zone, valid) = (ZoneId(zone as u32), Valid::of(now));
            if valid.within(*written) == *now {
                changes.counts.push((zone, valid));
            } else {
                changes.overrides.push((zone, *now));
            }
        }
        let bytes = changes.overrides.len() * OVERRIDE_LEN + changes.counts.len() * COUNT_LEN;
        let most = BLOCKS_MAX.min((zone_blocks / ZONE_SHARE) as usize);
        let blocks = bytes.div_ceil(BODY_LEN);
        let is_less = changes.overrides.len() <= OVERRIDES_MAX && blocks <= chunks.min(most);
        is_less.then_some(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(sequence: u64, valid: u32) -> ZitEntry {
        ZitEntry {
            sequence,
            valid,
            ..ZitEntry::default()
        }
    }

    #[test]
    fn counts_and_other_changes_are_told_apart() {
        let written: PerZone<ZitEntry> = (0..400).map(|n| entry(n, 9)).collect();
        let mut now = written.clone();
        now.get_mut(3).unwrap().valid = 8;
        now.get_mut(200).unwrap().short = 1;
        now.set(300, entry(400, 9));
        let changes = Changes::between(&written, &now, 511).unwrap();
        let zones: Vec<u32> = changes.counts.iter().map(|(zone, _)| zone.0).collect();
        assert_eq!(zones, [3, 200]);
        assert_eq!(changes.overrides, [(ZoneId(300), entry(400, 9))]);
    }

    #[test]
    fn chunks_are_written_where_they_take_less() {
        let written: PerZone<ZitEntry> = (0..1000).map(|n| entry(n, 9)).collect();
        let of = |changed: usize| {
            let now: PerZone<ZitEntry> = (0..1000)
                .map(|n| entry(n, if (n as usize) < changed { 8 } else { 9 }))
                .collect();
            Changes::between(&written, &now, 511).is_some()
        };
        assert!(of(1000) && of(1) && of(0));
        let used = |changed: usize| {
            let now: PerZone<ZitEntry> = (0..1000)
                .map(|n| entry(n + 1000 * u64::from((n as usize) < changed), 9))
                .collect();
            Changes::between(&written, &now, 511).is_some()
        };
        assert!(used(OVERRIDES_MAX) && !used(OVERRIDES_MAX + 1));
    }

    #[test]
    fn the_log_takes_no_more_than_there_is_room_for() {
        let written: PerZone<ZitEntry> = (0..20_000).map(|n| entry(n, 9)).collect();
        let of = |changed: usize, zone_blocks: u64| {
            let mut now = written.clone();
            for zone in 0..changed {
                now.get_mut(zone).unwrap().valid = 8;
            }
            Changes::between(&written, &now, zone_blocks).is_some()
        };
        assert!(of(10_000, 511) && !of(20_000, 511));
        assert!(of(600, 15) && !of(1000, 15));
    }
}
