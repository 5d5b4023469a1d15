//! The filesystem as a whole: options, opening, closing, space.

use std::sync::{Arc, OnceLock};

use persimmon_engine::{FairLock, Intent, Transaction, View, Volume};
use persimmon_format::name::NAME_MAX;
use persimmon_format::{BLOCK_SIZE, Ino, SubvolumeId};

use crate::access_times::PendingAccessTimes;
use crate::handles::Handles;
use crate::locks::LockTable;
use crate::named::Skipped;
use crate::nodes::Nodes;
use crate::snapshots::SnapshotChanges;
use crate::{
    Clock, Error, Keeper, Processes, Result, StatFs, Timestamp, UnknownProcesses, is_snapshots,
};

/// When reads update the access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Where it is not later than the last change, or a day old (`relatime`).
    #[default]
    Relative,
    /// Always (`strictatime`).
    Always,
    /// Never (`noatime`).
    Never,
}

/// What a failure of the device or damage in the metadata leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The operation fails, the next one is tried.
    Continue,
    /// No more changes until the next mount (`errors=remount-ro`).
    #[default]
    ReadOnly,
}

/// How a volume is used. Settable bounds end in `_max`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Refuse changes.
    pub read_only: bool,
    /// The subvolume whose root is the root here: the main one, or a snapshot that there is. It cannot be deleted.
    pub subvolume: SubvolumeId,
    /// Access times of files.
    pub access_times: AccessTimes,
    /// Access times of directories are updated too (off: `nodiratime`).
    pub directory_access_times: bool,
    /// After an error of the engine.
    pub on_error: OnError,
    /// An unlinked file that is not open stays until [`Vfs::forget`] is called for it. For a door
    /// whose kernel may still refer to it (FUSE); others leave it off.
    pub hold_until_forget: bool,
    /// Limits of quota count for the superuser too. For a door that knows no users; others leave it off.
    pub limits_everybody: bool,
    /// Handles that may be open at once.
    pub handles_max: usize,
    /// Record locks held at once.
    pub locks_max: usize,
    /// Access times kept in memory before they are written.
    pub access_times_max: usize,
    /// What the door knows of the processes that call it.
    pub processes: Arc<dyn Processes>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            read_only: false,
            subvolume: SubvolumeId::MAIN,
            access_times: AccessTimes::default(),
            directory_access_times: true,
            on_error: OnError::default(),
            hold_until_forget: false,
            limits_everybody: false,
            handles_max: 1 << 20,
            locks_max: 1 << 16,
            access_times_max: 1 << 16,
            processes: Arc::new(UnknownProcesses),
        }
    }
}

/// Bytes set aside for one inode when free inodes are estimated.
const BYTES_PER_FREE_INODE: u64 = 1024;

/// A filesystem in use. Shared between threads.
pub struct Vfs {
    pub(crate) volume: Arc<Volume>,
    clock: Arc<dyn Clock>,
    options: Options,
    pub(crate) nodes: Nodes,
    pub(crate) handles: Handles,
    pub(crate) access_times: PendingAccessTimes,
    pub(crate) locks: LockTable,
    /// Who gives a name to a file made without one.
    pub(crate) naming: FairLock,
    pub(crate) skipped: Skipped,
    /// Of who moves a directory to another parent.
    pub(crate) directory_moves: FairLock,
    held_back: OnceLock<Vec<Ino>>,
    pub(crate) snapshots: SnapshotChanges,
    pub(crate) keeper: OnceLock<Arc<dyn Keeper>>,
}

impl std::fmt::Debug for Vfs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vfs")
            .field("options", &self.options)
            .field("read_only", &self.is_read_only())
            .finish_non_exhaustive()
    }
}

impl Vfs {
    /// Puts POSIX semantics over an open volume.
    #[must_use]
    pub fn new(volume: Arc<Volume>, clock: Arc<dyn Clock>, options: Options) -> Vfs {
        Vfs {
            volume,
            clock,
            nodes: Nodes::default(),
            handles: Handles::new(options.handles_max),
            access_times: PendingAccessTimes::default(),
            locks: LockTable::new(options.locks_max),
            naming: FairLock::default(),
            skipped: Skipped::default(),
            directory_moves: FairLock::default(),
            held_back: OnceLock::new(),
            snapshots: SnapshotChanges::default(),
            keeper: OnceLock::new(),
            options,
        }
    }

    /// The engine below.
    #[must_use]
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// The options in force.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// No changes are accepted: mounted so, or turned so by an error.
    #[must_use]
    #[inline]
    pub fn is_read_only(&self) -> bool {
        self.options.read_only || self.volume.is_read_only()
    }

    /// For these files, which lack their ends: nobody opens them or changes their size. What is read or written without the end would go on
    /// from a state that never was. They can get other names and be removed. To be called once, before anybody uses the filesystem.
    pub fn hold_back(&self, mut files: Vec<Ino>) {
        files.sort_unstable();
        let again = self.held_back.set(files);
        assert!(again.is_ok(), "files are held back twice");
    }

    /// Those files, in the order of their numbers.
    #[must_use]
    pub fn held_back(&self) -> &[Ino] {
        self.held_back.get().map_or(&[], Vec::as_slice)
    }

    /// Refuses a file that is held back.
    pub(crate) fn check_whole(&self, ino: Ino) -> Result<()> {
        match self.held_back().binary_search(&ino) {
            Ok(_) => Err(Error::EndWaits),
            Err(_) => Ok(()),
        }
    }

    /// Space and inodes.
    pub fn statfs(&self) -> Result<StatFs> {
        let space = self.volume.space();
        let block = BLOCK_SIZE as u64;
        let for_inodes = match space.metadata_total_bytes {
            0 => space.available_bytes,
            _ => space.metadata_available_bytes,
        };
        let files_free = for_inodes / BYTES_PER_FREE_INODE;
        Ok(StatFs {
            block_size: BLOCK_SIZE as u32,
            blocks: space.total_bytes / block,
            blocks_free: space.available_bytes / block,
            blocks_available: space.available_bytes / block,
            files: space.inodes.saturating_add(files_free),
            files_free,
            name_len_max: NAME_MAX as u32,
        })
    }

    /// Makes everything done so far durable (`sync`, `syncfs`).
    pub fn sync(&self) -> Result<()> {
        if self.is_read_only() {
            return self.synced_read_only();
        }
        if self.is_frozen() && self.volume.is_settled() {
            return Ok(());
        }
        // Everything else is written all the same.
        let times = self.flush_access_times();
        let synced = self.keeping(|| self.volume.sync());
        self.watch(synced).and(times)
    }

    /// Reclaims what was unlinked but still open when the volume was last used. To be called once
    /// after opening, in the background if the mount should answer first. `orphans` is what
    /// [`Volume::orphans`] told before the first operation.
    pub fn reclaim_orphans(&self, orphans: &[Ino]) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        self.watch(self.volume.reclaim(orphans))
    }

    /// Everything durable, unlinked files reclaimed, the volume closed. Handles are void after
    /// it.
    pub fn close(&self) -> Result<()> {
        let mut times = Ok(());
        if !self.is_read_only() {
            self.reclaim_all(&self.nodes.take_unlinked());
            // Everything else is written all the same.
            times = self.flush_access_times();
        }
        self.watch(self.volume.close()).and(times)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Refuses where changes are not accepted.
    pub(crate) fn writable(&self) -> Result<()> {
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        Ok(())
    }

    /// Refuses where changes of this inode are not accepted: nowhere, or in its snapshot. The directory of snapshots has nothing that
    /// could be changed but by taking, renaming and deleting them.
    #[inline]
    pub(crate) fn changeable(&self, ino: Ino) -> Result<()> {
        self.writable()?;
        if ino.subvolume() == SubvolumeId::MAIN {
            return Ok(());
        }
        if is_snapshots(ino) {
            return Err(Error::NotPermitted);
        }
        Ok(self.volume.snapshots().check_changeable(ino)?)
    }

    /// Reads the tree. `f` may run several times.
    pub(crate) fn view<R>(&self, f: impl FnMut(&View<'_>) -> Result<R>) -> Result<R> {
        self.watch(self.volume.view(f))
    }

    /// Changes the tree in one transaction. `f` may run several times.
    pub(crate) fn change<R>(
        &self,
        intent: Intent,
        f: impl FnMut(&mut Transaction<'_>) -> Result<R>,
    ) -> Result<R> {
        self.writable()?;
        self.watch(self.volume.update(intent, f))
    }

    /// Lets a result pass, and acts on failures of the volume as the options say.
    pub(crate) fn watch<R, E: Into<Error>>(&self, result: Result<R, E>) -> Result<R> {
        result.map_err(|error| {
            let error = error.into();
            if error.is_failure() {
                self.failed(&error);
            }
            error
        })
    }

    #[cold]
    fn failed(&self, error: &Error) {
        if self.options.on_error == OnError::ReadOnly && !self.is_read_only() {
            self.volume.make_read_only();
            tracing::error!(%error, "the volume failed; no more changes until the next mount");
        } else {
            tracing::error!(%error, "the volume failed");
        }
    }

    /// Frees an inode without names that nobody has open. What fails here is done at the next
    /// mount: the inode stays on the list of orphans.
    pub(crate) fn reclaim(&self, ino: Ino) {
        self.reclaim_all(&[ino]);
    }

    /// [`Vfs::reclaim`] for many.
    pub(crate) fn reclaim_all(&self, inos: &[Ino]) {
        // What was in a snapshot went with it.
        let inos: Vec<Ino> = inos
            .iter()
            .copied()
            .filter(|ino| self.has_subvolume(*ino))
            .collect();
        let inos = &inos;
        for ino in inos {
            self.access_times.remove(*ino);
        }
        if let Err(error) = self.watch(self.volume.reclaim(inos)) {
            let files = inos.len();
            tracing::warn!(files, %error, "unlinked files wait for the next mount to be freed");
        }
        for ino in inos {
            self.nodes.reclaimed(*ino);
        }
    }
}
