//! What versions change of older inodes: kept beside them, so that it can be found without a search of the whole tree.

use std::collections::BTreeMap;

use persimmon_format::delta::{block_at, is_delta, place_of};
use persimmon_format::extent::FILE_BLOCKS_END;
use persimmon_format::record::Op;
use persimmon_format::version::{ChangedRange, Changes};
use persimmon_format::{Ino, Key, KeyKind, VersionId};

use super::Meta;
use crate::error::{Error, Result};

/// What operations change: inodes, and parts of them, with the deltas of blocks that get another content.
fn changed(ops: &[Op], has_deltas: bool) -> impl Iterator<Item = (Ino, ChangedRange)> {
    let range = |kind, first, last| ChangedRange { kind, first, last };
    let blocks = move |from: u64, to: u64| range(KeyKind::EXTENT, from, to.saturating_sub(1));
    let inode = range(KeyKind::INODE, 0, 0);
    let of_sources = ops.iter().filter_map(move |op| match op {
        // It may take more or less then, which its inode tells.
        Op::Share(share) => Some((share.from, inode)),
        _ => None,
    });
    let changed = ops.iter().filter_map(move |op| match op {
        Op::Put { key, .. } | Op::Delete { key } if key.is_unversioned() => None,
        // Numbers of new inodes follow each other: one range has all of them.
        Op::Put { key, .. } | Op::Delete { key }
            if matches!(key.kind, KeyKind::ORPHAN | KeyKind::TRUNCATION) =>
        {
            Some((key.ino, range(key.kind, 0, u64::MAX)))
        }
        Op::Put { key, .. } | Op::Delete { key } => {
            Some((key.ino, range(key.kind, key.item, key.item)))
        }
        Op::Map { ino, block, extent } => Some((*ino, blocks(*block, block + extent.blocks()))),
        Op::Splice { ino, block, .. } => Some((*ino, blocks(*block, block + 1))),
        Op::Punch { ino, from, to } => Some((*ino, blocks(*from, *to))),
        Op::Touch { ino, .. } => Some((*ino, inode)),
        Op::Share(share) => Some((share.to, blocks(share.to_block, share.target_end()))),
        Op::Move { .. } | Op::Settle(_) | Op::Lot { .. } => None,
    });
    let replaced = ops.iter().filter_map(Op::replaced_blocks);
    let of_deltas = replaced
        .filter(move |_| has_deltas)
        .map(move |(ino, from, to)| (ino, blocks(place_of(from), place_of(to))));
    changed.chain(of_sources).chain(of_deltas)
}

/// A range with the file blocks that it is of, where it is one of deltas.
pub(crate) fn of_blocks(range: ChangedRange) -> impl Iterator<Item = ChangedRange> {
    let has_deltas = range.kind == KeyKind::EXTENT && is_delta(range.last);
    let deltas = ChangedRange {
        first: range.first.saturating_sub(FILE_BLOCKS_END),
        last: block_at(range.last),
        ..range
    };
    let last = if has_deltas {
        FILE_BLOCKS_END - 1
    } else {
        range.last
    };
    let blocks = ChangedRange { last, ..range };
    let has_blocks = !has_deltas || !is_delta(range.first);
    let blocks = Some(blocks).filter(|_| has_blocks);
    let deltas = Some(deltas).filter(|_| has_deltas);
    blocks.into_iter().chain(deltas)
}

/// What a version is known to change of an inode.
pub(crate) fn known(meta: &Meta, key: &Key) -> Result<Changes> {
    let value = meta.get(key)?;
    let decoded = value.map(Changes::decode).transpose();
    let decoded = decoded.map_err(|e| Error::Inconsistent(format!("changes of a version: {e}")))?;
    Ok(decoded.unwrap_or_default())
}

/// What has to be put in a record of these operations, for all that they change to be known.
pub(crate) fn told(meta: &Meta, ops: &[Op]) -> Result<Vec<Op>> {
    if meta.versions.is_plain() {
        return Ok(Vec::new());
    }
    let mut told: BTreeMap<(VersionId, Ino), (bool, Changes)> = BTreeMap::new();
    for (ino, range) in changed(ops, meta.deltas > 0) {
        let at = meta.versions.at(ino)?;
        if !at.scope.has_parent || at.ino.0 >= at.scope.first_ino {
            continue;
        }
        let entry = match told.entry((at.scope.number, at.ino)) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let key = Key::changes(at.scope.number, at.ino);
                let is_new = meta.get(&key)?.is_none();
                entry.insert((is_new, known(meta, &key)?))
            }
        };
        if !entry.1.covers(range) {
            entry.1.add(range);
            entry.0 = true;
        }
    }
    let puts = told.into_iter().filter(|(_, (is_changed, _))| *is_changed);
    Ok(puts
        .map(|((number, ino), (_, changes))| Op::Put {
            key: Key::changes(number, ino),
            value: changes.encode(),
        })
        .collect())
}
