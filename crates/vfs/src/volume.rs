//! The filesystem as a whole: options, opening, closing, space.

use crate::{Result, StatFs};

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
    /// Access times of files.
    pub access_times: AccessTimes,
    /// Access times of directories are updated too (off: `nodiratime`).
    pub directory_access_times: bool,
    /// After an error of the engine.
    pub on_error: OnError,
    /// An unlinked file that is not open stays until [`Vfs::forget`] is called for it. For a door
    /// whose kernel may still refer to it (FUSE); others leave it off.
    pub hold_until_forget: bool,
    /// Handles that may be open at once.
    pub handles_max: usize,
    /// Record locks held at once.
    pub locks_max: usize,
    /// Access times kept in memory before they are written.
    pub access_times_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            read_only: false,
            access_times: AccessTimes::default(),
            directory_access_times: true,
            on_error: OnError::default(),
            hold_until_forget: false,
            handles_max: 1 << 20,
            locks_max: 1 << 16,
            access_times_max: 1 << 16,
        }
    }
}

/// A filesystem in use. Shared between threads.
pub struct Vfs {}

impl Vfs {
    /// The options in force.
    #[must_use]
    pub fn options(&self) -> &Options {
        unimplemented!()
    }

    /// No changes are accepted: mounted so, or turned so by an error.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        unimplemented!()
    }

    /// Space and inodes.
    pub fn statfs(&self) -> Result<StatFs> {
        unimplemented!()
    }

    /// Makes everything done so far durable (`sync`, `syncfs`).
    pub fn sync(&self) -> Result<()> {
        unimplemented!()
    }

    /// Writes access times kept in memory into the history; to be called now and then (every
    /// few minutes). [`Vfs::sync`] and [`Vfs::close`] do it too.
    pub fn flush_access_times(&self) -> Result<()> {
        unimplemented!()
    }

    /// Everything durable, unlinked files reclaimed, the volume closed. Handles are void after
    /// it.
    pub fn close(&self) -> Result<()> {
        unimplemented!()
    }
}
