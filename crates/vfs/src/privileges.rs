//! setuid, setgid and file capabilities: what a change of content or owner takes from a file, as Linux has it
//! (`setattr_should_drop_suidgid`).

use persimmon_engine::Intent;
use persimmon_format::inode::{Inode, TYPE_MASK};

use crate::nodes::Node;
use crate::{Ino, Result, Vfs, acl};

const SET_UID: u32 = libc::S_ISUID;
const SET_GID: u32 = libc::S_ISGID;
const GROUP_EXECUTES: u32 = libc::S_IXGRP;

/// Who changes a file, as far as its setuid and setgid depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Author {
    /// Has `CAP_FSETID`: a change of content takes nothing.
    #[default]
    Privileged,
    /// Has not: setuid goes, and setgid goes too, unless the file's group may not execute it and the author is in
    /// that group.
    User {
        /// Process; its groups are asked for where they matter.
        pid: u32,
        /// Effective group.
        gid: u32,
    },
    /// The superuser, by its number alone: its process is asked for `CAP_FSETID` where that matters.
    Superuser {
        /// Process.
        pid: u32,
        /// Effective group.
        gid: u32,
    },
}

/// What a door can find out about the processes that call it. Asked only of files that have something to lose.
pub trait Processes: std::fmt::Debug + Send + Sync {
    /// Whether the process is in the group. Of one that is not known: no.
    fn is_in_group(&self, pid: u32, gid: u32) -> bool;
    /// Whether the process has `CAP_FSETID`. Of one that is not known: no.
    fn has_fsetid(&self, pid: u32) -> bool;
}

/// Nothing is known of any process.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnknownProcesses;

impl Processes for UnknownProcesses {
    fn is_in_group(&self, _pid: u32, _gid: u32) -> bool {
        false
    }

    fn has_fsetid(&self, _pid: u32) -> bool {
        false
    }
}

/// What an author may leave of a file's setuid and setgid. Found out before the transaction that needs it: no lock is
/// held while processes are asked.
#[derive(Clone, Copy, Debug)]
struct Leave {
    is_privileged: bool,
    /// The group that the author is in, if it is the file's.
    group: Option<u32>,
}

impl Leave {
    /// The mode after a change of content.
    fn mode(self, inode: &Inode) -> u32 {
        if self.is_privileged || inode.mode & TYPE_MASK != libc::S_IFREG {
            inode.mode
        } else {
            self.mode_given_away(inode)
        }
    }

    /// The mode after a change of the owner, which takes setuid whoever makes it.
    fn mode_given_away(self, inode: &Inode) -> u32 {
        let knows_group = self.is_privileged || self.group == Some(inode.gid);
        if inode.mode & GROUP_EXECUTES == 0 && knows_group {
            inode.mode & !SET_UID
        } else {
            inode.mode & !SET_UID & !SET_GID
        }
    }
}

/// How a file that is not a directory loses setuid and setgid with its owner: to be asked for before the transaction.
pub(crate) struct GivenAway(Leave);

impl GivenAway {
    pub(crate) fn mode(&self, inode: &Inode) -> u32 {
        self.0.mode_given_away(inode)
    }
}

/// Setuid or setgid is set, which somebody might lose.
fn has_any(mode: u32) -> bool {
    mode & (SET_UID | SET_GID) != 0
}

impl Vfs {
    /// Before content changes, and after all that may refuse it: file capabilities go, and what the author may not leave of setuid and setgid. An
    /// open file remembers that there is nothing to clear. True if there was.
    pub(crate) fn clear_privileges(
        &self,
        ino: Ino,
        node: Option<&Node>,
        author: Author,
    ) -> Result<bool> {
        if node.is_some_and(|n| n.privileges.are_absent()) {
            return Ok(false);
        }
        let changes = node.map_or(0, |n| n.privileges.changes());
        let inode = self.inode(ino)?;
        let leave = self.leave(author, &inode);
        let left = leave.mode(&inode);
        let strip = left != inode.mode;
        let is_changed = strip || self.has_capability(ino, &inode)?;
        if is_changed {
            let now = inode.ctime.next(self.now());
            self.change(Intent::Shrink, |tx| {
                let mut inode = tx.inode(ino)?.ok_or(crate::Error::Stale)?;
                if strip {
                    inode.mode = leave.mode(&inode);
                }
                inode.ctime = inode.ctime.next(now);
                acl::remove_capability(tx, ino, &mut inode)?;
                tx.put_inode(ino, &inode);
                Ok(())
            })?;
        }
        if let Some(node) = node
            && !has_any(left)
        {
            node.privileges.none_found(changes);
        }
        Ok(is_changed)
    }

    /// What a change of the owner by `author` will leave of the mode.
    pub(crate) fn given_away(&self, ino: Ino, author: Author) -> Result<GivenAway> {
        Ok(GivenAway(self.leave(author, &self.inode(ino)?)))
    }

    /// Asks for as much as the mode makes necessary.
    fn leave(&self, author: Author, inode: &Inode) -> Leave {
        let processes = &self.options().processes;
        let is_privileged = match author {
            Author::Privileged => true,
            Author::User { .. } => false,
            Author::Superuser { pid, .. } => has_any(inode.mode) && processes.has_fsetid(pid),
        };
        let group_matters = inode.mode & SET_GID != 0 && inode.mode & GROUP_EXECUTES == 0;
        let in_group = match author {
            Author::Privileged => false,
            Author::User { pid, gid } | Author::Superuser { pid, gid } => {
                group_matters && (gid == inode.gid || processes.is_in_group(pid, inode.gid))
            }
        };
        Leave {
            is_privileged,
            group: in_group.then_some(inode.gid),
        }
    }
}
