//! Why a volume cannot be looked into at all. What is wrong *inside* a volume is a
//! [`crate::Finding`].

use persimmon_device::DeviceError;
use persimmon_format::{Addr, FormatError};

/// Shorthand.
pub type Result<T, E = InspectError> = std::result::Result<T, E>;

/// Why nothing can be told.
#[derive(Clone, Debug, thiserror::Error)]
pub enum InspectError {
    /// No zone of the device has a header.
    #[error("not a Persimmon volume: none of the device's {zones} zones begins with a zone header")]
    NotAVolume {
        /// Zones looked at.
        zones: u32,
    },
    /// The volume was made for another device.
    #[error(
        "the volume was made on {volume_zones} zones of {volume_blocks} blocks, the device has \
         {device_zones} of {device_blocks}: it was copied to a device of another shape, or cut off"
    )]
    Geometry {
        /// Zones when it was made.
        volume_zones: u32,
        /// Their size.
        volume_blocks: u32,
        /// Zones of the device.
        device_zones: u32,
        /// Their size.
        device_blocks: u32,
    },
    /// The zones of the volume are stripe sets, and the device does not say so.
    #[error(
        "the zones of the volume are stripe sets, and neither of the last two zones of the device can be read, which say how they \
         are made up; `persimmon recover` cannot help there, restore one of them from a copy"
    )]
    Stripes,
    /// No checkpoint: mkfs did not end, or the log is lost.
    #[error(
        "a Persimmon volume whose log is damaged, as it leads to no checkpoint ({reason}): `persimmon fsck --repair` or \
         `persimmon recover` may save it; do not run mkfs"
    )]
    NoCheckpoint {
        /// What was found instead.
        reason: String,
    },
    /// What was asked for is not there.
    #[error("{what} is not there")]
    NotFound {
        /// What was asked for.
        what: String,
    },
    /// A request that cannot be understood.
    #[error("{0}")]
    Request(String),
    /// A block outside what is written.
    #[error("{addr} and the next {blocks} blocks are not inside the written part of a zone")]
    OutOfBounds {
        /// First block.
        addr: Addr,
        /// Blocks.
        blocks: u32,
    },
    /// Bytes that are not what they should be.
    #[error("at {addr}: {source}")]
    Block {
        /// Where.
        addr: Addr,
        /// What is wrong.
        source: FormatError,
    },
    /// Intact, and not for this program to read: the volume is of a newer Persimmon, or of one of earlier days.
    #[error("at {addr}: {source}; nothing was changed")]
    Unsupported {
        /// Where it was read.
        addr: Addr,
        /// What this program does not know.
        source: FormatError,
    },
    /// Metadata is lost.
    #[error("metadata is damaged, so that not everything can be counted; run `persimmon fsck`")]
    Incomplete,
    /// An argument is not valid.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
