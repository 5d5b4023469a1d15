//! Settling: removing what a version owns and nothing shows any more, because it absorbed another version or is discarded itself.

use persimmon_format::record::Settle;
use persimmon_format::{Ino, Key, KeyKind, VersionId};

use super::versions::At;
use super::{Meta, mapping, tree};
use crate::error::Result;
use crate::zones::Zones;

/// Places that a record settles.
const PLACES_MAX: usize = 64;

fn place(ino: Ino, (kind, item): (KeyKind, u64)) -> Key {
    Key::new(ino, kind, item)
}

/// The items of all versions at the places that are settled, in order.
fn keys(meta: &Meta, settle: &Settle) -> Result<Vec<Key>> {
    let range = place(settle.ino, settle.from)..place(settle.ino, settle.to);
    tree::range(&meta.cache, meta.root, range)
        .map(|item| Ok(item?.0))
        .collect()
}

/// Places of an inode at which a version owns something that may have to go, from one on: as many as one record should settle. None if there
/// is nothing.
pub(crate) fn next(
    meta: &Meta,
    version: VersionId,
    ino: Ino,
    from: (KeyKind, u64),
    to: (KeyKind, u64),
) -> Result<Option<Settle>> {
    let at = meta.versions.at_version(ino, version);
    let is_gone = at.scope.is_discarded || !meta.is_there(&at)?;
    let (mut first, mut places) = (None, 0);
    let mut last: Option<(Key, usize)> = None;
    let range = place(ino, from)..place(ino, to);
    for item in tree::range(&meta.cache, meta.root, range) {
        let (key, value) = item?;
        let here = key.at(VersionId(0));
        let owned = usize::from(at.scope.owns(key.version));
        let same = last.filter(|(place, _)| *place == here);
        let count = same.map_or(0, |(_, count)| count) + owned;
        last = Some((here, count));
        let goes = owned > 0 && (is_gone || count > 1 || key.is_whiteout(value));
        if !goes {
            continue;
        }
        first = first.or(Some((here.kind, here.item)));
        places += 1;
        if places == PLACES_MAX {
            break;
        }
    }
    let (Some(from), Some((last, _))) = (first, last) else {
        return Ok(None);
    };
    let to = match last.item.checked_add(1) {
        Some(item) => (last.kind, item),
        None => (KeyKind(last.kind.0.saturating_add(1)), 0),
    };
    Ok(Some(Settle {
        version,
        ino,
        from,
        to,
    }))
}

/// Makes sure that [`apply`] finds all it needs in memory and intact.
pub(crate) fn ensure(meta: &Meta, settle: &Settle) -> Result<()> {
    let at = meta.versions.at_version(settle.ino, settle.version);
    let inode = Key::inode(settle.ino);
    for number in meta.versions_at(&inode)? {
        meta.ensure_stored(&inode.at(number))?;
    }
    for key in keys(meta, settle)? {
        meta.ensure_stored(&key)?;
        if key.kind == KeyKind::EXTENT && at.scope.owns(key.version) {
            mapping::ensure_exactly(meta, key.ino, key.version, key.item, key.item + 1)?;
        }
    }
    Ok(())
}

/// Settles. Returns how many inodes there are less.
pub(crate) fn apply(meta: &mut Meta, zones: &Zones, settle: &Settle) -> Result<i64> {
    let at = meta.versions.at_version(settle.ino, settle.version);
    let is_gone = at.scope.is_discarded || !meta.is_there(&at)?;
    let mut inodes = 0;
    let keys = keys(meta, settle)?;
    for here in keys.chunk_by(|one, other| one.at(VersionId(0)) == other.at(VersionId(0))) {
        let Some(place) = here.first().map(|key| key.at(VersionId(0))) else {
            continue;
        };
        let mut owned: Vec<Key> = here.to_vec();
        owned.retain(|key| at.scope.owns(key.version));
        let all_go = at.scope.is_discarded || is_gone && place.kind != KeyKind::INODE;
        if !all_go {
            let Some(newest) = owned.pop() else { continue };
            let value = tree::get(&meta.cache, meta.root, &newest)?;
            let is_whiteout = value.is_some_and(|value| newest.is_whiteout(value));
            if is_whiteout && !meta.is_shown_below(&at, &place)? {
                owned.push(newest);
            }
        }
        for key in owned {
            inodes += remove(meta, zones, &at, &key)?;
        }
    }
    Ok(inodes)
}

/// Removes an item of one version. Returns how many inodes that are.
fn remove(meta: &mut Meta, zones: &Zones, at: &At, key: &Key) -> Result<i64> {
    if key.kind == KeyKind::EXTENT {
        mapping::remove_exactly(meta, zones, at.ino, key.version, key.item)?;
        return Ok(0);
    }
    let value = tree::get(&meta.cache, meta.root, key)?;
    let is_inode = value.is_some_and(|value| key.kind == KeyKind::INODE && !key.is_whiteout(value));
    meta.remove_stored(key);
    Ok(i64::from(is_inode))
}
