//! Block-aligned memory for direct I/O, without `unsafe`.
//!
//! Large buffers are recycled through a [`pool`]: the system's allocator gives runs of this size
//! back to the kernel at once, and getting them again costs a page fault a block, ten times what
//! reading or writing them costs.

pub mod pool;

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use crate::BLOCK_SIZE;

/// One block of memory, aligned to its own size as direct I/O asks for.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(4096))]
pub struct Block(pub [u8; BLOCK_SIZE]);

const _: () = assert!(size_of::<Block>() == BLOCK_SIZE);

/// What is written to the device in one piece has no more blocks. Up to this a buffer grows faster than by doubling.
const FRAME_BLOCKS: usize = 256;

/// A writable run of blocks.
#[derive(Clone)]
pub struct BufferMut(Memory);

/// Goes to the pool when it is dropped.
#[derive(Clone)]
struct Memory(Vec<Block>);

impl Drop for Memory {
    fn drop(&mut self) {
        pool::give(std::mem::take(&mut self.0));
    }
}

impl BufferMut {
    /// `blocks` blocks of zeros.
    #[must_use]
    pub fn zeroed(blocks: usize) -> BufferMut {
        match pool::take(blocks) {
            Some(mut memory) => {
                memory.truncate(blocks);
                bytemuck::must_cast_slice_mut::<Block, u8>(&mut memory).fill(0);
                memory.resize(blocks, bytemuck::Zeroable::zeroed());
                BufferMut(Memory(memory))
            }
            None => BufferMut(Memory(bytemuck::zeroed_vec(blocks))),
        }
    }

    /// `blocks` blocks that hold anything, to be written over in full: cheaper than zeros.
    #[must_use]
    pub fn unspecified(blocks: usize) -> BufferMut {
        match pool::take(blocks) {
            Some(mut memory) => {
                memory.resize(blocks, bytemuck::Zeroable::zeroed());
                BufferMut(Memory(memory))
            }
            None => BufferMut::zeroed(blocks),
        }
    }

    /// No blocks yet, with room for `blocks`.
    #[must_use]
    pub fn with_capacity(blocks: usize) -> BufferMut {
        let memory = pool::take(blocks).map(|mut memory| {
            memory.clear();
            memory
        });
        BufferMut(Memory(memory.unwrap_or_else(|| Vec::with_capacity(blocks))))
    }

    /// Room before the next reallocation, in blocks.
    #[must_use]
    pub fn capacity_blocks(&self) -> usize {
        self.0.0.capacity()
    }

    /// Makes it `blocks` long; new blocks are zero.
    pub fn resize_blocks(&mut self, blocks: usize) {
        self.make_room(blocks);
        self.0.0.resize(blocks, bytemuck::Zeroable::zeroed());
    }

    /// Adds the whole blocks of `bytes`, without having been zeros before. Tells how many blocks.
    pub fn extend(&mut self, bytes: &[u8]) -> usize {
        let (blocks, _) = bytes.as_chunks::<BLOCK_SIZE>();
        self.make_room(self.blocks() + blocks.len());
        match bytemuck::try_cast_slice::<[u8; BLOCK_SIZE], Block>(blocks) {
            // What lies as blocks do is copied in one piece.
            Ok(blocks) => self.0.0.extend_from_slice(blocks),
            Err(_) => self.0.0.extend(blocks.iter().map(|block| Block(*block))),
        }
        blocks.len()
    }

    fn make_room(&mut self, blocks: usize) {
        if blocks > self.capacity_blocks() {
            // What grows block by block takes its memory from the pool too, and leaves there what it outgrew. A log that is appended
            // to grows twice before it is as long as it gets, and is copied as often.
            let doubled = 2 * self.capacity_blocks();
            let grown = if blocks > pool::BLOCKS_MIN {
                doubled.max((2 * doubled).min(FRAME_BLOCKS))
            } else {
                doubled
            };
            let mut larger = BufferMut::with_capacity(blocks.max(grown));
            larger.0.0.extend_from_slice(&self.0.0);
            *self = larger;
        }
    }

    /// Length in blocks.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.0.0.len()
    }

    /// Makes it immutable and cheap to share.
    #[must_use]
    pub fn freeze(self) -> Buffer {
        let blocks = self.0.0.len();
        Buffer {
            memory: Arc::new(self.0),
            range: 0..blocks,
        }
    }
}

impl Deref for BufferMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        bytemuck::must_cast_slice(&self.0.0)
    }
}

impl DerefMut for BufferMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        bytemuck::must_cast_slice_mut(&mut self.0.0)
    }
}

/// An immutable run of blocks; clones and slices share the memory.
#[derive(Clone)]
pub struct Buffer {
    memory: Arc<Memory>,
    range: Range<usize>,
}

impl Buffer {
    /// Length in blocks.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.range.len() as u32
    }

    /// The blocks `range` of this buffer, sharing its memory. Cut to what there is.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Buffer {
        let start = (self.range.start + range.start).min(self.range.end);
        let end = (self.range.start + range.end).clamp(start, self.range.end);
        Buffer {
            memory: Arc::clone(&self.memory),
            range: start..end,
        }
    }

    /// Writable again, without a copy where nobody else holds the memory.
    #[must_use]
    pub fn into_mut(self) -> BufferMut {
        let range = self.range;
        match Arc::try_unwrap(self.memory) {
            Ok(mut memory) => {
                memory.0.truncate(range.end);
                memory.0.drain(..range.start);
                BufferMut(memory)
            }
            Err(shared) => {
                let mut copy = BufferMut::with_capacity(range.len());
                copy.0.0.extend_from_slice(&shared.0[range]);
                copy
            }
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        bytemuck::must_cast_slice(&self.memory.0[self.range.clone()])
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} blocks)", self.blocks())
    }
}

impl From<BufferMut> for Buffer {
    fn from(buffer: BufferMut) -> Buffer {
        buffer.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_extended_by_whole_blocks() {
        let mut buffer = BufferMut::zeroed(1);
        let mut bytes = vec![1; BLOCK_SIZE];
        bytes.extend([2; BLOCK_SIZE]);
        bytes.push(3);
        assert_eq!(buffer.extend(&bytes), 2);
        assert_eq!(buffer.extend(&[4; 5]), 0);
        assert_eq!(buffer.blocks(), 3);
        let firsts = buffer.chunks(BLOCK_SIZE).map(|block| block[0]);
        assert_eq!(firsts.collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(buffer[BLOCK_SIZE..], bytes[..2 * BLOCK_SIZE]);
    }
}
