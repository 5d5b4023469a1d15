//! What the engine can answer instead of doing the work. Doors map it to their own terms once.

use persimmon_device::{DeviceError, ZoneId};
use persimmon_format::quota::Owner;
use persimmon_format::{Addr, FormatError, Ino, PageId, shown};

use crate::options::FormatOptionsError;

/// Shorthand.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a volume takes no changes any more after a panic.
pub(crate) const PANICKED: &str =
    "a thread panicked in the midst of a change; see the log, unmount and mount again";

/// An engine error.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// No room for what a write or an operation would add. Deleting and truncating still work.
    #[error("no space left on the volume")]
    NoSpace,
    /// There are zones of which nothing is needed any more, and the device does not reset them: nothing is left to
    /// write to. The next checkpoint tries again.
    #[error(
        "no zone is left to write to, because the device does not reset those that are empty: {source}"
    )]
    ResetsFail {
        /// What the device answered last.
        source: Box<Error>,
    },
    /// So many zones have failed that the others do not carry the volume any more.
    #[error(
        "{failed} of {zones} zones have failed and too few are left to write to; mount read-only \
         and copy the files to another device"
    )]
    WornOut {
        /// Zones that take no more writes.
        failed: u32,
        /// Zones of the device.
        zones: u32,
    },
    /// A zone that the volume has to give up holds blocks that cannot be read, and so cannot be moved.
    #[error(
        "zone {zone}, which the volume has to give up, holds blocks that cannot be read, and so cannot be moved: mount the volume, run \
         `persimmon scrub`, which names their files, remove these or replace them by copies of yours, and try again"
    )]
    Unmovable {
        /// The zone.
        zone: ZoneId,
    },
    /// The log, or what a recovery needs of it, was in zones that have failed.
    #[error(
        "the log was in zone {zone}, which is offline ({source}); `persimmon recover` rebuilds the \
         files on another device"
    )]
    LogLost {
        /// A zone that is offline and may have been of the log.
        zone: ZoneId,
        /// What is missing.
        source: Box<Error>,
    },
    /// There is a volume, and its log leads to no state of it.
    #[error(
        "a Persimmon volume (label \"{}\", UUID {}) whose log is damaged: `persimmon fsck --repair` or \
         `persimmon recover` may save it; do not run mkfs; the damage: {source}",
        shown(label), uuid::Uuid::from_bytes(*uuid)
    )]
    LogDamaged {
        /// Its label, from a zone header that is left.
        label: String,
        /// Its UUID, from there too.
        uuid: [u8; 16],
        /// What is missing.
        source: Box<Error>,
    },
    /// The volume takes no changes.
    #[error("the volume is read-only: {why}")]
    ReadOnly {
        /// Because of what.
        why: &'static str,
    },
    /// Something on the device is not what it must be.
    #[error("damage at {addr}: {source}")]
    Damaged {
        /// Where it was read.
        addr: Addr,
        /// What is wrong with it.
        source: FormatError,
    },
    /// Intact, and not for this program to read or to write: the volume is of a newer Persimmon, or of one
    /// of earlier days.
    #[error("at {addr}: {source}; nothing was changed")]
    Unsupported {
        /// Where it was read.
        addr: Addr,
        /// What this program does not know.
        source: FormatError,
    },
    /// The volume has features that this program would have to know to write to it.
    #[error(
        "the volume uses features {unknown:#x} that this program cannot write: mount it read-only \
         (-o ro), or use a newer persimmon"
    )]
    OnlyToRead {
        /// The unknown bits.
        unknown: u64,
    },
    /// A block of file data does not match its checksum.
    #[error("damage in inode {ino}: file block {block} at {addr} does not match its checksum")]
    DataDamaged {
        /// File.
        ino: Ino,
        /// Block in the file.
        block: u64,
        /// Where it was read.
        addr: Addr,
    },
    /// A piece of a file is in a zone that has failed.
    #[error("inode {ino}: file block {block} is lost, zone {} is offline", addr.zone())]
    DataLost {
        /// File.
        ino: Ino,
        /// Block in the file.
        block: u64,
        /// Where it was.
        addr: Addr,
    },
    /// An item of one inode is not what it must be, or contradicts another of that inode: its other items, and all other
    /// files, are as good as ever.
    #[error("damage in inode {ino}: {what}; run `persimmon fsck`")]
    ItemDamaged {
        /// The inode.
        ino: Ino,
        /// What is wrong with which item.
        what: String,
    },
    /// A state that only a bug can bring about.
    #[error(
        "a bug in Persimmon ({file}:{line}): {what}; nothing more is written; unmount, run `persimmon fsck`, and report \
         this line"
    )]
    Bug {
        /// Source file of the check that found it.
        file: &'static str,
        /// Its line.
        line: u32,
        /// What does not hold, with the values.
        what: String,
    },
    /// A change of what is in a read-only snapshot.
    #[error("a read-only snapshot cannot be changed; take a writable one of it")]
    ReadOnlySnapshot,
    /// A snapshot of a volume that was made by a Persimmon without them.
    #[error(
        "this volume has no snapshots: it was made by an earlier Persimmon; copy it to a new one"
    )]
    NoSnapshots,
    /// There is no snapshot with this name or number.
    #[error("there is no such snapshot; `persimmon snapshot list` shows those there are")]
    NoSuchSnapshot,
    /// Another snapshot has this name.
    #[error("there is a snapshot with this name already")]
    SnapshotExists,
    /// Not a name for a snapshot.
    #[error("a snapshot has a name of 1 to 255 bytes, without a slash, and neither `.` nor `..`")]
    SnapshotName,
    /// No more snapshots are possible.
    #[error("there are {0} snapshots, and there can be no more; delete some first")]
    TooManySnapshots(usize),
    /// Too many snapshots were taken of the one that is to be deleted for one record to have them all.
    #[error("{0} snapshots were taken of it; delete some of those first")]
    OriginOfTooMany(usize),
    /// Somebody takes as much as they may.
    #[error(
        "the quota of {} {} is exhausted; free space, or raise the limit with `persimmon quota set`", owner.kind, owner.id
    )]
    QuotaExceeded {
        /// Whose.
        owner: Owner,
    },
    /// What owners take is not counted.
    #[error("quota is off; turn it on with `persimmon quota on`")]
    QuotaOff,
    /// Structures that contradict each other.
    #[error("damage in the metadata: {0}; run `persimmon fsck`")]
    Inconsistent(String),
    /// No volume on the device, or none that was finished.
    #[error("{0}")]
    NoVolume(String),
    /// The device's shape cannot carry a volume.
    #[error("{0}")]
    Geometry(String),
    /// No volume can be made so, on whatever device.
    #[error(transparent)]
    Options(#[from] FormatOptionsError),
    /// The inode does not exist.
    #[error("inode {0} does not exist")]
    NotFound(Ino),
    /// A file offset past the largest.
    #[error("offset or size past the largest file, 8 EiB")]
    TooLarge,
    /// A range is to be taken out of a file that does not end before the file does, or put in at its end.
    #[error("the range does not lie before the end of the file")]
    NotBeforeEnd,
    /// A page that the operation needs is not in memory. Answered inside
    /// [`crate::Volume::view`] and [`crate::Volume::update`] only, which fetch it and run the
    /// closure again.
    #[error("metadata page {0} not in memory")]
    PageMissing(PageId),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl Error {
    pub(crate) fn damaged(addr: Addr) -> impl FnOnce(FormatError) -> Error {
        move |source| {
            if source.is_unsupported() {
                Error::Unsupported { addr, source }
            } else {
                Error::Damaged { addr, source }
            }
        }
    }

    /// Whether what was read is intact, and this program is the wrong one: whatever else there is, that is an
    /// error.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Error::Unsupported { .. } | Error::OnlyToRead { .. })
    }

    /// The same of a file as it was asked for: items tell its number without that of its subvolume.
    pub(crate) fn of(self, asked: Ino) -> Error {
        match self {
            Error::ItemDamaged { ino, what } if ino == asked.plain() => {
                Error::ItemDamaged { ino: asked, what }
            }
            error => error,
        }
    }

    pub(crate) fn item_damaged(ino: Ino, what: impl std::fmt::Display) -> Error {
        Error::ItemDamaged {
            ino,
            what: what.to_string(),
        }
    }

    pub(crate) fn no_such_page(id: PageId) -> Error {
        Error::Inconsistent(format!("metadata page {id} does not exist"))
    }

    /// Whether it may go better later: room was missing, on the volume or on the host, and nothing
    /// else is wrong.
    pub(crate) fn passes(&self) -> bool {
        matches!(
            self,
            Error::NoSpace
                | Error::ResetsFail { .. }
                | Error::WornOut { .. }
                | Error::Device(DeviceError::HostFull)
        )
    }

    /// Whether no zone was found, though none is known to have failed for good: there may be one after cleaning, or after
    /// the next checkpoint.
    pub(crate) fn is_want_of_zones(&self) -> bool {
        matches!(self, Error::NoSpace | Error::ResetsFail { .. })
    }
}
