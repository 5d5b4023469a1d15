//! Sharing blocks between files: what one file has moves to the store of shared blocks, and both files name it there.

use persimmon_format::extent::{Extent, FRAME_BLOCKS_MAX};
use persimmon_format::inode::SHARED;
use persimmon_format::record::Share;
use persimmon_format::{Ino, Key, KeyKind};

use super::extents::{self, MappedExtent};
use super::{Meta, references, tree};
use crate::error::{Error, Result};
use crate::zones::Zones;

/// Blocks of the store that are left free before and behind those of a record: extents that reach beyond its range move as a whole.
const MARGIN: u64 = FRAME_BLOCKS_MAX as u64;

/// Where a block of the source goes in the store.
fn place_of(share: &Share, block: u64) -> Result<u64> {
    let wrong = || Error::item_damaged(share.from, "shared blocks where none can be");
    share.place(block).ok_or_else(wrong)
}

/// Whether an extent may move to the store. What lies in the tree, or may have come out of there without a record, may not: a replay
/// would find something else.
pub(crate) fn may_be_shared(extent: &Extent) -> bool {
    match extent {
        Extent::Frame { .. } | Extent::Shared { .. } => true,
        Extent::Packed(packed) => !packed.is_short(),
        Extent::Inline(_)
        | Extent::Compressed(_)
        | Extent::Reserved { .. }
        | Extent::Hole { .. } => false,
    }
}

/// Whether an extent of a file may move to the store, as [`may_be_shared`] says, and all of its compressed frame: nothing that the file has
/// written since lies over a part of it, which would go to the same place.
pub(crate) fn may_move(meta: &Meta, ino: Ino, mapped: &MappedExtent) -> Result<bool> {
    let Extent::Packed(packed) = &mapped.extent else {
        return Ok(may_be_shared(&mapped.extent));
    };
    if packed.is_short() {
        return Ok(false);
    }
    if meta.versions.is_plain() {
        return Ok(true);
    }
    let parts = extents::parts_of(meta, ino.plain(), mapped.version, mapped.block, packed)?;
    for part in parts {
        let shown = extents::overlapping(meta, ino, part.block, part.block + 1, 1)?;
        if shown
            .first()
            .is_none_or(|shown| shown.version != part.version)
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A place in the store for blocks that are shared next, behind all that is there.
pub(crate) fn free_place(meta: &Meta) -> Result<u64> {
    let behind = Key::references(0);
    let last = tree::floor(&meta.cache, meta.root, &behind)?;
    let end = match last {
        Some((key, value)) if (key.ino, key.kind) == (SHARED, KeyKind::EXTENT) => {
            let blocks = Extent::peek_blocks(value).map_err(|e| {
                Error::item_damaged(SHARED, format_args!("block {}: {e}", key.item))
            })?;
            key.item.saturating_add(blocks)
        }
        _ => 0,
    };
    Ok(end.saturating_add(MARGIN))
}

/// Extents of the source that move: those in the range, and all parts of their frames.
fn to_move(meta: &Meta, share: &Share) -> Result<Vec<MappedExtent>> {
    let mut moved: Vec<MappedExtent> = Vec::new();
    for mapped in extents::overlapping(
        meta,
        share.from,
        share.from_block,
        share.source_end(),
        usize::MAX,
    )? {
        match &mapped.extent {
            Extent::Shared { .. } => {}
            Extent::Frame { .. } => moved.push(mapped),
            Extent::Packed(packed) => {
                let ino = share.from.plain();
                moved.extend(extents::parts_of(
                    meta,
                    ino,
                    mapped.version,
                    mapped.block,
                    packed,
                )?);
            }
            Extent::Inline(_)
            | Extent::Reserved { .. }
            | Extent::Compressed(_)
            | Extent::Hole { .. } => {
                return Err(Error::Inconsistent(format!(
                    "inode {}: a record shares block {}, which cannot be",
                    share.from, mapped.block
                )));
            }
        }
    }
    moved.sort_by_key(|mapped| mapped.block);
    moved.dedup_by_key(|mapped| mapped.block);
    Ok(moved)
}

/// Makes sure that [`apply`] finds all it needs in memory and intact.
pub(crate) fn ensure(meta: &Meta, share: &Share) -> Result<()> {
    extents::ensure(meta, share.from, share.from_block, share.source_end())?;
    extents::ensure(meta, share.to, share.to_block, share.target_end())?;
    for mapped in to_move(meta, share)? {
        let place = place_of(share, mapped.block)?;
        let key = Key::extent(share.from.plain(), mapped.block);
        meta.ensure_stored(&key.at(mapped.version))?;
        extents::ensure(meta, SHARED, place, place + mapped.extent.blocks())?;
        references::ensure(meta, place, place + mapped.extent.blocks())?;
    }
    Ok(())
}

/// Shares blocks. Returns by how many sectors the source and the target grew.
pub(crate) fn apply(meta: &mut Meta, zones: &Zones, share: &Share) -> Result<(i64, i64)> {
    let mut target = -extents::punch(meta, zones, share.to, share.to_block, share.target_end())?;
    let mut source = 0;
    for mapped in to_move(meta, share)? {
        let place = place_of(share, mapped.block)?;
        source += extents::move_to_store(meta, share.from, &mapped, place)?;
    }
    let shared = extents::overlapping(
        meta,
        share.from,
        share.from_block,
        share.source_end(),
        usize::MAX,
    )?;
    for mapped in shared {
        let (start, end) = (
            mapped.block.max(share.from_block),
            mapped.end().min(share.source_end()),
        );
        let part = mapped.extent.part(start - mapped.block, end - start);
        let Extent::Shared { at, blocks } = part else {
            continue;
        };
        references::add(meta, at, at + u64::from(blocks))?;
        let block = share.to_block + (start - share.from_block);
        target += extents::put_shared(meta, zones, share.to, block, &part)?;
    }
    Ok((source, target))
}
