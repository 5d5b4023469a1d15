//! Extents of files as ranges of the tree: finding, mapping, punching. Blocks that gain or lose
//! their reference are counted in the zones.

use persimmon_format::extent::{Extent, FRAME_BLOCKS_MAX};
use persimmon_format::inode::SHARED;
use persimmon_format::packed::Packed;
use persimmon_format::{Ino, Key, KeyKind};

use super::{Meta, references, tree};
use crate::error::{Error, Result};
use crate::faults::{Fault, fault, unless};
use crate::invariant::invariant;
use crate::zones::Zones;

/// An extent and the file block it starts at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MappedExtent {
    pub(crate) block: u64,
    pub(crate) extent: Extent,
}

impl MappedExtent {
    pub(crate) fn end(&self) -> u64 {
        self.block + self.extent.blocks()
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
        extent,
    })
}

/// Extents that overlap the file blocks `from..to`, at most `limit` of them.
pub(crate) fn overlapping(
    meta: &Meta,
    ino: Ino,
    from: u64,
    to: u64,
    limit: usize,
) -> Result<Vec<MappedExtent>> {
    let mut extents = Vec::new();
    if from >= to {
        return Ok(extents);
    }
    let start = Key::extent(ino, from);
    if let Some((key, value)) = tree::floor(&meta.cache, meta.root, &start)?
        && key.ino == ino
        && key.kind == KeyKind::EXTENT
        && key.item < from
    {
        let mapped = decode(&key, value)?;
        if mapped.end() > from {
            extents.push(mapped);
        }
    }
    for item in tree::range(&meta.cache, meta.root, start..Key::extent(ino, to)) {
        if extents.len() >= limit {
            break;
        }
        let (key, value) = item?;
        let mapped = decode(&key, value)?;
        if extents
            .last()
            .is_some_and(|before: &MappedExtent| mapped.block < before.end())
        {
            return Err(Error::item_damaged(ino, "overlapping extents"));
        }
        extents.push(mapped);
    }
    Ok(extents)
}

/// Makes sure that [`punch`] and [`map`] of `from..to` find all they need in memory and intact.
pub(crate) fn ensure(meta: &Meta, ino: Ino, from: u64, to: u64) -> Result<()> {
    // Not only the keys: a second operation on the file finds what is next to those removed here.
    meta.ensure_around(&Key::extent(ino, from))?;
    meta.ensure_around(&Key::extent(ino, to))?;
    for mapped in overlapping(meta, ino, from, to, usize::MAX)? {
        meta.ensure(&Key::extent(ino, mapped.block))?;
        match mapped.extent {
            Extent::Packed(packed) => {
                live_blocks(meta, ino, mapped.block, &packed)?;
            }
            // The store shares nothing itself.
            Extent::Shared { at, blocks } if ino != SHARED => {
                references::ensure(meta, at, at + u64::from(blocks))?;
                ensure(meta, SHARED, at, at + u64::from(blocks))?;
            }
            _ => {}
        }
    }
    // The extent that a mapping may be joined to.
    if let Some(before) = from.checked_sub(1) {
        for mapped in overlapping(meta, ino, before, from, 1)? {
            meta.ensure(&Key::extent(ino, mapped.block))?;
        }
    }
    Ok(())
}

/// The same for the mapping of an extent.
pub(crate) fn ensure_map(meta: &Meta, ino: Ino, block: u64, extent: &Extent) -> Result<()> {
    ensure(meta, ino, block, block + extent.blocks())?;
    beside(meta, ino, block, extent).map(drop)
}

/// Blocks that the file has of the frame of a packed extent which is, or is to be, at `block`.
pub(crate) fn live_blocks(meta: &Meta, ino: Ino, block: u64, packed: &Packed) -> Result<u64> {
    let parts = parts_of(meta, ino, block, packed)?;
    let live: u64 = parts.iter().map(|part| part.extent.blocks()).sum();
    Ok(live.min(packed.frame.blocks.into()))
}

/// The parts of the frame of a packed extent at `block`, it among them.
pub(crate) fn parts_of(
    meta: &Meta,
    ino: Ino,
    block: u64,
    packed: &Packed,
) -> Result<Vec<MappedExtent>> {
    let (from, to) = packed.frame_at(block).unwrap_or((block, block + 1));
    let mut parts = overlapping(meta, ino, from, to, usize::MAX)?;
    let is_part =
        |extent: &Extent| matches!(extent, Extent::Packed(part) if part.shares_frame(packed));
    parts.retain(|mapped| is_part(&mapped.extent));
    Ok(parts)
}

/// Makes two extents of a frame that goes on behind the beginning of a block. The file has what it had.
pub(crate) fn cut_frame(meta: &mut Meta, ino: Ino, block: u64) -> Result<()> {
    let mapped = overlapping(meta, ino, block, block.saturating_add(1), 1)?.pop();
    if let Some(mapped) = mapped.filter(|mapped| mapped.block < block)
        && matches!(mapped.extent, Extent::Frame { .. })
    {
        let before = block - mapped.block;
        let rest = mapped.end() - block;
        put(meta, ino, mapped.block, &mapped.extent.part(0, before));
        put(meta, ino, block, &mapped.extent.part(before, rest));
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
    let MappedExtent { block, extent } = mapped;
    meta.remove(&Key::extent(ino, *block));
    let beside = beside(meta, ino, *block, extent)?;
    let before = extent.stored(beside).sectors as i64;
    put(meta, SHARED, place, extent);
    let shared = Extent::Shared {
        at: place,
        blocks: extent.blocks() as u16,
    };
    Ok(put_shared(meta, ino, *block, &shared) - before)
}

/// Maps blocks of the store where the file has nothing. Returns by how many sectors the file grew.
pub(crate) fn put_shared(meta: &mut Meta, ino: Ino, block: u64, shared: &Extent) -> i64 {
    put(meta, ino, block, shared);
    shared.sectors() as i64
}

/// Blocks of the frame of an extent that its file has, while the extent itself is not in the tree.
pub(crate) fn beside(meta: &Meta, ino: Ino, block: u64, extent: &Extent) -> Result<u64> {
    match extent {
        Extent::Packed(packed) if !packed.is_whole() => live_blocks(meta, ino, block, packed),
        _ => Ok(0),
    }
}

/// Counts an extent that is taken out of the tree. Returns its share in the file's sectors.
fn count_out(meta: &mut Meta, zones: &Zones, extent: &Extent, beside: u64) -> u64 {
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
    stored.sectors
}

/// Counts an extent that is put into the tree. Returns its share in the file's sectors.
pub(crate) fn count_in(meta: &mut Meta, zones: &Zones, extent: &Extent, beside: u64) -> u64 {
    let stored = extent.stored(beside);
    if let Some(addr) = extent.addr() {
        unless(Fault::ExtentNotCounted, || {
            zones.add_data(addr, stored.units)
        });
    }
    if let Extent::Reserved { blocks } = extent {
        meta.reserved_blocks = meta.reserved_blocks.saturating_add((*blocks).into());
    }
    stored.sectors
}

fn put(meta: &mut Meta, ino: Ino, block: u64, extent: &Extent) {
    meta.insert(&Key::extent(ino, block), &extent.encode());
}

/// Unmaps the file blocks `from..to`. Returns by how many 512-byte sectors the file shrank.
pub(crate) fn punch(meta: &mut Meta, zones: &Zones, ino: Ino, from: u64, to: u64) -> Result<i64> {
    let mut sectors = 0;
    for mapped in overlapping(meta, ino, from, to, usize::MAX)? {
        let length = mapped.extent.blocks();
        let cut_from = from.max(mapped.block) - mapped.block;
        let cut_to = to.min(mapped.end()) - mapped.block;
        invariant!(
            meta.alarm,
            cut_from < cut_to && cut_to <= length,
            "blocks {from} to {to} of inode {ino} are punched, and {cut_from} to {cut_to} of an extent of {length}"
        );
        let gone = mapped.extent.part(cut_from, cut_to - cut_from);
        invariant!(
            meta.alarm,
            gone.blocks() == cut_to - cut_from,
            "a part of {} blocks of an extent was cut out from {cut_from} to {cut_to}",
            gone.blocks()
        );
        if matches!(gone, Extent::Compressed(_)) {
            meta.journal_inline.remove(ino, mapped.block);
        }
        if cut_from > 0 {
            put(meta, ino, mapped.block, &mapped.extent.part(0, cut_from));
        } else {
            meta.remove(&Key::extent(ino, mapped.block));
        }
        if cut_to < length {
            let tail = mapped.extent.part(cut_to, length - cut_to);
            put(meta, ino, mapped.block + cut_to, &tail);
        }
        let beside = beside(meta, ino, mapped.block + cut_from, &gone)?;
        sectors += count_out(meta, zones, &gone, beside) as i64;
        // The store shares nothing itself: what says so there is damage, and a chain of it would have no end.
        if let Extent::Shared { at, blocks } = gone
            && ino != SHARED
        {
            for (from, to) in references::drop(meta, at, at + u64::from(blocks))? {
                punch(meta, zones, SHARED, from, to)?;
            }
        }
    }
    Ok(sectors)
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
    let freed = punch(meta, zones, ino, block, block + extent.blocks())?;
    let beside = beside(meta, ino, block, extent)?;
    let sectors = count_in(meta, zones, extent, beside);
    if let Extent::Compressed(bytes) = extent {
        meta.journal_inline.add(ino, block, bytes.len());
    }
    match joined(meta, ino, block, extent)? {
        Some((start, whole)) => put(meta, ino, start, &whole),
        None => put(meta, ino, block, extent),
    }
    Ok(sectors as i64 - freed)
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

/// The extent before, made longer by this one, where both are one run on the device.
fn joined(meta: &Meta, ino: Ino, block: u64, extent: &Extent) -> Result<Option<(u64, Extent)>> {
    let Extent::Frame { addr, crcs } = extent else {
        return Ok(None);
    };
    let Some(before) = block.checked_sub(1) else {
        return Ok(None);
    };
    let Some(mapped) = overlapping(meta, ino, before, block, 1)?.pop() else {
        return Ok(None);
    };
    let Extent::Frame {
        addr: first,
        crcs: mut all,
    } = mapped.extent
    else {
        return Ok(None);
    };
    let follows = first.device() == addr.device()
        && first.zone() == addr.zone()
        && u64::from(first.block()) + all.len() as u64 == u64::from(addr.block());
    if !follows || all.len() + crcs.len() > FRAME_BLOCKS_MAX {
        return Ok(None);
    }
    all.extend_from_slice(crcs);
    Ok(Some((
        mapped.block,
        Extent::Frame {
            addr: first,
            crcs: all,
        },
    )))
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
        map(
            meta,
            zones,
            ino,
            live.block,
            &to.part(live.block - block, blocks),
        )?;
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

/// Where blocks that were written for a file are now.
pub(crate) struct Whereabouts {
    /// Those that the file still refers to itself.
    pub(crate) live: Vec<MappedExtent>,
    /// Places in the store of shared blocks at which the first of them may be: for each shared extent there, the one that is as far from
    /// the extent's as the first of them is in the file.
    pub(crate) places: Vec<u64>,
}

/// What became of the frame `from`, at file block `block`.
pub(crate) fn whereabouts(meta: &Meta, ino: Ino, block: u64, from: &Extent) -> Result<Whereabouts> {
    let end = block + from.blocks();
    let (mut live, mut places) = (Vec::new(), Vec::new());
    for mapped in overlapping(meta, ino, block, end, usize::MAX)? {
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
                extent: part,
            });
        }
    }
    places.dedup();
    Ok(Whereabouts { live, places })
}

/// The parts of the frame `from`, at file block `block`, that the file still refers to there.
pub(crate) fn still_there(
    meta: &Meta,
    ino: Ino,
    block: u64,
    from: &Extent,
) -> Result<Vec<MappedExtent>> {
    whereabouts(meta, ino, block, from).map(|found| found.live)
}
