//! Extents of files as ranges of the tree, and how they are found: what a subvolume shows, and what each version has.

use std::ops::ControlFlow;

use persimmon_format::extent::Extent;
use persimmon_format::frame_part::FramePart;
use persimmon_format::inode::SHARED;
use persimmon_format::packed::Packed;
use persimmon_format::{Ino, Key, KeyKind, VersionId};

use super::versions::{At, Scope};
use super::{Meta, tree};
use crate::error::{Error, Result};
use crate::faults::{Fault, fault};

/// An extent, the file block it starts at, and the version whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MappedExtent {
    pub(crate) block: u64,
    pub(crate) version: VersionId,
    pub(crate) extent: Extent,
}

impl MappedExtent {
    pub(crate) fn end(&self) -> u64 {
        self.block + self.extent.blocks()
    }
}

/// The extents that versions have of the same file blocks, oldest first.
pub(super) struct Group {
    pub(super) block: u64,
    pub(super) blocks: u64,
    pub(super) versions: Vec<(VersionId, Extent)>,
}

impl Group {
    pub(super) fn end(&self) -> u64 {
        self.block + self.blocks
    }

    /// What is shown of them, a hole if that hides something.
    pub(super) fn shown(&self, scope: &Scope) -> Option<&Extent> {
        let (_, extent) = self.versions.get(self.shown_index(scope)?)?;
        Some(extent)
    }

    /// Which of them that is.
    pub(super) fn shown_index(&self, scope: &Scope) -> Option<usize> {
        let mut versions = self.versions.iter();
        versions.rposition(|(version, _)| scope.shows(*version))
    }

    /// Whether there is something below what a version owns here.
    pub(super) fn hides(&self, scope: &Scope) -> bool {
        let mut newest_first = self.versions.iter().rev();
        let below = newest_first.find(|(version, _)| scope.shows_below(*version));
        below.is_some_and(|(_, extent)| !matches!(extent, Extent::Hole { .. }))
    }

    /// Whether only one version has something here, which is owned.
    pub(super) fn is_of_one(&self, scope: &Scope) -> bool {
        matches!(self.versions.as_slice(), [(version, _)] if scope.owns(*version))
    }
}

fn decode(key: &Key, value: &[u8]) -> Result<MappedExtent> {
    let extent = Extent::decode(value)
        .map_err(|e| Error::item_damaged(key.ino, format_args!("block {}: {e}", key.item)))?;
    if !extent.fits_at(key.item) {
        return Err(Error::item_damaged(key.ino, "an extent past the end"));
    }
    Ok(MappedExtent {
        block: key.item,
        version: key.version,
        extent,
    })
}

/// Calls `visit` with the extents of an inode, of all versions, that overlap the file blocks `from..to`, until it breaks: those of the same blocks together.
fn visit_groups(
    meta: &Meta,
    ino: Ino,
    from: u64,
    to: u64,
    mut visit: impl FnMut(Group) -> ControlFlow<()>,
) -> Result<()> {
    if from >= to {
        return Ok(());
    }
    let (start, end) = (Key::extent(ino, from), Key::extent(ino, to));
    let items = match meta.versions.is_plain() {
        true => tree::range_from_floor(&meta.cache, meta.root, start, end),
        false => tree::range(&meta.cache, meta.root, first_version(meta, &start)?..end),
    };
    let mut group: Option<Group> = None;
    for item in items {
        let (key, value) = item?;
        if (key.ino, key.kind) != (ino, KeyKind::EXTENT) {
            continue;
        }
        let mapped = decode(&key, value)?;
        if mapped.end() <= from {
            continue;
        }
        match &mut group {
            Some(group) if group.block == mapped.block => {
                if group.blocks != mapped.extent.blocks() {
                    return Err(Error::item_damaged(ino, "versions overlap in part"));
                }
                group.versions.push((mapped.version, mapped.extent));
                continue;
            }
            Some(group) if mapped.block < group.end() => {
                return Err(Error::item_damaged(ino, "overlapping extents"));
            }
            _ => {}
        }
        let next = Group {
            block: mapped.block,
            blocks: mapped.extent.blocks(),
            versions: vec![(mapped.version, mapped.extent)],
        };
        if let Some(group) = group.replace(next)
            && visit(group).is_break()
        {
            return Ok(());
        }
    }
    if let Some(group) = group {
        let _ = visit(group);
    }
    Ok(())
}

/// The first key of the extents that have a place, which may begin before it.
fn first_version(meta: &Meta, place: &Key) -> Result<Key> {
    let before = place.at(VersionId(u32::MAX));
    if let Some((key, value)) = tree::floor(&meta.cache, meta.root, &before)?
        && (key.ino, key.kind) == (place.ino, KeyKind::EXTENT)
        && key.item < place.item
        && decode(&key, value)?.end() > place.item
    {
        return Ok(Key::extent(key.ino, key.item));
    }
    Ok(*place)
}

pub(super) fn groups(meta: &Meta, ino: Ino, from: u64, to: u64) -> Result<Vec<Group>> {
    let mut groups = Vec::new();
    visit_groups(meta, ino, from, to, |group| {
        groups.push(group);
        ControlFlow::Continue(())
    })?;
    Ok(groups)
}

/// Extents that a subvolume shows of the file blocks `from..to`, at most `limit` of them.
pub(crate) fn overlapping(
    meta: &Meta,
    ino: Ino,
    from: u64,
    to: u64,
    limit: usize,
) -> Result<Vec<MappedExtent>> {
    let found = shown_at(meta, &meta.versions.at(ino)?, from, to, limit);
    found.map_err(|error| error.of(ino))
}

fn shown_at(meta: &Meta, at: &At, from: u64, to: u64, limit: usize) -> Result<Vec<MappedExtent>> {
    if meta.versions.is_plain() {
        return all_of_one(meta, at.ino, from, to, limit);
    }
    some_of(meta, at.ino, from, to, limit, |mut group| {
        let shown = group.shown_index(&at.scope)?;
        Some(group.versions.swap_remove(shown))
    })
}

/// Finds the extents of a file that has one version: each file block has one extent at most.
fn all_of_one(
    meta: &Meta,
    ino: Ino,
    from: u64,
    to: u64,
    limit: usize,
) -> Result<Vec<MappedExtent>> {
    let mut extents: Vec<MappedExtent> = Vec::new();
    if from >= to {
        return Ok(extents);
    }
    let (start, end) = (Key::extent(ino, from), Key::extent(ino, to));
    for item in tree::range_from_floor(&meta.cache, meta.root, start, end) {
        if extents.len() >= limit {
            break;
        }
        let (key, value) = item?;
        if (key.ino, key.kind) != (ino, KeyKind::EXTENT) {
            continue;
        }
        let mapped = decode(&key, value)?;
        if mapped.end() <= from {
            continue;
        }
        let before = extents.last();
        if before.is_some_and(|before| mapped.block < before.end()) {
            return Err(Error::item_damaged(ino, "overlapping extents"));
        }
        extents.push(mapped);
    }
    Ok(extents)
}

/// Extents of one look, and where the next begins if there may be more.
pub(crate) type Look = (Vec<MappedExtent>, Option<u64>);

/// Places that one look passes over, if nothing of what is looked for is there.
const PLACES_MAX: usize = 1024;

/// Some extents that a subvolume shows of the file blocks `from..to`, from the first on. It also skips a bounded number of hidden ones: a file
/// may hide very many that a snapshot has.
pub(crate) fn some_shown(meta: &Meta, ino: Ino, from: u64, to: u64, limit: usize) -> Result<Look> {
    if meta.versions.is_plain() {
        let extents = overlapping(meta, ino, from, to, limit)?;
        let last = extents.last().filter(|_| extents.len() >= limit);
        let next = last.map(MappedExtent::end).filter(|next| *next < to);
        return Ok((extents, next));
    }
    let is_shown = |extent: &Extent| !matches!(extent, Extent::Hole { .. });
    some_that(meta, ino, from, to, limit, Scope::shows, is_shown)
}

/// Finds the extents that a subvolume owns, whether or not it shows them, and the holes with which it hides others.
pub(crate) fn some_owned(meta: &Meta, ino: Ino, from: u64, to: u64, limit: usize) -> Result<Look> {
    some_that(meta, ino, from, to, limit, Scope::owns, |_| true)
}

fn some_that(
    meta: &Meta,
    ino: Ino,
    from: u64,
    to: u64,
    limit: usize,
    counts: fn(&Scope, VersionId) -> bool,
    is_wanted: fn(&Extent) -> bool,
) -> Result<Look> {
    let at = meta.versions.at(ino)?;
    let (mut extents, mut places, mut next) = (Vec::new(), 0, None);
    let visited = visit_groups(meta, at.ino, from, to, |mut group| {
        let (block, end) = (group.block, group.end());
        let mut newest_first = group.versions.iter().enumerate().rev();
        let newest = newest_first.find(|(_, (version, _))| counts(&at.scope, *version));
        if let Some(newest) = newest.map(|(newest, _)| newest) {
            let (version, extent) = group.versions.swap_remove(newest);
            if is_wanted(&extent) {
                extents.push(MappedExtent {
                    block,
                    version,
                    extent,
                });
            }
        }
        places += 1;
        if extents.len() < limit && places < PLACES_MAX {
            return ControlFlow::Continue(());
        }
        next = (end < to).then_some(end);
        ControlFlow::Break(())
    });
    visited.map_err(|error| error.of(ino))?;
    Ok((extents, next))
}

/// What `pick` takes of each group, unless it is a hole.
fn some_of(
    meta: &Meta,
    ino: Ino,
    from: u64,
    to: u64,
    limit: usize,
    pick: impl Fn(Group) -> Option<(VersionId, Extent)>,
) -> Result<Vec<MappedExtent>> {
    let mut extents = Vec::new();
    if limit == 0 {
        return Ok(extents);
    }
    visit_groups(meta, ino, from, to, |group| {
        let block = group.block;
        if let Some((version, extent)) = pick(group)
            && !matches!(extent, Extent::Hole { .. })
        {
            extents.push(MappedExtent {
                block,
                version,
                extent,
            });
        }
        if extents.len() < limit {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    Ok(extents)
}

/// Extents of all versions.
pub(super) fn stored(meta: &Meta, ino: Ino, from: u64, to: u64) -> Result<Vec<MappedExtent>> {
    let mut extents = Vec::new();
    visit_groups(meta, ino, from, to, |group| {
        let block = group.block;
        let versions = group.versions.into_iter();
        extents.extend(versions.map(|(version, extent)| MappedExtent {
            block,
            version,
            extent,
        }));
        ControlFlow::Continue(())
    })?;
    Ok(extents)
}

/// The extent of one version that has a file block.
pub(crate) fn exactly(
    meta: &Meta,
    ino: Ino,
    version: VersionId,
    block: u64,
) -> Result<Option<Extent>> {
    let mut extents = stored(meta, ino, block, block.saturating_add(1))?;
    extents.retain(|mapped| mapped.version == version);
    Ok(extents.pop().map(|mapped| mapped.extent))
}

/// The parts of the frame of a packed extent at `block`, it among them: they are all of one version.
pub(crate) fn parts_of(
    meta: &Meta,
    ino: Ino,
    version: VersionId,
    block: u64,
    packed: &Packed,
) -> Result<Vec<MappedExtent>> {
    let (from, to) = packed.frame_at(block).unwrap_or((block, block + 1));
    let mut parts = stored(meta, ino, from, to)?;
    parts.retain(|mapped| mapped.version == version && is_part(&mapped.extent, packed));
    Ok(parts)
}

fn is_part(extent: &Extent, packed: &Packed) -> bool {
    matches!(extent, Extent::Packed(part) if part.shares_frame(packed))
}

/// Blocks of the frame of a part at `block` that these extents have.
fn blocks_with(part: &FramePart, block: u64, there: &[MappedExtent]) -> u64 {
    let other = |mapped: &MappedExtent| {
        let other = mapped.extent.frame_part()?;
        part.counts_with(block, &other, mapped.block)
            .then(|| other.blocks())
    };
    let live: u64 = there.iter().filter_map(other).sum();
    live.min(part.frame_blocks())
}

/// Blocks of the frame of an extent that a version has beside it, while the extent itself is not in the tree.
pub(crate) fn beside(
    meta: &Meta,
    ino: Ino,
    version: VersionId,
    block: u64,
    extent: &Extent,
) -> Result<u64> {
    let Some(part) = extent.frame_part().filter(|part| !part.is_whole()) else {
        return Ok(0);
    };
    let (from, to) = part.range_at(block);
    let mut there = stored(meta, ino, from, to)?;
    there.retain(|mapped| mapped.version == version);
    Ok(blocks_with(&part, block, &there))
}

/// Blocks of the frame of an extent that are shown beside it, while the extent itself is not.
pub(super) fn shown_beside(meta: &Meta, at: &At, block: u64, extent: &Extent) -> Result<u64> {
    let Some(part) = extent.frame_part().filter(|part| !part.is_whole()) else {
        return Ok(0);
    };
    let (from, to) = part.range_at(block);
    let shown = shown_at(meta, at, from, to, usize::MAX)?;
    Ok(blocks_with(&part, block, &shown))
}

/// The inline content of a block; nothing where it is a hole. `None` if it is neither.
pub(crate) fn inline(meta: &Meta, ino: Ino, block: u64) -> Result<Option<Vec<u8>>> {
    let mapped = overlapping(meta, ino, block, block.saturating_add(1), 1)?.pop();
    Ok(match mapped.map(|mapped| mapped.extent) {
        None => Some(Vec::new()),
        Some(Extent::Inline(content)) => Some(content),
        Some(_) => None,
    })
}

/// Extents that overlap the file blocks `from..to`, each shared one replaced by what the store has of it.
pub(crate) fn resolved(meta: &Meta, ino: Ino, from: u64, to: u64) -> Result<Vec<MappedExtent>> {
    let mut extents = Vec::new();
    for mapped in overlapping(meta, ino, from, to, usize::MAX)? {
        let Extent::Shared { at, .. } = mapped.extent else {
            extents.push(mapped);
            continue;
        };
        let (start, end) = (mapped.block.max(from), mapped.end().min(to));
        // What is in the store at `place` is in the file at `start`.
        let place = at + (start - mapped.block);
        let mut done = place;
        for stored in overlapping(meta, SHARED, place, place + (end - start), usize::MAX)? {
            let cut_from = stored.block.max(place);
            if cut_from > done {
                return Err(not_in_store(ino, start + (done - place)));
            }
            let cut_to = stored.end().min(place + (end - start));
            let extent = stored
                .extent
                .part(cut_from - stored.block, cut_to - cut_from);
            if matches!(extent, Extent::Shared { .. }) {
                return Err(Error::item_damaged(
                    SHARED,
                    "a shared block that is shared itself",
                ));
            }
            extents.push(MappedExtent {
                block: start + (cut_from - place),
                version: mapped.version,
                extent,
            });
            done = cut_to;
        }
        if done < place + (end - start) {
            return Err(not_in_store(ino, start + (done - place)));
        }
    }
    Ok(extents)
}

fn not_in_store(ino: Ino, block: u64) -> Error {
    Error::item_damaged(ino, format_args!("block {block}: a shared block is lost"))
}

/// Where blocks that were written for a file are now.
pub(crate) struct Whereabouts {
    /// Those that the file still refers to itself, in some version.
    pub(crate) live: Vec<MappedExtent>,
    /// Places in the store of shared blocks at which the first of them may be: for each shared extent there, the one that is as far from
    /// the extent's as the first of them is in the file.
    pub(crate) places: Vec<u64>,
}

/// What became of the frame `from`, at file block `block` of an inode without a subvolume.
pub(crate) fn whereabouts(meta: &Meta, ino: Ino, block: u64, from: &Extent) -> Result<Whereabouts> {
    let end = block + from.blocks();
    let (mut live, mut places) = (Vec::new(), Vec::new());
    for mapped in stored(meta, ino, block, end)? {
        if let Extent::Shared { at, .. } = mapped.extent {
            places.extend((at + block).checked_sub(mapped.block));
            continue;
        }
        let start = mapped.block.max(block);
        let length = mapped.end().min(end) - start;
        let part = from.part(start - block, length);
        // Address and content: the zone may have been reset and written again meanwhile.
        let same = mapped.extent.part(start - mapped.block, length) == part;
        if same || fault(Fault::StaleBlocksMoved) {
            live.push(MappedExtent {
                block: start,
                version: mapped.version,
                extent: part,
            });
        }
    }
    places.sort_unstable();
    places.dedup();
    Ok(Whereabouts { live, places })
}

/// The parts of `from`, at file block `block` of an inode without a subvolume, that the file still has there. A frame is one version's; of
/// content in the tree, which several versions may have, it is the first that has it.
pub(crate) fn still_there(
    meta: &Meta,
    ino: Ino,
    block: u64,
    from: &Extent,
) -> Result<Vec<MappedExtent>> {
    let mut live = whereabouts(meta, ino, block, from)?.live;
    if from.addr().is_none() {
        live.truncate(1);
    }
    Ok(live)
}
