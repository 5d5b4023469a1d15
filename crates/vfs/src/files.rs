//! Content of regular files.
//!
//! Each operation takes the inode and the handle it came through. With [`Handle::NONE`] it goes by
//! the inode alone (for a door that opens nothing): then there is no append and no `O_SYNC`.

use persimmon_sync::atomic::Ordering;

use persimmon_engine::{
    CloneRange, CloneWhen, Cloned, Error as Engine, Layout, Promised, Seek, Shift, Syncs,
};
use persimmon_format::BLOCK_SIZE;

use crate::handles::{Open, check_has_content};
use crate::nodes::Node;
use crate::protection::{check_allocate, check_copied_into};
use crate::{
    Allocate, Author, Error, FILE_SIZE_MAX, Handle, Ino, Result, SeekTo, Timestamp, Vfs,
    WriteFlags, Written,
};

/// Bytes one call of `copy_file_range` copies at most, so that no request takes long.
const COPY_MAX: u64 = 8 << 20;
/// Steps of one call at most, each of which clones or copies.
const STEPS_MAX: usize = 256;
/// Bytes one call clones at most.
const CLONE_MAX: u64 = 256 << 20;
/// Bytes copied at a time.
const COPY_BUFFER: u64 = 256 << 10;

/// The end of a range, or `EFBIG`.
fn end_of(offset: u64, len: u64) -> Result<u64> {
    offset
        .checked_add(len)
        .filter(|end| *end <= FILE_SIZE_MAX)
        .ok_or(Error::FileTooLarge)
}

/// Before a range of a file of this size is taken out or put in.
fn check_shift(size: u64, (offset, len): (u64, u64), what: Allocate) -> Result<()> {
    let block = BLOCK_SIZE as u64;
    let is_whole = offset.is_multiple_of(block) && len.is_multiple_of(block);
    match what {
        Allocate::Collapse | Allocate::Insert if !is_whole => {
            Err(Error::Invalid("a range that is not of whole blocks"))
        }
        Allocate::Collapse if offset + len >= size => Err(Engine::NotBeforeEnd.into()),
        Allocate::Insert if offset >= size => Err(Engine::NotBeforeEnd.into()),
        Allocate::Insert => end_of(size, len).map(drop),
        _ => Ok(()),
    }
}

/// Who copies, and whether that took setuid, setgid or capabilities from the target.
struct Copying {
    author: Author,
    privileges_went: bool,
}

fn is_direct(open: Option<&Open>) -> bool {
    open.is_some_and(|open| open.flags.direct)
}

impl Vfs {
    /// Reads at `offset` into `buf`. Tells how many bytes: fewer than `buf` holds only at the end
    /// of the file.
    pub fn read(&self, ino: Ino, handle: Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let open = self.readable(ino, handle)?;
        // A block that cannot be read is the reader's trouble, not the volume's.
        let read = if is_direct(open.as_deref()) {
            self.volume.read_direct(ino, offset, buf)
        } else {
            self.volume.read(ino, offset, buf)
        };
        let len = read
            .map_err(Error::from)
            .inspect_err(|error| tracing::error!(%ino, offset, %error, "reading failed"))?;
        self.accessed(ino, open.as_deref());
        Ok(len)
    }

    /// Reads several ranges, each as [`Vfs::read`] does, and answers for each by itself: what lies on the device is asked for
    /// together.
    pub fn read_batch(
        &self,
        ino: Ino,
        handle: Handle,
        ranges: &mut [(u64, &mut [u8])],
    ) -> Result<Vec<Result<usize>>> {
        let open = self.readable(ino, handle)?;
        let is_direct = is_direct(open.as_deref());
        let read = self.volume.read_batch(ino, ranges, is_direct);
        self.accessed(ino, open.as_deref());
        let answers = read.into_iter().map(|result| {
            result
                .map_err(Error::from)
                .inspect_err(|error| tracing::error!(%ino, %error, "reading failed"))
        });
        Ok(answers.collect())
    }

    /// Writes `data` at `offset`, or at the end through a handle that appends. Where room runs out
    /// half way it writes less.
    pub fn write(
        &self,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<Written> {
        self.put(ino, handle, offset, data, (flags, None))
    }

    /// Writes at `offset`, whatever the handle says, data whose blocks the volume has promised: it finds room. Limits were asked
    /// before ([`Vfs::admit_later`]).
    pub fn write_promised(
        &self,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        promised: &Promised,
    ) -> Result<Written> {
        let how = (WriteFlags::default(), Some(promised));
        self.put(ino, handle, offset, data, how)
    }

    /// Writes at `offset` what was written before, at that time, and may be lost: neither limits nor flags that the file got since keep it from
    /// that. Of an author it takes setuid, setgid and capabilities as [`Vfs::write`] does, also where nothing is to be written. Tells how
    /// many bytes.
    pub fn write_again(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        (time, author): (Timestamp, Option<Author>),
    ) -> Result<usize> {
        self.changeable(ino)?;
        end_of(offset, data.len() as u64)?;
        let _pin = self.pin_unopened(ino, None)?;
        if let Some(author) = author {
            self.clear_privileges(ino, None, author)?;
        }
        if data.is_empty() {
            return Ok(0);
        }
        let hint = self.hint(ino, None);
        let written = self.volume.write_hinted(ino, offset, data, time, hint);
        self.watch(written)
    }

    fn put(
        &self,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        (flags, promised): (WriteFlags, Option<&Promised>),
    ) -> Result<Written> {
        self.changeable(ino)?;
        let open = self.opened_to_write(ino, handle)?;
        let node = open.as_ref().map(|o| &*o.node);
        let _pin = self.pin_unopened(ino, open.as_ref())?;
        let append = open.as_ref().is_some_and(|o| o.flags.append) && promised.is_none();
        if data.is_empty() {
            let end = if append {
                self.inode(ino)?.size
            } else {
                offset
            };
            return Ok(Written {
                len: 0,
                end,
                privileges_went: false,
            });
        }
        if !append {
            end_of(offset, data.len() as u64)?;
        }
        let _admitted;
        let mut data = data;
        if promised.is_none() {
            let at = if append {
                self.inode(ino)?.size
            } else {
                offset
            };
            end_of(at, data.len() as u64)?;
            let wanted = (at, data.len() as u64);
            let admission = self.admit(ino, open.as_deref(), wanted, flags.whole)?;
            data = data.get(..admission.len as usize).unwrap_or(data);
            _admitted = admission.admitted;
        }
        // What is refused takes nothing. Where the volume turns out to be full it does, as on Linux: content never changes before.
        let privileges_went = self.clear_privileges(ino, node, flags.author)?;
        let now = flags.time.unwrap_or_else(|| self.now());
        let hint = self.hint(ino, open.as_deref());
        let volume = &self.volume;
        let here = |len| (offset, len);
        let written = match promised {
            Some(promised) => volume
                .write_promised(ino, offset, data, (now, hint), promised)
                .map(here),
            None if append => volume.append(ino, data, now, hint),
            None => volume.write_hinted(ino, offset, data, now, hint).map(here),
        };
        let (offset, len) = self.watch(written)?;
        self.written(ino, open.as_deref(), flags.data_sync)?;
        Ok(Written {
            len,
            end: offset + len as u64,
            privileges_went,
        })
    }

    /// What was written, through an open file or by the inode alone, is as durable as that asks for.
    fn written(&self, ino: Ino, open: Option<&Open>, data_sync: bool) -> Result<()> {
        if let Some(open) = open {
            open.node.accessed.store(false, Ordering::Relaxed);
        }
        let asked = open.map(|o| o.flags).unwrap_or_default();
        if data_sync || asked.sync || asked.data_sync {
            self.watch(self.volume.sync_file(ino))?;
        } else if asked.write_through {
            self.watch(self.volume.record_file(ino))?;
        }
        Ok(())
    }

    fn readable(&self, ino: Ino, handle: Handle) -> Result<Option<persimmon_sync::Arc<Open>>> {
        let open = self.opened(ino, handle)?;
        if open.as_ref().is_some_and(|o| !o.flags.read || o.directory) {
            return Err(Error::BadHandle);
        }
        Ok(open)
    }

    pub(crate) fn opened_to_write(
        &self,
        ino: Ino,
        handle: Handle,
    ) -> Result<Option<persimmon_sync::Arc<Open>>> {
        let open = self.opened(ino, handle)?;
        if open.as_ref().is_some_and(|o| !o.flags.write) {
            return Err(Error::BadHandle);
        }
        self.check_unopened(ino, handle)?;
        Ok(open)
    }

    /// Changes the size: at open, by `truncate` and by `ftruncate`.
    pub(crate) fn truncate(
        &self,
        ino: Ino,
        node: Option<&Node>,
        size: u64,
        author: Author,
    ) -> Result<()> {
        self.changeable(ino)?;
        if size > FILE_SIZE_MAX {
            return Err(Error::FileTooLarge);
        }
        self.check_whole(ino)?;
        self.clear_privileges(ino, node, author)?;
        self.watch(self.volume.truncate(ino, size, self.now()))?;
        if let Some(node) = node {
            node.accessed.store(false, Ordering::Relaxed);
        }
        if size == 0 {
            self.nodes.emptied(ino);
        }
        Ok(())
    }

    /// Makes a file durable with its name and everything before it in the history. `fdatasync` is
    /// the same: the journal carries data and times in one record.
    pub fn fsync(&self, ino: Ino, handle: Handle) -> Result<()> {
        self.opened(ino, handle)?;
        if self.is_read_only() {
            return self.synced_read_only();
        }
        self.watch(self.volume.sync_file(ino))
    }

    /// [`Vfs::fsync`] of many files, for whose callers it is one wait. Answers for each.
    pub fn fsync_all(&self, files: &[(Ino, Handle)]) -> Vec<Result<()>> {
        if self.is_read_only() {
            let each = files.iter().map(|(ino, handle)| self.fsync(*ino, *handle));
            return each.collect();
        }
        let opened = |(ino, handle): &(Ino, Handle)| self.opened(*ino, *handle).map(|_| *ino);
        let opened: Vec<Result<Ino>> = files.iter().map(opened).collect();
        let inos: Vec<Ino> = opened.iter().flatten().copied().collect();
        let mut synced = Syncs::of(&self.volume).files(&inos).into_iter();
        let answer = |opened: Result<Ino>| {
            let synced = opened.and_then(|_| synced.next().ok_or(Error::BadHandle))?;
            self.watch(synced)
        };
        opened.into_iter().map(answer).collect()
    }

    /// Has a file outlive the death of this process, with everything before it in the history. The power may take it.
    pub fn flush_through(&self, ino: Ino, handle: Handle) -> Result<()> {
        self.opened(ino, handle)?;
        if self.is_read_only() {
            return self.synced_read_only();
        }
        self.watch(self.volume.record_file(ino))
    }

    /// `fsync` where nothing is written: fine on a read-only mount, but not after a failure, when
    /// data may be lost.
    pub(crate) fn synced_read_only(&self) -> Result<()> {
        if self.options().read_only {
            return Ok(());
        }
        Err(Error::ReadOnly)
    }

    /// Changes how a range is backed: durably, through a handle whose writes are.
    pub fn fallocate(
        &self,
        ino: Ino,
        handle: Handle,
        offset: u64,
        len: u64,
        what: Allocate,
    ) -> Result<()> {
        self.fallocate_by(Author::Privileged, (ino, handle), (offset, len), what)
            .map(drop)
    }

    /// [`Vfs::fallocate`] by somebody who may have to take setuid and setgid from the file. True if it took something.
    pub fn fallocate_by(
        &self,
        author: Author,
        (ino, handle): (Ino, Handle),
        (offset, len): (u64, u64),
        what: Allocate,
    ) -> Result<bool> {
        self.changeable(ino)?;
        let open = self.opened_to_write(ino, handle)?;
        if len == 0 {
            return Err(Error::Invalid("length 0"));
        }
        end_of(offset, len)?;
        let inode = self.inode(ino)?;
        check_has_content(&inode, "range of a special file")?;
        check_allocate(&inode, what)?;
        let _pin = self.pin_unopened(ino, open.as_ref())?;
        let node = open.as_ref().map(|o| &*o.node);
        check_shift(inode.size, (offset, len), what)?;
        let _admission = match what {
            Allocate::Reserve { .. } | Allocate::Zero { .. } => {
                Some(self.admit(ino, open.as_deref(), (offset, len), true)?)
            }
            Allocate::Punch | Allocate::Collapse | Allocate::Insert => None,
        };
        let privileges_went = self.clear_privileges(ino, node, author)?;
        let now = self.now();
        let done = match what {
            Allocate::Reserve { keep_size } => {
                self.volume.preallocate(ino, offset, len, keep_size, now)
            }
            Allocate::Punch => self.volume.punch(ino, offset, len, now),
            Allocate::Zero { keep_size } => self.volume.zero(ino, offset, len, keep_size, now),
            Allocate::Collapse => self.shift(ino, (offset, len), Shift::Collapse),
            Allocate::Insert => self.shift(ino, (offset, len), Shift::Insert),
        };
        self.watch(done)?;
        if let Some(node) = node {
            node.accessed.store(false, Ordering::Relaxed);
        }
        if open.is_some_and(|o| o.flags.sync || o.flags.data_sync) {
            self.watch(self.volume.sync_file(ino))?;
        }
        Ok(privileges_went)
    }

    /// Blocks of the file move.
    fn shift(&self, ino: Ino, range: (u64, u64), how: Shift) -> persimmon_engine::Result<()> {
        Layout::of(&self.volume).shift(ino, range, how, self.now())
    }

    /// The next data or hole at or past `offset`.
    pub fn seek(&self, ino: Ino, handle: Handle, offset: u64, to: SeekTo) -> Result<u64> {
        self.opened(ino, handle)?;
        let what = match to {
            SeekTo::Data => Seek::Data,
            SeekTo::Hole => Seek::Hole,
        };
        self.watch(self.volume.seek(ino, offset, what))?
            .ok_or(Error::NoSuchOffset)
    }

    /// Clones what it can of a range, from its beginning, up to what has to be copied.
    fn clone_range(
        &self,
        (from, from_handle, from_offset): (Ino, Handle, u64),
        (to, to_handle, to_offset): (Ino, Handle, u64),
        len: u64,
        copying: &mut Copying,
    ) -> Result<Cloned> {
        self.changeable(to)?;
        let source = self.readable(from, from_handle)?;
        let target = self.opened_to_write(to, to_handle)?;
        let block = BLOCK_SIZE as u64;
        let appends = target.as_ref().is_some_and(|o| o.flags.append);
        if appends
            || len == 0
            || !from_offset.is_multiple_of(block)
            || !to_offset.is_multiple_of(block)
        {
            return Ok(Cloned::NOTHING);
        }
        let _source_pin = self.pin_unopened(from, source.as_ref())?;
        let _pin = self.pin_unopened(to, target.as_ref())?;
        let node = target.as_ref().map(|o| &*o.node);
        let there = self.inode(from)?.size.saturating_sub(from_offset).min(len);
        if there == 0 {
            return Ok(Cloned::NOTHING);
        }
        let admission = self.admit(to, target.as_deref(), (to_offset, there), false)?;
        let len = match admission.len < there {
            true => admission.len / block * block,
            // What is added to the source meanwhile was not admitted.
            false => there,
        };
        if len == 0 {
            return Err(Error::QuotaExceeded(None));
        }
        copying.privileges_went |= self.clear_privileges(to, node, copying.author)?;
        let range = CloneRange {
            from,
            from_offset,
            to,
            to_offset,
            len,
            when: CloneWhen::Always,
        };
        let cloned = self.watch(self.volume.clone_range(&range, self.now()))?;
        if cloned.bytes > 0 {
            self.accessed(from, source.as_deref());
            self.written(to, target.as_deref(), false)?;
        }
        Ok(cloned)
    }

    /// Has equal blocks of two files, or of one in two places, stored once, as far as `len` bytes from the beginning of both ranges are equal
    /// and if at least `least` are: whole blocks, and the last block of both files. They are compared while neither file can be changed, at
    /// most 16 MiB a call. Sizes and times stay. With `only_tells` nothing is changed, and the answer is what would be.
    pub fn share_equal(
        &self,
        source: (Ino, Handle, u64),
        target: (Ino, Handle, u64),
        (len, least): (u64, u64),
        only_tells: bool,
    ) -> Result<Cloned> {
        let when = match only_tells {
            true => CloneWhen::WouldBeEqual { least },
            false => CloneWhen::Equal { least },
        };
        self.clone_when(source, target, len, when)
    }

    /// Has what of the target is much like what the source has compressed with that as a dictionary, as [`CloneWhen::Near`] says. Neither
    /// file's content, size or times change.
    pub fn pack_near(
        &self,
        source: (Ino, Handle, u64),
        target: (Ino, Handle, u64),
        len: u64,
    ) -> Result<Cloned> {
        self.clone_when(source, target, len, CloneWhen::Near)
    }

    /// Has two files have in common what they may have on a condition.
    fn clone_when(
        &self,
        source: (Ino, Handle, u64),
        target: (Ino, Handle, u64),
        len: u64,
        when: CloneWhen,
    ) -> Result<Cloned> {
        let (from, from_handle, from_offset) = source;
        let (to, to_handle, to_offset) = target;
        if !matches!(when, CloneWhen::WouldBeEqual { .. }) {
            self.changeable(to)?;
        }
        let source = self.readable(from, from_handle)?;
        let target = self.opened_to_write(to, to_handle)?;
        let block = BLOCK_SIZE as u64;
        if !from_offset.is_multiple_of(block) || !to_offset.is_multiple_of(block) {
            return Err(Error::Invalid("a range that begins within a block"));
        }
        let len = len.min(CLONE_MAX);
        end_of(from_offset, len)?;
        end_of(to_offset, len)?;
        let _source_pin = self.pin_unopened(from, source.as_ref())?;
        let _pin = self.pin_unopened(to, target.as_ref())?;
        let range = CloneRange {
            from,
            from_offset,
            to,
            to_offset,
            len,
            when,
        };
        self.watch(self.volume.clone_range(&range, self.now()))
    }

    /// Copies up to `len` bytes between files, or within one if the ranges are apart. Tells how
    /// many were copied, which may be fewer; 0 at the end of the source. Whole blocks are not copied: both files have them then.
    pub fn copy_file_range(
        &self,
        source: (Ino, Handle, u64),
        target: (Ino, Handle, u64),
        len: u64,
    ) -> Result<u64> {
        let copied = self.copy_file_range_by(Author::Privileged, source, target, len);
        copied.map(|(copied, _)| copied)
    }

    /// [`Vfs::copy_file_range`] by somebody who may have to take setuid and setgid from the target. Tells, too, whether it took something.
    pub fn copy_file_range_by(
        &self,
        author: Author,
        source: (Ino, Handle, u64),
        target: (Ino, Handle, u64),
        len: u64,
    ) -> Result<(u64, bool)> {
        let mut copying = Copying {
            author,
            privileges_went: false,
        };
        let (from, from_handle, from_offset) = source;
        let (to, to_handle, to_offset) = target;
        end_of(from_offset, len.min(CLONE_MAX))?;
        end_of(to_offset, len.min(CLONE_MAX))?;
        if from == to && from_offset.abs_diff(to_offset) < len {
            return Err(Error::Invalid("ranges overlap"));
        }
        check_has_content(&self.inode(from)?, "copying from a special file")?;
        check_copied_into(&self.inode(to)?)?;
        let len = len.min(CLONE_MAX);
        let (mut done, mut copied) = (0, 0);
        for _ in 0..STEPS_MAX {
            if done >= len || copied >= COPY_MAX {
                break;
            }
            let source = (from, from_handle, from_offset + done);
            let target = (to, to_handle, to_offset + done);
            let step = self.clone_range(source, target, len - done, &mut copying);
            let step = step.and_then(|cloned| match cloned.bytes {
                0 => {
                    let most = (len - done).min(COPY_MAX - copied);
                    let most = most.min(cloned.to_copy);
                    let bytes = self.copy_range(source, target, most, &mut copying)?;
                    copied += bytes;
                    Ok(bytes)
                }
                bytes => Ok(bytes),
            });
            match step {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                // What was done before counts; the error comes again with the next call.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok((done, copying.privileges_went))
    }

    /// Copies bytes of a range through memory. Tells how many.
    fn copy_range(
        &self,
        (from, from_handle, from_offset): (Ino, Handle, u64),
        (to, to_handle, to_offset): (Ino, Handle, u64),
        len: u64,
        copying: &mut Copying,
    ) -> Result<u64> {
        let mut buffer = vec![0; len.min(COPY_BUFFER) as usize];
        let mut copied = 0;
        while copied < len {
            let want = (len - copied).min(COPY_BUFFER) as usize;
            let Some(piece) = buffer.get_mut(..want) else {
                break;
            };
            let got = self.read(from, from_handle, from_offset + copied, piece)?;
            let Some(piece) = piece.get(..got).filter(|p| !p.is_empty()) else {
                break;
            };
            let flags = WriteFlags {
                author: copying.author,
                ..WriteFlags::default()
            };
            let written = self.write(to, to_handle, to_offset + copied, piece, flags);
            match written {
                Ok(written) => {
                    copying.privileges_went |= written.privileges_went;
                    copied += written.len as u64;
                    if written.len < got {
                        break;
                    }
                }
                // What was copied before counts; the error comes again with the next call.
                Err(_) if copied > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(copied)
    }
}
