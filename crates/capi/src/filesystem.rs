//! Volumes: made, opened, closed.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use persimmon::{Compression, Create, DataRedundancy, Dedup, Deltas, Filesystem, Options};

use crate::call::{Failure, Result, answer, call, give, object, path, take, utf8};
use crate::names::by_path;
use crate::{
    PERSIMMON_VERSION_MAJOR, PERSIMMON_VERSION_MINOR, persimmon_create_options, persimmon_fs,
    persimmon_options, persimmon_space,
};

/// No structure of any version has more bytes. A larger size was never set, and what it reaches to is not the structure's.
const STRUCT_SIZE_MAX: usize = 4096;
/// Least memory for metadata, and for file data that waits to be written: what a mount asks for as well.
const CACHE_BYTES_MIN: u64 = 1 << 20;
const STAGING_BYTES_MIN: u64 = 4 << 20;

/// Bytes of memory that a caller sets, 0 for what is usual.
fn at_least(bytes: u64, min: u64, field: &str, usual: usize) -> Result<usize> {
    match bytes {
        0 => Ok(usual),
        _ if bytes < min => Err(Failure::invalid(format!(
            "{field}: {bytes} is less than {}M",
            min >> 20
        ))),
        _ => Ok(usize::try_from(bytes).unwrap_or(usize::MAX)),
    }
}

/// A structure of the caller's that may be older or newer than this library, as one of this library's.
///
/// # Safety
/// `pointer` is null, or points to as many bytes as the `usize` says that it begins with.
unsafe fn sized<T: Copy>(pointer: *const T, default: T, what: &str) -> Result<T> {
    if pointer.is_null() {
        return Ok(default);
    }
    // SAFETY: the structure begins with its size, as the caller promises.
    let size = unsafe { pointer.cast::<usize>().read_unaligned() };
    if size < size_of::<usize>() {
        return Err(Failure::invalid(format!(
            "struct_size of {what} is {size}: set it to sizeof({what})"
        )));
    }
    if size > STRUCT_SIZE_MAX {
        return Err(Failure::invalid(format!(
            "struct_size of {what} is {size}, which no version of this library has: set it to sizeof({what})"
        )));
    }
    for at in size_of::<T>()..size {
        // SAFETY: so many bytes are there, as the caller promises.
        if unsafe { pointer.cast::<u8>().add(at).read() } != 0 {
            return Err(Failure::invalid(format!(
                "{what} has fields that this library, version {PERSIMMON_VERSION_MAJOR}.{PERSIMMON_VERSION_MINOR}, does not know"
            )));
        }
    }
    let mut ours = default;
    // SAFETY: so many bytes are there, as the caller promises, and fit; every field may have any bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(
            pointer.cast::<u8>(),
            (&raw mut ours).cast::<u8>(),
            size.min(size_of::<T>()),
        );
    }
    Ok(ours)
}

const CREATE_DEFAULT: persimmon_create_options = persimmon_create_options {
    struct_size: size_of::<persimmon_create_options>(),
    size_bytes: 0,
    zone_bytes: 0,
    label: std::ptr::null(),
    reserve_basis_points_plus_one: 0,
    copies: 0,
    force: 0,
    compression: std::ptr::null(),
    data_copies: 0,
    data_parity: 0,
};

const OPTIONS_DEFAULT: persimmon_options = persimmon_options {
    struct_size: size_of::<persimmon_options>(),
    read_only: 0,
    cache_bytes: 0,
    staging_bytes: 0,
    commit_milliseconds: 0,
    read_cache_bytes: 0,
    compression: std::ptr::null(),
    deltas: std::ptr::null(),
    dedup: std::ptr::null(),
    dedup_bytes: 0,
};

/// # Safety
/// `told` is NULL or a string.
unsafe fn compression(told: *const c_char) -> Result<Option<Compression>> {
    if told.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    let told = unsafe { utf8(told, "the compression") }?;
    let Some(compression) = Compression::parse(told) else {
        return Err(Failure::invalid(format!(
            "the compression '{told}' is none of none, lz4, zstd, and zstd:1 to zstd:15"
        )));
    };
    Ok(Some(compression))
}

/// # Safety
/// As of [`persimmon_create`].
unsafe fn create(options: *const persimmon_create_options) -> Result<Create> {
    // SAFETY: as the caller promises.
    let told = unsafe { sized(options, CREATE_DEFAULT, "persimmon_create_options") }?;
    let mut create = Create::sized(told.size_bytes);
    if !told.label.is_null() {
        // SAFETY: as the caller promises.
        create.label = unsafe { utf8(told.label, "the label") }?.to_owned();
    }
    create.zone_bytes = (told.zone_bytes != 0).then_some(told.zone_bytes);
    create.reserve_basis_points = told.reserve_basis_points_plus_one.checked_sub(1);
    if told.copies != 0 {
        create.copies = told.copies;
    }
    create.force = told.force != 0;
    create.data =
        DataRedundancy::of(told.data_copies.max(1), told.data_parity).map_err(Failure::invalid)?;
    // SAFETY: as the caller promises.
    create.compression = unsafe { compression(told.compression) }?;
    Ok(create)
}

/// # Safety
/// As of [`persimmon_open`].
unsafe fn opening(options: *const persimmon_options) -> Result<Options> {
    // SAFETY: as the caller promises.
    let told = unsafe { sized(options, OPTIONS_DEFAULT, "persimmon_options") }?;
    let mut options = Options::default();
    if told.read_only != 0 {
        options = Options::read_only();
    }
    let engine = &mut options.engine;
    let (cache, staging) = (engine.cache_bytes_max, engine.staging_bytes_max);
    engine.cache_bytes_max = at_least(told.cache_bytes, CACHE_BYTES_MIN, "cache", cache)?;
    engine.staging_bytes_max = at_least(told.staging_bytes, STAGING_BYTES_MIN, "staging", staging)?;
    engine.read_cache_bytes_max = usize::try_from(told.read_cache_bytes).unwrap_or(usize::MAX);
    // SAFETY: as the caller promises.
    if let Some(compression) = unsafe { compression(told.compression) }? {
        engine.compression = compression;
    }
    if !told.deltas.is_null() {
        // SAFETY: as the caller promises.
        let name = unsafe { utf8(told.deltas, "which blocks are written as deltas") }?;
        let Some(deltas) = Deltas::parse(name) else {
            let what = format!("'{name}' is none of none, memory, and always");
            return Err(Failure::invalid(what));
        };
        engine.deltas = deltas;
    }
    if !told.dedup.is_null() {
        // SAFETY: as the caller promises.
        let name = unsafe { utf8(told.dedup, "whether blocks are deduplicated") }?;
        let Some(dedup) = Dedup::parse(name) else {
            let what = format!("'{name}' is neither none nor write");
            return Err(Failure::invalid(what));
        };
        engine.dedup = dedup;
    }
    if told.dedup_bytes != 0 {
        engine.dedup_bytes_max = usize::try_from(told.dedup_bytes).unwrap_or(usize::MAX);
    }
    if told.commit_milliseconds != 0 {
        options.commit_interval = Duration::from_millis(told.commit_milliseconds);
    }
    Ok(options)
}

/// Makes a volume: in an image file, on a zoned drive, another block device, or two of them (`pair:META+DATA`).
/// `options` may be NULL where the device has a size: a zoned drive, a block device, an image that is there.
///
/// # Safety
/// `device` is a string; `options` is NULL or a structure that begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_create(
    device: *const c_char,
    options: *const persimmon_create_options,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (device, create) = unsafe { (path(device)?, create(options)?) };
        Ok(Filesystem::create(device, &create)?)
    })
}

/// Opens a volume. Background work begins. Give it back by [`persimmon_close`] or [`persimmon_abandon`].
/// `EBUSY`: another process has it open, or it is mounted.
///
/// # Safety
/// `device` is a string; `options` is NULL or a structure that begins with its size; `fs` is a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_open(
    device: *const c_char,
    options: *const persimmon_options,
    fs: *mut *mut persimmon_fs,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (device, options, fs) = unsafe { (path(device)?, opening(options)?, answer(fs)?) };
        fs.write(give(persimmon_fs::new(Filesystem::open(device, &options)?)));
        Ok(())
    })
}

/// Makes a volume of so many bytes in memory and opens it. It is gone with its last handle.
///
/// # Safety
/// `fs` is a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_open_in_memory(bytes: u64, fs: *mut *mut persimmon_fs) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let fs = unsafe { answer(fs) }?;
        fs.write(give(persimmon_fs::new(Filesystem::in_memory(bytes)?)));
        Ok(())
    })
}

/// One more handle to the same filesystem, to be given back like the first: by [`persimmon_release`], or by closing.
///
/// # Safety
/// `fs` is a handle; `clone` a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_clone(
    fs: *const persimmon_fs,
    clone: *mut *mut persimmon_fs,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, clone) = unsafe { (object(fs)?, answer(clone)?) };
        clone.write(give(persimmon_fs::new(fs.0.clone())));
        Ok(())
    })
}

/// Gives a handle back. The last one, open files included, closes the volume; an error then goes to the log alone.
///
/// # Safety
/// `fs` is NULL, or a handle that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_release(fs: *mut persimmon_fs) {
    call(|| {
        // SAFETY: as the caller promises.
        drop(unsafe { take(fs) }?);
        Ok(())
    });
}

/// Makes everything durable and closes the volume, and gives the handle back, also where that fails. Other handles and open
/// files answer `EROFS` to changes from then on; the device is let go of with the last of them.
///
/// # Safety
/// As of [`persimmon_release`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_close(fs: *mut persimmon_fs) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        match unsafe { take(fs) }? {
            Some(fs) => Ok(fs.0.close()?),
            None => Ok(()),
        }
    })
}

/// Leaves the volume as a crash of the process would, and gives the handle back. For tests.
///
/// # Safety
/// As of [`persimmon_release`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_abandon(fs: *mut persimmon_fs) {
    call(|| {
        // SAFETY: as the caller promises.
        if let Some(fs) = unsafe { take(fs) }? {
            fs.0.abandon();
        }
        Ok(())
    });
}

/// Space and inodes.
///
/// # Safety
/// `fs` is a handle; `space` a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_statfs(
    fs: *const persimmon_fs,
    space: *mut persimmon_space,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, space) = unsafe { (object(fs)?, answer(space)?) };
        space.write(fs.0.statfs()?.into());
        Ok(())
    })
}

/// Space and inodes of what a path means: where its project is limited, the limit (the soft one if there is one) and what is left of it, and
/// never more than the volume has.
///
/// # Safety
/// `fs` is a handle; `path` a string; `space` a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_statfs_path(
    fs: *const persimmon_fs,
    path: *const c_char,
    space: *mut persimmon_space,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        by_path(fs, path, |fs, path| {
            answer(space)?.write(fs.statfs_at(path)?.into());
            Ok(())
        })
    }
}
