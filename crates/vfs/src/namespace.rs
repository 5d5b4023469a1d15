//! Names: looking up, linking, removing.

use persimmon_engine::faults::{Fault, unless};
use persimmon_engine::{Intent, Transaction, View};
use persimmon_format::inode::{Inode, ROOT};
use persimmon_format::{Key, KeyKind};

use crate::named::{Found, Target, check_name, find_entry, is_dot};
use crate::protection::{check_gets, check_loses, check_names};
use crate::quota::check_same_project;
use crate::{Attr, Error, FileKind, Ino, LINKS_MAX, Result, Timestamp, Vfs, is_snapshots};

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

/// The directory above one that is no root: the only way there, since an inode has its parent's number without a subvolume. That of any
/// directory is [`Vfs::parent_of`].
pub(crate) fn parent_in(ino: Ino, dir: &Inode) -> Ino {
    dir.parent.of(ino.subvolume())
}

/// Stores a directory entry.
pub(crate) fn put_entry(
    tx: &mut Transaction<'_>,
    dir: Ino,
    item: u64,
    name: &[u8],
    target: Target,
) -> Result<()> {
    let key = Key::new(dir, KeyKind::DIR_ENTRY, item);
    tx.put(key, target.encode(name));
    Ok(())
}

/// Where a new name goes; `EEXIST` if it is taken.
pub(crate) fn free_item(view: &View<'_>, dir: Ino, name: &[u8]) -> Result<u64> {
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
    inode.ctime = inode.ctime.next(now);
    tx.put_inode(ino, &inode);
    if inode.nlink > 0 {
        return Ok(None);
    }
    let orphan = Key::orphan(ino);
    unless(Fault::OrphanForgotten, || tx.put(orphan, Vec::new()));
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
    dir.ctime = dir.ctime.next(now);
    Ok(())
}

impl Vfs {
    /// The inode `name` means in `parent`. Knows `.` and `..`.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        check_name(name)?;
        if is_dot(name) {
            let dir = self.directory(parent)?;
            return self.getattr(match name {
                b"." => parent,
                _ => self.parent_of(parent, &dir),
            });
        }
        if is_snapshots(parent) {
            return self.getattr(ROOT.of(self.listed_snapshot(parent, name)?.id));
        }
        let mut freed = None;
        loop {
            let target = self.view(|view| match find_entry(view, parent, name)? {
                Found::Present { value, .. } => Ok(value),
                Found::Absent { .. } if self.is_snapshots_name(parent, name) => {
                    Ok(Target::snapshots_of(parent))
                }
                Found::Absent { .. } => {
                    directory(view, parent)?;
                    Err(Error::NotFound)
                }
            })?;
            match self.getattr(target.ino) {
                // Freed in between: removed, or replaced by what the name leads to now. If it still leads there, it
                // leads to no inode.
                Err(Error::Stale) if freed == Some(target.ino) => return Err(Error::NotFound),
                Err(Error::Stale) => freed = Some(target.ino),
                other => return other,
            }
        }
    }

    /// The directory `ino`, to find names in.
    fn directory(&self, ino: Ino) -> Result<Inode> {
        if is_snapshots(ino) {
            return self.inode(ino);
        }
        self.view(|view| directory(view, ino))
    }

    /// The kernel refers to `ino` no more: an unlinked one that is not open is reclaimed. To be
    /// called once the kernel's reference count of the inode is zero; cheap for all others.
    pub fn forget(&self, ino: Ino) {
        if self.nodes.forget(ino) {
            self.reclaim(ino);
        }
    }

    /// Whether [`Vfs::forget`] of `ino` would do anything: it has no name, and is kept because the
    /// kernel may refer to it.
    #[must_use]
    pub fn is_held(&self, ino: Ino) -> bool {
        self.nodes.is_held(ino)
    }

    /// [`Vfs::forget`] for many, which is cheaper than one by one.
    pub fn forget_all(&self, inos: &[Ino]) {
        let free: Vec<Ino> = inos
            .iter()
            .copied()
            .filter(|ino| self.nodes.forget(*ino))
            .collect();
        self.reclaim_all(&free);
    }

    /// Target of a symbolic link.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        if is_snapshots(ino) {
            return Err(Error::Invalid("not a symbolic link"));
        }
        self.view(
            |view| match view.get(&Key::new(ino, KeyKind::SYMLINK, 0))? {
                Some(target) => Ok(target.to_vec()),
                None if view.inode(ino)?.is_some() => Err(Error::Invalid("not a symbolic link")),
                None => Err(Error::Stale),
            },
        )
    }

    /// Gives `ino` one more name.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        check_name(name)?;
        if is_dot(name) {
            return Err(Error::Exists);
        }
        self.check_apart_from_snapshots(parent, name)?;
        self.changeable(parent)?;
        if ino.subvolume() != parent.subvolume() {
            return Err(Error::OtherSubvolume);
        }
        if !self.nodes.is_linkable(ino) {
            return self.link_existing(ino, parent, name, false);
        }
        // One at a time: once it had a name and lost it, it gets no other.
        let _lock = self.naming.lock();
        let linkable = self.nodes.is_linkable(ino);
        // Kept open meanwhile: its last close would free it although it has just got a name.
        let _node = self.nodes.acquire(ino)?;
        let linked = self.link_existing(ino, parent, name, linkable);
        self.release_node(ino);
        linked
    }

    fn link_existing(&self, ino: Ino, parent: Ino, name: &[u8], linkable: bool) -> Result<Attr> {
        let now = self.now();
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
            check_gets(&dir)?;
            check_names(&inode)?;
            check_same_project(&dir, &inode)?;
            if inode.nlink >= LINKS_MAX {
                return Err(Error::TooManyLinks);
            }
            inode.nlink += 1;
            inode.ctime = inode.ctime.next(now);
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
        let attr = self.getattr(ino)?;
        // Somebody may have removed the name before it was noted here: that came second.
        if first && attr.nlink == 0 {
            self.unlinked(Some(ino));
        }
        Ok(attr)
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
        if is_snapshots(parent) {
            return self.remove_snapshot(parent, name);
        }
        self.remove(parent, name, true)
    }

    fn remove(&self, parent: Ino, name: &[u8], directories: bool) -> Result<()> {
        self.check_apart_from_snapshots(parent, name)?;
        self.changeable(parent)?;
        let now = self.now();
        let gone = self.change(Intent::Shrink, |tx| {
            let mut dir = directory(tx, parent)?;
            let (item, target) = find_entry(tx, parent, name)?
                .present()
                .ok_or(Error::NotFound)?;
            check_loses(&dir)?;
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
    if let Some(inode) = view.inode(target.ino)? {
        check_names(&inode)?;
    }
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
