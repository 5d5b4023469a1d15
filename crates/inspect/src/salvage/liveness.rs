//! Which blocks were somebody's when the zone table was written. The table counts what is live in each zone. Less what intact leaves have there,
//! that is what lost leaves had. If it is all that summaries name besides, each block of it was live; if it is nothing, none was; else nothing
//! tells which ones.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

use persimmon_format::extent::Extent;
use persimmon_format::packed::{FrameTally, PackUnits};
use persimmon_format::table::Role;
use persimmon_format::{Ino, KeyKind, ZoneId};

use super::forest::LostRanges;
use crate::claims::Claims;
use crate::state::State;
use crate::volume::Inspector;

/// What is known of a block that no intact leaf has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Live,
    Dead,
    Unknown,
}

/// What intact leaves have of the data zones.
pub(super) struct Owned {
    claims: Claims,
    /// By zone.
    units: Vec<PackUnits>,
}

impl Owned {
    /// What a tree has outside ranges that are lost. It has to be as of the last record that the zone table counts.
    pub(super) fn of(state: &State<'_, '_>, lost: &LostRanges, inspector: &Inspector<'_>) -> Owned {
        let zones = inspector.zones.len();
        let mut owned = Owned {
            claims: Claims::new(zones, inspector.media.geometry().zone_blocks),
            units: vec![PackUnits::ZERO; zones],
        };
        let mut tally = FrameTally::default();
        let lowest = super::content::lowest();
        let _ = state.scan(lowest, &mut |key, value| {
            if key.kind == KeyKind::EXTENT
                && lost.holding(key).next().is_none()
                && let Ok(extent) = Extent::decode(value)
                && let Some(addr) = extent.addr()
            {
                match &extent {
                    Extent::Packed(packed) => drop(owned.claims.claim_frame(packed)),
                    extent => drop(owned.claims.claim(addr, extent.blocks())),
                }
                let stored = tally.extent(key.ino, key.item, &extent);
                if let Some(units) = owned.units.get_mut(addr.zone().0 as usize) {
                    *units += stored.units;
                }
            }
            ControlFlow::Continue(())
        });
        owned
    }

    /// Whether some of a block's frame is an intact leaf's.
    pub(super) fn has(&self, extent: &Extent) -> bool {
        match extent {
            Extent::Packed(packed) => self.claims.taken_of_frame(packed) > 0,
            extent => extent.addr().is_some_and(|addr| self.claims.has(addr)),
        }
    }

    /// What became of the blocks of a zone in this use that no intact leaf has.
    pub(super) fn fate(
        &self,
        inspector: &Inspector<'_>,
        (zone, sequence): (ZoneId, u64),
        named: &Named,
    ) -> Fate {
        let checkpoint = inspector.checkpoint.as_ref();
        let Some(checkpoint) = checkpoint.filter(|checkpoint| !checkpoint.zit_lost) else {
            return Fate::Unknown;
        };
        let entry = checkpoint.zit.get(zone.0 as usize);
        let Some(entry) =
            entry.filter(|entry| entry.role == Role::Data && entry.is_of_use(sequence))
        else {
            return Fate::Unknown;
        };
        let owned = self.units.get(zone.0 as usize).copied();
        let PackUnits(owned) = owned.unwrap_or(PackUnits::ZERO);
        match entry.pack_units().0.checked_sub(owned) {
            Some(0) => Fate::Dead,
            Some(units) if units == named.units() => Fate::Live,
            _ => Fate::Unknown,
        }
    }
}

/// A frame as summaries name it.
struct Frame {
    units: PackUnits,
    /// The blocks of files that it was written for.
    blocks: Vec<(Ino, u64)>,
}

/// What summaries name of a zone, and lost leaves may have had.
#[derive(Default)]
pub(super) struct Named {
    /// By place in the zone, byte in that.
    frames: BTreeMap<(u32, usize), Frame>,
    /// A block is not dead for its file has another one since: it may have been shared before.
    may_be_shared: bool,
}

impl Named {
    pub(super) fn new(may_be_shared: bool) -> Named {
        Named {
            may_be_shared,
            ..Named::default()
        }
    }

    /// A block of a file was written.
    pub(super) fn add(&mut self, place: (u32, usize), extent: &Extent, of: (Ino, u64)) {
        let units = match extent {
            Extent::Packed(packed) => packed.frame.pack_units(),
            _ => PackUnits::of_blocks(1),
        };
        let new = || Frame {
            units,
            blocks: Vec::new(),
        };
        let frame = self.frames.entry(place).or_insert_with(new);
        frame.blocks.push(of);
    }

    /// Packing units of what has not been written anew in the same zone.
    fn units(&self) -> u64 {
        let mut newest = HashSet::new();
        let frames = self.frames.values().rev();
        let left = frames.filter(|frame| {
            // All are noted.
            let new = { frame.blocks.iter() }
                .filter(|block| newest.insert(**block))
                .count();
            self.may_be_shared || new > 0
        });
        left.map(|frame| frame.units).sum::<PackUnits>().0
    }
}

#[cfg(test)]
mod tests {
    use persimmon_format::{Addr, DeviceId};

    use super::*;

    /// A frame of 16 packing units.
    fn frame() -> Extent {
        use persimmon_format::compression::Codec;
        use persimmon_format::packed::{CompressedFrame, PACK_UNIT, Packed};
        let frame = CompressedFrame {
            codec: Codec::Lz4,
            blocks: 2,
            len: 16 * PACK_UNIT as u32,
            crc: 0,
        };
        Extent::Packed(Packed::at(Addr::new(DeviceId(0), ZoneId(1), 9), 0, frame))
    }

    #[test]
    fn what_was_written_anew_in_the_zone_does_not_count() {
        let block = Extent::Frame {
            addr: Addr::new(DeviceId(0), ZoneId(1), 1),
            crcs: vec![1],
        };
        let (one, other) = (Ino(20), Ino(21));
        for (may_be_shared, units) in [(false, 2 * 256 + 16), (true, 3 * 256 + 16)] {
            let mut named = Named::new(may_be_shared);
            named.add((1, 0), &block, (one, 5));
            named.add((2, 0), &block, (one, 6));
            named.add((3, 0), &block, (other, 5));
            // Two blocks of one frame, of which one is not there yet.
            named.add((9, 0), &frame(), (one, 5));
            named.add((9, 0), &frame(), (one, 7));
            assert_eq!(named.units(), units);
        }
    }
}
