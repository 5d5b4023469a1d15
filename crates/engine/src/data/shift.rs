//! Ranges taken out of a file, and holes put into it: everything behind moves to other blocks of the file. Extents change their keys, and
//! no data is written, but for what cannot change its key: see [`Moved`].
//!
//! One record takes the extents out and puts them back, with the new size. A file with more of them than one record should hold moves window
//! by window: each record leaves a file in which what was not moved yet is where it was, and a crash may leave that.
//!
//! A recovery does not ask whether what a record moves has arrived: it was there before. But for where a block was packed no record tells, so
//! that is made durable before.

use persimmon_device::BLOCK_SIZE;
use persimmon_format::Ino;
use persimmon_format::delta::{block_at, place_of};
use persimmon_format::extent::{Extent, FILE_BLOCKS_END, FRAME_BLOCKS_MAX};
use persimmon_format::inode::Timestamp;
use persimmon_format::log::RECORD_LEN_MAX;
use persimmon_format::packed::COMPRESSED_BLOCKS_MAX;
use persimmon_format::record::{Op, Share, Touch};
use persimmon_sync::atomic::Ordering;

use super::files::{Change, File, WriteBackExcluded};
use super::growth::Growth;
use super::{FileData, OFFSET_MAX};
use crate::error::{Error, Result};
use crate::meta::extents::{self, MappedExtent};
use crate::meta::versions::Scope;
use crate::meta::{Intent, Meta, Transaction, View, deltas, sharing};

/// Extents that one look sees.
const LOOK_MAX: usize = 256;
/// Extents that one record moves at most.
const ITEMS_MAX: usize = 4096;
/// The same for each operation that a transaction should have at most: neighbours lie in one page.
const ITEMS_PER_OP: usize = 64;
/// Bytes of these, as the tree holds them, for each such operation.
const BYTES_PER_OP: usize = 8 << 10;
/// Bytes of the tree that an item takes beside its value.
const ITEM_BYTES: usize = 25;
/// Blocks that one operation shares.
const SHARED_RUN_MAX: u64 = 64 * FRAME_BLOCKS_MAX as u64;

/// What becomes of a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// It is taken out: what is behind follows what is before. The file has that much less.
    Collapse,
    /// It is put in, as a hole: what is there and behind it moves back. The file has that much more.
    Insert,
}

/// Blocks that move, from the first to past the last.
type Window = (u64, u64);

/// A window that one record moves.
struct Planned {
    window: Window,
    /// Some of it becomes shared blocks, which makes the tree larger.
    shares: bool,
}

/// A shift of whole blocks.
#[derive(Clone, Copy, Debug)]
struct Move {
    ino: Ino,
    how: Shift,
    /// Where the range begins.
    at: u64,
    /// How many blocks it has.
    by: u64,
}

impl Move {
    /// All blocks that move.
    fn all(&self) -> Window {
        (self.first(), FILE_BLOCKS_END)
    }

    /// The first block that moves.
    fn first(&self) -> u64 {
        match self.how {
            Shift::Collapse => self.at + self.by,
            Shift::Insert => self.at,
        }
    }

    /// Where a block goes.
    fn target(&self, block: u64) -> u64 {
        match self.how {
            Shift::Collapse => block - self.by,
            Shift::Insert => block + self.by,
        }
    }
}

/// How an extent gets to another block of its file.
enum Moved {
    /// It is mapped there as it is: the file's own, or content that lies in the tree.
    Mapped,
    /// It becomes a shared one, or is one: what a snapshot has stays the snapshot's.
    Shared,
    /// There is nothing in it that is the file's.
    Left,
    /// Not at all. It is written anew first: what a snapshot has and cannot be shared, and parts of a compressed frame that begins
    /// before the first block that moves, for all of them have to lie as far from each other as they were written.
    Written,
}

/// How far a step came.
enum Step {
    Done,
    /// Something has to be written anew before, or made durable.
    Stuck,
}

/// What a record of this volume moves at most.
#[derive(Clone, Copy)]
struct Bounds {
    items: usize,
    bytes: usize,
}

impl FileData {
    /// Takes a range out of a file or puts a hole into it, both of whole blocks.
    ///
    /// # Errors
    /// [`Error::NotBeforeEnd`]: the range to take out does not end before the file does, or the hole does not begin before that.
    pub fn shift(
        &self,
        ino: Ino,
        (offset, len): (u64, u64),
        how: Shift,
        now: Timestamp,
    ) -> Result<()> {
        let end = offset.checked_add(len).filter(|end| *end <= OFFSET_MAX);
        let end = end.ok_or(Error::TooLarge)?;
        self.change(ino, |change, file| {
            let size = change.size();
            let new_size = match how {
                Shift::Collapse if end < size => size - len,
                Shift::Insert if offset < size => size
                    .checked_add(len)
                    .filter(|size| *size <= OFFSET_MAX)
                    .ok_or(Error::TooLarge)?,
                _ => return Err(Error::NotBeforeEnd),
            };
            let unit = BLOCK_SIZE as u64;
            let (at, by) = (offset / unit, len / unit);
            let shift = Move { ino, how, at, by };
            self.shift_in(&shift, (change, file), new_size, now)
        })
    }

    fn shift_in(
        &self,
        shift: &Move,
        (change, file): (&Change<'_>, &File),
        new_size: u64,
        now: Timestamp,
    ) -> Result<()> {
        let old_size = change.size();
        let mut left = shift.all();
        let shifted = self.shift_all(shift, (change, file), &mut left, (new_size, now));
        let mut staged = file.lock();
        // Where it fails half way, the file is as long as the records say: an insertion brings the size with its first window.
        let has_begun = left != shift.all();
        let is_longer = has_begun && shift.how == Shift::Insert;
        let size = match shifted.is_ok() || is_longer {
            true => new_size,
            false => old_size,
        };
        staged.size = Some(size);
        if shifted.is_ok() || has_begun {
            staged.committed_size = size;
            staged.growth = Growth::default();
            staged.version += 1;
            staged.changed(now);
            // A concurrent reader may have seen blocks from before and from after the shift.
            self.files.note_cut(&mut staged);
        }
        shifted
    }

    fn shift_all(
        &self,
        shift: &Move,
        (change, file): (&Change<'_>, &File),
        left: &mut Window,
        (new_size, now): (u64, Timestamp),
    ) -> Result<()> {
        let old_size = change.size();
        loop {
            // No batch maps blocks where they were.
            let (_excluded, windows) = self.settle_to_shift(shift, (change, file), *left)?;
            let has_begun = match shift.how {
                Shift::Insert => Ok(false),
                Shift::Collapse => {
                    // Who reads finds the new end before blocks have moved below it.
                    self.files.cut(file, new_size);
                    self.punch_long(shift, file, *left, now)
                }
            };
            let step = has_begun.and_then(|has_begun| {
                let windows = (windows, &mut *left, has_begun);
                self.shift_windows(shift, file, windows, (new_size, now))
            });
            if shift.how == Shift::Collapse && !matches!(step, Ok(Step::Done)) {
                // The last record brings the new end. Nobody who writes the file back meanwhile brings it before.
                let mut staged = file.lock();
                staged.size = Some(old_size);
                self.files.note_cut(&mut staged);
            }
            if matches!(step?, Step::Done) {
                return Ok(());
            }
        }
    }

    /// Has nothing of the file staged, and everything that is left in a shape to move, in windows.
    fn settle_to_shift<'c>(
        &self,
        shift: &Move,
        (change, file): (&'c Change<'_>, &File),
        left: Window,
    ) -> Result<(WriteBackExcluded<'c>, Vec<Planned>)> {
        let mut windows = Vec::new();
        loop {
            self.commit_file(shift.ino)?;
            let (excluded, staged) = change.exclude_write_back();
            let dirty = staged.dirty_blocks();
            drop(staged);
            // What is staged is mapped first: the tree alone tells what there is.
            if dirty == 0 && !self.plan_windows(shift, file, left, &mut windows)? {
                return Ok((excluded, windows));
            }
        }
    }

    /// Moves windows, in the order in which each finds its target free. `left` is what was not moved yet; something may be gone before
    /// that.
    fn shift_windows(
        &self,
        shift: &Move,
        file: &File,
        (mut windows, left, has_begun): (Vec<Planned>, &mut Window, bool),
        (new_size, now): (u64, Timestamp),
    ) -> Result<Step> {
        if shift.how == Shift::Insert {
            windows.reverse();
        }
        let unlogged = || self.store.unlogged_changes.load(Ordering::Relaxed);
        let durable = unlogged();
        if durable > 0 {
            self.store.media.flush()?;
        }
        for (number, Planned { window, shares }) in windows.iter().enumerate() {
            let has_begun = has_begun || *left != shift.all();
            // What is half moved is moved to its end: that takes the room that it frees.
            let intent = match has_begun && !shares {
                true => Intent::Shrink,
                false => Intent::Grow,
            };
            let ctime = file.lock().change_time(now);
            // The file is as long as what it has: longer before, shorter after.
            let brings_size = match shift.how {
                Shift::Collapse => number + 1 == windows.len(),
                Shift::Insert => true,
            };
            let set = Touch {
                size: brings_size.then_some(new_size),
                mtime: Some(now),
                ctime: Some(ctime),
                ..Touch::default()
            };
            let step = self.update::<_, Error>(intent, |tx| {
                if unlogged() != durable {
                    return Ok(Step::Stuck);
                }
                let step = self.push_window(tx, shift, *window)?;
                if matches!(step, Step::Done) {
                    tx.touch(shift.ino, set);
                }
                Ok(step)
            })?;
            match (step, shift.how) {
                (Step::Stuck, _) => return Ok(Step::Stuck),
                (Step::Done, Shift::Collapse) => left.0 = window.1,
                (Step::Done, Shift::Insert) => {
                    left.1 = window.0;
                    let mut staged = file.lock();
                    staged.size = Some(new_size);
                    staged.committed_size = new_size;
                }
            }
        }
        Ok(Step::Done)
    }

    fn bounds(&self) -> Bounds {
        let ops = self.store.transaction_ops_max();
        Bounds {
            items: (ops * ITEMS_PER_OP).min(ITEMS_MAX),
            bytes: (ops * BYTES_PER_OP).min(RECORD_LEN_MAX / 2),
        }
    }

    /// Cuts what is left to move into windows, and stages what has to be written anew before it can move. Answers whether there was any:
    /// then it is to be written, and this to be called again. Nothing of the file is dirty, and nobody else changes it meanwhile.
    fn plan_windows(
        &self,
        shift: &Move,
        file: &File,
        left: Window,
        windows: &mut Vec<Planned>,
    ) -> Result<bool> {
        let bounds = self.bounds();
        let (mut from, mut items, mut bytes) = (left.0, 0, 0);
        if let Some(known) = windows.pop() {
            from = known.window.0;
        }
        let mut start = from;
        let mut shares = false;
        let planned = |window, shares| Planned { window, shares };
        while from < left.1 {
            let look = self.store.view::<_, Error>(|view| {
                self.look_at_window(view, shift.ino, start, (from, left.1))
            })?;
            let is_past_end =
                shift.how == Shift::Insert && shift.target(look.end_of_last) > FILE_BLOCKS_END;
            if is_past_end {
                return Err(Error::TooLarge);
            }
            if !look.to_write.is_empty() {
                for (first, end) in look.to_write {
                    self.stage_stored(shift.ino, file, first..end)?;
                }
                windows.push(planned((start, left.1), shares));
                return Ok(true);
            }
            if items > 0 && (items + look.items > bounds.items || bytes + look.bytes > bounds.bytes)
            {
                windows.push(planned((start, from), shares));
                (start, items, bytes, shares) = (from, 0, 0, false);
                // What of a compressed frame lies on both sides is found with this beginning.
                continue;
            }
            items += look.items;
            bytes += look.bytes;
            shares |= look.shares;
            from = look.reach;
        }
        windows.push(planned((start, left.1), shares));
        Ok(false)
    }

    /// Looks at the first extents of `from..to`, of a window that begins at `start`.
    fn look_at_window(
        &self,
        view: &View<'_>,
        ino: Ino,
        start: u64,
        (from, to): Window,
    ) -> Result<Look> {
        let scope = view.find(|meta| Ok(meta.versions.at(ino)?.scope))?;
        let (found, more) = view.find(|meta| extents::some_shown(meta, ino, from, to, LOOK_MAX))?;
        let mut reach = more.unwrap_or(to);
        let (deltas, more) = view.find(|meta| deltas::some_of(meta, ino, from, reach, LOOK_MAX))?;
        reach = more.unwrap_or(reach);
        let mut look = Look {
            reach,
            ..Look::default()
        };
        for mapped in found.iter().filter(|mapped| mapped.block < reach) {
            let (first, end) = (mapped.block.max(from), mapped.end().min(reach));
            look.count(&mapped.extent);
            look.end_of_last = end;
            match view.find(|meta| self.how_moved(meta, ino, &scope, start, mapped))? {
                Moved::Written if look.blocks_to_write() < LOOK_MAX as u64 => {
                    let end = end.min(first + LOOK_MAX as u64);
                    look.to_write.push((first, end));
                }
                Moved::Shared => look.shares = true,
                Moved::Mapped | Moved::Left | Moved::Written => {}
            }
        }
        for delta in &deltas {
            look.count(&delta.extent);
            if !self.may_map(&scope, delta) && look.blocks_to_write() < LOOK_MAX as u64 {
                let block = block_at(delta.block);
                look.to_write.push((block, block + 1));
            }
        }
        Ok(look)
    }

    /// How an extent moves, of a window that begins at `start`.
    fn how_moved(
        &self,
        meta: &Meta,
        ino: Ino,
        scope: &Scope,
        start: u64,
        mapped: &MappedExtent,
    ) -> Result<Moved> {
        if let Extent::Packed(packed) = &mapped.extent {
            let frame = packed.frame_at(mapped.block);
            let is_cut = frame.is_none_or(|(first, _)| first < start);
            // Between being taken out and put where it belongs, nothing would name its dictionary.
            if is_cut || packed.dictionary().is_some() {
                return Ok(Moved::Written);
            }
        }
        let is_own = scope.owns(mapped.version);
        Ok(match &mapped.extent {
            Extent::Reserved { .. } if !is_own => Moved::Left,
            _ if self.may_map(scope, mapped) => Moved::Mapped,
            _ if self.store.has_shared_blocks() && sharing::may_move(meta, ino, mapped)? => {
                Moved::Shared
            }
            _ => Moved::Written,
        })
    }

    /// Whether a record may map an extent at another block: nobody else has it there, or it is content that is copied with it.
    fn may_map(&self, scope: &Scope, mapped: &MappedExtent) -> bool {
        match mapped.extent {
            Extent::Inline(_) | Extent::Compressed(_) => true,
            Extent::Shared { .. } | Extent::Hole { .. } => false,
            // No record of a volume without frames has one.
            Extent::Packed(_) if !self.store.has_frames() => false,
            Extent::Frame { .. } | Extent::Packed(_) | Extent::Reserved { .. } => {
                scope.owns(mapped.version)
            }
        }
    }

    /// Adds to a transaction what moves a window: all that is there is taken out, with the range that is collapsed, and put where it
    /// belongs. What is shared waits meanwhile behind all blocks of the file, for no record maps a shared extent.
    fn push_window(&self, tx: &mut Transaction<'_>, shift: &Move, window: Window) -> Result<Step> {
        let Move { ino, .. } = *shift;
        let (from, to) = window;
        // Twice as many as were planned: cleaning may have cut some.
        let limit = 2 * self.bounds().items + LOOK_MAX;
        let scope = tx.find(|meta| Ok(meta.versions.at(ino)?.scope))?;
        let found = tx.extents(ino, from, to, limit)?;
        let deltas = tx.find(|meta| deltas::of_blocks(meta, ino, from, to, limit))?;
        if found.len() >= limit || deltas.len() >= limit {
            return Ok(Step::Stuck);
        }
        let (mut mapped, mut runs): (Vec<(u64, Extent)>, Vec<Window>) = (Vec::new(), Vec::new());
        for one in &found {
            let (first, end) = (one.block.max(from), one.end().min(to));
            match tx.find(|meta| self.how_moved(meta, ino, &scope, from, one))? {
                Moved::Mapped => {
                    mapped.push((first, one.extent.part(first - one.block, end - first)))
                }
                Moved::Shared => match runs.last_mut() {
                    Some(run) if run.1 == first && end - run.0 <= SHARED_RUN_MAX => run.1 = end,
                    _ => runs.push((first, end)),
                },
                Moved::Left => {}
                Moved::Written => return Ok(Step::Stuck),
            }
        }
        let is_cut = self.is_frame_cut(tx, ino, window)?;
        if is_cut || deltas.iter().any(|delta| !self.may_map(&scope, delta)) {
            return Ok(Step::Stuck);
        }
        let parked = self.park(tx, ino, &runs)?;
        for share in &parked {
            tx.push(Op::Share(*share));
        }
        let collapses = shift.how == Shift::Collapse && from == shift.first();
        let taken_from = if collapses { shift.at } else { from };
        // Not to the end of all blocks: there is what waits.
        let taken_to = found.last().map_or(from, |last| last.end().min(to));
        if taken_from < taken_to {
            tx.push(Op::Punch {
                ino,
                from: taken_from,
                to: taken_to,
            });
        }
        for (block, extent) in mapped {
            tx.push(Op::Map {
                ino,
                block: shift.target(block),
                extent,
            });
        }
        for share in parked {
            tx.push(Op::Share(Share {
                from: ino,
                from_block: share.to_block,
                to: ino,
                to_block: shift.target(share.from_block),
                ..share
            }));
            tx.push(Op::Punch {
                ino,
                from: share.to_block,
                to: share.to_block + share.blocks,
            });
        }
        for delta in deltas {
            tx.push(Op::Map {
                ino,
                block: place_of(shift.target(block_at(delta.block))),
                extent: delta.extent,
            });
        }
        Ok(Step::Done)
    }

    /// Whether parts of a compressed frame lie on both sides of a window's end.
    fn is_frame_cut(&self, tx: &Transaction<'_>, ino: Ino, (_, to): Window) -> Result<bool> {
        let end = to.saturating_add(COMPRESSED_BLOCKS_MAX as u64);
        let behind = tx.extents(ino, to, end.min(FILE_BLOCKS_END), usize::MAX)?;
        Ok(behind.iter().any(|mapped| match &mapped.extent {
            Extent::Packed(packed) => {
                let frame = packed.frame_at(mapped.block);
                frame.is_none_or(|(first, _)| first < to)
            }
            _ => false,
        }))
    }

    /// Where shared runs wait: behind all blocks of the file, each with a place in the store.
    fn park(&self, tx: &Transaction<'_>, ino: Ino, runs: &[Window]) -> Result<Vec<Share>> {
        let blocks: u64 = runs.iter().map(|(first, end)| end - first).sum();
        if blocks == 0 {
            return Ok(Vec::new());
        }
        let spread = blocks + runs.len() as u64 * sharing::APART;
        let place = tx.find(|meta| Ok(sharing::free_place(meta, spread)))?;
        let mut place = place.ok_or(Error::NoSpace)?;
        let mut to_block = FILE_BLOCKS_END - blocks;
        if !tx.extents(ino, to_block, FILE_BLOCKS_END, 1)?.is_empty() {
            return Err(Error::TooLarge);
        }
        let mut parked = Vec::with_capacity(runs.len());
        for (first, end) in runs {
            let blocks = end - first;
            parked.push(Share {
                from: ino,
                from_block: *first,
                to: ino,
                to_block,
                blocks,
                at: place,
            });
            to_block += blocks;
            place += blocks + sharing::APART;
        }
        Ok(parked)
    }

    /// Punches a range that is to be collapsed, where it holds more than one record should remove. Answers whether it does.
    fn punch_long(&self, shift: &Move, file: &File, left: Window, now: Timestamp) -> Result<bool> {
        if left.0 != shift.first() {
            return Ok(false);
        }
        let (start, end) = (shift.at, shift.at + shift.by);
        let items_max = self.bounds().items;
        let is_long = self.store.view::<_, Error>(|view| {
            let (_, more) =
                view.find(|meta| extents::some_shown(meta, shift.ino, start, end, items_max))?;
            let deltas =
                view.find(|meta| deltas::of_blocks(meta, shift.ino, start, end, items_max))?;
            Ok(more.is_some() || deltas.len() >= items_max)
        })?;
        if !is_long {
            return Ok(false);
        }
        let punched = self.punch_all(shift.ino, start, end);
        let mut staged = file.lock();
        // Some of it may be gone also where the rest failed: nobody may take it for what is still mapped.
        staged.version += 1;
        staged.changed(now);
        punched.map(|()| true)
    }

    fn punch_all(&self, ino: Ino, start: u64, end: u64) -> Result<()> {
        let mut from = Some(start);
        while let Some(start) = from {
            from = self
                .history
                .update::<_, Error>(Intent::Shrink, |tx| self.punch_some(tx, ino, start, end))?;
        }
        Ok(())
    }
}

/// What is seen of the extents that are to move.
#[derive(Default)]
struct Look {
    items: usize,
    bytes: usize,
    /// Up to which block that is all.
    reach: u64,
    end_of_last: u64,
    /// Blocks to write anew.
    to_write: Vec<Window>,
    shares: bool,
}

impl Look {
    fn count(&mut self, extent: &Extent) {
        self.items += 1;
        self.bytes += ITEM_BYTES + extent.encode().len();
    }

    fn blocks_to_write(&self) -> u64 {
        self.to_write.iter().map(|(first, end)| end - first).sum()
    }
}
