//! Where the journal changed the content of files: what was there before is known to be gone, also where the tree has lost what it was.

use std::collections::{BTreeMap, BTreeSet};

use persimmon_format::record::Op;
use persimmon_format::{Ino, KeyKind};

/// Blocks that records wrote, removed or shared.
#[derive(Default)]
pub(super) struct Replayed {
    /// By file: the first of each range, and the block behind it. Ranges do not overlap.
    files: BTreeMap<Ino, BTreeMap<u64, u64>>,
    /// Files that are gone.
    gone: BTreeSet<Ino>,
    shares: bool,
}

impl Replayed {
    pub(super) fn note(&mut self, ops: &[Op]) {
        for op in ops {
            match op {
                Op::Map { ino, block, extent } => {
                    self.add(*ino, *block, block.saturating_add(extent.blocks()));
                }
                Op::Punch { ino, from, to } => self.add(*ino, *from, *to),
                Op::Splice { ino, block, .. } => self.add(*ino, *block, block.saturating_add(1)),
                Op::Share(share) => {
                    self.shares = true;
                    self.add(share.to, share.to_block, share.target_end());
                }
                Op::Delete { key } if key.kind == KeyKind::INODE => {
                    self.gone.insert(key.ino.plain());
                }
                _ => {}
            }
        }
    }

    fn add(&mut self, ino: Ino, mut from: u64, mut to: u64) {
        let ranges = self.files.entry(ino.plain()).or_default();
        let mut joined = Vec::new();
        for (start, end) in ranges.range(..=to).rev() {
            if *end < from {
                break;
            }
            (from, to) = (from.min(*start), to.max(*end));
            joined.push(*start);
        }
        for start in joined {
            ranges.remove(&start);
        }
        ranges.insert(from, to);
    }

    /// Whether a record shared blocks.
    pub(super) fn shares(&self) -> bool {
        self.shares
    }

    /// Whether a record changed a block of a file.
    pub(super) fn has(&self, ino: Ino, block: u64) -> bool {
        let ranges = self.files.get(&ino.plain());
        let before = ranges.and_then(|ranges| ranges.range(..=block).next_back());
        self.gone.contains(&ino.plain()) || before.is_some_and(|(_, end)| block < *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_meet_are_one() {
        let mut replayed = Replayed::default();
        let punch = |from, to| Op::Punch {
            ino: Ino(20),
            from,
            to,
        };
        replayed.note(&[punch(10, 20), punch(30, 40), punch(50, 60), punch(20, 35)]);
        let ranges = &replayed.files[&Ino(20)];
        let ranges: Vec<_> = ranges.iter().map(|(from, to)| (*from, *to)).collect();
        assert_eq!(ranges, [(10, 40), (50, 60)]);
        for (block, is_in) in [(9, false), (10, true), (39, true), (40, false), (59, true)] {
            assert_eq!(replayed.has(Ino(20), block), is_in, "{block}");
        }
        assert!(!replayed.has(Ino(21), 10));
    }
}
