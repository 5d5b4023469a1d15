//! What the flags append-only and immutable (`chattr +a`, `+i`) forbid, whoever asks: `EPERM`. The rules are those of Linux. What was open for
//! writing before stays so.

use persimmon_format::Ino;
use persimmon_format::inode::{FLAG_APPEND_ONLY, FLAG_IMMUTABLE, Inode};

use crate::{Allocate, Error, Handle, OpenFlags, Result, SetAttr, SetTime, Vfs};

/// Refuses where one of the flags is set.
fn unless_set(inode: &Inode, flags: u32) -> Result<()> {
    if inode.flags & flags == 0 {
        Ok(())
    } else {
        Err(Error::NotPermitted)
    }
}

/// Before names of it, or its extended attributes, change.
pub(crate) fn check_names(inode: &Inode) -> Result<()> {
    unless_set(inode, FLAG_APPEND_ONLY | FLAG_IMMUTABLE)
}

/// Before a directory gets a name.
pub(crate) fn check_gets(dir: &Inode) -> Result<()> {
    unless_set(dir, FLAG_IMMUTABLE)
}

/// Before a directory loses a name.
pub(crate) fn check_loses(dir: &Inode) -> Result<()> {
    unless_set(dir, FLAG_APPEND_ONLY | FLAG_IMMUTABLE)
}

/// Before it is opened.
pub(crate) fn check_open(inode: &Inode, flags: &OpenFlags) -> Result<()> {
    if flags.truncate || flags.write && !flags.append && !flags.door_appends {
        unless_set(inode, FLAG_APPEND_ONLY | FLAG_IMMUTABLE)
    } else if flags.write {
        unless_set(inode, FLAG_IMMUTABLE)
    } else {
        Ok(())
    }
}

/// Before a range of it is allocated.
pub(crate) fn check_allocate(inode: &Inode, what: Allocate) -> Result<()> {
    match what {
        Allocate::Reserve { .. } => unless_set(inode, FLAG_IMMUTABLE),
        _ => unless_set(inode, FLAG_APPEND_ONLY | FLAG_IMMUTABLE),
    }
}

/// Before content is copied into it by `copy_file_range`, which Linux refuses also through a descriptor that was open before.
pub(crate) fn check_copied_into(inode: &Inode) -> Result<()> {
    unless_set(inode, FLAG_IMMUTABLE)
}

/// Before its attributes change.
pub(crate) fn check_attributes(inode: &Inode, set: &SetAttr) -> Result<()> {
    let is_told = |time: Option<SetTime>| matches!(time, Some(SetTime::At(_)));
    let changes =
        set.size.is_some() || set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
    // A kernel that caches writes brings the times of what it has written: that is no new change. It brings a change time with other
    // changes too.
    if set.ctime.is_some() && !changes && set.atime.is_none() {
        return Ok(());
    }
    if changes || is_told(set.atime) || is_told(set.mtime) {
        unless_set(inode, FLAG_APPEND_ONLY | FLAG_IMMUTABLE)
    } else {
        unless_set(inode, FLAG_IMMUTABLE)
    }
}

impl Vfs {
    /// Before it is written by its number alone. Somebody who has it open may be who writes: a kernel writes its cache so.
    pub(crate) fn check_unopened(&self, ino: Ino, handle: Handle) -> Result<()> {
        if handle != Handle::NONE || self.nodes.get(ino).is_some() {
            return Ok(());
        }
        check_names(&self.inode(ino)?)
    }
}
