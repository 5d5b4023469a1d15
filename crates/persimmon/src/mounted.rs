//! A volume in use, shared by all handles to it: what closes when the last of them goes.

use std::sync::{Arc, OnceLock};

use persimmon_sync::Mutex;

use persimmon_engine::RecoveryReport;
use persimmon_vfs::{Caller, Vfs};

use crate::kept::Keeper;
use crate::reads::Readers;
use crate::{Background, CommitInterval, Error, Result};

/// Permissions that files and directories are made without.
const UMASK: u32 = 0o022;

/// How the use of a volume ended.
enum Ended {
    Closed,
    Failed(Arc<persimmon_vfs::Error>),
    Abandoned,
}

/// What clones of a filesystem and its open files share.
pub(crate) struct Mounted {
    vfs: Arc<Vfs>,
    /// Until it is closed or abandoned.
    background: Mutex<Option<Background>>,
    ended: OnceLock<Ended>,
    commit: Arc<CommitInterval>,
    recovery: RecoveryReport,
    caller: Caller,
    readers: Readers,
    keeper: Arc<Keeper>,
}

impl Mounted {
    pub(crate) fn new(
        vfs: Arc<Vfs>,
        background: Background,
        commit: Arc<CommitInterval>,
        recovery: RecoveryReport,
        keeper: Arc<Keeper>,
    ) -> Mounted {
        Mounted {
            vfs,
            commit,
            background: Mutex::new(Some(background)),
            ended: OnceLock::new(),
            recovery,
            caller: Caller {
                umask: UMASK,
                ..Caller::root()
            },
            readers: Readers::default(),
            keeper,
        }
    }

    /// The operations by inode number, for everybody who may look at any file: the volume has all that was appended to those with tails.
    pub(crate) fn vfs(&self) -> &Arc<Vfs> {
        if let Err(error) = self.keeper.fill_in_all(&self.vfs) {
            tracing::warn!(%error, "what was appended to a file is not in the volume yet");
        }
        &self.vfs
    }

    /// The same, for those who see to that themselves.
    pub(crate) fn vfs_as_it_is(&self) -> &Arc<Vfs> {
        &self.vfs
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(crate) fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    pub(crate) fn commit(&self) -> &Arc<CommitInterval> {
        &self.commit
    }

    pub(crate) fn readers(&self) -> &Readers {
        &self.readers
    }

    pub(crate) fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    /// Has what is staged written back soon.
    pub(crate) fn ask_for_write_back(&self) {
        if let Some(background) = &*self.background.lock() {
            background.ask_for_write_back();
        }
    }

    fn stop_background(&self) {
        let background = self.background.lock().take();
        if let Some(background) = background {
            background.stop();
        }
    }

    /// Closes the volume, once: who comes later waits for the first, and is told what it is told.
    pub(crate) fn close(&self) -> Result<()> {
        let ended = self.ended.get_or_init(|| {
            self.stop_background();
            let filled = self.keeper.closing(&self.vfs);
            let closed = self.vfs.close().and(filled);
            // What another handle changes now would never be written.
            self.vfs.volume().make_read_only();
            match closed {
                Ok(()) => {
                    self.keeper.closed();
                    Ended::Closed
                }
                Err(error) => Ended::Failed(Arc::new(error)),
            }
        });
        match ended {
            Ended::Closed => Ok(()),
            Ended::Failed(error) => Err(Error::Closing(Arc::clone(error))),
            Ended::Abandoned => Err(Error::Abandoned),
        }
    }

    /// Leaves the volume as a crash of the process would, unless it is closed already.
    pub(crate) fn abandon(&self) {
        self.ended.get_or_init(|| {
            self.stop_background();
            self.vfs.volume().make_read_only();
            Ended::Abandoned
        });
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.ended.get().is_some() {
            return;
        }
        if let Err(error) = self.close() {
            tracing::error!(%error, "closing a volume that was dropped; what was not synced may be lost");
        }
    }
}
