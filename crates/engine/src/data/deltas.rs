//! Deltas of blocks: making them of what is synced, and reading them.
//!
//! A synced block of which little changed since it was stored goes into the record as its difference to that ([`persimmon_format::delta`]),
//! and is packed later. So a database that changes some bytes of a page sends a block of the journal, and not the page too. What is stored
//! stays where it is; reading takes both.

use persimmon_device::BLOCK_SIZE;
use persimmon_format::delta;
use persimmon_format::extent::Extent;
use persimmon_format::record::Op;
use persimmon_format::{Addr, Ino};

use super::FileData;
use super::read::Found;
use super::read_cache::{ALL_BLOCKS, Cached, StoredAt};
use super::read_plan::{Caches, Plan, Source};
use super::write_back::{BatchFile, Mapping};
use crate::error::{Error, Result};
use crate::options::Deltas;

/// Blocks that have to be free beside all that is promised: a delta takes some space, and frees none. Others may make some at the same time.
const ROOM_BLOCKS: u64 = 256;

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

    /// The delta of a block to what is stored of it.
    pub(super) fn delta_of(
        &self,
        ino: Ino,
        block: u64,
        content: &[u8; BLOCK_SIZE],
    ) -> Result<Tried> {
        let Some(base) = self.base_of(ino, block)? else {
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
            }),
            None => Tried::TooLong,
        })
    }

    /// What is stored of a block, without its delta. Where it is not in memory it is read if the volume was opened so.
    fn base_of(&self, ino: Ino, block: u64) -> Result<Option<[u8; BLOCK_SIZE]>> {
        let end = block + 1;
        let found = self.find(ino, block, end)?;
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
        let caches = Caches {
            blocks: self.kept(ino),
            frames: self.kept(ino),
        };
        let mut plan = Plan::through(caches);
        let range = (block, end);
        let planned = self.plan(ino, &found.extents, range, offset, &mut base, &mut plan);
        // What is damaged is no base: the block is written anew, and that is what it needs.
        if planned.is_err() {
            return Ok(None);
        }
        if plan.places.is_empty() {
            return Ok(Some(base));
        }
        if self.store.options.deltas != Deltas::Always {
            return Ok(None);
        }
        let read = self.fetch_into(ino, &plan, offset, &mut base);
        Ok(read.is_ok().then_some(base))
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

    /// Keeps blocks in memory that a file had synced: the next time they may be what deltas are of.
    pub(super) fn keep_bases(&self, member: &BatchFile, mappings: &[Mapping]) {
        let Some(kept) = self.kept(member.ino).filter(|_| self.may_make_deltas()) else {
            return;
        };
        for mapping in mappings.iter().filter(|mapping| mapping.ino == member.ino) {
            let Op::Map {
                extent: Extent::Frame { addr, .. },
                ..
            } = mapping.op
            else {
                continue;
            };
            let Some(pin) = self.store.zones.pin(addr.zone()) else {
                continue;
            };
            for block in mapping.block..mapping.end {
                let addr = addr.offset((block - mapping.block) as u32);
                if let Some(content) = member.block(block) {
                    kept.insert(block, StoredAt::Block(addr), &pin, content);
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
