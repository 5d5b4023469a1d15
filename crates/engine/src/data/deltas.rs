//! Deltas of blocks: making them of what is synced, and reading them.
//!
//! A synced block of which little changed since it was stored goes into the record as its difference to that ([`persimmon_format::delta`]),
//! and is packed later. So a database that changes some bytes of a page sends a block of the journal, and not the page too. What is stored
//! stays where it is; reading takes both. A file that gets blocks of another gets their deltas too.

use std::collections::BTreeMap;

use persimmon_device::BLOCK_SIZE;
use persimmon_format::delta;
use persimmon_format::extent::Extent;
use persimmon_format::record::Op;
use persimmon_format::{Addr, Ino};

use super::FileData;
use super::dedup::stored_at;
use super::read::Found;
use super::read_cache::{ALL_BLOCKS, Cached};
use super::read_plan::{Caches, Plan, Source};
use super::write_back::{BatchFile, Mapping};
use crate::error::{Error, Result};
use crate::meta::deltas;
use crate::options::Deltas;
use crate::store::HeldBase;

/// Blocks that have to be free beside all that is promised: a delta takes some space, and frees none. Others may make some at the same time.
const ROOM_BLOCKS: u64 = 256;

/// Deltas of one file that one record puts for another.
const GIVEN_MAX: usize = 32;

/// Deltas of blocks of a file that another file is to have too.
pub(super) struct GivenDeltas {
    /// Their bytes, by file block.
    by_block: BTreeMap<u64, Vec<u8>>,
    /// Up to this file block they are all.
    pub(super) end: u64,
    /// This many blocks from there on have deltas that cannot be given.
    pub(super) refused: u64,
    /// What they are of stays as it is.
    _bases: Vec<HeldBase>,
}

impl GivenDeltas {
    /// Whether no block has one.
    pub(super) fn is_empty(&self) -> bool {
        self.by_block.is_empty()
    }

    /// What puts those of file blocks `from..to` for another file, which has the first of these blocks at `to_block`.
    pub(super) fn ops(&self, (from, to): (u64, u64), ino: Ino, to_block: u64) -> Vec<Op> {
        let given = self.by_block.range(from..to);
        given
            .map(|(block, bytes)| Op::Map {
                ino,
                block: delta::place_of(to_block + (block - from)),
                extent: Extent::Compressed(bytes.clone()),
            })
            .collect()
    }
}

/// What became of trying.
pub(super) enum Tried {
    Delta(Mapping),
    /// Too much changed.
    TooLong,
    /// There is nothing that a delta could be of, or it is not in memory.
    NoBase,
}

impl FileData {
    /// Whether blocks may be written as deltas now.
    pub(super) fn may_make_deltas(&self) -> bool {
        self.store.has_deltas()
            && self.store.options.deltas != Deltas::None
            && self.space.available_blocks() >= ROOM_BLOCKS
    }

    /// Whether the tree takes deltas that another file has already.
    fn has_room_for_given(&self) -> bool {
        self.space.available_blocks() >= ROOM_BLOCKS
            && self.store.meta().journal_inline.bytes() < self.placement.journal_inline_bytes_max()
    }

    /// The deltas of file blocks `from..to`, for another file that is to have the blocks. Nobody else changes the file, and cleaning folds none
    /// of them as long as the answer lives: they stay what they are, wherever they go.
    pub(super) fn deltas_to_give(&self, ino: Ino, from: u64, to: u64) -> Result<GivenDeltas> {
        let ((found, next), _pins, bases) = self.store.view::<_, Error>(|view| {
            let found = view.find(|meta| deltas::some_of(meta, ino, from, to, GIVEN_MAX))?;
            let addrs = found.0.iter().filter_map(|delta| delta.extent.addr());
            // What lies there stays until it is read.
            let pins: Vec<_> = addrs
                .map(|addr| self.store.zones.pin(addr.zone()))
                .collect();
            let blocks = found.0.iter().map(|delta| delta::block_at(delta.block));
            let bases: Vec<_> = blocks
                .map(|block| self.store.bases.hold(ino, block))
                .collect();
            Ok((found, pins, bases))
        })?;
        let mut given = GivenDeltas {
            by_block: BTreeMap::new(),
            end: next.unwrap_or(to),
            refused: 0,
            _bases: bases,
        };
        let Some(first) = found.first() else {
            return Ok(given);
        };
        if !self.has_room_for_given() {
            given.end = delta::block_at(first.block);
            let run = self.store.view::<_, Error>(|view| {
                view.find(|meta| deltas::first(meta, ino, given.end, to))
            })?;
            given.refused = run.map_or(1, |(first, behind)| behind - first);
            return Ok(given);
        }
        let mut plan = Plan::through(Caches::NONE);
        for mapped in &found {
            let block = delta::block_at(mapped.block);
            match &mapped.extent {
                Extent::Compressed(bytes) => {
                    given.by_block.insert(block, bytes.clone());
                }
                Extent::Packed(packed) => {
                    plan.add(packed.addr, packed.span(), block, Source::Delta(packed));
                }
                _ => {}
            }
        }
        self.fetch_planned::<Error>(&plan, |used, fetched| {
            if let (Source::Delta(packed), Ok(data)) = (&used.source, fetched)
                && let Some(bytes) = packed.verified(data)
            {
                given.by_block.insert(used.block, bytes.to_vec());
            }
            Ok(())
        })?;
        // One that cannot be read: whoever reads the block is told.
        let mut blocks = found.iter().map(|mapped| delta::block_at(mapped.block));
        let unread = blocks.find(|block| !given.by_block.contains_key(block));
        if let Some(unread) = unread {
            (given.end, given.refused) = (unread, 1);
        }
        Ok(given)
    }

    /// The delta of a block to what is stored of it.
    pub(super) fn delta_of(
        &self,
        ino: Ino,
        block: u64,
        content: &[u8; BLOCK_SIZE],
    ) -> Result<Tried> {
        let Some((base, held)) = self.base_of(ino, block)? else {
            return Ok(Tried::NoBase);
        };
        Ok(match delta::between(&base, content) {
            Some(delta) => Tried::Delta(Mapping {
                ino,
                block,
                end: block + 1,
                op: Op::Map {
                    ino,
                    block: delta::place_of(block),
                    extent: Extent::Compressed(delta),
                },
                base: Some(held),
            }),
            None => Tried::TooLong,
        })
    }

    /// What is stored of a block, without its delta, held so that it stays that. Where it is not in memory it is read if the volume was opened
    /// so.
    fn base_of(&self, ino: Ino, block: u64) -> Result<Option<([u8; BLOCK_SIZE], HeldBase)>> {
        let end = block + 1;
        let found = self.store.view::<_, Error>(|view| {
            let found = self.found(view, ino, block, end)?;
            Ok((found, self.store.bases.hold(ino, block)))
        });
        let (found, held) = match found {
            // What is lost is no base: the block is written anew.
            Err(Error::ItemDamaged { .. }) => return Ok(None),
            found => found?,
        };
        let is_base = |extent: &Extent| matches!(extent, Extent::Frame { .. } | Extent::Packed(_));
        if !found
            .extents
            .iter()
            .any(|(mapped, _)| is_base(&mapped.extent))
        {
            return Ok(None);
        }
        let offset = block * BLOCK_SIZE as u64;
        let mut base = [0; BLOCK_SIZE];
        let mut plan = Plan::through(self.kept_by_place(ino));
        let range = (block, end);
        let planned = self.plan(ino, &found.extents, range, offset, &mut base, &mut plan);
        // What is damaged is no base: the block is written anew, and that is what it needs.
        if planned.is_err() {
            return Ok(None);
        }
        if plan.places.is_empty() {
            return Ok(Some((base, held)));
        }
        if self.store.options.deltas != Deltas::Always {
            return Ok(None);
        }
        let read = self.fetch_into(ino, &plan, offset, &mut base);
        Ok(read.is_ok().then_some((base, held)))
    }

    /// Blocks that are kept by their place.
    pub(super) fn kept(&self, ino: Ino) -> Option<Cached<'_>> {
        let cache = self.frame_cache.as_ref();
        cache.map(|cache| Cached {
            cache,
            ino,
            state: None,
            known: ALL_BLOCKS,
            reads_around: false,
        })
    }

    /// The same for whole blocks and for those of compressed frames.
    pub(super) fn kept_by_place(&self, ino: Ino) -> Caches<'_> {
        Caches {
            blocks: self.kept(ino),
            frames: self.kept(ino),
            past_memory: false,
        }
    }

    /// Keeps blocks in memory that a file had synced: the next time they may be what deltas are of.
    pub(super) fn keep_bases(&self, member: &BatchFile, mappings: &[Mapping]) {
        let Some(kept) = self.kept(member.ino).filter(|_| self.may_make_deltas()) else {
            return;
        };
        for mapping in mappings.iter().filter(|mapping| mapping.ino == member.ino) {
            // Neither what is in the journal has a place, nor a delta of its own.
            let Op::Map { extent, .. } = &mapping.op else {
                continue;
            };
            let pin = extent.addr().map(|addr| self.store.zones.pin(addr.zone()));
            let Some(pin) = pin.flatten() else {
                continue;
            };
            for block in mapping.block..mapping.end {
                if let Some(at) = stored_at(extent, block - mapping.block)
                    && let Some(content) = member.block(block)
                {
                    kept.insert(block, at, &pin, content);
                }
            }
        }
    }

    /// Makes of stored blocks `from..to`, which are in `buf` whole, what the deltas say.
    pub(super) fn apply_deltas(
        &self,
        ino: Ino,
        found: &Found,
        caches: Caches<'_>,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let mut plan = Plan::through(caches);
        for (mapped, _) in &found.deltas {
            let block = delta::block_at(mapped.block);
            match &mapped.extent {
                Extent::Compressed(bytes) => apply_one(ino, block, None, bytes, offset, buf)?,
                Extent::Packed(packed) => {
                    plan.add(packed.addr, packed.span(), block, Source::Delta(packed));
                }
                other => {
                    let what = format_args!("block {block}: {other:?} is no delta");
                    return Err(Error::item_damaged(ino, what));
                }
            }
        }
        self.fetch_into(ino, &plan, offset, buf)
    }
}

/// Makes of a stored block in `buf` what a delta says, which lies at this address.
pub(super) fn apply_one(
    ino: Ino,
    block: u64,
    addr: Option<Addr>,
    bytes: &[u8],
    offset: u64,
    buf: &mut [u8],
) -> Result<()> {
    let start = (block * BLOCK_SIZE as u64).checked_sub(offset);
    let start = start.and_then(|start| usize::try_from(start).ok());
    let Some(content) = start.and_then(|start| buf.get_mut(start..start + BLOCK_SIZE)) else {
        return Ok(());
    };
    if delta::apply(bytes, content) {
        return Ok(());
    }
    Err(match addr {
        Some(addr) => Error::DataDamaged { ino, block, addr },
        None => {
            let what = format_args!("block {block}: a delta to something else");
            Error::item_damaged(ino, what)
        }
    })
}
