//! One file with a tail, and what the tail has of it.
//!
//! Three have a part of the file each: the device all up to some offset, the memory of the volume more, and the tail all. What was
//! appended goes to the tail alone at first, and to the volume in pieces: RocksDB appends some hundred bytes for each `Put`, and what a write
//! of a few bytes costs in the volume is mostly the same as of many. Whoever looks at the file has the volume take the rest first.

use std::io;
use std::time::Instant;

use persimmon_device::BLOCK_SIZE;
use persimmon_engine::{Admitted, Promised, Standing};
use persimmon_sync::{Arc, Mutex, MutexGuard};
use persimmon_vfs::{
    Error as VfsError, FILE_SIZE_MAX, Handle, Ino, Result as VfsResult, Vfs, Written,
};

use super::tail::{End, Tail};
use crate::file::write_flags;

/// Bytes that the tail alone may have.
const PENDING_MAX: usize = 64 << 10;
/// Flushes that go to the device after a tail could not be written, before one is tried again.
pub(super) const RETRY_AFTER: u32 = 256;
/// Blocks of the volume that they may take: they need not begin where a block does.
const PENDING_BLOCKS: u64 = (PENDING_MAX / BLOCK_SIZE) as u64 + 1;

/// A file with a tail, shared by its handles.
pub(crate) struct Kept {
    pub(super) ino: Ino,
    /// That of the volume, near at hand: each record of a log asks for it.
    standing: Arc<Standing>,
    /// Held over every change of the file, so that the tail is never behind it.
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) tail: Option<Tail>,
    /// Where the file ends, if nothing but appending through a tail has changed that.
    pub(super) end: Option<u64>,
    /// The tail lacks some of what was appended: the next flush goes to the device.
    pub(super) is_behind: bool,
    /// Where the file ended when the device last had all of it.
    handed_over: Option<u64>,
    pub(super) retry_after: u32,
    /// When the device did not take what it holds, of a file that was closed.
    pub(super) tried: Option<Instant>,
    pending: Option<Pending>,
}

/// What was appended and the volume does not have yet: the last bytes of the tail.
struct Pending {
    /// Where they begin in the file.
    from: u64,
    /// And in the tail.
    since: End,
    bytes: usize,
    /// That it was appended through, as long as it is open.
    handle: Handle,
    /// Its room on the volume, given back once the volume has the bytes.
    room: Promised,
    /// And of the quota of the file's owners, where that is limited.
    _admitted: Option<Admitted>,
    /// The volume did not take it: nothing more is answered before it does.
    has_failed: bool,
}

impl Kept {
    pub(super) fn new(ino: Ino, standing: &Arc<Standing>) -> Kept {
        Kept {
            ino,
            standing: Arc::clone(standing),
            state: Mutex::default(),
        }
    }

    /// The volume takes no changes.
    #[inline]
    pub(super) fn is_read_only(&self) -> bool {
        self.standing.is_read_only()
    }

    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Pending {
    /// Writes it where it belongs, whatever the handle says: tried again, it is not there twice.
    fn write(&self, vfs: &Vfs, ino: Ino, tail: &Tail) -> VfsResult<()> {
        let bytes = tail.since(&self.since).map_err(VfsError::Kept)?;
        let (mut at, mut rest) = (self.from, bytes.as_slice());
        while !rest.is_empty() {
            let written = vfs.write_promised(ino, self.handle, at, rest, &self.room)?;
            rest = rest.get(written.len..).unwrap_or_default();
            at = written.end;
        }
        Ok(())
    }
}

impl State {
    /// There is something that the device may not have.
    pub(super) fn holds(&self) -> bool {
        self.tail.as_ref().is_some_and(|tail| !tail.is_empty())
    }

    /// A write at some offset, or to the end, goes on where the tail ends.
    pub(super) fn is_continued(&self, appends: bool, offset: u64) -> bool {
        self.end.is_some_and(|end| appends || offset == end)
    }

    /// Appends to the tail alone. `None` if that cannot be: the volume is to have what is pending, and then the data.
    pub(super) fn append(
        &mut self,
        vfs: &Vfs,
        (ino, handle): (Ino, Handle),
        data: &[u8],
    ) -> Option<Written> {
        if self.pending.is_some() {
            let goes_on = !vfs.is_read_only();
            return goes_on.then(|| self.go_on(handle, data)).flatten();
        }
        let (Some(tail), Some(end)) = (&self.tail, self.end) else {
            return None;
        };
        if !can_wait(end, 0, data) || self.is_behind || vfs.is_read_only() {
            return None;
        }
        // Near the end of a quota each write is asked by itself.
        let all = (end, PENDING_MAX as u64);
        let admitted = vfs.admit_later(ino, handle, all).ok()?;
        self.pending = Some(Pending {
            from: end,
            since: tail.end(),
            bytes: 0,
            handle,
            // What is answered here must find its space later.
            room: vfs.volume().promise(PENDING_BLOCKS)?,
            _admitted: admitted,
            has_failed: false,
        });
        let written = self.go_on(handle, data)?;
        // The next commit takes it along.
        vfs.volume().activity().note();
        Some(written)
    }

    /// The same where something is pending already.
    #[inline]
    pub(super) fn go_on(&mut self, handle: Handle, data: &[u8]) -> Option<Written> {
        let (Some(tail), Some(end)) = (&mut self.tail, self.end) else {
            return None;
        };
        let pending = self.pending.as_mut()?;
        if !can_wait(end, pending.bytes, data) || pending.has_failed || self.is_behind {
            return None;
        }
        if tail.push(data).is_err() {
            self.is_behind = true;
            return None;
        }
        pending.bytes += data.len();
        pending.handle = handle;
        let end = end + data.len() as u64;
        self.end = Some(end);
        Some(Written {
            privileges_went: false,
            len: data.len(),
            end,
        })
    }

    /// Appends to the volume, or writes there in another way, and to the tail what continues it.
    pub(super) fn write(
        &mut self,
        vfs: &Vfs,
        (ino, handle): (Ino, Handle),
        offset: u64,
        data: &[u8],
    ) -> VfsResult<Written> {
        self.fill_in(vfs, ino)?;
        let written = vfs.write(ino, handle, offset, data, write_flags(data));
        if let Some(tail) = &mut self.tail {
            let grown = written.as_ref().map_or(0, |written| written.len);
            let end = self.end.map(|end| end + grown as u64);
            match (&written, data.get(..grown)) {
                (Ok(written), Some(some)) if Some(written.end) == end => {
                    self.end = end;
                    self.is_behind |= tail.push(some).is_err();
                }
                // It failed, and may have been done in part.
                _ => (self.end, self.is_behind) = (None, true),
            }
        }
        written
    }

    /// Has all that was written so far outlive the process by the tail alone. False where the tail cannot do that.
    #[inline]
    pub(super) fn flush_tail(&mut self, ino: Ino) -> bool {
        let Some(tail) = self.tail.as_mut().filter(|_| !self.is_behind) else {
            return false;
        };
        match tail.flush() {
            Ok(()) => true,
            Err(error) => {
                self.cannot_keep(ino, &error);
                false
            }
        }
    }

    #[cold]
    fn cannot_keep(&mut self, ino: Ino, error: &io::Error) {
        tracing::warn!(ino = ino.0, %error, "keeping what was flushed; it goes to the device");
        (self.is_behind, self.retry_after) = (true, RETRY_AFTER);
    }

    /// Gives the volume what only the tail has.
    ///
    /// # Errors
    /// As those of a write. What the volume does not have stays pending, and the next call tries again.
    pub(super) fn fill_in(&mut self, vfs: &Vfs, ino: Ino) -> VfsResult<()> {
        let (Some(pending), Some(tail)) = (&mut self.pending, &self.tail) else {
            return Ok(());
        };
        if let Err(error) = pending.write(vfs, ino, tail)
            && !is_gone(vfs, ino)
        {
            pending.has_failed = true;
            return Err(error);
        }
        self.pending = None;
        Ok(())
    }

    /// Before somebody reads all before `end`. Where the volume takes nothing any more, what it has can still be read.
    pub(super) fn fill_in_before(&mut self, vfs: &Vfs, ino: Ino, end: u64) -> VfsResult<()> {
        let filled = self.fill_in(vfs, ino);
        match &self.pending {
            Some(pending) if end > pending.from => filled,
            _ => Ok(()),
        }
    }

    /// Has what was appended outlive the process where the volume cannot take it, and the handle that is closed.
    pub(super) fn keep_pending(&mut self) {
        if let (Some(pending), Some(tail)) = (&mut self.pending, &mut self.tail) {
            pending.handle = Handle::NONE;
            if let Err(error) = tail.flush() {
                tracing::warn!(%error, "what was appended cannot be kept");
            }
        }
    }

    /// The volume lacks some of what was appended.
    pub(super) fn has_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Gives the device what the tail holds, which stays.
    pub(super) fn hand_over(&mut self, vfs: &Vfs, ino: Ino) -> VfsResult<()> {
        self.fill_in(vfs, ino)?;
        if self.holds() && (self.is_behind || self.end != self.handed_over) {
            vfs.flush_through(ino, Handle::NONE)?;
            self.handed_over = self.end;
        }
        Ok(())
    }

    /// Removes the tail, once the device has what it holds.
    pub(super) fn remove_tail(&mut self, vfs: &Vfs, ino: Ino) -> VfsResult<()> {
        self.fill_in(vfs, ino)?;
        if self.holds()
            && let Err(error) = vfs.flush_through(ino, Handle::NONE)
            && !is_gone(vfs, ino)
        {
            return Err(error);
        }
        self.let_go();
        Ok(())
    }

    pub(super) fn let_go(&mut self) {
        if let Some(tail) = self.tail.take() {
            tail.remove();
        }
        self.end = None;
        self.is_behind = false;
        self.handed_over = None;
        self.tried = None;
        self.pending = None;
    }
}

/// Whether a file is deleted and closed: nobody can look at it any more.
fn is_gone(vfs: &Vfs, ino: Ino) -> bool {
    matches!(vfs.getattr(ino), Err(VfsError::Stale))
}

/// Whether data for the end of a file may wait with what is pending.
#[inline]
fn can_wait(end: u64, pending: usize, data: &[u8]) -> bool {
    let (bytes, new_end) = (pending + data.len(), end + data.len() as u64);
    !data.is_empty() && bytes <= PENDING_MAX && new_end <= FILE_SIZE_MAX
}
