//! Open files.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use persimmon_vfs::{
    Allocate, Attr, Caller, Error as VfsError, Handle, Ino, Lifetime, OpenFlags,
    Result as VfsResult, SeekTo, SetAttr, Vfs, WriteFlags, Written,
};

use crate::Result;
use crate::path::{Last, parent, resolve};

/// How a file is opened; as `std::fs::OpenOptions`.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct OpenOptions {
    flags: OpenFlags,
    create: bool,
    mode: Option<u32>,
    lifetime: Option<Lifetime>,
}

impl OpenOptions {
    /// Nothing set.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// For reading.
    pub fn read(mut self, read: bool) -> OpenOptions {
        self.flags.read = read;
        self
    }

    /// For writing.
    pub fn write(mut self, write: bool) -> OpenOptions {
        self.flags.write = write;
        self
    }

    /// For writing at the end, wherever that is.
    pub fn append(mut self, append: bool) -> OpenOptions {
        self.flags.append = append;
        self.flags.write |= append;
        self
    }

    /// Emptied.
    pub fn truncate(mut self, truncate: bool) -> OpenOptions {
        self.flags.truncate = truncate;
        self
    }

    /// Made if it is missing.
    pub fn create(mut self, create: bool) -> OpenOptions {
        self.create = create;
        self
    }

    /// Made, and missing before.
    pub fn create_new(mut self, create_new: bool) -> OpenOptions {
        self.create |= create_new;
        self.flags.exclusive = create_new;
        self
    }

    /// Permissions of a file that is made, before the mask 022; 0666 if not set.
    pub fn mode(mut self, mode: u32) -> OpenOptions {
        self.mode = Some(mode);
        self
    }

    /// How long what is written through it will live, in the place of what the attribute
    /// `user.persimmon.lifetime` of the file says. Only for one opened for writing.
    pub fn lifetime(mut self, lifetime: Lifetime) -> OpenOptions {
        self.lifetime = Some(lifetime);
        self
    }

    /// Every write outlives the death of this process once it has returned, with every change of names and attributes before:
    /// it is in the hands of the device, or of the kernel where the volume is an image. The power may still take it. For logs
    /// that are synced now and then. A small write costs a block of the journal, and no flush.
    pub fn write_through(mut self, write_through: bool) -> OpenOptions {
        self.flags.write_through = write_through;
        self
    }

    /// Every write is durable before it returns.
    pub fn sync(mut self, sync: bool) -> OpenOptions {
        self.flags.sync = sync;
        self
    }
}

/// An open file. Reads and writes at the cursor go through [`Read`], [`Write`] and [`Seek`].
/// Closing cannot fail, but what is not synced may be lost in a crash, and what is neither synced nor
/// flushed ([`Write::flush`]) with the process.
pub struct File {
    vfs: Arc<Vfs>,
    ino: Ino,
    handle: Handle,
    cursor: u64,
}

impl File {
    pub(crate) fn open(
        vfs: &Arc<Vfs>,
        caller: &Caller,
        path: &Path,
        options: &OpenOptions,
    ) -> VfsResult<File> {
        let (ino, handle) = if options.create {
            create(vfs, caller, path, options)?
        } else {
            let ino = resolve(vfs, path, Last::Follow)?.ino;
            (ino, vfs.open(ino, options.flags)?)
        };
        let file = File {
            vfs: Arc::clone(vfs),
            ino,
            handle,
            cursor: 0,
        };
        if options.lifetime.is_some() {
            vfs.set_lifetime(ino, handle, options.lifetime)?;
        }
        Ok(file)
    }

    /// Its inode number.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Tells how long what is written through it from now on will live; `None` takes that back.
    pub fn set_lifetime(&self, lifetime: Option<Lifetime>) -> Result<()> {
        Ok(self.vfs.set_lifetime(self.ino, self.handle, lifetime)?)
    }

    /// What was told so, or else of the file.
    pub fn lifetime(&self) -> Result<Option<Lifetime>> {
        Ok(self.vfs.lifetime(self.ino, self.handle)?)
    }

    /// Attributes.
    pub fn metadata(&self) -> Result<Attr> {
        Ok(self.vfs.getattr(self.ino)?)
    }

    /// Reads at `offset`; fewer bytes than asked for only at the end.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        Ok(self.vfs.read(self.ino, self.handle, offset, buf)?)
    }

    /// Writes all of `data` at `offset`.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let mut rest = data;
        let mut at = offset;
        while !rest.is_empty() {
            let written = self.put(rest, at)?;
            rest = rest.get(written.len..).unwrap_or_default();
            at = written.end;
        }
        Ok(())
    }

    fn put(&self, data: &[u8], offset: u64) -> Result<Written> {
        let flags = WriteFlags::default();
        Ok(self.vfs.write(self.ino, self.handle, offset, data, flags)?)
    }

    /// Cuts it off or extends it with zeros.
    pub fn set_len(&self, size: u64) -> Result<()> {
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        self.vfs.setattr(self.ino, self.handle, &set)?;
        Ok(())
    }

    /// Makes its content durable, and every change of names and attributes before, of all files; not what was written to other
    /// files. [`Filesystem::sync`](crate::Filesystem::sync) does that, too.
    pub fn sync_all(&self) -> Result<()> {
        Ok(self.vfs.fsync(self.ino, self.handle)?)
    }

    /// The same: times cost nothing more.
    pub fn sync_data(&self) -> Result<()> {
        Ok(self.vfs.fsync(self.ino, self.handle)?)
    }

    /// Changes how a range is backed.
    pub fn allocate(&self, offset: u64, len: u64, what: Allocate) -> Result<()> {
        Ok(self
            .vfs
            .fallocate(self.ino, self.handle, offset, len, what)?)
    }

    /// The next data or hole at or after `offset`; `None` past the end.
    pub fn seek_to(&self, offset: u64, to: SeekTo) -> Result<Option<u64>> {
        match self.vfs.seek(self.ino, self.handle, offset, to) {
            Ok(found) => Ok(Some(found)),
            Err(VfsError::NoSuchOffset) => Ok(None),
            Err(error) => Err(error.into()),
        }
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
    let (dir, name) = parent(vfs, path)?;
    match vfs.create(caller, dir, name, mode, options.flags) {
        Ok((attr, handle)) => Ok((attr.ino, handle)),
        Err(VfsError::SymlinkLoop) => {
            let ino = resolve(vfs, path, Last::Follow)?.ino;
            Ok((ino, vfs.open(ino, options.flags)?))
        }
        Err(error) => Err(error),
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if let Err(error) = self.vfs.release(self.ino, self.handle) {
            tracing::warn!(ino = self.ino.0, %error, "closing a file");
        }
    }
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

    /// What was written to the file outlives the death of this process, as with [`OpenOptions::write_through`].
    fn flush(&mut self) -> io::Result<()> {
        self.vfs
            .flush_through(self.ino, self.handle)
            .map_err(|error| crate::Error::from(error).into())
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
