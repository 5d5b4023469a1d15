//! What an operation has changed outlives the daemon before it is answered, where another daemon may come: for the kernel
//! asks once. Changes of names and attributes are on the device then; what was written to a file is, too, or is in the ledger.
//!
//! What was not answered the kernel asks the next daemon for. It holds the directory of a name, and the file of a size, from before it asks
//! until it has the answer; so nobody else has changed them meanwhile, and what such a request finds done already it has done itself.

use persimmon_vfs::{
    Attr, Error, FileKind, Handle, Ino, OpenFlags, RenameMode, Result, Timestamp, Vfs,
};

use super::Adapter;
use super::attributes::changes;
use crate::answer::Door;
use crate::ledger::{Ledger, NotNoted, OpenFile, Position, Recorded, Written};
use crate::protocol::{Call, Errno, Header, opcode};

/// What cannot be kept must not be answered as if it was.
const NOT_KEPT: Errno = Errno(libc::EIO);
/// Something that was answered is lost.
const LOST: Errno = Errno(libc::EIO);

impl Door {
    /// Where the ledger is. To be asked for before an operation that sets times or permissions.
    pub fn position(&self) -> Option<Position> {
        self.ledger.as_ref().map(|ledger| ledger.position())
    }

    /// Changes of names and attributes.
    pub fn record(&self) -> std::result::Result<(), Errno> {
        match self.ledger {
            Some(_) => self.run("record", Vfs::record),
            None => Ok(()),
        }
    }

    /// Changes of the content of a file that are no writes, and with them all that was written to it. A write that was noted until now was done
    /// before, so the device has it too: also one that came during the operation and must not be done again behind it.
    pub fn record_content(&self, ino: Ino) -> std::result::Result<(), Errno> {
        let Some(ledger) = &self.ledger else {
            return Ok(());
        };
        let before = ledger.position();
        self.run("record", |vfs| vfs.flush_through(ino, Handle::NONE))?;
        let noted = ledger.recorded(ino, Recorded::Content, before);
        noted.map_err(|_| NOT_KEPT)
    }

    /// Moves blocks of a file, by `shift`, to other places of it. All that was written before is on the device first: done again, it would go
    /// to where it was.
    pub fn shift(
        &self,
        ino: Ino,
        shift: impl FnOnce() -> std::result::Result<(), Errno>,
    ) -> std::result::Result<(), Errno> {
        let _shifting = self.ledger.as_ref().map(|ledger| ledger.shift(ino));
        self.record_content(ino)?;
        shift()?;
        self.record_content(ino)
    }

    /// A file was opened to which something is lost that nobody has heard of.
    fn note_lost(&self, ino: Ino, file: Handle) {
        if self.lost.opened(ino, file) {
            self.mark_lost(file, true);
        }
    }

    /// After a sync of an open file: `EIO`, once, where something that was written to it is lost.
    pub fn tell_lost(&self, ino: Ino, file: Handle) -> std::result::Result<(), Errno> {
        if self.lost.tell(ino, file) {
            self.mark_lost(file, false);
            return Err(LOST);
        }
        Ok(())
    }

    /// At a close: the same, and a sync tells it still, for nobody may look at what a close answers.
    pub fn check_lost(&self, ino: Ino, file: Handle) -> std::result::Result<(), Errno> {
        match self.lost.is_due(ino, file) {
            true => Err(LOST),
            false => Ok(()),
        }
    }

    /// After a sync of everything: the same of any file, once.
    pub fn tell_any_lost(&self) -> std::result::Result<(), Errno> {
        match self.lost.tell_any() {
            true => Err(LOST),
            false => Ok(()),
        }
    }

    fn mark_lost(&self, file: Handle, lost: bool) {
        if let Some(ledger) = &self.ledger {
            ledger.note_lost(file, lost);
        }
    }

    /// All that was written to a file and noted before `before` is durable: doing it again could only take from what is.
    pub fn note_durable(&self, ino: Ino, before: Option<Position>) {
        if let (Some(ledger), Some(before)) = (&self.ledger, before) {
            // Where there is no room for that, it is done again.
            let _ = ledger.recorded(ino, Recorded::Content, before);
        }
    }
}

impl Adapter {
    /// Keeps what a request has changed, but for what was written, opened and closed, and what is answered elsewhere.
    pub(super) fn keep(
        &self,
        call: &Call<'_>,
        before: Option<Position>,
    ) -> std::result::Result<(), Errno> {
        let Some(ledger) = &self.door.ledger else {
            return Ok(());
        };
        // Of those that set times or permissions it is known.
        let position = before.unwrap_or_default();
        let node = super::node(call);
        match call.header.opcode {
            opcode::SETATTR => {
                let (content, times, mode) = changes(call.fields())?;
                if content {
                    return self.door.record_content(node);
                }
                self.door.record()?;
                let note = |what| ledger.recorded(node, what, position).map_err(|_| NOT_KEPT);
                if times {
                    note(Recorded::Times)?;
                }
                if mode {
                    note(Recorded::Mode)?;
                }
                Ok(())
            }
            opcode::FALLOCATE => self.door.record_content(node),
            opcode::COPY_FILE_RANGE => {
                let mut fields = call.fields();
                // Handle and offset of the source.
                fields.skip_u64()?;
                fields.skip_u64()?;
                self.door.record_content(Ino(fields.u64()?))
            }
            opcode::MKNOD
            | opcode::MKDIR
            | opcode::SYMLINK
            | opcode::LINK
            | opcode::UNLINK
            | opcode::RMDIR
            | opcode::RENAME
            | opcode::RENAME2
            | opcode::CREATE
            | opcode::TMPFILE
            | opcode::IOCTL => self.door.record(),
            // A replay of what was written before must not take capabilities that were given then.
            opcode::SETXATTR | opcode::REMOVEXATTR => {
                self.door.record()?;
                let noted = ledger.recorded(node, Recorded::Mode, position);
                noted.map_err(|_| NOT_KEPT)
            }
            _ => Ok(()),
        }
    }

    /// A file was opened.
    pub(super) fn note_opened(
        &self,
        header: &Header,
        ino: Ino,
        file: Handle,
        how: (u32, u32),
    ) -> std::result::Result<(), Errno> {
        let noted = match &self.door.ledger {
            Some(ledger) => ledger.opened(header, ino, file, how),
            None => true,
        };
        if noted {
            self.door.note_lost(ino, file);
            return Ok(());
        }
        self.close_unanswered(ino, file);
        Err(Errno(libc::ENFILE))
    }

    /// Whoever hears of an error closes nothing.
    pub(super) fn close_unanswered(&self, ino: Ino, file: Handle) {
        self.note_released(file);
        self.door.lost.released(ino, file);
        let _ = self.door.run("release", |vfs| vfs.release(ino, file));
    }

    /// It is about to be closed: another may have its number from then on.
    pub(super) fn note_released(&self, file: Handle) {
        if let Some(ledger) = &self.door.ledger {
            ledger.released(file);
        }
    }

    /// A write was done.
    pub(super) fn note_written(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        (time, kills): (Timestamp, Option<u32>),
    ) -> std::result::Result<(), Errno> {
        let Some(ledger) = &self.door.ledger else {
            return Ok(());
        };
        let written = Written {
            ino,
            offset,
            data,
            time,
            kills,
        };
        match ledger.written(&written) {
            Ok(()) => Ok(()),
            Err(NotNoted::Shifting) => self.door.record_content(ino),
            Err(NotNoted::NoRoom) => Err(NOT_KEPT),
        }
    }

    /// What a request that is sent again has opened before.
    pub(super) fn opened_before(&self, header: &Header) -> Option<OpenFile> {
        match header.is_resent() {
            true => self.opened_before.get(&header.request()).copied(),
            false => None,
        }
    }
}

/// What a write that is noted is written at.
pub(super) fn now() -> Timestamp {
    let now = std::time::SystemTime::now();
    let since = now
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanoseconds: since.subsec_nanos(),
    }
}

/// Making a name: a request that is sent again may find it made.
pub(super) fn made(
    header: &Header,
    vfs: &Vfs,
    (parent, name): (Ino, &[u8]),
    result: Result<Attr>,
) -> Result<Attr> {
    match result {
        Err(Error::Exists) if header.is_resent() => vfs.lookup(parent, name),
        result => result,
    }
}

/// Making a file and opening it, by `create`: a request that is sent again may find it made, and not opened.
pub(super) fn created(
    header: &Header,
    vfs: &Vfs,
    (parent, name): (Ino, &[u8]),
    flags: OpenFlags,
    create: impl FnOnce(&Vfs) -> Result<(Attr, Handle)>,
) -> Result<(Attr, Handle)> {
    if !header.is_resent() {
        return create(vfs);
    }
    match vfs.lookup(parent, name) {
        Err(Error::NotFound) => create(vfs),
        found => {
            let found = found?;
            Ok((found, vfs.open(found.ino, flags)?))
        }
    }
}

/// Setting an attribute: a request that is sent again may find it set.
pub(super) fn set(
    header: &Header,
    vfs: &Vfs,
    (ino, name, value): (Ino, &[u8], &[u8]),
    result: Result<()>,
) -> Result<()> {
    match result {
        Err(Error::Exists) if header.is_resent() && vfs.getxattr(ino, name)? == value => Ok(()),
        result => result,
    }
}

/// Removing something: a request that is sent again may find it gone.
pub(super) fn removed(header: &Header, result: Result<()>) -> Result<()> {
    match result {
        Err(Error::NotFound | Error::NoAttribute) if header.is_resent() => Ok(()),
        result => result,
    }
}

/// Exchanging two names, once.
pub(super) fn exchange(
    header: &Header,
    ledger: Option<&Ledger>,
    vfs: &Vfs,
    (from, old): (Ino, &[u8]),
    (to, new): (Ino, &[u8]),
) -> Result<()> {
    let exchange = || vfs.rename(from, old, to, new, RenameMode::Exchange);
    let Some(ledger) = ledger else {
        return exchange();
    };
    let first = vfs.lookup(from, old)?.ino;
    match ledger.exchanging(header.request(), first.0, header.is_resent()) {
        true => Ok(()),
        false => exchange(),
    }
}

/// Whether a request that is sent again, to rename without exchanging, was carried out before: the old name is gone, or a whiteout is in
/// its place.
pub(super) fn is_renamed(
    vfs: &Vfs,
    (from, old): (Ino, &[u8]),
    (to, new): (Ino, &[u8]),
    leaves_whiteout: bool,
) -> Result<bool> {
    let is_gone = match vfs.lookup(from, old) {
        Err(Error::NotFound) => true,
        found => {
            let found = found?;
            leaves_whiteout && found.kind() == FileKind::CharDevice && found.rdev == 0
        }
    };
    match is_gone {
        true => vfs.lookup(to, new).map(|_| true),
        false => Ok(false),
    }
}

#[cfg(test)]
mod tests;
