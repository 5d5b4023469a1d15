//! What a device can answer instead of doing the work.

use crate::{ZoneId, ZoneState};

/// Shorthand.
pub type Result<T, E = DeviceError> = std::result::Result<T, E>;

/// A command that was not carried out. Where a [`DeviceError::Io`] hit a write, the zone's write
/// pointer may stand anywhere between the start and the end of the command.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DeviceError {
    /// The medium or the host failed.
    #[error("{operation} failed on zone {zone} at block {block}: {message}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// Where.
        zone: ZoneId,
        /// First block of the command.
        block: u32,
        /// What the host said.
        message: String,
    },
    /// The host has no room for the data (a sparse image on a full filesystem).
    #[error("the host filesystem below the image is full; free space there and try again")]
    HostFull,
    /// A write that does not start at the write pointer.
    #[error("zone {zone}: write at block {block}, but the write pointer is at {write_pointer}")]
    NotAtWritePointer {
        /// The zone.
        zone: ZoneId,
        /// Where the write wanted to start.
        block: u32,
        /// Where it would have had to.
        write_pointer: u32,
    },
    /// A read of blocks at or past the write pointer, or past the zone's capacity.
    #[error("zone {zone}: read of blocks {block}..{end}, but only {limit} are written")]
    ReadPastEnd {
        /// The zone.
        zone: ZoneId,
        /// First block asked for.
        block: u32,
        /// One past the last.
        end: u32,
        /// Blocks that are readable.
        limit: u32,
    },
    /// A write or append that does not fit below the zone's capacity. To a full zone it is
    /// [`DeviceError::BadState`].
    #[error("zone {zone}: {blocks} blocks at block {block} do not fit its capacity of {capacity}")]
    ZoneFull {
        /// The zone.
        zone: ZoneId,
        /// First block.
        block: u32,
        /// Blocks of the command.
        blocks: u32,
        /// Capacity of the zone.
        capacity: u32,
    },
    /// A write to a stripe set that does not cover whole rows.
    #[error("zone {zone}: {blocks} blocks at block {block} are not whole rows of {columns}")]
    NotWholeRows {
        /// The zone.
        zone: ZoneId,
        /// First block.
        block: u32,
        /// Blocks of the command.
        blocks: u32,
        /// Blocks of a row.
        columns: u32,
    },
    /// An append to a stripe set, whose zones could each take it at another place.
    #[error("zone {zone} is a stripe set, which is written at its write pointer only")]
    NoAppends {
        /// The zone.
        zone: ZoneId,
    },
    /// The zone's state does not allow the command.
    #[error("zone {zone} is {state:?}: {operation} is not possible")]
    BadState {
        /// The zone.
        zone: ZoneId,
        /// Its state.
        state: ZoneState,
        /// What was tried.
        operation: &'static str,
    },
    /// A flush failed: what completed since the last good flush may be lost. A back end whose
    /// host forgets about failed writes (an image) takes no more writes after it.
    #[error("flush failed: {message}")]
    Flush {
        /// What the host said.
        message: String,
    },
    /// A command that changes something, on a device opened for reading only.
    #[error("the device is open for reading only")]
    ReadOnly,
    /// One open zone too many.
    #[error("zone {zone}: the device allows no more than {limit} open zones")]
    TooManyOpen {
        /// The zone that was to be opened.
        zone: ZoneId,
        /// The limit.
        limit: u32,
    },
    /// One active zone too many.
    #[error("zone {zone}: the device allows no more than {limit} active zones")]
    TooManyActive {
        /// The zone that was to become active.
        zone: ZoneId,
        /// The limit.
        limit: u32,
    },
    /// A zone number past the end.
    #[error("zone {zone} does not exist; the device has {count}")]
    NoSuchZone {
        /// The zone.
        zone: ZoneId,
        /// Zones there are.
        count: u32,
    },
    /// A command larger than the device takes, or of no blocks at all.
    #[error("a transfer of {blocks} blocks; the device takes 1 to {limit}")]
    TransferSize {
        /// Blocks of the command.
        blocks: u32,
        /// The limit.
        limit: u32,
    },
    /// Opening, identifying or creating the device failed; the message names it and the remedy.
    #[error("{path}: {message}")]
    Open {
        /// The device or image file.
        path: String,
        /// What is wrong and what to do.
        message: String,
        /// Number of the system's error, if one is the reason; that of an input or output error, if something is damaged. `None`: what was
        /// asked for cannot be on this device.
        os_error: Option<i32>,
    },
    /// Devices are not the two of a volume.
    #[error(transparent)]
    Pair(crate::pair::PairError),
    /// The device is used by another process.
    #[error("{path} is in use by another process; unmount it there first")]
    Busy {
        /// The device or image file.
        path: String,
    },
    /// The device is gone: pulled, or cut off from power by a test.
    #[error("the device is gone")]
    Gone,
    /// Refused by the volume itself: a thread panicked in the midst of a change, and nothing of that may reach the device.
    #[error(
        "a thread of this process panicked in the midst of a change: nothing more is written; mount again"
    )]
    Stopped,
    /// A back end answered a command with the completion of another.
    #[error("device back end answered {got} to {expected}")]
    Protocol {
        /// The command.
        expected: &'static str,
        /// The completion.
        got: &'static str,
    },
}

impl DeviceError {
    /// As a device says it whose zones follow so many others.
    pub(crate) fn in_zones_after(mut self, zones: u32) -> DeviceError {
        match &mut self {
            DeviceError::Io { zone, .. }
            | DeviceError::NotAtWritePointer { zone, .. }
            | DeviceError::ReadPastEnd { zone, .. }
            | DeviceError::ZoneFull { zone, .. }
            | DeviceError::NotWholeRows { zone, .. }
            | DeviceError::NoAppends { zone }
            | DeviceError::BadState { zone, .. }
            | DeviceError::TooManyOpen { zone, .. }
            | DeviceError::TooManyActive { zone, .. } => zone.0 = zone.0.saturating_add(zones),
            DeviceError::NoSuchZone { zone, count } => {
                zone.0 = zone.0.saturating_add(zones);
                *count = count.saturating_add(zones);
            }
            DeviceError::HostFull
            | DeviceError::Flush { .. }
            | DeviceError::ReadOnly
            | DeviceError::TransferSize { .. }
            | DeviceError::Open { .. }
            | DeviceError::Pair(_)
            | DeviceError::Busy { .. }
            | DeviceError::Gone
            | DeviceError::Stopped
            | DeviceError::Protocol { .. } => {}
        }
        self
    }
}
