//! The content of a file as it is stored: compressed frames stay compressed. Of two subvolumes only what differs between them, which is told
//! by where it lies, not by a look at it. For who sends files elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use persimmon_device::BLOCK_SIZE;
use persimmon_format::delta::block_at;
use persimmon_format::extent::Extent;
use persimmon_format::packed::{CompressedFrame, Packed};
use persimmon_format::{Ino, SubvolumeId};

use super::FileData;
use crate::error::{Error, Result};
use crate::meta::deltas;
use crate::meta::extents::{self, MappedExtent};
use crate::zones::Pin;

/// Extents of each of the two files in one look.
const EXTENTS_MAX: usize = 128;
/// File content in one look, blocks: 1 MiB. One compressed frame may be more than is left of that.
const BLOCKS_MAX: u64 = 256;
/// Blocks of a piece that is not compressed: 256 KiB.
const PLAIN_BLOCKS_MAX: u64 = 64;

/// A piece of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPiece {
    /// Its first file block.
    pub block: u64,
    /// File blocks.
    pub blocks: u64,
    /// What they hold.
    pub content: StoredContent,
}

/// What a piece of a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredContent {
    /// Zeros that take no room.
    Hole,
    /// Bytes; fewer than whole blocks where the file ends.
    Plain(Vec<u8>),
    /// Blocks of a compressed frame.
    Frame {
        /// The frame.
        frame: CompressedFrame,
        /// Blocks of the frame before the piece.
        skip: u8,
        /// All compressed bytes of the frame; they match its checksum.
        bytes: Vec<u8>,
    },
}

/// Pieces of a file, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredLook {
    /// Those found.
    pub pieces: Vec<StoredPiece>,
    /// Where the next look begins; none at the end of what was asked for.
    pub next: Option<u64>,
}

/// Blocks that differ, and the extent that has them.
struct Range {
    block: u64,
    end: u64,
    extent: Option<Extent>,
    /// The extent is not what the file has: there is a delta to it.
    is_base: bool,
    pin: Option<Pin>,
}

impl Range {
    /// Blocks of it from one on.
    fn part(&self, from: u64, to: u64) -> Range {
        let extent = self.extent.as_ref();
        Range {
            block: from,
            end: to,
            extent: extent.map(|extent| extent.part(from - self.block, to - from)),
            is_base: self.is_base,
            pin: None,
        }
    }
}

impl FileData {
    /// What a file has in the file blocks `from..to`: all its data, or, beside the same file in another subvolume, what is not the same
    /// there, holes among it. Ends with the file. Rewritten blocks differ whatever they hold.
    pub(crate) fn stored(
        &self,
        base: Option<SubvolumeId>,
        ino: Ino,
        (from, to): (u64, u64),
    ) -> Result<StoredLook> {
        let (ranges, mut next) = self.store.view::<_, Error>(|view| {
            let inode = view.inode(ino)?.ok_or(Error::NotFound(ino))?;
            let to = to.min(super::blocks_in(inode.size));
            view.find(|meta| {
                let (shown, more) = extents::some_shown(meta, ino, from, to, EXTENTS_MAX)?;
                let mut end = more.unwrap_or(to);
                let mut before = Vec::new();
                if let Some(base) = base {
                    let base = ino.of(base);
                    let (extents, more) = extents::some_shown(meta, base, from, end, EXTENTS_MAX)?;
                    before = extents;
                    end = more.unwrap_or(end);
                }
                let (deltas, more) = deltas::some_of(meta, ino, from, end, EXTENTS_MAX)?;
                end = more.unwrap_or(end);
                let (deltas_before, more) = match base {
                    Some(base) => deltas::some_of(meta, ino.of(base), from, end, EXTENTS_MAX)?,
                    None => (Vec::new(), None),
                };
                end = more.unwrap_or(end);
                let marks = marked(&deltas, &deltas_before, end);
                let mut ranges = differing(&shown, &before, (from, end));
                if !marks.is_empty() {
                    ranges = cut_at(ranges, &marks);
                }
                for range in &mut ranges {
                    let addr = range.extent.as_ref().and_then(Extent::addr);
                    range.pin = addr.and_then(|addr| self.store.zones.pin(addr.zone()));
                }
                Ok((ranges, (end < to).then_some(end)))
            })
        })?;
        let mut pieces = Vec::new();
        let mut blocks = 0;
        for range in ranges {
            let mut at = range.block;
            while at < range.end {
                if blocks >= BLOCKS_MAX {
                    next = Some(at);
                    return Ok(StoredLook { pieces, next });
                }
                let piece = self.piece(ino, &range, at)?;
                at += piece.blocks;
                if piece.content != StoredContent::Hole {
                    blocks += piece.blocks;
                }
                pieces.push(piece);
            }
        }
        Ok(StoredLook { pieces, next })
    }

    /// The piece of a range that begins at a block.
    fn piece(&self, ino: Ino, range: &Range, at: u64) -> Result<StoredPiece> {
        let left = range.end - at;
        let piece = |blocks, content| StoredPiece {
            block: at,
            blocks,
            content,
        };
        match &range.extent {
            _ if range.is_base => {}
            None => return Ok(piece(left, StoredContent::Hole)),
            // Who receives it has no dictionary.
            Some(Extent::Packed(packed)) if packed.dictionary().is_none() => {
                if let Some(bytes) = self.frame_bytes(packed) {
                    let content = StoredContent::Frame {
                        frame: packed.frame,
                        skip: packed.skip,
                        bytes,
                    };
                    return Ok(piece(left, content));
                }
            }
            Some(Extent::Compressed(bytes)) => {
                let content = StoredContent::Frame {
                    frame: CompressedFrame::of_block(bytes),
                    skip: 0,
                    bytes: bytes.clone(),
                };
                return Ok(piece(left, content));
            }
            Some(_) => {}
        }
        // What cannot be read is looked up again here, or told by its place.
        let blocks = left.min(PLAIN_BLOCKS_MAX);
        let mut content = vec![0; blocks as usize * BLOCK_SIZE];
        let len = self.read_direct(ino, at * BLOCK_SIZE as u64, &mut content)?;
        content.truncate(len);
        Ok(piece(blocks, StoredContent::Plain(content)))
    }

    /// The bytes of a frame, if they can be read and match.
    pub(super) fn frame_bytes(&self, packed: &Packed) -> Option<Vec<u8>> {
        let media = &self.store.media;
        let blocks = media.read(packed.addr, packed.span()).ok()?;
        match packed.verified(&blocks) {
            Some(bytes) => Some(bytes.to_vec()),
            None => Some(packed.verified(&media.mended_packed(packed)?)?.to_vec()),
        }
    }
}

/// The extent that has a block, cut to begin there, and where it ends; or where the next begins.
fn at(extents: &[MappedExtent], block: u64, end: u64) -> (Option<Extent>, u64) {
    let first = extents.iter().find(|mapped| mapped.end() > block);
    match first {
        Some(mapped) if mapped.block <= block => {
            let until = mapped.end().min(end);
            let part = mapped.extent.part(block - mapped.block, until - block);
            // Space that is set aside reads as a hole does.
            let is_data = !matches!(part, Extent::Reserved { .. } | Extent::Hole { .. });
            (is_data.then_some(part), until)
        }
        Some(mapped) => (None, mapped.block.min(end)),
        None => (None, end),
    }
}

/// Ranges in which two files differ, each of one extent of the first, or a hole of it.
fn differing(
    shown: &[MappedExtent],
    before: &[MappedExtent],
    (from, end): (u64, u64),
) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    let mut block = from;
    let (mut shown, mut before) = (shown, before);
    while block < end {
        for extents in [&mut shown, &mut before] {
            while let Some((first, rest)) = extents.split_first()
                && first.end() <= block
            {
                *extents = rest;
            }
        }
        let ((new, new_end), (old, old_end)) = (at(shown, block, end), at(before, block, end));
        let until = new_end.min(old_end);
        let len = until - block;
        let cut = |extent: &Option<Extent>| extent.as_ref().map(|extent| extent.part(0, len));
        if cut(&new) != cut(&old) {
            let part = cut(&new);
            if let Some(last) = ranges.last_mut()
                && last.end == block
                && joins(last, &part)
            {
                last.end = until;
            } else {
                ranges.push(Range {
                    block,
                    end: until,
                    extent: part,
                    is_base: false,
                    pin: None,
                });
            }
        }
        block = until;
    }
    ranges
}

/// A block with a delta, and whether the delta is the same in the other subvolume.
type Mark = (u64, bool);

/// Blocks before `end` that have a delta in one of two subvolumes.
fn marked(deltas: &[MappedExtent], before: &[MappedExtent], end: u64) -> Vec<Mark> {
    let by_block = |deltas: &[MappedExtent]| -> BTreeMap<u64, Extent> {
        let deltas = deltas.iter().cloned();
        deltas
            .map(|delta| (block_at(delta.block), delta.extent))
            .collect()
    };
    let (deltas, before) = (by_block(deltas), by_block(before));
    let blocks: BTreeSet<u64> = deltas.keys().chain(before.keys()).copied().collect();
    blocks
        .into_iter()
        .filter(|block| *block < end)
        .map(|block| (block, deltas.get(&block) == before.get(&block)))
        .collect()
}

/// Ranges in which blocks with deltas are by themselves: such a block differs where the range does, or the delta.
fn cut_at(ranges: Vec<Range>, marks: &[Mark]) -> Vec<Range> {
    let alone = |block| Range {
        block,
        end: block + 1,
        extent: None,
        is_base: true,
        pin: None,
    };
    let (mut cut, mut marks) = (Vec::new(), marks.iter().copied().peekable());
    for range in ranges {
        let mut from = range.block;
        while let Some((block, is_same)) = marks.next_if(|(block, _)| *block < range.end) {
            let is_inside = block >= range.block;
            if is_inside && from < block {
                cut.push(range.part(from, block));
            }
            if is_inside || !is_same {
                cut.push(alone(block));
            }
            from = from.max(block + 1);
        }
        if from < range.end {
            cut.push(range.part(from, range.end));
        }
    }
    cut.extend(
        marks
            .filter(|(_, is_same)| !is_same)
            .map(|(block, _)| alone(block)),
    );
    cut
}

/// Whether what follows a range is of one piece with it.
fn joins(last: &mut Range, part: &Option<Extent>) -> bool {
    match (&mut last.extent, part) {
        (None, None) => true,
        (Some(Extent::Packed(packed)), Some(Extent::Packed(next))) => packed.join(next),
        // Read by file block, whatever lies where.
        (Some(Extent::Frame { .. }), Some(Extent::Frame { .. })) => true,
        _ => false,
    }
}
