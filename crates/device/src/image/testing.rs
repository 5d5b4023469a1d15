//! An image over a host that a test brings along: one that loses power, say. Only with the feature `testing`.

use std::path::Path;

pub use super::host::Host;
use super::{CreateOptions, ImageDevice, ImageGeometry};
use crate::Result;

/// Makes an image in the `length` bytes of a host, and opens it.
///
/// Errors: as of [`ImageDevice::create`].
pub fn create(
    host: Box<dyn Host>,
    length: u64,
    geometry: &ImageGeometry,
    options: &CreateOptions,
) -> Result<ImageDevice> {
    ImageDevice::create_on(
        Path::new("a host of a test"),
        host,
        length,
        geometry,
        options,
    )
}

/// Opens the image in the `length` bytes of a host. `None`: there is none.
///
/// Errors: as of [`ImageDevice::open`].
pub fn open(host: Box<dyn Host>, length: u64, read_only: bool) -> Result<Option<ImageDevice>> {
    ImageDevice::open_on(Path::new("a host of a test"), host, length, read_only)
}
