//! Writing into the staging buffer. Space is set aside here: a write that would not fit is
//! refused here, and nowhere later.
//!
//! A write is whole to others who change the file: one of a single chunk is staged in one hold of
//! the lock; one of several, or at the end of the file, is a [`Change`].

use persimmon_device::BLOCK_SIZE;
use persimmon_format::Ino;
use persimmon_format::extent::Extent;
use persimmon_format::inode::Timestamp;

use super::FileData;
use super::files::{Change, File};
use super::staged::{Staged, Times, WriteHint};
use super::{OFFSET_MAX, block_of, blocks_in};
use crate::error::{Error, Result};
use crate::invariant::{invariant, invariant_holds};
use crate::meta::extents::MappedExtent;
use crate::space::Promised;

/// Bytes staged under one hold of the file's lock.
const CHUNK: usize = 1 << 20;

/// Content of blocks that a write changes in part, fetched without the file's lock.
#[derive(Default)]
struct OldBlocks {
    version: u64,
    blocks: Vec<(u64, Vec<u8>)>,
}

impl OldBlocks {
    fn get(&self, block: u64) -> Option<&[u8]> {
        self.blocks
            .iter()
            .find(|(b, _)| *b == block)
            .map(|(_, content)| content.as_slice())
    }
}

/// What keeps a chunk from being staged.
enum Need {
    OldBlock(u64),
    Room {
        first: u64,
        end: u64,
    },
    /// The volume has to stop.
    Stop(Error),
}

impl From<Error> for Need {
    fn from(error: Error) -> Need {
        Need::Stop(error)
    }
}

/// A write under way.
pub(super) struct Writing<'a> {
    pub(super) ino: Ino,
    pub(super) file: &'a File,
    /// The change that it is, or is part of, if it is not one chunk alone.
    pub(super) change: Option<&'a Change<'a>>,
    pub(super) now: Timestamp,
    pub(super) hint: WriteHint,
    /// All of its blocks have been promised.
    pub(super) has_room: bool,
}

/// Bytes of the first chunk of a write. One that is no longer than a chunk is never cut: a crash leaves all of it or nothing. Chunks of
/// others end on multiples of their size, so that whole blocks stay whole.
fn first_chunk(offset: u64, len: usize) -> usize {
    if len <= CHUNK {
        len
    } else {
        CHUNK - offset as usize % CHUNK
    }
}

/// The end of a range, if a file may reach that far.
pub(super) fn end_of(offset: u64, len: u64) -> Result<u64> {
    let end = offset.checked_add(len);
    end.filter(|end| *end <= OFFSET_MAX).ok_or(Error::TooLarge)
}

impl FileData {
    /// Writes to a regular file. Visible at once, durable after [`FileData::sync_file`]. Returns how
    /// many bytes were written: fewer than asked for where room ran out half way.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8], now: Timestamp) -> Result<usize> {
        self.write_hinted(ino, offset, data, now, WriteHint::default())
    }

    /// [`FileData::write`] of data of which more is known.
    pub fn write_hinted(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        now: Timestamp,
        hint: WriteHint,
    ) -> Result<usize> {
        self.write_at(ino, offset, data, (now, hint), false)
    }

    /// The same of data whose blocks were promised: it finds room on the volume and in memory without waiting for either.
    pub fn write_promised(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        hint: (Timestamp, WriteHint),
        promised: &Promised,
    ) -> Result<usize> {
        let end = end_of(offset, data.len() as u64)?;
        let has_room = blocks_in(end) - block_of(offset) <= promised.blocks();
        self.write_at(ino, offset, data, hint, has_room)
    }

    fn write_at(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        (now, hint): (Timestamp, WriteHint),
        has_room: bool,
    ) -> Result<usize> {
        self.store.check_changeable(ino)?;
        end_of(offset, data.len() as u64)?;
        let file = self.load(ino)?;
        let is_one_chunk = first_chunk(offset, data.len()) == data.len();
        let change = if is_one_chunk {
            None
        } else {
            Some(self.begin_change(ino, &file)?)
        };
        let writing = Writing {
            ino,
            file: &file,
            change: change.as_ref(),
            now,
            hint,
            has_room,
        };
        self.write_chunks(&writing, offset, data)
    }

    /// Writes at the end of a regular file, wherever that is by then: returns where, and how many
    /// bytes. Otherwise as [`FileData::write_hinted`].
    pub fn append(
        &self,
        ino: Ino,
        data: &[u8],
        now: Timestamp,
        hint: WriteHint,
    ) -> Result<(u64, usize)> {
        self.store.check_changeable(ino)?;
        let file = self.load(ino)?;
        let change = self.begin_change(ino, &file)?;
        let offset = change.size();
        end_of(offset, data.len() as u64)?;
        let writing = Writing {
            ino,
            file: &file,
            change: Some(&change),
            now,
            hint,
            has_room: false,
        };
        let written = self.write_chunks(&writing, offset, data)?;
        Ok((offset, written))
    }

    /// Stages `data`, or as much of it as there is room for, if that is anything.
    pub(super) fn write_chunks(
        &self,
        writing: &Writing<'_>,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let take = first_chunk(at, rest.len());
            let (now, later) = rest.split_at(take);
            match self.write_chunk(writing, at, now) {
                Ok(()) => {}
                Err(error) if error.is_want_of_zones() && at > offset => break,
                Err(error) => return Err(error),
            }
            at += take as u64;
            rest = later;
        }
        let written = data.len() - rest.len();
        invariant!(
            self.store.media.alarm,
            at - offset == written as u64,
            "{written} bytes of {} from {offset} on reach {at}",
            data.len()
        );
        Ok(written)
    }

    fn write_chunk(&self, writing: &Writing<'_>, offset: u64, bytes: &[u8]) -> Result<()> {
        let Writing {
            ino,
            file,
            change,
            now,
            hint,
            has_room,
        } = *writing;
        let mut old_blocks = OldBlocks::default();
        // What is known to be mapped of it: overwriting frees what it takes.
        let mut mapped = Mapped::default();
        // Flushing what is staged and dirty gives space back once.
        let mut flushed = false;
        loop {
            // The buffer is full and nothing is dirty: all of it is in batches under way. No batch is committed any
            // more once the volume takes no changes.
            while !has_room && self.space.staging_is_full() {
                self.store.check_writable()?;
                if !self.write_back()? {
                    self.space.wait_for_write_back();
                }
            }
            let need = {
                let mut staged = file.lock_to_change(change);
                self.check_changeable(ino, &staged)?;
                if staged.version != old_blocks.version {
                    // What was mapped may be no more.
                    mapped.ranges.clear();
                    old_blocks = OldBlocks {
                        version: staged.version,
                        blocks: Vec::new(),
                    };
                }
                let dirty = staged.dirty_blocks();
                let alone = dirty == 0;
                let room = if has_room {
                    Grant::Promised
                } else if self.snapshot_fence.is_since(mapped.moment) {
                    Grant::Over(&mapped.ranges)
                } else {
                    Grant::Over(&[])
                };
                match self.try_stage(&mut staged, offset, bytes, &old_blocks, room) {
                    Ok(()) => {
                        self.count_staged(&mut staged);
                        // What is staged together is placed together.
                        staged.hint = if alone { hint } else { hint.after(staged.hint) };
                        staged.times = Some(Times {
                            mtime: now,
                            ctime: staged.change_time(now),
                        });
                        let end = offset + bytes.len() as u64;
                        let size = staged.size.unwrap_or(0);
                        staged.growth.write(offset, end, size);
                        staged.size = Some(size.max(end));
                        if !std::mem::replace(&mut staged.queued, true) {
                            self.enqueue(ino);
                        } else if alone {
                            // A commit may have found nothing to write of a file that stayed in the queue.
                            self.store.activity.note();
                        }
                        let after = staged.dirty_blocks();
                        let has_grown = invariant_holds!(
                            staged.alarm(),
                            after >= dirty,
                            "{after} blocks of inode {ino} are dirty after a write, and {dirty} were before"
                        );
                        drop(staged);
                        if has_grown && self.space.write_back_becomes_due(after - dirty) {
                            self.store.activity.write_back_due();
                        }
                        return Ok(());
                    }
                    Err(need) => need,
                }
            };
            match need {
                Need::OldBlock(block) => match self.read_block(ino, block) {
                    Ok(content) => old_blocks.blocks.push((block, content)),
                    // Somebody may have written it meanwhile: it is in the tree while it is on its way.
                    Err(error) => {
                        let staged = file.lock();
                        if staged.block(block).is_none() && staged.version == old_blocks.version {
                            return Err(error);
                        }
                    }
                },
                Need::Room { first, end } => {
                    mapped = self.find_room(ino, file, first, end, &mut flushed)?;
                }
                Need::Stop(error) => return Err(error),
            }
        }
    }

    fn try_stage(
        &self,
        staged: &mut Staged,
        offset: u64,
        bytes: &[u8],
        old_blocks: &OldBlocks,
        grant: Grant<'_>,
    ) -> Result<(), Need> {
        // Most small writes go to blocks that are dirty: these have their space, and need nothing of what was there.
        if let Some(out) = staged.dirty_bytes(offset, bytes.len()) {
            out.copy_from_slice(bytes);
            return Ok(());
        }
        if let Some(block) = missing_old_block(staged, offset, bytes, old_blocks) {
            return Err(Need::OldBlock(block));
        }
        let (first, end) = (block_of(offset), blocks_in(offset + bytes.len() as u64));
        let new = staged.new_blocks(first, end);
        let before = staged.dirty_blocks();
        match grant {
            Grant::Promised => self.space.take(new),
            Grant::Over(mapped) => {
                let overwriting = mapped_blocks(staged, mapped, first, end);
                if new > 0 && !self.space.reserve_over(new, overwriting) {
                    return Err(Need::Room { first, end });
                }
            }
        }
        stage(staged, offset, bytes, old_blocks)?;
        let after = staged.dirty_blocks();
        invariant!(
            self.store.media.alarm,
            after == before + new,
            "{new} blocks have their space, and {before} dirty blocks became {after}"
        );
        Ok(())
    }

    /// Makes room for a write of blocks `first..end`: by flushing what is staged, which frees what it overwrites. Returns the ranges of
    /// them that are mapped, none after a flush; the caller tries again either way. [`Error::NoSpace`] if there is no room.
    fn find_room(
        &self,
        ino: Ino,
        file: &File,
        first: u64,
        end: u64,
        flushed: &mut bool,
    ) -> Result<Mapped> {
        if self.space.staged_blocks() > 0 && self.write_back()? {
            return Ok(Mapped::default());
        }
        let moment = self.snapshot_fence.moment();
        let takes_blocks = |mapped: &&MappedExtent| {
            matches!(
                mapped.extent,
                Extent::Frame { .. } | Extent::Reserved { .. }
            )
        };
        let ranges = self.store.view::<_, Error>(|view| {
            let scope = view.find(|meta| Ok(meta.versions.at(ino)?.scope))?;
            let extents = view.extents(ino, first, end, usize::MAX)?;
            // What a snapshot has is not freed.
            let owned = extents.iter().filter(|e| scope.owns(e.version));
            let ranges = owned.filter(takes_blocks).map(|e| (e.block, e.end()));
            Ok(ranges.collect())
        })?;
        let mapped = Mapped { moment, ranges };
        let (overwriting, new) = {
            let staged = file.lock();
            let overwriting = mapped_blocks(&staged, &mapped.ranges, first, end);
            (overwriting, staged.new_blocks(first, end))
        };
        if self.space.has_room_over(new, overwriting) {
            return Ok(mapped);
        }
        if !std::mem::replace(flushed, true) && self.flush_reservations()?
            || self.settler.settle_some()?
        {
            return Ok(Mapped::default());
        }
        Err(self.store.zones.no_space())
    }
}

/// Ranges of blocks that are mapped, and that only this subvolume has, as of a moment.
#[derive(Default)]
struct Mapped {
    moment: u64,
    ranges: Vec<(u64, u64)>,
}

/// How the blocks of a write have their room.
#[derive(Clone, Copy)]
enum Grant<'a> {
    /// They were promised.
    Promised,
    /// They are reserved now. These blocks of the file are mapped: what is staged over them takes no more than it frees.
    Over(&'a [(u64, u64)]),
}

/// Blocks in `first..end` that are mapped and not staged: what is staged over a mapped block has taken the room of that already.
fn mapped_blocks(staged: &Staged, mapped: &[(u64, u64)], first: u64, end: u64) -> u64 {
    let within = |(from, to): &(u64, u64)| staged.new_blocks((*from).max(first), (*to).min(end));
    mapped.iter().map(within).sum()
}

/// The first and the last block of a write to a file of some size, if it changes what they hold in part: behind the
/// file's end there is nothing.
fn partial_blocks(offset: u64, bytes: &[u8], file_size: u64) -> [Option<u64>; 2] {
    let end = offset + bytes.len() as u64;
    let size = BLOCK_SIZE as u64;
    let head = (!offset.is_multiple_of(size)).then(|| block_of(offset));
    let tail = (!end.is_multiple_of(size) && end < file_size).then(|| block_of(end));
    [head, tail.filter(|t| Some(*t) != head)]
}

/// A block whose old content is needed and not at hand.
fn missing_old_block(
    staged: &Staged,
    offset: u64,
    bytes: &[u8],
    old_blocks: &OldBlocks,
) -> Option<u64> {
    let size = staged.size.unwrap_or(0);
    let in_file = blocks_in(size);
    partial_blocks(offset, bytes, size)
        .into_iter()
        .flatten()
        .find(|block| {
            *block < in_file && staged.block(*block).is_none() && old_blocks.get(*block).is_none()
        })
}

fn stage(staged: &mut Staged, offset: u64, bytes: &[u8], old_blocks: &OldBlocks) -> Result<()> {
    let mut at = offset;
    let mut rest = bytes;
    while !rest.is_empty() {
        let within = (at % BLOCK_SIZE as u64) as usize;
        let whole = if within == 0 {
            rest.len() / BLOCK_SIZE * BLOCK_SIZE
        } else {
            0
        };
        let take = if whole > 0 {
            whole
        } else {
            (BLOCK_SIZE - within).min(rest.len())
        };
        let (now, later) = rest.split_at(take);
        let block = block_of(at);
        if whole > 0 {
            staged.write_blocks(block, now)?;
        } else {
            let old = if staged.is_dirty(block) {
                None
            } else {
                staged
                    .block(block)
                    .or(old_blocks.get(block))
                    .map(<[u8]>::to_vec)
            };
            let out = staged.dirty_block(block, old.as_deref())?;
            // Both are within a block.
            if let Some(out) = out.get_mut(within..within + take) {
                out.copy_from_slice(now);
            }
        }
        at += take as u64;
        rest = later;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{CHUNK, first_chunk};

    /// A record of some bytes that crossed a multiple of 1 MiB was two steps of the history: a crash left the half of it.
    #[test]
    fn a_write_that_fits_a_chunk_is_not_cut() {
        let end = CHUNK as u64;
        assert_eq!(first_chunk(end - 10, 500), 500);
        assert_eq!(first_chunk(end - 10, CHUNK), CHUNK);
        assert_eq!(first_chunk(end - 10, CHUNK + 1), 10);
        assert_eq!(first_chunk(end, 2 * CHUNK), CHUNK);
    }
}
