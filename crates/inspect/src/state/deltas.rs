//! Deltas: what records do to them, and the block that each is of.

use persimmon_device::Buffer;
use persimmon_format::delta::place_of;
use persimmon_format::extent::Extent;
use persimmon_format::inode::{FLAG_DELTAS, SHARED};
use persimmon_format::packed;
use persimmon_format::record::Op;
use persimmon_format::{BLOCK_SIZE, Key};

use super::{At, Grown, Result, State};

/// What is stored of a block that may have a delta.
pub(crate) enum Base {
    /// Nothing that a delta can be of.
    None,
    /// What cannot be read: that is told with the block itself.
    Unreadable,
    Content(Vec<u8>),
}

impl State<'_, '_> {
    /// Takes away the deltas of blocks that get another content, and notes in the inode that it has one.
    pub(super) fn change_deltas(&mut self, op: &Op, grown: &mut Grown) -> Result<()> {
        if let Some((ino, from, to)) = op.replaced_blocks() {
            let places = (place_of(from), place_of(to));
            let more = self.replace(&self.at(ino)?, places, None)?;
            grown.add(ino, more);
        }
        let Some(ino) = op.has_delta() else {
            return Ok(());
        };
        match self.inode_in(&self.at(ino)?) {
            Some(mut inode) if inode.flags & FLAG_DELTAS == 0 => {
                inode.flags |= FLAG_DELTAS;
                self.put(&Key::inode(ino), inode.encode())
            }
            _ => Ok(()),
        }
    }

    /// What is stored of a file block, without its delta. Without `reads` the content is left out.
    pub(crate) fn base_of(&self, at: &At, block: u64, reads: bool) -> Base {
        let Ok(found) = self.shown_extents(at, block, block.saturating_add(1)) else {
            return Base::Unreadable;
        };
        let Some((first, (_, extent))) = found.into_iter().next() else {
            return Base::None;
        };
        match extent.part(block - first, 1) {
            Extent::Shared { at: place, .. } if at.ino != SHARED => match self.at(SHARED) {
                Ok(store) => self.base_of(&store, place, reads),
                Err(_) => Base::Unreadable,
            },
            part @ (Extent::Frame { .. } | Extent::Packed(_)) => match reads {
                true => self.content(&part).map_or(Base::Unreadable, Base::Content),
                false => Base::Content(Vec::new()),
            },
            // It was packed when the delta was made of it, of which no record tells: a replay finds it as it was.
            Extent::Compressed(bytes) => packed::decompress(&bytes)
                .map_or(Base::Unreadable, |content| Base::Content(content.to_vec())),
            _ => Base::None,
        }
    }

    fn content(&self, part: &Extent) -> Option<Vec<u8>> {
        let content = match part {
            Extent::Packed(packed) => {
                let dictionary = self.dictionary_of(packed)?;
                let media = &self.inspector.media;
                media.read_packed(packed, |blocks| packed.content(blocks, &dictionary))
            }
            other => self.stored_content(other),
        };
        content.filter(|content| content.len() == BLOCK_SIZE)
    }

    /// The bytes of a delta, if they can be read.
    pub(crate) fn delta_bytes(&self, delta: &Extent) -> Option<Vec<u8>> {
        match delta {
            Extent::Compressed(bytes) => Some(bytes.clone()),
            Extent::Packed(packed) => {
                let bytes = |blocks: &Buffer| Some(packed.verified(blocks)?.to_vec());
                self.inspector.media.read_packed(packed, bytes)
            }
            _ => None,
        }
    }
}
