//! Durability, and the volume below the files.

use std::ffi::c_int;

use crate::call::{answer, call, object};
use crate::persimmon_fs;

/// Makes everything done so far durable.
///
/// # Safety
/// `fs` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_sync(fs: *const persimmon_fs) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        Ok(unsafe { object(fs, "the filesystem") }?.0.sync()?)
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
        Ok(unsafe { object(fs, "the filesystem") }?.0.checkpoint()?)
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
        let (fs, stats) = unsafe { (object(fs, "the filesystem")?, answer(stats)?) };
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
