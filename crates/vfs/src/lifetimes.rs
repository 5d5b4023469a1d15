//! How long users say that content will live: told of a file, or of a directory for what is made in
//! it, by an extended attribute, which lasts; told of an open file, for what is written through it.

use persimmon_sync::atomic::{AtomicU8, Ordering};

use persimmon_engine::WriteHint;
use persimmon_format::Lifetime;

use crate::handles::Open;
use crate::{Error, Handle, Ino, Result, Vfs};

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

    /// What the open file tells of what is written through it. A kernel that writes from its cache does not know which one that is: then the
    /// last lifetime that any of them got.
    pub(crate) fn hint(&self, ino: Ino, open: Option<&Open>) -> WriteHint {
        match open {
            Some(open) => WriteHint {
                lifetime: open.hint.get(),
                whole_blocks: open.flags.direct,
            },
            None => self.nodes.get(ino).and_then(|node| node.hint.get()).into(),
        }
    }
}
