//! What blocks count that became shared out of a compressed frame.
//!
//! A file counts a compressed frame once, by what the frame takes and how much of it the file has ([`crate::frame_part`]). The store of shared
//! blocks may have more of it, or may have written anew what is left. So an extent says itself what the frame took when its blocks became shared:
//! a file counts the same before and after, and nothing that happens to the store, or to another file, changes that.

use crate::codec::{Put, Reader};
use crate::packed::{COMPRESSED_BLOCKS_MAX, Packed};
use crate::{BLOCK_SIZE, Result};

/// Sectors of a block, in units of 512 bytes.
const BLOCK_SECTORS: u64 = BLOCK_SIZE as u64 / 512;

/// The compressed frame that shared blocks are of. Bytes: blocks of this part 0, blocks of the frame 1, blocks of it before this part 2,
/// sectors of all of it 3..5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedFrame {
    /// Blocks of the frame, 1 to [`COMPRESSED_BLOCKS_MAX`].
    pub blocks: u8,
    /// Blocks of it before those of the extent.
    pub skip: u8,
    /// What all of it took when its blocks became shared, in units of 512 bytes: 1 to that of its blocks as they are.
    pub sectors: u16,
}

impl SharedFrame {
    /// Bytes it takes as stored, with the number of blocks of the part.
    pub(crate) const LEN: usize = 5;

    /// That of what a file has of a frame.
    #[must_use]
    pub fn of(packed: &Packed) -> SharedFrame {
        SharedFrame {
            blocks: packed.frame.blocks,
            skip: packed.skip,
            // At most that of the blocks: it is 256 where there are most of them.
            sectors: packed.stored(packed.frame.blocks.into()).sectors as u16,
        }
    }

    /// What the frame counts as in a file that has so many of its blocks, in units of 512 bytes: as a packed one does.
    #[must_use]
    pub fn sectors_of(&self, live: u64) -> u64 {
        u64::from(self.sectors).min(live * BLOCK_SECTORS)
    }

    /// From the `skip`-th block of this part on.
    #[must_use]
    pub fn part(self, skip: u64) -> SharedFrame {
        SharedFrame {
            skip: self.skip.saturating_add(skip as u8),
            ..self
        }
    }

    pub(crate) fn put(&self, blocks: u16, out: &mut Vec<u8>) {
        out.put_u8(blocks as u8);
        out.put_u8(self.blocks);
        out.put_u8(self.skip);
        out.put_u16(self.sectors);
    }

    /// With the number of blocks of the part.
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<(u16, SharedFrame)> {
        let (blocks, of, skip) = (r.u8()?, r.u8()?, r.u8()?);
        let sectors = r.u16()?;
        if of == 0 || usize::from(of) > COMPRESSED_BLOCKS_MAX {
            return Err(r.bad("blocks of a shared frame", of.into()));
        }
        if blocks == 0 || u16::from(skip) + u16::from(blocks) > u16::from(of) {
            return Err(r.bad("shared blocks of a frame", blocks.into()));
        }
        if sectors == 0 || u64::from(sectors) > u64::from(of) * BLOCK_SECTORS {
            return Err(r.bad("sectors of a shared frame", sectors.into()));
        }
        let frame = SharedFrame {
            blocks: of,
            skip,
            sectors,
        };
        Ok((blocks.into(), frame))
    }
}
