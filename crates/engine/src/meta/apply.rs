//! What a redo record does to the tree: the same code when it happens and when it is replayed.

use persimmon_format::extent::Extent;
use persimmon_format::inode::Inode;
use persimmon_format::record::{Op, Touch};
use persimmon_format::{Ino, Key, KeyKind, VersionId};

use super::quota::{self, Charges};
use super::versions::Versions;
use super::{Meta, deltas, extents, mapping, settle, sharing};
use crate::error::{Error, Result};
use crate::faults::{Fault, panic_if};
use crate::zones::Zones;

/// Makes sure that [`apply`] finds all it needs in memory and intact.
pub(crate) fn ensure(meta: &Meta, ops: &[Op]) -> Result<()> {
    let is_new = new_inodes(meta, ops)?;
    let mut makes_delta = false;
    for op in ops {
        let makes_one = makes_delta;
        makes_delta |= op.has_delta().is_some();
        check_subvolumes(meta, op)?;
        if op.ino().is_some_and(&is_new) && ensure_of_new(meta, op)? {
            continue;
        }
        let ensured = deltas::ensure(meta, op, makes_one);
        let ensured = ensured.and_then(|()| ensure_one(meta, op));
        ensured.map_err(|error| op.ino().map_or(error.clone(), |ino| error.of(ino)))?;
    }
    quota::ensure(meta, ops)
}

fn ensure_one(meta: &Meta, op: &Op) -> Result<()> {
    let ensure_inode = |ino: Ino| -> Result<()> {
        meta.ensure(&Key::inode(ino))?;
        read_inode(meta, ino).map(drop)
    };
    match op {
        Op::Put { key, value } => {
            if quota::is_state(key) {
                quota::decode_state(value)?;
            }
            if Versions::is_told_by(key) {
                Versions::ensure(key, Some(value))?;
            }
            meta.ensure(key)
        }
        Op::Delete { key } => {
            if Versions::is_told_by(key) {
                Versions::ensure(key, None)?;
            }
            // An extent operation that follows may look for the item next to the removed one.
            meta.ensure_around(key)
        }
        Op::Map { ino, block, extent } => {
            ensure_inode(*ino)?;
            mapping::ensure_map(meta, *ino, *block, extent)
        }
        Op::Splice { ino, block, .. } => {
            ensure_inode(*ino)?;
            mapping::ensure(meta, *ino, *block, block.saturating_add(1))?;
            inline(meta, *ino, *block).map(drop)
        }
        Op::Punch { ino, from, to } => {
            ensure_inode(*ino)?;
            mapping::ensure(meta, *ino, *from, *to)
        }
        Op::Touch { ino, .. } => ensure_inode(*ino),
        Op::Share(share) => {
            ensure_inode(share.from)?;
            ensure_inode(share.to)?;
            sharing::ensure(meta, share, false)
        }
        Op::Move {
            version,
            ino,
            block,
            extent,
        } => {
            if let Some(owned) = moved_of(meta, *version, *ino) {
                ensure_inode(owned)?;
            }
            mapping::ensure_map_exactly(meta, *ino, *version, *block, extent)
        }
        Op::Settle(settle) => settle::ensure(meta, settle),
        Op::Lot { .. } => Ok(()),
    }
}

/// Tells the inodes that these operations make, whose numbers were never given out: nothing is stored of any of them. So all that is put for them
/// lies between the same two items of the tree, which are in memory then.
fn new_inodes(meta: &Meta, ops: &[Op]) -> Result<impl Fn(Ino) -> bool + use<>> {
    let first = meta.numbers.next();
    let is_new = move |ino: Ino| ino.plain().0 >= first;
    if ops.iter().filter_map(Op::ino).any(is_new) {
        meta.ensure_stored(&Key::inode(Ino(first)))?;
    }
    Ok(is_new)
}

/// [`ensure`] of an operation on a new inode: false where it is to be looked at as any other.
fn ensure_of_new(meta: &Meta, op: &Op) -> Result<bool> {
    match op {
        Op::Put { key, .. } => Ok(matches!(
            key.kind,
            KeyKind::INODE | KeyKind::XATTR | KeyKind::SYMLINK | KeyKind::DIR_ENTRY
        )),
        Op::Share(share) => {
            meta.ensure(&Key::inode(share.from))?;
            read_inode(meta, share.from)?;
            sharing::ensure(meta, share, true)?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// An error if an operation names an inode of a subvolume that is not there.
fn check_subvolumes(meta: &Meta, op: &Op) -> Result<()> {
    let is_there = |ino: Ino| meta.versions.scope(ino.subvolume()).map(drop);
    match op {
        // Under a number for each version.
        Op::Put { key, .. } | Op::Delete { key } if key.kind == KeyKind::CHANGES => Ok(()),
        Op::Share(share) => is_there(share.from).and(is_there(share.to)),
        op => op.ino().map_or(Ok(()), is_there),
    }
}

/// Applies the operations of one record; [`ensure`] came before. An error means damage that was
/// found half way: nothing of this metadata may be written any more.
pub(crate) fn apply(meta: &mut Meta, zones: &Zones, ops: &[Op]) -> Result<()> {
    let mut charges = Charges::new(meta);
    let mut grown: Vec<(Ino, i64)> = Vec::new();
    let mut grow = |ino: Ino, sectors: i64| match grown.last_mut() {
        Some((last, sum)) if *last == ino => *sum += sectors,
        _ => grown.push((ino, sectors)),
    };
    for op in ops {
        if let Some((ino, more)) = deltas::forget(meta, zones, op)? {
            grow(ino, more);
        }
        deltas::note(meta, op)?;
        match op {
            Op::Put { key, value } => {
                if key.kind == KeyKind::INODE && charges.count(key.ino) {
                    let before = read_inode(meta, key.ino)?;
                    let after = decode_inode(key.ino, value)?;
                    charges.replace(before.as_ref(), Some(&after));
                }
                let more = meta.put(key, value)?;
                if key.kind == KeyKind::INODE {
                    count_inodes(meta, more);
                    meta.numbers.made(key.ino.plain());
                }
                if Versions::is_told_by(key) {
                    meta.versions.change(key, Some(value))?;
                }
                if quota::is_state(key) {
                    meta.change_quota(Some(value))?;
                }
            }
            Op::Delete { key } => {
                if key.kind == KeyKind::INODE && charges.count(key.ino) {
                    charges.replace(read_inode(meta, key.ino)?.as_ref(), None);
                }
                let more = meta.delete(key)?;
                if key.kind == KeyKind::INODE {
                    count_inodes(meta, more);
                }
                if Versions::is_told_by(key) {
                    meta.versions.change(key, None)?;
                }
                if quota::is_state(key) {
                    meta.change_quota(None)?;
                }
            }
            Op::Map { ino, block, extent } => {
                grow(*ino, mapping::map(meta, zones, *ino, *block, extent)?);
            }
            Op::Splice {
                ino,
                block,
                at,
                bytes,
            } => {
                let content = inline(meta, *ino, *block)?;
                let extent = Extent::spliced(content, (*at).into(), bytes);
                grow(*ino, mapping::map(meta, zones, *ino, *block, &extent)?);
            }
            Op::Punch { ino, from, to } => {
                grow(*ino, -mapping::punch(meta, zones, *ino, *from, *to)?);
            }
            Op::Touch { ino, set } => touch(meta, *ino, set)?,
            Op::Share(share) => {
                let (source, target) = sharing::apply(meta, zones, share)?;
                grow(share.from, source);
                grow(share.to, target);
            }
            Op::Move {
                version,
                ino,
                block,
                extent,
            } => {
                let more = mapping::map_exactly(meta, zones, *ino, *version, *block, extent)?;
                if let Some(owned) = moved_of(meta, *version, *ino) {
                    grow(owned, more);
                }
            }
            Op::Settle(settle) => {
                let gone = settle::apply(meta, zones, settle)?;
                count_inodes(meta, -gone);
            }
            Op::Lot { end } => meta.numbers.take_lot(*end),
        }
        panic_if(Fault::PanicHalfWay);
    }
    for (ino, sectors) in grown.into_iter().filter(|(_, sectors)| *sectors != 0) {
        if let Some(mut inode) = read_inode(meta, ino)? {
            let before = inode;
            inode.sectors = inode.sectors.saturating_add_signed(sectors);
            if charges.count(ino) {
                charges.replace(Some(&before), Some(&inode));
            }
            put_inode(meta, ino, &inode)?;
        }
    }
    charges.apply(meta)?;
    match meta.cache.fault() {
        Some(fault) => Err(fault.into()),
        None => Ok(()),
    }
}

/// The inode that takes more or less with what moves: what is compressed anew where it goes may not be as long as it was. What several
/// subvolumes show, or a read-only one, is charged to none of them.
pub(super) fn moved_of(meta: &Meta, version: VersionId, ino: Ino) -> Option<Ino> {
    let viewer = meta.versions.sole_viewer(version)?;
    Some(ino.of(viewer))
}

/// The content that a splice changes.
fn inline(meta: &Meta, ino: Ino, block: u64) -> Result<Vec<u8>> {
    extents::inline(meta, ino, block)?.ok_or_else(|| {
        Error::Inconsistent(format!(
            "inode {ino}: a record splices block {block}, which is not inline"
        ))
    })
}

pub(crate) fn read_inode(meta: &Meta, ino: Ino) -> Result<Option<Inode>> {
    meta.get(&Key::inode(ino))?
        .map(|bytes| decode_inode(ino, bytes))
        .transpose()
}

pub(crate) fn decode_inode(ino: Ino, bytes: &[u8]) -> Result<Inode> {
    Inode::decode(bytes).map_err(|e| Error::item_damaged(ino, e))
}

fn touch(meta: &mut Meta, ino: Ino, set: &Touch) -> Result<()> {
    let Some(mut inode) = read_inode(meta, ino)? else {
        return Ok(());
    };
    inode.size = set.size.unwrap_or(inode.size);
    inode.mtime = set.mtime.unwrap_or(inode.mtime);
    inode.ctime = set.ctime.unwrap_or(inode.ctime);
    inode.atime = set.atime.unwrap_or(inode.atime);
    inode.mode = set.mode.unwrap_or(inode.mode);
    put_inode(meta, ino, &inode)
}

/// Puts an inode that is there: it may be a version of its own then.
pub(super) fn put_inode(meta: &mut Meta, ino: Ino, inode: &Inode) -> Result<()> {
    let more = meta.put(&Key::inode(ino), &inode.encode())?;
    count_inodes(meta, more);
    Ok(())
}

/// The footer says how many there are: it may be damaged. Only `statfs` tells of it.
fn count_inodes(meta: &mut Meta, more: i64) {
    meta.inodes = meta.inodes.saturating_add_signed(more);
}
