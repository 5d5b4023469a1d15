//! Deltas in the tree: blocks of files as differences to what is stored for them ([`persimmon_format::delta`]). They are extents of the file
//! behind its last block, and change as other extents do. Whatever gives a block another content takes its delta away; a move to another
//! place leaves it.

use persimmon_format::Ino;
use persimmon_format::delta::{block_at, is_delta, place_of};
use persimmon_format::extent::Extent;
use persimmon_format::inode::FLAG_DELTAS;
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
