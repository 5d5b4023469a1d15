//! Block-aligned memory for direct I/O, without `unsafe`.

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use crate::BLOCK_SIZE;

/// One block of memory, aligned to its own size as direct I/O asks for.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(4096))]
pub struct Block(pub [u8; BLOCK_SIZE]);

const _: () = assert!(size_of::<Block>() == BLOCK_SIZE);

/// A writable run of blocks.
#[derive(Clone)]
pub struct BufferMut(Vec<Block>);

impl BufferMut {
    /// `blocks` blocks of zeros.
    #[must_use]
    pub fn zeroed(blocks: usize) -> BufferMut {
        BufferMut(bytemuck::zeroed_vec(blocks))
    }

    /// No blocks yet, with room for `blocks`.
    #[must_use]
    pub fn with_capacity(blocks: usize) -> BufferMut {
        BufferMut(Vec::with_capacity(blocks))
    }

    /// Room before the next reallocation, in blocks.
    #[must_use]
    pub fn capacity_blocks(&self) -> usize {
        self.0.capacity()
    }

    /// Makes it `blocks` long; new blocks are zero.
    pub fn resize_blocks(&mut self, blocks: usize) {
        self.0.resize(blocks, bytemuck::Zeroable::zeroed());
    }

    /// Length in blocks.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.0.len()
    }

    /// Makes it immutable and cheap to share.
    #[must_use]
    pub fn freeze(self) -> Buffer {
        let blocks = self.0.len();
        Buffer {
            memory: Arc::new(self.0),
            range: 0..blocks,
        }
    }
}

impl Deref for BufferMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        bytemuck::must_cast_slice(&self.0)
    }
}

impl DerefMut for BufferMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        bytemuck::must_cast_slice_mut(&mut self.0)
    }
}

/// An immutable run of blocks; clones and slices share the memory.
#[derive(Clone)]
pub struct Buffer {
    memory: Arc<Vec<Block>>,
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
            Ok(mut blocks) => {
                blocks.truncate(range.end);
                blocks.drain(..range.start);
                BufferMut(blocks)
            }
            Err(shared) => BufferMut(shared[range].to_vec()),
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        bytemuck::must_cast_slice(&self.memory[self.range.clone()])
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
