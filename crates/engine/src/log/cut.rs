//! Cutting a batch of framed records into the bodies of journal blocks, compressed where that takes fewer of them.

use std::ops::Range;

use persimmon_format::Lsn;
use persimmon_format::log::{BODY_LEN, Body, RECORDS_LEN_MAX, Records, compress};

/// Attempts to find the number of bytes that fill a block when compressed.
const TRIES: u32 = 3;
/// Sixteenths of the expected number of bytes that are tried: bytes that do not fit are compressed in vain.
const TRIED_OF_16: usize = 15;

/// What goes into one journal block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    /// The first record that begins in it, or behind it.
    pub(super) first_lsn: Lsn,
    /// Bytes that belong to a record begun before.
    pub(super) lead: u16,
    /// Which of the batch's bytes.
    pub(super) range: Range<usize>,
    /// Those, compressed; nothing if they are stored as they are.
    pub(super) compressed: Option<Vec<u8>>,
}

impl Slice {
    /// A block without records.
    pub(super) fn empty(next_lsn: Lsn) -> Slice {
        Slice {
            first_lsn: next_lsn,
            lead: 0,
            range: 0..0,
            compressed: None,
        }
    }

    /// As the block has it, of the batch's bytes.
    pub(super) fn body<'a>(&'a self, bytes: &'a [u8]) -> Body<'a> {
        let bytes = &bytes[self.range.clone()];
        Body::Journal {
            first_lsn: self.first_lsn,
            lead: self.lead,
            records: match &self.compressed {
                None => Records::plain(bytes),
                Some(lz4) => Records::compressed(bytes, lz4),
            },
        }
    }
}

/// Blocks that these take less than their bytes would.
pub(super) fn spared_blocks(slices: &[Slice]) -> u64 {
    let blocks = slices.iter().map(|slice| spared(slice.range.len()));
    blocks.sum()
}

/// Blocks that compression saves where records of this length are in one block.
pub(crate) fn spared(bytes: usize) -> u64 {
    (bytes.div_ceil(BODY_LEN) as u64).saturating_sub(1)
}

/// Cuts framed records of these sizes into block bodies. Compressed or not, a batch takes one block for each [`BODY_LEN`] of its bytes at
/// most: what has the room for it counts on that.
pub(super) fn cut_blocks(
    records: &[u8],
    sizes: &[u32],
    first_lsn: Lsn,
    compresses: bool,
) -> Vec<Slice> {
    let total = records.len();
    let mut slices = Vec::new();
    let mut sizes = sizes.iter().map(|s| *s as usize);
    let mut lsn = first_lsn;
    let mut next_start = 0;
    let mut filler = Filler {
        expected: RECORDS_LEN_MAX,
    };
    let mut start = 0;
    while start < total {
        let rest = records.get(start..).unwrap_or_default();
        let (len, compressed) = match compresses {
            true => filler.fill(rest),
            false => ((total - start).min(BODY_LEN), None),
        };
        let end = start + len;
        slices.push(Slice {
            first_lsn: lsn,
            lead: (next_start.min(end) - start) as u16,
            range: start..end,
            compressed,
        });
        while next_start < end {
            next_start += sizes.next().unwrap_or(total);
            lsn = lsn.next();
        }
        start = end;
    }
    slices
}

/// Finds how many bytes fill a block.
struct Filler {
    /// The number that filled the block before.
    expected: usize,
}

impl Filler {
    /// How many of these bytes go into the next block, and their compressed form if more of them fit that way.
    fn fill(&mut self, bytes: &[u8]) -> (usize, Option<Vec<u8>>) {
        let mut len = self.expected.min(RECORDS_LEN_MAX);
        for _ in 0..TRIES {
            len = len.min(bytes.len());
            if len <= BODY_LEN {
                break;
            }
            let compressed = compress(&bytes[..len]);
            let would_fill = len * BODY_LEN / compressed.len().max(1) * TRIED_OF_16 / 16;
            self.expected = would_fill.max(2 * BODY_LEN);
            if compressed.len() <= BODY_LEN {
                return (len, Some(compressed));
            }
            len = would_fill;
        }
        (bytes.len().min(BODY_LEN), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(slices: Vec<Slice>) -> Vec<(Lsn, u16, Range<usize>)> {
        assert!(slices.iter().all(|slice| slice.compressed.is_none()));
        let slices = slices.into_iter();
        slices.map(|s| (s.first_lsn, s.lead, s.range)).collect()
    }

    fn total(sizes: &[u32]) -> usize {
        sizes.iter().sum::<u32>() as usize
    }

    #[test]
    fn records_are_cut_into_blocks() {
        let body = BODY_LEN as u32;
        let cut =
            |sizes: &[u32], lsn| plain(cut_blocks(&vec![0; total(sizes)], sizes, Lsn(lsn), false));
        assert_eq!(
            cut(&[10, body, 5], 7),
            vec![
                (Lsn(7), 0, 0..BODY_LEN),
                (Lsn(9), 10, BODY_LEN..BODY_LEN + 15),
            ]
        );
        // A record longer than two blocks: no record starts in the second.
        assert_eq!(
            cut(&[2 * body + 1, 4], 1),
            vec![
                (Lsn(1), 0, 0..BODY_LEN),
                (Lsn(2), body as u16, BODY_LEN..2 * BODY_LEN),
                (Lsn(2), 1, 2 * BODY_LEN..2 * BODY_LEN + 5),
            ]
        );
    }

    /// Bytes of which `of_8` in 8 are noise.
    fn noise(len: usize, of_8: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        };
        (0..len)
            .map(|at| if at % 8 < of_8 { next() } else { 0 })
            .collect()
    }

    /// Whatever the records are, every byte is in one block, and no batch takes more blocks than without compression.
    #[test]
    fn compressed_records_fill_blocks_without_gaps() {
        for of_8 in 0..=8 {
            for sizes in [
                vec![40; 1000],
                vec![9000, 3, 70_000, 4, 12],
                vec![4001],
                vec![3999, 1],
                vec![4000, 1],
            ] {
                let records = noise(total(&sizes), of_8);
                let as_is = cut_blocks(&records, &sizes, Lsn(1), false);
                let slices = cut_blocks(&records, &sizes, Lsn(1), true);
                assert!(slices.len() <= as_is.len());
                let mut at = 0;
                for slice in &slices {
                    assert_eq!(slice.range.start, at);
                    at = slice.range.end;
                    let Body::Journal { records: body, .. } = slice.body(&records) else {
                        unreachable!();
                    };
                    assert!(body.stored_len() <= BODY_LEN);
                    assert!(usize::from(slice.lead) <= body.len());
                }
                assert_eq!(at, records.len());
                let spared = (as_is.len() - slices.len()) as u64;
                assert!(spared_blocks(&slices) >= spared);
                if of_8 <= 1 && sizes.len() == 1000 {
                    assert!(slices.len() * 2 <= as_is.len(), "{} blocks", slices.len());
                }
            }
        }
    }
}
