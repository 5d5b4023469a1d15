//! How writes made a file grow. A batch that needs several records gives the file, in each, the
//! size that the blocks so far have caused: one that some write left or was in the middle of, with
//! nothing mapped beyond it.

use persimmon_device::BLOCK_SIZE;

use super::{block_of, blocks_in};

/// Intervals of bytes, ascending, by which writes extended the file: each from the later of its
/// offset and the size before, to the size after. What one left and the next went on with is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Growth(Vec<(u64, u64)>);

impl Growth {
    /// A write of `start..end` to a file of `size` bytes.
    pub(crate) fn write(&mut self, start: u64, end: u64, size: u64) {
        if end <= size {
            self.fill(start, end);
            return;
        }
        let start = start.max(size);
        match self.0.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => self.0.push((start, end)),
        }
    }

    /// A write within the file: where it goes on behind what made the file grow, in the same block, that block cannot be there without it.
    fn fill(&mut self, start: u64, end: u64) {
        let mut next = u64::MAX;
        for (from, to) in self.0.iter_mut().rev() {
            let block_end = to.next_multiple_of(BLOCK_SIZE as u64).min(next);
            if start < block_end && *to < end {
                *to = (*to).max(end.min(block_end));
            }
            next = *from;
        }
    }

    /// The file was cut to `size` bytes.
    pub(crate) fn truncate(&mut self, size: u64) {
        self.0.retain(|(start, _)| *start < size);
        if let Some(last) = self.0.last_mut() {
            last.1 = last.1.min(size);
        }
    }

    /// Whether any of it begins below `size`.
    pub(crate) fn begins_below(&self, size: u64) -> bool {
        self.0.iter().any(|(start, _)| *start < size)
    }

    /// The ranges of blocks it is in.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0
            .iter()
            .map(|(start, end)| (block_of(*start), blocks_in(*end)))
    }

    /// What came after this growth.
    pub(crate) fn append(&mut self, later: Growth) {
        for (start, end) in later.0 {
            self.write(start, end, start);
        }
    }

    /// The size that the bytes below `end`, the end of the last block mapped, have caused in a
    /// file that had `committed` before. Where that block was written into a hole, the file being
    /// longer already, no size was caused that reaches it: then it is the block's end, so that
    /// nothing is mapped beyond the file's.
    pub(crate) fn size_at(&self, end: u64, committed: u64) -> u64 {
        let caused = self.0.iter().rev().find(|(start, _)| *start < end);
        let size = caused.map_or(committed, |(_, after)| end.min(*after).max(committed));
        if size <= end.saturating_sub(BLOCK_SIZE as u64) {
            return end;
        }
        size
    }
}

#[cfg(test)]
mod tests {
    use super::Growth;

    #[test]
    fn a_size_between_writes_is_one_that_was() {
        let mut growth = Growth::default();
        growth.write(0, 100, 0);
        growth.write(100, 5000, 100);
        growth.write(50, 60, 5000);
        growth.write(20_000, 30_000, 5000);
        assert_eq!(growth.size_at(4096, 0), 4096, "in the middle of a write");
        assert_eq!(
            growth.size_at(8192, 0),
            5000,
            "in a hole: what was before it"
        );
        assert_eq!(growth.size_at(32_768, 0), 30_000);
        assert_eq!(
            growth.size_at(16_384, 0),
            16_384,
            "a block written into the hole later"
        );
        assert_eq!(growth.size_at(0, 70), 70);
        growth.write(6000, 9000, 30_000);
        assert_eq!(
            growth.size_at(8192, 0),
            8192,
            "the block that was written into behind its growth"
        );
        growth.truncate(25_000);
        assert_eq!(growth.size_at(28_672, 0), 25_000);
    }
}
