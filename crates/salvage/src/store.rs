//! What a repair has put into the store of shared blocks.

use std::collections::BTreeMap;

use persimmon_format::Addr;
use persimmon_format::extent::Extent;
use persimmon_format::references::References;

/// The blocks that are there, and where they lie.
#[derive(Default)]
pub(crate) struct Store {
    /// Ranges of blocks; [`Store::settle`] sorts and joins them.
    ranges: Vec<(u64, u64)>,
    /// By place on the device, the packing unit included: the first block in the store, as the frame has it, and what lies there.
    frames: BTreeMap<(Addr, u8), (u64, Lies)>,
    /// By how much the number of extents of files that name a block is greater than for the block before it.
    named: BTreeMap<u64, i64>,
}

#[derive(Clone, Copy)]
enum Lies {
    Blocks(u64),
    Frame,
}

impl Store {
    /// An extent was put.
    pub(crate) fn add(&mut self, block: u64, extent: &Extent) {
        let end = block.saturating_add(extent.blocks());
        self.ranges.push((block, end));
        match extent {
            Extent::Frame { addr, crcs } => {
                let lies = Lies::Blocks(crcs.len() as u64);
                self.frames.insert((*addr, 0), (block, lies));
            }
            Extent::Packed(packed) => {
                if let Some((start, _)) = packed.frame_at(block) {
                    let place = (packed.addr, packed.unit);
                    self.frames.insert(place, (start, Lies::Frame));
                }
            }
            _ => {}
        }
    }

    /// An extent of a file that names blocks was put.
    pub(crate) fn name(&mut self, at: u64, blocks: u64) {
        for (block, change) in [(at, 1), (at.saturating_add(blocks), -1)] {
            let sum = self.named.entry(block).or_default();
            *sum += change;
            if *sum == 0 {
                self.named.remove(&block);
            }
        }
    }

    /// The counts of all blocks that are named more than once, with their first blocks.
    pub(crate) fn counts(&self) -> Vec<(u64, References)> {
        let mut counts = Vec::new();
        let mut named = 0i64;
        let ends = self.named.keys().skip(1);
        for ((from, change), to) in self.named.iter().zip(ends) {
            named = named.saturating_add(*change);
            let count = u32::try_from(named).unwrap_or(u32::MAX);
            let mut from = *from;
            while count > 1 && from < *to {
                let blocks = u32::try_from(to - from).unwrap_or(u32::MAX);
                counts.push((from, References { blocks, count }));
                from += u64::from(blocks);
            }
        }
        counts
    }

    /// All that was put can be looked up.
    pub(crate) fn settle(&mut self) {
        self.ranges.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::with_capacity(self.ranges.len());
        for (from, to) in self.ranges.drain(..) {
            match joined.last_mut() {
                Some((_, end)) if *end >= from => *end = to.max(*end),
                _ => joined.push((from, to)),
            }
        }
        self.ranges = joined;
    }

    /// Ranges between two blocks that are not there.
    pub(crate) fn missing(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
        let first = self.ranges.partition_point(|(_, end)| *end <= from);
        let there = self.ranges.iter().copied().skip(first);
        let there = there.take_while(move |(start, _)| *start < to);
        let mut done = from;
        there.chain([(to, to)]).filter_map(move |(start, end)| {
            let gap = (done, start);
            done = done.max(end);
            (gap.0 < gap.1).then_some(gap)
        })
    }

    /// The extent that names one block in the store, by where it lies.
    pub(crate) fn find(&self, extent: &Extent) -> Option<Extent> {
        let place = match extent {
            Extent::Frame { addr, .. } => {
                let ((first, _), (block, lies)) = self.frames.range(..=(*addr, 0)).next_back()?;
                let at = u64::from(addr.block().checked_sub(first.block())?);
                let Lies::Blocks(blocks) = lies else {
                    return None;
                };
                let same_zone = (first.device(), first.zone()) == (addr.device(), addr.zone());
                (same_zone && at < *blocks).then_some(block + at)?
            }
            Extent::Packed(packed) => match self.frames.get(&(packed.addr, packed.unit))? {
                (start, Lies::Frame) => start + u64::from(packed.skip),
                _ => return None,
            },
            _ => return None,
        };
        let is_there = self
            .missing(place, place.saturating_add(1))
            .next()
            .is_none();
        is_there.then_some(Extent::Shared {
            at: place,
            blocks: 1,
            frame: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use persimmon_format::{DeviceId, ZoneId};

    use super::*;

    #[test]
    fn blocks_are_found_by_where_they_lie() {
        let addr = |block| Addr::new(DeviceId(0), ZoneId(3), block);
        let frame = |block, blocks| Extent::Frame {
            addr: addr(block),
            crcs: vec![7; blocks],
        };
        let mut store = Store::default();
        store.add(300, &frame(10, 4));
        store.add(256, &frame(50, 8));
        store.add(264, &frame(20, 1));
        store.settle();
        let missing = |from, to| Vec::from_iter(store.missing(from, to));
        assert_eq!(missing(250, 310), [(250, 256), (265, 300), (304, 310)]);
        assert_eq!(missing(257, 265), []);
        assert_eq!(missing(265, 266), [(265, 266)]);
        let at = |block| match store.find(&frame(block, 1)) {
            Some(Extent::Shared { at, blocks: 1, .. }) => Some(at),
            None => None,
            other => panic!("{other:?}"),
        };
        assert_eq!((at(10), at(13), at(14)), (Some(300), Some(303), None));
        assert_eq!((at(9), at(57), at(20)), (None, Some(263), Some(264)));
    }

    #[test]
    fn blocks_that_are_named_twice_are_counted() {
        let mut store = Store::default();
        assert_eq!(store.counts(), []);
        for (at, blocks) in [(100, 10), (105, 10), (107, 1), (110, 5), (200, 3)] {
            store.name(at, blocks);
        }
        let counts = [(105, 2, 2), (107, 1, 3), (108, 7, 2)];
        let counts = counts.map(|(at, blocks, count)| (at, References { blocks, count }));
        assert_eq!(store.counts(), counts);
    }
}
