//! The content of files, and the space that it takes.

use persimmon_format::Ino;
use persimmon_format::inode::{Inode, Timestamp};

use super::Volume;
use crate::data::{CloneRange, Cloned, Seek, WriteHint};
use crate::error::Result;
use crate::space::{Promised, SpaceReport};

impl Volume {
    /// Makes all transactions so far durable; staged file data is not forced.
    pub fn sync_metadata(&self) -> Result<()> {
        self.engine.data.sync_metadata()
    }

    /// Reads from a regular file; returns the bytes read, fewer than asked for at its end.
    ///
    /// It reads again if the file was made shorter meanwhile: a hole that was found may be where
    /// there was no file, and somebody may have made it longer again.
    pub fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.engine.data.read(ino, offset, buf)
    }

    /// The same past [`Options::read_cache_bytes_max`](crate::Options::read_cache_bytes_max): from the device, and not kept.
    pub fn read_direct(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.engine.data.read_direct(ino, offset, buf)
    }

    /// Reads several ranges of a file, each as [`Volume::read`] or [`Volume::read_direct`] does. What lies on the device is asked for
    /// together: a drive serves the ranges side by side.
    pub fn read_batch(
        &self,
        ino: Ino,
        ranges: &mut [(u64, &mut [u8])],
        is_direct: bool,
    ) -> Vec<Result<usize>> {
        self.engine.data.read_batch(ino, ranges, is_direct)
    }

    /// Writes to a regular file. Visible at once, durable after [`Volume::sync_file`]. Returns how
    /// many bytes were written: fewer than asked for where room ran out half way.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8], now: Timestamp) -> Result<usize> {
        self.engine.data.write(ino, offset, data, now)
    }

    /// [`Volume::write`] of data of which more is known.
    pub fn write_hinted(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        now: Timestamp,
        hint: impl Into<WriteHint>,
    ) -> Result<usize> {
        self.engine
            .data
            .write_hinted(ino, offset, data, now, hint.into())
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
        self.engine
            .data
            .write_promised(ino, offset, data, hint, promised)
    }

    /// Writes at the end of a regular file, wherever that is by then: returns where, and how many
    /// bytes. Otherwise as [`Volume::write_hinted`].
    pub fn append(
        &self,
        ino: Ino,
        data: &[u8],
        now: Timestamp,
        hint: impl Into<WriteHint>,
    ) -> Result<(u64, usize)> {
        self.engine.data.append(ino, data, now, hint.into())
    }

    /// Staged data of a file enters the history. Nothing is made durable.
    pub fn commit_file(&self, ino: Ino) -> Result<()> {
        self.engine.data.commit_file(ino)
    }

    /// Makes a file durable, with everything that happened before.
    pub fn sync_file(&self, ino: Ino) -> Result<()> {
        self.engine.data.sync_file(ino)
    }

    /// Has a file outlive the death of this process, with everything that happened before: it is in the hands of the device,
    /// or of the host's kernel, but may be in a cache that the power empties.
    pub fn record_file(&self, ino: Ino) -> Result<()> {
        self.engine.data.record_file(ino)
    }

    /// Makes everything durable. Where some file finds no room, or fails, the others do all the same. As long as there is
    /// a file of which something was given up because its items are damaged, not everything is: that is
    /// [`Error::ItemDamaged`], if nothing worse is wrong.
    pub fn sync(&self) -> Result<()> {
        self.engine.data.sync()
    }

    /// An inode as a reader sees it: with what is staged of it.
    pub fn attr(&self, ino: Ino) -> Result<Option<Inode>> {
        self.engine.data.attr(ino)
    }

    /// The same, and whether something of it waits to be written, or is being written: the space it takes will change then without
    /// anything being done to it. What is written in between is not taken for staged, and that is the safe side.
    pub fn attr_and_staging(&self, ino: Ino) -> Result<Option<(Inode, bool)>> {
        self.engine.data.attr_and_staging(ino)
    }

    /// Changes an inode with its times. `change` is told when it was last written, where that is not
    /// in the tree, and is to put it there, or something else: what is staged has no times after it.
    pub fn change_times<R, E>(
        &self,
        ino: Ino,
        change: impl FnOnce(Option<Timestamp>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.engine.data.change_times(ino, change)
    }

    /// Sets a file's size; what is beyond it is gone, what is new reads as zeros.
    pub fn truncate(&self, ino: Ino, size: u64, now: Timestamp) -> Result<()> {
        self.engine.data.truncate(ino, size, now)
    }

    /// Makes a range a hole; the size stays.
    pub fn punch(&self, ino: Ino, offset: u64, len: u64, now: Timestamp) -> Result<()> {
        self.engine.data.punch(ino, offset, len, now)
    }

    /// Clones a range of one file into another, as far as it goes without copying.
    pub fn clone_range(&self, range: &CloneRange, now: Timestamp) -> Result<Cloned> {
        self.engine.data.clone_range(range, now)
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
        self.engine
            .data
            .preallocate(ino, offset, len, keep_size, now)
    }

    /// Makes a range read as zeros, with space set aside for it.
    pub fn zero(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        keep_size: bool,
        now: Timestamp,
    ) -> Result<()> {
        self.engine.data.zero(ino, offset, len, keep_size, now)
    }

    /// Frees inodes without a name that nobody has open, in records of bounded size, several of
    /// them in one. Those that have a name stay as they are.
    pub fn reclaim(&self, inos: &[Ino]) -> Result<()> {
        self.engine.data.reclaim(inos)
    }

    /// The next data or hole at or after `offset`; `None` past the end, or if no data follows. Staged blocks are data, whether
    /// they can be written or not.
    pub fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<Option<u64>> {
        self.engine.data.seek(ino, offset, what)
    }

    /// Promises blocks to somebody who answers writes before the volume has them, if there are so many.
    pub fn promise(&self, blocks: u64) -> Option<Promised> {
        self.engine.space.promise(blocks)
    }

    /// From now on what is written may use that part of the reserve which only makes cleaning cheaper, or no longer: for what was
    /// acknowledged before, and must find room.
    pub fn allow_reserve(&self, reserve_allowed: bool) {
        self.engine.space.allow_reserve(reserve_allowed)
    }

    /// Space in the volume.
    #[must_use]
    pub fn space(&self) -> SpaceReport {
        self.engine.space.report()
    }
}
