//! Going on where a process ended: its door, a kernel, lives on with numbers of open files and of inodes that this one has to know.

use std::sync::Arc;

use crate::{Handle, Ino, OpenFlags, Result, Vfs};
use persimmon_engine::Syncs;

/// Keeps what was written to files until it is on the device, for the process that comes after this one.
pub trait Keeper: Send + Sync {
    /// The position behind the last write that is kept. Asked for before a sync of the whole volume.
    fn position(&self) -> u64;

    /// The device has all writes before this position.
    fn kept(&self, position: u64);
}

impl Vfs {
    /// Sets the keeper, which is told of each sync of the whole volume and of each snapshot. To be called once, before the first write.
    pub fn keep_by(&self, keeper: Arc<dyn Keeper>) {
        let again = self.keeper.set(keeper);
        assert!(again.is_ok(), "what is written is kept twice");
    }

    /// Runs `sync`, which writes to the device everything that was written to files before this call. Then the keeper is told that it need not
    /// keep that any more.
    pub fn keeping<E>(
        &self,
        sync: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let keeper = self.keeper.get();
        let position = keeper.map(|keeper| keeper.position());
        sync()?;
        if let (Some(keeper), Some(position)) = (keeper, position) {
            keeper.kept(position);
        }
        Ok(())
    }

    /// Before a snapshot is taken: what the next process wrote again of what is in it, it would write to another place. What cannot be given to
    /// the device here keeps nobody from taking it.
    pub(crate) fn keep_for_snapshot(&self) {
        if self.keeper.get().is_some() {
            let recorded = self.keeping(|| Syncs::of(&self.volume).record_all());
            let _ = recorded.inspect_err(|error| tracing::debug!(%error, "before a snapshot"));
        }
    }

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
