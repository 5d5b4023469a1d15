//! The flags that `chattr` sets and `lsattr` shows. Two say how content is compressed: they are another view of the attribute
//! `user.persimmon.compression`. A third shows that what is made in a directory has its project, which is always so. Two forbid
//! changes ([`crate::protection`]), and one is for backups.

use persimmon_engine::Intent;
use persimmon_format::inode::{
    FLAG_APPEND_ONLY, FLAG_IMMUTABLE, FLAG_NO_DUMP, FLAGS_OF_USERS, Inode,
};

use crate::{Caller, Compression, Error, Ino, InodeFlags, Result, Vfs};

impl InodeFlags {
    pub(crate) fn of(inode: &Inode) -> InodeFlags {
        let compression = inode.compression();
        InodeFlags {
            compress: compression.is_some_and(|told| told != Compression::None),
            no_compress: compression == Some(Compression::None),
            inherits_project: inode.is_dir() && inode.project != 0,
            append_only: inode.flags & FLAG_APPEND_ONLY != 0,
            immutable: inode.flags & FLAG_IMMUTABLE != 0,
            no_dump: inode.flags & FLAG_NO_DUMP != 0,
        }
    }

    /// Whether a directory may be told so of its project. What has none gives none to what is made in it, whatever it is told.
    fn suits_project(self, inode: &Inode) -> bool {
        match self.inherits_project {
            true => inode.is_dir(),
            false => !InodeFlags::of(inode).inherits_project,
        }
    }

    /// Those that an inode has as they are.
    fn stored(self) -> u32 {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        flag(self.append_only, FLAG_APPEND_ONLY)
            | flag(self.immutable, FLAG_IMMUTABLE)
            | flag(self.no_dump, FLAG_NO_DUMP)
    }

    /// What an inode that was told `before` is told by these flags. The flag does not say which codec: one that was told stays.
    fn compression(self, before: Option<Compression>) -> Result<Option<Compression>> {
        match (self.compress, self.no_compress, before) {
            (true, true, _) => Err(Error::Invalid("compressed and not compressed")),
            (true, false, None | Some(Compression::None)) => Ok(Some(Compression::Lz4)),
            (true, false, told) => Ok(told),
            (false, true, _) => Ok(Some(Compression::None)),
            (false, false, _) => Ok(None),
        }
    }
}

impl Vfs {
    /// Flags of a file or directory.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: neither a file nor a directory.
    pub fn inode_flags(&self, ino: Ino) -> Result<InodeFlags> {
        let inode = self.inode(ino)?;
        has_flags(&inode)?;
        Ok(InodeFlags::of(&inode))
    }

    /// Sets them all. They count for what is written from then on, and of a directory for what is made in it.
    ///
    /// # Errors
    /// `EPERM`: `caller` is neither the owner nor privileged, which append-only and immutable take. `EINVAL`: two that contradict each
    /// other. `EOPNOTSUPP`: neither a file nor a directory, or another flag than there is for its project.
    pub fn set_inode_flags(&self, caller: &Caller, ino: Ino, flags: InodeFlags) -> Result<()> {
        self.changeable(ino)?;
        let now = self.change_time(ino)?;
        self.change(Intent::Shrink, |tx| {
            let mut inode = tx.inode(ino)?.ok_or(Error::Stale)?;
            has_flags(&inode)?;
            if !caller.is_privileged() && caller.uid != inode.uid {
                return Err(Error::NotPermitted);
            }
            if !flags.suits_project(&inode) {
                return Err(Error::NotSupported);
            }
            let told = Compression::stored(flags.compression(inode.compression())?);
            let stored = inode.flags & !FLAGS_OF_USERS | flags.stored();
            let protects = FLAG_APPEND_ONLY | FLAG_IMMUTABLE;
            if (stored ^ inode.flags) & protects != 0 && !caller.is_privileged() {
                return Err(Error::NotPermitted);
            }
            if told != inode.compression || stored != inode.flags {
                inode.compression = told;
                inode.flags = stored;
                inode.ctime = inode.ctime.next(now);
                tx.put_inode(ino, &inode);
            }
            Ok(())
        })
    }
}

fn has_flags(inode: &Inode) -> Result<()> {
    if inode.is_file() || inode.is_dir() {
        Ok(())
    } else {
        Err(Error::NotSupported)
    }
}
