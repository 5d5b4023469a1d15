//! How long users say that content will live: told of a file, or of a directory for what is made in
//! it, by an extended attribute, which lasts; told of an open file, for what is written through it.

use persimmon_sync::atomic::{AtomicU8, Ordering};

use persimmon_format::inode::Inode;
use persimmon_format::{Lifetime, shown};

use crate::handles::Open;
use crate::{Error, Handle, Ino, Result, Vfs, XattrMode};

/// The attribute. Kept in the inode, from which the engine reads it: to programs it is one among
/// others, whose value reads back as a name.
pub(crate) const ATTRIBUTE: &[u8] = b"user.persimmon.lifetime";

/// Of a wrong value that is logged, bytes.
const LOGGED_MAX: usize = 32;

/// What was told of an open file, if anything was.
#[derive(Debug, Default)]
pub(crate) struct Told(AtomicU8);

impl Told {
    fn get(&self) -> Option<Lifetime> {
        Lifetime::from_stored(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, told: Option<Lifetime>) {
        self.0.store(Lifetime::stored(told), Ordering::Relaxed);
    }
}

/// The lifetime that a value of the attribute means.
pub(crate) fn parse(ino: Ino, value: &[u8]) -> Result<Lifetime> {
    Lifetime::parse(value).ok_or_else(|| {
        let value = shown(value.get(..LOGGED_MAX).unwrap_or(value));
        tracing::warn!(
            %ino,
            "user.persimmon.lifetime cannot be \"{value}\": none, short, medium, long or extreme, \
             or 1 to 5"
        );
        Error::Invalid("lifetime")
    })
}

/// Value of the attribute.
pub(crate) fn value(inode: &Inode) -> Option<Vec<u8>> {
    let told = inode.told_lifetime()?;
    Some(told.name().as_bytes().to_vec())
}

/// Gives an inode the attribute.
pub(crate) fn put(inode: &mut Inode, told: Lifetime, mode: XattrMode) -> Result<()> {
    match (inode.told_lifetime(), mode) {
        (Some(_), XattrMode::Create) => Err(Error::Exists),
        (None, XattrMode::Replace) => Err(Error::NoAttribute),
        _ => {
            inode.lifetime = Lifetime::stored(Some(told));
            Ok(())
        }
    }
}

/// Takes the attribute away. Tells whether it was there.
pub(crate) fn take(inode: &mut Inode) -> bool {
    let told = inode.told_lifetime().is_some();
    inode.lifetime = Lifetime::stored(None);
    told
}

impl Vfs {
    /// Tells how long what is written through `handle` will live, from now on; `None` takes that
    /// back, and the file's own attribute counts. Only places data: content is the same.
    ///
    /// # Errors
    /// `EBADF`: not a handle of this file, or not for writing.
    pub fn set_lifetime(&self, ino: Ino, handle: Handle, told: Option<Lifetime>) -> Result<()> {
        let open = self.opened_to_write(ino, handle)?;
        let open = open.ok_or(Error::BadHandle)?;
        open.told.set(told);
        open.node.told.set(told);
        Ok(())
    }

    /// What was told of `handle`, or else of the file.
    ///
    /// # Errors
    /// `EBADF`: not a handle of this file.
    pub fn lifetime(&self, ino: Ino, handle: Handle) -> Result<Option<Lifetime>> {
        let open = self.opened(ino, handle)?;
        match open.and_then(|open| open.told.get()) {
            Some(told) => Ok(Some(told)),
            None => Ok(self.inode(ino)?.told_lifetime()),
        }
    }

    /// What was told of the open file that is written through. A kernel that writes from its cache
    /// does not know which one that is: then what was told last of any.
    pub(crate) fn told(&self, ino: Ino, open: Option<&Open>) -> Option<Lifetime> {
        match open {
            Some(open) => open.told.get(),
            None => self.nodes.get(ino)?.told.get(),
        }
    }
}
