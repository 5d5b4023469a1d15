//! Listing directories, in the order of name hashes.

use crate::{Attr, Entry, Handle, Ino, Listing, Result, Vfs};

impl Vfs {
    /// Tells the entries after `cookie` (0: from the start, `.` and `..` first) until `each`
    /// answers [`Listing::Full`] or there are no more.
    pub fn readdir(
        &self,
        ino: Ino,
        handle: Handle,
        cookie: u64,
        each: &mut dyn FnMut(&Entry<'_>) -> Listing,
    ) -> Result<()> {
        unimplemented!()
    }

    /// As [`Vfs::readdir`], with the attributes of each entry. For `.` and `..` the attributes are
    /// those of the directory itself and its parent; a kernel does not count them as lookups.
    pub fn readdirplus(
        &self,
        ino: Ino,
        handle: Handle,
        cookie: u64,
        each: &mut dyn FnMut(&Entry<'_>, &Attr) -> Listing,
    ) -> Result<()> {
        unimplemented!()
    }

    /// Makes all namespace operations so far durable.
    pub fn fsyncdir(&self, ino: Ino, handle: Handle) -> Result<()> {
        unimplemented!()
    }
}
