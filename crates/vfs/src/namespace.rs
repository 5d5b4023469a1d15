//! Names: looking up, making, linking, removing.

use persimmon_engine::{Intent, Transaction, View};
use persimmon_format::inode::{Inode, TYPE_MASK};
use persimmon_format::name::DirEntry;
use persimmon_format::{Key, KeyKind};

use crate::acl::Inherited;
use crate::attributes::{PERMISSIONS, SET_GID};
use crate::named::{Found, Target, check_name, find_entry, is_dot};
use crate::{
    Attr, Caller, Error, FileKind, Handle, Ino, LINKS_MAX, OpenFlags, Result, SYMLINK_MAX,
    Timestamp, Vfs,
};

/// The directory `ino`, to find or make names in.
pub(crate) fn directory(view: &View<'_>, ino: Ino) -> Result<Inode> {
    let inode = view.inode(ino)?.ok_or(Error::Stale)?;
    if !inode.is_dir() {
        return Err(Error::NotDirectory);
    }
    if inode.nlink == 0 {
        return Err(Error::NotFound);
    }
    Ok(inode)
}

/// Stores a directory entry.
pub(crate) fn put_entry(
    tx: &mut Transaction<'_>,
    dir: Ino,
    item: u64,
    name: &[u8],
    target: Target,
) -> Result<()> {
    let entry = DirEntry {
        ino: target.ino,
        file_type: target.file_type,
        name,
    };
    tx.put(Key::new(dir, KeyKind::DIR_ENTRY, item), entry.encode());
    Ok(())
}

/// Where a new name goes; `EEXIST` if it is taken.
fn free_item(view: &View<'_>, dir: Ino, name: &[u8]) -> Result<u64> {
    match find_entry(view, dir, name)? {
        Found::Present { .. } => Err(Error::Exists),
        Found::Absent { free } => free.ok_or(Error::NoSpace),
    }
}

/// Takes one name off what `target` leads to. Tells whether it was the last.
pub(crate) fn drop_name(
    tx: &mut Transaction<'_>,
    target: Target,
    now: Timestamp,
) -> Result<Option<Ino>> {
    let ino = target.ino;
    let mut inode = tx.inode(ino)?.ok_or(Error::Inconsistent {
        what: "a name without an inode",
        ino,
    })?;
    inode.nlink = if inode.is_dir() {
        0
    } else {
        inode.nlink.saturating_sub(1)
    };
    inode.ctime = now;
    tx.put_inode(ino, &inode);
    if inode.nlink > 0 {
        return Ok(None);
    }
    tx.put(Key::orphan(ino), Vec::new());
    Ok(Some(ino))
}

/// A directory gained (1) or lost (-1) entries and subdirectories.
pub(crate) fn count(
    dir: &mut Inode,
    entries: i64,
    subdirectories: i32,
    now: Timestamp,
) -> Result<()> {
    dir.size = dir.size.saturating_add_signed(entries);
    dir.nlink = dir
        .nlink
        .checked_add_signed(subdirectories)
        .filter(|links| subdirectories <= 0 || *links <= LINKS_MAX)
        .ok_or(Error::TooManyLinks)?;
    dir.mtime = now;
    dir.ctime = now;
    Ok(())
}

/// Something new.
#[derive(Clone, Copy)]
struct New<'a> {
    mode: u32,
    rdev: u32,
    target: &'a [u8],
}

/// The inode of something new in `dir`, with its access control lists.
fn make_inode(
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
        } else if mode & libc::S_IXGRP != 0 && !caller.is_privileged() && !caller.in_group(gid) {
            mode &= !SET_GID;
        }
    }
    let ino = tx.new_ino();
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
        parent: if is_dir { parent } else { Ino(0) },
        ..Inode::default()
    };
    lists.put(tx, ino, &mut inode)?;
    Ok((ino, inode))
}

impl Vfs {
    /// The inode `name` means in `parent`. Knows `.` and `..`.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        check_name(name)?;
        if is_dot(name) {
            let dir = self.view(|view| directory(view, parent))?;
            return self.getattr(if name == b"." { parent } else { dir.parent });
        }
        let target = self.view(|view| match find_entry(view, parent, name)? {
            Found::Present { value, .. } => Ok(value),
            Found::Absent { .. } => {
                directory(view, parent)?;
                Err(Error::NotFound)
            }
        })?;
        match self.getattr(target.ino) {
            // Removed and freed in between.
            Err(Error::Stale) => Err(Error::NotFound),
            other => other,
        }
    }

    /// The kernel refers to `ino` no more: an unlinked one that is not open is reclaimed. To be
    /// called once the kernel's reference count of the inode is zero; cheap for all others.
    pub fn forget(&self, ino: Ino) {
        if self.nodes.forget(ino) {
            self.reclaim(ino);
        }
    }

    /// Target of a symbolic link.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.view(
            |view| match view.get(&Key::new(ino, KeyKind::SYMLINK, 0))? {
                Some(target) => Ok(target.to_vec()),
                None if view.inode(ino)?.is_some() => Err(Error::Invalid("not a symbolic link")),
                None => Err(Error::Stale),
            },
        )
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
    pub fn mkdir(&self, caller: &Caller, parent: Ino, name: &[u8], mode: u32) -> Result<Attr> {
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
        let now = self.now();
        let (ino, inode) = self.change(Intent::Grow, |tx| {
            let mut dir = directory(tx, parent)?;
            let item = free_item(tx, parent, name)?;
            let (ino, inode) = make_inode(tx, caller, (parent, &dir), new, now)?;
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
        Ok(Attr::new(ino, &inode))
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
                Err(Error::Exists) if !flags.exclusive && !is_dot(name) => {
                    self.lookup(parent, name).and_then(|found| {
                        let handle = self.open(found.ino, flags)?;
                        Ok((self.getattr(found.ino)?, handle))
                    })
                }
                Err(error) => Err(error),
            };
            match opened {
                // Removed by another in between: then it is to be made.
                Err(Error::Stale | Error::NotFound) if self.lookup(parent, b".").is_ok() => {}
                other => return other,
            }
        }
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
        let new = New {
            mode: libc::S_IFREG | mode & PERMISSIONS,
            rdev: 0,
            target: b"",
        };
        let now = self.now();
        let (ino, inode) = self.change(Intent::Grow, |tx| {
            let dir = directory(tx, parent)?;
            let (ino, mut inode) = make_inode(tx, caller, (parent, &dir), &new, now)?;
            inode.nlink = 0;
            tx.put_inode(ino, &inode);
            tx.put(Key::orphan(ino), Vec::new());
            Ok((ino, inode))
        })?;
        let node = self.nodes.acquire(ino)?;
        self.nodes
            .nameless(ino, self.options().hold_until_forget, !flags.exclusive);
        let handle = self.open_new(ino, node, flags)?;
        Ok((Attr::new(ino, &inode), handle))
    }

    /// Gives `ino` one more name.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        check_name(name)?;
        if is_dot(name) {
            return Err(Error::Exists);
        }
        let now = self.now();
        let linkable = self.nodes.is_linkable(ino);
        let first = self.change(Intent::Grow, |tx| {
            let mut dir = directory(tx, parent)?;
            let mut inode = tx.inode(ino)?.ok_or(Error::Stale)?;
            if inode.is_dir() {
                return Err(Error::NotPermitted);
            }
            let first = inode.nlink == 0;
            if first && !linkable {
                return Err(Error::NotFound);
            }
            let item = free_item(tx, parent, name)?;
            if inode.nlink >= LINKS_MAX {
                return Err(Error::TooManyLinks);
            }
            inode.nlink += 1;
            inode.ctime = now;
            count(&mut dir, 1, 0, now)?;
            let file_type = inode.file_type();
            put_entry(tx, parent, item, name, Target { ino, file_type })?;
            tx.put_inode(ino, &inode);
            tx.put_inode(parent, &dir);
            if first {
                tx.delete(Key::orphan(ino));
            }
            Ok(first)
        })?;
        if first {
            self.nodes.linked(ino);
        }
        self.getattr(ino)
    }

    /// Removes a name of anything but a directory.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        check_name(name)?;
        if is_dot(name) {
            return Err(Error::IsDirectory);
        }
        self.remove(parent, name, false)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        check_name(name)?;
        match name {
            b"." => return Err(Error::Invalid("removing \".\"")),
            b".." => return Err(Error::NotEmpty),
            _ => {}
        }
        self.remove(parent, name, true)
    }

    fn remove(&self, parent: Ino, name: &[u8], directories: bool) -> Result<()> {
        let now = self.now();
        let gone = self.change(Intent::Shrink, |tx| {
            let mut dir = directory(tx, parent)?;
            let (item, target) = find_entry(tx, parent, name)?
                .present()
                .ok_or(Error::NotFound)?;
            check_removable(tx, target, directories)?;
            tx.delete(Key::new(parent, KeyKind::DIR_ENTRY, item));
            count(&mut dir, -1, -i32::from(target.is_dir()), now)?;
            tx.put_inode(parent, &dir);
            drop_name(tx, target, now)
        })?;
        self.unlinked(gone);
        Ok(())
    }

    /// An inode may have lost its last name.
    pub(crate) fn unlinked(&self, gone: Option<Ino>) {
        if let Some(ino) = gone
            && self.nodes.unlinked(ino, self.options().hold_until_forget)
        {
            self.reclaim(ino);
        }
    }
}

/// Whether `target` may be removed by `rmdir` (`directories`) or `unlink`.
pub(crate) fn check_removable(view: &View<'_>, target: Target, directories: bool) -> Result<()> {
    if FileKind::from_entry(target.file_type) != FileKind::Directory {
        return if directories {
            Err(Error::NotDirectory)
        } else {
            Ok(())
        };
    }
    if !directories {
        return Err(Error::IsDirectory);
    }
    let inode = view.inode(target.ino)?.ok_or(Error::Inconsistent {
        what: "a name without an inode",
        ino: target.ino,
    })?;
    if inode.size > 0 {
        return Err(Error::NotEmpty);
    }
    Ok(())
}
