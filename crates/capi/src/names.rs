//! Names, by path.

use std::ffi::{c_char, c_int};
use std::path::Path;

use persimmon::{Filesystem, RenameMode};

use crate::call::{Failure, Result, answer, bytes_mut, call, object, path};
use crate::persimmon_fs;

/// Does something with what a path names.
///
/// # Safety
/// `fs` is a handle; `path` a string.
pub(crate) unsafe fn by_path(
    fs: *const persimmon_fs,
    path: *const c_char,
    act: impl FnOnce(&Filesystem, &Path) -> Result<()>,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, path) = unsafe { (object(fs)?, crate::call::path(path)?) };
        act(&fs.0, path)
    })
}

/// Makes a directory, with permissions 0755.
///
/// # Safety
/// `fs` is a handle; `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_mkdir(fs: *const persimmon_fs, path: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { by_path(fs, path, |fs, path| Ok(fs.create_dir(path)?)) }
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
    unsafe { by_path(fs, path, |fs, path| Ok(fs.create_dir_all(path)?)) }
}

/// Removes a name of anything but a directory.
///
/// # Safety
/// `fs` is a handle; `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_unlink(fs: *const persimmon_fs, path: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { by_path(fs, path, |fs, path| Ok(fs.remove_file(path)?)) }
}

/// Removes an empty directory.
///
/// # Safety
/// `fs` is a handle; `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_rmdir(fs: *const persimmon_fs, path: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { by_path(fs, path, |fs, path| Ok(fs.remove_dir(path)?)) }
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
    unsafe { by_path(fs, path, |fs, path| Ok(fs.remove_dir_all(path)?)) }
}

/// Replace what has the new name.
pub const PERSIMMON_RENAME_REPLACE: u32 = 0;
/// Answer `EEXIST` where something has the new name.
pub const PERSIMMON_RENAME_NO_REPLACE: u32 = 1;
/// Swap the two.
pub const PERSIMMON_RENAME_EXCHANGE: u32 = 2;

/// Does something with what two paths name.
///
/// # Safety
/// `fs` is a handle; the paths are strings.
unsafe fn by_two_paths(
    fs: *const persimmon_fs,
    one: *const c_char,
    other: *const c_char,
    act: impl FnOnce(&Filesystem, &Path, &Path) -> Result<()>,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { by_path(fs, one, |fs, one| act(fs, one, path(other)?)) }
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
    // SAFETY: as the caller promises.
    unsafe {
        by_two_paths(fs, from, to, |fs, from, to| {
            let mode = match how {
                PERSIMMON_RENAME_REPLACE => RenameMode::Replace,
                PERSIMMON_RENAME_NO_REPLACE => RenameMode::NoReplace,
                PERSIMMON_RENAME_EXCHANGE => RenameMode::Exchange,
                _ => return Err(Failure::invalid("renaming has the ways 0, 1 and 2")),
            };
            Ok(fs.rename_with(from, to, mode)?)
        })
    }
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
    // SAFETY: as the caller promises.
    unsafe {
        by_two_paths(fs, original, link, |fs, original, link| {
            Ok(fs.hard_link(original, link)?)
        })
    }
}

/// Takes a snapshot of all files: all that was written before is in it, below `/.snapshots/` and the name. With `writable` other than 0 it
/// can be changed, without a change of anything else; otherwise never. The directory `/.snapshots` lists all. Durable with the next sync.
///
/// # Safety
/// `fs` is a handle; `name` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_take_snapshot(
    fs: *const persimmon_fs,
    name: *const c_char,
    writable: c_int,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        by_path(fs, name, |fs, name| {
            Ok(fs.take_snapshot(name, writable != 0)?)
        })
    }
}

/// Takes a snapshot of the snapshot `of`, as `persimmon_take_snapshot` does of all files. `ENOENT`: there is no snapshot `of`.
///
/// # Safety
/// `fs` is a handle; the names are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_take_snapshot_of(
    fs: *const persimmon_fs,
    of: *const c_char,
    name: *const c_char,
    writable: c_int,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        by_two_paths(fs, of, name, |fs, of, name| {
            Ok(fs.take_snapshot_of(of, name, writable != 0)?)
        })
    }
}

/// Deletes a snapshot with all that is in it. `EBUSY`: a file in it is open for writing. Snapshots that were taken of it stay.
///
/// # Safety
/// `fs` is a handle; `name` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_delete_snapshot(
    fs: *const persimmon_fs,
    name: *const c_char,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { by_path(fs, name, |fs, name| Ok(fs.delete_snapshot(name)?)) }
}

/// Gives a snapshot another name. `EEXIST`: another one has it.
///
/// # Safety
/// `fs` is a handle; the names are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_rename_snapshot(
    fs: *const persimmon_fs,
    name: *const c_char,
    new_name: *const c_char,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        by_two_paths(fs, name, new_name, |fs, name, new_name| {
            Ok(fs.rename_snapshot(name, new_name)?)
        })
    }
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
    // SAFETY: as the caller promises.
    unsafe {
        by_two_paths(fs, target, link, |fs, target, link| {
            Ok(fs.symlink(target, link)?)
        })
    }
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
    // SAFETY: as the caller promises.
    unsafe {
        by_two_paths(fs, from, to, |fs, from, to| {
            Ok(fs.copy(from, to).map(drop)?)
        })
    }
}

/// Where an answer of any length goes.
pub(crate) struct Room {
    pub(crate) buffer: *mut u8,
    pub(crate) bytes: usize,
    pub(crate) length: *mut usize,
}

/// Asks for bytes of what a path names, writes what fits of them to a buffer, and tells their whole length: `ERANGE` where it is longer.
///
/// # Safety
/// `fs` is a handle; `path` a string; the room's `buffer` has its `bytes`, and its `length` is a place for the answer.
pub(crate) unsafe fn fetch(
    fs: *const persimmon_fs,
    path: *const c_char,
    room: Room,
    ask: impl FnOnce(&Filesystem, &Path) -> Result<Vec<u8>>,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { by_path(fs, path, |fs, path| fill(&room, &ask(fs, path)?)) }
}

/// Writes what fits of bytes to a buffer, and tells their whole length: `ERANGE` where it is longer.
///
/// # Safety
/// The room's `buffer` has its `bytes`, and its `length` is a place for the answer.
pub(crate) unsafe fn fill(room: &Room, value: &[u8]) -> Result<()> {
    // SAFETY: as the caller promises.
    let (buffer, length) = unsafe { (bytes_mut(room.buffer, room.bytes)?, answer(room.length)?) };
    length.write(value.len());
    for (to, from) in buffer.iter_mut().zip(value) {
        *to = *from;
    }
    if value.len() <= buffer.len() {
        Ok(())
    } else {
        Err(Failure::too_short(value.len()))
    }
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
