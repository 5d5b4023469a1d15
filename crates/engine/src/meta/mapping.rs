//! Extents as they change: mapping and unmapping blocks of files, in a subvolume or in one version alone. Blocks that gain or lose their
//! reference are counted in the zones.

use persimmon_format::extent::{Extent, FRAME_BLOCKS_MAX};
use persimmon_format::inode::SHARED;
use persimmon_format::{Ino, Key, VersionId};

use super::extents::{
    Group, MappedExtent, beside, groups, overlapping, shown_beside, still_there, stored,
};
use super::versions::At;
use super::{Meta, deltas, references, tree};
use crate::error::{Error, Result};
use crate::faults::{Fault, fault, unless};
use crate::invariant::invariant;
use crate::zones::Zones;

/// Makes sure that [`punch`] and [`map`] of `from..to` find all they need in memory and intact.
pub(crate) fn ensure(meta: &Meta, ino: Ino, from: u64, to: u64) -> Result<()> {
    ensure_at(meta, &meta.versions.at(ino)?, from, to)
}

/// Makes sure that sharing `from..to`, of which `shown` is all there is and which takes nothing out, finds all it needs in memory and intact.
pub(crate) fn ensure_source(
    meta: &Meta,
    ino: Ino,
    (from, to): (u64, u64),
    shown: &[MappedExtent],
) -> Result<()> {
    if !meta.versions.is_plain() {
        return ensure(meta, ino, from, to);
    }
    let ino = meta.versions.at(ino)?.ino;
    let (first, last) = (Key::extent(ino, from), Key::extent(ino, to));
    tree::ensure_all_around(&meta.cache, meta.root, &first, &last)?;
    for mapped in shown {
        if let Extent::Shared { at, blocks, .. } = mapped.extent {
            references::ensure(meta, at, at + u64::from(blocks))?;
        }
    }
    Ok(())
}

/// Makes sure that [`remove_exactly`] and an exchange of `from..to` in one version find all they need in memory and intact.
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
            // Extents of all versions are cut where this begins or ends in the midst of them; else others than its own stay as they are.
            let is_cut = from > group.block || to < group.end();
            for block in [group.block, from.max(group.block), to.min(group.end())] {
                meta.ensure_stored(&Key::extent(ino, block).at(at.scope.number))?;
                for (version, _) in &group.versions {
                    if is_cut || at.scope.owns(*version) {
                        meta.ensure_stored(&Key::extent(ino, block).at(*version))?;
                    }
                }
            }
            let (block, shown) = (group.block, group.shown_index(&at.scope));
            for (index, (version, extent)) in group.versions.into_iter().enumerate() {
                if shown != Some(index) && !at.scope.owns(version) {
                    continue;
                }
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
    if let Some(part) = mapped.extent.frame_part() {
        let (from, to) = part.range_at(mapped.block);
        stored(meta, at.ino, from, to)?;
    }
    match named_by(at.ino, &mapped.extent) {
        Some((from, to)) => {
            let ensured = references::ensure(meta, from, to);
            let ensured = ensured.and_then(|()| ensure(meta, SHARED, from, to));
            // It is this file that cannot be changed, and no other.
            ensured.map_err(|error| match error {
                Error::ItemDamaged { ino: SHARED, what } => {
                    Error::ItemDamaged { ino: at.ino, what }
                }
                error => error,
            })
        }
        None => Ok(()),
    }
}

/// Blocks of the store that an extent of an inode names. The store names nothing itself: what says so there is damage, and a chain of it
/// would have no end.
fn named_by(ino: Ino, extent: &Extent) -> Option<(u64, u64)> {
    extent.names().filter(|_| ino != SHARED)
}

/// Blocks of the store that are named by extents less, and by extents more. Their counts change when all extents have: what is named by
/// both stays as it is, so a frame that moves keeps its dictionary.
#[derive(Default)]
struct Renamed {
    less: Vec<(u64, u64)>,
    more: Vec<(u64, u64)>,
}

impl Renamed {
    /// An extent goes, of whose frame there are `beside` other blocks.
    fn drop(&mut self, ino: Ino, extent: &Extent, beside: u64) {
        let is_last = beside == 0 || matches!(extent, Extent::Shared { .. });
        self.less.extend(named_by(ino, extent).filter(|_| is_last));
    }

    /// The same of one that comes. What it shares is counted by who shares it.
    fn add(&mut self, ino: Ino, extent: &Extent, beside: u64) {
        let is_first = beside == 0 && !matches!(extent, Extent::Shared { .. });
        let counts = is_first && !fault(Fault::DictionaryNotCounted);
        self.more.extend(named_by(ino, extent).filter(|_| counts));
    }

    fn count(mut self, meta: &mut Meta, zones: &Zones) -> Result<()> {
        for range in self.more {
            match self.less.iter().position(|gone| *gone == range) {
                Some(same) => drop(self.less.swap_remove(same)),
                None => references::add(meta, range.0, range.1)?,
            }
        }
        for (from, to) in self.less {
            for (from, to) in references::drop(meta, from, to)? {
                punch(meta, zones, SHARED, from, to)?;
            }
        }
        Ok(())
    }
}

/// Makes sure that [`map`] of an extent finds all it needs in memory and intact.
pub(crate) fn ensure_map(meta: &Meta, ino: Ino, block: u64, extent: &Extent) -> Result<()> {
    ensure_map_at(meta, &meta.versions.at(ino)?, block, extent)
}

/// Makes sure that [`map_exactly`] of an extent finds all it needs in memory and intact.
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
    if let Some((from, to)) = named_by(at.ino, extent) {
        references::ensure(meta, from, to)?;
    }
    beside(meta, at.ino, at.scope.number, block, extent).map(drop)
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
    let shared = extent.shared_at(place, meta.has_shared_frames);
    let mut sectors = |extent: &Extent| -> Result<i64> {
        let beside = match extent.frame_part() {
            // What is beside it is found among what is there.
            Some(_) => {
                meta.remove_stored(&key);
                beside(meta, plain, *version, *block, extent)?
            }
            None => 0,
        };
        Ok(extent.stored(beside).sectors as i64)
    };
    let (before, after) = (sectors(extent)?, sectors(&shared)?);
    put(meta, Key::extent(SHARED, place), extent);
    put(meta, key, &shared);
    Ok(after - before)
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
    put_pieces(meta, zones, &at, block, shared, &mut Renamed::default())
}

/// Counts an extent that is taken out of the tree.
fn count_out(meta: &mut Meta, zones: &Zones, block: u64, extent: &Extent, beside: u64) {
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
    // So are they.
    meta.deltas = meta.deltas.saturating_sub(deltas::count(block, extent));
}

/// Counts an extent that is put into the tree.
pub(crate) fn count_in(meta: &mut Meta, zones: &Zones, block: u64, extent: &Extent, beside: u64) {
    let stored = extent.stored(beside);
    if let Some(addr) = extent.addr() {
        unless(Fault::ExtentNotCounted, || {
            zones.add_data(addr, stored.units)
        });
    }
    if let Extent::Reserved { blocks } = extent {
        meta.reserved_blocks = meta.reserved_blocks.saturating_add((*blocks).into());
    }
    meta.deltas += deltas::count(block, extent);
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
    let mut renamed = Renamed::default();
    let sectors = take_out(meta, zones, at, (from, to), &mut renamed)?;
    renamed.count(meta, zones)?;
    Ok(sectors)
}

fn take_out(
    meta: &mut Meta,
    zones: &Zones,
    at: &At,
    (from, to): (u64, u64),
    renamed: &mut Renamed,
) -> Result<i64> {
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
            count_out(meta, zones, cut_from, &gone, beside);
            renamed.drop(ino, &gone, beside);
        }
        if is_there && group.hides(&at.scope) && !fault(Fault::HoleForgotten) {
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

/// Maps an extent in one version alone, in place of one with the same content, or with a delta that goes with it. Returns by how many sectors the version has more of the file.
pub(crate) fn map_exactly(
    meta: &mut Meta,
    zones: &Zones,
    ino: Ino,
    version: VersionId,
    block: u64,
    extent: &Extent,
) -> Result<i64> {
    let at = meta.versions.exactly(ino, version);
    map_at(meta, zones, &at, block, extent)
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
    let mut renamed = Renamed::default();
    let end = block + extent.blocks();
    let freed = take_out(meta, zones, at, (block, end), &mut renamed)?;
    let taken = put_pieces(meta, zones, at, block, extent, &mut renamed)?;
    renamed.count(meta, zones)?;
    Ok(taken - freed)
}

/// Puts an extent where the file was punched, cut where extents of other versions begin and end. Returns by how many sectors the file grew.
fn put_pieces(
    meta: &mut Meta,
    zones: &Zones,
    at: &At,
    block: u64,
    extent: &Extent,
    renamed: &mut Renamed,
) -> Result<i64> {
    let end = block + extent.blocks();
    if meta.versions.is_plain() {
        return put_piece(meta, zones, at, (block, extent), true, renamed);
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
            sectors += put_piece(meta, zones, at, (done, &piece), true, renamed)?;
        }
        let piece = extent.part(group.block - block, group.blocks);
        sectors += put_piece(meta, zones, at, (group.block, &piece), false, renamed)?;
        done = group.end();
    }
    if done < end {
        let piece = extent.part(done - block, end - done);
        sectors += put_piece(meta, zones, at, (done, &piece), true, renamed)?;
    }
    Ok(sectors)
}

fn put_piece(
    meta: &mut Meta,
    zones: &Zones,
    at: &At,
    (block, extent): (u64, &Extent),
    is_alone: bool,
    renamed: &mut Renamed,
) -> Result<i64> {
    let number = at.scope.number;
    let owned = beside(meta, at.ino, number, block, extent)?;
    let shown = shown_beside(meta, at, block, extent)?;
    count_in(meta, zones, block, extent, owned);
    renamed.add(at.ino, extent, owned);
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
