//! Blocks that are compressed alone, as they are stored. They cannot be shared: what a file has of them is put again for a clone.

use std::collections::BTreeMap;

use persimmon_format::Ino;
use persimmon_format::extent::{Extent, FILE_BLOCKS_END};
use persimmon_format::inode::{FLAG_DELTAS, FLAG_PREALLOCATED};
use persimmon_format::packed::{CompressedFrame, Packed};

use super::FileData;
use super::journal_inline::COMPRESSED_BYTES_MAX;
use crate::error::{Error, Result};
use crate::meta::View;
use crate::meta::extents::{self, MappedExtent};
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

/// Such a block of a file, where it lies, and what keeps it there until it is read.
type Place = ((Ino, u64), Packed, Option<Pin>);

impl FileData {
    /// The single compressed blocks of files that nobody changes, as far as there is room for them in the tree until they are packed anew, and
    /// then on the device. Of a file that has one which is so long that writing it once costs less than the journal and packing, and of one
    /// that cannot be cloned whole, there are none.
    pub(super) fn single_blocks(&self, inos: &[Ino]) -> Result<SingleBlocks> {
        if !self.has_room_to_share() {
            return Ok(SingleBlocks::default());
        }
        let found: Vec<Place> = self.store.view(|view| {
            let inline_max = self.placement.journal_inline_bytes_max();
            let inline = view.find(|meta| Ok(meta.journal_inline.bytes()))?;
            let mut room = inline_max.saturating_sub(inline);
            let mut found = Vec::new();
            for ino in inos {
                match self.single_places(view, *ino, &mut room) {
                    Ok(places) => found.extend(places),
                    // It is this file that cannot be cloned.
                    Err(Error::ItemDamaged { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(found)
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

    fn single_places(&self, view: &View<'_>, ino: Ino, room: &mut u64) -> Result<Vec<Place>> {
        let extents_max = self.shared_extents_max();
        let shown =
            view.find(|meta| extents::overlapping(meta, ino, 0, FILE_BLOCKS_END, extents_max + 1))?;
        let single = |mapped: &MappedExtent| match &mapped.extent {
            Extent::Packed(packed) if packed.is_short() => Some((mapped.block, *packed)),
            _ => None,
        };
        let places: Vec<(u64, Packed)> = shown.iter().filter_map(single).collect();
        let lens = places.iter().map(|(_, packed)| u64::from(packed.frame.len));
        let (longest, bytes): (u64, u64) = (lens.clone().max().unwrap_or(0), lens.sum());
        let fits = longest <= COMPRESSED_BYTES_MAX as u64 && bytes <= *room;
        if places.is_empty() || shown.len() > extents_max || !fits {
            return Ok(Vec::new());
        }
        let inode = view.inode(ino)?.unwrap_or_default();
        if inode.flags & (FLAG_PREALLOCATED | FLAG_DELTAS) != 0 {
            return Ok(Vec::new());
        }
        *room -= bytes;
        let pinned = |(block, packed): (u64, Packed)| {
            let pin = self.store.zones.pin(packed.addr.zone());
            ((ino, block), packed, pin)
        };
        Ok(places.into_iter().map(pinned).collect())
    }
}
