//! Blocks that are compressed alone, as they are stored. They cannot be shared: what a file has of them is put again for a clone.

use std::collections::BTreeMap;

use persimmon_format::Ino;
use persimmon_format::extent::{Extent, FILE_BLOCKS_END};
use persimmon_format::packed::{CompressedFrame, Packed};

use super::FileData;
use super::journal_inline::COMPRESSED_BYTES_MAX;
use crate::error::Result;
use crate::meta::extents;
use crate::zones::Pin;

/// What some files have in such blocks.
#[derive(Default)]
pub(super) struct SingleBlocks(BTreeMap<(Ino, u64), (CompressedFrame, Vec<u8>)>);

impl SingleBlocks {
    /// What a file has in a block: nothing, if it has not what this extent says, or that was not read.
    pub(super) fn content(&self, ino: Ino, block: u64, packed: &Packed) -> Option<Extent> {
        let (frame, bytes) = self.0.get(&(ino, block))?;
        (packed.is_short() && *frame == packed.frame).then(|| Extent::Compressed(bytes.clone()))
    }
}

impl FileData {
    /// The single compressed blocks of files that nobody changes, as far as the tree has room for them until they are packed anew. Left out
    /// is what cannot be read, and what is so long that writing it once costs less than the journal and packing.
    pub(super) fn single_blocks(&self, inos: &[Ino]) -> Result<SingleBlocks> {
        let extents_max = self.shared_extents_max() + 1;
        let found: Vec<((Ino, u64), Packed, Option<Pin>)> = self.store.view(|view| {
            view.find(|meta| {
                let inline_max = self.placement.journal_inline_bytes_max();
                let mut room = inline_max.saturating_sub(meta.journal_inline.bytes());
                let mut found = Vec::new();
                for ino in inos {
                    let shown = extents::overlapping(meta, *ino, 0, FILE_BLOCKS_END, extents_max)?;
                    for mapped in shown {
                        let Extent::Packed(packed) = mapped.extent else {
                            continue;
                        };
                        let len = u64::from(packed.frame.len);
                        let is_long = len > COMPRESSED_BYTES_MAX as u64 || len > room;
                        if packed.is_short() && !is_long {
                            room -= len;
                            let pin = self.store.zones.pin(packed.addr.zone());
                            found.push(((*ino, mapped.block), packed, pin));
                        }
                    }
                }
                Ok(found)
            })
        })?;
        let mut blocks = SingleBlocks::default();
        // Files that were written together lie in one block.
        let mut last = None;
        for (place, packed, _pin) in found {
            let at = (packed.addr, packed.span());
            let read = match last.take() {
                Some((read_at, read)) if read_at == at => Some(read),
                _ => self.store.media.read(packed.addr, packed.span()).ok(),
            };
            let bytes = read.as_ref().and_then(|read| packed.verified(read));
            let bytes = bytes.map(<[u8]>::to_vec);
            if let Some(bytes) = bytes.or_else(|| self.frame_bytes(&packed)) {
                blocks.0.insert(place, (packed.frame, bytes));
            }
            last = read.map(|read| (at, read));
        }
        Ok(blocks)
    }
}
