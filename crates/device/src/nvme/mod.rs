//! NVMe drives with zoned namespaces, past the block layer: `/dev/ng0n1`, the generic character device
//! of a namespace.
//!
//! Commands go to the drive as they are, through io_uring: reads, writes, flushes, and zone appends, of
//! which any number may be under way in a zone. Zone management and reports are commands that the
//! calling thread waits for. What a drive answers comes back as its status code.
//!
//! The block device of the namespace is held meanwhile, so that nobody mounts or writes to it.
//!
//! Opening for writing, of a drive with a volume or with nothing on it, closes zones that are open, and pads a block of
//! which only some logical blocks are written. A zone with which that fails is finished, or else counts as read-only.

mod identify;
mod open;
mod passthrough;
mod zones;

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

pub use crate::linux::appends::Depth;
pub use open::{block_device, generic_of, identity, is_generic};

use passthrough::NvmeWire;
use zones::Namespace;

use crate::linux::failure::Failure;
use crate::linux::{Action, KernelDevice, Port};
use crate::{Result, ZoneId, ZoneInfo};

/// A zoned namespace of an NVMe drive.
pub type NvmeDevice = KernelDevice<Nvme>;

/// The way to a namespace.
pub struct Nvme {
    file: Arc<File>,
    namespace: Namespace,
    /// The block device, or whatever else holds the lock.
    _held: File,
}

impl NvmeDevice {
    /// How many appends were under way at the same time, by zone.
    #[must_use]
    pub fn append_depth(&self) -> Depth {
        self.shared().append_depth()
    }
}

impl Port for Nvme {
    type Wire = NvmeWire;
    /// The device is open for writing as long as it is used.
    type Hold = ();

    const NAME: &'static str = "nvme";
    const APPENDS: bool = true;

    fn reading(&self, zone: ZoneId, block: u32) -> Result<u64, Failure> {
        Ok(self.namespace.lba(zone, block))
    }

    fn writing(&self, zone: ZoneId, block: u32, _: &()) -> u64 {
        self.namespace.lba(zone, block)
    }

    fn flushing(&self) -> Result<u64, Failure> {
        Ok(0)
    }

    fn landed(&self, zone: ZoneId, answer: u64) -> u32 {
        self.namespace.block(zone, answer)
    }

    fn hold(&self, _: ZoneId, _: &mut dyn FnMut() -> Result<()>) -> Result<Result<(), Failure>> {
        Ok(Ok(()))
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>, Failure> {
        let found = self.namespace.report(&self.file, zones)?;
        Ok(found.iter().map(|zone| self.namespace.info(zone)).collect())
    }

    fn manage(&self, zone: ZoneId, action: Action) -> Result<(), Failure> {
        self.namespace.manage(&self.file, zone, action)
    }

    fn pad(&self, zone: ZoneId) -> Result<(), Failure> {
        self.namespace.pad(&self.file, zone)
    }
}
