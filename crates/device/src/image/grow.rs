//! Making an image larger by whole zones.
//!
//! All zones that are there stay where they are. The first table gets longer into the room in front of the first zone; where that
//! is too short, it moves behind the second one, which moves behind the new zones with the last copy of the superblock.
//! Both tables are complete in their new places before the first copy of the superblock, which decides, says that
//! they are there. So an interrupted growth leaves the image as it was, or grown.

use std::io;
use std::path::Path;

use persimmon_format::container::{
    COPIES, ContainerError, ContainerGeometry, Layout, Superblock, ZONE_COUNT_MAX,
};

use super::ImageDevice;
use super::create::zero;
use super::host::{Host, HostFile, is_full};
use super::open::{How, foreign, length_of};
use super::table::{TABLE_CHUNK_BYTES, Table};
use crate::lock::{explain, open_error, open_locked};
use crate::options::OpenOptions;
use crate::{DeviceError, Result};

/// What an image can become in so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Zones that it has.
    pub zones_before: u32,
    /// Zones that it would have, no fewer.
    pub zones: u32,
    /// Bytes that it would take.
    pub bytes: u64,
}

impl ImageDevice {
    /// How large the image at `path` would be in `size` bytes; `None`: in those that its file or device has. Nothing is
    /// changed.
    ///
    /// Errors: as of [`ImageDevice::open`]; and [`DeviceError::Open`] if it has more zones than that, or if these are
    /// more than an image, or this one, can have.
    pub fn growth(path: &Path, size: Option<u64>, options: &OpenOptions) -> Result<Growth> {
        let options = OpenOptions {
            read_only: true,
            ..options.clone()
        };
        let (device, length, is_block_device) = open_with_length(path, &options)?;
        device.growth_in(size, length, is_block_device)
    }

    /// Gives the image at `path` the zones that [`ImageDevice::growth`] tells.
    ///
    /// Errors: as of that; [`DeviceError::HostFull`].
    pub fn grow(path: &Path, size: Option<u64>, options: &OpenOptions) -> Result<Growth> {
        let (device, length, is_block_device) = open_with_length(path, options)?;
        let growth = device.growth_in(size, length, is_block_device)?;
        if growth.zones > growth.zones_before {
            drop(device.grown(growth.zones)?);
        }
        Ok(growth)
    }

    fn growth_in(&self, size: Option<u64>, length: u64, is_block_device: bool) -> Result<Growth> {
        let bytes = size.unwrap_or(length);
        let refuse = |message: String| Err(open_error(&self.path, &message));
        if is_block_device && bytes > length {
            return refuse(format!("has {length} bytes, not {bytes}"));
        }
        let superblock = self.superblock.lock().clone();
        let zones_before = superblock.geometry.zone_count;
        let stride = self.layout.zone_stride;
        if bytes < self.layout.total {
            return refuse(format!(
                "the image has {} bytes and cannot be made smaller, as to {bytes}",
                self.layout.total
            ));
        }
        // No more than have their data there; then fewer, for the table at the end.
        let mut zones = bytes.saturating_sub(self.layout.data) / stride;
        loop {
            let too_many = || {
                refuse(format!(
                    "{bytes} bytes are {zones} zones of {stride} bytes, and an image can have {ZONE_COUNT_MAX}"
                ))
            };
            let Some(zone_count) = u32::try_from(zones).ok().filter(|n| *n <= ZONE_COUNT_MAX)
            else {
                return too_many();
            };
            let Ok((_, layout)) = superblock_of(&superblock, zone_count.max(zones_before)) else {
                return too_many();
            };
            if layout.total <= bytes || zone_count <= zones_before {
                return Ok(Growth {
                    zones_before,
                    zones: zone_count.max(zones_before),
                    bytes: layout.total,
                });
            }
            zones -= 1;
        }
    }

    /// The image with more zones, all of them empty. The caller has seen that there is room for them on a block
    /// device.
    pub(super) fn grown(self, zone_count: u32) -> Result<ImageDevice> {
        // The tables in the file are what this process knows of the zones.
        self.flush_cache()?;
        let before = self.superblock.lock().clone();
        let fail = |error: &ContainerError| open_error(&self.path, &error.to_string());
        let (superblock, layout) = superblock_of(&before, zone_count).map_err(|e| fail(&e))?;
        if layout.tables[0] > layout.data && layout.end < self.layout.total {
            // Neither is written where the other still is.
            let least = (self.layout.total - self.layout.end).div_ceil(self.layout.zone_stride);
            let message = format!("so large an image can grow by {least} zones at least");
            return Err(open_error(&self.path, &message));
        }
        let written = write_grown(&*self.host, (&before, &self.layout), (&superblock, &layout));
        written.map_err(|error| match error {
            NotGrown::Host(error) if is_full(&error) => DeviceError::HostFull,
            NotGrown::Host(error) => explain(&self.path, &error),
            NotGrown::Container(error) => fail(&error),
        })?;
        let how = How {
            read_only: false,
            search: false,
        };
        let ImageDevice { path, host, .. } = self;
        ImageDevice::assemble(&path, host, superblock, how)
    }
}

fn open_with_length(path: &Path, options: &OpenOptions) -> Result<(ImageDevice, u64, bool)> {
    let mut host = HostFile::new(open_locked(path, false, options)?);
    let length = length_of(path, &mut host)?;
    let is_block_device = host.opened.is_block_device;
    let device = ImageDevice::open_on(path, Box::new(host), length, options.read_only)?;
    let device = device.ok_or_else(|| foreign(path))?;
    Ok((device, length, is_block_device))
}

/// The superblock of a container with so many zones that was this one.
fn superblock_of(
    before: &Superblock,
    zone_count: u32,
) -> std::result::Result<(Superblock, Layout), ContainerError> {
    let data = before.layout()?.data;
    let geometry = ContainerGeometry {
        zone_count,
        ..before.geometry.clone()
    };
    let usual = geometry.layout().is_ok_and(|layout| layout.data == data);
    let superblock = Superblock {
        geometry,
        data: (!usual).then_some(data),
        generation: before.generation.saturating_add(1),
        ..before.clone()
    };
    let layout = superblock.layout()?;
    Ok((superblock, layout))
}

/// Why an image is as it was.
enum NotGrown {
    Host(io::Error),
    Container(ContainerError),
}

impl From<io::Error> for NotGrown {
    fn from(error: io::Error) -> NotGrown {
        NotGrown::Host(error)
    }
}

fn write_grown(
    host: &dyn Host,
    (before, old): (&Superblock, &Layout),
    (superblock, new): (&Superblock, &Layout),
) -> std::result::Result<(), NotGrown> {
    let copies = (0..COPIES).map(|copy| superblock.encode(copy));
    let copies: Vec<_> = copies
        .collect::<std::result::Result<_, _>>()
        .map_err(NotGrown::Container)?;
    let put = |copy: u32| match copies.get(copy as usize) {
        Some(block) => host.write_bytes_at(block, new.copy(copy)),
        None => Ok(()),
    };
    if host.is_file() {
        // The last byte gives the file its length.
        host.write_bytes_at(&[0], new.total - 1)?;
    } else {
        zero(host, new.end.max(old.total), new.total)?;
    }
    // Of more than 8,191 zones the second ones may overlap, where few are added. What an interruption leaves of the old
    // one is found damaged then, and written anew from the first table.
    for (from, to) in old.tables.into_iter().zip(new.tables) {
        if from != to {
            copy(host, from, to, old.table_bytes)?;
        }
    }
    let seed = superblock.table_seed;
    let zones = before.geometry.zone_count..superblock.geometry.zone_count;
    Table::write_unused_of(host, new, zones, seed)?;
    host.sync()?;
    for copy in [2, 1] {
        put(copy)?;
        host.sync()?;
    }
    put(0)?;
    host.sync()?;
    // What ended the image before lies in the first of the new zones now: who searches for an image would come upon it.
    let end = new.end.min(old.total);
    if old.end < end {
        zero(host, old.end, end)?;
        host.sync()?;
    }
    Ok(())
}

/// Copies a part of the file to where it overlaps nothing that is read later: from its end on.
fn copy(host: &dyn Host, from: u64, to: u64, length: u64) -> io::Result<()> {
    let mut left = length;
    let mut bytes = vec![0; TABLE_CHUNK_BYTES.min(length) as usize];
    while left > 0 {
        let step = TABLE_CHUNK_BYTES.min(left);
        let Some(bytes) = bytes.get_mut(..step as usize) else {
            break;
        };
        left -= step;
        host.read_at(bytes, from + left)?;
        host.write_bytes_at(bytes, to + left)?;
    }
    Ok(())
}
