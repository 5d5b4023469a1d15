//! Packing: compressed blocks that lie in the tree are put densely into runs of blocks and written. Not journaled: until the next whole checkpoint the
//! journal has a compressed block, and the checkpoint's pages refer to packed extents that were complete before they were changed.

use persimmon_sync::atomic::Ordering;

use persimmon_device::BLOCK_SIZE;
use persimmon_format::extent::Extent;
use persimmon_format::packed::CompressedFrame;
use persimmon_format::page::PAGE_SIZE;
use persimmon_format::{Ino, Key, Lifetime};

use super::Placement;
use super::compressed::{Compressed, packed_runs};
use super::placing::{Places, Placing};
use crate::error::{Error, Result};
use crate::invariant::invariant_holds;
use crate::meta::extents;
use crate::meta::journal_inline::InlinePlace;
use crate::meta::mapping;
use crate::zones::{Placed, Run, Stream};

/// Blocks of a packed run.
const RUN_BLOCKS_MAX: usize = 32;
/// Compressed bytes in the tree from which on they are packed without waiting for a checkpoint, as
/// leaves would grow and split otherwise: two runs and a little more.
const PACKED_BYTES: u64 = (2 * RUN_BLOCKS_MAX + 2) as u64 * BLOCK_SIZE as u64;
/// Blocks packed at once: about four runs of blocks that compress to a quarter.
const PACKED_MAX: usize = 512;
/// Compressed bytes in the tree with which no more are added to it. Less on small volumes.
const JOURNAL_INLINE_BYTES_MAX: u64 = 4 << 20;

/// An extent of a file, and what holds the same elsewhere.
pub(crate) struct Exchange {
    pub(crate) ino: Ino,
    pub(crate) block: u64,
    pub(crate) from: Extent,
    pub(crate) to: Extent,
}

impl Placement {
    /// Compressed bytes that the tree may have inline.
    pub(crate) fn journal_inline_bytes_max(&self) -> u64 {
        let pages = self.store.zones.budget.dirty_pages_reserved / 4;
        JOURNAL_INLINE_BYTES_MAX.min((pages * PAGE_SIZE) as u64)
    }

    /// Packs blocks that are inline in the tree, if there are enough of them for whole runs. True if it did.
    pub(crate) fn pack_ahead(&self) -> bool {
        let enough = PACKED_BYTES.min(self.journal_inline_bytes_max() / 2);
        let enough = self.store.meta().journal_inline.bytes() >= enough;
        enough && !self.packing_failed.load(Ordering::Relaxed) && self.pack_journal_inline(false)
    }

    /// Packs blocks that are inline in the tree before a checkpoint's cut, so that its pages do not carry them.
    pub(crate) fn pack_before_cut(&self) {
        self.packing_failed.store(false, Ordering::Relaxed);
        self.pack_journal_inline(true);
    }

    /// Packs blocks that are inline in the tree, as far as there is room: `all` of them, or only whole runs. A page
    /// that is written carries the blocks that stay. True if something was packed.
    fn pack_journal_inline(&self, all: bool) -> bool {
        // If another thread packs, it does this work, too.
        let Some(_lock) = self.packing_lock.try_lock() else {
            return false;
        };
        let _midst = self.store.in_midst();
        // Some may be in pages that are clean, which the next checkpoint has to write then: a few,
        // within what it may be larger than its bound.
        let mut pages_max = (self.store.zones.budget.dirty_pages_reserved / 16).max(1);
        // The leaves and the inodes of all of them are looked at together.
        let at_once = PACKED_MAX.min(self.store.cached_pages_max() / 2).max(1);
        let (mut after, mut packed) = (None, false);
        loop {
            let places = self.store.meta().journal_inline.after(after, at_once);
            let Some(last) = places.last() else {
                break;
            };
            after = Some(*last);
            match self.pack_places(&places, &mut pages_max, all) {
                Ok(moved) => packed |= moved > 0,
                Err(error) => {
                    tracing::debug!(%error, "compressed blocks stay in the tree");
                    self.packing_failed.store(true, Ordering::Relaxed);
                    break;
                }
            }
        }
        packed
    }

    fn pack_places(&self, places: &[InlinePlace], pages_max: &mut usize, all: bool) -> Result<u64> {
        let (unpacked, pages_left) = self.store.view::<_, Error>(|view| {
            let mut unpacked: Vec<(Option<u8>, Compressed)> = Vec::with_capacity(places.len());
            let mut pages_left = *pages_max;
            for (ino, block, version) in places {
                // Of a block that waits in several versions one is packed at a time.
                let before: Option<&(_, Compressed)> = unpacked.last();
                if before.is_some_and(|(_, before)| (before.ino, before.block) == (*ino, *block)) {
                    continue;
                }
                let key = Key::extent(*ino, *block).at(*version);
                if !view.find(|meta| Ok(meta.is_in_dirty_leaf(&key)?))? {
                    let Some(left) = pages_left.checked_sub(1) else {
                        continue;
                    };
                    pages_left = left;
                }
                let found = view.find(|meta| {
                    // Nor where what is beside it is damaged, which an exchange needs.
                    mapping::ensure_exactly(meta, *ino, *version, *block, block + 1)?;
                    extents::exactly(meta, *ino, *version, *block)
                });
                let extent = match found {
                    // It stays as it is; others are packed.
                    Err(Error::ItemDamaged { .. }) => continue,
                    found => found?,
                };
                let Some(Extent::Compressed(bytes)) = extent else {
                    continue;
                };
                let inode = match view.inode(*ino) {
                    Err(Error::ItemDamaged { .. }) => continue,
                    inode => inode?,
                };
                let hint = inode.and_then(|inode| inode.lifetime_hint());
                let (ino, block) = (*ino, *block);
                unpacked.push((
                    hint.and_then(Lifetime::class),
                    Compressed {
                        ino,
                        block,
                        frame: CompressedFrame::of_block(&bytes),
                        bytes,
                        from: None,
                    },
                ));
            }
            Ok((unpacked, pages_left))
        })?;
        *pages_max = pages_left;
        let mut moved = 0;
        for hint in [None, Some(1), Some(2), Some(3), Some(4)] {
            let of_class = unpacked.iter().filter(|(class, _)| *class == hint);
            let of_class: Vec<&Compressed> = of_class.map(|(_, unpacked)| unpacked).collect();
            if !of_class.is_empty() {
                let (stream, life) = match hint {
                    None => self.store.zones.infer(std::iter::empty()),
                    Some(class) => self.store.zones.hinted(class),
                };
                let mut runs = packed_runs(of_class.iter().copied(), life, RUN_BLOCKS_MAX);
                // The last one is not full; on a small volume it can be the only one.
                if !all && runs.len() > 1 {
                    runs.pop();
                }
                moved += self.pack_runs(stream, &of_class, runs)?;
            }
        }
        Ok(moved)
    }

    fn pack_runs(&self, stream: Stream, unpacked: &[&Compressed], runs: Vec<Run>) -> Result<u64> {
        let mut places = Places::default();
        // What found a place is moved, even if there was none for the rest.
        let result = self.place_now(stream, Placing::Packed, runs, &mut places);
        let mut moved = 0;
        for part in self.moves(unpacked, &places.placed) {
            moved += self.exchange(&part)?;
        }
        result.map(|()| moved)
    }

    /// Puts extents in the place of others that hold the same, as far as the files still have those, and no record tells of
    /// it. Returns how many blocks they had.
    pub(crate) fn exchange(&self, changes: &[Exchange]) -> Result<u64> {
        self.store.apply_unlogged(
            |meta| {
                changes.iter().try_for_each(|change| {
                    let Exchange {
                        ino,
                        block,
                        from,
                        to,
                    } = change;
                    mapping::ensure_exchange(meta, *ino, *block, from, to)
                })
            },
            |meta| {
                let mut exchanged = 0;
                for Exchange {
                    ino,
                    block,
                    from,
                    to,
                } in changes
                {
                    exchanged +=
                        mapping::exchange(meta, &self.store.zones, *ino, *block, from, to)?;
                }
                Ok(exchanged)
            },
        )
    }

    /// What goes where, as many at a time as one hold of the metadata lock may change.
    fn moves(&self, unpacked: &[&Compressed], placed: &[Placed]) -> Vec<Vec<Exchange>> {
        let changes_max = self.store.transaction_ops_max();
        let extents = placed.iter().flat_map(Placed::extents);
        let mut moves = vec![Vec::new()];
        for (ino, block, to) in extents {
            let at = unpacked.binary_search_by_key(&(ino, block), |l| (l.ino, l.block));
            let found = at.ok().and_then(|at| unpacked.get(at));
            invariant_holds!(
                self.store.media.alarm,
                found.is_some(),
                "block {block} of inode {ino} was packed, and nobody asked for it"
            );
            let Some(unpacked) = found else {
                continue;
            };
            if moves.last().is_none_or(|last| last.len() == changes_max) {
                moves.push(Vec::new());
            }
            if let Some(last) = moves.last_mut() {
                last.push(Exchange {
                    ino,
                    block,
                    from: Extent::Compressed(unpacked.bytes.clone()),
                    to,
                });
            }
        }
        moves
    }
}
