//! The conventional zones of a drive. They hold an image, whose zones have the size of the drive's and
//! come before its own; the image's tables take the place of one.

use std::path::{Path, PathBuf};

use crate::image::{self, Host, ImageDevice, ImageGeometry};
use crate::lock::explain;
use crate::options::CreateOptions;
use crate::{BLOCK_SIZE, Result};

/// Others' superblocks in conventional zones are within so many bytes.
const FOREIGN_BYTES: u64 = 1 << 20;

/// Where conventional zones can be written to, in any order.
pub struct Front {
    path: PathBuf,
    host: Box<dyn Host>,
    bytes: u64,
    zone_blocks: u32,
    read_only: bool,
}

impl Front {
    /// So many bytes of `host`, of the drive at `path`.
    pub(crate) fn new(
        path: &Path,
        host: Box<dyn Host>,
        bytes: u64,
        zone_blocks: u32,
        read_only: bool,
    ) -> Front {
        Front {
            path: path.to_owned(),
            host,
            bytes,
            zone_blocks,
            read_only,
        }
    }

    /// Opens the image in them; `None` if there is none, as on volumes that were made without it.
    ///
    /// Errors: as of [`ImageDevice::open`].
    pub fn open(self) -> Result<Option<ImageDevice>> {
        ImageDevice::open_on(&self.path, self.host, self.bytes, self.read_only)
    }

    /// Makes an image in them, if they are enough for one.
    ///
    /// Errors: as of [`ImageDevice::create`].
    pub fn create(self, options: &CreateOptions) -> Result<Option<ImageDevice>> {
        let geometry = self.geometry();
        if geometry.zone_count == 0 {
            self.clear()?;
            return Ok(None);
        }
        let (path, host, bytes) = (&self.path, self.host, self.bytes);
        ImageDevice::create_on(path, host, bytes, &geometry, options).map(Some)
    }

    /// Erases superblocks of what was there before. It is not this volume's, and must not be taken for a part of it.
    ///
    /// Errors: the zones cannot be read or written.
    pub fn clear(&self) -> Result<()> {
        image::erase(&*self.host, self.bytes, FOREIGN_BYTES)
            .map_err(|error| explain(&self.path, &error))
    }

    /// Zones of the image that [`Front::create`] makes.
    pub fn zone_count(&self) -> u32 {
        self.geometry().zone_count
    }

    fn geometry(&self) -> ImageGeometry {
        let blocks = self.zone_blocks;
        let whole = u64::from(blocks) * BLOCK_SIZE as u64;
        let zone_count = if self.bytes >= whole {
            ImageDevice::zones_fitting(self.bytes, blocks, blocks)
        } else {
            0
        };
        ImageGeometry {
            zone_count,
            zone_blocks: blocks,
            capacity_blocks: blocks,
            max_open: None,
            max_active: None,
        }
    }
}
