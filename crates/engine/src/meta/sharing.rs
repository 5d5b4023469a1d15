//! Sharing blocks between files: what one file has moves to the store of shared blocks, and both files name it there.

use persimmon_format::extent::{Extent, FILE_BLOCKS_END, FRAME_BLOCKS_MAX};
use persimmon_format::inode::{Inode, SHARED};
use persimmon_format::packed::COMPRESSED_BLOCKS_MAX;
use persimmon_format::quota::Counting;
use persimmon_format::record::Share;
use persimmon_format::{Ino, Key, SubvolumeId};

use super::extents::{self, MappedExtent};
use super::quota::Owners;
use super::{Meta, mapping, references};
use crate::error::{Error, Result};
use crate::zones::Zones;

/// Blocks of the store that are left free before and behind those of a record: compressed frames that reach beyond its range move as a
/// whole.
const MARGIN: u64 = FRAME_BLOCKS_MAX as u64;

/// Blocks of the store that lie between the places of two operations of one record.
pub(crate) const APART: u64 = 2 * MARGIN;

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
        // Nor may what has a dictionary: so what is one, which is there, has none.
        Extent::Packed(packed) => !packed.is_short() && packed.dictionary().is_none(),
        Extent::Inline(_)
        | Extent::Compressed(_)
        | Extent::Reserved { .. }
        | Extent::Hole { .. } => false,
    }
}

/// Whether owners are counted and would be charged more for an extent if it became shared: on volumes without the feature
/// [`SHARED_FRAMES`](persimmon_format::zone_header::SHARED_FRAMES) shared blocks count whole, and packed ones as what they take.
pub(crate) fn costs_owners(meta: &Meta, extent: &Extent) -> bool {
    let is_counted = meta.quota.counting != Counting::Off;
    is_counted && !meta.has_shared_frames && matches!(extent, Extent::Packed(_))
}

/// Whether an extent of a file may move to the store, as [`may_be_shared`] says, and all of its compressed frame: nothing that the file has
/// written since lies over a part of it, which would go to the same place.
pub(crate) fn may_move(meta: &Meta, ino: Ino, mapped: &MappedExtent) -> Result<bool> {
    let Extent::Packed(packed) = &mapped.extent else {
        return Ok(may_be_shared(&mapped.extent));
    };
    if !may_be_shared(&mapped.extent) {
        return Ok(false);
    }
    // The main subvolume may show the same inode as a snapshot, and its owner is not charged for what is done to a snapshot.
    if costs_owners(meta, &mapped.extent) && ino.subvolume() != SubvolumeId::MAIN {
        return Ok(false);
    }
    if meta.versions.is_plain() {
        return Ok(true);
    }
    let parts = extents::parts_of(meta, ino.plain(), mapped.version, mapped.block, packed)?;
    for part in parts {
        let (start, end) = (part.block, part.end());
        let shown = extents::overlapping(meta, ino, start, end, usize::MAX)?;
        let own = shown.iter().filter(|shown| shown.version == part.version);
        let blocks = own.map(|shown| shown.end().min(end) - shown.block.max(start));
        if blocks.sum::<u64>() != end - start {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether an extent may move to the store for a clone. If owners would be charged more for it then, that is for them to do, and for nobody who
/// may only read the file.
pub(crate) fn may_be_cloned(
    meta: &Meta,
    (from, source): (Ino, &Inode),
    target: &Inode,
    mapped: &MappedExtent,
) -> Result<bool> {
    let is_of_others = Owners::of(source) != Owners::of(target);
    if is_of_others && costs_owners(meta, &mapped.extent) {
        return Ok(false);
    }
    may_move(meta, from, mapped)
}

/// Where the blocks of the store that an extent is, or names, end; 0 if it has nothing to do with the store.
pub(crate) fn end_of(key: &Key, extent: &Extent) -> u64 {
    match extent {
        extent if key.ino == SHARED => key.item.saturating_add(extent.blocks()),
        extent => extent.names().map_or(0, |(_, end)| end),
    }
}

/// An extent was put by itself, which may be, or name, blocks of the store.
pub(crate) fn note(meta: &mut Meta, key: &Key, extent: &Extent) {
    meta.shared_end = meta.shared_end.max(end_of(key, extent));
}

/// A place in the store for so many blocks, behind all that files ever named there. What the store has would not tell it: files may name
/// blocks that it has lost, and must not find others there. `None`: there is no place left.
pub(crate) fn free_place(meta: &Meta, blocks: u64) -> Option<u64> {
    let place = meta.shared_end.saturating_add(MARGIN);
    let end = place.saturating_add(blocks).saturating_add(APART);
    (end < FILE_BLOCKS_END).then_some(place)
}

/// What the source has in the range.
fn shown_of(meta: &Meta, share: &Share) -> Result<Vec<MappedExtent>> {
    let (from, to) = (share.from_block, share.source_end());
    extents::overlapping(meta, share.from, from, to, usize::MAX)
}

/// What of the source moves: frames as far as they are in the range, and all parts of compressed frames that have some in it. How blocks
/// of the source are joined to frames is not in the records: so it decides nothing.
fn to_move(meta: &Meta, share: &Share, shown: &[MappedExtent]) -> Result<Vec<MappedExtent>> {
    let mut moved: Vec<MappedExtent> = Vec::new();
    for mapped in shown {
        match &mapped.extent {
            Extent::Shared { .. } => {}
            Extent::Frame { .. } => {
                let (start, end) = inside(mapped, share);
                moved.push(MappedExtent {
                    block: start,
                    version: mapped.version,
                    extent: mapped.extent.part(start - mapped.block, end - start),
                });
            }
            Extent::Packed(packed) if may_be_shared(&mapped.extent) => {
                let ino = share.from.plain();
                moved.extend(extents::parts_of(
                    meta,
                    ino,
                    mapped.version,
                    mapped.block,
                    packed,
                )?);
            }
            Extent::Packed(_)
            | Extent::Inline(_)
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

/// The blocks of an extent of the source that are in the range, which it overlaps.
fn inside(mapped: &MappedExtent, share: &Share) -> (u64, u64) {
    (
        mapped.block.max(share.from_block),
        mapped.end().min(share.source_end()),
    )
}

/// Makes sure that [`apply`] finds all it needs in memory and intact. A target that is new has nothing yet.
pub(crate) fn ensure(meta: &Meta, share: &Share, is_target_new: bool) -> Result<()> {
    let shown = shown_of(meta, share)?;
    let range = (share.from_block, share.source_end());
    mapping::ensure_source(meta, share.from, range, &shown)?;
    if !is_target_new {
        mapping::ensure(meta, share.to, share.to_block, share.target_end())?;
        // What the target has of the same frames around it counts with what comes.
        let around = COMPRESSED_BLOCKS_MAX as u64;
        let from = share.to_block.saturating_sub(around);
        let to = share.target_end().saturating_add(around);
        extents::stored(meta, share.to.plain(), from, to)?;
    }
    for mapped in to_move(meta, share, &shown)? {
        let place = place_of(share, mapped.block)?;
        if !(range.0..range.1).contains(&mapped.block) {
            let key = Key::extent(share.from.plain(), mapped.block);
            meta.ensure_stored(&key.at(mapped.version))?;
        }
        let end = place + mapped.extent.blocks();
        if place >= meta.shared_end {
            // Nothing is there, nor behind it.
            meta.ensure_stored(&Key::extent(SHARED, place))?;
            meta.ensure_stored(&Key::references(place))?;
        } else {
            mapping::ensure(meta, SHARED, place, end)?;
            references::ensure(meta, place, end)?;
        }
    }
    Ok(())
}

/// Shares blocks. Returns by how many sectors the source and the target grew.
pub(crate) fn apply(meta: &mut Meta, zones: &Zones, share: &Share) -> Result<(i64, i64)> {
    let mut target = -mapping::punch(meta, zones, share.to, share.to_block, share.target_end())?;
    let mut source = 0;
    let mut shown = shown_of(meta, share)?;
    let (from, to) = (share.from_block, share.source_end());
    if { shown.iter() }.any(|mapped| mapped.block < from || mapped.end() > to) {
        for end in [from, to] {
            mapping::cut_frame(meta, share.from, end)?;
        }
        shown = shown_of(meta, share)?;
    }
    for mapped in to_move(meta, share, &shown)? {
        let place = place_of(share, mapped.block)?;
        source += mapping::move_to_store(meta, share.from, &mapped, place)?;
        note(meta, &Key::extent(SHARED, place), &mapped.extent);
    }
    for mapped in shown {
        let (start, end) = inside(&mapped, share);
        let part = mapped.extent.part(start - mapped.block, end - start);
        let part = match part {
            shared @ Extent::Shared { .. } => shared,
            // It is there now.
            moved => moved.shared_at(place_of(share, start)?, meta.has_shared_frames),
        };
        if let Some((at, end)) = part.names() {
            references::add(meta, at, end)?;
        }
        let block = share.to_block + (start - share.from_block);
        target += mapping::put_shared(meta, zones, share.to, block, &part)?;
    }
    Ok((source, target))
}
