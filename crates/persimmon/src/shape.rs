//! The shape of an image that is to be made. Its rules are those of [`Create`](crate::Create) and of `persimmon mkfs`.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::ops::RangeInclusive;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use persimmon_device::BLOCK_SIZE;
use persimmon_device::image::{ImageDevice, ImageGeometry};
use persimmon_format::container::ZONE_COUNT_MAX;

const BLOCK: u64 = BLOCK_SIZE as u64;

/// Sizes a zone of an image can have, bytes.
pub const ZONE_BYTES: RangeInclusive<u64> = 1 << 20..=4 << 30;

/// What there is for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Available {
    /// A block device of so many bytes.
    Device(u64),
    /// A regular file of so many bytes, or none yet.
    File(u64),
}

/// What there is at a path.
///
/// # Errors
/// What the system says of it, with its number; or it is neither a block device nor a regular file.
pub fn available(path: &Path) -> Result<Available, (String, Option<i32>)> {
    let failed = |error: std::io::Error| (error.to_string(), error.raw_os_error());
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Available::File(0));
        }
        Err(error) => return Err(failed(error)),
    };
    if metadata.is_file() {
        return Ok(Available::File(metadata.len()));
    }
    if metadata.file_type().is_block_device() {
        let mut file = File::open(path).map_err(failed)?;
        let bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
        return Ok(Available::Device(bytes));
    }
    let what = "is neither a block device nor a regular file";
    Err((what.to_owned(), None))
}

/// Bytes that can be those of a zone, or of its writable part, as blocks.
///
/// # Errors
/// They are not whole blocks, or too many.
pub fn whole_blocks(bytes: u64) -> Result<u32, String> {
    if bytes == 0 || !bytes.is_multiple_of(BLOCK) {
        return Err(format!("{bytes} is not a multiple of {BLOCK} bytes"));
    }
    u32::try_from(bytes / BLOCK).map_err(|_| format!("{bytes} bytes are too many"))
}

/// Refuses a size of a zone.
///
/// # Errors
/// It is not whole blocks, or none that a zone can have.
pub fn check_zone_bytes(bytes: u64) -> Result<(), String> {
    whole_blocks(bytes)?;
    if !ZONE_BYTES.contains(&bytes) {
        return Err(format!(
            "a zone size of {bytes} bytes is not possible: it is 1 MiB to 4 GiB"
        ));
    }
    Ok(())
}

/// An image of more zones than there can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyZones {
    /// Of the image, bytes.
    pub size_bytes: u64,
    /// What can be written of a zone, bytes.
    pub capacity_bytes: u64,
    /// The smallest zones it would not have too many of, bytes; `None`: no zones are large enough.
    pub zone_bytes: Option<u64>,
}

impl std::fmt::Display for TooManyZones {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} bytes are more than {ZONE_COUNT_MAX} zones of {} MiB, which is as many as there can be: ",
            self.size_bytes,
            self.capacity_bytes >> 20
        )?;
        match self.zone_bytes {
            Some(bytes) => write!(f, "make it of zones of {} MiB, or smaller", bytes >> 20),
            None => write!(f, "no zone size lets it be so large"),
        }
    }
}

/// Refuses an image of more zones than there can be: all beyond them would be of no use, and nothing would say so.
///
/// # Errors
/// It is one.
pub fn check_not_too_many(size_bytes: u64, geometry: &ImageGeometry) -> Result<(), TooManyZones> {
    let full = ImageGeometry {
        zone_count: ZONE_COUNT_MAX,
        ..*geometry
    };
    let stride = u64::from(geometry.capacity_blocks) * BLOCK;
    let is_all_used = full
        .layout()
        .is_ok_and(|layout| size_bytes < layout.total.saturating_add(stride));
    if geometry.zone_count < ZONE_COUNT_MAX || is_all_used {
        return Ok(());
    }
    let mut zone_bytes = stride.next_power_of_two().max(*ZONE_BYTES.start());
    let is_too_small = |zone_bytes: u64| {
        let blocks = u32::try_from(zone_bytes / BLOCK).unwrap_or(u32::MAX);
        ImageDevice::zones_fitting(size_bytes, blocks, blocks) >= ZONE_COUNT_MAX
    };
    while is_too_small(zone_bytes) && zone_bytes <= *ZONE_BYTES.end() {
        zone_bytes *= 2;
    }
    Err(TooManyZones {
        size_bytes,
        capacity_bytes: stride,
        zone_bytes: (zone_bytes <= *ZONE_BYTES.end()).then_some(zone_bytes),
    })
}

/// The shape of an image of so many bytes.
///
/// # Errors
/// There can be none, and why.
pub(crate) fn image(size_bytes: u64, zone_bytes: Option<u64>) -> Result<ImageGeometry, String> {
    let zone_bytes = zone_bytes.unwrap_or_else(|| ImageDevice::zone_bytes_for(size_bytes));
    check_zone_bytes(zone_bytes)?;
    let zone_blocks = whole_blocks(zone_bytes)?;
    let geometry = ImageGeometry {
        zone_count: ImageDevice::zones_fitting(size_bytes, zone_blocks, zone_blocks),
        zone_blocks,
        capacity_blocks: zone_blocks,
        max_open: None,
        max_active: None,
    };
    check_not_too_many(size_bytes, &geometry).map_err(|error| error.to_string())?;
    Ok(geometry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_no_image_can_have_are_refused() {
        assert_eq!(image(64 << 20, None).unwrap().zone_blocks, 256);
        assert!(image(64 << 20, Some((1 << 20) + 1)).is_err());
        assert!(image(64 << 20, Some(0)).is_err());
        assert!(image(64 << 20, Some(512 << 10)).is_err());
        assert!(image(u64::MAX, Some(8 << 30)).is_err());
        assert!(image(u64::MAX, None).is_err());
        let why = image(100 << 40, Some(1 << 20)).unwrap_err();
        assert!(why.contains("of zones of 32 MiB"), "{why}");
        assert!(image(100 << 40, Some(32 << 20)).is_ok());
    }
}
