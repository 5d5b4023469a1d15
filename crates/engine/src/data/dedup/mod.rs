//! Deduplication while writing: blocks of a batch whose content some file has already become shared with that file, and are not written.
//!
//! `table` remembers where content was seen, by a hash with a key that nobody who writes files knows. `find` looks up the blocks of a
//! batch before they are compressed and placed, and compares the bytes. `share` enters the rest in the history: under the metadata lock it
//! looks again whether what was compared is still there. Where it is not, the blocks are written as any others.

use persimmon_device::{BLOCK_SIZE, Buffer};
use persimmon_format::{Compression, Ino};
use persimmon_sync::{Alarm, Mutex};

mod find;
mod share;
mod table;

use super::read_cache::Place;
use crate::error::Result;
use crate::invariant::invariant;
use crate::options::{Dedup, Options};
use crate::zones::{Life, Stream};
pub(super) use find::stored_at;
pub(super) use share::Outcome;
use table::{Seen, Table};

/// The table takes one byte for this many bytes of the volume's data.
const DATA_PER_MEMORY: u64 = 1000;
/// One block of this many that are read is remembered.
const READ_SPACING: u64 = 8;
/// What sets the key of these hashes apart from all else that is derived from the volume's secret.
const KEY_CONTEXT: &str = "persimmon 2026-11-26 hashes of blocks for deduplication while writing";

/// Blocks of a file that follow each other in a batch, and how they would be written.
#[derive(Clone)]
pub(super) struct Piece {
    pub(super) ino: Ino,
    /// The first of them in the file.
    pub(super) first: u64,
    pub(super) data: Buffer,
    pub(super) stream: Stream,
    pub(super) life: Life,
    pub(super) compression: Option<Compression>,
    /// As [`Compressible`](super::compress::Compressible) has it.
    pub(super) must_save_block: bool,
    /// Whether it is looked for whether they are stored already.
    pub(super) is_sought: bool,
}

impl Piece {
    fn blocks(&self) -> usize {
        self.data.blocks() as usize
    }

    /// The content of blocks of it.
    fn content(&self, from: usize, to: usize) -> &[u8] {
        self.data
            .get(from * BLOCK_SIZE..to * BLOCK_SIZE)
            .unwrap_or_default()
    }

    /// Some of its blocks, if there are any between these.
    fn part(&self, from: usize, to: usize) -> Option<Piece> {
        (from < to).then(|| Piece {
            first: self.first + from as u64,
            data: self.data.slice(from..to),
            ..self.clone()
        })
    }
}

/// Blocks of a batch that are stored already: the file `from` has the same content from `from_block` on.
pub(super) struct Duplicate {
    pub(super) piece: Piece,
    from: Ino,
    from_block: u64,
    /// Where that was stored when the bytes were compared; `None`: it is written with this batch.
    places: Option<Vec<Place>>,
    /// It is a part of one of which all was there.
    is_part: bool,
}

impl Duplicate {
    pub(super) fn blocks(&self) -> u64 {
        self.piece.blocks() as u64
    }

    /// One past its last file block.
    pub(super) fn end(&self) -> u64 {
        self.piece.first + self.blocks()
    }

    /// Splits it after `blocks` blocks; both parts have at least one.
    pub(super) fn split(self, blocks: u64, alarm: &Alarm) -> Result<[Duplicate; 2]> {
        let (at, all) = (blocks as usize, self.piece.blocks());
        invariant!(
            alarm,
            (1..self.blocks()).contains(&blocks)
                && self
                    .places
                    .as_ref()
                    .is_none_or(|places| places.len() == all),
            "a duplicate of {all} blocks with {:?} places is cut after {blocks}",
            self.places.as_ref().map(Vec::len)
        );
        let mut first = self;
        let behind = Duplicate {
            piece: Piece {
                first: first.piece.first + blocks,
                data: first.piece.data.slice(at..all),
                ..first.piece.clone()
            },
            from: first.from,
            from_block: first.from_block + blocks,
            places: first.places.as_mut().map(|places| places.split_off(at)),
            is_part: true,
        };
        first.piece.data = first.piece.data.slice(0..at);
        first.is_part = true;
        Ok([first, behind])
    }
}

/// See the module.
pub(super) struct Deduplication {
    key: [u8; blake3::KEY_LEN],
    table: Mutex<Table>,
    bytes_max: usize,
}

impl Deduplication {
    /// For a volume with this secret, if it is to be.
    pub(super) fn new(options: &Options, secret: &[u8]) -> Option<Deduplication> {
        match options.dedup {
            Dedup::None => None,
            Dedup::Write => Some(Deduplication {
                key: blake3::derive_key(KEY_CONTEXT, secret),
                table: Mutex::new(Table::new()),
                bytes_max: options.dedup_bytes_max,
            }),
        }
    }

    /// The hash of a block's content; none of zeros.
    fn hash(&self, block: &[u8]) -> Option<u64> {
        if block.iter().all(|byte| *byte == 0) {
            return None;
        }
        let hash = blake3::keyed_hash(&self.key, block);
        let first = hash.as_bytes().first_chunk()?;
        Some(u64::from_le_bytes(*first))
    }

    /// Memory that the table takes.
    pub(in crate::data) fn bytes(&self) -> usize {
        self.table.lock().bytes()
    }

    /// What the table may take on a volume with `data_blocks` blocks of data.
    fn bytes_for(&self, data_blocks: u64) -> usize {
        let share = data_blocks.saturating_mul(BLOCK_SIZE as u64) / DATA_PER_MEMORY;
        self.bytes_max.min(share as usize)
    }

    /// Remembers some of the blocks that a file has from a byte on: what is copied is read before it is written. The last block of the file
    /// has zeros behind its end.
    pub(super) fn note_read(
        &self,
        ino: Ino,
        offset: u64,
        (bytes, size): (&[u8], u64),
        bytes_max: usize,
    ) {
        let block_size = BLOCK_SIZE as u64;
        let first = offset.div_ceil(block_size);
        let skipped = (first * block_size - offset) as usize;
        let blocks = bytes.get(skipped..).unwrap_or_default();
        let (whole, rest) = blocks.as_chunks::<BLOCK_SIZE>();
        let mut last = [0; BLOCK_SIZE];
        if offset + bytes.len() as u64 == size
            && let Some(start) = last.get_mut(..rest.len())
        {
            start.copy_from_slice(rest);
        }
        let mut before: Option<&[u8; BLOCK_SIZE]> = None;
        for (block, content) in (first..).zip(whole.iter().chain([&last])) {
            // Of blocks that repeat, as those of a file that is filled with one byte, none but the first begins a run.
            let is_first = before.replace(content) != Some(content);
            if block.is_multiple_of(READ_SPACING)
                && is_first
                && self.table.lock().takes(block)
                && let Some(hash) = self.hash(content)
            {
                let mut table = self.table.lock();
                table.insert(hash, Seen { ino, block }, bytes_max);
            }
        }
    }
}
