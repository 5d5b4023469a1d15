//! A volume in use, shared by all handles to it: what closes when the last of them goes.

use std::sync::{Arc, Mutex, PoisonError};

use persimmon_engine::RecoveryReport;
use persimmon_vfs::{Caller, Vfs};

use crate::reads::Readers;
use crate::{Background, Result};

/// Permissions that files and directories are made without.
const UMASK: u32 = 0o022;

/// What clones of a filesystem and its open files share.
pub(crate) struct Mounted {
    vfs: Arc<Vfs>,
    /// Until it is closed or abandoned.
    background: Mutex<Option<Background>>,
    recovery: RecoveryReport,
    caller: Caller,
    readers: Readers,
}

impl Mounted {
    pub(crate) fn new(vfs: Arc<Vfs>, background: Background, recovery: RecoveryReport) -> Mounted {
        Mounted {
            vfs,
            background: Mutex::new(Some(background)),
            recovery,
            caller: Caller {
                umask: UMASK,
                ..Caller::root()
            },
            readers: Readers::default(),
        }
    }

    pub(crate) fn vfs(&self) -> &Arc<Vfs> {
        &self.vfs
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(crate) fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    pub(crate) fn readers(&self) -> &Readers {
        &self.readers
    }

    fn take_background(&self) -> Option<Background> {
        let mut background = self
            .background
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        background.take()
    }

    /// Closes the volume, once: later calls find nothing to do.
    pub(crate) fn close(&self) -> Result<()> {
        let Some(background) = self.take_background() else {
            return Ok(());
        };
        background.stop();
        let closed = self.vfs.close();
        // What another handle changes now would never be written.
        self.vfs.volume().make_read_only();
        Ok(closed?)
    }

    /// Leaves the volume as a crash of the process would.
    pub(crate) fn abandon(&self) {
        if let Some(background) = self.take_background() {
            background.stop();
            self.vfs.volume().make_read_only();
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "closing a volume that was dropped; what was not synced may be lost");
        }
    }
}
