//! What files should hold.

use persimmon_device::BLOCK_SIZE;
use persimmon_format::Ino;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use persimmon_sim::device::pattern;

/// A block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// Never written.
    Hole,
    /// Preallocated.
    Reserved,
    /// Made from a number.
    Pattern(u64),
    /// The same, with its first bytes changed by this.
    Edited(u64, u8),
}

/// Bytes of an edited block that are not what its number makes.
pub(super) const EDITED_BYTES: usize = 8;

/// Blocks of numbers from here on compress, most of them.
pub(super) const COMPRESSIBLE_FROM: u64 = 1 << 60;

/// Blocks of numbers from here on are written again and again.
pub(super) const REPEATING_FROM: u64 = 1 << 61;

/// Fills blocks: the first from `number`, the next from the number after it. Of three neighbours of those that compress some are
/// all noise, some half, and some much the same from one end to the other.
pub(super) fn fill(blocks: &mut [u8], number: u64) {
    pattern::fill(blocks, number);
    if !(COMPRESSIBLE_FROM..REPEATING_FROM).contains(&number) {
        return;
    }
    for (block, number) in blocks.chunks_mut(BLOCK_SIZE).zip(number..) {
        match number / 8 % 3 {
            0 => {}
            1 => block[BLOCK_SIZE / 2..].fill(number as u8),
            _ => block[64..].fill(number as u8),
        }
    }
}

impl Block {
    /// Writing it takes space: what is compressed gives back less than its next content may need, and what is shared nothing.
    pub fn takes_space(self) -> bool {
        match self {
            Block::Hole => true,
            Block::Reserved => false,
            Block::Pattern(number) | Block::Edited(number, _) => number >= COMPRESSIBLE_FROM,
        }
    }

    /// What it is after its first bytes were changed once more, if it was written.
    pub fn edited(self) -> Option<Block> {
        match self {
            Block::Pattern(number) => Some(Block::Edited(number, 1)),
            Block::Edited(number, by) => Some(Block::Edited(number, by.wrapping_add(1))),
            Block::Hole | Block::Reserved => None,
        }
    }

    /// Fills a block, which is zero, with it.
    pub fn fill(self, to: &mut [u8]) {
        match self {
            Block::Hole | Block::Reserved => {}
            Block::Pattern(number) => fill(to, number),
            Block::Edited(number, by) => {
                fill(to, number);
                to.iter_mut()
                    .take(EDITED_BYTES)
                    .for_each(|byte| *byte ^= by);
            }
        }
    }
}

/// Less than a block, which lies in the tree or with others in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Small {
    /// So many bytes of this value.
    Same(usize, u8),
    /// So many bytes made from a number, which do not compress.
    Pattern(usize, u64),
}

impl Small {
    pub fn len(self) -> usize {
        match self {
            Small::Same(len, _) | Small::Pattern(len, _) => len,
        }
    }

    /// Its first bytes.
    pub fn cut(self, len: usize) -> Small {
        match self {
            Small::Same(_, value) => Small::Same(len, value),
            Small::Pattern(_, number) => Small::Pattern(len, number),
        }
    }

    pub fn bytes(self) -> Vec<u8> {
        match self {
            Small::Same(len, value) => vec![value; len],
            Small::Pattern(len, number) => {
                let mut bytes = vec![0; len];
                pattern::fill(&mut bytes, number);
                bytes
            }
        }
    }
}

/// What is in a file.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Blocks(Vec<Block>),
    Small(Small),
}

impl Content {
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Content::Small(small) => small.bytes(),
            Content::Blocks(blocks) => {
                let mut bytes = vec![0; blocks.len() * BLOCK_SIZE];
                for (block, to) in blocks.iter().zip(bytes.chunks_mut(BLOCK_SIZE)) {
                    block.fill(to);
                }
                bytes
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct File {
    pub name: String,
    pub ino: Ino,
    pub content: Content,
    /// Value of its one attribute.
    pub attribute: Option<Small>,
}

/// All files, in no order.
#[derive(Debug, Default)]
pub(super) struct Twin {
    pub files: Vec<File>,
    made: u64,
}

impl Twin {
    /// A name that none has had, one of so many long.
    pub fn new_name(&mut self, rng: &mut ChaCha8Rng, long: u32) -> String {
        self.made += 1;
        let padding = if rng.random_ratio(1, long) { 200 } else { 0 };
        format!("{:x}{:.<padding$}", self.made, "")
    }

    /// Any of them.
    pub fn any(&self, rng: &mut ChaCha8Rng) -> Option<usize> {
        (!self.files.is_empty()).then(|| rng.random_range(0..self.files.len()))
    }
}
