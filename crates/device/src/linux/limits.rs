//! What sysfs tells of a block device.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Sectors, the unit of these numbers, are of 512 bytes on every device.
pub const SECTOR_BYTES: u64 = 512;

/// How the kernel sees a block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `none`, `host-aware` or `host-managed`.
    pub zoned: String,
    /// Bytes from the start of one zone to the start of the next.
    pub zone_bytes: u64,
    /// Zones, conventional ones included.
    pub zone_count: u32,
    /// Zones that may be open at once; `None` is no limit.
    pub max_open: Option<u32>,
    /// Zones that may be active at once; `None` is no limit.
    pub max_active: Option<u32>,
    /// Bytes one zone append may transfer; 0 where there is none.
    pub append_bytes_max: u64,
    /// Bytes the device addresses.
    pub logical_block_bytes: u64,
    /// Bytes a write to a sequential zone must be a multiple of.
    pub write_granularity_bytes: u64,
    /// Bytes that one request to the driver takes.
    pub request_bytes_max: u64,
    /// Pieces of memory, of a page at least, that one request takes.
    pub request_segments_max: u64,
    /// Completed writes may be lost at a power cut until a flush.
    pub volatile_cache: bool,
    /// The model, as far as the driver tells.
    pub model: String,
}

/// Where sysfs describes the block device at `path`; `None` for what is no block device.
///
/// Errors: the path cannot be looked at.
pub fn directory(path: &Path) -> io::Result<Option<PathBuf>> {
    let metadata = fs::metadata(path)?;
    if !metadata.file_type().is_block_device() {
        return Ok(None);
    }
    let device = metadata.rdev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    Ok(Some(PathBuf::from(format!(
        "/sys/dev/block/{major}:{minor}"
    ))))
}

impl Limits {
    /// Reads them for the device of a [`directory`].
    ///
    /// Errors: it is gone, or it is a partition, which has no limits of its own.
    pub fn read(directory: &Path) -> io::Result<Limits> {
        let queue = directory.join("queue");
        let text = |name: &str| fs::read_to_string(queue.join(name));
        let number = |name: &str| {
            let text = text(name).unwrap_or_default();
            text.trim().parse().unwrap_or(0u64)
        };
        let limit = |name: &str| u32::try_from(number(name)).ok().filter(|limit| *limit > 0);
        let model = fs::read_to_string(directory.join("device/model")).unwrap_or_default();
        Ok(Limits {
            zoned: text("zoned")?.trim().to_owned(),
            zone_bytes: number("chunk_sectors").saturating_mul(SECTOR_BYTES),
            zone_count: u32::try_from(number("nr_zones")).unwrap_or(u32::MAX),
            max_open: limit("max_open_zones"),
            max_active: limit("max_active_zones"),
            append_bytes_max: number("zone_append_max_bytes"),
            logical_block_bytes: number("logical_block_size"),
            write_granularity_bytes: number("zone_write_granularity"),
            request_bytes_max: number("max_sectors_kb").saturating_mul(1024),
            request_segments_max: number("max_segments"),
            volatile_cache: text("write_cache").is_ok_and(|cache| cache.trim() == "write back"),
            model: model.trim().to_owned(),
        })
    }

    /// Whether zones must be written in order.
    #[must_use]
    pub fn is_zoned(&self) -> bool {
        self.zoned == "host-managed"
    }
}

/// The zoned block devices of this machine, by name.
///
/// Errors: sysfs cannot be read.
pub fn list() -> io::Result<Vec<(PathBuf, Limits)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let entry = entry?;
        // A device that has just gone.
        let Ok(limits) = Limits::read(&entry.path()) else {
            continue;
        };
        if limits.is_zoned() {
            // Sysfs writes a slash in a device's name as an exclamation mark.
            let name = entry.file_name().to_string_lossy().replace('!', "/");
            found.push((Path::new("/dev").join(name), limits));
        }
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found)
}

/// Whether the path is a block device whose zones must be written in order.
///
/// Errors: the path cannot be looked at.
pub fn is_zoned(path: &Path) -> io::Result<bool> {
    let Some(directory) = directory(path)? else {
        return Ok(false);
    };
    // A partition has the zones of its disk, if any.
    let zoned = ["queue/zoned", "../queue/zoned"]
        .iter()
        .find_map(|name| fs::read_to_string(directory.join(name)).ok());
    Ok(zoned.is_some_and(|zoned| zoned.trim() == "host-managed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_as_sysfs_describes_it() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Limits::read(dir.path()).is_err());
        fs::create_dir(dir.path().join("queue")).unwrap();
        for (name, value) in [
            ("zoned", "host-managed\n"),
            ("chunk_sectors", "8192\n"),
            ("nr_zones", "64\n"),
            ("max_open_zones", "14\n"),
            ("max_active_zones", "0\n"),
            ("max_sectors_kb", "512\n"),
            ("max_segments", "127\n"),
            ("write_cache", "write back\n"),
        ] {
            fs::write(dir.path().join("queue").join(name), value).unwrap();
        }
        let limits = Limits::read(dir.path()).unwrap();
        assert!(limits.is_zoned() && limits.volatile_cache);
        assert_eq!((limits.zone_bytes, limits.zone_count), (4 << 20, 64));
        assert_eq!((limits.max_open, limits.max_active), (Some(14), None));
        assert_eq!(limits.request_bytes_max, 512 << 10);
    }

    #[test]
    fn files_are_no_zoned_devices() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(!is_zoned(file.path()).unwrap());
        assert!(is_zoned(Path::new("/absent")).is_err());
    }
}
