//! Attributes and permissions.

use crate::{Attr, Caller, Handle, Ino, Result, SetAttr, Vfs};

impl Vfs {
    /// Attributes of an inode: one lookup in the tree.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        unimplemented!()
    }

    /// Changes attributes and tells the new ones. Rights are the door's to check. `handle` is the
    /// one `ftruncate` came with, or [`Handle::NONE`].
    pub fn setattr(&self, ino: Ino, handle: Handle, set: &SetAttr) -> Result<Attr> {
        unimplemented!()
    }

    /// Whether `caller` may do all of `mask` (4 read, 2 write, 1 execute; 0 existence) to it, by
    /// mode and access control list. For doors without a kernel.
    pub fn access(&self, caller: &Caller, ino: Ino, mask: u32) -> Result<()> {
        unimplemented!()
    }
}
