//! Folding: a whole block that moves and its delta become one block.
//!
//! What may be folded is found out with the live extents, read with them, and found out again in the transaction that maps the blocks to their
//! new place and takes the deltas away. Where it is not what was read any more, or somebody makes a delta to the block, the block is moved as it
//! is. So folding never keeps a zone from being emptied: whatever is wrong with a delta, the block moves without it.

use persimmon_device::{BLOCK_SIZE, Buffer, BufferMut};
use persimmon_format::delta::{self, block_at, place_of};
use persimmon_format::extent::Extent;
use persimmon_format::inode::{FLAG_DELTAS, Inode};
use persimmon_format::packed::Packed;
use persimmon_format::record::Op;
use persimmon_format::{Addr, Ino, SubvolumeId, checksum};

use super::Cleaner;
use super::moving::{LiveExtent, Loaded, READS_AT_ONCE, joined};
use crate::error::{Error, Result};
use crate::faults::{Fault, fault};
use crate::meta::extents::{self, MappedExtent};
use crate::meta::{Meta, Transaction, deltas};
use crate::placement::Exchange;
use crate::statistics::add;
use crate::store::HeldBases;
use crate::zones::Pin;

/// Blocks that have to be free beside all that is promised: what changes between reading and mapping was written for nothing.
const ROOM_BLOCKS: u64 = 256;
/// Deltas that are folded with one extent, and so in one transaction: each may be in a page of its own.
const FOLDED_MAX: usize = 16;

/// Pages that folding makes dirty beside those of the deltas: that of the block, of its inode, which takes less then, and of what changed since
/// a snapshot.
const PAGES_BESIDE: usize = 3;

/// Pages that a block and so many deltas may make dirty, about, where they are folded.
pub(super) fn pages_with(deltas: usize) -> usize {
    PAGES_BESIDE + deltas
}

/// Whether deltas are folded.
#[derive(Clone, Copy)]
pub(super) enum Folding {
    Off,
    /// No other subvolume can be changed: the inode there tells whether there are any.
    OfMain,
    OfAll,
}

impl Folding {
    /// Whether deltas are looked for, of an inode that the main subvolume shows so.
    pub(super) fn looks_at(self, inode: Option<&Inode>) -> bool {
        match self {
            Folding::Off => false,
            Folding::OfMain => inode.is_some_and(|inode| inode.flags & FLAG_DELTAS != 0),
            Folding::OfAll => true,
        }
    }
}

/// A delta that may be folded, in a zone that stays as it is until that is read.
pub(super) struct FoundDelta {
    pub(super) mapped: MappedExtent,
    _pin: Option<Pin>,
}

/// The content of a live extent with some of its deltas applied.
pub(super) struct Folded {
    pub(super) blocks: Buffer,
    pub(super) crcs: Vec<u32>,
    pub(super) deltas: Vec<MappedExtent>,
}

/// Blocks that are mapped to a place where they lie with their deltas applied.
pub(super) struct Fold {
    moved: Exchange,
    deltas: Vec<MappedExtent>,
}

/// Blocks of a file, and where they are on the device.
#[derive(Clone, Copy)]
struct Blocks {
    ino: Ino,
    block: u64,
    addr: Addr,
    count: u64,
}

/// What a transaction did of some folds.
#[derive(Default)]
struct Done {
    blocks: u64,
    deltas: u64,
    /// Blocks that stay where they are.
    left: Vec<Blocks>,
}

impl Cleaner {
    /// Which deltas are folded now. None where room is short: what changes meanwhile takes room twice.
    pub(super) fn folding(&self) -> Folding {
        let is_main_alone = {
            let meta = self.store.meta();
            if !self.store.has_deltas() || meta.deltas == 0 {
                return Folding::Off;
            }
            meta.versions.is_plain() || meta.versions.writable() == [SubvolumeId::MAIN]
        };
        let is_tight = self.space.available_blocks() < ROOM_BLOCKS;
        match is_main_alone {
            _ if is_tight || self.store.transaction_ops_max() <= PAGES_BESIDE => Folding::Off,
            true => Folding::OfMain,
            false => Folding::OfAll,
        }
    }

    /// Live extents with those of their deltas that may be folded, cut so that each has few.
    pub(super) fn with_deltas(&self, ino: Ino, live: Vec<MappedExtent>, out: &mut Vec<LiveExtent>) {
        let pages_max = self.store.transaction_ops_max();
        let folded_max = FOLDED_MAX.min(pages_max.saturating_sub(PAGES_BESIDE));
        for mapped in live {
            let found = self.store.view::<_, Error>(|view| {
                let found = view.find(|meta| foldable(meta, &self.store.bases, ino, &mapped))?;
                let deltas = found.map(|(_, deltas)| deltas).unwrap_or_default();
                let found = deltas.into_iter().map(|delta| self.found_delta(delta));
                Ok(found.collect())
            });
            // Whatever is wrong, the block moves.
            let found: Vec<FoundDelta> = found.unwrap_or_else(|error| {
                tracing::warn!(%error, %ino, "deltas are not folded");
                Vec::new()
            });
            LiveExtent::of(ino, mapped).cut_for(found, folded_max, out);
        }
    }

    fn found_delta(&self, mapped: MappedExtent) -> FoundDelta {
        let addr = mapped.extent.addr();
        let pin = addr.and_then(|addr| self.store.zones.pin(addr.zone()));
        FoundDelta { mapped, _pin: pin }
    }

    /// Applies the deltas of extents that were read. What cannot be read, or is not of this content, is left as it is.
    pub(super) fn fold(&self, loaded: &mut [Loaded]) {
        let deltas = loaded.iter().flat_map(|loaded| &loaded.extent.deltas);
        let mut places: Vec<(Addr, u32)> = deltas
            .filter_map(|delta| delta.mapped.extent.place())
            .collect();
        places.sort_unstable();
        let by_zone = places.chunk_by(|(one, _), (other, _)| one.zone() == other.zone());
        let reads: Vec<(Addr, u32)> = by_zone.flat_map(joined).collect();
        let read = self.store.media.read_all(&reads, READS_AT_ONCE);
        let bytes_of = |packed: &Packed| -> Option<Vec<u8>> {
            let at = reads.partition_point(|(start, _)| *start <= packed.addr);
            let at = at.checked_sub(1)?;
            let (start, _) = reads
                .get(at)
                .filter(|(start, _)| start.zone() == packed.addr.zone())?;
            let from = (packed.addr.block() - start.block()) as usize * BLOCK_SIZE;
            let together = read.get(at)?.as_ref().ok();
            let together = together.and_then(|blocks| blocks.get(from..));
            match together.and_then(|blocks| packed.verified(blocks)) {
                Some(bytes) => Some(bytes.to_vec()),
                None => self.delta_alone(packed),
            }
        };
        for loaded in loaded.iter_mut() {
            let found = std::mem::take(&mut loaded.extent.deltas);
            if !found.is_empty() && loaded.is_sound {
                loaded.folded = folded(loaded, found, bytes_of);
            }
        }
    }

    /// Lets go of what was folded of extents whose deltas are others by now: it may be long since they were read. The transaction that maps them
    /// looks again; this spares it from leaving much of what was written for it.
    pub(super) fn unfold_changed(&self, group: &mut [Loaded]) {
        let with_folded = group.iter_mut().filter(|loaded| loaded.folded.is_some());
        let mut with_folded = with_folded.peekable();
        let is_off = with_folded.peek().is_some() && matches!(self.folding(), Folding::Off);
        for loaded in with_folded {
            let LiveExtent {
                ino, block, frame, ..
            } = &loaded.extent;
            let deltas = loaded.folded.iter().flat_map(|folded| &folded.deltas);
            let is_as_read = self.store.view::<_, Error>(|view| {
                view.find(|meta| {
                    let mut found = Vec::new();
                    for live in extents::still_there(meta, *ino, *block, frame)? {
                        let deltas = foldable(meta, &self.store.bases, *ino, &live)?;
                        found.extend(deltas.into_iter().flat_map(|(_, deltas)| deltas));
                    }
                    Ok({ deltas.clone() }.all(|delta| found.contains(delta)))
                })
            });
            // Whatever is wrong, the block moves.
            if is_off || !is_as_read.unwrap_or(false) {
                loaded.folded = None;
            }
        }
    }

    fn delta_alone(&self, packed: &Packed) -> Option<Vec<u8>> {
        let media = &self.store.media;
        let blocks = media.read(packed.addr, packed.span()).ok()?;
        match packed.verified(&blocks) {
            Some(bytes) => Some(bytes.to_vec()),
            None => Some(packed.verified(&media.mended_packed(packed)?)?.to_vec()),
        }
    }

    /// Maps blocks that were written with their deltas applied. Returns those that were not mapped and may still be there, as they were read.
    pub(super) fn map_folded(&self, folds: &[Fold], group: &[&Loaded]) -> Vec<Loaded> {
        let ops_max = self.store.transaction_ops_max();
        let mut left = Vec::new();
        let mut rest = folds;
        while !rest.is_empty() {
            let mut weight = 0;
            let fits = |fold: &&Fold| {
                weight += pages_with(fold.deltas.len());
                weight <= ops_max
            };
            let count = rest.iter().take_while(fits).count().max(1);
            let (folds, behind) = rest.split_at(count);
            rest = behind;
            let bases = &self.store.bases;
            let done = self.store.change(None, |tx| remap(tx, bases, folds));
            let done = match done {
                Ok((done, _)) => done,
                Err(error) => {
                    tracing::warn!(%error, "deltas are not folded");
                    Done {
                        left: folds.iter().filter_map(Fold::blocks).collect(),
                        ..Done::default()
                    }
                }
            };
            let counters = &self.store.media.counters;
            add(&counters.blocks_moved, done.blocks);
            add(&counters.deltas_folded, done.deltas);
            left.extend(done.left);
        }
        let parts = left.into_iter();
        parts.filter_map(|left| unfolded(group, &left)).collect()
    }
}

impl Fold {
    /// What was moved of one of these extents, into which deltas were folded; `None` if it is of none of them.
    pub(super) fn of(moved: &Exchange, folded: &[&Loaded]) -> Option<Fold> {
        let (ino, block, blocks) = (moved.ino, moved.block, moved.to.blocks());
        let (loaded, skip) = holder(folded, (ino, block), moved.from.addr()?)?;
        let range = block..block.saturating_add(blocks);
        let deltas = loaded.folded.as_ref()?.deltas.iter();
        let deltas = deltas.filter(|delta| range.contains(&block_at(delta.block)));
        Some(Fold {
            deltas: deltas.cloned().collect(),
            moved: Exchange {
                ino: moved.ino,
                block: moved.block,
                from: loaded.extent.frame.part(skip, blocks),
                to: moved.to.clone(),
            },
        })
    }

    fn blocks(&self) -> Option<Blocks> {
        Some(Blocks {
            ino: self.moved.ino,
            block: self.moved.block,
            addr: self.moved.from.addr()?,
            count: self.moved.from.blocks(),
        })
    }
}

/// Deltas of a live extent that may be folded, and the inode that has both.
fn foldable(
    meta: &Meta,
    bases: &HeldBases,
    ino: Ino,
    mapped: &MappedExtent,
) -> Result<Option<(Ino, Vec<MappedExtent>)>> {
    let Some((owned, mut deltas)) = deltas::belonging_to(meta, ino, mapped)? else {
        return Ok(None);
    };
    deltas.retain(|delta| !bases.has(ino, block_at(delta.block)) || fault(Fault::HeldBaseFolded));
    Ok(Some((owned, deltas)))
}

/// What an extent is with those of its deltas applied that can be.
fn folded(
    loaded: &Loaded,
    found: Vec<FoundDelta>,
    bytes_of: impl Fn(&Packed) -> Option<Vec<u8>>,
) -> Option<Folded> {
    let Extent::Frame { crcs, .. } = &loaded.extent.frame else {
        return None;
    };
    let (mut blocks, mut crcs) = (BufferMut::zeroed(crcs.len()), crcs.clone());
    blocks.copy_from_slice(&loaded.blocks);
    let mut deltas = Vec::new();
    for FoundDelta { mapped, .. } in found {
        let bytes = match &mapped.extent {
            Extent::Compressed(bytes) => Some(bytes.clone()),
            Extent::Packed(packed) => bytes_of(packed),
            _ => None,
        };
        let at = block_at(mapped.block).checked_sub(loaded.extent.block);
        let Some((bytes, at)) = bytes.zip(at.and_then(|at| usize::try_from(at).ok())) else {
            continue;
        };
        let content = blocks.chunks_exact_mut(BLOCK_SIZE).nth(at);
        let Some((content, crc)) = content.zip(crcs.get_mut(at)) else {
            continue;
        };
        if delta::apply(&bytes, content) {
            *crc = checksum::data_block(content);
            deltas.push(mapped);
        }
    }
    (!deltas.is_empty()).then(|| Folded {
        blocks: blocks.freeze(),
        crcs,
        deltas,
    })
}

/// The loaded extent that has a block of a file, which is there on the device, and how far it is from its first.
fn holder<'l>(group: &[&'l Loaded], place: (Ino, u64), addr: Addr) -> Option<(&'l Loaded, u64)> {
    group.iter().find_map(|loaded| {
        let Extent::Frame { addr: first, crcs } = &loaded.extent.frame else {
            return None;
        };
        let is_there = (first.device(), first.zone()) == (addr.device(), addr.zone());
        let skip = u64::from(addr.block().checked_sub(first.block())?);
        let is_of = (loaded.extent.ino, loaded.extent.block + skip) == place;
        (is_there && is_of && skip < crcs.len() as u64).then_some((*loaded, skip))
    })
}

/// Blocks of a loaded extent as they were read.
fn unfolded(group: &[&Loaded], left: &Blocks) -> Option<Loaded> {
    let (loaded, skip) = holder(group, (left.ino, left.block), left.addr)?;
    Some(loaded.part(skip as usize, left.count as usize))
}

/// Maps blocks to where they lie with their deltas applied and takes these away, as far as both are what was read and nobody makes a delta to
/// the block.
fn remap(tx: &mut Transaction<'_>, bases: &HeldBases, folds: &[Fold]) -> Result<Done> {
    let mut done = Done::default();
    let mut punches = Vec::new();
    for Fold { moved, deltas } in folds {
        let Exchange {
            ino,
            block,
            from,
            to,
        } = moved;
        for live in tx.find(|meta| extents::still_there(meta, *ino, *block, from))? {
            let found = tx.find(|meta| foldable(meta, bases, *ino, &live))?;
            let (owned, found) = found.unwrap_or((*ino, Vec::new()));
            let is_left = |block: u64| {
                let folded = deltas.iter().find(|delta| block_at(delta.block) == block);
                folded.is_some_and(|delta| !found.contains(delta))
            };
            let blocks: Vec<u64> = (live.block..live.end()).collect();
            for run in blocks.chunk_by(|one, other| is_left(*one) == is_left(*other)) {
                let Some(first) = run.first().copied() else {
                    continue;
                };
                let (skip, len) = (first - block, run.len() as u64);
                if is_left(first) {
                    let addr = from.part(skip, len).addr();
                    done.left.extend(addr.map(|addr| Blocks {
                        ino: *ino,
                        block: first,
                        addr,
                        count: len,
                    }));
                    continue;
                }
                done.blocks += len;
                tx.push(Op::Move {
                    version: live.version,
                    ino: *ino,
                    block: first,
                    extent: to.part(skip, len),
                });
                let inside =
                    |delta: &&MappedExtent| (first..first + len).contains(&block_at(delta.block));
                for delta in deltas.iter().filter(inside) {
                    let place = place_of(block_at(delta.block));
                    done.deltas += 1;
                    punches.push(Op::Punch {
                        ino: owned,
                        from: place,
                        to: place + 1,
                    });
                }
            }
        }
    }
    // What is mapped of a file behind a punch of it would be taken for what it had before.
    punches.into_iter().for_each(|punch| tx.push(punch));
    Ok(done)
}
