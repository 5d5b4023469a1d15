//! Zeroing: a range comes to read as zeros, with space set aside for it.
//!
//! What the range has is given up by the records that set the space aside, and not before all of the room for that is held: where there is none,
//! the range stays as it is.

use persimmon_device::BLOCK_SIZE;
use persimmon_format::Ino;
use persimmon_format::delta::{block_at, place_of};
use persimmon_format::extent::Extent;
use persimmon_format::inode::Timestamp;
use persimmon_format::record::Touch;

use super::FileData;
use super::files::{Change, File};
use super::resize::{EXTENTS_MAX, map_reserved, whole_blocks};
use super::write::end_of;
use crate::error::{Error, Result};
use crate::meta::{Intent, Meta, deltas, extents};
use crate::space::Unwritten;

/// What one record sets aside.
struct Part {
    /// The first block behind it.
    end: u64,
    /// Blocks of room that it takes: those that have no whole block of their own to give.
    needed: u64,
}

impl FileData {
    /// Makes a range read as zeros, with space set aside for it.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: there is no room for it, and the range is what it was, unless a snapshot was taken in the midst of it.
    pub fn zero(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        keep_size: bool,
        now: Timestamp,
    ) -> Result<()> {
        let end = end_of(offset, len)?;
        self.change(ino, |change, file| {
            let (first, last) = whole_blocks((offset, end), change.size());
            let mut room = self.hold_to_zero(ino, change, (first, last))?;
            self.mark_preallocated(ino)?;
            let unit = BLOCK_SIZE as u64;
            let edges = match first > last {
                true => [(offset, end), (end, end)],
                false => [(offset, first * unit), (last * unit, end)],
            };
            let edges = edges.into_iter().filter(|(from, to)| from < to);
            // Overwriting what is set aside needs no room.
            for edge in edges.clone() {
                self.preallocate_in(ino, (change, file), edge, true, now)?;
            }
            for edge in edges {
                self.zero_within(ino, (change, file), edge, now)?;
            }
            self.set_aside(ino, (change, file), (first, last), &mut room, now)?;
            drop(room);
            self.preallocate_in(ino, (change, file), (offset, end), keep_size, now)
        })
    }

    /// Holds the room that setting these blocks aside takes.
    fn hold_to_zero(
        &self,
        ino: Ino,
        change: &Change<'_>,
        (first, last): (u64, u64),
    ) -> Result<Unwritten<'_>> {
        // What is staged is mapped first, so that the tree alone tells what there is.
        let _excluded = loop {
            self.commit_file(ino)?;
            let (excluded, staged) = change.exclude_write_back();
            if staged.dirty_blocks() == 0 {
                break excluded;
            }
        };
        let (mut from, mut needed) = (first, 0);
        while from < last {
            let part = self.store.view::<_, Error>(|view| {
                view.find(|meta| self.part_to_zero(meta, ino, (from, last)))
            })?;
            (from, needed) = (part.end, needed + part.needed);
        }
        let held = self.hold(|| self.space.hold_unwritten(needed))?;
        held.ok_or_else(|| self.store.zones.no_space())
    }

    /// Gives up what these blocks have, and sets space aside for them.
    fn set_aside(
        &self,
        ino: Ino,
        (change, file): (&Change<'_>, &File),
        (first, last): (u64, u64),
        room: &mut Unwritten<'_>,
        now: Timestamp,
    ) -> Result<()> {
        if first >= last {
            return Ok(());
        }
        let (_excluded, staged) = change.exclude_write_back();
        drop(staged);
        let ctime = file.lock().change_time(now);
        let mut from = first;
        while from < last {
            let part = self.history.update::<_, Error>(Intent::Shrink, |tx| {
                let part = tx.find(|meta| self.part_to_zero(meta, ino, (from, last)))?;
                // A snapshot may have been taken since, which keeps what there was.
                if part.needed > room.blocks() {
                    return Err(self.store.zones.no_space());
                }
                map_reserved(tx, ino, (from, part.end));
                let set = Touch {
                    mtime: Some(now),
                    ctime: Some(ctime),
                    ..Touch::default()
                };
                tx.touch(ino, set);
                Ok(part)
            })?;
            room.give_back(part.needed);
            from = part.end;
            let mut staged = file.lock();
            staged.version += 1;
            staged.changed(now);
        }
        Ok(())
    }

    /// What one record can take of a range: so many extents, and as many deltas.
    fn part_to_zero(&self, meta: &Meta, ino: Ino, (from, to): (u64, u64)) -> Result<Part> {
        let (shown, next) = extents::some_shown(meta, ino, from, to, EXTENTS_MAX)?;
        let mut end = next.unwrap_or(to);
        if deltas::may_have(meta, ino)? {
            let (first, last) = (place_of(from), place_of(end));
            let (_, next) = extents::some_shown(meta, ino, first, last, EXTENTS_MAX)?;
            end = next.map_or(end, block_at);
        }
        let scope = &meta.versions.at(ino)?.scope;
        // What is set aside counts for metadata, too: on a device of its own the blocks of files give it nothing.
        let frames_give = !self.store.zones.budget.layout.is_split();
        let own = shown.iter().filter(|mapped| {
            let gives = match mapped.extent {
                Extent::Reserved { .. } => true,
                Extent::Frame { .. } => frames_give,
                _ => false,
            };
            gives && scope.owns(mapped.version)
        });
        let own = own.map(|mapped| (mapped.block.max(from), mapped.end().min(end)));
        let own = own
            .filter(|(from, to)| from < to)
            .map(|(from, to)| to - from);
        Ok(Part {
            end,
            needed: end - from - own.sum::<u64>(),
        })
    }
}
