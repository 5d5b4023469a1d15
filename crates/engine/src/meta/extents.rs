//! Extents of files as ranges of the tree: finding, mapping, punching. Blocks that gain or lose
//! their reference are counted in the zones.

use std::ops::ControlFlow;

use persimmon_format::extent::{Extent, FRAME_BLOCKS_MAX};
use persimmon_format::inode::SHARED;
use persimmon_format::packed::Packed;
use persimmon_format::{Ino, Key, KeyKind, VersionId};

use super::versions::{At, Scope};
use super::{Meta, references, tree};
use crate::error::{Error, Result};
use crate::faults::{Fault, fault, unless};
use crate::invariant::invariant;
use crate::zones::Zones;

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
struct Group {
    block: u64,
    blocks: u64,
    versions: Vec<(VersionId, Extent)>,
}

impl Group {
    fn end(&self) -> u64 {
        self.block + self.blocks
    }

    /// What is shown of them, a hole if that hides something.
    fn shown(&self, scope: &Scope) -> Option<&Extent> {
        let mut newest_first = self.versions.iter().rev();
        let shown = newest_first.find(|(version, _)| scope.shows(*version));
        shown.map(|(_, extent)| extent)
    }

    /// Whether there is something below what a version owns here.
    fn hides(&self, scope: &Scope) -> bool {
        let mut newest_first = self.versions.iter().rev();
        let below = newest_first.find(|(version, _)| scope.shows_below(*version));
        below.is_some_and(|(_, extent)| !matches!(extent, Extent::Hole { .. }))
    }

    /// Whether only one version has something here, which is owned.
    fn is_of_one(&self, scope: &Scope) -> bool {
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
    let mut start = Key::extent(ino, from);
    let before = start.at(VersionId(u32::MAX));
    if let Some((key, value)) = tree::floor(&meta.cache, meta.root, &before)?
        && key.ino == ino
        && key.kind == KeyKind::EXTENT
        && key.item < from
        && decode(&key, value)?.end() > from
    {
        start = Key::extent(ino, key.item);
    }
    let mut group: Option<Group> = None;
    for item in tree::range(&meta.cache, meta.root, start..Key::extent(ino, to)) {
        let (key, value) = item?;
        let mapped = decode(&key, value)?;
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

fn groups(meta: &Meta, ino: Ino, from: u64, to: u64) -> Result<Vec<Group>> {
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
    shown_at(meta, &meta.versions.at(ino)?, from, to, limit)
}

fn shown_at(meta: &Meta, at: &At, from: u64, to: u64, limit: usize) -> Result<Vec<MappedExtent>> {
    some_of(meta, at.ino, from, to, limit, |mut group| {
        let at = group
            .versions
            .iter()
            .rposition(|(version, _)| at.scope.shows(*version))?;
        Some(group.versions.swap_remove(at))
    })
}

/// Extents that a subvolume owns of an inode, whether or not it shows them.
pub(crate) fn owned(
    meta: &Meta,
    ino: Ino,
    from: u64,
    to: u64,
    limit: usize,
) -> Result<Vec<MappedExtent>> {
    let at = meta.versions.at(ino)?;
    some_of(meta, at.ino, from, to, limit, |mut group| {
        let at = group
            .versions
            .iter()
            .rposition(|(version, _)| at.scope.owns(*version))?;
        Some(group.versions.swap_remove(at))
    })
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
fn stored(meta: &Meta, ino: Ino, from: u64, to: u64) -> Result<Vec<MappedExtent>> {
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

/// Makes sure that [`punch`] and [`map`] of `from..to` find all they need in memory and intact.
pub(crate) fn ensure(meta: &Meta, ino: Ino, from: u64, to: u64) -> Result<()> {
    ensure_at(meta, &meta.versions.at(ino)?, from, to)
}

/// The same of one version alone.
pub(crate) fn ensure_exactly(
    meta: &Meta,
    ino: Ino,
    version: VersionId,
    from: u64,
    to: u64,
) -> Result<()> {
    ensure_at(meta, &meta.versions.exactly(ino, version), from, to)
}

fn ensure_at(meta: &Meta, at: &At, from: u64, to: u64) -> Result<()> {
    let ino = at.ino;
    // Not only the keys: a second operation on the file finds what is next to those removed here.
    for place in [from, to] {
        meta.ensure_stored(&Key::extent(ino, place))?;
    }
    if meta.versions.is_plain() {
        for mapped in overlapping(meta, ino, from, to, usize::MAX)? {
            tree::ensure_resident(&meta.cache, meta.root, &Key::extent(ino, mapped.block))?;
            ensure_content(meta, at, &mapped)?;
        }
    } else {
        for group in groups(meta, ino, from, to)? {
            for block in [group.block, from.max(group.block), to.min(group.end())] {
                meta.ensure_stored(&Key::extent(ino, block).at(at.scope.number))?;
                for (version, _) in &group.versions {
                    meta.ensure_stored(&Key::extent(ino, block).at(*version))?;
                }
            }
            let block = group.block;
            for (version, extent) in group.versions {
                let mapped = MappedExtent {
                    block,
                    version,
                    extent,
                };
                ensure_content(meta, at, &mapped)?;
            }
        }
    }
    // The extent that a mapping may be joined to.
    if let Some(before) = from.checked_sub(1) {
        for mapped in stored(meta, ino, before, from)? {
            let key = Key::extent(ino, mapped.block).at(mapped.version);
            tree::ensure_resident(&meta.cache, meta.root, &key)?;
        }
    }
    Ok(())
}

/// What taking an extent out needs beside it.
fn ensure_content(meta: &Meta, at: &At, mapped: &MappedExtent) -> Result<()> {
    match &mapped.extent {
        Extent::Packed(packed) => {
            parts_of(meta, at.ino, mapped.version, mapped.block, packed).map(drop)
        }
        // The store shares nothing itself.
        Extent::Shared { at: place, blocks } if at.ino != SHARED => {
            let end = place + u64::from(*blocks);
            references::ensure(meta, *place, end)?;
            ensure(meta, SHARED, *place, end)
        }
        _ => Ok(()),
    }
}

/// The same for the mapping of an extent.
pub(crate) fn ensure_map(meta: &Meta, ino: Ino, block: u64, extent: &Extent) -> Result<()> {
    ensure_map_at(meta, &meta.versions.at(ino)?, block, extent)
}

/// The same for the mapping of an extent in one version.
pub(crate) fn ensure_map_exactly(
    meta: &Meta,
    ino: Ino,
    version: VersionId,
    block: u64,
    extent: &Extent,
) -> Result<()> {
    ensure_map_at(meta, &meta.versions.exactly(ino, version), block, extent)
}

fn ensure_map_at(meta: &Meta, at: &At, block: u64, extent: &Extent) -> Result<()> {
    ensure_at(meta, at, block, block + extent.blocks())?;
    beside(meta, at.ino, at.scope.number, block, extent).map(drop)
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

/// Blocks of these parts of a frame.
fn blocks_of(parts: &[MappedExtent], packed: &Packed) -> u64 {
    let live: u64 = parts.iter().map(|part| part.extent.blocks()).sum();
    live.min(packed.frame.blocks.into())
}

/// Makes two extents of a frame that is shown where it goes on behind the beginning of a block, and of what other versions have there. Each file
/// has what it had.
pub(crate) fn cut_frame(meta: &mut Meta, ino: Ino, block: u64) -> Result<()> {
    let at = meta.versions.at(ino)?;
    for group in groups(meta, at.ino, block, block.saturating_add(1))? {
        let is_frame = matches!(group.shown(&at.scope), Some(Extent::Frame { .. }));
        if is_frame && group.block < block {
            cut(meta, at.ino, &group, block, group.end());
        }
    }
    Ok(())
}

/// Moves an extent to the store of shared blocks, which has nothing there; zones count it as before. Returns by how many sectors the file grew.
pub(crate) fn move_to_store(
    meta: &mut Meta,
    ino: Ino,
    mapped: &MappedExtent,
    place: u64,
) -> Result<i64> {
    let MappedExtent {
        block,
        version,
        extent,
    } = mapped;
    let plain = meta.versions.at(ino)?.ino;
    let key = Key::extent(plain, *block).at(*version);
    meta.remove_stored(&key);
    let beside = beside(meta, plain, *version, *block, extent)?;
    let before = extent.stored(beside).sectors as i64;
    put(meta, Key::extent(SHARED, place), extent);
    let shared = Extent::Shared {
        at: place,
        blocks: extent.blocks() as u16,
    };
    put(meta, key, &shared);
    Ok(shared.sectors() as i64 - before)
}

/// Maps blocks of the store where the file was punched. Returns by how many sectors the file grew.
pub(crate) fn put_shared(
    meta: &mut Meta,
    zones: &Zones,
    ino: Ino,
    block: u64,
    shared: &Extent,
) -> Result<i64> {
    let at = meta.versions.at(ino)?;
    put_pieces(meta, zones, &at, block, shared)
}

/// Blocks of the frame of an extent that a version has beside it, while the extent itself is not in the tree.
pub(crate) fn beside(
    meta: &Meta,
    ino: Ino,
    version: VersionId,
    block: u64,
    extent: &Extent,
) -> Result<u64> {
    match extent {
        Extent::Packed(packed) if !packed.is_whole() => {
            let parts = parts_of(meta, ino, version, block, packed)?;
            Ok(blocks_of(&parts, packed))
        }
        _ => Ok(0),
    }
}

/// Blocks of the frame of an extent that are shown beside it, while the extent itself is not.
fn shown_beside(meta: &Meta, at: &At, block: u64, extent: &Extent) -> Result<u64> {
    match extent {
        Extent::Packed(packed) if !packed.is_whole() => {
            let (from, to) = packed.frame_at(block).unwrap_or((block, block + 1));
            let mut parts = shown_at(meta, at, from, to, usize::MAX)?;
            parts.retain(|mapped| is_part(&mapped.extent, packed));
            Ok(blocks_of(&parts, packed))
        }
        _ => Ok(0),
    }
}

/// Counts an extent that is taken out of the tree.
fn count_out(meta: &mut Meta, zones: &Zones, extent: &Extent, beside: u64) {
    let stored = extent.stored(beside);
    if let Some(addr) = extent.addr() {
        unless(Fault::PunchNotCounted, || {
            zones.sub_data(addr, stored.units)
        });
    }
    if let Extent::Reserved { blocks } = extent {
        // The footer says how many there are: it may be damaged. A repair counts anew.
        meta.reserved_blocks = meta.reserved_blocks.saturating_sub((*blocks).into());
    }
}

/// Counts an extent that is put into the tree.
pub(crate) fn count_in(meta: &mut Meta, zones: &Zones, extent: &Extent, beside: u64) {
    let stored = extent.stored(beside);
    if let Some(addr) = extent.addr() {
        unless(Fault::ExtentNotCounted, || {
            zones.add_data(addr, stored.units)
        });
    }
    if let Extent::Reserved { blocks } = extent {
        meta.reserved_blocks = meta.reserved_blocks.saturating_add((*blocks).into());
    }
}

fn put(meta: &mut Meta, key: Key, extent: &Extent) {
    meta.insert_stored(&key, &extent.encode());
}

/// Unmaps the file blocks `from..to`: what the subvolume owns of them goes, what it does not own it hides. Returns by how many 512-byte
/// sectors the file shrank.
pub(crate) fn punch(meta: &mut Meta, zones: &Zones, ino: Ino, from: u64, to: u64) -> Result<i64> {
    let at = meta.versions.at(ino)?;
    punch_at(meta, zones, &at, from, to)
}

fn punch_at(meta: &mut Meta, zones: &Zones, at: &At, from: u64, to: u64) -> Result<i64> {
    let ino = at.ino;
    // Of an inode that is gone nothing below has to be hidden.
    let is_there = at.scope.has_parent && meta.is_there(at)?;
    let mut sectors = 0;
    for group in groups(meta, ino, from, to)? {
        let (cut_from, cut_to) = (from.max(group.block), to.min(group.end()));
        invariant!(
            meta.alarm,
            cut_from < cut_to,
            "blocks {from} to {to} of inode {ino} are punched, and {cut_from} to {cut_to} of an extent"
        );
        let (skip, take) = (cut_from - group.block, cut_to - cut_from);
        let shown = group.shown(&at.scope).map(|extent| extent.part(skip, take));
        if !group.is_of_one(&at.scope) {
            cut(meta, ino, &group, cut_from, cut_to);
        }
        let length = group.blocks;
        for (version, extent) in &group.versions {
            if !at.scope.owns(*version) {
                continue;
            }
            let gone = extent.part(skip, take);
            invariant!(
                meta.alarm,
                gone.blocks() == take,
                "a part of {} blocks of an extent was cut out, of {take}",
                gone.blocks()
            );
            if matches!(gone, Extent::Compressed(_)) {
                meta.journal_inline.remove((ino, group.block, *version));
            }
            let key = |block| Key::extent(ino, block).at(*version);
            meta.remove_stored(&key(cut_from));
            if skip > 0 {
                put(meta, key(group.block), &extent.part(0, skip));
            }
            if skip + take < length {
                let tail = extent.part(skip + take, length - skip - take);
                put(meta, key(cut_to), &tail);
            }
            let beside = beside(meta, ino, *version, cut_from, &gone)?;
            count_out(meta, zones, &gone, beside);
            // The store shares nothing itself: what says so there is damage, and a chain of it would have no end.
            if let Extent::Shared { at, blocks } = gone
                && ino != SHARED
            {
                for (from, to) in references::drop(meta, at, at + u64::from(blocks))? {
                    punch(meta, zones, SHARED, from, to)?;
                }
            }
        }
        if is_there && group.hides(&at.scope) {
            let hole = Extent::Hole {
                blocks: (cut_to - cut_from) as u32,
            };
            put(meta, Key::extent(ino, cut_from).at(at.scope.number), &hole);
        }
        let Some(gone) = shown else {
            continue;
        };
        let beside = shown_beside(meta, at, cut_from, &gone)?;
        sectors += gone.stored(beside).sectors as i64;
    }
    Ok(sectors)
}

/// Cuts the extents of all versions at two of their blocks.
fn cut(meta: &mut Meta, ino: Ino, group: &Group, from: u64, to: u64) {
    let mut cuts = vec![group.block, from, to, group.end()];
    cuts.dedup();
    if cuts.len() == 2 {
        return;
    }
    for (version, extent) in &group.versions {
        for piece in cuts.windows(2) {
            let part = extent.part(piece[0] - group.block, piece[1] - piece[0]);
            put(meta, Key::extent(ino, piece[0]).at(*version), &part);
        }
    }
}

/// Maps `extent` at file block `block`, in place of what was there. Returns by how many sectors
/// the file grew.
pub(crate) fn map(
    meta: &mut Meta,
    zones: &Zones,
    ino: Ino,
    block: u64,
    extent: &Extent,
) -> Result<i64> {
    let at = meta.versions.at(ino)?;
    map_at(meta, zones, &at, block, extent)
}

/// Maps an extent in one version alone, in place of one with the same content.
pub(crate) fn map_exactly(
    meta: &mut Meta,
    zones: &Zones,
    ino: Ino,
    version: VersionId,
    block: u64,
    extent: &Extent,
) -> Result<()> {
    let at = meta.versions.exactly(ino, version);
    map_at(meta, zones, &at, block, extent).map(drop)
}

/// Removes the extent that a version has at a file block.
pub(crate) fn remove_exactly(
    meta: &mut Meta,
    zones: &Zones,
    ino: Ino,
    version: VersionId,
    block: u64,
) -> Result<()> {
    let at = meta.versions.exactly(ino, version);
    for group in groups(meta, ino, block, block + 1)? {
        punch_at(meta, zones, &at, group.block, group.end())?;
    }
    Ok(())
}

fn map_at(meta: &mut Meta, zones: &Zones, at: &At, block: u64, extent: &Extent) -> Result<i64> {
    let freed = punch_at(meta, zones, at, block, block + extent.blocks())?;
    Ok(put_pieces(meta, zones, at, block, extent)? - freed)
}

/// Puts an extent where the file was punched, cut where extents of other versions begin and end. Returns by how many sectors the file grew.
fn put_pieces(meta: &mut Meta, zones: &Zones, at: &At, block: u64, extent: &Extent) -> Result<i64> {
    let end = block + extent.blocks();
    if meta.versions.is_plain() {
        return put_piece(meta, zones, at, block, extent, true);
    }
    for group in groups(meta, at.ino, block, end)? {
        cut(
            meta,
            at.ino,
            &group,
            group.block.max(block),
            group.end().min(end),
        );
    }
    let (mut sectors, mut done) = (0, block);
    for group in groups(meta, at.ino, block, end)? {
        if group.block > done {
            let piece = extent.part(done - block, group.block - done);
            sectors += put_piece(meta, zones, at, done, &piece, true)?;
        }
        let piece = extent.part(group.block - block, group.blocks);
        sectors += put_piece(meta, zones, at, group.block, &piece, false)?;
        done = group.end();
    }
    if done < end {
        let piece = extent.part(done - block, end - done);
        sectors += put_piece(meta, zones, at, done, &piece, true)?;
    }
    Ok(sectors)
}

fn put_piece(
    meta: &mut Meta,
    zones: &Zones,
    at: &At,
    block: u64,
    extent: &Extent,
    is_alone: bool,
) -> Result<i64> {
    let number = at.scope.number;
    let owned = beside(meta, at.ino, number, block, extent)?;
    let shown = shown_beside(meta, at, block, extent)?;
    count_in(meta, zones, extent, owned);
    if let Extent::Compressed(bytes) = extent {
        meta.journal_inline
            .add((at.ino, block, number), bytes.len());
    }
    let joined = if is_alone {
        joined(meta, at, block, extent)?
    } else {
        None
    };
    match joined {
        Some((key, whole)) => put(meta, key, &whole),
        None => put(meta, Key::extent(at.ino, block).at(number), extent),
    }
    Ok(extent.stored(shown).sectors as i64)
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

/// The extent before, made longer by this one, where both are one run on the device and no other version has either.
fn joined(meta: &Meta, at: &At, block: u64, extent: &Extent) -> Result<Option<(Key, Extent)>> {
    let Extent::Frame { addr, crcs } = extent else {
        return Ok(None);
    };
    let Some(before) = block.checked_sub(1) else {
        return Ok(None);
    };
    let mut before = groups(meta, at.ino, before, block)?;
    let Some(Group {
        block: start,
        mut versions,
        ..
    }) = before.pop()
    else {
        return Ok(None);
    };
    let (Some((version, extent)), true) = (versions.pop(), versions.is_empty()) else {
        return Ok(None);
    };
    let Extent::Frame {
        addr: first,
        crcs: mut all,
    } = extent
    else {
        return Ok(None);
    };
    let follows = first.device() == addr.device()
        && first.zone() == addr.zone()
        && u64::from(first.block()) + all.len() as u64 == u64::from(addr.block());
    if !follows || !at.scope.owns(version) || all.len() + crcs.len() > FRAME_BLOCKS_MAX {
        return Ok(None);
    }
    all.extend_from_slice(crcs);
    let whole = Extent::Frame {
        addr: first,
        crcs: all,
    };
    Ok(Some((Key::extent(at.ino, start).at(version), whole)))
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

/// Puts `to` in the place of `from`, which holds the same blocks, as far as the file still has those at `block`. Not a
/// logical change: no record is made of it. Returns how many it had.
pub(crate) fn exchange(
    meta: &mut Meta,
    zones: &Zones,
    ino: Ino,
    block: u64,
    from: &Extent,
    to: &Extent,
) -> Result<u64> {
    let mut exchanged = 0;
    for live in still_there(meta, ino, block, from)? {
        let blocks = live.extent.blocks();
        let part = to.part(live.block - block, blocks);
        map_exactly(meta, zones, ino, live.version, live.block, &part)?;
        exchanged += blocks;
    }
    invariant!(
        meta.alarm,
        exchanged <= from.blocks() && from.blocks() == to.blocks(),
        "{exchanged} blocks of {} were exchanged for {}, in inode {ino}",
        from.blocks(),
        to.blocks()
    );
    Ok(exchanged)
}

/// Makes sure that [`exchange`] finds all it needs in memory and intact.
pub(crate) fn ensure_exchange(
    meta: &Meta,
    ino: Ino,
    block: u64,
    from: &Extent,
    to: &Extent,
) -> Result<()> {
    for live in still_there(meta, ino, block, from)? {
        let part = to.part(live.block - block, live.extent.blocks());
        ensure_map_exactly(meta, ino, live.version, live.block, &part)?;
    }
    Ok(())
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
