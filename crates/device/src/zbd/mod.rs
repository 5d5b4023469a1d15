//! Linux zoned block devices: ZNS namespaces, host-managed SMR disks, null_blk, device-mapper on top
//! of them.
//!
//! Reads, writes and flushes go through io_uring past the page cache. One thread collects what has
//! completed, and sends what waited for it. Reports and zone management are ioctls, which the
//! calling thread waits for; reads do not wait for them.
//!
//! In each zone there is one write under way. Older kernels and some schedulers would let a second
//! one overtake it; those with zone write plugging (Linux 6.10) would hold it back themselves. What
//! waits meanwhile and follows on is sent as one write. No write is larger than the block layer
//! sends as one request, for its parts might overtake each other too.
//!
//! The zone machine says what the drive would refuse, so the drive is not asked for it: it counts
//! open and active zones as drives do. Which zone the drive closes for another it does not know,
//! nor need to. After an error, and in every report, the drive itself is asked what became of the
//! zone.
//!
//! Opening for writing closes zones that are open, so that their places are free again, and pads a
//! block of which only some sectors are written. Conventional zones at the start of the device
//! are left alone: zone 0 is the first sequential one. So is a last zone that is shorter.

mod error;
mod kernel;
mod limits;
mod manage;
mod open;
mod queue;
mod ring;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

pub use limits::{Limits, directory, is_zoned, list};
pub use open::identity;

use kernel::Action;
use queue::Shared;

use crate::{Command, Completion, Geometry, Pending, Result, ZoneInfo, ZonedDevice};

/// A zoned block device of Linux.
pub struct ZbdDevice {
    path: PathBuf,
    shared: Arc<Shared>,
    collector: Option<JoinHandle<()>>,
}

impl ZbdDevice {
    /// The device node.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Conventional zones at its start, which are not used.
    #[must_use]
    pub fn unused_zones(&self) -> u32 {
        self.shared.first_zone
    }
}

impl ZonedDevice for ZbdDevice {
    fn geometry(&self) -> &Geometry {
        &self.shared.geometry
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        self.shared.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        let shared = &self.shared;
        let manage = |zone, action| {
            let done = shared.manage(zone, action);
            Ok(Pending::ready(done.map(|()| Completion::Done)))
        };
        let started = match command {
            Command::Read {
                zone,
                block,
                blocks,
            } => shared.read(zone, block, blocks),
            Command::Write { zone, block, data } => shared.write(zone, Some(block), data),
            Command::Append { zone, data } => shared.write(zone, None, data),
            Command::Reset { zone, .. } => manage(zone, Action::Reset),
            Command::Finish { zone } => manage(zone, Action::Finish),
            Command::Open { zone } => manage(zone, Action::Open),
            Command::Close { zone } => manage(zone, Action::Close),
            Command::Flush => Ok(shared.flush()),
        };
        started.unwrap_or_else(|error| Pending::ready(Err(error)))
    }
}

impl Drop for ZbdDevice {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(collector) = self.collector.take() {
            let _ = collector.join();
        }
    }
}

impl std::fmt::Debug for ZbdDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZbdDevice")
            .field("path", &self.path)
            .field("geometry", &self.shared.geometry)
            .finish_non_exhaustive()
    }
}
