//! Opening and emptying a zoned block device.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use persimmon_format::BLOCK_SIZE;

use super::kernel::{self, BLOCK_SECTORS, SECTOR_BYTES, Zone};
use super::{Zbd, ZbdDevice};
use crate::linux::files::FileWire;
use crate::linux::limits::{self, Limits};
use crate::linux::make::{self, Claim};
use crate::linux::ready::{self, LeftOut};
use crate::lock::{explain, open_error, open_locked};
use crate::options::{CreateOptions, OpenOptions};
use crate::probe::{self, Identity};
use crate::{Geometry, Result, ZoneId, ZoneInfo, ZoneKind, ZoneState, nvme};

impl ZbdDevice {
    /// Opens a zoned block device, for writing exclusively.
    ///
    /// Errors: [`DeviceError::Busy`] where it is mounted, part of another device or in use by
    /// another process, else [`DeviceError::Open`] with what is wrong and what to do.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<ZbdDevice> {
        let path = path.as_ref();
        let limits = limits_of(path)?;
        let file = open_locked(path, true, options)?.file;
        let mut zones = kernel::report(&file, 0, limits.zone_count)
            .map_err(|error| open_error(path, &format!("does not report its zones: {error}")))?;
        let first_zone = usable(path, &limits, &mut zones)?;
        let is_blank = |zone: &Zone| make::is_blank(zone.state, zone.write_pointer > zone.start);
        let may_change = make::may_change(options, zones.iter().all(is_blank), || identity(path))
            .map_err(|error| explain(path, &error))?;
        let geometry = Geometry {
            max_open: limits.max_open,
            max_active: limits.max_active,
            volatile_cache: limits.volatile_cache,
            ..make::geometry(
                zones.len(),
                limits.zone_bytes,
                limits.request_bytes_max,
                limits.request_segments_max,
            )
        };
        let torn = (0..).map(ZoneId).zip(&zones);
        let torn = torn.filter(|(_, zone)| zone.torn_sectors() > 0);
        let torn: Vec<ZoneId> = torn.map(|(number, _)| number).collect();
        let mut zones: Vec<ZoneInfo> = zones.iter().map(Zone::info).collect();
        let port = Zbd {
            file: Arc::new(file),
            first_zone,
            zone_blocks: geometry.zone_blocks,
        };
        let mut left_out = LeftOut::default();
        if may_change {
            left_out = ready::settle(&port, &mut zones, &torn).map_err(|failure| {
                let message = format!("its zones cannot be made ready for writing: {failure}");
                open_error(path, &message)
            })?;
        }
        let zones = (&zones[..], left_out);
        ZbdDevice::start(path, port, FileWire, geometry, zones, options.read_only)
    }

    /// Empties a zoned block device, and opens it. Without `force` only if nothing is on it.
    ///
    /// Errors: as of [`ZbdDevice::open`].
    pub fn create(path: impl AsRef<Path>, options: &CreateOptions) -> Result<ZbdDevice> {
        ZbdDevice::emptied(ZbdDevice::claim(path.as_ref(), options)?)
    }

    /// All of [`ZbdDevice::create`] that can refuse the drive.
    pub(crate) fn claim(path: &Path, options: &CreateOptions) -> Result<Claim<Zbd>> {
        let device = ZbdDevice::open(path, &make::opening(options))?;
        let foreign = || File::open(path).and_then(|file| probe::identify(&file));
        Claim::of(device, options.force, foreign, || identity(path))
    }

    /// The rest.
    pub(crate) fn emptied(claim: Claim<Zbd>) -> Result<ZbdDevice> {
        // Of other drives there may be a hundred thousand zones, and nobody writes past the kernel.
        let path = fs::canonicalize(claim.path()).unwrap_or_default();
        let device = claim.emptied(nvme::generic_of(&path).is_some())?;
        if let Some(front) = device.front()? {
            front.clear()?;
        }
        Ok(device)
    }
}

/// UUID and label of the volume on a zoned block device, without opening it exclusively.
/// `None`: none of the zones that hold the log has a header.
///
/// Errors: it is no zoned block device, or cannot be read.
pub fn identity(path: &Path) -> io::Result<Option<Identity>> {
    let directory = limits::directory(path)?.ok_or(io::ErrorKind::InvalidInput)?;
    let limits = Limits::read(&directory)?;
    let file = File::open(path)?;
    let zones = kernel::report(&file, 0, limits.zone_count)?;
    let sequential = zones
        .iter()
        .filter(|zone| zone.kind == ZoneKind::Sequential);
    let used =
        sequential.filter(|zone| !matches!(zone.state, ZoneState::Empty | ZoneState::Offline));
    let blocks = used.map(|zone| {
        let mut block = [0; BLOCK_SIZE];
        file.read_exact_at(&mut block, zone.start * SECTOR_BYTES)
            .map(|()| block)
    });
    Ok(make::identity_in(blocks))
}

/// The limits of a device that can be used.
fn limits_of(path: &Path) -> Result<Limits> {
    let directory = limits::directory(path).map_err(|error| explain(path, &error))?;
    let Some(directory) = directory else {
        return Err(open_error(path, "is not a block device"));
    };
    let limits = match Limits::read(&directory) {
        Ok(limits) => limits,
        Err(error) if directory.join("partition").exists() => {
            let _ = error;
            return Err(open_error(
                path,
                "is a partition; a zoned drive is used whole",
            ));
        }
        Err(error) => return Err(explain(path, &error)),
    };
    let write_bytes_min = limits
        .logical_block_bytes
        .max(limits.write_granularity_bytes);
    let problem = if limits.is_zoned() {
        make::problem(limits.zone_bytes, write_bytes_min)
    } else {
        Some("is not a zoned block device".to_owned())
    };
    problem.map_or(Ok(limits), |problem| Err(open_error(path, &problem)))
}

/// Leaves the zones that can be used; how many there are before them.
fn usable(path: &Path, limits: &Limits, zones: &mut Vec<Zone>) -> Result<u32> {
    let conventional = |zone: &Zone| zone.kind == ZoneKind::Conventional;
    let first = zones.iter().take_while(|zone| conventional(zone)).count();
    zones.drain(..first);
    if zones.iter().any(conventional) {
        let message = "has conventional zones behind sequential ones, which Persimmon cannot use";
        return Err(open_error(path, message));
    }
    let length = limits.zone_bytes / SECTOR_BYTES;
    if zones.last().is_some_and(|zone| zone.length < length) {
        zones.pop();
    }
    if zones.is_empty() {
        return Err(open_error(path, "has no sequential zones"));
    }
    let odd = |zone: &&Zone| {
        !zone.state.is_worn_out() && !zone.capacity.is_multiple_of(BLOCK_SECTORS)
            || zone.length != length
    };
    if let Some(zone) = zones.iter().find(odd) {
        let message = format!(
            "the zone at sector {} has {} sectors, {} of them writable, which Persimmon cannot use",
            zone.start, zone.length, zone.capacity
        );
        return Err(open_error(path, &message));
    }
    Ok(first as u32)
}
