//! Near duplicates: what is much like what another file has is compressed with that as a dictionary.
//!
//! The other file's blocks move to the store of shared blocks, where their content never changes; the new frames name them there. So either
//! file can be changed or removed, and nobody has to know of it.

use persimmon_device::BLOCK_SIZE;
use persimmon_format::compression::{Codec, Compression, compress_after};
use persimmon_format::dictionary::{DICTIONARY_BLOCKS_MAX, Dictionary};
use persimmon_format::extent::{Extent, FILE_BLOCKS_END};
use persimmon_format::inode::{FLAG_PREALLOCATED, SHARED};
use persimmon_format::packed::{CompressedFrame, PackUnits};
use persimmon_format::record::{Op, Share};
use persimmon_format::{Ino, Lifetime};

use super::clone::{CloneRange, Cloned};
use super::equal::CALL_BYTES_MAX;
use super::{FileData, blocks_in};
use crate::error::{Error, Result};
use crate::meta::extents::{self, MappedExtent};
use crate::meta::{Intent, Meta, deltas, sharing};
use crate::placement::{Compressed, Places, Placing, packed_runs};
use crate::zones::Placed;

const BLOCK: u64 = BLOCK_SIZE as u64;

/// How hard it is tried. Nobody waits for it, and it decides how much of what both have is found.
const LEVEL: u8 = 9;
/// What it is compared with: compressed without a dictionary, as a file with compression would be.
const LEVEL_WITHOUT: u8 = 3;
/// Of each 4 bytes a frame takes at most so many with its dictionary: who reads it reads that too.
const WORTH_BYTES_OF_4: usize = 3;
/// And so many bytes less: each frame that names a dictionary may take an item of counts.
const WORTH_BYTES: usize = BLOCK_SIZE / 2;
/// Frames that are placed together: each fills up a block, and what is not placed yet is in memory.
const FRAMES_MAX: usize = 64;

/// File blocks: the first one, and how many.
type Run = (u64, u64);

/// Blocks of the target that may be compressed anew, and what they take now.
struct Candidate {
    run: Run,
    bytes: usize,
}

/// What the source has of some of its blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stored {
    /// They are in the store of shared blocks, from this one on.
    At(u64),
    /// They may move there.
    Movable,
}

impl FileData {
    /// Packs what of the target is much like what the source has at the same distance. Nothing of the files is staged, and nobody else
    /// changes them.
    pub(super) fn pack_near(
        &self,
        range: &CloneRange,
        (source_size, target_size): (u64, u64),
    ) -> Result<Cloned> {
        let rest = |size: u64, offset: u64| size.saturating_sub(offset);
        let len = range.len.min(CALL_BYTES_MAX);
        let len = len.min(rest(target_size, range.to_offset));
        let len = len.min(rest(source_size, range.from_offset));
        // In its snapshots a file has the same blocks: what is moved would be what is replaced.
        let is_one = range.from.plain() == range.to.plain();
        if is_one || !self.store.has_dictionaries() || !self.store.has_frames() {
            return Ok(Cloned::NONE);
        }
        let mut cloned = Cloned::NONE;
        let (from, to) = (range.from_offset / BLOCK, range.to_offset / BLOCK);
        let (mut at, end) = (to, to + blocks_in(len));
        let mut frames = Vec::new();
        while at < end && self.has_room_to_share() {
            let frame_blocks = self.store.frame_blocks_max() as u64;
            let next = end.min(at - at % frame_blocks + frame_blocks);
            for candidate in self.candidates(range.to, at, next)? {
                let near = from + (candidate.run.0 - to);
                let packed = self.packed_near((range.from, near), range.to, &candidate)?;
                frames.extend(packed);
            }
            at = next;
            cloned.bytes = ((at - to) * BLOCK).min(len);
            if frames.len() >= FRAMES_MAX || at >= end {
                cloned.shared += self.place_near(range.to, std::mem::take(&mut frames))?;
            }
        }
        cloned.shared += self.place_near(range.to, frames)?;
        Ok(cloned)
    }

    /// Runs of blocks of the target that have places of their own, and no dictionary.
    fn candidates(&self, ino: Ino, from: u64, to: u64) -> Result<Vec<Candidate>> {
        self.store.view::<_, Error>(|view| {
            let inode = view.inode(ino)?.ok_or(Error::NotFound(ino))?;
            if inode.flags & FLAG_PREALLOCATED != 0 {
                return Ok(Vec::new());
            }
            let scope = view.find(|meta| Ok(meta.versions.at(ino)?.scope))?;
            let mut found: Vec<Candidate> = Vec::new();
            for mapped in view.extents(ino, from, to, usize::MAX)? {
                // What a snapshot has stays where it is, whatever is written in its place.
                let may = scope.owns(mapped.version) && may_be_packed(&mapped.extent);
                if !may {
                    continue;
                }
                let (start, end) = (mapped.block.max(from), mapped.end().min(to));
                let part = mapped.extent.part(start - mapped.block, end - start);
                let bytes = part.stored(0).units.bytes();
                match found.last_mut() {
                    Some(last) if last.run.0 + last.run.1 == start => {
                        last.run.1 += end - start;
                        last.bytes += bytes;
                    }
                    _ => found.push(Candidate {
                        run: (start, end - start),
                        bytes,
                    }),
                }
            }
            Ok(found)
        })
    }

    /// A frame of the target's blocks, with what is near them in the source as a dictionary, if that is worth it. The dictionary is in the
    /// store then.
    fn packed_near(
        &self,
        (source, near): (Ino, u64),
        target: Ino,
        candidate: &Candidate,
    ) -> Result<Option<(Compressed, usize)>> {
        let (first, blocks) = candidate.run;
        let near_end = near + blocks.min(DICTIONARY_BLOCKS_MAX as u64);
        let found = self.store.view::<_, Error>(|view| {
            view.find(|meta| Ok(longest(&kinds(meta, source, near, near_end)?)))
        })?;
        let Some((run, _)) = found else {
            return Ok(None);
        };
        let content = self.whole_blocks(target, (first, blocks))?;
        let dictionary = self.whole_blocks(source, run)?;
        let Some(bytes) = compress_after(&content, &dictionary, LEVEL) else {
            return Ok(None);
        };
        let takes = PackUnits::of_bytes(bytes.len()).bytes();
        let without = Compression::Zstd(LEVEL_WITHOUT).compress(&content, content.len());
        let without = without.map_or(content.len(), |(_, bytes)| bytes.len());
        let now = candidate.bytes.min(without);
        let is_worth = takes + WORTH_BYTES <= now && takes * 4 <= now * WORTH_BYTES_OF_4;
        if !is_worth {
            return Ok(None);
        }
        let Some(named) = self.move_to_store(source, run, target)? else {
            return Ok(None);
        };
        // What the store has counts. If that is damaged, the frame could not be read.
        if *self.store.dictionary(named)? != *dictionary {
            return Ok(None);
        }
        let frame = CompressedFrame::of(Codec::ZstdAfter(named), blocks as u8, &bytes);
        let compressed = Compressed {
            ino: target,
            block: first,
            frame,
            bytes,
            from: None,
        };
        Ok(Some((compressed, candidate.bytes - takes)))
    }

    /// Blocks of a file, zeros behind its end.
    fn whole_blocks(&self, ino: Ino, (first, blocks): Run) -> Result<Vec<u8>> {
        let mut content = vec![0; blocks as usize * BLOCK_SIZE];
        self.read_direct(ino, first * BLOCK, &mut content)?;
        Ok(content)
    }

    /// Makes sure that blocks of the source are in the store of shared blocks, in one piece. `None` if they cannot be: they are not what they
    /// were.
    fn move_to_store(
        &self,
        source: Ino,
        (first, blocks): Run,
        target: Ino,
    ) -> Result<Option<Dictionary>> {
        let at = self.update::<_, Error>(Intent::Grow, |tx| {
            let end = first + blocks;
            let kinds = tx.find(|meta| kinds(meta, source, first, end))?;
            let inode = tx.inode(source)?.ok_or(Error::NotFound(source))?;
            if kinds.len() > self.shared_extents_max() || inode.flags & FLAG_PREALLOCATED != 0 {
                return Ok(None);
            }
            match longest(&kinds) {
                Some((run, Stored::At(at))) if run == (first, blocks) => return Ok(Some(at)),
                Some((run, Stored::Movable)) if run == (first, blocks) => {}
                _ => return Ok(None),
            }
            let Some(at) = tx.find(|meta| Ok(sharing::free_place(meta, blocks)))? else {
                return Ok(None);
            };
            // The target has them for a moment, behind all that it can have: so no other kind of record is needed.
            let to_block = FILE_BLOCKS_END - blocks;
            if !tx.extents(target, to_block, FILE_BLOCKS_END, 1)?.is_empty() {
                return Ok(None);
            }
            tx.push(Op::Share(Share {
                from: source,
                from_block: first,
                to: target,
                to_block,
                blocks,
                at,
            }));
            tx.push(Op::Punch {
                ino: target,
                from: to_block,
                to: FILE_BLOCKS_END,
            });
            Ok(Some(at))
        })?;
        Ok(at.map(|at| Dictionary {
            at,
            blocks: blocks as u8,
        }))
    }

    /// Writes frames, each with the bytes that it spares, and maps them. Returns how many bytes those spare that were.
    fn place_near(&self, ino: Ino, frames: Vec<(Compressed, usize)>) -> Result<u64> {
        if frames.is_empty() {
            return Ok(0);
        }
        let inode = self.store.view::<_, Error>(|view| view.inode(ino))?;
        let hint = inode.and_then(|inode| inode.lifetime_hint());
        let (stream, life) = match hint.and_then(Lifetime::class) {
            None => self.store.zones.infer(std::iter::empty()),
            Some(class) => self.store.zones.hinted(class),
        };
        let all = frames.iter().map(|(frame, _)| frame);
        let runs = packed_runs(all, life, self.store.run_blocks_max());
        let mut places = Places::default();
        // What found a place is mapped, even if there was none for the rest.
        let result = self
            .placement
            .place_now(stream, Placing::Packed, runs, &mut places);
        let placed: Vec<_> = places.placed.iter().flat_map(Placed::extents).collect();
        let mut spared = 0;
        for placed in placed.chunks(self.shared_extents_max()) {
            let mapped = self.update::<_, Error>(Intent::Grow, |tx| {
                let mut mapped = Vec::new();
                for (ino, block, extent) in placed {
                    let (from, to) = (*block, block + extent.blocks());
                    // A snapshot that was taken since has what was to be freed.
                    let may = |meta: &Meta| {
                        Ok(owns_all(meta, *ino, from, to)? && has_dictionary(meta, extent)?)
                    };
                    if tx.find(may)? {
                        mapped.push(*block);
                        tx.push(Op::Map {
                            ino: *ino,
                            block: *block,
                            extent: extent.clone(),
                        });
                    }
                }
                Ok(mapped)
            })?;
            let is_mapped = |frame: &Compressed| mapped.contains(&frame.block);
            let of_mapped = frames.iter().filter(|(frame, _)| is_mapped(frame));
            spared += of_mapped.map(|(_, spared)| *spared as u64).sum::<u64>();
        }
        match result {
            // What is there is as good as before.
            Err(Error::NoSpace) => Ok(spared),
            result => result.map(|()| spared),
        }
    }
}

fn may_be_packed(extent: &Extent) -> bool {
    match extent {
        Extent::Frame { .. } => true,
        Extent::Packed(packed) => packed.dictionary().is_none(),
        Extent::Inline(_)
        | Extent::Reserved { .. }
        | Extent::Compressed(_)
        | Extent::Shared { .. }
        | Extent::Hole { .. } => false,
    }
}

/// How blocks of the source are stored, in their order. Those that cannot be a dictionary are left out, and so are those with deltas: what
/// is stored of them is not what the file has.
fn kinds(meta: &Meta, ino: Ino, from: u64, to: u64) -> Result<Vec<(Run, Stored)>> {
    let mut kinds = Vec::new();
    if !deltas::of_blocks(meta, ino, from, to, 1)?.is_empty() {
        return Ok(kinds);
    }
    for mapped in extents::overlapping(meta, ino, from, to, usize::MAX)? {
        let (start, end) = (mapped.block.max(from), mapped.end().min(to));
        // Nobody is charged more because somebody else has much the same.
        let is_charged = sharing::costs_owners(meta, &mapped.extent);
        let stored = match mapped.extent {
            Extent::Shared { at, .. } => Stored::At(at + (start - mapped.block)),
            _ if !is_charged && sharing::may_move(meta, ino, &mapped)? => Stored::Movable,
            _ => continue,
        };
        kinds.push(((start, end - start), stored));
    }
    Ok(kinds)
}

/// The longest run of blocks that are, or will be, in one piece in the store.
fn longest(kinds: &[(Run, Stored)]) -> Option<(Run, Stored)> {
    let mut runs: Vec<(Run, Stored)> = Vec::new();
    for (run, stored) in kinds {
        let follows = |((first, blocks), last): &(Run, Stored)| {
            let goes_on = match last {
                Stored::At(at) => Stored::At(at + blocks),
                Stored::Movable => Stored::Movable,
            };
            first + blocks == run.0 && goes_on == *stored
        };
        match runs.last_mut() {
            Some(last) if follows(last) => last.0.1 += run.1,
            _ => runs.push((*run, *stored)),
        }
    }
    runs.into_iter().max_by_key(|((_, blocks), _)| *blocks)
}

/// Whether what a file has of these blocks is its own: no snapshot has it too.
fn owns_all(meta: &Meta, ino: Ino, from: u64, to: u64) -> Result<bool> {
    let scope = meta.versions.at(ino)?.scope;
    let there = extents::overlapping(meta, ino, from, to, usize::MAX)?;
    Ok(there.iter().all(|mapped| scope.owns(mapped.version)))
}

/// Whether the store has all blocks that an extent names.
fn has_dictionary(meta: &Meta, extent: &Extent) -> Result<bool> {
    let Some((from, to)) = extent.names() else {
        return Ok(false);
    };
    let stored = extents::overlapping(meta, SHARED, from, to, usize::MAX)?;
    let blocks = |mapped: &MappedExtent| mapped.end().min(to) - mapped.block.max(from);
    Ok(stored.iter().map(blocks).sum::<u64>() == to - from)
}
