//! What a zone's blocks hold: runs of shared buffers, or of the numbers that patterns are made
//! from, sorted and disjoint. Zeros elsewhere.

use std::sync::{Arc, OnceLock};

use persimmon_device::{BLOCK_SIZE, Buffer, BufferMut};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::pattern::Content;

#[derive(Clone)]
struct Extent {
    start: u32,
    data: Content,
    /// What its blocks add to [`Medium::hash`]; computed once for all copies.
    hash: Arc<OnceLock<u64>>,
}

impl Extent {
    fn new(start: u32, data: Content) -> Extent {
        Extent {
            start,
            data,
            hash: Arc::default(),
        }
    }

    fn end(&self) -> u32 {
        self.start + self.data.blocks()
    }

    fn hash(&self) -> u64 {
        *self.hash.get_or_init(|| {
            (u64::from(self.start)..)
                .zip(bytes_of(&self.data).chunks_exact(BLOCK_SIZE))
                .map(|(at, block)| xxh3_64_with_seed(block, at))
                .fold(0, u64::wrapping_add)
        })
    }

    /// The part of this extent from block `from` to block `to` of the zone.
    fn part(&self, from: u32, to: u32) -> Extent {
        let start = from.max(self.start);
        let end = to.min(self.end()).max(start);
        let (from, to) = ((start - self.start) as usize, (end - self.start) as usize);
        Extent::new(start, self.data.part(from, to))
    }
}

/// The blocks of a zone as the medium holds them, wherever the write pointer stands.
#[derive(Clone, Default)]
pub(crate) struct Medium {
    extents: Vec<Extent>,
    /// Of blocks made by [`super::pattern`].
    keeps_numbers: bool,
}

impl Medium {
    /// Zeros. Of patterns their numbers are kept, if so asked.
    pub fn new(keeps_numbers: bool) -> Medium {
        Medium {
            extents: Vec::new(),
            keeps_numbers,
        }
    }

    /// Puts `data` at `block`, over whatever was there.
    pub fn put(&mut self, mut block: u32, data: Buffer) {
        if !self.keeps_numbers {
            return self.put_content(block, Content::Bytes(data));
        }
        for content in Content::runs_of(&data) {
            let blocks = content.blocks();
            let joined = self.extents.last_mut().is_some_and(|last| {
                let joins = last.end() == block && last.data.join(&content);
                if joins {
                    last.hash = Arc::default();
                }
                joins
            });
            if !joined {
                self.put_content(block, content);
            }
            block += blocks;
        }
    }

    /// Puts so many blocks made from one number at `block`.
    pub fn put_same(&mut self, block: u32, number: u64, blocks: u32) {
        self.put_content(block, Content::Same(number, blocks));
    }

    fn put_content(&mut self, block: u32, data: Content) {
        let end = block + data.blocks();
        if end == block {
            return;
        }
        let new = Extent::new(block, data);
        if self.extents.last().is_none_or(|last| last.end() <= block) {
            self.extents.push(new);
            return;
        }
        let first = self.extents.partition_point(|e| e.end() <= block);
        let last = self.extents.partition_point(|e| e.start < end);
        let overlapped = self.extents.get(first..last).unwrap_or_default();
        let before = overlapped.first().filter(|e| e.start < block);
        let after = overlapped.last().filter(|e| e.end() > end);
        let replacement: Vec<Extent> = before
            .map(|e| e.part(0, block))
            .into_iter()
            .chain([new])
            .chain(after.map(|e| e.part(end, u32::MAX)))
            .collect();
        self.extents.splice(first..last, replacement);
    }

    /// Zeros everywhere.
    pub fn clear(&mut self) {
        self.extents.clear();
    }

    /// The content of `blocks` blocks from `block` on, not copied together yet.
    pub fn gather(&self, block: u32, blocks: u32) -> Gather {
        let end = block + blocks;
        let first = self.extents.partition_point(|e| e.end() <= block);
        let pieces = self
            .extents
            .iter()
            .skip(first)
            .take_while(|e| e.start < end)
            .map(|e| {
                let part = e.part(block, end);
                (part.start - block, part.data)
            })
            .collect();
        Gather { blocks, pieces }
    }

    /// A hash of the blocks below `end`, the same however they came there.
    pub fn hash(&self, end: u32) -> u64 {
        self.extents
            .iter()
            .take_while(|e| e.start < end)
            .map(|e| {
                if e.end() <= end {
                    e.hash()
                } else {
                    e.part(0, end).hash()
                }
            })
            .fold(0, u64::wrapping_add)
    }

    /// A copy of one block.
    pub fn block(&self, block: u32) -> BufferMut {
        self.gather(block, 1).finish().into_mut()
    }
}

/// Pieces of a read.
pub(crate) struct Gather {
    blocks: u32,
    /// Block within the read, and what goes there.
    pieces: Vec<(u32, Content)>,
}

impl Gather {
    /// Makes the read `blocks` blocks long; what is added are zeros.
    pub fn pad_to(&mut self, blocks: u32) {
        self.blocks = blocks;
    }

    /// One buffer: the medium's own where one extent holds all, else a copy.
    pub fn finish(self) -> Buffer {
        if let [(0, Content::Bytes(data))] = self.pieces.as_slice()
            && data.blocks() == self.blocks
        {
            return data.clone();
        }
        let mut whole = BufferMut::zeroed(self.blocks as usize);
        for (block, data) in &self.pieces {
            let start = *block as usize * BLOCK_SIZE;
            let len = data.blocks() as usize * BLOCK_SIZE;
            if let Some(target) = whole.get_mut(start..start + len) {
                data.copy_to(target);
            }
        }
        whole.freeze()
    }
}

fn bytes_of(content: &Content) -> Buffer {
    match content {
        Content::Bytes(data) => data.clone(),
        Content::Numbers(_) | Content::Same(..) => {
            let mut bytes = BufferMut::zeroed(content.blocks() as usize);
            content.copy_to(&mut bytes);
            bytes.freeze()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(byte: u8, blocks: usize) -> Buffer {
        let mut buffer = BufferMut::zeroed(blocks);
        buffer.fill(byte);
        buffer.freeze()
    }

    fn bytes(medium: &Medium, blocks: u32) -> Vec<u8> {
        let all = medium.gather(0, blocks).finish();
        all.chunks(BLOCK_SIZE)
            .map(|b| {
                assert!(b.iter().all(|x| *x == b[0]));
                b[0]
            })
            .collect()
    }

    #[test]
    fn patterns_read_back_whether_numbers_or_bytes_are_kept() {
        use super::super::pattern;
        let mut all = BufferMut::zeroed(8);
        pattern::fill(&mut all, 100);
        all[3 * BLOCK_SIZE..4 * BLOCK_SIZE].fill(5);
        let all = all.freeze();
        let mut media = [Medium::new(true), Medium::new(false)];
        for medium in &mut media {
            for (at, blocks) in [(0, 2), (2, 1), (3, 2), (5, 3)] {
                medium.put(at as u32, all.slice(at..at + blocks));
            }
            assert_eq!(medium.gather(0, 8).finish()[..], all[..]);
            assert_eq!(medium.block(6)[..], all[6 * BLOCK_SIZE..7 * BLOCK_SIZE]);
        }
        let [numbers, bytes] = media;
        assert!((0..=8).all(|end| numbers.hash(end) == bytes.hash(end)));
        assert_eq!((numbers.extents.len(), bytes.extents.len()), (3, 4));
    }

    #[test]
    fn equals_an_array_of_blocks() {
        // Every pair of overlapping puts onto two neighbouring extents with a gap before them.
        for start in 0..8u32 {
            for length in 1..=(10 - start) {
                let mut medium = Medium::default();
                let mut naive = [0u8; 10];
                for (at, n, byte) in [(2, 3, 1), (5, 2, 2), (start, length, 3)] {
                    medium.put(at, filled(byte, n as usize));
                    naive[at as usize..(at + n) as usize].fill(byte);
                }
                assert_eq!(bytes(&medium, 10), naive);
                let mut again = Medium::default();
                for (at, byte) in (0..10).zip(naive).filter(|(_, byte)| *byte > 0) {
                    again.put(at, filled(byte, 1));
                }
                assert!((0..=10).all(|end| medium.hash(end) == again.hash(end)));
            }
        }
    }
}
