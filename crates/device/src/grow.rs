//! Devices, and the images in them, that get more zones, and what they say of these at their ends. Nothing here is of the volume: it
//! goes without the new zones until it is told.

use std::path::Path;

use crate::drive::{Drive, Kind};
use crate::lock::open_error;
use crate::options::OpenOptions;
use crate::pair::{self, Pair};
use crate::{Geometry, ImageDevice, Result, ZonedDevice, striped};

/// Bytes that images become, as far as they are whole zones; `None`: those that their files or devices have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// The image, or that for data.
    pub data: Option<u64>,
    /// That for metadata, of a volume on two devices.
    pub metadata: Option<u64>,
}

impl Sizes {
    /// Refuses sizes of what is no image.
    fn check(self, path: &Path) -> Result<()> {
        let parts = parts(path)?;
        let is_image = |path: &Path| Ok(Kind::of(path)? == Kind::Image);
        if self.metadata.is_some() && parts.metadata.is_none() {
            return Err(open_error(
                path,
                "has no device for metadata that could be given a size",
            ));
        }
        let sized = [
            (self.data, Some(&parts.data)),
            (self.metadata, parts.metadata.as_ref()),
        ];
        for (size, part) in sized {
            if let (Some(_), Some(part)) = (size, part)
                && !is_image(part)?
            {
                return Err(open_error(
                    part,
                    "only an image can be given a size; a drive has the zones it has",
                ));
            }
        }
        Ok(())
    }
}

/// The devices that a name names.
struct Parts {
    data: std::path::PathBuf,
    metadata: Option<std::path::PathBuf>,
}

fn parts(path: &Path) -> Result<Parts> {
    if !pair::is_uri(path) {
        return Ok(Parts {
            data: path.to_owned(),
            metadata: None,
        });
    }
    let (metadata, data) = pair::names_or_error(path)?;
    Ok(Parts {
        data,
        metadata: Some(metadata),
    })
}

/// Zones that a device by itself has when it has grown.
fn zones_grown(path: &Path, size: Option<u64>, options: &OpenOptions) -> Result<u32> {
    if Kind::of(path)? == Kind::Image {
        return Ok(ImageDevice::growth(path, size, options)?.zones);
    }
    Ok(Drive::open_part(path, options)?.geometry().zone_count)
}

impl Drive {
    /// What the device at `path` will be when it has grown: it has no fewer zones than now. Nothing is changed.
    ///
    /// # Errors
    /// As of [`Drive::open`] and [`ImageDevice::growth`]; a size for what is no image.
    pub fn grown(path: &Path, sizes: Sizes, options: &OpenOptions) -> Result<Geometry> {
        let options = &OpenOptions {
            read_only: true,
            ..options.clone()
        };
        sizes.check(path)?;
        let parts = parts(path)?;
        let data_zones = zones_grown(&parts.data, sizes.data, options)?;
        let Some(metadata) = &parts.metadata else {
            let drive = Drive::open_part(path, options)?;
            return Ok(match striped::grown(&drive, data_zones)? {
                Some(geometry) => geometry,
                None => Geometry {
                    zone_count: data_zones,
                    ..drive.geometry().clone()
                },
            });
        };
        let metadata_zones = zones_grown(metadata, sizes.metadata, options)?;
        let drives = (
            Drive::open_part(metadata, options)?,
            Drive::open_part(&parts.data, options)?,
        );
        pair::grown((&drives.0, &drives.1), (metadata_zones, data_zones))
    }

    /// Has it grown, as [`Drive::grown`] tells: images become larger, and labels move to the ends. `overwrite`: whatever is in the new
    /// zones of a drive with a label.
    ///
    /// # Errors
    /// As of that; new zones hold something; a device fails. Then it is what it was, or has grown in part, and it may be tried again.
    pub fn grow(path: &Path, sizes: Sizes, overwrite: bool, options: &OpenOptions) -> Result<()> {
        sizes.check(path)?;
        let parts = parts(path)?;
        let images = [
            (Some(&parts.data), sizes.data),
            (parts.metadata.as_ref(), sizes.metadata),
        ];
        for (path, size) in images {
            if let Some(path) = path
                && Kind::of(path)? == Kind::Image
            {
                ImageDevice::grow(path, size, options)?;
            }
        }
        match &parts.metadata {
            None => striped::grow(&Drive::open_part(path, options)?, overwrite),
            Some(metadata) => {
                let metadata = Drive::open_part(metadata, options)?;
                let data = Drive::open_part(&parts.data, options)?;
                Pair::grow((&metadata, &data), overwrite)
            }
        }
    }
}
