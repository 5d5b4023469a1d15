//! Opening and emptying a zoned block device.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use persimmon_format::BLOCK_SIZE;
use persimmon_format::zone_header::ZoneHeader;

use super::ZbdDevice;
use super::kernel::{self, Action, BLOCK_SECTORS, SECTOR_BYTES, Zone};
use super::limits::{self, Limits};
use super::queue::Shared;
use super::ring::Ring;
use crate::lock::{explain, open_error, open_locked};
use crate::options::{CreateOptions, OpenOptions};
use crate::probe::{self, Identity};
use crate::zones::ZoneMachine;
use crate::{
    BufferMut, Command, DeviceError, Geometry, Result, ZoneId, ZoneKind, ZoneState, ZonedDevice,
};

/// Blocks one command may transfer (4 MiB), however much the device takes.
const TRANSFER_BLOCKS_MAX: u64 = 1024;
/// Zones one of which has a header if there is a volume: the log is among the first so many.
const ZONES_WITH_LOG: usize = 64;
/// Others' superblocks in conventional zones are within so many bytes.
const FOREIGN_BYTES: usize = 1 << 20;

impl ZbdDevice {
    /// Opens a zoned block device, for writing exclusively.
    ///
    /// Errors: [`DeviceError::Busy`] where it is mounted, part of another device or in use by
    /// another process, else [`DeviceError::Open`] with what is wrong and what to do.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<ZbdDevice> {
        let path = path.as_ref();
        let limits = limits_of(path)?;
        let opened = open_locked(path, !options.read_only, true, options.wait_for_lock)?;
        let file = opened.file;
        let mut zones = kernel::report(&file, 0, limits.zone_count)
            .map_err(|error| open_error(path, &format!("does not report its zones: {error}")))?;
        let first_zone = usable(path, &limits, &mut zones)?;
        if !options.read_only {
            settle(&file, &mut zones).map_err(|error| {
                open_error(path, &format!("open zones cannot be closed: {error}"))
            })?;
        }
        let geometry = geometry(&limits, zones.len());
        let mut machine = ZoneMachine::new(
            geometry.zone_count,
            0,
            geometry.max_open,
            geometry.max_active,
        );
        for (number, zone) in (0..).map(ZoneId).zip(&zones) {
            machine.observe(number, &zone.info())?;
        }
        let ring = Ring::new(file).map_err(|error| open_error(path, &no_ring(&error)))?;
        let shared = Shared::new(geometry, machine, ring, first_zone, options.read_only);
        let shared = Arc::new(shared);
        let collecting = Arc::clone(&shared);
        let collector = thread::Builder::new()
            .name("zbd".into())
            .spawn(move || collecting.collect())
            .map_err(|error| explain(path, &error))?;
        Ok(ZbdDevice {
            path: path.to_owned(),
            shared,
            collector: Some(collector),
        })
    }

    /// Empties a zoned block device, and opens it. Without `force` only if nothing is on it.
    ///
    /// Errors: as of [`ZbdDevice::open`].
    pub fn create(path: impl AsRef<Path>, options: &CreateOptions) -> Result<ZbdDevice> {
        let path = path.as_ref();
        let open = OpenOptions {
            read_only: false,
            wait_for_lock: options.wait_for_lock,
        };
        let device = ZbdDevice::open(path, &open)?;
        let report = device.report(0..device.geometry().zone_count)?;
        let used = report
            .iter()
            .any(|zone| zone.state != ZoneState::Empty && !zone.state.is_dead());
        if !options.force {
            device.check_nothing_lost(used)?;
        }
        for (zone, info) in (0..).map(ZoneId).zip(&report) {
            if info.state != ZoneState::Empty && !info.state.is_dead() {
                let reset = device.run(Command::Reset {
                    zone,
                    keep_allocated: false,
                });
                match reset {
                    // Its last: the volume knows how to do without it.
                    Ok(_) | Err(DeviceError::BadState { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        device.wipe_conventional()?;
        Ok(device)
    }

    fn check_nothing_lost(&self, used: bool) -> Result<()> {
        let path = self.path();
        let file = File::open(path).map_err(|error| explain(path, &error))?;
        let fail = |error: io::Error| explain(path, &error);
        let what = match probe::identify(&file).map_err(fail)? {
            Some(found) => found.to_string(),
            None if !used => return Ok(()),
            None => match identity(path).map_err(fail)? {
                Some(_) => "a Persimmon volume".to_owned(),
                None => "data of an unknown kind".to_owned(),
            },
        };
        Err(open_error(
            path,
            &format!("holds {what}; use --force to overwrite it"),
        ))
    }

    /// What is in conventional zones is not this volume's, and must not be taken for one.
    fn wipe_conventional(&self) -> Result<()> {
        let zone_blocks = self.geometry().zone_blocks as usize;
        let conventional = zone_blocks.saturating_mul(self.unused_zones() as usize);
        let blocks = conventional.min(FOREIGN_BYTES / BLOCK_SIZE);
        if blocks == 0 {
            return Ok(());
        }
        let zeros = BufferMut::zeroed(blocks);
        let written = self.shared.ring.file().write_all_at(&zeros, 0);
        written.map_err(|error| explain(self.path(), &error))
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
    for zone in sequential.take(ZONES_WITH_LOG) {
        if matches!(zone.state, ZoneState::Empty | ZoneState::Offline) {
            continue;
        }
        let mut block = [0; BLOCK_SIZE];
        if file
            .read_exact_at(&mut block, zone.start * SECTOR_BYTES)
            .is_err()
        {
            continue;
        }
        if let Ok(header) = ZoneHeader::decode(&block) {
            return Ok(Some(Identity {
                uuid: uuid::Uuid::from_bytes(header.volume.uuid),
                label: header.volume.label,
            }));
        }
    }
    Ok(None)
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
    let block = BLOCK_SIZE as u64;
    let problem = if !limits.is_zoned() {
        "is not a zoned block device".to_owned()
    } else if limits.logical_block_bytes > block || limits.write_granularity_bytes > block {
        format!(
            "wants writes of {} bytes; Persimmon's blocks are of {block}",
            limits
                .logical_block_bytes
                .max(limits.write_granularity_bytes)
        )
    } else if limits.zone_bytes == 0
        || !limits.zone_bytes.is_multiple_of(block)
        || limits.zone_bytes / block > u64::from(u32::MAX)
    {
        format!(
            "has zones of {} bytes, which Persimmon cannot use",
            limits.zone_bytes
        )
    } else {
        return Ok(limits);
    };
    Err(open_error(path, &problem))
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
        !zone.state.is_dead() && !zone.capacity.is_multiple_of(BLOCK_SECTORS)
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

/// Closes zones that were left open, empties those that hold nothing but are active, and pads
/// blocks that are written in part.
fn settle(file: &File, zones: &mut [Zone]) -> io::Result<()> {
    for zone in zones.iter_mut() {
        let is_torn = zone.torn_sectors() > 0;
        if !zone.state.is_open() && !is_torn && !is_active_empty(zone) {
            continue;
        }
        if is_torn {
            let missing = (BLOCK_SECTORS - zone.torn_sectors()) * SECTOR_BYTES;
            let zeros = BufferMut::zeroed(1);
            let zeros = zeros.get(..missing as usize).unwrap_or_default();
            file.write_all_at(zeros, zone.write_pointer * SECTOR_BYTES)?;
        }
        let action = match is_active_empty(zone) {
            true => Action::Reset,
            false => Action::Close,
        };
        let now = |zone: &Zone| {
            let report = kernel::report(file, zone.start, 1)?;
            report
                .first()
                .copied()
                .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        };
        // Padding may have filled it.
        *zone = now(zone)?;
        if zone.state.is_active() {
            kernel::manage(file, action, zone.start, zone.length)?;
            *zone = now(zone)?;
        }
    }
    Ok(())
}

fn is_active_empty(zone: &Zone) -> bool {
    zone.state.is_active() && zone.write_pointer == zone.start
}

fn geometry(limits: &Limits, zones: usize) -> Geometry {
    let block = BLOCK_SIZE as u64;
    // A block may be apart from the next one in memory, so it may take a segment of its own.
    let known = |limit: u64| if limit == 0 { 32 } else { limit };
    let transfer = known(limits.request_bytes_max / block)
        .min(known(limits.request_segments_max))
        .clamp(1, TRANSFER_BLOCKS_MAX) as u32;
    Geometry {
        zone_count: zones as u32,
        zone_blocks: (limits.zone_bytes / block) as u32,
        conventional_zones: 0,
        max_open: limits.max_open,
        max_active: limits.max_active,
        max_transfer_blocks: transfer,
        // They are sent as writes.
        max_append_blocks: transfer,
        volatile_cache: limits.volatile_cache,
        write_pointer_is_proof: true,
    }
}

fn no_ring(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::ENOSYS) => {
            "io_uring is not allowed here; see the sysctl kernel.io_uring_disabled and the container's \
             seccomp rules"
                .to_owned()
        }
        _ => format!("io_uring: {error}"),
    }
}
