//! Deduplication: equal blocks of two files are stored once, and no reader sees a change.

use persimmon_device::BLOCK_SIZE;
use persimmon_format::Ino;
use persimmon_format::delta::block_at;
use persimmon_format::extent::{Extent, FRAME_BLOCKS_MAX};
use persimmon_format::inode::FLAG_PREALLOCATED;
use persimmon_format::record::{Op, Share};

use super::clone::{CloneRange, Cloned, EXTENTS_MAX};
use super::{FileData, blocks_in};
use crate::error::{Error, Result};
use crate::meta::extents::MappedExtent;
use crate::meta::{Intent, View, deltas, sharing};

const BLOCK: u64 = BLOCK_SIZE as u64;

/// Bytes of both files that one call compares at most: writers wait meanwhile.
pub(super) const CALL_BYTES_MAX: u64 = 16 << 20;
/// Bytes that are read at a time, from both files.
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// What is done to the next blocks of both files, whose bytes are equal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Nothing: they are stored once already, or are holes.
    Same,
    /// They become shared: the target gets those of the source, or the other way round.
    Share { is_swapped: bool },
    /// The target gets a hole, as the source has.
    Punch,
    /// Nothing: sharing them is impossible or frees no block.
    Leave,
}

impl Step {
    fn share_if(may_give: bool, is_swapped: bool) -> Step {
        if may_give {
            Step::Share { is_swapped }
        } else {
            Step::Leave
        }
    }
}

/// Blocks of two files, side by side.
struct Pair {
    from: (Ino, u64),
    to: (Ino, u64),
    blocks: u64,
    /// The source's extents may be replaced too.
    may_swap: bool,
    /// Extents of each file that one transaction looks at.
    extents_max: usize,
}

impl FileData {
    /// Shares the leading blocks of a range that are equal in both files, if they are as many as `least` bytes take. Or only tells what it
    /// would do. Nothing of the files is staged, and nobody else changes them.
    pub(super) fn share_equal(
        &self,
        range: &CloneRange,
        (least, changes): (u64, bool),
        (source_size, target_size): (u64, u64),
    ) -> Result<Cloned> {
        let source_rest = source_size.saturating_sub(range.from_offset);
        let target_rest = target_size.saturating_sub(range.to_offset);
        let mut len = range.len.min(source_rest).min(target_rest);
        // A range over itself: as far as its two places are apart. In a snapshot the file has the same blocks in the same places.
        if range.from.plain() == range.to.plain() {
            len = len.min(range.from_offset.abs_diff(range.to_offset));
        }
        len = len.min(CALL_BYTES_MAX);
        // A part of a block only where both files end: behind their ends both have zeros.
        if len != source_rest || len != target_rest {
            len -= len % BLOCK;
        }
        let pair = Pair {
            from: (range.from, range.from_offset / BLOCK),
            to: (range.to, range.to_offset / BLOCK),
            blocks: blocks_in(len),
            may_swap: self.store.check_changeable(range.from).is_ok() || !changes,
            extents_max: self.shared_extents_max(),
        };
        let equal = self.equal_bytes(&pair, len, least)?;
        let mut cloned = Cloned::NONE;
        if equal == 0 || blocks_in(equal) < blocks_in(least) {
            return Ok(cloned);
        }
        let mut done = 0;
        while done < blocks_in(equal) {
            let stepped = self.share_step(&pair, (done, blocks_in(equal)), changes);
            let (step, taken) = match stepped {
                // The next call for the rest returns the error.
                Err(_) if done > 0 => break,
                stepped => stepped?,
            };
            let bytes = ((done + taken) * BLOCK).min(equal) - done * BLOCK;
            done += taken;
            cloned.bytes += bytes;
            if matches!(step, Step::Share { .. } | Step::Punch) {
                cloned.shared += bytes;
            }
        }
        Ok(cloned)
    }

    /// Bytes at the beginning of both ranges that are equal; whole blocks, or all of `len`.
    fn equal_bytes(&self, pair: &Pair, len: u64, least: u64) -> Result<u64> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let mut at = 0;
        // Most ranges that are not equal differ early.
        let mut piece = (blocks_in(least).max(1) * BLOCK).min(PIECE_BYTES_MAX);
        while at < len {
            let (step, taken) = self
                .store
                .view::<_, Error>(|view| next_step(view, pair, (at / BLOCK, pair.blocks)))?;
            let end = (at + taken * BLOCK).min(len);
            if step == Step::Same {
                at = end;
            }
            while at < end {
                let count = (end - at).min(piece) as usize;
                let equal = {
                    let ours = self.read_exactly(pair.from, at, count, &mut ours)?;
                    let theirs = self.read_exactly(pair.to, at, count, &mut theirs)?;
                    let blocks = ours.chunks(BLOCK_SIZE).zip(theirs.chunks(BLOCK_SIZE));
                    blocks.take_while(|(ours, theirs)| ours == theirs).count() as u64
                };
                if equal < blocks_in(count as u64) {
                    return Ok(at + equal * BLOCK);
                }
                at += count as u64;
                piece = (piece * 4).min(PIECE_BYTES_MAX);
            }
        }
        Ok(len)
    }

    /// Reads bytes that the file has, from the device alone: a block that is damaged there, and intact in memory, would replace an intact
    /// one.
    fn read_exactly<'b>(
        &self,
        (ino, block): (Ino, u64),
        at: u64,
        count: usize,
        buffer: &'b mut Vec<u8>,
    ) -> Result<&'b [u8]> {
        buffer.resize(count, 0);
        let offset = block * BLOCK + at;
        if self.size_now(ino)? < offset + count as u64 {
            return Err(Error::Inconsistent(format!(
                "inode {ino} became shorter while it could not be changed"
            )));
        }
        self.read_past_memory(ino, offset, buffer)?;
        Ok(buffer)
    }

    /// Does what is to be done to the blocks behind the first `done` of a pair, up to `blocks`; or tells it.
    fn share_step(
        &self,
        pair: &Pair,
        (done, blocks): (u64, u64),
        changes: bool,
    ) -> Result<(Step, u64)> {
        let told = self
            .store
            .view::<_, Error>(|view| next_step(view, pair, (done, blocks)))?;
        let giver = match told.0 {
            Step::Same | Step::Leave => return Ok(told),
            Step::Share { is_swapped: true } => pair.to,
            Step::Share { is_swapped: false } | Step::Punch => pair.from,
        };
        if !changes {
            return Ok(told);
        }
        let start = giver.1 + done;
        let deltas = self.deltas_to_give(giver.0, start, start + told.1)?;
        if deltas.end == start {
            return Ok((Step::Leave, deltas.refused.clamp(1, told.1)));
        }
        let blocks = done + (deltas.end - start);
        let shared = self.update::<_, Error>(Intent::Grow, |tx| {
            // Blocks may have been packed meanwhile.
            let (step, taken) = next_step(tx, pair, (done, blocks))?;
            if step != told.0 {
                return Ok((Step::Leave, taken));
            }
            let (from, to) = match step {
                Step::Same | Step::Leave => return Ok((step, taken)),
                Step::Share { is_swapped: true } => (pair.to, pair.from),
                Step::Share { is_swapped: false } | Step::Punch => (pair.from, pair.to),
            };
            if step == Step::Punch {
                tx.push(Op::Punch {
                    ino: to.0,
                    from: to.1 + done,
                    to: to.1 + done + taken,
                });
                return Ok((step, taken));
            }
            let Some(at) = tx.find(|meta| Ok(sharing::free_place(meta, taken)))? else {
                return Ok((Step::Leave, taken));
            };
            tx.push(Op::Share(Share {
                from: from.0,
                from_block: from.1 + done,
                to: to.0,
                to_block: to.1 + done,
                blocks: taken,
                at,
            }));
            // What is shared is what is stored; what the giver has is that and its deltas.
            let given = deltas.ops((start, start + taken), to.0, to.1 + done);
            given.into_iter().for_each(|op| tx.push(op));
            Ok((step, taken))
        })?;
        if !deltas.is_empty() {
            self.placement.pack_ahead();
        }
        Ok(shared)
    }
}

/// What is done to the blocks behind the first `done` of a pair, up to `blocks`, and to how many of them.
fn next_step(view: &View<'_>, pair: &Pair, (done, blocks): (u64, u64)) -> Result<(Step, u64)> {
    let count = (blocks - done).min(FRAME_BLOCKS_MAX as u64 * EXTENTS_MAX as u64);
    for ino in [pair.from.0, pair.to.0] {
        let inode = view.inode(ino)?.ok_or(Error::NotFound(ino))?;
        // Overwriting a shared block frees nothing: the room that was promised for it would be gone.
        if inode.flags & FLAG_PREALLOCATED != 0 {
            return Ok((Step::Leave, blocks - done));
        }
    }
    let with_deltas = |(ino, first): (Ino, u64)| -> Result<(Vec<u64>, u64)> {
        let (start, end) = (first + done, first + done + count);
        let (found, next) =
            view.find(|meta| deltas::some_of(meta, ino, start, end, pair.extents_max))?;
        let blocks = found.iter().map(|mapped| block_at(mapped.block));
        Ok((blocks.collect(), next.unwrap_or(end) - start))
    };
    let (source_deltas, source_count) = with_deltas(pair.from)?;
    let (target_deltas, target_count) = with_deltas(pair.to)?;
    let count = source_count.min(target_count);
    let look = |(ino, first): (Ino, u64)| -> Result<(Vec<MappedExtent>, u64)> {
        let start = first + done;
        let extents = view.extents(ino, start, start + count, pair.extents_max)?;
        let known = match extents.last() {
            Some(last) if extents.len() >= pair.extents_max => last.end() - start,
            _ => count,
        };
        Ok((extents, known.min(count)))
    };
    let (source, source_known) = look(pair.from)?;
    let (target, target_known) = look(pair.to)?;
    let known = source_known.min(target_known);
    let mut found = None;
    let mut at = 0;
    while at < known {
        let (from, to) = (pair.from.1 + done + at, pair.to.1 + done + at);
        let (ours, of_source) = extent_at(&source, from, known - at);
        let (theirs, of_target) = extent_at(&target, to, known - at);
        let (has_delta, same_in_source) = delta_at(&source_deltas, from, known - at);
        let (is_delta_there, same_in_target) = delta_at(&target_deltas, to, known - at);
        // Who gives a block with a delta gives both: rather the block that has none.
        let swaps_first = pair.may_swap && has_delta && !is_delta_there;
        let step = view.find(|meta| {
            let may_move = |ino: Ino, mapped: &MappedExtent, replaced: u64| {
                // A compressed frame moves as a whole: none of it may be what is replaced.
                let is_apart = pair.from.0.plain() != pair.to.0.plain()
                    || !reaches_into(mapped, replaced, replaced + pair.blocks);
                Ok::<_, Error>(is_apart && sharing::may_move(meta, ino, mapped)?)
            };
            Ok(match (ours, theirs) {
                (None, None) => Step::Same,
                (None, Some(_)) => Step::Punch,
                (Some(_), None) => Step::Leave,
                (Some(ours), Some(theirs)) => match (place_at(ours, from), place_at(theirs, to)) {
                    // With deltas, what both have in one place may differ.
                    (Some(one), Some(other)) if one == other => match has_delta || is_delta_there {
                        true => Step::Leave,
                        false => Step::Same,
                    },
                    // What lies in the tree takes no block.
                    _ if is_in_tree(ours) || is_in_tree(theirs) => Step::Leave,
                    // What takes less stays, and nobody is charged more.
                    _ if takes_less(theirs, ours) => {
                        let may_give = pair.may_swap && may_move(pair.to.0, theirs, pair.from.1)?;
                        Step::share_if(may_give, true)
                    }
                    _ if takes_less(ours, theirs) => {
                        Step::share_if(may_move(pair.from.0, ours, pair.to.1)?, false)
                    }
                    _ if swaps_first && may_move(pair.to.0, theirs, pair.from.1)? => {
                        Step::Share { is_swapped: true }
                    }
                    (None, Some(_)) if pair.may_swap => Step::Share { is_swapped: true },
                    _ if may_move(pair.from.0, ours, pair.to.1)? => {
                        Step::Share { is_swapped: false }
                    }
                    _ if pair.may_swap && may_move(pair.to.0, theirs, pair.from.1)? => {
                        Step::Share { is_swapped: true }
                    }
                    _ => Step::Leave,
                },
            })
        })?;
        if found.is_some_and(|found| found != step) {
            break;
        }
        found = Some(step);
        at += of_source
            .min(of_target)
            .min(same_in_source)
            .min(same_in_target);
    }
    Ok((found.unwrap_or(Step::Leave), at))
}

/// Whether the blocks of an extent take markedly less than those of another: compressed pieces of one content differ a little by what is packed
/// with it.
fn takes_less(one: &MappedExtent, other: &MappedExtent) -> bool {
    let taken = |mapped: &MappedExtent, of: &MappedExtent| {
        u128::from(mapped.extent.sectors()) * u128::from(of.extent.blocks())
    };
    taken(one, other) * 8 < taken(other, one) * 7
}

/// Whether a block is one of those with deltas, and for how many blocks from there on that is so.
fn delta_at(with_deltas: &[u64], block: u64, count: u64) -> (bool, u64) {
    let next = with_deltas.iter().find(|with_delta| **with_delta >= block);
    match next {
        Some(next) if *next == block => (true, 1),
        Some(next) => (false, count.min(next - block)),
        None => (false, count),
    }
}

/// The extent that has a block, none in a hole, and for how many blocks from there on that is so.
fn extent_at(extents: &[MappedExtent], block: u64, count: u64) -> (Option<&MappedExtent>, u64) {
    let next = extents.iter().find(|mapped| {
        let is_data = !matches!(mapped.extent, Extent::Hole { .. } | Extent::Reserved { .. });
        mapped.end() > block && is_data
    });
    match next {
        Some(mapped) if mapped.block <= block => (Some(mapped), count.min(mapped.end() - block)),
        Some(mapped) => (None, count.min(mapped.block - block)),
        None => (None, count),
    }
}

/// Where the store of shared blocks has a block of an extent.
fn place_at(mapped: &MappedExtent, block: u64) -> Option<u64> {
    match mapped.extent {
        Extent::Shared { at, .. } => Some(at + (block - mapped.block)),
        _ => None,
    }
}

/// Whether the compressed frame of an extent has blocks in a range of its file.
pub(super) fn reaches_into(mapped: &MappedExtent, from: u64, to: u64) -> bool {
    let Extent::Packed(packed) = &mapped.extent else {
        return false;
    };
    let frame = packed.frame_at(mapped.block);
    frame.is_none_or(|(start, end)| start < to && end > from)
}

fn is_in_tree(mapped: &MappedExtent) -> bool {
    matches!(mapped.extent, Extent::Inline(_) | Extent::Compressed(_))
}
