//! Errors of the library.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use persimmon_device::DeviceError;

/// Shorthand.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation on a path.
    #[error("{}: {source}", path.display())]
    At {
        /// The path as it was given.
        path: PathBuf,
        /// What is wrong.
        source: persimmon_vfs::Error,
    },
    /// An operation on two paths: a rename, or a link.
    #[error("{} to {}: {source}", from.display(), to.display())]
    Between {
        /// What has a name already, as it was given.
        from: PathBuf,
        /// What is to have one, as it was given.
        to: PathBuf,
        /// What is wrong.
        source: persimmon_vfs::Error,
    },
    /// An operation on an open file or on the whole filesystem.
    #[error(transparent)]
    Filesystem(#[from] persimmon_vfs::Error),
    /// The volume on a device or in an image cannot be made or opened.
    #[error("{}: {source}", path.display())]
    VolumeAt {
        /// The device or image as it was given.
        path: PathBuf,
        /// What is wrong.
        source: Box<persimmon_engine::Error>,
    },
    /// The volume cannot be made or opened on a device that has no path, or its zones cannot be looked after.
    #[error(transparent)]
    Volume(#[from] persimmon_engine::Error),
    /// The device or image cannot be made or opened. Its message says which.
    #[error(transparent)]
    Device(#[from] persimmon_device::DeviceError),
    /// Closing the volume failed, once for all that close it.
    #[error("closing the volume: {0}")]
    Closing(#[source] Arc<persimmon_vfs::Error>),
    /// The volume was left as a crash leaves it ([`Filesystem::abandon`](crate::Filesystem::abandon)), and cannot be closed.
    #[error("the volume was abandoned")]
    Abandoned,
    /// Memory for what is to be read cannot be had.
    #[error("{}: no memory for {bytes} bytes", path.display())]
    OutOfMemory {
        /// The path as it was given.
        path: PathBuf,
        /// Of what is to be read.
        bytes: u64,
    },
    /// What a process flushed before it died ([`OpenOptions::keep_flushed`](crate::OpenOptions::keep_flushed)) cannot be brought into the volume.
    /// It can be opened read-only meanwhile, and without that file.
    #[error(
        "{}: what was flushed before a process died cannot be brought into the volume: {source}; until it is, or that file is removed, the volume opens read-only",
        path.display()
    )]
    Kept {
        /// Where it is kept.
        path: PathBuf,
        /// What is wrong.
        source: io::Error,
    },
    /// A read under way panicked; the log says where. A bug: please report it.
    #[error("a read was lost to a panic; see the log, and please report it")]
    ReadLost,
    /// The system refuses a thread.
    #[error("starting a background thread: {0}")]
    Thread(io::Error),
}

impl Error {
    /// Adds the path an error belongs to.
    pub(crate) fn at(path: &Path) -> impl FnOnce(persimmon_vfs::Error) -> Error {
        move |source| Error::At {
            path: path.to_owned(),
            source,
        }
    }

    /// Adds the two paths an error belongs to.
    pub(crate) fn between(from: &Path, to: &Path) -> impl FnOnce(persimmon_vfs::Error) -> Error {
        move |source| Error::Between {
            from: from.to_owned(),
            to: to.to_owned(),
            source,
        }
    }

    /// Adds the device or image that an error of a volume belongs to.
    pub(crate) fn of_volume_at(path: &Path) -> impl FnOnce(persimmon_engine::Error) -> Error {
        move |source| match source {
            persimmon_engine::Error::Device(source) => Error::Device(source),
            source => Error::VolumeAt {
                path: path.to_owned(),
                source: Box::new(source),
            },
        }
    }

    /// The error of the filesystem below, if it is one.
    #[must_use]
    pub fn filesystem(&self) -> Option<&persimmon_vfs::Error> {
        match self {
            Error::At { source, .. } | Error::Between { source, .. } => Some(source),
            Error::Filesystem(source) => Some(source),
            Error::Closing(source) => Some(source),
            _ => None,
        }
    }

    /// The error of the volume, if it is one.
    #[must_use]
    pub fn volume(&self) -> Option<&persimmon_engine::Error> {
        match self {
            Error::VolumeAt { source, .. } => Some(source),
            Error::Volume(source) => Some(source),
            _ => None,
        }
    }

    /// The number of `<errno.h>` that says the most of it, positive: that of POSIX where an operation on files was refused.
    #[must_use]
    pub fn errno(&self) -> i32 {
        if let Some(source) = self.filesystem() {
            return source.errno();
        }
        if let Some(source) = self.volume() {
            return of_volume(source);
        }
        match self {
            Error::Device(source) => of_device(source),
            Error::Abandoned => libc::EROFS,
            Error::OutOfMemory { .. } => libc::ENOMEM,
            Error::Kept { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            Error::Thread(source) => source.raw_os_error().unwrap_or(libc::EAGAIN),
            _ => libc::EIO,
        }
    }
}

fn of_volume(error: &persimmon_engine::Error) -> i32 {
    use persimmon_engine::Error as Engine;
    match error {
        Engine::NoSpace => libc::ENOSPC,
        Engine::ReadOnly { .. } | Engine::OnlyToRead { .. } => libc::EROFS,
        Engine::Unsupported { .. } => libc::EOPNOTSUPP,
        Engine::Options(_) | Engine::Geometry(_) | Engine::NoVolume(_) => libc::EINVAL,
        Engine::Device(source) => of_device(source),
        _ => libc::EIO,
    }
}

fn of_device(error: &DeviceError) -> i32 {
    match error {
        DeviceError::Busy { .. } => libc::EBUSY,
        DeviceError::HostFull => libc::ENOSPC,
        DeviceError::ReadOnly => libc::EROFS,
        DeviceError::Pair(_) => libc::EINVAL,
        DeviceError::Gone => libc::ENODEV,
        DeviceError::Open { os_error, .. } => os_error.unwrap_or(libc::EINVAL),
        _ => libc::EIO,
    }
}

impl From<Error> for io::Error {
    /// Of the kind that `std::fs` would answer.
    fn from(error: Error) -> io::Error {
        let kind = io::Error::from_raw_os_error(error.errno()).kind();
        io::Error::new(kind, error)
    }
}
