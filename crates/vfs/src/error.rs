//! What an operation can answer instead of doing its work, and the one place where that becomes an
//! `errno`.

use persimmon_device::DeviceError;
use persimmon_engine::Error as Engine;
use persimmon_format::{FormatError, Ino};

/// Shorthand.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `ENOENT`: no such name.
    #[error("no such file or directory")]
    NotFound,
    /// `ESTALE`: the inode number names nothing any more.
    #[error("the file is gone")]
    Stale,
    /// `EEXIST`: the name is taken.
    #[error("file exists")]
    Exists,
    /// `ENOTDIR`: a directory is needed.
    #[error("not a directory")]
    NotDirectory,
    /// `EISDIR`: a directory will not do.
    #[error("is a directory")]
    IsDirectory,
    /// `ENOTEMPTY`: the directory still has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// `ENAMETOOLONG`: a name beyond 255 bytes or a link target beyond 4095.
    #[error("name too long")]
    NameTooLong,
    /// `EINVAL`: the arguments make no sense; says which.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// `EPERM`: not permitted to anyone on this kind of file, or only to its owner.
    #[error("operation not permitted")]
    NotPermitted,
    /// `EACCES`: the mode or the access control list forbids it.
    #[error("permission denied")]
    AccessDenied,
    /// `EMLINK`: the inode has as many names as it can have.
    #[error("too many links")]
    TooManyLinks,
    /// `ENOSPC`: no room on the volume, or in a directory's hash bucket.
    #[error("no space left on the volume")]
    NoSpace,
    /// `ENOSPC`: the file's end is kept elsewhere, and there is no room for it on the volume ([`crate::Vfs::hold_back`]).
    #[error(
        "what was flushed to the file before a process died waits for room; delete other files, then open the volume again"
    )]
    EndWaits,
    /// `ENOSPC`: the filesystem that holds the image is full.
    #[error("the host filesystem below the image is full; free space there and try again")]
    HostFull,
    /// `EIO`: what was appended to a file is kept in memory that others can reach, and it is not what was appended.
    #[error(
        "what was appended to the file and kept in memory cannot be written: {0}; write it again and sync it"
    )]
    Kept(#[source] std::io::Error),
    /// `EDQUOT`: somebody whose the file is takes as much as they may.
    #[error("{}", match .0 { Some(error) => error.to_string(), None => "the quota is exhausted".to_owned() })]
    QuotaExceeded(Option<Box<Engine>>),
    /// `EOPNOTSUPP`: projects and limits are for volumes whose quota is on.
    #[error("quota is off; turn it on with `persimmon quota on`")]
    QuotaOff,
    /// `EXDEV`: into a directory of another project.
    #[error("not within one project")]
    OtherProject,
    /// `EFBIG`: beyond the largest file offset.
    #[error("file too large")]
    FileTooLarge,
    /// `EXDEV`: from one snapshot into another one, or out of one.
    #[error("not within one snapshot")]
    OtherSubvolume,
    /// `EBUSY`: a file of the snapshot is open for writing.
    #[error("a file in the snapshot is open for writing")]
    SnapshotInUse,
    /// `EBUSY`: the root of this subvolume is the root of the mount.
    #[error("the snapshot is mounted: its root is the root of the mount")]
    SubvolumeMounted,
    /// `EBUSY`: more snapshots were taken of it than one record can change.
    #[error(transparent)]
    SnapshotIsOrigin(Box<Engine>),
    /// `EOPNOTSUPP` or `ENOSPC`: no snapshot is possible, or no more.
    #[error(transparent)]
    NoSnapshot(Box<Engine>),
    /// `EROFS`: mounted read-only, or turned read-only after an error, or in a read-only snapshot.
    #[error("the filesystem is read-only")]
    ReadOnly,
    /// `ENODATA`: no such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// `ERANGE`: the name of an extended attribute is longer than any.
    #[error("attribute name too long")]
    NameOutOfRange,
    /// `E2BIG`: an extended attribute larger than any system takes, or an access control list with more entries than one may have.
    #[error("attribute value too long")]
    ValueTooLong,
    /// `E2BIG`: more names of extended attributes than any system lists.
    #[error("too many attributes to list")]
    ListTooLong,
    /// `EOPNOTSUPP`: not offered here.
    #[error("operation not supported")]
    NotSupported,
    /// `ENXIO`: no data or no hole at or past the offset.
    #[error("no such offset")]
    NoSuchOffset,
    /// `ENXIO`: a pipe, a socket or a device, of which the volume has the name alone.
    #[error("is a pipe, a socket or a device")]
    SpecialFile,
    /// `EBADF`: not a handle of this file, or not opened for this.
    #[error("bad file handle")]
    BadHandle,
    /// `ENFILE`: the bound on open files is reached.
    #[error("too many open files")]
    TooManyOpen,
    /// `ELOOP`: a symbolic link where none is followed, or too many in a path.
    #[error("too many levels of symbolic links")]
    SymlinkLoop,
    /// `EAGAIN`: the lock is held by another.
    #[error("the lock is held by another")]
    WouldBlock,
    /// `EDEADLK`: waiting for the lock would never end.
    #[error("waiting for the lock would be a deadlock")]
    Deadlock,
    /// `ENOLCK`: the bound on locks is reached.
    #[error("too many locks")]
    TooManyLocks,
    /// `EIO`: something on the volume is not what it must be.
    #[error("damage in the metadata: {0}; run `persimmon fsck`")]
    Damaged(#[from] FormatError),
    /// `EIO`: items of one file or name that contradict each other.
    #[error("damage in the metadata: {what}, inode {ino}; run `persimmon fsck`")]
    Inconsistent {
        /// What is wrong.
        what: &'static str,
        /// Where.
        ino: Ino,
    },
    /// `EIO`: the engine or the device under it failed.
    #[error(transparent)]
    Storage(Box<Engine>),
}

impl Error {
    /// The number a kernel wants, positive.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Error::NotFound => libc::ENOENT,
            Error::Stale => libc::ESTALE,
            Error::Exists => libc::EEXIST,
            Error::NotDirectory => libc::ENOTDIR,
            Error::IsDirectory => libc::EISDIR,
            Error::NotEmpty => libc::ENOTEMPTY,
            Error::NameTooLong => libc::ENAMETOOLONG,
            Error::Invalid(_) => libc::EINVAL,
            Error::NotPermitted => libc::EPERM,
            Error::AccessDenied => libc::EACCES,
            Error::TooManyLinks => libc::EMLINK,
            Error::NoSpace | Error::EndWaits | Error::HostFull => libc::ENOSPC,
            Error::QuotaExceeded(_) => libc::EDQUOT,
            Error::QuotaOff => libc::EOPNOTSUPP,
            Error::FileTooLarge => libc::EFBIG,
            Error::OtherSubvolume | Error::OtherProject => libc::EXDEV,
            Error::SnapshotInUse | Error::SubvolumeMounted | Error::SnapshotIsOrigin(_) => {
                libc::EBUSY
            }
            Error::NoSnapshot(error) => match **error {
                Engine::NoSnapshots => libc::EOPNOTSUPP,
                _ => libc::ENOSPC,
            },
            Error::ReadOnly => libc::EROFS,
            Error::NoAttribute => libc::ENODATA,
            Error::NameOutOfRange => libc::ERANGE,
            Error::ValueTooLong | Error::ListTooLong => libc::E2BIG,
            Error::NotSupported => libc::EOPNOTSUPP,
            Error::NoSuchOffset | Error::SpecialFile => libc::ENXIO,
            Error::BadHandle => libc::EBADF,
            Error::TooManyOpen => libc::ENFILE,
            Error::SymlinkLoop => libc::ELOOP,
            Error::WouldBlock => libc::EAGAIN,
            Error::Deadlock => libc::EDEADLK,
            Error::TooManyLocks => libc::ENOLCK,
            Error::Damaged(_) | Error::Inconsistent { .. } | Error::Kept(_) | Error::Storage(_) => {
                libc::EIO
            }
        }
    }

    /// Something that is stored of one file or name is not what it must be, or is lost: all else goes on.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Error::Damaged(_) | Error::Inconsistent { .. } => true,
            Error::Storage(error) => matches!(
                **error,
                Engine::DataDamaged { .. } | Engine::DataLost { .. } | Engine::ItemDamaged { .. }
            ),
            _ => false,
        }
    }

    /// The volume itself is in trouble, rather than the request, one block of a file, or the items of one file or name.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        match self {
            // Of resets that fail nothing is lost, and the next checkpoint tries again.
            Error::Storage(error) => {
                !self.is_damage() && !matches!(**error, Engine::ResetsFail { .. })
            }
            _ => false,
        }
    }
}

impl From<Engine> for Error {
    fn from(error: Engine) -> Error {
        match error {
            Engine::NoSpace => Error::NoSpace,
            Engine::ReadOnly { .. } | Engine::WornOut { .. } | Engine::ReadOnlySnapshot => {
                Error::ReadOnly
            }
            Engine::NotFound(_) | Engine::NoSuchSnapshot => Error::Stale,
            Engine::SnapshotExists => Error::Exists,
            Engine::SnapshotName => Error::Invalid("name of a snapshot"),
            Engine::NoSnapshots | Engine::TooManySnapshots(_) => Error::NoSnapshot(Box::new(error)),
            Engine::OriginOfTooMany(_) => Error::SnapshotIsOrigin(Box::new(error)),
            Engine::QuotaExceeded { .. } => Error::QuotaExceeded(Some(Box::new(error))),
            Engine::QuotaOff => Error::QuotaOff,
            Engine::TooLarge => Error::FileTooLarge,
            Engine::NotBeforeEnd => {
                Error::Invalid("a range that is not before the end of the file")
            }
            Engine::Device(DeviceError::HostFull) => Error::HostFull,
            other => Error::Storage(Box::new(other)),
        }
    }
}
