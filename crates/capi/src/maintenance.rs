//! Durability, and the volume below the files.

use std::ffi::c_int;

use persimmon::{Role, ZoneFailure};

use crate::call::{Failure, answer, call, object};
use crate::persimmon_fs;

/// Makes everything done so far durable.
///
/// # Safety
/// `fs` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_sync(fs: *const persimmon_fs) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        Ok(unsafe { object(fs) }?.0.sync()?)
    })
}

/// Writes a checkpoint: the next opening replays no journal.
///
/// # Safety
/// `fs` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_checkpoint(fs: *const persimmon_fs) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        Ok(unsafe { object(fs) }?.0.checkpoint()?)
    })
}

/// Frees the zones in which nothing is live and has the device reset them: an image gives their space back to its host.
/// `bytes` tells how many bytes of zones became free.
///
/// # Safety
/// `fs` is a handle; `bytes` a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_trim(fs: *const persimmon_fs, bytes: *mut u64) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, bytes) = unsafe { (object(fs)?, answer(bytes)?) };
        bytes.write(fs.0.trim()?);
        Ok(())
    })
}

/// Counters since the volume was opened.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct persimmon_stats {
    /// File data flushed, in whole blocks.
    pub user_bytes: u64,
    /// Everything sent to the device.
    pub device_bytes: u64,
    /// Everything read from it.
    pub read_bytes: u64,
    /// Blocks of 4096 bytes that cleaning moved.
    pub blocks_moved: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Flushes of the device's cache.
    pub flushes: u64,
    /// Zones reset.
    pub resets: u64,
    /// Operations that waited for a checkpoint or for cleaning.
    pub stalls: u64,
}

/// Counters since the volume was opened.
///
/// # Safety
/// `fs` is a handle; `stats` a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_statistics(
    fs: *const persimmon_fs,
    stats: *mut persimmon_stats,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, stats) = unsafe { (object(fs)?, answer(stats)?) };
        let told = fs.0.stats();
        stats.write(persimmon_stats {
            user_bytes: told.user_bytes,
            device_bytes: told.device_bytes(),
            read_bytes: told.read_bytes,
            blocks_moved: told.blocks_moved,
            checkpoints: told.checkpoints,
            flushes: told.flushes,
            resets: told.resets,
            stalls: told.stalls,
        });
        Ok(())
    })
}

/// Counters of cleaning since the volume was opened.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct persimmon_cleaning_stats {
    /// Zones cleaned while an operation waited for room.
    pub zones_waited_for: u64,
    /// Zones cleaned ahead of need.
    pub zones_ahead: u64,
    /// Blocks of 4096 bytes moved out of both.
    pub blocks_moved: u64,
    /// Bytes of file data sent to the device to move them.
    pub data_bytes: u64,
    /// The same of metadata.
    pub metadata_bytes: u64,
    /// Operations that waited for a checkpoint or for cleaning.
    pub stalls: u64,
}

/// Counters of cleaning since the volume was opened.
///
/// # Safety
/// `fs` is a handle; `stats` a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_cleaning_statistics(
    fs: *const persimmon_fs,
    stats: *mut persimmon_cleaning_stats,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, stats) = unsafe { (object(fs)?, answer(stats)?) };
        let told = fs.0.stats();
        stats.write(persimmon_cleaning_stats {
            zones_waited_for: told.cleaning_foreground,
            zones_ahead: told.cleaning_background,
            blocks_moved: told.blocks_moved,
            data_bytes: told.cleaned_data_bytes,
            metadata_bytes: told.cleaned_metadata_bytes,
            stalls: told.stalls,
        });
        Ok(())
    })
}

/// What cleaning did.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct persimmon_cleaned {
    /// 1: so many zones are free as were asked for; 0: nothing more is to be won.
    pub reached: c_int,
    /// Zones that are free now.
    pub free_zones: u32,
    /// Blocks of 4096 bytes moved meanwhile.
    pub blocks_moved: u64,
}

/// Cleans now, until `free_zones` are free, or with `UINT32_MAX` until nothing more is to be won. Nothing needs this call. `cleaned` may be
/// NULL.
///
/// # Safety
/// `fs` is a handle; `cleaned` is NULL or a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_clean(
    fs: *const persimmon_fs,
    free_zones: u32,
    cleaned: *mut persimmon_cleaned,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let fs = unsafe { object(fs) }?;
        let done = fs.0.clean((free_zones != u32::MAX).then_some(free_zones))?;
        // SAFETY: as the caller promises.
        if let Ok(cleaned) = unsafe { answer(cleaned) } {
            cleaned.write(persimmon_cleaned {
                reached: done.reached.into(),
                free_zones: done.free_zones,
                blocks_moved: done.blocks_moved,
            });
        }
        Ok(())
    })
}

/// What a scrub found.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct persimmon_scrubbed {
    /// Bytes read and verified, or found damaged.
    pub bytes: u64,
    /// Places that are damaged; `persimmon scrub` tells which.
    pub damaged: u64,
}

/// Reads and verifies everything live. Damage that is found is no error of this call: look at `scrubbed`.
///
/// # Safety
/// `fs` is a handle; `scrubbed` a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_scrub(
    fs: *const persimmon_fs,
    scrubbed: *mut persimmon_scrubbed,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, scrubbed) = unsafe { (object(fs)?, answer(scrubbed)?) };
        let done = fs.0.scrub(|_, _| true)?;
        scrubbed.write(persimmon_scrubbed {
            bytes: done.bytes,
            damaged: done.findings_total,
        });
        Ok(())
    })
}

/// A zone in use by nobody.
pub const PERSIMMON_ZONE_FREE: u32 = 0;
/// One of the log.
pub const PERSIMMON_ZONE_LOG: u32 = 1;
/// One of metadata.
pub const PERSIMMON_ZONE_METADATA: u32 = 2;
/// One of file data.
pub const PERSIMMON_ZONE_DATA: u32 = 3;

/// One taken out of use.
pub const PERSIMMON_ZONE_RETIRED: u32 = 4;

/// A zone that serves.
pub const PERSIMMON_ZONE_HEALTHY: u32 = 0;
/// One that failed: it can be read alone.
pub const PERSIMMON_ZONE_READ_ONLY: u32 = 1;
/// One that failed: what was in it is lost.
pub const PERSIMMON_ZONE_OFFLINE: u32 = 2;

/// A zone.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct persimmon_zone {
    /// One of `PERSIMMON_ZONE_FREE` to `PERSIMMON_ZONE_RETIRED`.
    pub role: u32,
    /// `PERSIMMON_ZONE_HEALTHY` or how it failed.
    pub health: u32,
    /// Blocks of 4096 bytes that can be written.
    pub capacity_blocks: u32,
    /// Blocks written.
    pub write_pointer: u32,
    /// Blocks of them that are live.
    pub valid_blocks: u32,
    /// Times that it was reset.
    pub resets: u32,
}

/// Tells of all zones, in order: of as many as `capacity` has room for; how many there are goes to `count`. `ERANGE`: there are more.
///
/// # Safety
/// `fs` is a handle; `zones` has room for `capacity` of them, which may be 0; `count` is a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_zones(
    fs: *const persimmon_fs,
    zones: *mut persimmon_zone,
    capacity: usize,
    count: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, count) = unsafe { (object(fs)?, answer(count)?) };
        if zones.is_null() && capacity > 0 {
            return Err(Failure::invalid("the room for the zones is NULL"));
        }
        let all = fs.0.zones();
        count.write(all.len());
        for (at, zone) in all.iter().take(capacity).enumerate() {
            let told = persimmon_zone {
                role: match zone.entry.role {
                    Role::Free => PERSIMMON_ZONE_FREE,
                    Role::Log => PERSIMMON_ZONE_LOG,
                    Role::Metadata => PERSIMMON_ZONE_METADATA,
                    Role::Data => PERSIMMON_ZONE_DATA,
                    Role::Retired => PERSIMMON_ZONE_RETIRED,
                },
                health: match zone.failure {
                    None => PERSIMMON_ZONE_HEALTHY,
                    Some(ZoneFailure::ReadOnly) => PERSIMMON_ZONE_READ_ONLY,
                    Some(ZoneFailure::Offline) => PERSIMMON_ZONE_OFFLINE,
                },
                capacity_blocks: zone.capacity,
                write_pointer: zone.entry.write_pointer,
                valid_blocks: zone.entry.valid,
                resets: zone.entry.resets,
            };
            // SAFETY: `at` is below the capacity, for which there is room, as the caller promises.
            unsafe { zones.add(at).write(told) };
        }
        if all.len() <= capacity {
            Ok(())
        } else {
            Err(Failure::too_short(all.len() * size_of::<persimmon_zone>()))
        }
    })
}
