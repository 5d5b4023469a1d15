//! How writes made a file grow. A batch that needs several records gives the file, in each, the
//! size that the blocks so far have caused: one that some write left or was in the middle of, with
//! nothing mapped beyond it.

use persimmon_device::BLOCK_SIZE;

use super::{block_of, blocks_in};

/// Intervals of bytes, ascending, by which writes extended the file: each from the later of its
/// offset and the size before, to the size after. What one left and the next went on with is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Growth {
    grown: Vec<(u64, u64)>,
    /// The size before the first of them.
    before: u64,
}

impl Growth {
    /// A write of `start..end` to a file of `size` bytes.
    pub(crate) fn write(&mut self, start: u64, end: u64, size: u64) {
        if start < size {
            self.fill(start, end.min(size));
        }
        if end <= size {
            return;
        }
        let start = start.max(size);
        match self.grown.last_mut() {
            None => (self.grown, self.before) = (vec![(start, end)], size),
            Some(last) if last.1 == start => last.1 = end,
            Some(_) => self.grown.push((start, end)),
        }
    }

    /// A write within the file: where it goes on behind what made the file grow, or behind the end that the file had before that, in the
    /// same block, that block cannot be there without it.
    fn fill(&mut self, start: u64, end: u64) {
        let reach = |ended: u64, next: u64| {
            let block_end = ended.next_multiple_of(BLOCK_SIZE as u64).min(next);
            (start < block_end && ended < end).then(|| ended.max(end.min(block_end)))
        };
        let mut next = u64::MAX;
        for (from, to) in self.grown.iter_mut().rev() {
            *to = reach(*to, next).unwrap_or(*to);
            next = *from;
        }
        if let Some((first, _)) = self.grown.first().copied()
            && let Some(to) = reach(self.before, first).filter(|to| *to > self.before)
        {
            self.grown.insert(0, (self.before, to));
        }
    }

    /// The file was cut to `size` bytes.
    pub(crate) fn truncate(&mut self, size: u64) {
        self.grown.retain(|(start, _)| *start < size);
        if let Some(last) = self.grown.last_mut() {
            last.1 = last.1.min(size);
        }
        self.before = self.before.min(size);
    }

    /// Whether any of it begins below `size`.
    pub(crate) fn begins_below(&self, size: u64) -> bool {
        self.grown.iter().any(|(start, _)| *start < size)
    }

    /// The ranges of blocks it is in.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (u64, u64)> {
        self.grown
            .iter()
            .map(|(start, end)| (block_of(*start), blocks_in(*end)))
    }

    /// What came after this growth.
    pub(crate) fn append(&mut self, later: Growth) {
        if self.grown.is_empty() {
            *self = later;
            return;
        }
        for (start, end) in later.grown {
            self.write(start, end, start);
        }
    }

    /// The size that the bytes below `end`, the end of the last block mapped, have caused in a
    /// file that had `committed` before. Where that block was written into a hole, the file being
    /// longer already, no size was caused that reaches it: then it is the block's end, so that
    /// nothing is mapped beyond the file's.
    pub(crate) fn size_at(&self, end: u64, committed: u64) -> u64 {
        let caused = self.grown.iter().rev().find(|(start, _)| *start < end);
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

    /// A block that was overwritten behind the end that it had caused was cut there, when what had moved the end since was elsewhere (seed
    /// 950001488: the end was in the history; seed 400003141: the write that went on there made the file longer itself).
    #[test]
    fn a_block_is_not_cut_where_the_file_once_ended() {
        let mut growth = Growth::default();
        growth.write(50_000, 60_000, 5000);
        assert_eq!(growth.size_at(8192, 5000), 5000);
        growth.write(100, 6000, 60_000);
        assert_eq!(growth.size_at(8192, 5000), 6000);
        growth.write(100, 20_000, 60_000);
        assert_eq!(growth.size_at(8192, 5000), 8192);
        assert_eq!(growth.size_at(16_384, 5000), 16_384);

        let mut growth = Growth::default();
        growth.write(0, 5000, 0);
        growth.write(20_000, 30_000, 5000);
        growth.write(4000, 40_000, 30_000);
        assert_eq!(growth.size_at(8192, 0), 8192);
        assert_eq!(growth.size_at(32_768, 0), 32_768);
        assert_eq!(growth.size_at(40_960, 0), 40_000);

        // What failed to be written comes before what was staged meanwhile.
        let mut failed = Growth::default();
        let mut later = Growth::default();
        later.write(50_000, 60_000, 5000);
        later.write(100, 6000, 60_000);
        failed.append(later);
        assert_eq!(failed.size_at(8192, 5000), 6000);
    }
}
