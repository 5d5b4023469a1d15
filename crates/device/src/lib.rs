//! Zoned devices: one trait, one way to a device, one conformance suite.
//!
//! Everything above talks to a device through [`ZonedDevice`] alone (invariant I6). The words are
//! those of the NVMe Zoned Namespace Command Set: zone, write pointer, capacity, open and active
//! limits, append, reset, finish.

pub mod buffer;
pub mod command;
pub mod conformance;
pub mod drive;
pub mod error;
pub mod faults;
pub mod first_zones;
pub mod geometry;
pub mod grow;
pub mod image;
pub mod joined;
pub mod label;
mod linux;
mod lock;
mod mapped;
pub mod nvme;
pub mod options;
pub mod pair;
pub mod per_zone;
pub mod probe;
pub mod striped;
mod traces;
pub mod withheld;
pub mod zbd;
pub mod zonefs;
pub mod zones;

pub use buffer::{Block, Buffer, BufferMut};
pub use command::{Command, Completer, Completion, Pending};
pub use drive::Drive;
pub use error::{DeviceError, Result};
pub use first_zones::FirstZones;
pub use geometry::{Geometry, MetadataZones, Stripes, ZoneInfo, ZoneKind, ZoneState};
pub use grow::Sizes;
pub use image::ImageDevice;
pub use joined::Joined;
pub use lock::{Hold, Locks};
pub use mapped::MappedFile;
pub use nvme::NvmeDevice;
pub use options::{CreateOptions, OpenOptions};
pub use pair::{Pair, PairError};
pub use persimmon_format::{BLOCK_SIZE, ZoneId};
pub use striped::Striped;
pub use withheld::Withheld;
pub use zbd::ZbdDevice;
pub use zonefs::ZonefsDevice;

use std::ops::Range;

/// Which device of this machine a device is: the same as long as the machine runs, and different for a copy of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceIdentity {
    /// Number of a block or character device, or of the device that an image file or a zonefs lies on.
    pub device: u64,
    /// Inode number of an image file; 0 for a device.
    pub inode: u64,
    /// The user whose the device node or the image file is.
    pub owner: u32,
}

impl DeviceIdentity {
    /// What is at a path.
    pub(crate) fn of(path: &std::path::Path) -> Option<DeviceIdentity> {
        use std::os::unix::fs::MetadataExt;
        if let Some(file) = zonefs::first_file(path) {
            // The files of a zonefs are on the drive below it, and whoever they belong to can write to the volume.
            let found = std::fs::metadata(file).ok()?;
            return Some(DeviceIdentity {
                device: found.dev(),
                inode: 0,
                owner: found.uid(),
            });
        }
        let found = std::fs::metadata(path).ok()?;
        // The generic node of a namespace and its block device are one device.
        let block = if nvme::is_generic(path).ok()? {
            nvme::block_device(path)
        } else {
            None
        };
        let (device, inode) = match block {
            Some(block) => (std::fs::metadata(block).ok()?.rdev(), 0),
            None if found.is_file() => (found.dev(), found.ino()),
            None => (found.rdev(), 0),
        };
        Some(DeviceIdentity {
            device,
            inode,
            owner: found.uid(),
        })
    }
}

/// A device of zones. Implementations are shared between threads.
///
/// Order: commands run in any order, except that [`Command::Write`]s to one zone take effect in
/// the order of submission (a back end that may have only one write in flight per zone queues
/// them). Completion does not mean durability when [`Geometry::volatile_cache`] is set: then a
/// [`Command::Flush`] makes durable everything that had *completed* before it was submitted, and a
/// [`Command::Record`] has it outlive the process.
pub trait ZonedDevice: Send + Sync {
    /// Sizes and limits. Constant while the device is open.
    fn geometry(&self) -> &Geometry;

    /// State, capacity and write pointer of each zone in `zones`, which must all exist.
    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>>;

    /// Starts a command; errors come with the completion. A back end with queues never waits for
    /// the medium longer than queue room takes, or, for what is done to a zone, what was sent to that zone
    /// before; one without (the image) runs the command here, and so may any back end run opens and closes.
    fn submit(&self, command: Command) -> Pending;

    /// Resets that are worth having under way at the same time: more would only wait for these. One
    /// where they run in [`ZonedDevice::submit`].
    fn resets_at_once(&self) -> usize {
        1
    }

    /// Whether the space of zones is a host's, which sets it aside for each: a zone that was reset can keep
    /// it, and is written again at less cost than one that gave it back. What wears out is not the zones then.
    fn space_is_hosts(&self) -> bool {
        false
    }

    /// Which device of this machine it is; `None` for one that is only in memory.
    fn identity(&self) -> Option<DeviceIdentity> {
        None
    }

    /// Runs a command to its end.
    fn run(&self, command: Command) -> Result<Completion> {
        self.submit(command).wait()
    }

    /// Reads `blocks` blocks at `block` of `zone`.
    fn read(&self, zone: ZoneId, block: u32, blocks: u32) -> Result<Buffer> {
        match self.run(Command::Read {
            zone,
            block,
            blocks,
        })? {
            Completion::Read(buffer) => Ok(buffer),
            other => Err(DeviceError::Protocol {
                expected: "read",
                got: other.name(),
            }),
        }
    }

    /// Reads the whole blocks at `block` of `zone` that `into` has room for to where they are wanted, without memory in between. Nothing where
    /// a device reads into memory of its own: then [`Command::Read`] is the way, of which several can be under way. `beside_others`: more is
    /// to be read than this, which a device that serves several reads at a time does sooner that way.
    fn read_into(
        &self,
        _zone: ZoneId,
        _block: u32,
        _into: &mut [u8],
        _beside_others: bool,
    ) -> Option<Result<()>> {
        None
    }

    /// Reads blocks as if what one of the zones below has of them were wrong: number `attempt` of those that it can be. For who
    /// cannot believe what [`Command::Read`] gave. Nothing where there is no further way to have them.
    fn read_without(
        &self,
        _zone: ZoneId,
        _block: u32,
        _blocks: u32,
        _attempt: u32,
    ) -> Option<Result<Buffer>> {
        None
    }

    /// Whether blocks could be read in spite of any one zone below that is lost: their rows are what they have to be. True where
    /// nothing is said of that.
    ///
    /// # Errors
    /// One of the zones cannot be read there.
    fn rows_agree(&self, _zone: ZoneId, _block: u32, _blocks: u32) -> Result<bool> {
        Ok(true)
    }

    /// Makes everything that has completed durable. Free on a device without a volatile cache.
    fn flush(&self) -> Result<()> {
        if self.geometry().volatile_cache {
            self.run(Command::Flush)?;
        }
        Ok(())
    }
}
