//! Finding data and holes, in what is staged and in the tree together.

use persimmon_device::BLOCK_SIZE;
use persimmon_format::Ino;
use persimmon_format::extent::Extent;

use super::FileData;
use super::{block_of, blocks_in};
use crate::error::{Error, Result};
use crate::meta::extents;

/// What to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is not in a hole.
    Data,
    /// The next byte that is; the end of the file counts as one.
    Hole,
}

/// Extents, and staged runs, looked at in one view.
const STRIDE: usize = 256;

/// Ranges of blocks that hold data, and how far they are known.
#[derive(Debug, Default)]
struct Ranges {
    /// First block, and the one after the last; in order.
    data: Vec<(u64, u64)>,
    /// Nothing is known from this block on.
    known_to: u64,
}

/// A moment of a file: its size, and where it has data from some block on.
struct Moment {
    size: u64,
    staged: Ranges,
    mapped: Ranges,
}

impl FileData {
    /// The next data or hole at or after `offset`; `None` past the end, or if no data follows. Staged blocks are data, whether
    /// they can be written or not.
    pub fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<Option<u64>> {
        let mut block = block_of(offset);
        loop {
            let Moment {
                size,
                staged,
                mapped,
            } = self.moment(ino, block)?;
            if offset >= size {
                return Ok(None);
            }
            let end = blocks_in(size);
            let known_to = staged.known_to.min(mapped.known_to);
            let found = match what {
                Seek::Data => next_data(block, &staged, &mapped),
                Seek::Hole => next_hole(block, &staged, &mapped),
            };
            if found < known_to || known_to >= end {
                let byte = found.saturating_mul(BLOCK_SIZE as u64).max(offset);
                return Ok(match what {
                    Seek::Data => (byte < size).then_some(byte),
                    Seek::Hole => Some(byte.min(size)),
                });
            }
            block = known_to;
        }
    }

    /// Looks at staging and then at the tree, and again where blocks have left staging meanwhile: else they would be in neither, or
    /// in one that they were dropped from.
    fn moment(&self, ino: Ino, block: u64) -> Result<Moment> {
        loop {
            let file = self.files.get(ino);
            let (staged_size, staged, version) = match &file {
                Some(file) => {
                    let staged = file.lock();
                    let ranges = staged_ranges(block, |block| staged.next_run(block));
                    (staged.size, ranges, Some((staged.version, staged.cuts)))
                }
                None => (None, staged_ranges(block, |_| None), None),
            };
            // Extents and the size to which they belong, looked up together.
            let (size, mapped) = self.store.view::<_, Error>(|view| {
                let inode = view.inode(ino)?.ok_or(Error::NotFound(ino))?;
                let end = blocks_in(inode.size).max(block);
                let (extents, next) =
                    view.find(|meta| extents::some_shown(meta, ino, block, end, STRIDE))?;
                let known_to = next.unwrap_or(u64::MAX);
                let holds = |extent: &Extent| !matches!(extent, Extent::Reserved { .. });
                let data = extents.iter().filter(|mapped| holds(&mapped.extent));
                let data = data.map(|mapped| (mapped.block, mapped.end())).collect();
                Ok((inode.size, Ranges { data, known_to }))
            })?;
            let is_same = file.as_ref().is_none_or(|file| {
                let staged = file.lock();
                version == Some((staged.version, staged.cuts))
            });
            if let Some(file) = file {
                self.files.forget_if_clean_of(ino, file);
            }
            if is_same {
                let size = staged_size.unwrap_or(size);
                return Ok(Moment {
                    size,
                    staged,
                    mapped,
                });
            }
        }
    }
}

fn staged_ranges(block: u64, next_run: impl Fn(u64) -> Option<(u64, u64)>) -> Ranges {
    let mut ranges = Ranges {
        data: Vec::new(),
        known_to: u64::MAX,
    };
    let mut at = block;
    while let Some((start, end)) = next_run(at) {
        ranges.data.push((start, end));
        at = end;
        if ranges.data.len() == STRIDE {
            ranges.known_to = end;
            break;
        }
    }
    ranges
}

/// The first block from `block` on that is in one of the ranges.
fn next_data(block: u64, staged: &Ranges, mapped: &Ranges) -> u64 {
    let firsts = [staged, mapped].map(|ranges| ranges.data.first());
    let first = firsts.into_iter().flatten().map(|(start, _)| *start).min();
    first.map_or(u64::MAX, |first| first.max(block))
}

/// The first block from `block` on that is in none.
fn next_hole(block: u64, staged: &Ranges, mapped: &Ranges) -> u64 {
    let (mut staged, mut mapped) = (staged.data.as_slice(), mapped.data.as_slice());
    let mut at = block;
    loop {
        let before = at;
        for ranges in [&mut staged, &mut mapped] {
            while let Some(((start, end), rest)) = ranges.split_first()
                && *start <= at
            {
                at = at.max(*end);
                *ranges = rest;
            }
        }
        if at == before {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(data: &[(u64, u64)], known_to: u64) -> Ranges {
        Ranges {
            data: data.to_vec(),
            known_to,
        }
    }

    #[test]
    fn ranges_of_both_are_one() {
        let staged = ranges(&[(2, 4), (9, 12)], u64::MAX);
        let mapped = ranges(&[(0, 3), (4, 9), (20, 21)], u64::MAX);
        assert_eq!(next_hole(0, &staged, &mapped), 12);
        assert_eq!(next_hole(13, &staged, &mapped), 13);
        assert_eq!(next_data(0, &staged, &mapped), 0);
        let nothing = ranges(&[], u64::MAX);
        assert_eq!(next_data(5, &staged, &nothing), 5);
        assert_eq!(next_data(5, &nothing, &nothing), u64::MAX);
        assert_eq!(next_hole(5, &nothing, &nothing), 5);
    }

    #[test]
    fn what_is_cut_off_is_known_to_its_end() {
        let run = |block: u64| Some((block.next_multiple_of(2), block.next_multiple_of(2) + 1));
        let found = staged_ranges(0, run);
        assert_eq!(found.data.len(), STRIDE);
        assert_eq!(found.known_to, 2 * STRIDE as u64 - 1);
        assert_eq!(staged_ranges(0, |_| None).known_to, u64::MAX);
    }
}
