//! What the command `persimmon` is made of beside the library: mkfs, mount, fsck, recover and what they tell of zones. For no other
//! program: what is here changes with any version. A list of names, so that what the command uses of the layers below is seen in one place;
//! `cargo xtask tidy` holds the command to it.

/// The devices, each kind by itself.
pub mod device {
    pub use persimmon_device::image::{self, ImageDevice};
    pub use persimmon_device::{BLOCK_SIZE, DeviceError, Geometry, Stripes, ZonedDevice};
    pub use persimmon_device::{CreateOptions, Drive, Hold, Locks, OpenOptions};
    pub use persimmon_device::{drive, label, nvme, pair, zbd, zonefs};
}

/// The volume.
pub mod engine {
    pub use persimmon_engine::with_statistics;
    pub use persimmon_engine::{
        CleanState, CleanStep, CleaningOptions, Progress, Quotas, Task, Volume,
    };
    pub use persimmon_engine::{
        Damage, HeldSpace, ScrubCursor, ScrubFinding, ScrubStage, ScrubStep,
    };
    pub use persimmon_engine::{Error, FormatOptions, Options, RecoveryReport};
    pub use persimmon_engine::{Freezing, Statistics, ZoneCapacities, ZoneFailure, ZoneStatus};
    pub use persimmon_engine::{Threshold, TuneError, Unit, check_geometry};
    pub use persimmon_engine::{Traced, VictimReason, ZoneEvent};
}

/// What is on the device.
pub mod format {
    pub use persimmon_format::container::ZONE_COUNT_MAX;
    pub use persimmon_format::version::is_snapshot_name;
    pub use persimmon_format::{Addr, Ino, checksum, inode, shown, table, zone_header};
}

/// The shape of an image that is to be made.
pub mod shape {
    pub use crate::shape::{Available, TooManyZones, available};
    pub use crate::shape::{check_not_too_many, check_zone_bytes, whole_blocks};
}

pub use crate::volume::Opened;
