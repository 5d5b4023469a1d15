//! Linux zoned block devices: ZNS namespaces, host-managed SMR disks, null_blk, device-mapper on top
//! of them.
//!
//! Reads, writes and flushes go through io_uring past the page cache. Reports and zone management
//! are ioctls.
//!
//! In each zone there is one write under way. Older kernels and some schedulers would let a second
//! one overtake it; those with zone write plugging (Linux 6.10) would hold it back themselves. No
//! write is larger than the block layer sends as one request, for its parts might overtake each
//! other too.
//!
//! Opening for writing closes zones that are open, so that their places are free again, and pads a
//! block of which only some sectors are written: of a drive with a volume, or with nothing on it. A zone with which that
//! fails is finished, or else counts as read-only. Zone 0 is the first sequential one: conventional
//! zones at the start of the device hold an image, to which [`crate::Drive`] joins the rest
//! ([`crate::Joined`]). A last zone that is shorter is left alone.

pub(crate) mod kernel;
mod open;

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

pub use crate::linux::limits::{Limits, directory, is_zoned, list};
pub use open::identity;

use crate::image::HostFile;
use crate::linux::failure::Failure;
use crate::linux::files::{FileWire, Spot};
use crate::linux::front::Front;
use crate::linux::{Action, KernelDevice, Port};
use crate::lock::{Opened, explain};
use crate::{BLOCK_SIZE, BufferMut, Result, ZoneId, ZoneInfo, ZonedDevice};

/// A zoned block device of Linux.
pub type ZbdDevice = KernelDevice<Zbd>;

/// The way to a zoned block device.
pub struct Zbd {
    file: Arc<File>,
    /// The number, on the drive, of what is zone 0 here.
    first_zone: u32,
    zone_blocks: u32,
}

impl ZbdDevice {
    /// Conventional zones at its start.
    #[must_use]
    pub fn conventional_zones(&self) -> u32 {
        self.port().first_zone
    }

    /// The same as a place for an image; `None` if there are none.
    ///
    /// Errors: the drive cannot be opened once more.
    pub(crate) fn front(&self) -> Result<Option<Front>> {
        let zone_blocks = self.geometry().zone_blocks;
        let zone_bytes = u64::from(zone_blocks) * BLOCK_SIZE as u64;
        let bytes = zone_bytes * u64::from(self.conventional_zones());
        if bytes == 0 {
            return Ok(None);
        }
        let read_only = self.shared().read_only;
        // Through the page cache, for records of zones are smaller than the drive's blocks. It is
        // locked already.
        let mut options = fs::OpenOptions::new();
        let file = options.read(true).write(!read_only).open(self.path());
        let host = Box::new(HostFile::new(Opened {
            file: file.map_err(|error| explain(self.path(), &error))?,
            is_block_device: true,
            locked_by: None,
        }));
        Ok(Some(Front::new(
            self.path(),
            host,
            bytes,
            zone_blocks,
            read_only,
        )))
    }
}

impl Zbd {
    fn sector(&self, zone: ZoneId) -> u64 {
        kernel::zone_sector(zone, self.zone_blocks, self.first_zone)
    }

    fn spot(&self, zone: ZoneId, block: u32) -> Spot {
        Spot {
            file: Arc::clone(&self.file),
            offset: self.sector(zone) * kernel::SECTOR_BYTES + u64::from(block) * BLOCK_SIZE as u64,
        }
    }
}

impl Port for Zbd {
    type Wire = FileWire;
    /// The device is open for writing as long as it is used.
    type Hold = ();

    const NAME: &'static str = "zbd";
    const APPENDS: bool = false;

    fn reading(&self, zone: ZoneId, block: u32) -> Result<Spot, Failure> {
        Ok(self.spot(zone, block))
    }

    fn writing(&self, zone: ZoneId, block: u32, _: &()) -> Spot {
        self.spot(zone, block)
    }

    fn flushing(&self) -> Result<Spot, Failure> {
        Ok(self.spot(ZoneId(0), 0))
    }

    fn hold(&self, _: ZoneId, _: &mut dyn FnMut() -> Result<()>) -> Result<Result<(), Failure>> {
        Ok(Ok(()))
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>, Failure> {
        let sector = self.sector(ZoneId(zones.start));
        let found = kernel::report(&self.file, sector, zones.end.saturating_sub(zones.start))?;
        Ok(found.iter().map(kernel::Zone::info).collect())
    }

    fn manage(&self, zone: ZoneId, action: Action) -> Result<(), Failure> {
        let sectors = u64::from(self.zone_blocks) * kernel::BLOCK_SECTORS;
        Ok(kernel::manage(
            &self.file,
            action,
            self.sector(zone),
            sectors,
        )?)
    }

    fn pad(&self, zone: ZoneId) -> Result<(), Failure> {
        let found = kernel::report(&self.file, self.sector(zone), 1)?;
        if let Some(zone) = found.first().filter(|zone| zone.torn_sectors() > 0) {
            let missing = (kernel::BLOCK_SECTORS - zone.torn_sectors()) * kernel::SECTOR_BYTES;
            let zeros = BufferMut::zeroed(1);
            let zeros = zeros.get(..missing as usize).unwrap_or_default();
            let place = zone.write_pointer * kernel::SECTOR_BYTES;
            self.file.write_all_at(zeros, place)?;
        }
        Ok(())
    }
}
