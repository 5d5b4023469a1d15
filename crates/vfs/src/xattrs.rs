//! Extended attributes: `user.`, `trusted.`, `security.` and the two access control lists of
//! `system.`.

use crate::{Caller, Ino, Result, Vfs, XattrMode};

impl Vfs {
    /// Value of an attribute.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        unimplemented!()
    }

    /// Sets an attribute. Setting `system.posix_acl_access` changes the mode with it; `caller`
    /// matters there alone (setgid of a file of another group).
    pub fn setxattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        unimplemented!()
    }

    /// All names, each ended by a zero byte. `trusted.` only for the privileged.
    pub fn listxattr(&self, caller: &Caller, ino: Ino) -> Result<Vec<u8>> {
        unimplemented!()
    }

    /// Removes an attribute.
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        unimplemented!()
    }
}
