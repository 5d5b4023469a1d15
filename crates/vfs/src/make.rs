//! Making files, directories, links and nodes.

use persimmon_engine::faults::{Fault, instead};
use persimmon_engine::{Intent, Transaction};
use persimmon_format::inode::{FLAG_NO_DUMP, Inode, TYPE_MASK};
use persimmon_format::{Key, KeyKind};

use crate::acl::Inherited;
use crate::attributes::{PERMISSIONS, SET_GID};
use crate::named::{Target, check_name, find_entry, is_dot};
use crate::namespace::{count, directory, free_item, put_entry};
use crate::protection::check_gets;
use crate::{
    Attr, Caller, Error, Handle, Ino, OpenFlags, Result, SYMLINK_MAX, Timestamp, Vfs, is_snapshots,
};

/// Something new.
#[derive(Clone, Copy)]
pub(crate) struct New<'a> {
    mode: u32,
    rdev: u32,
    target: &'a [u8],
}

/// What overlayfs finds in the place of what was removed from a lower layer: a character device 0:0 without permissions.
pub(crate) const WHITEOUT: New<'_> = New {
    mode: libc::S_IFCHR,
    rdev: 0,
    target: b"",
};

/// The inode of something new in `dir`, with the access control lists, the lifetime, the compression and the project that it passes
/// on.
pub(crate) fn make_inode(
    vfs: &Vfs,
    tx: &mut Transaction<'_>,
    caller: &Caller,
    (parent, dir): (Ino, &Inode),
    new: &New<'_>,
    now: Timestamp,
) -> Result<(Ino, Inode)> {
    let (mut mode, lists) = Inherited::new(tx, parent, dir, new.mode, caller.umask)?;
    let is_dir = mode & TYPE_MASK == libc::S_IFDIR;
    let mut gid = caller.gid;
    if dir.mode & SET_GID != 0 {
        gid = dir.gid;
        if is_dir {
            mode |= SET_GID;
        } else if new.mode & libc::S_IXGRP != 0 && !caller.is_privileged() && !caller.in_group(gid)
        {
            // As Linux does, by the mode before the umask.
            mode &= !SET_GID;
        }
    }
    let inherits = is_dir || mode & TYPE_MASK == libc::S_IFREG;
    let ino = tx.new_ino().of(parent.subvolume());
    let mut inode = Inode {
        mode,
        uid: caller.uid,
        gid,
        nlink: if is_dir { 2 } else { 1 },
        size: new.target.len() as u64,
        rdev: new.rdev,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        parent: if is_dir { parent.plain() } else { Ino(0) },
        lifetime: if inherits { dir.lifetime } else { 0 },
        compression: if inherits { dir.compression } else { 0 },
        project: instead(Fault::ProjectNotInherited, 0, dir.project),
        flags: if inherits {
            dir.flags & FLAG_NO_DUMP
        } else {
            0
        },
        ..Inode::default()
    };
    lists.put(tx, ino, &mut inode)?;
    if vfs.limits(caller) {
        vfs.admit_inode(tx, ino, (None, &inode), now)?;
    }
    Ok((ino, inode))
}

impl Vfs {
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
        let (kind, rdev) = match mode & TYPE_MASK {
            0 => (libc::S_IFREG, 0),
            kind @ (libc::S_IFREG | libc::S_IFIFO | libc::S_IFSOCK) => (kind, 0),
            kind @ (libc::S_IFCHR | libc::S_IFBLK) => (kind, rdev),
            libc::S_IFDIR => return Err(Error::NotPermitted),
            _ => return Err(Error::Invalid("file type")),
        };
        let new = New {
            mode: kind | mode & PERMISSIONS,
            rdev,
            target: b"",
        };
        self.make(caller, parent, name, &new)
    }

    /// Makes a directory. `mode` holds the permissions, unmasked.
    /// In a directory of snapshots it takes one, of all of the subvolume, which is read-only.
    pub fn mkdir(&self, caller: &Caller, parent: Ino, name: &[u8], mode: u32) -> Result<Attr> {
        if is_snapshots(parent) {
            return self.make_snapshot(parent, name);
        }
        let new = New {
            mode: libc::S_IFDIR | mode & (PERMISSIONS & !libc::S_ISUID & !SET_GID),
            rdev: 0,
            target: b"",
        };
        self.make(caller, parent, name, &new)
    }

    /// Makes a symbolic link to `target`.
    pub fn symlink(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attr> {
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        if target.len() > SYMLINK_MAX {
            return Err(Error::NameTooLong);
        }
        if target.contains(&0) {
            return Err(Error::Invalid("link target with a zero byte"));
        }
        let new = New {
            mode: libc::S_IFLNK | 0o777,
            rdev: 0,
            target,
        };
        self.make(caller, parent, name, &new)
    }

    fn make(&self, caller: &Caller, parent: Ino, name: &[u8], new: &New<'_>) -> Result<Attr> {
        check_name(name)?;
        if is_dot(name) {
            return Err(Error::Exists);
        }
        if self.is_snapshots_name(parent, name) {
            return Err(Error::Exists);
        }
        self.changeable(parent)?;
        self.check_apart_from_snapshots(parent, name)?;
        let now = self.now();
        let (ino, inode) = self.change_admitted(Intent::Grow, |tx| {
            let mut dir = directory(tx, parent)?;
            let item = free_item(tx, parent, name)?;
            check_gets(&dir)?;
            let (ino, inode) = make_inode(self, tx, caller, (parent, &dir), new, now)?;
            count(&mut dir, 1, i32::from(inode.is_dir()), now)?;
            let file_type = inode.file_type();
            put_entry(tx, parent, item, name, Target { ino, file_type })?;
            tx.put_inode(ino, &inode);
            tx.put_inode(parent, &dir);
            if inode.is_symlink() {
                tx.put(Key::new(ino, KeyKind::SYMLINK, 0), new.target.to_vec());
            }
            Ok((ino, inode))
        })?;
        Ok(self.attr_of(ino, &inode))
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
        check_name(name)?;
        let new = New {
            mode: libc::S_IFREG | mode & PERMISSIONS,
            rdev: 0,
            target: b"",
        };
        loop {
            let reclaims = self.nodes.reclaims();
            let opened = match self.make(caller, parent, name, &new) {
                Ok(attr) => self
                    .open_made(attr.ino, flags, reclaims)
                    .map(|handle| (attr, handle)),
                Err(Error::Exists) if !flags.exclusive && !is_dot(name) => self
                    .lookup(parent, name)
                    .and_then(|found| self.open_found(found.ino, flags)),
                // There is no room for a file, and none is needed for one that exists.
                Err(Error::NoSpace) if !flags.exclusive && !is_dot(name) => {
                    match self.lookup(parent, name) {
                        Err(Error::NotFound) => Err(Error::NoSpace),
                        found => found.and_then(|found| self.open_found(found.ino, flags)),
                    }
                }
                Err(error) => Err(error),
            };
            match opened {
                // Removed by another in between: then it is to be made. It is not to be made where it is damaged.
                Err(Error::Stale | Error::NotFound) if self.lookup(parent, b".").is_ok() => {
                    self.check_entry(parent, name)?;
                }
                other => return other,
            }
        }
    }

    fn open_found(&self, ino: Ino, flags: OpenFlags) -> Result<(Attr, Handle)> {
        let handle = self.open(ino, flags)?;
        Ok((self.getattr(ino)?, handle))
    }

    /// An error where an entry of a directory leads to no inode.
    fn check_entry(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.view(|view| match find_entry(view, parent, name)?.present() {
            Some((_, Target { ino, .. })) if view.inode(ino)?.is_none() => {
                let what = "a directory entry leads to no inode";
                Err(Error::Inconsistent { what, ino })
            }
            _ => Ok(()),
        })
    }

    /// Opens a file that was just made. Another may have removed it already, and it may be freed:
    /// then something was freed since `reclaims`.
    fn open_made(&self, ino: Ino, flags: OpenFlags, reclaims: u64) -> Result<Handle> {
        let node = self.nodes.acquire(ino)?;
        if self.nodes.reclaims() != reclaims
            && let Err(error) = self.inode(ino)
        {
            self.release_node(ino);
            return Err(error);
        }
        self.open_new(ino, node, flags)
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
        if !flags.write {
            return Err(Error::Invalid("a temporary file is for writing"));
        }
        self.changeable(parent)?;
        let new = New {
            mode: libc::S_IFREG | mode & PERMISSIONS,
            rdev: 0,
            target: b"",
        };
        let now = self.now();
        let (ino, inode) = self.change_admitted(Intent::Grow, |tx| {
            let dir = directory(tx, parent)?;
            check_gets(&dir)?;
            let (ino, mut inode) = make_inode(self, tx, caller, (parent, &dir), &new, now)?;
            inode.nlink = 0;
            tx.put_inode(ino, &inode);
            tx.put(Key::orphan(ino), Vec::new());
            Ok((ino, inode))
        })?;
        let node = self.nodes.acquire(ino)?;
        self.nodes
            .nameless(ino, self.options().hold_until_forget, !flags.exclusive);
        let handle = self.open_new(ino, node, flags);
        // No kernel knows the inode, and none will send FORGET for it.
        let handle = handle.inspect_err(|_| self.forget(ino))?;
        Ok((self.attr_of(ino, &inode), handle))
    }
}
