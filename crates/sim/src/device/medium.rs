//! What a zone's blocks hold: runs of shared buffers, sorted and disjoint. Zeros elsewhere.

use std::sync::{Arc, OnceLock};

use persimmon_device::{BLOCK_SIZE, Buffer, BufferMut};
use xxhash_rust::xxh3::xxh3_64_with_seed;

#[derive(Clone)]
struct Extent {
    start: u32,
    data: Buffer,
    /// What its blocks add to [`Medium::hash`]; computed once for all copies.
    hash: Arc<OnceLock<u64>>,
}

impl Extent {
    fn new(start: u32, data: Buffer) -> Extent {
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
                .zip(self.data.chunks_exact(BLOCK_SIZE))
                .map(|(at, block)| xxh3_64_with_seed(block, at))
                .fold(0, u64::wrapping_add)
        })
    }

    /// The part of this extent from block `from` to block `to` of the zone.
    fn part(&self, from: u32, to: u32) -> Extent {
        let start = from.max(self.start);
        let end = to.min(self.end()).max(start);
        let blocks = (start - self.start) as usize..(end - self.start) as usize;
        Extent::new(start, self.data.slice(blocks))
    }
}

/// The blocks of a zone as the medium holds them, wherever the write pointer stands.
#[derive(Clone, Default)]
pub(crate) struct Medium {
    extents: Vec<Extent>,
}

impl Medium {
    /// Puts `data` at `block`, over whatever was there.
    pub fn put(&mut self, block: u32, data: Buffer) {
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
            .map(|e| match e.end() <= end {
                true => e.hash(),
                false => e.part(0, end).hash(),
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
    pieces: Vec<(u32, Buffer)>,
}

impl Gather {
    /// Makes the read `blocks` blocks long; what is added are zeros.
    pub fn pad_to(&mut self, blocks: u32) {
        self.blocks = blocks;
    }

    /// One buffer: the medium's own where one extent holds all, else a copy.
    pub fn finish(self) -> Buffer {
        if let [(0, data)] = self.pieces.as_slice()
            && data.blocks() == self.blocks
        {
            return data.clone();
        }
        let mut whole = BufferMut::zeroed(self.blocks as usize);
        for (block, data) in &self.pieces {
            let start = *block as usize * BLOCK_SIZE;
            if let Some(target) = whole.get_mut(start..start + data.len()) {
                target.copy_from_slice(data);
            }
        }
        whole.freeze()
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
