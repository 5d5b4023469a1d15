//! How to open and to make a device, whatever its kind.

use std::sync::Arc;
use std::time::Duration;

use crate::{Locks, Stripes};

/// Long enough for a process that is ending, or a child between fork and exec.
const WAIT_FOR_LOCK_DEFAULT: Duration = Duration::from_secs(2);

/// How to open a device.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Write nothing; any number of processes may have it open so.
    pub read_only: bool,
    /// How long to wait for another process to let go. Zero: not at all.
    pub wait_for_lock: Duration,
    /// Of a zoned drive: make it ready for writing, which closes zones and pads torn blocks, also where something else
    /// than a volume is on it. For tests of drives; without it what is somebody else's stays as it is.
    pub whatever_it_holds: bool,
    /// An image or a zoned block device is locked already, by a [`crate::Hold`] of the caller that outlives the
    /// device, and a mount keeps others off: a block device is not opened exclusively.
    pub held: bool,
    /// Where its locks are kept for a process that comes after this one, or were by one before.
    pub locks: Option<Arc<Locks>>,
    /// Of an image: look for it everywhere where it is not found, and take no write pointer for granted. Zones
    /// with something beyond it count as full.
    pub search: bool,
}

impl Default for OpenOptions {
    /// For writing, waiting as long as it takes a process that is ending to let go.
    fn default() -> OpenOptions {
        OpenOptions {
            read_only: false,
            wait_for_lock: WAIT_FOR_LOCK_DEFAULT,
            whatever_it_holds: false,
            held: false,
            locks: None,
            search: false,
        }
    }
}

/// How to make a device.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Overwrite whatever is there. Never a mounted device, nor one in use.
    pub force: bool,
    /// UUID of the volume that will be inside, for probing an image.
    pub uuid: uuid::Uuid,
    /// Label of the volume that will be inside, for probing an image.
    pub label: String,
    /// How long to wait for another process to let go.
    pub wait_for_lock: Duration,
    /// Use its zones in stripe sets.
    pub stripes: Option<Stripes>,
}

impl Default for CreateOptions {
    fn default() -> CreateOptions {
        CreateOptions {
            force: false,
            uuid: uuid::Uuid::nil(),
            label: String::new(),
            wait_for_lock: WAIT_FOR_LOCK_DEFAULT,
            stripes: None,
        }
    }
}
