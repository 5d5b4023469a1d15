//! Attributes and extended attributes, by path.

use std::ffi::{c_char, c_int};

use persimmon::{SetAttr, SetTime, Timestamp};

use crate::call::{Failure, answer, bytes, call, utf8};
use crate::names::{Room, by_path, fetch};
use crate::{persimmon_fs, persimmon_stat, persimmon_time};

/// Attributes of what a path means, links followed.
///
/// # Safety
/// `fs` is a handle; `path` a string; `stat` a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_stat_path(
    fs: *const persimmon_fs,
    path: *const c_char,
    stat: *mut persimmon_stat,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        by_path(fs, path, |fs, path| {
            answer(stat)?.write(fs.metadata(path)?.into());
            Ok(())
        })
    }
}

/// Attributes of what a path names, a link at its end not followed.
///
/// # Safety
/// As of [`persimmon_stat_path`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_lstat_path(
    fs: *const persimmon_fs,
    path: *const c_char,
    stat: *mut persimmon_stat,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        by_path(fs, path, |fs, path| {
            answer(stat)?.write(fs.symlink_metadata(path)?.into());
            Ok(())
        })
    }
}

/// Changes attributes of what a path means.
///
/// # Safety
/// `fs` is a handle; `path` a string.
unsafe fn set(fs: *const persimmon_fs, path: *const c_char, set: &SetAttr) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        by_path(fs, path, |fs, path| {
            Ok(fs.set_attributes(path, set).map(drop)?)
        })
    }
}

/// Changes permissions: the lowest twelve bits of `mode`.
///
/// # Safety
/// `fs` is a handle; `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_chmod(
    fs: *const persimmon_fs,
    path: *const c_char,
    mode: u32,
) -> c_int {
    let mode = SetAttr {
        mode: Some(mode),
        ..SetAttr::default()
    };
    // SAFETY: as the caller promises.
    unsafe { set(fs, path, &mode) }
}

/// Changes owner and group; `UINT32_MAX` leaves one as it is.
///
/// # Safety
/// `fs` is a handle; `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_chown(
    fs: *const persimmon_fs,
    path: *const c_char,
    uid: u32,
    gid: u32,
) -> c_int {
    let owner = SetAttr {
        uid: (uid != u32::MAX).then_some(uid),
        gid: (gid != u32::MAX).then_some(gid),
        ..SetAttr::default()
    };
    // SAFETY: as the caller promises.
    unsafe { set(fs, path, &owner) }
}

/// Changes the size of a file.
///
/// # Safety
/// `fs` is a handle; `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_truncate(
    fs: *const persimmon_fs,
    path: *const c_char,
    size: u64,
) -> c_int {
    let size = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    // SAFETY: as the caller promises.
    unsafe { set(fs, path, &size) }
}

/// Changes times of access and of change of content; NULL leaves one as it is. `EINVAL`: a time of 10^9 nanoseconds or more.
///
/// # Safety
/// `fs` is a handle; `path` a string; each time is NULL or a structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_set_times(
    fs: *const persimmon_fs,
    path: *const c_char,
    atime: *const persimmon_time,
    mtime: *const persimmon_time,
) -> c_int {
    let time = |pointer: *const persimmon_time| {
        // SAFETY: as the caller promises.
        let Some(time) = (unsafe { pointer.as_ref() }) else {
            return Ok(None);
        };
        let nanoseconds = time.nanoseconds;
        if nanoseconds >= 1_000_000_000 {
            return Err(Failure::invalid(format!(
                "{nanoseconds} nanoseconds of a time: there are less than 1000000000"
            )));
        }
        Ok(Some(SetTime::At(Timestamp {
            seconds: time.seconds,
            nanoseconds,
        })))
    };
    let times = || {
        Ok(SetAttr {
            atime: time(atime)?,
            mtime: time(mtime)?,
            ..SetAttr::default()
        })
    };
    match times() {
        // SAFETY: as the caller promises.
        Ok(times) => unsafe { set(fs, path, &times) },
        Err(failure) => call(|| Err(failure)),
    }
}

/// Value of an extended attribute. `ERANGE`: the buffer is shorter than `length`, which is told. `ENODATA`: there is none.
///
/// # Safety
/// `fs` is a handle; `path` and `name` are strings; `buffer` has `buffer_bytes`; `length` is a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_getxattr(
    fs: *const persimmon_fs,
    path: *const c_char,
    name: *const c_char,
    buffer: *mut u8,
    buffer_bytes: usize,
    length: *mut usize,
) -> c_int {
    let room = Room {
        buffer,
        bytes: buffer_bytes,
        length,
    };
    // SAFETY: as the caller promises.
    unsafe {
        fetch(fs, path, room, |fs, path| {
            Ok(fs.xattr(path, utf8(name, "the name")?)?)
        })
    }
}

/// Sets an extended attribute.
///
/// # Safety
/// `fs` is a handle; `path` and `name` are strings; `value` has `value_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_setxattr(
    fs: *const persimmon_fs,
    path: *const c_char,
    name: *const c_char,
    value: *const u8,
    value_bytes: usize,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        by_path(fs, path, |fs, path| {
            Ok(fs.set_xattr(path, utf8(name, "the name")?, bytes(value, value_bytes)?)?)
        })
    }
}

/// Names of the extended attributes, each with a zero byte behind it. `ERANGE`: the buffer is shorter than `length`.
///
/// # Safety
/// `fs` is a handle; `path` a string; `buffer` has `buffer_bytes`; `length` is a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_listxattr(
    fs: *const persimmon_fs,
    path: *const c_char,
    buffer: *mut u8,
    buffer_bytes: usize,
    length: *mut usize,
) -> c_int {
    let room = Room {
        buffer,
        bytes: buffer_bytes,
        length,
    };
    // SAFETY: as the caller promises.
    unsafe {
        fetch(fs, path, room, |fs, path| {
            let mut list = Vec::new();
            for name in fs.list_xattrs(path)? {
                list.extend_from_slice(&name);
                list.push(0);
            }
            Ok(list)
        })
    }
}

/// Removes an extended attribute.
///
/// # Safety
/// `fs` is a handle; `path` and `name` are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_removexattr(
    fs: *const persimmon_fs,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        by_path(fs, path, |fs, path| {
            Ok(fs.remove_xattr(path, utf8(name, "the name")?)?)
        })
    }
}
