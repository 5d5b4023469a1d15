//! What is lost with zones that are offline: which ranges of which files, by path. Found by walking
//! the whole tree, so it is asked for when a zone has failed, and not otherwise.

use std::collections::BTreeMap;

use persimmon_device::{BLOCK_SIZE, ZoneId};
use persimmon_format::delta::block_at;
use persimmon_format::extent::Extent;
use persimmon_format::inode::SHARED;
use persimmon_format::table::Role;
use persimmon_format::{Addr, Ino, Key, KeyKind};

use crate::error::Result;
use crate::paths::{keys_of, paths};
use crate::store::Store;
use crate::zones::failure::ZoneFailure;

/// A range of a file that was in a zone that is offline. Reading it is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The file.
    pub ino: Ino,
    /// One of its names, from the root of the volume; none if the file, or a directory on the way,
    /// has none or it is lost too.
    pub path: Option<Vec<u8>>,
    /// First byte of the range.
    pub offset: u64,
    /// Bytes of the range, whole blocks.
    pub bytes: u64,
    /// The zone.
    pub zone: ZoneId,
}

/// What is lost of the files of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Ranges, by file and offset, as many as were asked for.
    pub ranges: Vec<Loss>,
    /// Ranges there are.
    pub total: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Metadata pages were lost too: there may be more.
    pub incomplete: bool,
}

/// What is lost of files with zones that are offline; `ranges_max` ranges are told.
pub(crate) fn losses(store: &Store, ranges_max: usize) -> Result<Losses> {
    let mut losses = Losses::default();
    let offline: Vec<ZoneId> = store
        .zones
        .status()
        .iter()
        .filter(|z| z.failure == Some(ZoneFailure::Offline) && z.entry.valid > 0)
        .filter(|z| z.entry.role == Role::Data)
        .map(|z| z.zone)
        .collect();
    if offline.is_empty() {
        return Ok(losses);
    }
    let is_offline = |addr: Addr| offline.contains(&addr.zone());
    let lost = |key: Key, value: &[u8]| {
        if key.kind != KeyKind::EXTENT {
            return None;
        }
        let extent = Extent::decode(value).ok()?;
        // What names blocks of the store is lost with them, wherever it lies itself.
        let may_be = extent.addr().is_some_and(is_offline) || extent.names().is_some();
        may_be.then_some((key, extent))
    };
    // The store of shared blocks precedes all files in the tree, so its losses are known before any file is visited.
    let mut lost_shared: BTreeMap<u64, (u64, ZoneId)> = BTreeMap::new();
    // Up to the first page that is lost.
    let mut add_lost = |(key, extent): (Key, Extent)| match (extent.addr(), &extent) {
        (Some(addr), _) if key.ino == SHARED => {
            lost_shared.insert(key.item, (key.item + extent.blocks(), addr.zone()));
        }
        (Some(addr), _) if is_offline(addr) => {
            add(&mut losses, &key, extent.blocks(), addr.zone(), ranges_max);
        }
        // A frame, of which nothing can be read without all of its dictionary.
        (Some(_), _) => {
            if let Some((from, to)) = extent.names()
                && let Some((_, (_, zone))) = overlapping(&lost_shared, from, to).first()
            {
                add(&mut losses, &key, extent.blocks(), *zone, ranges_max);
            }
        }
        (None, Extent::Shared { at, blocks, .. }) => {
            let end = at + u64::from(*blocks);
            for (from, (to, zone)) in overlapping(&lost_shared, *at, end) {
                let key = Key::extent(key.ino, key.item + (from - at));
                add(&mut losses, &key, to - from, zone, ranges_max);
            }
        }
        _ => {}
    };
    // Each subvolume tells what it shows: the main one first, which has the store.
    let mut incomplete = false;
    let subvolumes = store.meta().versions.all();
    for subvolume in subvolumes {
        let scanned = store.walk(keys_of(subvolume), lost, &mut add_lost);
        incomplete |= scanned.is_err();
    }
    losses.incomplete |= incomplete;
    losses.ranges.truncate(ranges_max);
    name_all(store, &mut losses);
    Ok(losses)
}

/// What of the blocks `from..to` of the store is lost, and with which zone.
fn overlapping(
    lost: &BTreeMap<u64, (u64, ZoneId)>,
    from: u64,
    to: u64,
) -> Vec<(u64, (u64, ZoneId))> {
    let before = lost.range(..from).next_back();
    let within = lost.range(from..to);
    let found = before.into_iter().chain(within);
    found
        .filter(|(_, (end, _))| *end > from)
        .map(|(start, (end, zone))| ((*start).max(from), ((*end).min(to), *zone)))
        .collect()
}

/// Gives the files their paths, as far as they can be found.
fn name_all(store: &Store, losses: &mut Losses) {
    let inos = losses.ranges.iter().map(|loss| loss.ino).collect();
    let paths = paths(store, &inos);
    for loss in &mut losses.ranges {
        loss.path = paths.get(&loss.ino).cloned();
    }
}

/// Adds a range, to the one before it where it continues that.
fn add(losses: &mut Losses, key: &Key, blocks: u64, zone: ZoneId, ranges_max: usize) {
    let offset = block_at(key.item).saturating_mul(BLOCK_SIZE as u64);
    let bytes = blocks.saturating_mul(BLOCK_SIZE as u64);
    losses.bytes = losses.bytes.saturating_add(bytes);
    if let Some(last) = losses.ranges.last_mut()
        && (last.ino, last.zone) == (key.ino, zone)
        && last.offset.saturating_add(last.bytes) == offset
    {
        last.bytes = last.bytes.saturating_add(bytes);
        return;
    }
    losses.total += 1;
    // One more than is told, which the next may continue.
    losses.ranges.truncate(ranges_max);
    losses.ranges.push(Loss {
        ino: key.ino,
        path: None,
        offset,
        bytes,
        zone,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_told_is_counted_by_range_too() {
        let extents = [(5, 0), (5, 4), (5, 8), (5, 100), (5, 104), (6, 108)];
        let counted = |ranges_max| {
            let mut losses = Losses::default();
            for (ino, block) in extents {
                let key = Key::extent(Ino(ino), block);
                add(&mut losses, &key, 4, ZoneId(3), ranges_max);
            }
            losses.ranges.truncate(ranges_max);
            (losses.ranges.len(), losses.total, losses.bytes)
        };
        let bytes = 24 * BLOCK_SIZE as u64;
        for ranges_max in 0..6 {
            assert_eq!(counted(ranges_max), (ranges_max.min(3), 3, bytes));
        }
    }
}
