//! References: how many files have a block of the store of shared blocks ([`crate::inode::SHARED`]), where that is more than one.

use crate::Result;
use crate::codec::{Put, Reader};
use crate::extent::FILE_BLOCKS_END;

/// The value of a key of kind [`crate::KeyKind::REFERENCES`], whose item is the first block in the store. Bytes: blocks 0..4, count
/// 4..8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct References {
    /// Length of the run.
    pub blocks: u32,
    /// Extents of files that name each of its blocks, at least two. A block of the store without a count is named by one.
    pub count: u32,
}

impl References {
    /// As stored.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8);
        out.put_u32(self.blocks);
        out.put_u32(self.count);
        out
    }

    /// As read, under this item.
    pub fn decode(item: u64, bytes: &[u8]) -> Result<References> {
        let mut r = Reader::new(bytes, "references");
        let (blocks, count) = (r.u32()?, r.u32()?);
        let end = item.checked_add(blocks.into());
        if blocks == 0 || end.is_none_or(|end| end > FILE_BLOCKS_END) {
            return Err(r.bad("blocks", blocks.into()));
        }
        if count < 2 {
            return Err(r.bad("count", count.into()));
        }
        r.end().map(|()| References { blocks, count })
    }
}
