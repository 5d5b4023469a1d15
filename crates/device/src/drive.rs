//! A device of whatever kind its path names.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::image::{ImageDevice, ImageGeometry, Notice};
use crate::lock::explain;
use crate::options::{CreateOptions, OpenOptions};
use crate::probe::{self, Identity};
use crate::zbd::{self, ZbdDevice};
use crate::{Command, Geometry, Pending, Result, ZoneInfo, ZonedDevice};

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file or an ordinary block device: an image.
    Image,
    /// A zoned block device.
    Zbd,
}

/// A device of one of the kinds.
#[derive(Debug)]
pub enum Drive {
    /// An image.
    Image(Box<ImageDevice>),
    /// A zoned block device.
    Zbd(ZbdDevice),
}

impl Kind {
    /// What there is at `path`. What does not exist yet will be an image file.
    ///
    /// Errors: it cannot be looked at.
    pub fn of(path: &Path) -> Result<Kind> {
        match zbd::is_zoned(path) {
            Ok(true) => Ok(Kind::Zbd),
            Ok(false) => Ok(Kind::Image),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Kind::Image),
            Err(error) => Err(explain(path, &error)),
        }
    }
}

/// UUID and label of the volume at `path`, without opening or locking it: for finding a volume by
/// either. `None`: there is none.
///
/// Errors: it cannot be read.
pub fn identity(path: &Path) -> io::Result<Option<Identity>> {
    match zbd::is_zoned(path)? {
        true => zbd::identity(path),
        false => probe::identity(&File::open(path)?),
    }
}

impl Drive {
    /// Opens the device at `path`.
    ///
    /// Errors: as of [`ImageDevice::open`] and [`ZbdDevice::open`].
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Drive> {
        let path = path.as_ref();
        Ok(match Kind::of(path)? {
            Kind::Image => Drive::Image(Box::new(ImageDevice::open(path, options)?)),
            Kind::Zbd => Drive::Zbd(ZbdDevice::open(path, options)?),
        })
    }

    /// Makes an image of this shape at `path`, or empties the zoned device there, whose shape is
    /// its own.
    ///
    /// Errors: as of [`ImageDevice::create`] and [`ZbdDevice::create`].
    pub fn create(
        path: impl AsRef<Path>,
        geometry: &ImageGeometry,
        options: &CreateOptions,
    ) -> Result<Drive> {
        let path = path.as_ref();
        Ok(match Kind::of(path)? {
            Kind::Image => Drive::Image(Box::new(ImageDevice::create(path, geometry, options)?)),
            Kind::Zbd => Drive::Zbd(ZbdDevice::create(path, options)?),
        })
    }

    /// Its file or device node.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Drive::Image(device) => device.path(),
            Drive::Zbd(device) => device.path(),
        }
    }

    /// What opening found damaged and could live with.
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        match self {
            Drive::Image(device) => device.notices(),
            Drive::Zbd(_) => &[],
        }
    }

    fn device(&self) -> &dyn ZonedDevice {
        match self {
            Drive::Image(device) => &**device,
            Drive::Zbd(device) => device,
        }
    }
}

impl ZonedDevice for Drive {
    fn geometry(&self) -> &Geometry {
        self.device().geometry()
    }

    fn report(&self, zones: std::ops::Range<u32>) -> Result<Vec<ZoneInfo>> {
        self.device().report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        self.device().submit(command)
    }
}
