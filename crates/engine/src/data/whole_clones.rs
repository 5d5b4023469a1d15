//! Whole clones: files that are made with the content of others, several of them in one record.
//!
//! [`FileData::clone_range`] changes files that are there, a range at a time. A file that a transaction makes is known to nobody yet: so all of it
//! can come with that transaction, and a tree of small files takes a record for many files instead of several for each.

use persimmon_sync::Arc;

use persimmon_device::BLOCK_SIZE;
use persimmon_format::Ino;
use persimmon_format::extent::{Extent, FILE_BLOCKS_END, FRAME_BLOCKS_MAX};
use persimmon_format::inode::{FLAG_DELTAS, FLAG_PREALLOCATED, Inode};
use persimmon_format::record::{Op, Share};

use super::clone::EXTENTS_MAX;
use super::files::{Change, File, WriteBackExcluded};
use super::single_blocks::SingleBlocks;
use super::{FileData, blocks_in};
use crate::error::{Error, Result};
use crate::meta::{Intent, Transaction, extents, sharing};

/// Content inside of the tree that one record copies, bytes: it is in the record as well.
const INLINE_BYTES_MAX: usize = 256 << 10;

/// Changes of the tree that an extent takes in both files and in the store.
const OPS_AN_EXTENT: usize = 4;

/// Files that nobody changes, and of which nothing is staged: the tree tells what they have.
pub struct HeldSources<'a> {
    data: &'a FileData,
    /// Sorted. Those that could not be held are not among them.
    inos: Vec<Ino>,
    single: SingleBlocks,
}

/// What one record has given new files so far.
pub struct WholeClones<'a> {
    sources: &'a HeldSources<'a>,
    inline_bytes: usize,
    /// Where in the store the next share of this record goes.
    place: Option<u64>,
    is_to_pack: bool,
}

/// Whether a new file got the content of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// All of it.
    All {
        /// The new file.
        ino: Ino,
        /// Bytes of its data.
        bytes: u64,
    },
    /// Nothing: the next record has room for it.
    NextRecord,
    /// Nothing: it has to be cloned range by range.
    ByRange,
}

impl FileData {
    /// Calls `f` while nobody changes any of these files. One that is gone or damaged is not held, and gives nothing.
    pub fn hold_sources<R>(&self, inos: &[Ino], f: impl FnOnce(&HeldSources<'_>) -> R) -> R {
        let mut wanted = inos.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        if !self.store.has_shared_blocks() {
            wanted.clear();
        }
        let loaded: Vec<(Ino, Arc<File>)> = wanted
            .into_iter()
            .filter_map(|ino| Some((ino, self.load(ino).ok()?)))
            .collect();
        let answer = self.hold_loaded(&loaded, f);
        for (ino, file) in loaded {
            self.files.forget_if_clean_of(ino, file);
        }
        answer
    }

    fn hold_loaded<R>(
        &self,
        loaded: &[(Ino, Arc<File>)],
        f: impl FnOnce(&HeldSources<'_>) -> R,
    ) -> R {
        // Changes begin in the order of the numbers, and what is staged is committed before any write-back is excluded.
        let changes: Vec<(Ino, Change<'_>)> = loaded
            .iter()
            .filter_map(|(ino, file)| Some((*ino, self.begin_change(*ino, file).ok()?)))
            .filter(|(ino, _)| self.commit_file(*ino).is_ok())
            .collect();
        let mut inos = Vec::with_capacity(changes.len());
        let mut excluded: Vec<WriteBackExcluded<'_>> = Vec::with_capacity(changes.len());
        for (ino, change) in &changes {
            let (guard, mut staged) = change.exclude_write_back();
            if staged.dirty_blocks() == 0 {
                // What a writer found out about its blocks will be wrong: overwriting what is shared frees nothing.
                staged.version += 1;
                inos.push(*ino);
            }
            drop(staged);
            excluded.push(guard);
        }
        let single = self.single_blocks(&inos).unwrap_or_else(|error| {
            tracing::debug!(%error, "files with single compressed blocks are cloned one by one");
            SingleBlocks::default()
        });
        f(&HeldSources {
            data: self,
            inos,
            single,
        })
    }
}

impl HeldSources<'_> {
    /// Changes the metadata: one transaction, which makes files and gives them content.
    ///
    /// # Errors
    /// Those of `f`; [`Error::NoSpace`]: the tree has no room.
    pub fn make<R, E: From<Error>>(
        &self,
        mut f: impl FnMut(&mut Transaction<'_>, &mut WholeClones<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut is_to_pack = false;
        let made = self.data.update(Intent::Grow, |tx| {
            let mut clones = WholeClones {
                sources: self,
                inline_bytes: 0,
                place: None,
                is_to_pack: false,
            };
            let made = f(tx, &mut clones);
            is_to_pack = clones.is_to_pack;
            made
        })?;
        if is_to_pack {
            self.data.placement.pack_ahead();
        }
        Ok(made)
    }
}

impl WholeClones<'_> {
    /// Operations that this record may still take.
    #[must_use]
    pub fn room(&self, tx: &Transaction<'_>) -> usize {
        let ops_max = self.sources.data.store.transaction_ops_max();
        ops_max.saturating_sub(tx.weight(OPS_AN_EXTENT))
    }

    /// Puts a new file, in the same subvolume as `dir`, with all that `source` has, the inode of `from`; else the transaction stays as it is.
    /// `inode` is that of the new file, which takes no space yet.
    pub fn give(
        &mut self,
        tx: &mut Transaction<'_>,
        (from, source): (Ino, &Inode),
        (dir, inode): (Ino, &Inode),
    ) -> Result<Given> {
        let content = match self.content_of(tx, (from, source), inode)? {
            Some(content) => content,
            None => return Ok(Given::ByRange),
        };
        let is_first = self.place.is_none() && self.inline_bytes == 0;
        let is_long = content.extents * OPS_AN_EXTENT > self.room(tx)
            || self.inline_bytes + content.inline_bytes > INLINE_BYTES_MAX;
        if is_long && !is_first {
            return Ok(Given::NextRecord);
        }
        let bytes = content.bytes(source.size);
        let to = tx.next_new_ino().of(dir.subvolume());
        let Some(ops) = self.ops(tx, content, (from, to))? else {
            return Ok(Given::ByRange);
        };
        tx.put_inode(to, inode);
        ops.into_iter().for_each(|op| tx.push(op));
        Ok(Given::All { ino: to, bytes })
    }

    /// `None`: it has to be cloned range by range.
    fn content_of(
        &self,
        tx: &Transaction<'_>,
        (from, source): (Ino, &Inode),
        target: &Inode,
    ) -> Result<Option<Content>> {
        // Overwriting a shared block frees nothing: the room that was promised for it would be gone. Deltas are read before they are given.
        let is_plain = source.flags & (FLAG_PREALLOCATED | FLAG_DELTAS) == 0;
        if !is_plain || self.sources.inos.binary_search(&from).is_err() {
            return Ok(None);
        }
        let blocks = blocks_in(source.size);
        let extents_max = self.sources.data.shared_extents_max();
        let (extents, next) =
            tx.find(|meta| extents::some_shown(meta, from, 0, blocks, extents_max + 1))?;
        if extents.len() > extents_max || next.is_some() {
            return Ok(None);
        }
        let mut content = Content {
            extents: extents.len(),
            ..Content::default()
        };
        for mapped in &extents {
            match &mapped.extent {
                Extent::Reserved { .. } | Extent::Hole { .. } => {}
                inside @ (Extent::Inline(_) | Extent::Compressed(_)) => {
                    content.put(mapped.block, inside.clone());
                }
                Extent::Packed(packed) if packed.is_short() => {
                    let single = &self.sources.single;
                    let Some(inside) = single.content(from, mapped.block, packed) else {
                        return Ok(None);
                    };
                    content.put(mapped.block, inside);
                }
                _ if tx.find(|meta| {
                    sharing::may_be_cloned(meta, (from, source), target, mapped)
                })? =>
                {
                    content.share(mapped.block, mapped.end().min(blocks));
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(content))
    }

    /// `None`: the store has no place left.
    fn ops(
        &mut self,
        tx: &Transaction<'_>,
        content: Content,
        (from, to): (Ino, Ino),
    ) -> Result<Option<Vec<Op>>> {
        let mut ops = Vec::with_capacity(content.runs.len() + content.inside.len());
        let mut place = self.place;
        for (first, end) in content.runs {
            let blocks = end - first;
            let at = match place {
                Some(at) => Some(at).filter(|at| at + blocks + sharing::APART < FILE_BLOCKS_END),
                None => tx.find(|meta| Ok(sharing::free_place(meta, blocks)))?,
            };
            let Some(at) = at else { return Ok(None) };
            ops.push(Op::Share(Share {
                from,
                from_block: first,
                to,
                to_block: first,
                blocks,
                at,
            }));
            place = Some(at + blocks + sharing::APART);
        }
        self.place = place;
        self.inline_bytes += content.inline_bytes;
        for (block, extent) in content.inside {
            self.is_to_pack |= matches!(extent, Extent::Compressed(_));
            ops.push(Op::Map {
                ino: to,
                block,
                extent,
            });
        }
        Ok(Some(ops))
    }
}

/// What a file has, as far as it is given.
#[derive(Default)]
struct Content {
    extents: usize,
    /// Ranges of blocks that are shared.
    runs: Vec<(u64, u64)>,
    /// What the tree has itself.
    inside: Vec<(u64, Extent)>,
    inline_bytes: usize,
}

impl Content {
    fn put(&mut self, block: u64, extent: Extent) {
        if let Extent::Inline(bytes) | Extent::Compressed(bytes) = &extent {
            self.inline_bytes += bytes.len();
        }
        self.inside.push((block, extent));
    }

    /// Bytes of data of a file of this size.
    fn bytes(&self, size: u64) -> u64 {
        let block = BLOCK_SIZE as u64;
        let of = |first: u64, end: u64| (end * block).min(size).saturating_sub(first * block);
        let shared = self.runs.iter().map(|(first, end)| of(*first, *end));
        let inside = self.inside.iter().map(|(first, _)| of(*first, first + 1));
        shared.chain(inside).sum()
    }

    fn share(&mut self, first: u64, end: u64) {
        match self.runs.last_mut() {
            Some((start, before))
                if *before == first
                    && end - *start <= FRAME_BLOCKS_MAX as u64 * EXTENTS_MAX as u64 =>
            {
                *before = end;
            }
            _ => self.runs.push((first, end)),
        }
    }
}
