//! Going on where a process ended: its door, a kernel, lives on with numbers of open files and of inodes that this one has to know.

use crate::{Handle, Ino, OpenFlags, Result, Vfs};
use persimmon_engine::Syncs;

impl Vfs {
    /// These inodes have no name, and the kernel may still refer to them: each stays until [`Vfs::forget_all`] is told of it. Those
    /// made without a name may get one, which the kernel decides.
    pub fn adopt(&self, orphans: &[Ino]) {
        for ino in orphans {
            self.nodes.nameless(*ino, true, true);
        }
    }

    /// Opens files again, by the handles that they had. To be called once, before anybody opens a file. Handles up to `newest` are never given
    /// again: somebody may release one of them a second time. Answers those that are not there any more, whose handles stand for
    /// nothing.
    pub fn reopen(&self, files: &[(Handle, Ino, OpenFlags)], newest: Handle) -> Vec<Ino> {
        let mut gone = Vec::new();
        for (handle, ino, flags) in files {
            if self.reopen_one(*handle, *ino, *flags).is_err() {
                gone.push(*ino);
            }
        }
        self.handles.go_on_after(newest);
        gone
    }

    fn reopen_one(&self, handle: Handle, ino: Ino, flags: OpenFlags) -> Result<()> {
        self.inode(ino)?;
        let node = self.nodes.acquire(ino)?;
        if flags.write {
            // Perhaps it was: then its content has to enter the history when it is closed.
            self.nodes.emptied(ino);
        }
        let flags = OpenFlags {
            truncate: false,
            ..flags
        };
        let opened = self.handles.insert_at(handle, ino, node, flags);
        if opened.is_err() {
            self.release_node(ino);
        }
        opened
    }

    /// Has all changes of names and attributes so far outlive this process; the power may take them. What is staged of files stays
    /// so.
    pub fn record(&self) -> Result<()> {
        if self.is_read_only() {
            return self.synced_read_only();
        }
        self.watch(Syncs::of(&self.volume).record())
    }

    /// Has everything so far outlive this process, also what was written to files; the power may take it.
    pub fn record_all(&self) -> Result<()> {
        if self.is_read_only() {
            return self.synced_read_only();
        }
        let recorded = match Syncs::of(&self.volume).record_all() {
            // Of a damaged file nothing is staged that could be written; whoever syncs it hears of it. All else is where it belongs.
            Err(persimmon_engine::Error::ItemDamaged { .. }) => Ok(()),
            other => other,
        };
        self.watch(recorded)
    }
}
