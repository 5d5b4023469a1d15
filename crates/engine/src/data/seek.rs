//! Finding data and holes.

use persimmon_device::BLOCK_SIZE;
use persimmon_format::Ino;
use persimmon_format::extent::Extent;

use super::{block_of, blocks_in};
use crate::Volume;
use crate::error::{Error, Result};

/// What to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is not in a hole.
    Data,
    /// The next byte that is; the end of the file counts as one.
    Hole,
}

/// Extents looked at in one view.
const STRIDE: usize = 256;

impl Volume {
    /// The next data or hole at or after `offset`; `None` past the end, or if no data follows.
    pub fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<Option<u64>> {
        if !self.is_read_only() {
            // Staged blocks count: they are mapped first.
            self.commit_file(ino)?;
        }
        let size = self.attr(ino)?.ok_or(Error::NotFound(ino))?.size;
        if offset >= size {
            return Ok(None);
        }
        let end = blocks_in(size);
        let mut block = block_of(offset);
        let byte = |block: u64| (block * BLOCK_SIZE as u64).max(offset).min(size);
        loop {
            let pieces = self.view::<_, Error>(|view| view.extents(ino, block, end, STRIDE))?;
            for piece in &pieces {
                if what == Seek::Hole && piece.block > block {
                    return Ok(Some(byte(block)));
                }
                let hole = matches!(piece.extent, Extent::Reserved { .. });
                match what {
                    Seek::Data if !hole => return Ok(Some(byte(piece.block.max(block)))),
                    Seek::Hole if hole => return Ok(Some(byte(block))),
                    _ => block = piece.end(),
                }
            }
            if pieces.len() < STRIDE {
                return Ok((what == Seek::Hole).then(|| byte(block)));
            }
        }
    }
}
