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

/// The lifetime hint of an open file, if there is one.
#[derive(Debug, Default)]
pub(crate) struct LifetimeHint(AtomicU8);

impl LifetimeHint {
    fn get(&self) -> Option<Lifetime> {
        Lifetime::from_stored(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, hint: Option<Lifetime>) {
        self.0.store(Lifetime::stored(hint), Ordering::Relaxed);
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
    let hint = inode.lifetime_hint()?;
    Some(hint.name().as_bytes().to_vec())
}

/// Gives an inode the attribute.
pub(crate) fn put(inode: &mut Inode, hint: Lifetime, mode: XattrMode) -> Result<()> {
    match (inode.lifetime_hint(), mode) {
        (Some(_), XattrMode::Create) => Err(Error::Exists),
        (None, XattrMode::Replace) => Err(Error::NoAttribute),
        _ => {
            inode.lifetime = Lifetime::stored(Some(hint));
            Ok(())
        }
    }
}

/// Takes the attribute away. Tells whether it was there.
pub(crate) fn take(inode: &mut Inode) -> bool {
    let hint = inode.lifetime_hint().is_some();
    inode.lifetime = Lifetime::stored(None);
    hint
}

impl Vfs {
    /// Tells how long what is written through `handle` will live, from now on; `None` takes that
    /// back, and the file's own attribute counts. Only places data: content is the same.
    ///
    /// # Errors
    /// `EBADF`: not a handle of this file, or not for writing.
    pub fn set_lifetime(&self, ino: Ino, handle: Handle, hint: Option<Lifetime>) -> Result<()> {
        let open = self.opened_to_write(ino, handle)?;
        let open = open.ok_or(Error::BadHandle)?;
        open.hint.set(hint);
        open.node.hint.set(hint);
        Ok(())
    }

    /// What was told of `handle`, or else of the file.
    ///
    /// # Errors
    /// `EBADF`: not a handle of this file.
    pub fn lifetime(&self, ino: Ino, handle: Handle) -> Result<Option<Lifetime>> {
        let open = self.opened(ino, handle)?;
        match open.and_then(|open| open.hint.get()) {
            Some(hint) => Ok(Some(hint)),
            None => Ok(self.inode(ino)?.lifetime_hint()),
        }
    }

    /// The hint of the open file that is written through. A kernel that writes from its cache
    /// does not know which one that is: then the last hint that any of them got.
    pub(crate) fn hint(&self, ino: Ino, open: Option<&Open>) -> Option<Lifetime> {
        match open {
            Some(open) => open.hint.get(),
            None => self.nodes.get(ino)?.hint.get(),
        }
    }
}
