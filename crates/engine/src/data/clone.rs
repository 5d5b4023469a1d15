//! Clones: blocks of one file become blocks of another too, and nothing is copied. What one of them writes then is its own.

use persimmon_device::BLOCK_SIZE;
use persimmon_format::Ino;
use persimmon_format::extent::{Extent, FRAME_BLOCKS_MAX};
use persimmon_format::inode::{FLAG_PREALLOCATED, Timestamp};
use persimmon_format::record::{Op, Share, Touch};

use super::equal::reaches_into;
use super::files::{Change, File};
use super::growth::Growth;
use super::{FileData, blocks_in};
use crate::error::{Error, Result};
use crate::meta::extents::{self, MappedExtent};
use crate::meta::{Intent, Meta, deltas, sharing};

/// Extents of the source that one record shares.
pub(super) const EXTENTS_MAX: usize = 64;

/// Blocks of an extent behind one that is copied from which on it is shared, and not copied with it.
const SHARED_BLOCKS_MIN: u64 = 8;

/// What is cloned, in bytes; each offset is the beginning of a block.
#[derive(Clone, Copy, Debug)]
pub struct CloneRange {
    /// The file that has it.
    pub from: Ino,
    /// Where.
    pub from_offset: u64,
    /// The file that is to have it too.
    pub to: Ino,
    /// Where.
    pub to_offset: u64,
    /// How much: whole blocks, or all up to the end of both files.
    pub len: u64,
    /// On which condition.
    pub when: CloneWhen,
}

/// On which condition a range is cloned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CloneWhen {
    /// Whatever the target has there.
    #[default]
    Always,
    /// As far as the target has the same bytes there, in whole blocks and the last block of both files. They are compared while neither file
    /// can be changed. Sizes and times stay: no reader sees a change. A call compares 16 MiB at most.
    Equal {
        /// Fewer bytes are left as they are.
        least: u64,
    },
    /// The same, but nothing is changed: the answer tells what would be.
    WouldBeEqual {
        /// Fewer bytes would be left as they are.
        least: u64,
    },
    /// Where the target's bytes take markedly less with the source's as a dictionary, they are compressed so. Nothing that either file has
    /// changes. A call looks at 16 MiB at most. Only on volumes with the feature
    /// [`DICTIONARIES`](persimmon_format::zone_header::DICTIONARIES).
    Near,
}

/// How far a clone came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cloned {
    /// Bytes of the range that the target has now, from its beginning.
    pub bytes: u64,
    /// How many behind them have to be copied before more may be cloned; those behind the range count too. With a condition, 0.
    pub to_copy: u64,
    /// Of [`Cloned::bytes`] those that both files have in one place now, and had in two, or not at all. The others are in one place already,
    /// or each file keeps its own: small content in the tree, single compressed blocks, preallocated files. With [`CloneWhen::Near`] the
    /// bytes that the target takes less on the device.
    pub shared: u64,
}

impl Cloned {
    /// All is to be copied.
    pub const NOTHING: Cloned = Cloned {
        bytes: 0,
        to_copy: u64::MAX,
        shared: 0,
    };
    /// Nothing is equal.
    pub(super) const NONE: Cloned = Cloned {
        bytes: 0,
        to_copy: 0,
        shared: 0,
    };
}

/// What is done to the next blocks of the target.
enum Step {
    /// They become shared.
    Share,
    /// What the tree has of them is put there again.
    Map(Extent),
    /// They are a hole.
    Punch,
    /// They are to be read and written.
    Copy,
}

impl FileData {
    /// Extents that one record may share: each takes several changes of the tree.
    pub(super) fn shared_extents_max(&self) -> usize {
        EXTENTS_MAX.min(self.store.transaction_ops_max() / 4).max(1)
    }

    /// Clones a range, up to the first block that has to be copied instead.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: the tree has no room. The files are changed as far as the answer says.
    pub fn clone_range(&self, range: &CloneRange, now: Timestamp) -> Result<Cloned> {
        if !matches!(range.when, CloneWhen::WouldBeEqual { .. }) {
            self.store.check_changeable(range.to)?;
        }
        if !self.store.has_shared_blocks() || range.len == 0 {
            return Ok(match range.when {
                CloneWhen::Always => Cloned::NOTHING,
                CloneWhen::Equal { .. } | CloneWhen::WouldBeEqual { .. } | CloneWhen::Near => {
                    Cloned::NONE
                }
            });
        }
        let target = self.load(range.to)?;
        let cloned = if range.from == range.to {
            self.begin_change(range.to, &target)
                .and_then(|change| self.clone_between(range, (&change, &change), &target, now))
        } else {
            let source = self.load(range.from)?;
            let cloned = self.clone_from(range, &source, &target, now);
            self.files.forget_if_clean_of(range.from, source);
            cloned
        };
        self.files.forget_if_clean_of(range.to, target);
        cloned
    }

    /// Clones between two files. Changes begin in the order of their numbers.
    fn clone_from(
        &self,
        range: &CloneRange,
        source: &File,
        target: &File,
        now: Timestamp,
    ) -> Result<Cloned> {
        if range.from < range.to {
            let of_source = self.begin_change(range.from, source)?;
            let of_target = self.begin_change(range.to, target)?;
            self.clone_between(range, (&of_source, &of_target), target, now)
        } else {
            let of_target = self.begin_change(range.to, target)?;
            let of_source = self.begin_change(range.from, source)?;
            self.clone_between(range, (&of_source, &of_target), target, now)
        }
    }

    fn clone_between(
        &self,
        range: &CloneRange,
        (source, target): (&Change<'_>, &Change<'_>),
        file: &File,
        now: Timestamp,
    ) -> Result<Cloned> {
        // What is staged is mapped first: the tree alone tells what there is.
        let one = range.from == range.to;
        let (_excluded, _of_source, target_size) = loop {
            self.commit_file(range.from)?;
            self.commit_file(range.to)?;
            let (of_target, staged) = target.exclude_write_back();
            let (dirty, size) = (staged.dirty_blocks(), staged.loaded_size());
            drop(staged);
            let (of_source, dirty_source) = if one {
                (None, 0)
            } else {
                let (of_source, mut staged) = source.exclude_write_back();
                // What a writer found out about its blocks will be wrong: overwriting what is shared frees nothing.
                staged.version += 1;
                (Some(of_source), staged.dirty_blocks())
            };
            if dirty == 0 && dirty_source == 0 {
                break (of_target, of_source, size);
            }
        };
        let source_size = source.size();
        let condition = match range.when {
            CloneWhen::Always => None,
            CloneWhen::Equal { least } => Some((least, true)),
            CloneWhen::WouldBeEqual { least } => Some((least, false)),
            CloneWhen::Near => {
                let packed = self.pack_near(range, (source_size, target_size));
                file.lock().version += 1;
                return packed;
            }
        };
        if let Some(condition) = condition {
            let cloned = self.share_equal(range, condition, (source_size, target_size));
            file.lock().version += 1;
            return cloned;
        }
        let len = range.len.min(source_size.saturating_sub(range.from_offset));
        let end = range.to_offset + len;
        // The block that the source ends in has zeros behind its end: the target may have it where it ends there too.
        let ends_both = range.from_offset + len == source_size && end >= target_size;
        let len = if len.is_multiple_of(BLOCK_SIZE as u64) || ends_both {
            len
        } else {
            len - len % BLOCK_SIZE as u64
        };
        // A range over itself: what it puts in place of its own blocks would be gone before it is cloned.
        let apart = range.from_offset.abs_diff(range.to_offset) / BLOCK_SIZE as u64;
        if one && apart < blocks_in(len) {
            return Ok(Cloned::NOTHING);
        }
        let ctime = file.lock().change_time(now);
        let mut cloned = Cloned::NOTHING;
        let ended = self.clone_steps(range, len, (now, ctime), &mut cloned);
        let mut staged = file.lock();
        let size = staged.loaded_size();
        let size = size.max(range.to_offset + cloned.bytes);
        if cloned.bytes > 0 {
            staged.size = Some(size);
            staged.committed_size = size;
            staged.growth = Growth::default();
            staged.version += 1;
            staged.changed(now);
            // The next call for the rest returns the error.
            return Ok(cloned);
        }
        ended.map(|()| cloned)
    }

    /// Clones `len` bytes step by step, up to the first that have to be copied. Nothing of the files is staged, and nobody else changes them.
    fn clone_steps(
        &self,
        range: &CloneRange,
        len: u64,
        (mtime, ctime): (Timestamp, Timestamp),
        cloned: &mut Cloned,
    ) -> Result<()> {
        let (from, to) = (
            range.from_offset / BLOCK_SIZE as u64,
            range.to_offset / BLOCK_SIZE as u64,
        );
        let blocks = blocks_in(len);
        // Each extent is an item of both files and of the store, and has a count.
        let extents_max = self.shared_extents_max();
        let mut done = 0;
        while done < blocks {
            let start = from + done;
            let deltas = self.deltas_to_give(range.from, start, from + blocks)?;
            if deltas.end == start {
                cloned.to_copy = deltas.refused.saturating_mul(BLOCK_SIZE as u64);
                break;
            }
            let (step, taken) = self.update::<_, Error>(Intent::Grow, |tx| {
                let inode = tx.inode(range.to)?.ok_or(Error::NotFound(range.to))?;
                let source = tx.inode(range.from)?.ok_or(Error::NotFound(range.from))?;
                // Overwriting a shared block frees nothing: the room that was promised for it would be gone.
                if (inode.flags | source.flags) & FLAG_PREALLOCATED != 0 {
                    return Ok((Step::Copy, u64::MAX));
                }
                let (extents, next) = tx.find(|meta| {
                    extents::some_shown(meta, range.from, start, from + blocks, extents_max)
                })?;
                // Behind it there may be more extents.
                let known_to = next.unwrap_or(deltas.end).min(deltas.end);
                let may_move = |mapped: &MappedExtent| {
                    // A compressed frame moves as a whole: none of it may be what is replaced.
                    let is_apart = range.from.plain() != range.to.plain()
                        || !reaches_into(mapped, to, to + blocks);
                    let source = (range.from, &source);
                    let may_be_cloned =
                        |meta: &Meta| sharing::may_be_cloned(meta, source, &inode, mapped);
                    tx.find(|meta| Ok(is_apart && may_be_cloned(meta)?))
                };
                let (step, taken) = next_step(&extents, start, known_to, may_move)?;
                let to_block = to + done;
                let taken = match step {
                    Step::Copy => taken,
                    Step::Share | Step::Map(_) | Step::Punch => {
                        let replaced = (to_block, to_block + taken);
                        let end =
                            tx.find(|meta| replaced_at_once(meta, range.to, replaced, extents_max));
                        end? - to_block
                    }
                };
                match &step {
                    Step::Share => {
                        let Some(at) = tx.find(|meta| Ok(sharing::free_place(meta, taken)))? else {
                            return Ok((Step::Copy, u64::MAX));
                        };
                        tx.push(Op::Share(Share {
                            from: range.from,
                            from_block: start,
                            to: range.to,
                            to_block,
                            blocks: taken,
                            at,
                        }));
                        // What is shared is what is stored; what the source has is that and its deltas.
                        let given = deltas.ops((start, start + taken), range.to, to_block);
                        given.into_iter().for_each(|op| tx.push(op));
                    }
                    Step::Map(extent) => tx.push(Op::Map {
                        ino: range.to,
                        block: to_block,
                        extent: extent.clone(),
                    }),
                    Step::Punch => tx.push(Op::Punch {
                        ino: range.to,
                        from: to_block,
                        to: to_block + taken,
                    }),
                    Step::Copy => return Ok((step, taken)),
                }
                let end = range.to_offset + ((done + taken) * BLOCK_SIZE as u64).min(len);
                let set = Touch {
                    size: Some(inode.size.max(end)),
                    mtime: Some(mtime),
                    ctime: Some(ctime),
                    ..Touch::default()
                };
                tx.touch(range.to, set);
                Ok((step, taken))
            })?;
            if matches!(step, Step::Copy) {
                cloned.to_copy = taken.saturating_mul(BLOCK_SIZE as u64);
                break;
            }
            done += taken;
            let bytes = (done * BLOCK_SIZE as u64).min(len);
            if matches!(step, Step::Share) {
                cloned.shared += bytes - cloned.bytes;
            }
            cloned.bytes = bytes;
            if matches!(step, Step::Map(Extent::Compressed(_))) || !deltas.is_empty() {
                self.placement.pack_ahead();
            }
        }
        Ok(())
    }
}

/// The end of the blocks of the target that one record may replace: it replaces `extents_max` extents and as many deltas at most. One hole
/// of the source may lie over very many extents of the target.
fn replaced_at_once(
    meta: &Meta,
    ino: Ino,
    (from, to): (u64, u64),
    extents_max: usize,
) -> Result<u64> {
    let (_, next) = extents::some_shown(meta, ino, from, to, extents_max)?;
    let to = next.unwrap_or(to);
    let (_, next) = deltas::some_of(meta, ino, from, to, extents_max)?;
    Ok(next.unwrap_or(to))
}

/// What is done with the next blocks of the source, and with how many of them.
fn next_step(
    extents: &[MappedExtent],
    start: u64,
    end: u64,
    may_move: impl Fn(&MappedExtent) -> Result<bool>,
) -> Result<(Step, u64)> {
    let Some(first) = extents.first() else {
        return Ok((Step::Punch, end - start));
    };
    if first.block > start {
        return Ok((Step::Punch, first.block.min(end) - start));
    }
    let to = first.end().min(end);
    Ok(match &first.extent {
        Extent::Reserved { .. } => (Step::Punch, to - start),
        content @ (Extent::Inline(_) | Extent::Compressed(_)) => (Step::Map(content.clone()), 1),
        _ if may_move(first)? => {
            let mut to = to;
            // Together with those behind it, which follow without a gap.
            for next in extents.iter().skip(1) {
                let more = next.end().min(end);
                let fits = more - start <= FRAME_BLOCKS_MAX as u64 * EXTENTS_MAX as u64;
                if next.block != to || !fits || !may_move(next)? {
                    break;
                }
                to = more;
            }
            (Step::Share, to - start)
        }
        _ => {
            // What is copied is written before the next is shared: so what would be shared in small pieces is copied too.
            let mut to = to;
            for next in extents.iter().skip(1) {
                let is_worth = may_move(next)? && next.extent.blocks() >= SHARED_BLOCKS_MIN;
                if next.block != to || is_worth {
                    break;
                }
                to = next.end().min(end);
            }
            (Step::Copy, to - start)
        }
    })
}
