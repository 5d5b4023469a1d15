//! Errors of the library.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    /// An operation on an open file or on the whole filesystem.
    #[error(transparent)]
    Filesystem(#[from] persimmon_vfs::Error),
    /// The volume cannot be made or opened.
    #[error(transparent)]
    Volume(#[from] persimmon_engine::Error),
    /// The device or image cannot be made or opened.
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

    /// The error of the filesystem below, if it is one.
    #[must_use]
    pub fn filesystem(&self) -> Option<&persimmon_vfs::Error> {
        match self {
            Error::At { source, .. } | Error::Filesystem(source) => Some(source),
            Error::Closing(source) => Some(source),
            _ => None,
        }
    }
}

impl From<Error> for io::Error {
    /// Of the kind that `std::fs` would answer.
    fn from(error: Error) -> io::Error {
        match error.filesystem() {
            Some(source) => {
                let kind = io::Error::from_raw_os_error(source.errno()).kind();
                io::Error::new(kind, error)
            }
            None => {
                let kind = match error {
                    Error::OutOfMemory { .. } => io::ErrorKind::OutOfMemory,
                    _ => io::ErrorKind::Other,
                };
                io::Error::new(kind, error)
            }
        }
    }
}
