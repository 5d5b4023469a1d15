//! An image without a file: in anonymous memory, gone with the process.

use std::fs::File;
use std::path::Path;

use persimmon_format::container::ContainerGeometry;
use rustix::fs::MemfdFlags;

use super::ImageDevice;
use super::host::HostFile;
use crate::Result;
use crate::lock::{Opened, explain, open_error};
use crate::options::CreateOptions;

/// What such an image is called in messages.
const NAME: &str = "(memory)";

impl ImageDevice {
    /// Makes an image in memory that only this process can reach. Pages are taken as they are written, and given back by
    /// resets.
    ///
    /// Errors: [`crate::DeviceError::Open`] for a geometry that cannot be, or where the system has no such memory.
    pub fn in_memory(geometry: &ContainerGeometry, options: &CreateOptions) -> Result<ImageDevice> {
        let path = Path::new(NAME);
        let layout = geometry
            .layout()
            .map_err(|error| open_error(path, &error.to_string()))?;
        let file = rustix::fs::memfd_create("persimmon", MemfdFlags::CLOEXEC)
            .map(File::from)
            .map_err(|errno| explain(path, &errno.into()))?;
        file.set_len(layout.total)
            .map_err(|error| explain(path, &error))?;
        let host = HostFile::new(Opened {
            file,
            is_block_device: false,
            locked_by: None,
        });
        ImageDevice::create_on(path, Box::new(host), layout.total, geometry, options)
    }
}
