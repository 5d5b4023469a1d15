//! Open files: reading, writing, making durable.

use persimmon_vfs::{Allocate, Error, Handle, Ino, LockOwner, SeekTo, Timestamp, WriteFlags};

use super::names::opened;
use super::{Adapter, author, author_by_uid, done, keeping, node, open_flags};
use crate::capabilities::MAX_WRITE_BYTES;
use crate::protocol::{self, Answer, Call, Errno};
use crate::transport::Transport;

/// Most bytes one copy request moves, so that its answer fits 32 bits.
const COPY_BYTES_MAX: u64 = 1 << 30;

/// Setuid and setgid.
const SET_IDS: u32 = 0o6000;

/// A write from the page cache; its handle is a guess of the kernel's.
pub(super) const WRITE_CACHE: u32 = 1 << 0;
/// A writer without CAP_FSETID.
const WRITE_KILL_SUIDGID: u32 = 1 << 2;

impl Adapter {
    pub(super) fn open(&self, call: &mut Call<'_>, transport: &dyn Transport) -> Answer {
        let mut fields = call.fields();
        let (linux, kills) = (fields.u32()?, fields.u32()?);
        let flags = open_flags(call.header, linux, kills);
        let node = node(call);
        if let Some(open) = self.opened_before(&call.header) {
            return call.answer(&protocol::opened(open.handle.0, opened(true)));
        }
        let file = self.door.run("open", |vfs| {
            // Only of who has to lose them it is asked whether there are any.
            let may_lose = flags.truncate && kills != 0 && vfs.getattr(node)?.mode & SET_IDS != 0;
            let file = vfs.open(node, flags)?;
            if may_lose {
                transport.forget_attributes(node.0);
            }
            if flags.truncate {
                // Whoever hears of an error closes nothing.
                let synced = self.sync_node(node);
                synced.inspect_err(|_| drop(vfs.release(node, file)))?;
            }
            Ok(file)
        })?;
        // Of reads that the kernel answers from its cache nothing is heard: who opens a file to read it, reads it.
        if linux.cast_signed() & libc::O_ACCMODE != libc::O_WRONLY {
            let is_noted = self.door.vfs.opened_to_read(node, file).unwrap_or(false);
            if is_noted {
                // It remembers the attributes for long.
                transport.forget_attributes(node.0);
            }
        }
        // Before the file is noted as open: a request that is sent again is taken for done where it is.
        if flags.truncate {
            let recorded = self.door.record_content(node);
            recorded.inspect_err(|_| self.close_unanswered(node, file))?;
        }
        self.note_opened(&call.header, node, file, (linux, kills))?;
        self.pages.opened(node, linux);
        let flush = self.door.vfs.needs_flush(file) || self.pages.may_be_by(linux);
        call.answer(&protocol::opened(file.0, opened(flush)))
    }

    pub(super) fn read(&self, call: &mut Call<'_>) -> Answer {
        let mut fields = call.fields();
        let (file, offset, size) = (Handle(fields.u64()?), fields.u64()?, fields.u32()?);
        let node = node(call);
        let room = call.room(size.min(MAX_WRITE_BYTES) as usize);
        let timer = &self.door.latencies.read;
        self.door.run("read", |vfs| {
            timer.time(|| vfs.read(node, file, offset, room))
        })
    }

    pub(super) fn write(&self, call: &mut Call<'_>, transport: &dyn Transport) -> Answer {
        let mut fields = call.fields();
        let (file, offset) = (Handle(fields.u64()?), fields.u64()?);
        let (size, write_flags) = (fields.u32()?, fields.u32()?);
        let now = keeping::now();
        let flags = WriteFlags {
            author: author(call.header, write_flags & WRITE_KILL_SUIDGID != 0),
            data_sync: false,
            // Where it is noted, for whoever does it again.
            time: self.door.ledger.as_ref().map(|_| now),
            whole: false,
        };
        let data = call.data().get(..size as usize);
        let data = data.ok_or(protocol::MALFORMED)?;
        let kills = write_flags & WRITE_KILL_SUIDGID != 0;
        let is_from_cache = write_flags & WRITE_CACHE != 0;
        let writing = Writing {
            node: node(call),
            file: if is_from_cache { Handle::NONE } else { file },
            flags,
            noted: (now, kills.then_some(call.header.gid)),
        };
        let done = match is_from_cache {
            true => self.write_from_cache(&writing, offset, data, transport)?,
            false => self.write_some(&writing, offset, data, transport)?,
        };
        call.answer(&protocol::length(done as u32))
    }

    /// Writes, and notes, as much as there is room for. Tells how many bytes.
    fn write_some(
        &self,
        writing: &Writing,
        offset: u64,
        data: &[u8],
        transport: &dyn Transport,
    ) -> Result<usize, Errno> {
        let (node, flags) = (writing.node, writing.flags);
        let timer = &self.door.latencies.write;
        let written = self.door.run("write", |vfs| {
            timer.time(|| vfs.write(node, writing.file, offset, data, flags))
        });
        forget_attributes_if(node, transport, &written, |written| written.privileges_went);
        let taken = data.get(..written?.len).unwrap_or(data);
        self.note_written(node, offset, taken, writing.noted)?;
        Ok(taken.len())
    }

    /// Writes all that a kernel sends of its cache. It takes a short answer for a whole one, so what does not fit has to be an error, which the
    /// next fsync tells.
    fn write_from_cache(
        &self,
        writing: &Writing,
        offset: u64,
        data: &[u8],
        transport: &dyn Transport,
    ) -> Result<usize, Errno> {
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(done as u64);
            match self.write_some(writing, at, rest, transport)? {
                0 => return Err(Errno(libc::ENOSPC)),
                more => done += more,
            }
        }
        Ok(done)
    }

    pub(super) fn flush(&self, call: &Call<'_>) -> Answer {
        let mut fields = call.fields();
        let file = Handle(fields.u64()?);
        fields.skip_u64()?;
        let owner = LockOwner(fields.u64()?);
        let node = node(call);
        let flushed = self.door.run("flush", |vfs| vfs.flush(node, file, owner));
        done(flushed.and_then(|()| self.door.check_lost(node, file)))
    }

    pub(super) fn release(&self, call: &Call<'_>) -> Answer {
        let mut fields = call.fields();
        let (node, file, linux) = (node(call), Handle(fields.u64()?), fields.u32()?);
        self.note_released(file);
        let released = self.door.run("release", |vfs| vfs.release(node, file));
        // A release that is sent again may have been done before.
        if released != Err(Errno(libc::EBADF)) {
            self.door.lost.released(node, file);
            self.pages.released(node, linux);
        }
        done(released)
    }

    pub(super) fn fallocate(&self, call: &Call<'_>, transport: &dyn Transport) -> Answer {
        let mut fields = call.fields();
        let file = Handle(fields.u64()?);
        let (offset, length, mode) = (fields.u64()?, fields.u64()?, fields.u32()?);
        let (node, header) = (node(call), call.header);
        let allocated = self.door.run("fallocate", |vfs| {
            let what = Allocate::from_linux(mode.cast_signed())?;
            vfs.fallocate_by(author_by_uid(header), (node, file), (offset, length), what)
        });
        forget_attributes_if(node, transport, &allocated, |went| *went);
        done(allocated.map(drop))
    }

    pub(super) fn lseek(&self, call: &mut Call<'_>) -> Answer {
        let mut fields = call.fields();
        let (file, offset, whence) = (Handle(fields.u64()?), fields.u64()?, fields.u32()?);
        let node = node(call);
        let found = self.door.run("lseek", |vfs| {
            let to = match whence.cast_signed() {
                libc::SEEK_DATA => SeekTo::Data,
                libc::SEEK_HOLE => SeekTo::Hole,
                _ => return Err(Error::Invalid("whence")),
            };
            if i64::try_from(offset).is_err() {
                return Err(Error::NoSuchOffset);
            }
            let found = vfs.seek(node, file, offset, to)?;
            i64::try_from(found).map_err(|_| Error::FileTooLarge)?;
            Ok(found)
        })?;
        call.answer(&protocol::offset(found))
    }

    pub(super) fn copy_file_range(&self, call: &mut Call<'_>, transport: &dyn Transport) -> Answer {
        let mut fields = call.fields();
        // In the kernel's order: handle and offset of the source; inode, handle and offset of the
        // target.
        let from = (node(call), Handle(fields.u64()?), fields.u64()?);
        let to = (Ino(fields.u64()?), Handle(fields.u64()?), fields.u64()?);
        let length = fields.u64()?.min(COPY_BYTES_MAX);
        let header = call.header;
        let copied = self.door.run("copy_file_range", |vfs| {
            let copied = vfs.copy_file_range_by(author_by_uid(header), from, to, length)?;
            self.sync_node(to.0).map(|()| copied)
        });
        forget_attributes_if(to.0, transport, &copied, |(_, went)| *went);
        call.answer(&protocol::length(copied?.0 as u32))
    }
}

/// What a write request writes to.
struct Writing {
    node: Ino,
    file: Handle,
    flags: WriteFlags,
    /// When, and the group of a writer who takes setuid and setgid from the file.
    noted: (Timestamp, Option<u32>),
}

/// After content was changed, or an attempt that may have taken something before it failed: a kernel that asked for new times and size would
/// go on showing the mode that it knows.
fn forget_attributes_if<T>(
    node: Ino,
    transport: &dyn Transport,
    changed: &Result<T, Errno>,
    privileges_went: impl FnOnce(&T) -> bool,
) {
    if changed.as_ref().map_or(true, privileges_went) {
        transport.forget_attributes(node.0);
    }
}
