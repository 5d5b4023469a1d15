//! The staged data of one file: blocks that are not written back yet, in two layers. Writes go to the
//! dirty layer. A write-back batch freezes it into the frozen layer, which stays readable until the
//! batch is committed.

use std::collections::BTreeMap;

use persimmon_device::{BLOCK_SIZE, Buffer, BufferMut};
use persimmon_format::Lifetime;
use persimmon_format::extent::FRAME_BLOCKS_MAX;
use persimmon_format::inode::Timestamp;
use persimmon_sync::Alarm;

use super::growth::Growth;
use crate::error::{Error, Result};
use crate::invariant::{invariant, invariant_holds, invariant_sub};
use crate::meta::quota::Owners;

/// Times of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
}

/// What a writer says of the data. It is remembered with what is staged, and not otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteHint {
    /// How long it will live, in the place of what the file says.
    pub lifetime: Option<Lifetime>,
    /// Its blocks are stored as they are, whatever the compression of the file (`O_DIRECT`).
    pub whole_blocks: bool,
}

impl WriteHint {
    /// Of what is staged together, and was staged before: what was said last counts, and all of it is stored whole if some is to be.
    pub(super) fn after(self, before: WriteHint) -> WriteHint {
        WriteHint {
            lifetime: self.lifetime.or(before.lifetime),
            whole_blocks: self.whole_blocks || before.whole_blocks,
        }
    }
}

impl From<Option<Lifetime>> for WriteHint {
    fn from(lifetime: Option<Lifetime>) -> WriteHint {
        WriteHint {
            lifetime,
            whole_blocks: false,
        }
    }
}

/// A file whose last run has at least this many blocks is being written sequentially.
const SEQUENTIAL_BLOCKS: usize = FRAME_BLOCKS_MAX / 4;

/// The last run of a layer.
#[derive(Clone, Copy, Default)]
struct LastRun {
    /// The block behind it.
    end: u64,
    blocks: usize,
}

/// The staged part of a file.
#[derive(Default)]
pub(crate) struct Staged {
    /// Size with what is staged; `None` until loaded.
    pub(crate) size: Option<u64>,
    /// Size in the history.
    pub(crate) committed_size: u64,
    /// What the writers said of what is staged.
    pub(crate) hint: WriteHint,
    /// How the dirty layer made the file grow.
    pub(crate) growth: Growth,
    /// How the frozen layer made the file grow.
    pub(crate) frozen_growth: Growth,
    dirty: BTreeMap<u64, BufferMut>,
    dirty_blocks: u64,
    last_frozen: LastRun,
    pub(crate) frozen: BTreeMap<u64, Buffer>,
    /// Times of the last write not yet in the history.
    pub(crate) times: Option<Times>,
    pub(crate) frozen_times: Option<Times>,
    /// Blocks that are dirty are in the tree, at places where they did not arrive.
    pub(super) is_unarrived: bool,
    /// The file is in a write-back batch, or write-back of it is excluded. Only one of the two at a time.
    pub(crate) busy: bool,
    /// Somebody changes the file in several steps: all others who want to change it wait.
    pub(crate) changing: bool,
    /// Times that the file became shorter while it is in the table of files.
    pub(crate) cuts: u64,
    /// Grows whenever blocks move from staging to the tree or are dropped.
    pub(crate) version: u64,
    /// The latest change time that the file had, or was said to have.
    pub(crate) last_ctime: Timestamp,
    /// Whose it is, once the inode was looked at.
    pub(crate) owners: Option<Owners>,
    /// Staged blocks that are counted for the owners.
    pub(crate) counted: u64,
    /// It has a place in the queue of files with something staged. One that a sync has written keeps it.
    pub(crate) queued: bool,
    /// What keeps the file from being written: damage in its own items. What was staged has been given up, and nothing
    /// more is staged; as long as the file is there each sync of it answers this.
    pub(crate) damage: Option<Error>,
    alarm: Alarm,
}

impl Staged {
    /// Nothing; a state that cannot be raises this alarm.
    pub(crate) fn watched(alarm: &Alarm) -> Staged {
        Staged {
            alarm: alarm.clone(),
            ..Staged::default()
        }
    }

    pub(crate) fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// The size with what is staged, of a file that is loaded.
    pub(crate) fn loaded_size(&self) -> u64 {
        invariant_holds!(
            self.alarm,
            self.size.is_some(),
            "the size is asked for of a file that is not loaded"
        );
        self.size.unwrap_or(0)
    }

    pub(crate) fn is_clean(&self) -> bool {
        // The blocks that caused a size may have been punched out again: the size remains.
        let sized = self.size.is_none_or(|size| size == self.committed_size);
        let is_damaged = self.damage.is_some();
        self.dirty.is_empty() && self.times.is_none() && sized && !self.busy && !is_damaged
    }

    /// Damage in the file's items keeps all that is staged from ever being written: it is given up. The frozen layer is empty.
    /// Returns the blocks that were staged.
    pub(crate) fn give_up(&mut self, damage: &Error) -> u64 {
        let given_up = self.drop_dirty(0, u64::MAX);
        self.times = None;
        self.growth = Growth::default();
        if self.size.is_some() {
            self.size = Some(self.committed_size);
        }
        self.version += 1;
        invariant_holds!(
            self.alarm,
            self.dirty_blocks == 0,
            "{} dirty blocks are left of a file that is given up",
            self.dirty_blocks
        );
        self.damage = Some(damage.clone());
        given_up
    }

    pub(crate) fn dirty_blocks(&self) -> u64 {
        self.dirty_blocks
    }

    /// Blocks that are not in the history yet, or on their way there.
    pub(crate) fn staged_blocks(&self) -> u64 {
        let frozen = self.frozen.values().map(|run| u64::from(run.blocks()));
        self.dirty_blocks + frozen.sum::<u64>()
    }

    /// The first of the ranges of blocks that are not in the history yet, or on their way there: at most `limit`.
    pub(super) fn staged_ranges(&self, limit: usize) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let mut at = 0;
        while let Some((first, end)) = self.next_run(at) {
            let is_full = ranges.len() == limit;
            match ranges.last_mut() {
                Some(last) if last.1 == first => last.1 = end,
                _ if is_full => break,
                _ => ranges.push((first, end)),
            }
            at = end;
        }
        ranges
    }

    /// The run that holds a block, and the block's place in it.
    fn dirty_at(&self, block: u64) -> Option<(&BufferMut, usize)> {
        let (start, run) = self.dirty.range(..=block).next_back()?;
        let at = (block - start) as usize;
        (at < run.blocks()).then_some((run, at))
    }

    fn flying_at(&self, block: u64) -> Option<(&Buffer, usize)> {
        let (start, run) = self.frozen.range(..=block).next_back()?;
        let at = (block - start) as usize;
        (at < run.blocks() as usize).then_some((run, at))
    }

    /// Whether some of the blocks `first..end` are on their way to the device.
    pub(super) fn is_frozen_in(&self, first: u64, end: u64) -> bool {
        let before = self.frozen.range(..end).next_back();
        before.is_some_and(|(start, run)| start + u64::from(run.blocks()) > first)
    }

    pub(super) fn is_dirty(&self, block: u64) -> bool {
        self.dirty_at(block).is_some()
    }

    /// A staged block's content.
    pub(crate) fn block(&self, block: u64) -> Option<&[u8]> {
        let range = |at: usize| at * BLOCK_SIZE..(at + 1) * BLOCK_SIZE;
        match self.dirty_at(block) {
            Some((run, at)) => Some(&run[range(at)]),
            None => self.flying_at(block).map(|(run, at)| &run[range(at)]),
        }
    }

    /// Blocks of `first..end` that are not dirty yet.
    pub(crate) fn new_blocks(&self, first: u64, end: u64) -> u64 {
        let mut covered = 0;
        let before = self.dirty.range(..first).next_back();
        for (start, run) in before.into_iter().chain(self.dirty.range(first..end)) {
            let run_end = start + run.blocks() as u64;
            covered += run_end.min(end).saturating_sub((*start).max(first));
        }
        let is_less = invariant_holds!(
            self.alarm,
            covered <= end - first,
            "{covered} blocks from {first} to {end} are dirty"
        );
        if is_less {
            (end - first) - covered
        } else {
            end - first
        }
    }

    /// The file was changed at `now` by what is in the history: what is still dirty comes later
    /// and must not bring older times.
    pub(crate) fn changed(&mut self, now: Timestamp) {
        self.times = (self.dirty_blocks > 0).then_some(Times {
            mtime: now,
            ctime: self.last_ctime.max(now),
        });
    }

    /// The time of a change that is made now.
    pub(crate) fn change_time(&mut self, now: Timestamp) -> Timestamp {
        self.last_ctime = self.last_ctime.next(now);
        self.last_ctime
    }

    /// Whether any of what made the file grow is still dirty outside of these blocks.
    pub(crate) fn holds_growth_beside(&self, from: u64, to: u64) -> bool {
        let is_dirty =
            |first: u64, end: u64| first < end && self.new_blocks(first, end) < end - first;
        self.growth
            .blocks()
            .any(|(first, end)| is_dirty(first, end.min(from)) || is_dirty(first.max(to), end))
    }

    /// The dirty block, made so with `base` (zeros where there is none) if it is not yet.
    pub(crate) fn dirty_block(&mut self, block: u64, base: Option<&[u8]>) -> Result<&mut [u8]> {
        let is_new = !self.is_dirty(block);
        if is_new {
            self.add_zeros(block);
        }
        let (alarm, dirty) = (self.alarm.clone(), self.dirty_blocks);
        let out = self.dirty_slice(block, 1);
        let len = out.as_ref().map_or(0, |out| out.len());
        invariant!(
            alarm,
            len == BLOCK_SIZE,
            "block {block} has {len} bytes staged, of {dirty} dirty blocks"
        );
        let out = out.unwrap_or_default();
        if let Some(base) = base.filter(|_| is_new) {
            invariant!(
                alarm,
                base.len() == BLOCK_SIZE,
                "block {block} is staged upon {} bytes",
                base.len()
            );
            out.copy_from_slice(base);
        }
        Ok(out)
    }

    /// The next staged blocks at or after `block`: a range of them, perhaps with more right behind it.
    pub(crate) fn next_run(&self, block: u64) -> Option<(u64, u64)> {
        fn next<T>(
            layer: &BTreeMap<u64, T>,
            block: u64,
            blocks: impl Fn(&T) -> u64,
        ) -> Option<(u64, u64)> {
            let before = layer.range(..block).next_back();
            let runs = before.into_iter().chain(layer.range(block..).next());
            let mut runs = runs.map(|(start, run)| (*start, start + blocks(run)));
            runs.find(|(_, end)| *end > block)
        }
        let dirty = next(&self.dirty, block, |run| run.blocks() as u64);
        let frozen = next(&self.frozen, block, |run| run.blocks().into());
        let (start, end) = dirty.into_iter().chain(frozen).min()?;
        Some((start.max(block), end))
    }

    /// The content of a range, where all its blocks are dirty and in one run.
    pub(crate) fn dirty_bytes(&mut self, offset: u64, len: usize) -> Option<&mut [u8]> {
        let size = BLOCK_SIZE as u64;
        let (start, run) = self.dirty.range_mut(..=offset / size).next_back()?;
        let from = usize::try_from(offset - start * size).ok()?;
        run.get_mut(from..from.checked_add(len)?)
    }

    /// Up to `count` dirty blocks from `block` on, as far as they are one run.
    fn dirty_slice(&mut self, block: u64, count: usize) -> Option<&mut [u8]> {
        let (start, run) = self.dirty.range_mut(..=block).next_back()?;
        let at = (block - start) as usize;
        let end = (at + count).min(run.blocks());
        run.get_mut(at * BLOCK_SIZE..end * BLOCK_SIZE)
    }

    /// Adds a zero block that is not dirty, to the run before it if it follows that.
    fn add_zeros(&mut self, block: u64) {
        if let Some((_, run)) = self.run_before(block) {
            run.resize_blocks(run.blocks() + 1);
        } else {
            let mut run = self.new_run(block, 1);
            run.resize_blocks(1);
            self.begin_run(block, run);
        }
        self.dirty_blocks += 1;
    }

    /// Adds blocks with this content from `block` on, none of which is dirty, to the run before them if they follow it.
    fn add_blocks(&mut self, mut block: u64, bytes: &[u8]) {
        let mut rest = bytes;
        while rest.len() >= BLOCK_SIZE {
            let taken = if let Some((room, run)) = self.run_before(block) {
                run.extend(first_blocks(rest, room))
            } else {
                let some = first_blocks(rest, FRAME_BLOCKS_MAX);
                let mut run = self.new_run(block, some.len() / BLOCK_SIZE);
                let taken = run.extend(some);
                self.begin_run(block, run);
                taken
            };
            self.dirty_blocks += taken as u64;
            block += taken as u64;
            rest = rest.get(taken * BLOCK_SIZE..).unwrap_or_default();
        }
    }

    /// The dirty run that ends where a block begins, and how many more blocks it may get, if any.
    fn run_before(&mut self, block: u64) -> Option<(usize, &mut BufferMut)> {
        let (start, run) = self.dirty.range_mut(..=block).next_back()?;
        let blocks = run.blocks();
        let is_run = invariant_holds!(
            self.alarm,
            blocks <= FRAME_BLOCKS_MAX,
            "the run from block {start} on has {blocks} blocks, more than a frame may have"
        );
        let has_room = is_run && blocks < FRAME_BLOCKS_MAX;
        (has_room && start + blocks as u64 == block).then(|| (FRAME_BLOCKS_MAX - blocks, run))
    }

    /// Memory for a run of at least as many blocks. Where the blocks before were written one after the other, so will be those behind it: it
    /// gets room for all it may have, and is not copied as it grows.
    fn new_run(&self, block: u64, blocks: usize) -> BufferMut {
        let before = self.dirty.range(..block).next_back();
        let goes_on = before.is_some_and(|(start, run)| {
            start + run.blocks() as u64 == block && run.blocks() >= FRAME_BLOCKS_MAX
        });
        // A block that was frozen half full is the first of the next run.
        let frozen = self.last_frozen;
        let goes_on_frozen =
            frozen.blocks >= SEQUENTIAL_BLOCKS && (block == frozen.end || block + 1 == frozen.end);
        BufferMut::with_capacity(if goes_on || goes_on_frozen {
            FRAME_BLOCKS_MAX
        } else {
            blocks
        })
    }

    fn begin_run(&mut self, block: u64, run: BufferMut) {
        let before = self.dirty.insert(block, run);
        invariant_holds!(
            self.alarm,
            before.is_none(),
            "block {block} becomes dirty, and was"
        );
    }

    /// Writes whole blocks.
    pub(crate) fn write_blocks(&mut self, first: u64, bytes: &[u8]) -> Result<()> {
        let alarm = self.alarm.clone();
        invariant!(
            alarm,
            bytes.len().is_multiple_of(BLOCK_SIZE),
            "{} bytes are staged as whole blocks",
            bytes.len()
        );
        let count = bytes.len() / BLOCK_SIZE;
        let end = first + count as u64;
        let mut block = first;
        let mut rest = bytes;
        while block < end {
            let mut len = 0;
            let dirty = self.dirty_slice(block, (end - block) as usize);
            if let Some(out) = dirty.filter(|out| !out.is_empty()) {
                if let Some(now) = rest.get(..out.len()) {
                    out.copy_from_slice(now);
                    len = now.len();
                }
            } else {
                let next = self.dirty.range(block..end).next();
                let next = next.map_or(end, |(start, _)| *start);
                let new = first_blocks(rest, (next - block) as usize);
                self.add_blocks(block, new);
                len = new.len();
            }
            invariant!(
                alarm,
                len > 0,
                "nothing is staged from block {block} on, of {} bytes to write",
                rest.len()
            );
            block += (len / BLOCK_SIZE) as u64;
            rest = rest.get(len..).unwrap_or_default();
        }
        Ok(())
    }

    /// Drops dirty blocks `first..end`; returns how many.
    pub(crate) fn drop_dirty(&mut self, first: u64, end: u64) -> u64 {
        let touched: Vec<u64> = {
            let before = self.dirty.range(..first).next_back();
            before
                .into_iter()
                .chain(self.dirty.range(first..end))
                .map(|(start, _)| *start)
                .collect()
        };
        let mut dropped = 0;
        for start in touched {
            let Some(run) = self.dirty.get(&start) else {
                continue;
            };
            let run_end = start + run.blocks() as u64;
            let (from, to) = (start.max(first), run_end.min(end));
            if from >= to {
                continue;
            }
            dropped += to - from;
            let Some(run) = self.dirty.remove(&start) else {
                continue;
            };
            let run = run.freeze();
            let mut keep = |a: u64, b: u64| {
                if a < b {
                    let part = run.slice((a - start) as usize..(b - start) as usize);
                    self.dirty.insert(a, part.into_mut());
                }
            };
            keep(start, from);
            keep(to, run_end);
        }
        invariant_sub!(self.alarm, self.dirty_blocks, dropped, "dirty blocks");
        invariant_holds!(
            self.alarm,
            (self.dirty_blocks == 0) == self.dirty.is_empty(),
            "{} dirty blocks in {} runs",
            self.dirty_blocks,
            self.dirty.len()
        );
        self.version += u64::from(dropped > 0);
        dropped
    }

    /// Freezes the dirty layer. Returns the number of blocks in it.
    pub(crate) fn freeze(&mut self) -> u64 {
        invariant_holds!(
            self.alarm,
            self.frozen.is_empty() && !self.busy,
            "a file is frozen with {} runs frozen already",
            self.frozen.len()
        );
        if let Some((start, run)) = self.dirty.last_key_value() {
            let blocks = run.blocks();
            let end = start + blocks as u64;
            self.last_frozen = LastRun { end, blocks };
        }
        self.frozen = std::mem::take(&mut self.dirty)
            .into_iter()
            .map(|(start, run)| (start, run.freeze()))
            .collect();
        self.frozen_times = self.times.take();
        self.frozen_growth = std::mem::take(&mut self.growth);
        std::mem::take(&mut self.dirty_blocks)
    }

    /// The batch is written: the frozen data is in the tree.
    pub(crate) fn commit(&mut self) {
        invariant_holds!(
            self.alarm,
            self.busy,
            "a file is committed that is in no batch, with {} runs",
            self.frozen.len()
        );
        self.frozen.clear();
        self.frozen_times = None;
        self.is_unarrived = false;
        self.version += 1;
    }

    /// The batch failed: makes the frozen data dirty again, except where it was overwritten meanwhile.
    /// Returns the number of overwritten blocks.
    pub(crate) fn undo(&mut self) -> u64 {
        let mut overwritten = 0;
        for (start, run) in std::mem::take(&mut self.frozen) {
            for (i, content) in run.chunks_exact(BLOCK_SIZE).enumerate() {
                let block = start + i as u64;
                if self.is_dirty(block) {
                    overwritten += 1;
                } else {
                    // It is there, or the volume stops.
                    let _ = self.dirty_block(block, Some(content));
                }
            }
        }
        self.times = self.times.or(self.frozen_times.take());
        let later = std::mem::replace(&mut self.growth, std::mem::take(&mut self.frozen_growth));
        self.growth.append(later);
        overwritten
    }
}

/// As many blocks of the content, or all of it.
fn first_blocks(bytes: &[u8], blocks: usize) -> &[u8] {
    bytes
        .get(..blocks.saturating_mul(BLOCK_SIZE))
        .unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests from top to bottom")]

    use super::*;

    fn blocks(first: u8, count: usize) -> Vec<u8> {
        let numbers = (0..count).map(|at| first.wrapping_add(at as u8));
        numbers.flat_map(|number| [number; BLOCK_SIZE]).collect()
    }

    fn runs(staged: &Staged) -> Vec<(u64, usize)> {
        let runs = staged.dirty.iter();
        runs.map(|(start, run)| (*start, run.blocks())).collect()
    }

    /// Holes, overlaps and runs that are full: content and counts are those of one block after the other.
    #[test]
    fn blocks_are_staged_wherever_others_are() {
        let max = FRAME_BLOCKS_MAX;
        let mut staged = Staged::default();
        staged.write_blocks(10, &blocks(1, 3)).unwrap();
        staged.write_blocks(16, &blocks(4, 2)).unwrap();
        // Over a part of the first, the hole, and all of the second; then behind it.
        staged.write_blocks(12, &blocks(20, 8)).unwrap();
        assert_eq!(runs(&staged), [(10, 6), (16, 4)]);
        assert_eq!(staged.dirty_blocks(), 10);
        for (block, number) in [(10, 1), (11, 2), (12, 20), (15, 23), (16, 24), (19, 27)] {
            assert_eq!(staged.block(block), Some(&[number; BLOCK_SIZE][..]));
        }
        assert_eq!(staged.block(20), None);
        // The run is filled, and a second one begins behind it.
        staged.write_blocks(20, &blocks(0, max)).unwrap();
        assert_eq!(runs(&staged), [(10, 6), (16, max), (16 + max as u64, 4)]);
        let last = 19 + max as u64;
        assert_eq!(staged.block(last).unwrap()[0], (max - 1) as u8);
        staged.dirty_block(last + 1, None).unwrap()[0] = 9;
        assert_eq!(staged.block(last + 1).unwrap()[..2], [9, 0]);
        assert_eq!(staged.dirty_blocks(), 10 + max as u64 + 1);
    }

    /// A log is frozen each time that it has grown by some hundred blocks: each run was copied twice while it grew.
    #[test]
    fn a_file_that_goes_on_gets_memory_for_whole_runs() {
        let capacity = |staged: &Staged| {
            let (_, run) = staged.dirty.last_key_value().unwrap();
            run.capacity_blocks()
        };
        let mut staged = Staged::default();
        staged.write_blocks(0, &blocks(1, 1)).unwrap();
        assert!(capacity(&staged) < FRAME_BLOCKS_MAX);
        staged.freeze();
        staged.frozen.clear();
        // What was frozen was small.
        staged
            .write_blocks(0, &blocks(1, SEQUENTIAL_BLOCKS))
            .unwrap();
        assert!(capacity(&staged) < FRAME_BLOCKS_MAX);
        staged.freeze();
        staged.frozen.clear();
        // The last one is written again, for it was half full.
        let last = SEQUENTIAL_BLOCKS as u64 - 1;
        staged.dirty_block(last, Some(&blocks(7, 1))).unwrap();
        assert!(capacity(&staged) >= FRAME_BLOCKS_MAX);
        assert_eq!(staged.block(last).unwrap(), blocks(7, 1));
        staged.write_blocks(9000, &blocks(1, 1)).unwrap();
        assert!(capacity(&staged) < FRAME_BLOCKS_MAX, "elsewhere");
    }
}
