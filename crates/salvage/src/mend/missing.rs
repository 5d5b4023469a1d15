//! Blocks of the store of shared blocks that files name and the store does not have: what is lost, but for what turns up elsewhere.

use std::collections::BTreeSet;

use persimmon_format::Ino;

/// What files name in vain.
#[derive(Default)]
pub(super) struct Missing {
    /// File, and file blocks `from..to`; ascending.
    ranges: Vec<(Ino, u64, u64)>,
    /// File blocks in these ranges that were put since.
    found: BTreeSet<(Ino, u64)>,
}

/// A part of a range, all of it found or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub ino: Ino,
    pub blocks: (u64, u64),
    pub is_found: bool,
}

impl Missing {
    /// A file names what is not there, behind all that is missing so far.
    pub(super) fn add(&mut self, ino: Ino, (from, to): (u64, u64)) {
        match self.ranges.last_mut() {
            Some((last, _, end)) if (*last, *end) == (ino, from) => *end = to,
            _ => self.ranges.push((ino, from, to)),
        }
    }

    /// A block of a file was put.
    pub(super) fn found(&mut self, ino: Ino, block: u64) {
        let behind = self
            .ranges
            .partition_point(|range| (range.0, range.1) <= (ino, block));
        let range = behind.checked_sub(1).and_then(|at| self.ranges.get(at));
        if range.is_some_and(|range| range.0 == ino && block < range.2) {
            self.found.insert((ino, block));
        }
    }

    /// All that is missing, in parts.
    pub(super) fn parts(&self) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for (ino, from, to) in &self.ranges {
            for block in *from..*to {
                let is_found = self.found.contains(&(*ino, block));
                match parts.last_mut() {
                    Some(last)
                        if (last.ino, last.blocks.1, last.is_found) == (*ino, block, is_found) =>
                    {
                        last.blocks.1 = block + 1;
                    }
                    _ => parts.push(Part {
                        ino: *ino,
                        blocks: (block, block + 1),
                        is_found,
                    }),
                }
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_taken_out_of_what_is_missing() {
        let (one, other) = (Ino(20), Ino(30));
        let mut missing = Missing::default();
        missing.add(one, (5, 8));
        missing.add(one, (8, 10));
        missing.add(one, (12, 13));
        missing.add(other, (0, 2));
        for (ino, block) in [
            (one, 4),
            (one, 6),
            (one, 7),
            (one, 10),
            (other, 0),
            (other, 5),
        ] {
            missing.found(ino, block);
        }
        let part = |ino, blocks, is_found| Part {
            ino,
            blocks,
            is_found,
        };
        let right = [
            part(one, (5, 6), false),
            part(one, (6, 8), true),
            part(one, (8, 10), false),
            part(one, (12, 13), false),
            part(other, (0, 1), true),
            part(other, (1, 2), false),
        ];
        assert_eq!(missing.parts(), right);
    }
}
