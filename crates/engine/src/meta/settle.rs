//! Settling: removing what a version owns and nothing shows any more, because it absorbed another version or is discarded itself.

use persimmon_format::record::Settle;
use persimmon_format::{Ino, Key, KeyKind, VersionId};

use super::versions::At;
use super::{Meta, mapping, tree};
use crate::error::Result;
use crate::faults::{Fault, instead};
use crate::zones::Zones;

/// Places that a record settles.
const PLACES_MAX: usize = 64;
/// Items that one look for them sees, if none of these has to go.
const ITEMS_MAX: usize = 1024;

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

/// What a look for things to settle found.
pub(crate) struct Found {
    /// What one record should settle.
    pub(crate) settle: Option<Settle>,
    /// Where the next look begins; none if the end was reached.
    pub(crate) next: Option<Place>,
}

/// A kind and an item of an inode.
pub(crate) type Place = (KeyKind, u64);

/// Places of an inode, in a range, at which a version owns something that may have to go: as many as one record should settle, of as many
/// items as one look should see.
pub(crate) fn find(
    meta: &Meta,
    version: VersionId,
    ino: Ino,
    from: Place,
    to: Place,
) -> Result<Found> {
    let at = meta.versions.at_version(ino, version)?;
    let is_gone = at.scope.is_discarded || !meta.is_there(&at)?;
    // The first and the last place that goes, and how many they are.
    let mut going: Option<(Key, Key, usize)> = None;
    let (mut here, mut owned_here) = (place(ino, from), 0);
    let range = place(ino, from)..place(ino, to);
    for (seen, item) in tree::range(&meta.cache, meta.root, range).enumerate() {
        let (key, value) = item?;
        let place = key.at(VersionId(0));
        if place != here {
            let places = going.map_or(0, |(_, _, places)| places);
            // All items of a place are looked at together.
            if seen >= ITEMS_MAX || places == PLACES_MAX {
                return Ok(Found {
                    settle: going.and_then(|going| settle_of(version, going)),
                    next: Some((place.kind, place.item)),
                });
            }
            (here, owned_here) = (place, 0);
        }
        if !at.scope.owns(key.version) {
            continue;
        }
        owned_here += 1;
        if !(is_gone || owned_here > 1 || key.is_whiteout(value)) {
            continue;
        }
        going = Some(match going {
            Some((first, last, places)) if last == place => (first, last, places),
            Some((first, _, places)) => (first, place, places + 1),
            None => (place, place, 1),
        });
    }
    Ok(Found {
        settle: going.and_then(|going| settle_of(version, going)),
        next: None,
    })
}

fn settle_of(version: VersionId, (first, last, _): (Key, Key, usize)) -> Option<Settle> {
    let to = match last.item.checked_add(1) {
        Some(item) => (last.kind, item),
        None => (KeyKind(last.kind.0.checked_add(1)?), 0),
    };
    Some(Settle {
        version,
        ino: first.ino,
        from: (first.kind, first.item),
        to,
    })
}

/// Makes sure that [`apply`] finds all it needs in memory and intact.
pub(crate) fn ensure(meta: &Meta, settle: &Settle) -> Result<()> {
    let at = meta.versions.at_version(settle.ino, settle.version)?;
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
    let at = meta.versions.at_version(settle.ino, settle.version)?;
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
            let Some(last) = owned.len().checked_sub(1) else {
                continue;
            };
            let newest = owned.remove(instead(Fault::OlderSettled, 0, last));
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
