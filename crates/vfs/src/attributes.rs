//! Attributes and permissions.

use persimmon_sync::atomic::Ordering;

use persimmon_engine::{Intent, Quotas};
use persimmon_format::inode::{Inode, TYPE_MASK};

use crate::acl::{self, Acl};
use crate::handles::check_has_content;
use crate::protection::{check_attributes, check_gets};
use crate::{
    Attr, Author, Caller, Error, Handle, Ino, Result, SetAttr, SetTime, Timestamp, Vfs,
    is_snapshots,
};

/// The bits of a mode that `chmod` sets.
pub(crate) const PERMISSIONS: u32 = 0o7777;
pub(crate) const SET_GID: u32 = libc::S_ISGID;

/// A second has 1,000,000,000 nanoseconds.
fn check_times(set: &SetAttr) -> Result<()> {
    let given = |time: Option<SetTime>| match time {
        Some(SetTime::At(time)) => Some(time),
        _ => None,
    };
    let times = [given(set.atime), given(set.mtime), set.ctime];
    if times
        .iter()
        .flatten()
        .any(|time| time.nanoseconds >= 1_000_000_000)
    {
        Err(Error::Invalid("nanoseconds"))
    } else {
        Ok(())
    }
}

impl SetAttr {
    /// Anything but the size.
    fn beyond_size(&self) -> bool {
        self.mode.is_some()
            || self.uid.is_some()
            || self.gid.is_some()
            || self.atime.is_some()
            || self.mtime.is_some()
            || self.ctime.is_some()
    }
}

impl SetTime {
    fn at(self, now: Timestamp) -> Timestamp {
        match self {
            SetTime::Now => now,
            SetTime::At(time) => time,
        }
    }
}

impl Vfs {
    /// Attributes of an inode: one lookup in the tree.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        if is_snapshots(ino) {
            return Ok(Attr {
                // Snapshots are taken by others than a kernel too: it is not to remember these.
                is_staged: true,
                ..self.attr_of(ino, &self.inode(ino)?)
            });
        }
        let found = self.watch(self.volume.attr_and_staging(ino))?;
        let (inode, is_staged) = found.ok_or(Error::Stale)?;
        Ok(Attr {
            is_staged,
            ..self.attr_of(ino, &inode)
        })
    }

    /// The inode as a reader sees it, staged writes included.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Inode> {
        if is_snapshots(ino) {
            return self.inode_of_snapshots(ino);
        }
        self.watch(self.volume.attr(ino))?.ok_or(Error::Stale)
    }

    /// The time of a change that is made now of an inode, of which something may be staged: later than any that somebody may have seen.
    pub(crate) fn change_time(&self, ino: Ino) -> Result<Timestamp> {
        Ok(self.inode(ino)?.ctime.next(self.now()))
    }

    /// Changes attributes and tells the new ones. Rights are the door's to check. `handle` is the
    /// one `ftruncate` came with, or [`Handle::NONE`].
    pub fn setattr(&self, ino: Ino, handle: Handle, set: &SetAttr) -> Result<Attr> {
        self.changeable(ino)?;
        check_times(set)?;
        let inode = self.inode(ino)?;
        check_attributes(&inode, set)?;
        if let Some(size) = set.size {
            self.set_size(ino, handle, size, set.author)?;
        }
        if set.beyond_size() {
            self.set_others(ino, set)?;
        }
        self.getattr(ino)
    }

    fn set_size(&self, ino: Ino, handle: Handle, size: u64, author: Author) -> Result<()> {
        let open = self.opened(ino, handle)?;
        if open.as_ref().is_some_and(|o| !o.flags.write) {
            return Err(Error::BadHandle);
        }
        let _pin = self.pin_unopened(ino, open.as_ref())?;
        check_has_content(&self.inode(ino)?, "size of a special file")?;
        let node = match &open {
            Some(open) => Some(persimmon_sync::Arc::clone(&open.node)),
            None => self.nodes.get(ino),
        };
        self.truncate(ino, node.as_deref(), size, author)
    }

    fn set_others(&self, ino: Ino, set: &SetAttr) -> Result<()> {
        if set.atime.is_some() {
            self.access_times.remove(ino);
        }
        self.with_admission(|| self.try_to_set_others(ino, set))
    }

    fn try_to_set_others(&self, ino: Ino, set: &SetAttr) -> Result<()> {
        let now = self.now();
        let known = self.inode(ino)?;
        let changed = known.ctime.next(now);
        let given_away = if set.uid.is_some() || set.gid.is_some() {
            Some(self.given_away(ino, set.author)?)
        } else {
            None
        };
        let change = |written: Option<Timestamp>| {
            self.change(Intent::Shrink, |tx| {
                let mut inode = tx.inode(ino)?.ok_or(Error::Stale)?;
                check_attributes(&inode, set)?;
                let before = inode;
                inode.mtime = written.unwrap_or(inode.mtime);
                if let Some(given_away) = &given_away
                    && !inode.is_dir()
                {
                    // By the group that it had.
                    inode.mode = given_away.mode(&inode);
                    acl::remove_capability(tx, ino, &mut inode)?;
                }
                inode.uid = set.uid.unwrap_or(inode.uid);
                inode.gid = set.gid.unwrap_or(inode.gid);
                if let Some(mode) = set.mode {
                    inode.mode = inode.mode & TYPE_MASK | mode & PERMISSIONS;
                    acl::follow_mode(tx, ino, &inode)?;
                }
                if let Some(atime) = set.atime {
                    inode.atime = atime.at(now);
                }
                if let Some(mtime) = set.mtime {
                    inode.mtime = mtime.at(now);
                }
                inode.ctime = set.ctime.unwrap_or(inode.ctime.next(changed));
                if given_away.is_some() && self.limits_author(set.author) {
                    // With what is staged of it, of which an owner that stays takes no more.
                    let sectors = inode.sectors.max(known.sectors);
                    let before = Inode { sectors, ..before };
                    let after = Inode { sectors, ..inode };
                    self.admit_inode(tx, ino, (Some(&before), &after), now)?;
                }
                tx.put_inode(ino, &inode);
                Ok(())
            })
        };
        // Times of writes that are not in the history yet must not undo those set now.
        if set.atime.is_some() || set.mtime.is_some() {
            self.volume.change_times(ino, change)?
        } else {
            change(None)?
        }
        if given_away.is_some() {
            self.watch(Quotas::of(&self.volume).owners_changed(ino))?;
        }
        if let Some(node) = self.nodes.get(ino) {
            node.accessed.store(false, Ordering::Relaxed);
            node.privileges.changed();
        }
        Ok(())
    }

    /// Whether `caller` may do all of `mask` (4 read, 2 write, 1 execute; 0 existence) to it, by
    /// mode and access control list. For doors without a kernel.
    pub fn access(&self, caller: &Caller, ino: Ino, mask: u32) -> Result<()> {
        let inode = self.inode(ino)?;
        if mask & 2 != 0 {
            check_gets(&inode)?;
        }
        let is_changed = mask & 2 != 0 && (inode.is_file() || inode.is_dir());
        if is_changed && !is_snapshots(ino) {
            self.changeable(ino)?;
        }
        if caller.is_privileged() {
            let executable = inode.is_dir() || inode.mode & 0o111 != 0;
            return if mask & 1 == 0 || executable {
                Ok(())
            } else {
                Err(Error::AccessDenied)
            };
        }
        let list = match self.get_acl(ino, &inode, acl::ACCESS)? {
            Some(list) => list,
            None => Acl::from_mode(inode.mode),
        };
        if list.permits(caller, inode.uid, inode.gid, mask) {
            Ok(())
        } else {
            Err(Error::AccessDenied)
        }
    }
}
