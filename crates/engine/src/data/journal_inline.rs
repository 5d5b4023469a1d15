//! What an fsync inlines in its journal record: small changes of a file's last block, and blocks
//! that compress well. The tree has them inline then, until they are written back.

use persimmon_sync::atomic::{AtomicU8, Ordering};
use std::ops::Range;

use persimmon_device::BLOCK_SIZE;
use persimmon_format::Ino;
use persimmon_format::extent::Extent;
use persimmon_format::packed;
use persimmon_format::record::Op;

use super::FileData;
use super::deltas::Tried;
use super::write_back::{BatchFile, Mapping, tail};
use crate::error::{Error, Result};

/// Most bytes inlined in a record, with which the record still fits a block.
const JOURNAL_INLINE_BYTES_MAX: usize = 3584;
/// Most bytes of a file's last block that are inlined where other blocks of the file are written anyway: a
/// whole block beside them costs little.
const TAIL_BESIDE_BYTES_MAX: usize = 2560;
/// What a record holds beside an inlined tail, more or less.
const RECORD_REST_BYTES: usize = 200;
/// What a block takes in a record beside its compressed content, bytes.
const ENTRY_BYTES: usize = 32;
/// Most bytes of a compressed block that is inlined in the journal. Such a block is written twice, in the
/// journal and packed: with more bytes, writing it once as it is costs less.
pub(super) const COMPRESSED_BYTES_MAX: usize = BLOCK_SIZE / 2 - 2 * ENTRY_BYTES;
/// Most blocks of a file that one record may inline.
pub(super) const JOURNAL_INLINE_BLOCKS_MAX: u64 = 4;
/// Files, more or less, of which it is known whether their blocks compressed.
const FILES_KNOWN: usize = 1024;
/// Doublings of the blocks that are not tried after one that did not compress: up to 15.
const DOUBLINGS_MAX: u8 = 4;

/// How many blocks of a file need not be tried, by the file's number: a hint, which files share.
/// The low four bits; above them, how often it was doubled.
pub(crate) struct Compressibility([AtomicU8; FILES_KNOWN]);

impl Default for Compressibility {
    fn default() -> Self {
        Compressibility(std::array::from_fn(|_| AtomicU8::new(0)))
    }
}

impl Compressibility {
    fn of(&self, ino: Ino) -> Option<&AtomicU8> {
        self.0.get(ino.0 as usize % FILES_KNOWN)
    }

    fn worth_trying(&self, ino: Ino) -> bool {
        let less = |known: u8| (known & 0xf != 0).then(|| known - 1);
        self.of(ino).is_some_and(|left| {
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
                .is_err()
        })
    }

    fn note(&self, ino: Ino, compressed: bool) {
        if let Some(left) = self.of(ino) {
            let doublings = (left.load(Ordering::Relaxed) >> 4).min(DOUBLINGS_MAX - 1) + 1;
            let known = doublings << 4 | ((1 << doublings) - 1);
            left.store(if compressed { 0 } else { known }, Ordering::Relaxed);
        }
    }
}

impl FileData {
    /// A file's tail as it travels inside the journal: what of it changed, if the tree has it
    /// inline, else all of it. `None` if that is too much. The file has nothing preallocated. It fills
    /// up the log block that others are waiting for, and makes them wait for no other.
    pub(super) fn journal_inline_tail(&self, member: &BatchFile) -> Result<Option<Mapping>> {
        let Some((block, content)) = tail(member) else {
            return Ok(None);
        };
        let room = self.store.log.room_in_block();
        let limit = JOURNAL_INLINE_BYTES_MAX.min(room.saturating_sub(RECORD_REST_BYTES));
        if member.blocks > 1 && content.len() > limit.min(TAIL_BESIDE_BYTES_MAX) {
            return Ok(None);
        }
        let ino = member.ino;
        let before = self
            .store
            .view::<_, Error>(|view| view.extents(ino, block, block + 1, 1))?;
        let old = match before.into_iter().next().map(|mapped| mapped.extent) {
            None => Some(Vec::new()),
            Some(Extent::Inline(old)) => Some(old),
            Some(_) => None,
        };
        let mapping = match old {
            Some(old) => {
                let changed = difference(&old, content);
                let new = |at| content.get(at).copied().unwrap_or(0);
                let bytes: Vec<u8> = changed.clone().map(new).collect();
                let op = Op::Splice {
                    ino,
                    block,
                    at: changed.start as u16,
                    bytes,
                };
                (changed.len() <= limit).then_some(Mapping {
                    ino,
                    block,
                    end: block + 1,
                    op,
                    base: None,
                })
            }
            None => (content.len() <= limit)
                .then(|| Mapping::map(ino, block, Extent::spliced(Vec::new(), 0, content))),
        };
        Ok(mapping)
    }

    /// The blocks of a file as deltas or compressed, as they are inlined in the journal, except its tail if that
    /// is inlined as it is. `None` if they are too many, or one does not become short enough. The file has nothing
    /// preallocated.
    pub(super) fn journal_inline_blocks(
        &self,
        member: &BatchFile,
        tail: Option<&Mapping>,
    ) -> Result<Option<Vec<Mapping>>> {
        let ino = member.ino;
        let tail_block = tail.map(|tail| tail.block);
        let blocks_inlined = member.blocks - u64::from(tail.is_some());
        if !(1..=JOURNAL_INLINE_BLOCKS_MAX).contains(&blocks_inlined)
            || self.store.meta().journal_inline.bytes() >= self.placement.journal_inline_bytes_max()
        {
            return Ok(None);
        }
        let tries_deltas = self.may_make_deltas() && self.similarity.worth_trying(ino);
        let tries_compression = !member.hint.whole_blocks && self.compressibility.worth_trying(ino);
        if !tries_deltas && !tries_compression {
            return Ok(None);
        }
        let mut room = JOURNAL_INLINE_BYTES_MAX;
        if let Some(Mapping {
            op: Op::Splice { bytes, .. },
            ..
        }) = tail
        {
            room = room.saturating_sub(bytes.len());
        }
        let mut mappings = Vec::new();
        for (first, data) in &member.frozen {
            let (blocks, _) = data.as_chunks::<BLOCK_SIZE>();
            for (block, content) in (*first..).zip(blocks) {
                if Some(block) == tail_block {
                    continue;
                }
                let delta = match tries_deltas {
                    true => self.as_delta(ino, block, content)?,
                    false => None,
                };
                let compressed = || {
                    let compressed = packed::compress(content, COMPRESSED_BYTES_MAX);
                    self.compressibility.note(ino, compressed.is_some());
                    compressed.map(|bytes| Mapping::map(ino, block, Extent::Compressed(bytes)))
                };
                let mapping = delta.or_else(|| tries_compression.then(compressed).flatten());
                let Some(mapping) = mapping else {
                    return Ok(None);
                };
                let Some(left) = room.checked_sub(mapping.inline_len() + ENTRY_BYTES) else {
                    return Ok(None);
                };
                room = left;
                mappings.push(mapping);
            }
        }
        Ok(Some(mappings))
    }

    fn as_delta(
        &self,
        ino: Ino,
        block: u64,
        content: &[u8; BLOCK_SIZE],
    ) -> Result<Option<Mapping>> {
        match self.delta_of(ino, block, content)? {
            Tried::Delta(mapping) => {
                self.similarity.note(ino, true);
                Ok(Some(mapping))
            }
            Tried::TooLong => {
                self.similarity.note(ino, false);
                Ok(None)
            }
            Tried::NoBase => Ok(None),
        }
    }
}

/// Where two contents differ, zeros following both: from the first to past the last byte.
fn difference(old: &[u8], new: &[u8]) -> Range<usize> {
    let byte = |content: &[u8], at: usize| content.get(at).copied().unwrap_or(0);
    let differ = |at: &usize| byte(old, *at) != byte(new, *at);
    let len = old.len().max(new.len());
    match (0..len).find(differ) {
        Some(first) => first..(first..len).rfind(differ).unwrap_or(first) + 1,
        None => 0..0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_compress_is_tried_ever_less_often() {
        let known = Compressibility::default();
        let skipped = |ino| (0..).take_while(|_| !known.worth_trying(ino)).count();
        assert_eq!(skipped(Ino(5)), 0);
        for expected in [1, 3, 7, 15, 15] {
            known.note(Ino(5), false);
            assert_eq!(skipped(Ino(5)), expected);
        }
        assert_eq!(skipped(Ino(6)), 0);
        known.note(Ino(5), true);
        assert_eq!(skipped(Ino(5)), 0);
        known.note(Ino(5), false);
        assert_eq!(skipped(Ino(5)), 1);
    }
}
