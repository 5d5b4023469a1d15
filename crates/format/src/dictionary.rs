//! Dictionaries: blocks of the store of shared blocks ([`crate::inode::SHARED`]) that a compressed frame of a file is compressed with, so
//! that what both have in common is stored once.
//!
//! The content of a place in the store never changes and its place is never used again, so a frame can name it by that alone. A frame
//! with a dictionary is a file's, never the store's: what is a dictionary has none itself.

use crate::codec::{Put, Reader};
use crate::extent::FILE_BLOCKS_END;
use crate::packed::COMPRESSED_BLOCKS_MAX;
use crate::{BLOCK_SIZE, Result};

/// Blocks that a dictionary may have (128 KiB): who reads a frame reads as many more.
pub const DICTIONARY_BLOCKS_MAX: usize = COMPRESSED_BLOCKS_MAX;

/// Blocks of the store of shared blocks. Bytes at the end of a packed extent: first block 0..8, blocks 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dictionary {
    /// The first of them in the store.
    pub at: u64,
    /// How many, 1 to [`DICTIONARY_BLOCKS_MAX`].
    pub blocks: u8,
}

impl Dictionary {
    /// Bytes of it at the end of a packed extent.
    pub(crate) const LEN: usize = 9;

    /// One past the last block.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.at.saturating_add(self.blocks.into())
    }

    /// Bytes of its content.
    #[must_use]
    pub fn bytes(&self) -> usize {
        usize::from(self.blocks) * BLOCK_SIZE
    }

    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.put_u64(self.at);
        out.put_u8(self.blocks);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Dictionary> {
        let at = r.u64()?;
        Dictionary::checked(at, r)
    }

    /// As a summary has it.
    pub(crate) fn put_short(self, out: &mut Vec<u8>) {
        out.put_varint(self.at);
        out.put_u8(self.blocks);
    }

    pub(crate) fn read_short(r: &mut Reader<'_>) -> Result<Dictionary> {
        let at = r.varint()?;
        Dictionary::checked(at, r)
    }

    fn checked(at: u64, r: &mut Reader<'_>) -> Result<Dictionary> {
        let dictionary = Dictionary {
            at,
            blocks: r.u8()?,
        };
        if dictionary.blocks == 0 || usize::from(dictionary.blocks) > DICTIONARY_BLOCKS_MAX {
            return Err(r.bad("blocks of a dictionary", dictionary.blocks.into()));
        }
        if dictionary.end() > FILE_BLOCKS_END {
            return Err(r.bad("dictionary", at));
        }
        Ok(dictionary)
    }
}
