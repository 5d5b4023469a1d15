//! What files should hold.

use persimmon_format::Ino;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// A block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// Never written.
    Hole,
    /// Preallocated.
    Reserved,
    /// Made from a number.
    Pattern(u64),
}

impl Block {
    /// Writing it takes space.
    pub fn takes_space(self) -> bool {
        self == Block::Hole
    }
}

/// What is in a file.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Blocks(Vec<Block>),
    /// So many bytes of this value: less than a block.
    Small(usize, u8),
}

#[derive(Clone, Debug)]
pub(super) struct File {
    pub name: String,
    pub ino: Ino,
    pub content: Content,
}

/// All files, in no order.
#[derive(Debug, Default)]
pub(super) struct Twin {
    pub files: Vec<File>,
    made: u64,
}

impl Twin {
    /// A name that none has had.
    pub fn new_name(&mut self, rng: &mut ChaCha8Rng) -> String {
        self.made += 1;
        let padding = if rng.random_ratio(1, 16) { 200 } else { 0 };
        format!("{:x}{:.<padding$}", self.made, "")
    }

    /// Any of them.
    pub fn any(&self, rng: &mut ChaCha8Rng) -> Option<usize> {
        (!self.files.is_empty()).then(|| rng.random_range(0..self.files.len()))
    }
}
