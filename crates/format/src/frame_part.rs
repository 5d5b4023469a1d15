//! What a file has of a compressed frame, by itself or shared.
//!
//! Each file counts a frame once, by the blocks of it that it has: what the frame takes, but no more than these blocks would as they are. All
//! of them are found by a look at the file blocks that the frame would have if the file had all of it.

use crate::packed::{PackUnits, Packed, Stored};
use crate::shared_frame::SharedFrame;

/// What an extent has of a compressed frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramePart {
    /// The file's own.
    Packed(Packed),
    /// In the store of shared blocks.
    Shared {
        /// Its first block there.
        at: u64,
        /// Its blocks.
        blocks: u8,
        /// The frame.
        frame: SharedFrame,
    },
}

impl FramePart {
    /// Its blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        match self {
            FramePart::Packed(packed) => packed.blocks.into(),
            FramePart::Shared { blocks, .. } => (*blocks).into(),
        }
    }

    /// Blocks of the frame, and those of it before this part.
    fn place(&self) -> (u64, u64) {
        let (blocks, skip) = match self {
            FramePart::Packed(packed) => (packed.frame.blocks, packed.skip),
            FramePart::Shared { frame, .. } => (frame.blocks, frame.skip),
        };
        (blocks.into(), skip.into())
    }

    /// Blocks of the frame.
    #[must_use]
    pub fn frame_blocks(&self) -> u64 {
        self.place().0
    }

    /// Whether it is all of the frame.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.blocks() == self.frame_blocks()
    }

    /// Where the frame ends in a file that has this part at `block`.
    #[must_use]
    pub fn end_at(&self, block: u64) -> u64 {
        let (blocks, skip) = self.place();
        block.saturating_add(blocks).saturating_sub(skip)
    }

    /// The file blocks of the frame, if the file has this part at `block`. A shared one may have blocks of the frame at the beginning of the file
    /// that are not its first.
    #[must_use]
    pub fn range_at(&self, block: u64) -> (u64, u64) {
        let (_, skip) = self.place();
        (block.saturating_sub(skip), self.end_at(block))
    }

    /// Whether this part at `block` and another one of the same file are of one frame, and count together: the other one is where the file would
    /// have it together with this.
    #[must_use]
    pub fn counts_with(&self, block: u64, other: &FramePart, other_block: u64) -> bool {
        let is_of_frame = match (self, other) {
            (FramePart::Packed(one), FramePart::Packed(other)) => one.shares_frame(other),
            (
                FramePart::Shared { at, frame, .. },
                FramePart::Shared {
                    at: other_at,
                    frame: other,
                    ..
                },
            ) => {
                let first = |at: u64, frame: &SharedFrame| at.checked_sub(frame.skip.into());
                (frame.blocks, frame.sectors) == (other.blocks, other.sectors)
                    && first(*at, frame) == first(*other_at, other)
            }
            _ => false,
        };
        is_of_frame && self.end_at(block) == other.end_at(other_block)
    }

    /// What the frame counts as while the file has `live` blocks of it.
    #[must_use]
    pub fn stored(&self, live: u64) -> Stored {
        match self {
            FramePart::Packed(packed) => packed.stored(live),
            // What it takes in a zone counts where it is stored.
            FramePart::Shared { frame, .. } => Stored {
                units: PackUnits::ZERO,
                sectors: frame.sectors_of(live),
            },
        }
    }

    /// What this part adds to that, where the file has `beside` blocks of the frame that are not part of it.
    #[must_use]
    pub fn share(&self, beside: u64) -> Stored {
        let all = self.stored(beside + self.blocks());
        all.beyond(self.stored(beside))
    }
}
