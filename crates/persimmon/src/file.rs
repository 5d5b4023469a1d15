//! Open files.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use persimmon_device::BLOCK_SIZE;
use persimmon_vfs::{
    Allocate, Attr, Caller, Error as VfsError, Handle, Ino, Lifetime, LockKind, LockOwner,
    Result as VfsResult, SeekTo, SetAttr, StatFs, Vfs, WriteFlags, Written,
};

use crate::kept::Kept;
use crate::mounted::Mounted;
use crate::path::{Last, from_root, parent_of_file, resolve};
use crate::reads::PendingRead;
use crate::{Error, OpenOptions, Result};

/// Bytes taken at a time from one volume to another.
const COPY_BYTES: usize = 1 << 20;

/// What the engine writes in one step, bytes.
const WHOLE_BYTES_MAX: usize = 1 << 20;

/// How data is written: all of it or nothing, also where a quota ends, as long as it is one step. A log ends where a record does then,
/// and can be read to its end.
pub(crate) fn write_flags(data: &[u8]) -> WriteFlags {
    WriteFlags {
        whole: data.len() <= WHOLE_BYTES_MAX,
        ..WriteFlags::default()
    }
}

/// An open file. Reads and writes at the cursor go through [`Read`], [`Write`] and [`Seek`]. Any number of threads may use
/// one at offsets.
/// Closing cannot fail, but what is not synced may be lost in a crash, and what is neither synced nor
/// flushed ([`Write::flush`]) with the process.
pub struct File {
    open: Arc<OpenFile>,
    cursor: u64,
}

/// What an open file and its reads under way share.
pub(crate) struct OpenFile {
    mounted: Arc<Mounted>,
    ino: Ino,
    handle: Handle,
    /// Writes go to its end.
    appends: bool,
    /// The kernel keeps what is flushed.
    kept: Option<Arc<Kept>>,
    /// As it was opened, for messages.
    path: PathBuf,
}

impl OpenFile {
    fn vfs(&self) -> &Vfs {
        self.mounted.vfs_as_it_is()
    }

    /// Calls the filesystem with this file, all of which the volume has; an error gets its path.
    fn with<T>(&self, act: impl FnOnce(&Vfs, Ino, Handle) -> VfsResult<T>) -> Result<T> {
        let filled = self.mounted.keeper().fill_in(self.vfs(), self.ino);
        self.as_it_is(|vfs, ino, handle| filled.and_then(|()| act(vfs, ino, handle)))
    }

    /// The same, to read nothing behind `end`.
    fn before<T>(
        &self,
        end: u64,
        act: impl FnOnce(&Vfs, Ino, Handle) -> VfsResult<T>,
    ) -> Result<T> {
        let keeper = self.mounted.keeper();
        let filled = keeper.fill_in_before(self.vfs(), self.ino, end);
        self.as_it_is(|vfs, ino, handle| filled.and_then(|()| act(vfs, ino, handle)))
    }

    /// The same, whatever the volume has of it.
    fn as_it_is<T>(&self, act: impl FnOnce(&Vfs, Ino, Handle) -> VfsResult<T>) -> Result<T> {
        self.named(act(self.vfs(), self.ino, self.handle))
    }

    /// Reads at `offset`; fewer bytes than asked for only at the end.
    pub(crate) fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let end = offset.saturating_add(buf.len() as u64);
        self.before(end, |vfs, ino, handle| vfs.read(ino, handle, offset, buf))
    }

    /// Reads up to `len` bytes at `offset` into memory of its own: no more than the file has there.
    pub(crate) fn read_up_to(&self, len: usize, offset: u64) -> Result<Vec<u8>> {
        let size = self.with(|vfs, ino, _| vfs.getattr(ino))?.size;
        let there = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut content = Vec::new();
        content
            .try_reserve_exact(len.min(there))
            .map_err(|_| Error::OutOfMemory {
                path: self.path.clone(),
                bytes: len.min(there) as u64,
            })?;
        content.resize(len.min(there), 0);
        let read = self.read_at(&mut content, offset)?;
        content.truncate(read);
        Ok(content)
    }

    /// A lock belongs to the open file.
    fn lock_owner(&self) -> LockOwner {
        LockOwner(self.handle.0)
    }

    /// An error with the path that the file was opened by.
    fn named<T>(&self, result: VfsResult<T>) -> Result<T> {
        result.map_err(Error::at(&self.path))
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if let Some(kept) = self.kept.take() {
            self.mounted.keeper().close(self.vfs(), &kept);
        }
        self.vfs().release_locks(self.ino, self.lock_owner());
        if let Err(error) = self.vfs().release(self.ino, self.handle) {
            tracing::warn!(ino = self.ino.0, %error, "closing a file");
        }
    }
}

impl File {
    pub(crate) fn open(
        mounted: &Arc<Mounted>,
        path: &Path,
        options: &OpenOptions,
    ) -> VfsResult<File> {
        let vfs = mounted.vfs();
        // Whose content it is that goes is known once it is open.
        let mut options = *options;
        let unused = options
            .flags
            .truncate
            .then(|| mounted.keeper().while_unused());
        let empties = matches!(unused, Some(None));
        options.flags.truncate &= !empties;
        let options = &options;
        let (ino, handle) = if options.create {
            create(vfs, mounted.caller(), path, options)?
        } else {
            open_found(vfs, path, options)?
        };
        drop(unused);
        // What outlives the process, or the power, with each write needs no tail.
        let flags = &options.flags;
        let keeps = options.keep_flushed && flags.write && !(flags.sync || flags.write_through);
        let file = File {
            open: Arc::new(OpenFile {
                mounted: Arc::clone(mounted),
                ino,
                handle,
                appends: options.flags.append,
                kept: keeps.then(|| mounted.keeper().open(vfs, ino)),
                path: path.to_owned(),
            }),
            cursor: 0,
        };
        if empties {
            let set = SetAttr {
                size: Some(0),
                ..SetAttr::default()
            };
            let empty = || vfs.setattr(ino, Handle::NONE, &set);
            mounted.keeper().changing(vfs, ino, empty)?;
        }
        if options.lifetime.is_some() {
            vfs.set_lifetime(ino, handle, options.lifetime)?;
        }
        Ok(file)
    }

    /// Its inode number.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.open.ino
    }

    /// Calls the filesystem with this file; an error gets its path.
    fn with<T>(&self, act: impl FnOnce(&Vfs, Ino, Handle) -> VfsResult<T>) -> Result<T> {
        self.open.with(act)
    }

    /// Tells how long what is written through it from now on will live; `None` takes that back.
    pub fn set_lifetime(&self, lifetime: Option<Lifetime>) -> Result<()> {
        let open = &*self.open;
        open.as_it_is(|vfs, ino, handle| vfs.set_lifetime(ino, handle, lifetime))
    }

    /// What was told so, or else of the file.
    pub fn lifetime(&self) -> Result<Option<Lifetime>> {
        self.open.as_it_is(Vfs::lifetime)
    }

    /// Attributes.
    pub fn metadata(&self) -> Result<Attr> {
        self.with(|vfs, ino, _| vfs.getattr(ino))
    }

    /// Space and inodes, as of [`Filesystem::statfs_at`](crate::Filesystem::statfs_at).
    pub fn statfs(&self) -> Result<StatFs> {
        self.open.as_it_is(|vfs, ino, _| vfs.statfs_at(ino))
    }

    /// Reads at `offset`; fewer bytes than asked for only at the end.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.open.read_at(buf, offset)
    }

    /// Up to `len` bytes at `offset`: fewer only at the end.
    pub fn read_up_to(&self, len: usize, offset: u64) -> Result<Vec<u8>> {
        self.open.read_up_to(len, offset)
    }

    /// Submits a read of up to `len` bytes at `offset`, which a thread of the library does. [`PendingRead`] tells when it
    /// is done. The file stays open until then. Of 256 reads that wait already the next one is done at once, here.
    ///
    /// # Errors
    /// When a thread cannot be started. What the read itself meets, [`PendingRead::wait`] tells.
    pub fn submit_read(&self, len: usize, offset: u64) -> Result<PendingRead> {
        self.open.mounted.readers().submit(&self.open, offset, len)
    }

    /// Writes all of `data` at `offset`. Through a file opened to append, at its end, whatever `offset` is: there
    /// [`File::append`] says where it went. Of up to 1 MiB all is written or, where it is refused, nothing.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        if data.is_empty() {
            // A file that is open for reading alone refuses that, too.
            let flags = write_flags(data);
            let write = |vfs: &Vfs, ino, handle| vfs.write(ino, handle, offset, data, flags);
            return self.open.as_it_is(write).map(drop);
        }
        let mut rest = data;
        let mut at = offset;
        while !rest.is_empty() {
            let written = self.put(rest, at)?;
            rest = rest.get(written.len..).unwrap_or_default();
            at = written.end;
        }
        Ok(())
    }

    /// Writes all of `data` at the end of a file opened to append, and tells the file's offset behind it. Of up to
    /// 1 MiB it is one write: what other threads append comes before or after it, and where it is refused nothing is written.
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        if !self.open.appends {
            return self.open.named(Err(VfsError::Invalid(
                "a file that was not opened to append",
            )));
        }
        let mut rest = data;
        let mut end = None;
        while !rest.is_empty() {
            let written = self.put(rest, 0)?;
            rest = rest.get(written.len..).unwrap_or_default();
            end = Some(written.end);
        }
        match end {
            Some(end) => Ok(end),
            None => Ok(self.metadata()?.size),
        }
    }

    /// [`File::write_at`] and [`File::flush_through`] in one, for logs: they flush what they append record by record, and a call
    /// costs more than what it does.
    ///
    /// # Errors
    /// As those of the two. After one the data may be in the file all the same, and not outlive the process yet.
    #[inline]
    pub fn write_flushed_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let open = &*self.open;
        if let Some(kept) = &open.kept {
            let keeper = open.mounted.keeper();
            match keeper.append_flushed(kept, (open.handle, open.appends), offset, data) {
                Some(true) => return Ok(()),
                Some(false) => return self.flush_through(),
                None => {}
            }
        }
        self.write_and_flush(data, offset)
    }

    /// [`File::write_flushed_at`], whatever that takes.
    #[cold]
    fn write_and_flush(&self, data: &[u8], offset: u64) -> Result<()> {
        let Some(kept) = self.open.kept.as_ref().filter(|_| !data.is_empty()) else {
            self.write_at(data, offset)?;
            return self.flush_through();
        };
        let open = &*self.open;
        let (vfs, keeper) = (open.vfs(), open.mounted.keeper());
        let written = keeper.write_flushed(vfs, kept, (open.handle, open.appends), offset, data);
        let written = open.named(written)?;
        // Room ran out half way: the rest is tried by itself.
        match data.get(written.len..) {
            Some([]) | None => Ok(()),
            Some(rest) => {
                self.write_at(rest, written.end)?;
                self.flush_through()
            }
        }
    }

    fn put(&self, data: &[u8], offset: u64) -> Result<Written> {
        let flags = write_flags(data);
        match &self.open.kept {
            Some(kept) => {
                let open = &*self.open;
                let (vfs, keeper) = (open.vfs(), open.mounted.keeper());
                open.named(keeper.write(vfs, kept, (open.handle, open.appends), offset, data))
            }
            None => self.change(|vfs, ino, handle| vfs.write(ino, handle, offset, data, flags)),
        }
    }

    /// Changes its content other than by appending through who keeps what is flushed.
    fn change<T>(&self, act: impl FnOnce(&Vfs, Ino, Handle) -> VfsResult<T>) -> Result<T> {
        let keeper = self.open.mounted.keeper();
        self.with(|vfs, ino, handle| keeper.changing(vfs, ino, || act(vfs, ino, handle)))
    }

    /// Cuts it off or extends it with zeros.
    pub fn set_len(&self, size: u64) -> Result<()> {
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        self.change(|vfs, ino, handle| vfs.setattr(ino, handle, &set))
            .map(drop)
    }

    /// Makes its content durable, and every change of names and attributes before, of all files; not what was written to other
    /// files. [`Filesystem::sync`](crate::Filesystem::sync) does that, too.
    pub fn sync_all(&self) -> Result<()> {
        self.with(Vfs::fsync)
    }

    /// The same: times cost nothing more.
    pub fn sync_data(&self) -> Result<()> {
        self.with(Vfs::fsync)
    }

    /// What was written to the file so far outlives the death of this process once this has returned, as with
    /// [`OpenOptions::write_through`], or with [`OpenOptions::keep_flushed`] if it was opened so; the power may still take it.
    pub fn flush_through(&self) -> Result<()> {
        match &self.open.kept {
            Some(kept) => {
                let open = &*self.open;
                let keeper = open.mounted.keeper();
                open.named(keeper.flush(open.vfs(), open.handle, kept))
            }
            None => self.with(Vfs::flush_through),
        }
    }

    /// Has what was written so far, to this file and others, written to the device soon, and waits for nothing. For who writes much and
    /// syncs it in the end: the sync has less left to do, and less memory is taken meanwhile. What is kept of flushes stays kept.
    pub fn start_write_back(&self) {
        self.open.mounted.ask_for_write_back();
    }

    /// Reads several ranges, each as [`File::read_at`] does, and answers for each by itself. What lies on the device is asked for
    /// together: a drive serves the ranges side by side.
    ///
    /// # Errors
    /// Where none of them can be read, as through a file opened for writing alone.
    pub fn read_batch(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<Vec<Result<usize>>> {
        let ends = ranges.iter();
        let ends = ends.map(|(offset, buf)| offset.saturating_add(buf.len() as u64));
        let end = ends.max().unwrap_or(0);
        let read = |vfs: &Vfs, ino, handle| vfs.read_batch(ino, handle, ranges);
        let read = self.open.before(end, read)?;
        Ok(read.into_iter().map(|one| self.open.named(one)).collect())
    }

    /// Takes the lock on the whole file, exclusively or shared, as `flock` does; it ends with the file.
    ///
    /// # Errors
    /// [`FilesystemError::WouldBlock`](crate::FilesystemError::WouldBlock) where another open file has it.
    pub fn try_lock(&self, exclusive: bool) -> Result<()> {
        let kind = if exclusive {
            LockKind::Write
        } else {
            LockKind::Read
        };
        self.flock(kind)
    }

    /// Lets go of that lock.
    pub fn unlock(&self) -> Result<()> {
        self.flock(LockKind::Unlock)
    }

    fn flock(&self, kind: LockKind) -> Result<()> {
        let owner = self.open.lock_owner();
        let open = &*self.open;
        open.as_it_is(|vfs, ino, _| vfs.flock(ino, owner, kind, false))
    }

    /// Changes how a range is backed.
    pub fn allocate(&self, offset: u64, len: u64, what: Allocate) -> Result<()> {
        self.change(|vfs, ino, handle| vfs.fallocate(ino, handle, offset, len, what))
    }

    /// The next data or hole at or after `offset`; `None` past the end.
    pub fn seek_to(&self, offset: u64, to: SeekTo) -> Result<Option<u64>> {
        self.with(|vfs, ino, handle| match vfs.seek(ino, handle, offset, to) {
            Ok(found) => Ok(Some(found)),
            Err(VfsError::NoSuchOffset) => Ok(None),
            Err(error) => Err(error),
        })
    }

    /// Has blocks of this file and of `target` that are equal stored once, from the beginnings of blocks on as far as they are equal: whole
    /// blocks, and the last block of both files. They are compared while neither file can be changed. No reader sees a change, and times
    /// stay. `target` is open for writing. Tells how many bytes are equal, and how many of them became shared; the others were already, or
    /// are each file's own still: small content, single compressed blocks, preallocated files.
    pub fn share_equal(
        &self,
        offset: u64,
        target: &File,
        target_offset: u64,
        len: u64,
    ) -> Result<(u64, u64)> {
        let (mut equal, mut shared) = (0, 0);
        // Volumes share no blocks.
        if !Arc::ptr_eq(&self.open.mounted, &target.open.mounted) {
            return Ok((equal, shared));
        }
        while equal < len {
            let source = (self.open.ino, self.open.handle, offset + equal);
            let target = (target.open.ino, target.open.handle, target_offset + equal);
            let keeper = self.open.mounted.keeper();
            let done = self.with(|vfs, _, _| {
                keeper.changing(vfs, target.0, || {
                    vfs.share_equal(source, target, (len - equal, 0), false)
                })
            })?;
            equal += done.bytes;
            shared += done.shared;
            // The last block of both files is the end.
            if done.bytes == 0 || !done.bytes.is_multiple_of(BLOCK_SIZE as u64) {
                break;
            }
        }
        Ok((equal, shared))
    }

    /// Copies up to `len` bytes from here to `target`, which may be of another volume, without taking them through the caller's
    /// memory. Tells how many were copied: fewer where this file ends.
    pub fn copy_to(&self, offset: u64, target: &File, target_offset: u64, len: u64) -> Result<u64> {
        // Inode numbers and handles mean something in their own volume alone.
        let together = Arc::ptr_eq(&self.open.mounted, &target.open.mounted);
        let mut copied = 0;
        while copied < len {
            let (from, to) = (offset + copied, target_offset + copied);
            let done = if together {
                let source = (self.open.ino, self.open.handle, from);
                let target = (target.open.ino, target.open.handle, to);
                let keeper = self.open.mounted.keeper();
                self.with(|vfs, _, _| {
                    keeper.changing(vfs, target.0, || {
                        vfs.copy_file_range(source, target, len - copied)
                    })
                })?
            } else {
                let piece = usize::try_from(len - copied).unwrap_or(usize::MAX);
                let data = self.read_up_to(piece.min(COPY_BYTES), from)?;
                target.write_at(&data, to)?;
                data.len() as u64
            };
            if done == 0 {
                break;
            }
            copied += done;
        }
        Ok(copied)
    }
}

/// Makes a file, or opens it where that is allowed. A link at the end is followed to what exists;
/// unlike `open(2)`, nothing is made at the far end of a link that leads nowhere.
fn create(
    vfs: &Vfs,
    caller: &Caller,
    path: &Path,
    options: &OpenOptions,
) -> VfsResult<(Ino, Handle)> {
    let mode = options.mode.unwrap_or(0o666);
    from_root(|| {
        let named = parent_of_file(vfs, path)?;
        named.check_of_new_file()?;
        match vfs.create(caller, named.dir, named.name, mode, options.flags) {
            Ok((attr, handle)) => Ok((attr.ino, handle)),
            Err(VfsError::SymlinkLoop) => open_found(vfs, path, options),
            // What is there need not be made.
            Err(VfsError::ReadOnly) if !options.flags.exclusive => {
                match open_found(vfs, path, options) {
                    Err(VfsError::NotFound) => Err(VfsError::ReadOnly),
                    opened => opened,
                }
            }
            Err(VfsError::ReadOnly) => match vfs.lookup(named.dir, named.name) {
                Ok(_) => Err(VfsError::Exists),
                Err(VfsError::NotFound) => Err(VfsError::ReadOnly),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        }
    })
}

/// Opens what a path leads to.
fn open_found(vfs: &Vfs, path: &Path, options: &OpenOptions) -> VfsResult<(Ino, Handle)> {
    from_root(|| {
        let ino = resolve(vfs, path, Last::Follow)?.ino;
        Ok((ino, vfs.open(ino, options.flags)?))
    })
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.read_at(buf, self.cursor)?;
        self.cursor += len as u64;
        Ok(len)
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = self.put(data, self.cursor)?;
        self.cursor = written.end;
        Ok(written.len)
    }

    /// The same as [`File::flush_through`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(self.flush_through()?)
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let from_end = |delta: i64| -> io::Result<Option<u64>> {
            Ok(self.metadata()?.size.checked_add_signed(delta))
        };
        let cursor = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(delta) => self.cursor.checked_add_signed(delta),
            SeekFrom::End(delta) => from_end(delta)?,
        };
        self.cursor = cursor.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "seek to before the start")
        })?;
        Ok(self.cursor)
    }
}
