//! Names and attributes, by path.

use std::ffi::{c_char, c_int};
use std::path::Path;

use persimmon::{Filesystem, RenameMode, SetAttr, SetTime, Timestamp};

use crate::call::{Failure, Result, answer, bytes, bytes_mut, call, object, path, utf8};
use crate::{persimmon_fs, persimmon_stat, persimmon_time};

/// Does something with what a path names.
///
/// # Safety
/// `fs` is a handle; `path` a string.
unsafe fn by_path(
    fs: *const persimmon_fs,
    path: *const c_char,
    act: impl FnOnce(&Filesystem, &Path) -> persimmon::Result<()>,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, path) = unsafe { (object(fs, "the filesystem")?, crate::call::path(path)?) };
        Ok(act(&fs.0, path)?)
    })
}

/// Makes a directory, with permissions 0755.
///
/// # Safety
/// `fs` is a handle; `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_mkdir(fs: *const persimmon_fs, path: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { by_path(fs, path, |fs, path| Filesystem::create_dir(fs, path)) }
}

/// Makes a directory and those above it that are missing.
///
/// # Safety
/// `fs` is a handle; `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_mkdir_all(
    fs: *const persimmon_fs,
    path: *const c_char,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { by_path(fs, path, |fs, path| Filesystem::create_dir_all(fs, path)) }
}

/// Removes a name of anything but a directory.
///
/// # Safety
/// `fs` is a handle; `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_unlink(fs: *const persimmon_fs, path: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { by_path(fs, path, |fs, path| Filesystem::remove_file(fs, path)) }
}

/// Removes an empty directory.
///
/// # Safety
/// `fs` is a handle; `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_rmdir(fs: *const persimmon_fs, path: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { by_path(fs, path, |fs, path| Filesystem::remove_dir(fs, path)) }
}

/// Removes a file, a link, or a directory with everything in it.
///
/// # Safety
/// `fs` is a handle; `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_remove_all(
    fs: *const persimmon_fs,
    path: *const c_char,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { by_path(fs, path, |fs, path| Filesystem::remove_dir_all(fs, path)) }
}

/// Replace what has the new name.
pub const PERSIMMON_RENAME_REPLACE: u32 = 0;
/// Answer `EEXIST` where something has the new name.
pub const PERSIMMON_RENAME_NO_REPLACE: u32 = 1;
/// Swap the two.
pub const PERSIMMON_RENAME_EXCHANGE: u32 = 2;

/// Two paths of the caller's.
///
/// # Safety
/// Both are strings.
unsafe fn two<'a>(one: *const c_char, other: *const c_char) -> Result<(&'a Path, &'a Path)> {
    // SAFETY: as the caller promises.
    Ok(unsafe { (path(one)?, path(other)?) })
}

/// Renames a file or directory: atomic, also against crashes; `how` is one of `PERSIMMON_RENAME_*`.
///
/// # Safety
/// `fs` is a handle; the paths are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_rename(
    fs: *const persimmon_fs,
    from: *const c_char,
    to: *const c_char,
    how: u32,
) -> c_int {
    call(|| {
        let mode = match how {
            PERSIMMON_RENAME_REPLACE => RenameMode::Replace,
            PERSIMMON_RENAME_NO_REPLACE => RenameMode::NoReplace,
            PERSIMMON_RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Failure::invalid("renaming has the ways 0, 1 and 2")),
        };
        // SAFETY: as the caller promises.
        let (fs, (from, to)) = unsafe { (object(fs, "the filesystem")?, two(from, to)?) };
        Ok(fs.0.rename_with(from, to, mode)?)
    })
}

/// Gives a file one more name.
///
/// # Safety
/// `fs` is a handle; the paths are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_link(
    fs: *const persimmon_fs,
    original: *const c_char,
    link: *const c_char,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, (original, link)) =
            unsafe { (object(fs, "the filesystem")?, two(original, link)?) };
        Ok(fs.0.hard_link(original, link)?)
    })
}

/// Makes a symbolic link to `target`.
///
/// # Safety
/// `fs` is a handle; the others are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_symlink(
    fs: *const persimmon_fs,
    target: *const c_char,
    link: *const c_char,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, (target, link)) = unsafe { (object(fs, "the filesystem")?, two(target, link)?) };
        Ok(fs.0.symlink(target, link)?)
    })
}

/// Copies a file's content and permissions to another, which is made, or emptied first. Holes stay holes.
///
/// # Safety
/// `fs` is a handle; the paths are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_copy(
    fs: *const persimmon_fs,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, (from, to)) = unsafe { (object(fs, "the filesystem")?, two(from, to)?) };
        fs.0.copy(from, to)?;
        Ok(())
    })
}

/// Where an answer of any length goes.
struct Room {
    buffer: *mut u8,
    bytes: usize,
    length: *mut usize,
}

/// Asks for bytes of what a path names, writes what fits of them to a buffer, and tells their whole length: `ERANGE` where it is longer.
///
/// # Safety
/// `fs` is a handle; `path` a string; the room's `buffer` has its `bytes`, and its `length` is a place for the answer.
unsafe fn fetch(
    fs: *const persimmon_fs,
    path: *const c_char,
    room: Room,
    ask: impl FnOnce(&Filesystem, &Path) -> Result<Vec<u8>>,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, path, buffer, length) = unsafe {
            (
                object(fs, "the filesystem")?,
                crate::call::path(path)?,
                bytes_mut(room.buffer, room.bytes)?,
                answer(room.length)?,
            )
        };
        let value = ask(&fs.0, path)?;
        length.write(value.len());
        for (to, from) in buffer.iter_mut().zip(&value) {
            *to = *from;
        }
        match value.len() <= buffer.len() {
            true => Ok(()),
            false => Err(Failure::too_short(value.len())),
        }
    })
}

/// Target of a symbolic link, without a zero byte at its end. `ERANGE`: the buffer is shorter than `length`, which is told.
///
/// # Safety
/// `fs` is a handle; `path` a string; `buffer` has `buffer_bytes`; `length` is a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_readlink(
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
    unsafe { fetch(fs, path, room, |fs, path| Ok(fs.read_link(path)?)) }
}

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
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, path, stat) = unsafe {
            (
                object(fs, "the filesystem")?,
                crate::call::path(path)?,
                answer(stat)?,
            )
        };
        stat.write(fs.0.metadata(path)?.into());
        Ok(())
    })
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
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, path, stat) = unsafe {
            (
                object(fs, "the filesystem")?,
                crate::call::path(path)?,
                answer(stat)?,
            )
        };
        stat.write(fs.0.symlink_metadata(path)?.into());
        Ok(())
    })
}

/// Changes attributes of what a path means.
///
/// # Safety
/// `fs` is a handle; `path` a string.
unsafe fn set(fs: *const persimmon_fs, path: *const c_char, set: &SetAttr) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { by_path(fs, path, |fs, path| fs.set_attributes(path, set).map(drop)) }
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

/// Changes times of access and of change of content; NULL leaves one as it is.
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
        unsafe { pointer.as_ref() }.map(|time| {
            SetTime::At(Timestamp {
                seconds: time.seconds,
                nanoseconds: time.nanoseconds.min(999_999_999),
            })
        })
    };
    let times = SetAttr {
        atime: time(atime),
        mtime: time(mtime),
        ..SetAttr::default()
    };
    // SAFETY: as the caller promises.
    unsafe { set(fs, path, &times) }
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
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, path, name, value) = unsafe {
            (
                object(fs, "the filesystem")?,
                crate::call::path(path)?,
                utf8(name, "the name")?,
                bytes(value, value_bytes)?,
            )
        };
        Ok(fs.0.set_xattr(path, name, value)?)
    })
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
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, path, name) = unsafe {
            (
                object(fs, "the filesystem")?,
                crate::call::path(path)?,
                utf8(name, "the name")?,
            )
        };
        Ok(fs.0.remove_xattr(path, name)?)
    })
}
