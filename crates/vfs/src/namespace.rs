//! Names: looking up, making, linking, removing.

use crate::{Attr, Caller, Handle, Ino, OpenFlags, Result, Vfs};

impl Vfs {
    /// The inode `name` means in `parent`. Knows `.` and `..`.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        unimplemented!()
    }

    /// The kernel refers to `ino` no more: an unlinked one that is not open is reclaimed. To be
    /// called once the kernel's reference count of the inode is zero; cheap for all others.
    pub fn forget(&self, ino: Ino) {
        unimplemented!()
    }

    /// Target of a symbolic link.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        unimplemented!()
    }

    /// Makes a file, FIFO, socket or device node. `mode` holds type and permissions, unmasked; no
    /// type is a regular file.
    pub fn mknod(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Attr> {
        unimplemented!()
    }

    /// Makes a directory. `mode` holds the permissions, unmasked.
    pub fn mkdir(&self, caller: &Caller, parent: Ino, name: &[u8], mode: u32) -> Result<Attr> {
        unimplemented!()
    }

    /// Makes a symbolic link to `target`.
    pub fn symlink(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attr> {
        unimplemented!()
    }

    /// Makes a regular file and opens it. Without [`OpenFlags::exclusive`] an existing file is
    /// opened.
    pub fn create(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(Attr, Handle)> {
        unimplemented!()
    }

    /// Makes a regular file without a name and opens it (`O_TMPFILE`). [`Vfs::link`] can give it
    /// one, unless [`OpenFlags::exclusive`] is set.
    pub fn tmpfile(
        &self,
        caller: &Caller,
        parent: Ino,
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(Attr, Handle)> {
        unimplemented!()
    }

    /// Gives `ino` one more name.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        unimplemented!()
    }

    /// Removes a name of anything but a directory.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        unimplemented!()
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        unimplemented!()
    }
}
