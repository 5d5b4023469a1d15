//! Duplicates enter the history: each in a record of its own, or in several, if what was compared is still there.

use std::collections::{BTreeMap, BTreeSet};

use persimmon_format::extent::Extent;
use persimmon_format::inode::FLAG_PREALLOCATED;
use persimmon_format::record::{Op, Share};
use persimmon_format::{Ino, Lsn};

use super::Duplicate;
use super::find::places_of;
use crate::data::FileData;
use crate::data::equal::reaches_into;
use crate::data::files::Change;
use crate::data::read_cache::Place;
use crate::data::records::with_latest_change;
use crate::data::write_back::Mapping;
use crate::error::{Error, Result};
use crate::faults::{Fault, fault};
use crate::invariant::invariant;
use crate::meta::extents::MappedExtent;
use crate::meta::{Intent, Transaction, View, sharing};
use crate::statistics::add;

/// What is to be done for a duplicate.
enum Verdict {
    /// It cannot be shared any more.
    Stale,
    /// The target has the blocks already.
    Same,
    Share(Share),
    /// One record shares these first blocks at most.
    First(u64),
}

/// What has become of a duplicate.
pub(in crate::data) enum Outcome {
    /// It is shared, in this record.
    Shared(Lsn),
    /// Its blocks have to be written.
    ToWrite,
    /// It is to be tried again in two: its first so many blocks, and the others.
    ToSplit(u64),
}

impl FileData {
    /// Shares a duplicate, in a record that touches its file too. The files of the batch that it belongs to are `inos`; what was journaled of the batch before has arrived.
    pub(in crate::data) fn share_duplicate(
        &self,
        duplicate: &Duplicate,
        touch: &Op,
        inos: &BTreeSet<Ino>,
    ) -> Result<Outcome> {
        // From here on nothing is waited for.
        self.history.prepare(Intent::Shrink)?;
        if !self.has_room_to_share() {
            return Ok(Outcome::ToWrite);
        }
        let (from, start) = (duplicate.from, duplicate.from_block);
        let end = start + duplicate.blocks();
        let is_of_batch = inos.contains(&from);
        let source = self.files.get_or_create(from);
        // Nobody stages anything over what is shared meanwhile: that would count on freeing it. Nor was it before.
        let change = Change::try_begin(&source, |staged| {
            let is_free = staged.new_blocks(start, end) == end - start
                && (is_of_batch || !staged.is_frozen_in(start, end));
            // What a writer found out about its blocks will be wrong: overwriting what is shared frees nothing.
            staged.version += u64::from(is_free);
            is_free
        });
        let shared = change.map(|_change| self.enter_duplicate(duplicate, touch));
        self.files.forget_if_clean_of(from, source);
        shared.unwrap_or(Ok(Outcome::ToWrite))
    }

    fn enter_duplicate(&self, duplicate: &Duplicate, touch: &Op) -> Result<Outcome> {
        let entered = self.history.enter::<_, Error>(None, |tx| {
            match self.judge(tx, duplicate)? {
                Verdict::Stale => return Ok(Some(Outcome::ToWrite)),
                Verdict::First(blocks) => return Ok(Some(Outcome::ToSplit(blocks))),
                Verdict::Same => {}
                Verdict::Share(share) => tx.push(Op::Share(share)),
            }
            let touch = with_latest_change(tx, touch)?;
            tx.push(touch);
            Ok(None)
        });
        match entered {
            Ok((None, lsn)) => {
                let counters = &self.store.media.counters;
                add(&counters.deduplicated_blocks, duplicate.blocks());
                Ok(Outcome::Shared(lsn))
            }
            Ok((Some(outcome), _)) => Ok(outcome),
            Err(error) => {
                // The source may be damaged, which is nothing to who writes the target.
                self.store.check_writable()?;
                tracing::debug!(%error, "equal blocks are not shared");
                Ok(Outcome::ToWrite)
            }
        }
    }

    /// What is to be done for a duplicate, as the tree is now.
    fn judge(&self, tx: &Transaction<'_>, duplicate: &Duplicate) -> Result<Verdict> {
        let Some(places) = &duplicate.places else {
            return Ok(Verdict::Stale);
        };
        let (from, to) = (duplicate.from, duplicate.piece.ino);
        let source = (
            duplicate.from_block,
            duplicate.from_block + duplicate.blocks(),
        );
        let target = (duplicate.piece.first, duplicate.end());
        for ino in [from, to] {
            // Overwriting a shared block frees nothing: the room that was promised for it would be gone.
            let inode = tx.inode(ino)?;
            if inode.is_none_or(|inode| inode.flags & FLAG_PREALLOCATED != 0) {
                return Ok(Verdict::Stale);
            }
        }
        let look = || self.look_up(tx, (from, source), (to, target), places);
        if !duplicate.is_part
            && let Some(verdict) = look()?
        {
            return Ok(verdict);
        }
        let extents_max = self.shared_extents_max();
        let replaced = tx.extents(to, target.0, target.1, extents_max + 1)?;
        let extents = tx.extents(from, source.0, source.1, extents_max + 1)?;
        let fit = |extents: &[MappedExtent], (start, end): (u64, u64)| -> Result<u64> {
            let Some(next) = extents.get(extents_max) else {
                return Ok(end - start);
            };
            invariant!(
                self.store.media.alarm,
                start < next.block && next.block < end,
                "extent {extents_max} of those of blocks {start} to {end} begins at {}",
                next.block
            );
            Ok(next.block - start)
        };
        let blocks = fit(&replaced, target)?.min(fit(&extents, source)?);
        if blocks < duplicate.blocks() {
            return Ok(Verdict::First(blocks));
        }
        // Of what is left of it all would be looked up anew for each record: what this one shares is.
        if duplicate.is_part
            && let Some(verdict) = look()?
        {
            return Ok(verdict);
        }
        for mapped in &extents {
            if !self.may_share(tx, mapped, (from, to), target)? {
                return Ok(Verdict::Stale);
            }
        }
        let at = tx.find(|meta| Ok(sharing::free_place(meta, duplicate.blocks())))?;
        Ok(at.map_or(Verdict::Stale, |at| {
            Verdict::Share(Share {
                from,
                from_block: source.0,
                to,
                to_block: target.0,
                blocks: duplicate.blocks(),
                at,
            })
        }))
    }

    /// What is to be done for blocks that are not where they were when they were compared, or need not be shared.
    fn look_up(
        &self,
        tx: &View<'_>,
        (from, source): (Ino, (u64, u64)),
        (to, target): (Ino, (u64, u64)),
        places: &[Place],
    ) -> Result<Option<Verdict>> {
        let is_there = self.places_now(tx, from, source)? == *places;
        if !is_there && !fault(Fault::DuplicateNotLookedUp) {
            return Ok(Some(Verdict::Stale));
        }
        if self.places_now(tx, to, target)? == *places {
            return Ok(Some(Verdict::Same));
        }
        let overlaps = from == to && source.0.abs_diff(target.0) < target.1 - target.0;
        Ok(overlaps.then_some(Verdict::Stale))
    }

    /// Whether an extent of the source may become shared, for who writes these blocks of the target.
    fn may_share(
        &self,
        tx: &View<'_>,
        mapped: &MappedExtent,
        (from, to): (Ino, Ino),
        target: (u64, u64),
    ) -> Result<bool> {
        tx.find(|meta| {
            // A compressed frame moves as a whole: none of it may be what is replaced.
            let is_apart = from.plain() != to.plain() || !reaches_into(mapped, target.0, target.1);
            // Where shared blocks count whole, nobody is charged more because somebody else writes the same.
            let is_charged = sharing::costs_owners(meta, &mapped.extent);
            Ok(is_apart && !is_charged && sharing::may_move(meta, from, mapped)?)
        })
    }

    /// Where blocks of a file are stored that have no deltas; of none if one of them cannot be shared.
    fn places_now(&self, tx: &View<'_>, ino: Ino, (from, to): (u64, u64)) -> Result<Vec<Place>> {
        let found = self.found(tx, ino, from, to)?;
        let places = places_of(&found, from, to).into_iter();
        Ok(places.collect::<Option<Vec<_>>>().unwrap_or_default())
    }

    /// Notes where duplicates are stored whose source is written with the batch.
    pub(in crate::data) fn note_written(&self, duplicates: &mut [Duplicate], written: &[Mapping]) {
        if duplicates
            .iter()
            .all(|duplicate| duplicate.places.is_some())
        {
            return;
        }
        let mut by_block: BTreeMap<(Ino, u64), &Mapping> = BTreeMap::new();
        for mapping in written {
            by_block.insert((mapping.ino, mapping.block), mapping);
        }
        let place = |ino: Ino, block: u64| {
            let (_, mapping) = by_block.range((ino, 0)..=(ino, block)).next_back()?;
            let Op::Map { extent, .. } = &mapping.op else {
                return None;
            };
            let within = block - mapping.block;
            (block < mapping.end).then(|| self.place_of(extent, within))?
        };
        for duplicate in duplicates.iter_mut().filter(|d| d.places.is_none()) {
            let blocks = duplicate.from_block..duplicate.from_block + duplicate.blocks();
            duplicate.places = blocks.map(|block| place(duplicate.from, block)).collect();
        }
    }

    fn place_of(&self, extent: &Extent, block: u64) -> Option<Place> {
        let at = super::find::stored_at(extent, block)?;
        let pin = self.store.zones.pin(extent.addr()?.zone())?;
        let resets = pin.resets();
        Some(Place { at, resets })
    }
}
