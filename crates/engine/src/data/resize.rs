//! Changes of what a file covers: truncating, punching holes, preallocating, and freeing a file
//! whose last name is gone. Each is made of records of bounded size.

use std::ops::Range;

use persimmon_device::BLOCK_SIZE;
use persimmon_format::delta::{DELTAS_END, block_at, is_delta, place_of};
use persimmon_format::extent::{Extent, FILE_BLOCKS_END, RESERVED_BLOCKS_MAX};
use persimmon_format::inode::{FLAG_PREALLOCATED, Timestamp};
use persimmon_format::record::{Op, Touch};
use persimmon_format::{Ino, Key, KeyKind, SubvolumeId};

use super::FileData;
use super::files::{Change, File};
use super::growth::Growth;
use super::staged::{Staged, WriteHint};
use super::write::{Writing, end_of};
use super::{OFFSET_MAX, block_of, blocks_in};
use crate::error::{Error, Result};
use crate::faults::{Fault, fault};
use crate::invariant::{invariant, invariant_holds};
use crate::meta::extents::{self, MappedExtent};
use crate::meta::{Intent, Place, Transaction, deltas};

/// Extents one record may remove.
pub(super) const EXTENTS_MAX: usize = 256;

/// Inodes freed by one record at most.
const RECLAIMED_MAX: usize = 64;

/// Operations that freeing one with nothing to it takes, and as many again: removing an item looks
/// for its neighbours.
const RECLAIM_OPS: usize = 6;

/// The size that the history gets for a file that is truncated to `size`. If staged blocks have made the file grow, and stay, the history does not have
/// them yet: then it keeps the size that it has.
fn size_in_history(staged: &Staged, size: u64) -> u64 {
    let keep = blocks_in(size);
    let dirty_below = keep > staged.new_blocks(0, keep);
    let committed = staged.committed_size;
    let is_later = dirty_below
        && staged.growth.begins_below(size)
        && staged.loaded_size() > committed
        && size > committed;
    if is_later { committed } else { size }
}

impl FileData {
    /// Sets a file's size; what is beyond it is gone, what is new reads as zeros.
    pub fn truncate(&self, ino: Ino, size: u64, now: Timestamp) -> Result<()> {
        self.store.check_changeable(ino)?;
        if size > OFFSET_MAX {
            return Err(Error::TooLarge);
        }
        let file = self.load(ino)?;
        let change = self.begin_change(ino, &file)?;
        let (excluded, staged, history_size) = loop {
            let (excluded, staged) = self.exclude_to_resize(ino, &change, size)?;
            let history_size = size_in_history(&staged, size);
            // The new end is behind everything written, so it does not come with content: the next sync of any file makes it durable.
            if history_size == size || size <= staged.loaded_size() {
                break (excluded, staged, history_size);
            }
            drop(staged);
            drop(excluded);
            self.commit_file(ino)?;
        };
        let (old, keep) = (staged.loaded_size(), blocks_in(size));
        drop(staged);
        let tail = if size < old && !fault(Fault::TailNotZeroed) {
            self.zeroed_tail(ino, size)?
        } else {
            None
        };
        let kept = match &tail {
            Some(tail) => self.hold_kept(ino, tail)?,
            None => None,
        };
        let ctime = file.lock().change_time(now);
        let set = |size| Touch {
            size: Some(size),
            mtime: Some(now),
            ctime: Some(ctime),
            ..Touch::default()
        };
        // What is looked up in the tree and what is staged are cut one after the other: who reads
        // finds the new end before either.
        if size < old {
            self.files.cut(&file, size);
        }
        let cut = self.history.update::<_, Error>(Intent::Shrink, |tx| {
            tx.touch(ino, set(history_size));
            if size >= old {
                return Ok(false);
            }
            if let Some(op) = &tail {
                tx.push(op.clone());
            }
            let more = self.punch_some(tx, ino, keep, FILE_BLOCKS_END)?.is_some();
            if more {
                tx.put(Key::truncation(ino), keep.to_le_bytes().to_vec());
            }
            Ok(more)
        });
        let more = {
            let mut staged = file.lock();
            let more = cut.inspect_err(|_| {
                staged.size = Some(old);
                self.space.release(u64::from(kept.is_some()));
            })?;
            self.space.release(staged.drop_dirty(keep, u64::MAX));
            match kept {
                Some((block, _)) if staged.is_dirty(block) => self.space.release(1),
                Some((block, content)) => {
                    staged.write_blocks(block, &content)?;
                    if !std::mem::replace(&mut staged.queued, true) {
                        self.enqueue(ino);
                    }
                }
                None => {}
            }
            self.count_staged(&mut staged);
            invariant!(
                self.store.media.alarm,
                staged.changing && staged.busy,
                "inode {ino} is cut while others may change it"
            );
            zero_from(&mut staged, size)?;
            staged.growth.truncate(size);
            staged.size = Some(size);
            staged.committed_size = history_size;
            staged.version += 1;
            staged.changed(now);
            more
        };
        let finished = if more {
            self.finish_truncation(ino, keep)
        } else {
            Ok(())
        };
        drop(excluded);
        drop(change);
        self.files.forget_if_clean_of(ino, file);
        finished
    }

    /// Adds a punch of the first [`EXTENTS_MAX`] extents in `from..to`, with as many deltas, to a transaction. Answers where to go on, if there
    /// are more: what was punched may be there as what hides a snapshot's.
    pub(super) fn punch_some(
        &self,
        tx: &mut Transaction<'_>,
        ino: Ino,
        from: u64,
        to: u64,
    ) -> Result<Option<u64>> {
        // Of an inode that is gone there is nothing left but what the subvolume owns.
        let is_there = tx.inode(ino)?.is_some();
        let look = |from, to| {
            tx.find(|meta| match is_there {
                true => extents::some_shown(meta, ino, from, to, EXTENTS_MAX),
                false => extents::some_owned(meta, ino, from, to, EXTENTS_MAX),
            })
        };
        let (extents, mut next) = look(from, to)?;
        let range = extents.first().zip(extents.last());
        let range = range.map(|(first, last)| (first.block.max(from), last.end().min(to)));
        let may_have_deltas = tx.find(|meta| deltas::may_have(meta, ino))? && !is_delta(from);
        let mut punched = range;
        if let Some((start, end)) = range.filter(|_| may_have_deltas) {
            // The deltas of these blocks go with them.
            if let (_, Some(more)) = look(place_of(start), place_of(end))? {
                let end = block_at(more);
                (punched, next) = (Some((start, end)), Some(end));
            }
        }
        // The blocks that deltas are of may be a snapshot's: wherever such deltas are, they are left now.
        if next.is_none() && may_have_deltas && !is_there {
            let (deltas, more) = look(place_of(0), DELTAS_END)?;
            let first = deltas.first().map(|delta| delta.block);
            next = first.or(more);
        }
        if let Some((from, to)) = punched {
            tx.push(Op::Punch { ino, from, to });
        }
        Ok(next)
    }

    /// What must be mapped so that the last block is zero beyond `size`, should the file grow
    /// again: the block's remaining content, inline, in the record of the truncation itself.
    fn zeroed_tail(&self, ino: Ino, size: u64) -> Result<Option<Op>> {
        let within = (size % BLOCK_SIZE as u64) as usize;
        if within == 0 {
            return Ok(None);
        }
        let block = block_of(size);
        let mut content = self.read_block(ino, block)?;
        if content.iter().skip(within).all(|b| *b == 0) {
            return Ok(None);
        }
        content.truncate(within);
        let len = content.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
        content.truncate(len);
        Ok(Some(Op::Map {
            ino,
            block,
            extent: Extent::Inline(content),
        }))
    }

    /// The last block of a truncated file and its content, if a block is set aside for it, which the `tail` in the tree would give back: it is
    /// staged, to be written to a block again, and has its room from here on.
    fn hold_kept(&self, ino: Ino, tail: &Op) -> Result<Option<(u64, Vec<u8>)>> {
        let Op::Map {
            block,
            extent: Extent::Inline(bytes),
            ..
        } = tail
        else {
            return Ok(None);
        };
        let is_set_aside = self.store.view::<_, Error>(|view| {
            let inode = view.inode(ino)?;
            if inode.is_none_or(|inode| inode.flags & FLAG_PREALLOCATED == 0) {
                return Ok(false);
            }
            let scope = view.find(|meta| Ok(meta.versions.at(ino)?.scope))?;
            let there = view.extents(ino, *block, block + 1, 1)?;
            let is_own = |mapped: &MappedExtent| {
                matches!(mapped.extent, Extent::Frame { .. }) && scope.owns(mapped.version)
            };
            Ok(there.iter().any(is_own))
        })?;
        if !is_set_aside || !self.space.reserve_over(1, 1) {
            return Ok(None);
        }
        let mut content = bytes.clone();
        content.resize(BLOCK_SIZE, 0);
        Ok(Some((*block, content)))
    }

    /// Makes a range a hole; the size stays.
    pub fn punch(&self, ino: Ino, offset: u64, len: u64, now: Timestamp) -> Result<()> {
        let end = offset.checked_add(len).ok_or(Error::TooLarge)?;
        self.change(ino, |change, file| {
            self.punch_in(ino, (change, file), (offset, end), now)
        })
    }

    /// Sets space aside for a range, so that writing it later finds room. Holes in it read as
    /// zeros, as before.
    pub fn preallocate(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        keep_size: bool,
        now: Timestamp,
    ) -> Result<()> {
        let end = end_of(offset, len)?;
        self.change(ino, |change, file| {
            self.preallocate_in(ino, (change, file), (offset, end), keep_size, now)
        })
    }

    /// Changes a file while nobody else does.
    pub(super) fn change(
        &self,
        ino: Ino,
        f: impl FnOnce(&Change<'_>, &File) -> Result<()>,
    ) -> Result<()> {
        self.store.check_changeable(ino)?;
        let file = self.load(ino)?;
        let changed = self
            .begin_change(ino, &file)
            .and_then(|change| f(&change, &file));
        self.files.forget_if_clean_of(ino, file);
        changed
    }

    fn punch_in(
        &self,
        ino: Ino,
        (change, file): (&Change<'_>, &File),
        (offset, end): (u64, u64),
        now: Timestamp,
    ) -> Result<()> {
        let size = change.size();
        let unit = BLOCK_SIZE as u64;
        let (first, last) = whole_blocks((offset, end), size);
        let zero = |from, to| self.zero_within(ino, (change, file), (from, to), now);
        if first > last
            || (first == last && offset / unit == end / unit && !end.is_multiple_of(unit))
        {
            return zero(offset, end);
        }
        zero(offset, first * unit)?;
        if end < size {
            zero(last * unit, end)?;
        }
        let (_excluded, staged) = change.exclude_write_back();
        // Where nothing is left of what made the file grow, no batch would bring the size in its
        // place in time: the punch does.
        let brought = Some(size).filter(|_| !staged.holds_growth_beside(first, last));
        drop(staged);
        let ctime = file.lock().change_time(now);
        let punch = |start| {
            self.history.update::<_, Error>(Intent::Shrink, |tx| {
                let next = self.punch_some(tx, ino, start, last)?;
                let set = Touch {
                    // The file's old end goes with the last extents.
                    size: brought.filter(|_| next.is_none()),
                    mtime: Some(now),
                    ctime: Some(ctime),
                    ..Touch::default()
                };
                tx.touch(ino, set);
                Ok(next)
            })
        };
        let mut from = Some(first);
        while let Some(start) = from {
            // Earlier records of this punch may have removed blocks that a writer has read.
            from = punch(start).inspect_err(|_| file.lock().version += 1)?;
        }
        // Not before: it would be lost if the records could not be made.
        let mut staged = file.lock();
        invariant!(
            self.store.media.alarm,
            staged.changing && staged.busy,
            "inode {ino} is punched while others may change it"
        );
        self.space.release(staged.drop_dirty(first, last));
        self.count_staged(&mut staged);
        if let Some(size) = brought {
            staged.committed_size = size;
            staged.growth = Growth::default();
        }
        staged.version += 1;
        staged.changed(now);
        Ok(())
    }

    /// Writes zeros to a range inside of a block, as far as the file reaches.
    pub(super) fn zero_within(
        &self,
        ino: Ino,
        (change, file): (&Change<'_>, &File),
        (from, to): (u64, u64),
        now: Timestamp,
    ) -> Result<()> {
        let to = to.min(change.size());
        if from >= to {
            return Ok(());
        }
        let zeros = [0; BLOCK_SIZE];
        let writing = Writing {
            ino,
            file,
            change: Some(change),
            now,
            hint: WriteHint::default(),
            has_room: false,
        };
        self.write_chunks(&writing, from, &zeros[..(to - from) as usize])
            .map(drop)
    }

    pub(super) fn preallocate_in(
        &self,
        ino: Ino,
        (change, file): (&Change<'_>, &File),
        (offset, end): (u64, u64),
        keep_size: bool,
        now: Timestamp,
    ) -> Result<()> {
        self.mark_preallocated(ino)?;
        let (mut from, to) = (block_of(offset), blocks_in(end));
        let mut looked_at = from;
        // What is staged is mapped first, so that the tree alone tells what is a hole.
        let (_excluded, size) = loop {
            self.commit_file(ino)?;
            let (excluded, staged) = change.exclude_write_back();
            let (dirty, size) = (staged.dirty_blocks(), staged.loaded_size());
            drop(staged);
            if dirty == 0 && !self.stage_anew(ino, file, &mut looked_at, to)? {
                break (excluded, size);
            }
        };
        while from < to {
            from = self.reserve_some(ino, from, to)?;
        }
        let grown = if keep_size { size } else { size.max(end) };
        let set = Touch {
            size: (grown != size).then_some(grown),
            mtime: Some(now).filter(|_| grown != size),
            ctime: Some(file.lock().change_time(now)),
            ..Touch::default()
        };
        self.history.update::<_, Error>(Intent::Shrink, |tx| {
            tx.touch(ino, set);
            Ok(())
        })?;
        let mut staged = file.lock();
        staged.size = Some(grown);
        staged.committed_size = grown;
        staged.version += 1;
        Ok(())
    }

    /// From now on blocks of the file are written as frames: in the tree they would take less space than is set aside for them.
    pub(super) fn mark_preallocated(&self, ino: Ino) -> Result<()> {
        self.history.update::<_, Error>(Intent::Shrink, |tx| {
            if let Some(mut inode) = tx.inode(ino)?
                && inode.flags & FLAG_PREALLOCATED == 0
            {
                inode.flags |= FLAG_PREALLOCATED;
                tx.put_inode(ino, &inode);
            }
            Ok(())
        })
    }

    /// Stages some of the blocks from `from` on, before `to`, which take less than a block, that they get one. Answers whether there were
    /// any, and how far it came. Nothing of the file is dirty, and nobody else changes it meanwhile.
    fn stage_anew(&self, ino: Ino, file: &File, from: &mut u64, to: u64) -> Result<bool> {
        let mut are_any = false;
        while *from < to && !are_any {
            let (scope, (extents, next)) = self.store.view::<_, Error>(|view| {
                let scope = view.find(|meta| Ok(meta.versions.at(ino)?.scope))?;
                let look =
                    view.find(|meta| extents::some_shown(meta, ino, *from, to, EXTENTS_MAX))?;
                Ok((scope, look))
            })?;
            let mut staged_blocks = 0;
            for mapped in &extents {
                let has_room = match mapped.extent {
                    // Where a snapshot has a block too, overwriting it takes another.
                    Extent::Frame { .. } => scope.owns(mapped.version),
                    Extent::Reserved { .. } => true,
                    _ => false,
                };
                if has_room {
                    continue;
                }
                for block in mapped.block.max(*from)..mapped.end().min(to) {
                    if staged_blocks >= EXTENTS_MAX {
                        *from = block;
                        return Ok(true);
                    }
                    self.stage_stored(ino, file, block..block + 1)?;
                    staged_blocks += 1;
                    are_any = true;
                }
            }
            *from = next.unwrap_or(to);
        }
        Ok(are_any)
    }

    /// Stages blocks as they are stored, to have them written to another place. Nobody else changes the file meanwhile.
    pub(super) fn stage_stored(&self, ino: Ino, file: &File, blocks: Range<u64>) -> Result<()> {
        for block in blocks {
            let content = self.read_block(ino, block)?;
            let reserved = self.hold(|| self.space.reserve(1).then_some(()))?;
            reserved.ok_or_else(|| self.store.zones.no_space())?;
            let mut staged = file.lock();
            staged.write_blocks(block, &content)?;
            self.count_staged(&mut staged);
            if !std::mem::replace(&mut staged.queued, true) {
                self.enqueue(ino);
            }
        }
        Ok(())
    }

    /// Reserves the holes among the first extents of `from..to`; returns how far it came. The
    /// file is not changed by anybody else meanwhile.
    fn reserve_some(&self, ino: Ino, from: u64, to: u64) -> Result<u64> {
        let (holes, reach) = self.store.view::<_, Error>(|view| {
            let scope = view.find(|meta| Ok(meta.versions.at(ino)?.scope))?;
            let (extents, next) =
                view.find(|meta| extents::some_shown(meta, ino, from, to, EXTENTS_MAX))?;
            let reach = next.unwrap_or(to);
            // What is set aside for a snapshot is not for this file.
            let has_room = |mapped: &MappedExtent| {
                scope.owns(mapped.version) || !matches!(mapped.extent, Extent::Reserved { .. })
            };
            Ok((holes(&extents, has_room, from, reach), reach))
        })?;
        let wanted = holes.iter().map(|(a, b)| b - a).sum();
        // Held until the tree counts it: of several at a time none gets what another has.
        let reservation = self.hold(|| self.space.hold_unwritten(wanted))?;
        let reservation = reservation.ok_or_else(|| self.store.zones.no_space())?;
        let reserved = self.history.update::<_, Error>(Intent::Shrink, |tx| {
            for range in holes.iter().copied() {
                map_reserved(tx, ino, range);
            }
            Ok(())
        });
        drop(reservation);
        reserved.map(|()| reach)
    }

    /// Frees inodes without a name that nobody has open, in records of bounded size, several of
    /// them in one. Those that have a name stay as they are.
    pub fn reclaim(&self, inos: &[Ino]) -> Result<()> {
        self.store.check_writable()?;
        let at_once = self.store.transaction_ops_max() / RECLAIM_OPS;
        let mut reclaimed = Ok(());
        for some in inos.chunks(at_once.clamp(1, RECLAIMED_MAX)) {
            reclaimed = reclaimed.and(self.reclaim_some(some)?);
        }
        reclaimed
    }

    /// One that is damaged stays, and does not keep the others: that is the inner result.
    fn reclaim_some(&self, inos: &[Ino]) -> Result<Result<()>> {
        let mut reclaimed = Ok(());
        let mut inos = self.store.view::<_, Error>(|view| {
            reclaimed = Ok(());
            let mut nameless = Vec::with_capacity(inos.len());
            for ino in inos {
                match view.inode(*ino) {
                    Ok(inode) if inode.is_none_or(|inode| inode.nlink == 0) => nameless.push(*ino),
                    Ok(_) => {}
                    Err(error @ Error::ItemDamaged { .. }) => reclaimed = Err(error),
                    Err(error) => return Err(error),
                }
            }
            Ok(nameless)
        })?;
        // What waits for space on a full host is in memory alone, and the tree names where it never arrived: it stays until that can be freed.
        self.history.prepare(Intent::Shrink)?;
        for ino in &inos {
            self.drop_staged(*ino);
        }
        // How far the first of them is freed.
        let mut from = Freeing::default();
        while !inos.is_empty() {
            // Of the others nothing is freed yet.
            let start = std::mem::take(&mut from);
            let freed = self.history.update::<_, Error>(Intent::Shrink, |tx| {
                let mut freed = 0;
                for (number, ino) in inos.iter().enumerate() {
                    let start = if number == 0 {
                        start
                    } else {
                        Freeing::default()
                    };
                    match self.free_some(tx, *ino, start)? {
                        Freed::Little => freed += 1,
                        Freed::Much => return Ok((freed + 1, Freeing::default())),
                        Freed::Part(next) => return Ok((freed, next)),
                    }
                }
                Ok((freed, Freeing::default()))
            });
            match freed {
                Ok((freed, next)) => {
                    invariant!(
                        self.store.media.alarm,
                        freed <= inos.len(),
                        "{freed} inodes of {} were freed",
                        inos.len()
                    );
                    inos.drain(..freed)
                        .for_each(|ino| self.truncations.remove(ino));
                    // One that is freed in part is the first of those that are left.
                    from = next;
                }
                Err(Error::ItemDamaged { ino, what }) if inos.contains(&ino) => {
                    inos.retain(|other| *other != ino);
                    reclaimed = Err(Error::ItemDamaged { ino, what });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(reclaimed)
    }

    /// Nothing is staged of a subvolume that is about to come before what is returned is dropped.
    pub(crate) fn hold_subvolume(&self, subvolume: SubvolumeId) -> ClosedSubvolume<'_> {
        self.closed.lock().insert(subvolume);
        ClosedSubvolume {
            data: self,
            subvolume,
            is_gone: false,
        }
    }

    /// The same of one that is about to go. What was staged of it is written, for it may stay after all; where there is no room for that it
    /// is given up.
    ///
    /// Only one deletes it: another's failing would open it again to writers.
    pub(crate) fn close_subvolume(&self, subvolume: SubvolumeId) -> Result<ClosedSubvolume<'_>> {
        self.store.meta().versions.scope(subvolume)?;
        if !self.closed.lock().insert(subvolume) {
            return Err(Error::NoSuchSnapshot);
        }
        let closed = self.hold_subvolume(subvolume);
        match self.commit_all(subvolume) {
            Ok(()) | Err(Error::NoSpace) => {}
            // So it is on a full host, as long as the deletion itself can be recorded there.
            Err(error) if error.passes() => self.history.prepare(Intent::Shrink)?,
            Err(error) => return Err(error),
        }
        for ino in self.files.all() {
            if ino.subvolume() == subvolume {
                self.drop_staged(ino);
            }
        }
        self.truncations.remove_subvolume(subvolume);
        Ok(closed)
    }

    /// Nothing of it is written any more.
    fn drop_staged(&self, ino: Ino) {
        if let Some(file) = self.files.get(ino) {
            let change = Change::begin(&file);
            let (excluded, mut staged) = change.exclude_write_back();
            self.space.release(staged.drop_dirty(0, u64::MAX));
            self.count_staged(&mut staged);
            staged.times = None;
            staged.damage = None;
            staged.size = Some(staged.committed_size);
            invariant_holds!(
                self.store.media.alarm,
                staged.dirty_blocks() == 0 && staged.frozen.is_empty(),
                "{} blocks of inode {ino}, which is gone, are staged",
                staged.staged_blocks()
            );
            drop(staged);
            drop(excluded);
            drop(change);
            self.files.forget_if_clean_of(ino, file);
        }
    }

    /// Adds to a transaction what frees an inode, or as much of that as one should hold. Before `from` it has nothing any more.
    fn free_some(&self, tx: &mut Transaction<'_>, ino: Ino, from: Freeing) -> Result<Freed> {
        let before = tx.len();
        let key = Key::inode(ino);
        let is_other = |kind| !matches!(kind, KeyKind::EXTENT | KeyKind::INODE);
        // Where a snapshot has the inode it goes first: then nothing of it has to be hidden.
        let is_shared = tx.find(|meta| meta.is_below(&key))? && tx.get(&key)?.is_some();
        if is_shared {
            let (owned, next) = tx.find(|meta| extents::some_owned(meta, ino, 0, DELTAS_END, 1))?;
            let has_own = !owned.is_empty() || next.is_some() || {
                let (items, next) = tx.owned_items(ino, Freeing::ITEMS, is_other, 1)?;
                !items.is_empty() || next.is_some()
            };
            if has_own {
                tx.delete(key);
                return Ok(Freed::Part(Freeing::default()));
            }
        } else if let Freeing::Extents(from) = from
            && let Some(next) = self.punch_some(tx, ino, from, free_end(from))?
        {
            return Ok(Freed::Part(Freeing::Extents(next)));
        }
        let from = match from {
            Freeing::Extents(_) => Freeing::ITEMS,
            Freeing::Items(place) => place,
        };
        let (items, next) = tx.owned_items(ino, from, is_other, EXTENTS_MAX)?;
        items.into_iter().for_each(|key| tx.delete(key));
        if let Some(place) = next {
            return Ok(Freed::Part(Freeing::Items(place)));
        }
        // An inode with nothing to it takes none of this.
        let little = tx.len() == before;
        tx.delete(Key::inode(ino));
        tx.delete(Key::orphan(ino));
        if tx.get(&Key::truncation(ino))?.is_some() {
            tx.delete(Key::truncation(ino));
        }
        Ok(if little { Freed::Little } else { Freed::Much })
    }
}

/// See [`FileData::hold_subvolume`].
pub(crate) struct ClosedSubvolume<'a> {
    data: &'a FileData,
    subvolume: SubvolumeId,
    is_gone: bool,
}

impl ClosedSubvolume<'_> {
    /// The subvolume is gone. It stays closed until another one has its number: a writer may have found it there before, and be about to
    /// stage something of it.
    pub(crate) fn stay(mut self) {
        self.is_gone = true;
    }
}

impl Drop for ClosedSubvolume<'_> {
    fn drop(&mut self) {
        if !self.is_gone {
            self.data.closed.lock().remove(&self.subvolume);
        }
    }
}

/// Where the blocks end, or the deltas, of which one at `from` is to be freed.
fn free_end(from: u64) -> u64 {
    if is_delta(from) {
        DELTAS_END
    } else {
        FILE_BLOCKS_END
    }
}

/// How far a transaction frees an inode.
enum Freed {
    /// All of it, and others can be freed in the same one.
    Little,
    /// All of it.
    Much,
    /// Not all: the rest begins here.
    Part(Freeing),
}

/// How far an inode is freed: first its extents, from a block on, then its other items, from one on.
#[derive(Clone, Copy)]
enum Freeing {
    Extents(u64),
    Items(Place),
}

impl Freeing {
    /// Before all items.
    const ITEMS: Place = (KeyKind(0), 0);
}

impl Default for Freeing {
    fn default() -> Freeing {
        Freeing::Extents(0)
    }
}

/// The holes in `from..to` between those of the extents there that have room.
fn holes(
    extents: &[MappedExtent],
    has_room: impl Fn(&MappedExtent) -> bool,
    from: u64,
    to: u64,
) -> Vec<(u64, u64)> {
    let mut holes = Vec::new();
    let mut done = from;
    for mapped in extents.iter().filter(|mapped| has_room(mapped)) {
        if mapped.block > done {
            holes.push((done, mapped.block));
        }
        done = done.max(mapped.end());
    }
    if done < to {
        holes.push((done, to));
    }
    holes
}

/// The blocks that a range has whole, in a file of this size: first, and end. The second is the smaller one where the range lies inside of one block.
pub(super) fn whole_blocks((offset, end): (u64, u64), size: u64) -> (u64, u64) {
    let unit = BLOCK_SIZE as u64;
    let last = match end >= size {
        true => blocks_in(end),
        false => end / unit,
    };
    (offset.div_ceil(unit), last)
}

/// Maps blocks as set aside.
pub(super) fn map_reserved(tx: &mut Transaction<'_>, ino: Ino, (mut start, end): (u64, u64)) {
    while start < end {
        let blocks = (end - start).min(RESERVED_BLOCKS_MAX.into()) as u32;
        tx.push(Op::Map {
            ino,
            block: start,
            extent: Extent::Reserved { blocks },
        });
        start += u64::from(blocks);
    }
}

/// Zeroes the staged part of a file's last block beyond `size`.
fn zero_from(staged: &mut Staged, size: u64) -> Result<()> {
    let within = (size % BLOCK_SIZE as u64) as usize;
    let block = block_of(size);
    if within > 0 && staged.is_dirty(block) {
        let content = staged.dirty_block(block, None)?;
        content.iter_mut().skip(within).for_each(|b| *b = 0);
    }
    Ok(())
}
