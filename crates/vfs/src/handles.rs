//! Open files and directories.

use crate::{Handle, Ino, LockOwner, OpenFlags, Result, Vfs};

impl Vfs {
    /// Opens a regular file (`ELOOP` for a symbolic link, `ENXIO` for other kinds, which are the
    /// kernel's to open).
    pub fn open(&self, ino: Ino, flags: OpenFlags) -> Result<Handle> {
        unimplemented!()
    }

    /// At every `close` of a descriptor: locks of `owner` are released; data of a file that was
    /// truncated through a descriptor enters the history. May be left out by a door that releases
    /// locks itself: [`Vfs::release`] does the rest.
    pub fn flush(&self, ino: Ino, handle: Handle, owner: LockOwner) -> Result<()> {
        unimplemented!()
    }

    /// At the last `close`: the handle is void. An unlinked file is reclaimed with its last handle.
    pub fn release(&self, ino: Ino, handle: Handle) -> Result<()> {
        unimplemented!()
    }

    /// Opens a directory for reading.
    pub fn opendir(&self, ino: Ino) -> Result<Handle> {
        unimplemented!()
    }

    /// Closes a directory.
    pub fn releasedir(&self, ino: Ino, handle: Handle) -> Result<()> {
        unimplemented!()
    }
}
