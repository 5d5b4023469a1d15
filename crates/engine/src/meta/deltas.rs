//! Deltas in the tree: blocks of files as differences to what is stored for them ([`persimmon_format::delta`]). They are extents of the file
//! behind its last block, and change as other extents do. Whatever gives a block another content takes its delta away; a move to another
//! place leaves it. Cleaning that folds a delta moves the block with the delta applied, and takes the delta away in the same record.

use persimmon_format::Ino;
use persimmon_format::delta::{block_at, is_delta, place_of};
use persimmon_format::extent::Extent;
use persimmon_format::inode::{FLAG_DELTAS, Inode, SHARED};
use persimmon_format::record::Op;

use super::apply::{put_inode, read_inode};
use super::extents::{self, MappedExtent};
use super::{Meta, mapping};
use crate::error::Result;
use crate::faults::{Fault, fault};
use crate::zones::Zones;

/// Deltas that one look sees of those that follow each other.
const RUN_MAX: usize = 256;

/// How many deltas an item at a file block is.
pub(crate) fn count(block: u64, extent: &Extent) -> u64 {
    let is_one = is_delta(block) && !matches!(extent, Extent::Hole { .. });
    is_one.into()
}

/// Whether a file may have deltas.
pub(crate) fn may_have(meta: &Meta, ino: Ino) -> Result<bool> {
    if meta.deltas == 0 {
        return Ok(false);
    }
    // What is left of an inode that is gone may be deltas too.
    Ok(read_inode(meta, ino)?.is_none_or(|inode| inode.flags & FLAG_DELTAS != 0))
}

/// Deltas of the file blocks `from..to`, at most `limit`, each at its place.
pub(crate) fn of_blocks(
    meta: &Meta,
    ino: Ino,
    from: u64,
    to: u64,
    limit: usize,
) -> Result<Vec<MappedExtent>> {
    if !may_have(meta, ino)? {
        return Ok(Vec::new());
    }
    extents::overlapping(meta, ino, place_of(from), place_of(to), limit)
}

/// The same, and up to which block these are all, if there may be more.
pub(crate) fn some_of(
    meta: &Meta,
    ino: Ino,
    from: u64,
    to: u64,
    limit: usize,
) -> Result<(Vec<MappedExtent>, Option<u64>)> {
    let deltas = of_blocks(meta, ino, from, to, limit)?;
    let next = deltas.last().filter(|_| deltas.len() >= limit);
    let next = next.map(|last| block_at(last.block) + 1);
    Ok((deltas, next.filter(|next| *next < to)))
}

/// The first file block in `from..to` that has a delta, and the first behind it that has none.
pub(crate) fn first(meta: &Meta, ino: Ino, from: u64, to: u64) -> Result<Option<(u64, u64)>> {
    let deltas = of_blocks(meta, ino, from, to, RUN_MAX)?;
    let mut places = deltas.iter().map(|delta| block_at(delta.block));
    let Some(first) = places.next() else {
        return Ok(None);
    };
    let run = places
        .zip(first + 1..)
        .take_while(|(block, next)| block == next);
    Ok(Some((first, first + 1 + run.count() as u64)))
}

/// The inode that has an extent and its deltas, in the only subvolume that shows them, and these deltas: those of which everybody who sees
/// the extent sees the same. `None` if there are none, or they cannot be taken away.
pub(crate) fn belonging_to(
    meta: &Meta,
    ino: Ino,
    mapped: &MappedExtent,
) -> Result<Option<(Ino, Vec<MappedExtent>)>> {
    if meta.deltas == 0 || ino == SHARED || is_delta(mapped.block) {
        return Ok(None);
    }
    let Some(owner) = meta.versions.sole_owner(mapped.version) else {
        return Ok(None);
    };
    let owned = ino.of(owner);
    let has_deltas = |inode: Inode| inode.flags & FLAG_DELTAS != 0;
    if !read_inode(meta, owned)?.is_some_and(has_deltas) {
        return Ok(None);
    }
    let (from, to) = (place_of(mapped.block), place_of(mapped.end()));
    let all = extents::stored(meta, ino, from, to)?;
    let (Some(first), Some(last)) = (all.first(), all.last()) else {
        return Ok(None);
    };
    let of_blocks = extents::stored(meta, ino, mapped.block, mapped.end())?;
    if of_blocks.iter().any(|of| of.version != mapped.version) {
        return Ok(None);
    }
    mapping::ensure(meta, owned, first.block, last.end())?;
    // What a version absorbed is its own, whichever of both the number is of.
    let scope = &meta.versions.at(owned)?.scope;
    let is_belonging = |delta: &&MappedExtent| {
        let is_delta = matches!(delta.extent, Extent::Compressed(_) | Extent::Packed(_));
        // One that is of several blocks is damage, and may begin before the extent.
        is_delta && delta.extent.blocks() == 1 && scope.owns(delta.version)
    };
    let places = all.chunk_by(|one, other| one.block == other.block);
    let alone = places.filter_map(|versions| match versions {
        [delta] => Some(delta),
        _ => None,
    });
    let deltas: Vec<_> = alone.filter(is_belonging).cloned().collect();
    Ok((!deltas.is_empty()).then_some((owned, deltas)))
}

/// Makes sure that [`forget`] finds all it needs in memory and intact. Where an operation before it in the record `makes_one`, any file may
/// have deltas by then.
pub(super) fn ensure(meta: &Meta, op: &Op, makes_one: bool) -> Result<()> {
    let Some((ino, from, to)) = op.replaced_blocks() else {
        return Ok(());
    };
    match makes_one || may_have(meta, ino)? {
        true => mapping::ensure(meta, ino, place_of(from), place_of(to)),
        false => Ok(()),
    }
}

/// Takes away the deltas of blocks that an operation is about to give another content. Returns which file grew, and by how many sectors.
pub(super) fn forget(meta: &mut Meta, zones: &Zones, op: &Op) -> Result<Option<(Ino, i64)>> {
    let Some((ino, from, to)) = op.replaced_blocks() else {
        return Ok(None);
    };
    if !may_have(meta, ino)? || fault(Fault::DeltaKept) {
        return Ok(None);
    }
    let freed = mapping::punch(meta, zones, ino, place_of(from), place_of(to))?;
    Ok(Some((ino, -freed)))
}

/// Notes in the inode that the file has deltas, if an operation made one.
pub(super) fn note(meta: &mut Meta, op: &Op) -> Result<()> {
    let Some(ino) = op.has_delta() else {
        return Ok(());
    };
    match read_inode(meta, ino)? {
        Some(mut inode) if inode.flags & FLAG_DELTAS == 0 => {
            inode.flags |= FLAG_DELTAS;
            put_inode(meta, ino, &inode)
        }
        _ => Ok(()),
    }
}
