//! Which blocks of a device are somebody's: a bit for each, and masks of packing units for those that only parts of are.

use std::collections::HashMap;

use persimmon_format::Addr;
use persimmon_format::packed::{BLOCK_PACK_UNITS, Packed};

/// Words of a mask with a bit for each packing unit of a block.
const MASK_WORDS: usize = BLOCK_PACK_UNITS as usize / 64;

/// See the module. A block of which all packing units are claimed costs a bit: so what is packed densely costs no more than whole blocks.
#[derive(Debug)]
pub struct Claims {
    zones: Vec<Option<Vec<u64>>>,
    zone_blocks: u32,
    /// Blocks that are claimed in part.
    parts: HashMap<Addr, [u64; MASK_WORDS]>,
}

/// The packing units `from..to` of a block.
fn mask(from: u64, to: u64) -> [u64; MASK_WORDS] {
    std::array::from_fn(|word| {
        let first = word as u64 * 64;
        let bits = |end: u64| match end.saturating_sub(first) {
            0 => 0,
            bits @ 1..64 => (1 << bits) - 1,
            _ => u64::MAX,
        };
        bits(to) & !bits(from)
    })
}

fn count(mask: [u64; MASK_WORDS]) -> u64 {
    mask.iter().map(|word| u64::from(word.count_ones())).sum()
}

impl Claims {
    /// Of a device of so many zones, each of so many blocks.
    #[must_use]
    pub fn new(zones: usize, zone_blocks: u32) -> Claims {
        Claims {
            zones: vec![None; zones],
            zone_blocks,
            parts: HashMap::new(),
        }
    }

    /// Claims blocks; tells how many of them were claimed before. Those that are not on the device are not.
    pub fn claim(&mut self, addr: Addr, blocks: u64) -> u64 {
        (0..blocks.min(self.zone_blocks.into()))
            .map(|at| u64::from(self.set(addr.offset(at as u32))))
            .sum()
    }

    /// Claims the frame of a packed extent; tells how many of its packing units were claimed before.
    pub fn claim_frame(&mut self, packed: &Packed) -> u64 {
        let mut taken = 0;
        for (block, from, to) in pieces(packed) {
            taken += self.taken(block, from, to);
            let had_none = !self.set(block);
            let whole = had_none && to - from == BLOCK_PACK_UNITS;
            // A block that is claimed and has no mask is claimed as a whole.
            let known = match self.parts.remove(&block) {
                None if had_none => [0; MASK_WORDS],
                None => continue,
                Some(known) => known,
            };
            let new = mask(from, to);
            let all: [u64; MASK_WORDS] = std::array::from_fn(|at| {
                known.get(at).copied().unwrap_or(0) | new.get(at).copied().unwrap_or(0)
            });
            if !whole && count(all) < BLOCK_PACK_UNITS {
                self.parts.insert(block, all);
            }
        }
        taken
    }

    /// Packing units of the frame of a packed extent that are claimed, or are not on the device.
    #[must_use]
    pub fn taken_of_frame(&self, packed: &Packed) -> u64 {
        let pieces = pieces(packed);
        pieces
            .map(|(block, from, to)| {
                if self.is_on_device(block) {
                    self.taken(block, from, to)
                } else {
                    to - from
                }
            })
            .sum()
    }

    /// Whether some of a block was claimed.
    #[must_use]
    pub fn has(&self, addr: Addr) -> bool {
        let zone = self.zones.get(addr.zone().0 as usize);
        let bits = zone.and_then(Option::as_ref);
        bits.and_then(|bits| bits.get(addr.block() as usize / 64))
            .is_some_and(|word| word & (1 << (addr.block() % 64)) != 0)
    }

    /// Whether something in the zone was claimed.
    #[must_use]
    pub fn uses(&self, zone: usize) -> bool {
        self.zones.get(zone).is_some_and(Option::is_some)
    }

    /// Whether it is a block of the device.
    #[must_use]
    pub fn is_on_device(&self, addr: Addr) -> bool {
        (addr.zone().0 as usize) < self.zones.len() && addr.block() < self.zone_blocks
    }

    fn taken(&self, block: Addr, from: u64, to: u64) -> u64 {
        match self.parts.get(&block) {
            Some(known) => {
                let new = mask(from, to);
                let both = known.iter().zip(new).map(|(known, new)| known & new);
                both.map(|word| u64::from(word.count_ones())).sum()
            }
            None if self.has(block) => to - from,
            None => 0,
        }
    }

    /// Sets the bit of a block; tells whether it was set.
    fn set(&mut self, addr: Addr) -> bool {
        if !self.is_on_device(addr) {
            return false;
        }
        let words = self.zone_blocks.div_ceil(64) as usize;
        let Some(zone) = self.zones.get_mut(addr.zone().0 as usize) else {
            return false;
        };
        let bits = zone.get_or_insert_with(|| vec![0; words]);
        let bit = 1 << (addr.block() % 64);
        match bits.get_mut(addr.block() as usize / 64) {
            Some(word) => {
                let was_set = *word & bit != 0;
                *word |= bit;
                was_set
            }
            None => false,
        }
    }
}

/// The blocks that a frame lies in, and which packing units of each are its own.
fn pieces(packed: &Packed) -> impl Iterator<Item = (Addr, u64, u64)> {
    let start = u64::from(packed.unit);
    let end = start + packed.frame.pack_units().0;
    let addr = packed.addr;
    (0..u64::from(packed.span())).map(move |at| {
        let first = at * BLOCK_PACK_UNITS;
        let from = start.max(first) - first;
        let to = end.min(first + BLOCK_PACK_UNITS) - first;
        (addr.offset(at as u32), from, to)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use persimmon_format::compression::Codec;
    use persimmon_format::packed::{CompressedFrame, PACK_UNIT};
    use persimmon_format::{DeviceId, ZoneId};

    fn frame(unit: u64, units: u64) -> Packed {
        let frame = CompressedFrame {
            codec: Codec::Lz4,
            blocks: 32,
            len: units as u32 * PACK_UNIT as u32,
            crc: 0,
        };
        let addr = Addr::new(DeviceId(0), ZoneId(1), 3);
        Packed::at(addr, unit as usize * PACK_UNIT, frame)
    }

    #[test]
    fn what_is_packed_densely_costs_bits_alone() {
        let mut claims = Claims::new(2, 100);
        // Three frames that follow each other, over four blocks.
        for (unit, units) in [(0, 300), (300, 500), (800, 224)] {
            assert_eq!(claims.taken_of_frame(&frame(unit, units)), 0);
            assert_eq!(claims.claim_frame(&frame(unit, units)), 0);
        }
        assert!(claims.parts.is_empty(), "{:?}", claims.parts);
        for (unit, units) in [(0, 300), (299, 2), (10, 1)] {
            assert_eq!(claims.taken_of_frame(&frame(unit, units)), units);
            assert_eq!(claims.claim_frame(&frame(unit, units)), units);
        }
        assert_eq!(claims.claim(Addr::new(DeviceId(0), ZoneId(1), 3), 5), 4);
    }

    #[test]
    fn parts_of_a_block_are_told_apart() {
        let mut claims = Claims::new(2, 5);
        assert_eq!(claims.claim_frame(&frame(10, 20)), 0);
        assert_eq!(claims.claim_frame(&frame(30, 5)), 0);
        assert_eq!(claims.claim_frame(&frame(25, 20)), 10);
        assert_eq!(claims.taken_of_frame(&frame(0, 256)), 35);
        // The third block is not on the device.
        assert_eq!(claims.taken_of_frame(&frame(256, 500)), 244);
        assert_eq!(claims.claim(Addr::new(DeviceId(0), ZoneId(1), 3), 1), 1);
    }
}
