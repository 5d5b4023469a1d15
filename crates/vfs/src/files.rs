//! Content of regular files.
//!
//! Each operation takes the inode and the handle it came through. With [`Handle::NONE`] it goes by
//! the inode alone (for a door that opens nothing): then there is no append and no `O_SYNC`.

use crate::{Allocate, Handle, Ino, Result, SeekTo, Vfs, WriteFlags};

impl Vfs {
    /// Reads at `offset` into `buf`. Tells how many bytes: fewer than `buf` holds only at the end
    /// of the file.
    pub fn read(&self, ino: Ino, handle: Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        unimplemented!()
    }

    /// Writes all of `data` at `offset`, or at the end through a handle that appends. Tells the
    /// offset past it.
    pub fn write(
        &self,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<u64> {
        unimplemented!()
    }

    /// Makes a file durable with its name and everything before it in the history. `data_only`
    /// (`fdatasync`) may leave out times.
    pub fn fsync(&self, ino: Ino, handle: Handle, data_only: bool) -> Result<()> {
        unimplemented!()
    }

    /// Changes how a range is backed.
    pub fn fallocate(
        &self,
        ino: Ino,
        handle: Handle,
        offset: u64,
        len: u64,
        what: Allocate,
    ) -> Result<()> {
        unimplemented!()
    }

    /// The next data or hole at or past `offset`.
    pub fn seek(&self, ino: Ino, handle: Handle, offset: u64, to: SeekTo) -> Result<u64> {
        unimplemented!()
    }

    /// Copies up to `len` bytes between files, or within one if the ranges are apart. Tells how
    /// many were copied; 0 at the end of the source.
    pub fn copy_file_range(
        &self,
        source: (Ino, Handle, u64),
        target: (Ino, Handle, u64),
        len: u64,
    ) -> Result<u64> {
        unimplemented!()
    }
}
