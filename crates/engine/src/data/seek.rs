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
        } else if let Some(size) = self.size_if_staged(ino) {
            // What an error keeps from being mapped is data all the same, for who saves what can be read.
            return Ok((offset < size).then_some(match what {
                Seek::Data => offset,
                Seek::Hole => size,
            }));
        }
        let mut block = block_of(offset);
        loop {
            // Extents and the size to which they belong, looked up together: what is written from now on is staged.
            let (size, pieces) = self.view::<_, Error>(|view| {
                let inode = view.inode(ino)?.ok_or(Error::NotFound(ino))?;
                let pieces = view.extents(ino, block, blocks_in(inode.size).max(block), STRIDE)?;
                Ok((inode.size, pieces))
            })?;
            if offset >= size {
                return Ok(None);
            }
            let byte = |block: u64| (block * BLOCK_SIZE as u64).max(offset).min(size);
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

    /// How long a file is of which something waits to be written.
    fn size_if_staged(&self, ino: Ino) -> Option<u64> {
        let file = self.files.get(ino)?;
        let staged = file.lock();
        staged.size.filter(|_| staged.busy || !staged.is_clean())
    }
}
