//! Persimmon as a library: an append-only filesystem for zoned storage, without a mount.
//!
//! ```no_run
//! use persimmon::{Create, Filesystem, Options};
//!
//! # fn main() -> persimmon::Result<()> {
//! Filesystem::create("volume.img", &Create::sized(1 << 30))?;
//! let fs = Filesystem::open("volume.img", &Options::default())?;
//! fs.create_dir("/notes")?;
//! fs.write("/notes/today", b"pick persimmons")?;
//! fs.sync()?;
//! for entry in fs.read_dir("/notes")? {
//!     println!("{}", entry?.file_name().display());
//! }
//! fs.close()
//! # }
//! ```
//!
//! [`Filesystem`] works by path, [`File`] is an open file. Programs that keep inode numbers use
//! [`Vfs`] below ([`Filesystem::vfs`]); it has every operation. No permissions are checked: whoever
//! opens the volume may do everything.
//!
//! **Durability.** A call that has returned is seen by every later one. What survives is what docs/POSIX.md says:
//!
//! - [`Filesystem::sync`] makes everything that was done before it durable: content, names and attributes of all files.
//! - [`File::sync_all`] and [`File::sync_data`], and a write through a file opened with [`OpenOptions::sync`], make the
//!   content of that file durable, and every change of names and attributes before, of all files; not what was written to
//!   other files and not synced.
//! - A write through a file opened with [`OpenOptions::write_through`], and what was written before a
//!   [`flush`](std::io::Write::flush) of its file, outlives the death of this process as soon as the call has returned, with
//!   every change of names and attributes before; not the power.
//! - What was written before a flush of a file opened with [`OpenOptions::keep_flushed`] outlives the death of this process, too, and
//!   costs no journal; names and attributes do not go with it.
//! - Any other write is in the memory of this process until [`Options::commit_interval`] is over.
//!
//! After a crash the volume is as it was after some prefix of all changes.
//! [`Filesystem::close`] makes everything durable, too, and says if that failed. Dropping the last handle does the same, and
//! logs a failure. [`Filesystem::abandon`] leaves the volume as a crash of the process would.
//!
//! **Threads and processes.** All handles can be used by any number of threads at once, and a [`File`] keeps the volume
//! open. Writing is done by background threads of the library. A volume is opened by one process at a time, mounts
//! included: another is refused with [`DeviceError::Busy`].
//!
//! **Errors.** [`Error`] says what was refused, and by what; [`Error::filesystem`] is what an operation on files answered,
//! whose `errno` is that of POSIX. It becomes an [`std::io::Error`] of the kind that `std::fs` would answer. Damage that is
//! found answers `EIO`; a volume on which a change has failed takes no more of them (`EROFS`).
//!
//! ```
//! use persimmon::{Create, DeviceError, Error, Filesystem, OpenOptions, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let image = dir.path().join("volume.img");
//! Filesystem::create(&image, &Create::sized(64 << 20))?;
//! let fs = Filesystem::open(&image, &Options::default())?;
//! let again = Filesystem::open(&image, &Options::default());
//! assert!(matches!(again, Err(Error::Device(DeviceError::Busy { .. }))));
//!
//! let log = fs.open_file("/log", &OpenOptions::new().append(true).create(true))?;
//! std::thread::scope(|threads| {
//!     for line in ["one\n", "two\n"] {
//!         let log = &log;
//!         threads.spawn(move || log.write_at(line.as_bytes(), 0));
//!     }
//! });
//! log.sync_all()?;
//! assert_eq!(fs.read("/log")?.len(), 8);
//! let missing = std::io::Error::from(fs.read("/nothing").unwrap_err());
//! assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
//! drop(log);
//! fs.close()?;
//! # Ok(())
//! # }
//! ```

mod add_metadata;
mod all_cores;
mod background;
mod clock;
mod copy;
mod directory;
mod error;
mod file;
mod filesystem;
pub mod internal;
mod kept;
mod maintenance;
mod mounted;
mod open_options;
mod path;
mod properties;
mod quota;
mod reads;
mod redundancy;
mod shape;
mod snapshots;
mod streams;
mod volume;

/// Devices that a volume can be on: for [`Filesystem::create_on`] and [`Filesystem::open_on`], and for programs that bring one of
/// their own.
pub mod device {
    pub use persimmon_device::image::{ImageDevice, ImageGeometry};
    pub use persimmon_device::pair::{names, uri};
    pub use persimmon_device::{
        BLOCK_SIZE, DeviceError, DeviceIdentity, Geometry, MetadataZones, Result, ZoneId, ZoneInfo,
        ZoneKind, ZoneState, ZonedDevice,
    };
    pub use persimmon_device::{Block, Buffer, BufferMut, Command, Completer, Completion, Pending};
    pub use persimmon_device::{CreateOptions, Drive, Hold, Locks, OpenOptions, PairError};
}

/// The operations by inode number, without paths: what [`Filesystem::vfs`] has.
pub mod vfs {
    pub use persimmon_vfs::*;
}

/// Snapshots as streams: what [`Filesystem::send_snapshot`] and [`Filesystem::receive_snapshot`] are made of, for other places to receive into
/// ([`Directory`](stream::Directory)), and for streams that go on ([`resume_token`](stream::resume_token)).
pub mod stream {
    pub use crate::streams::{VolumeSource, VolumeTarget};
    pub use persimmon_stream::*;
}

pub use add_metadata::AddMetadata;
pub use all_cores::AllCores;
pub(crate) use background::Background;
pub use background::CommitInterval;
pub use clock::SystemClock;
pub use directory::{DirEntry, ReadDir, Walk};
pub use error::{Error, Result};
pub use file::File;
pub use filesystem::Filesystem;
pub use maintenance::{Cleaned, Scrubbed};
pub use open_options::OpenOptions;
pub use persimmon_device::DeviceError;
pub use persimmon_engine::{
    Barrier, CleaningOptions, Damage, Dedup, Deltas, Error as VolumeError, FormatOptionsError,
    FsyncOrder, Growth, Options as EngineOptions, RecoveryReport, ScrubFinding, Statistics,
    Threshold, Unit, ZoneFailure, ZoneStatus,
};
pub use persimmon_format::table::{Role, ZitEntry};
pub use persimmon_format::{Addr, FormatError, PageId, ZoneId};
pub use persimmon_vfs::{
    AccessTimes, Allocate, Attr, Caller, Clock, Compression, Counting, Error as FilesystemError,
    FileKind, Grace, Ino, Lifetime, Limit, NewLimits, OnError, Options as VfsOptions, Owner,
    OwnerKind, OwnerQuota, QuotaState, RenameMode, SeekTo, SetAttr, SetTime, Snapshot, StatFs,
    Timestamp, Vfs, XattrMode,
};
pub use properties::{Grow, Rename};
pub use reads::PendingRead;
pub use redundancy::{DataRedundancy, Divided};
pub use volume::{Create, Options};
