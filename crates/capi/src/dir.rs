//! Listing directories.

use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use persimmon::ReadDir;

use crate::call::{Failure, answer, call, give, object, object_mut, path, take};
use crate::persimmon_fs;
use crate::process::{Object, Process};
use crate::types::kind;

/// A directory that is listed.
pub struct persimmon_dir {
    entries: ReadDir,
    name: CString,
    process: Process,
}

impl Object for persimmon_dir {
    const WHAT: &'static str = "the directory";

    fn process(&self) -> Process {
        self.process
    }
}

/// An entry of a directory.
#[repr(C)]
pub struct persimmon_dirent {
    /// The inode it names.
    pub ino: u64,
    /// One of `PERSIMMON_KIND_*`.
    pub kind: u32,
    /// Its name, valid until the next entry is asked for or the directory is given back; NULL behind the last entry.
    pub name: *const c_char,
}

/// Begins to list a directory. Give it back by [`persimmon_closedir`].
///
/// # Safety
/// `fs` is a handle; `path` a string; `dir` a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_opendir(
    fs: *const persimmon_fs,
    path: *const c_char,
    dir: *mut *mut persimmon_dir,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, path, dir) = unsafe { (object(fs)?, crate::call::path(path)?, answer(dir)?) };
        dir.write(give(persimmon_dir {
            entries: fs.0.read_dir(path)?,
            name: CString::default(),
            process: Process::current(),
        }));
        Ok(())
    })
}

/// The next entry, in the directory's own order and without the dots; behind the last one its name is NULL.
///
/// # Safety
/// `dir` came from [`persimmon_opendir`] and is used by no other thread now; `entry` is a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_readdir(
    dir: *mut persimmon_dir,
    entry: *mut persimmon_dirent,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (dir, answer) = unsafe { (object_mut(dir)?, answer(entry)?) };
        let Some(entry) = dir.entries.next().transpose()? else {
            answer.write(persimmon_dirent {
                ino: 0,
                kind: 0,
                name: std::ptr::null(),
            });
            return Ok(());
        };
        dir.name = CString::new(entry.file_name().as_bytes())
            .map_err(|_| Failure::invalid("an entry has a name with a zero byte"))?;
        answer.write(persimmon_dirent {
            ino: entry.ino().0,
            kind: kind(entry.kind()),
            name: dir.name.as_ptr(),
        });
        Ok(())
    })
}

/// Gives a directory back.
///
/// # Safety
/// `dir` is NULL, or came from [`persimmon_opendir`] and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_closedir(dir: *mut persimmon_dir) {
    call(|| {
        // SAFETY: as the caller promises.
        drop(unsafe { take(dir) }?);
        Ok(())
    });
}

/// Makes all changes of names so far durable, in every directory. `path` has to be a directory.
///
/// # Safety
/// `fs` is a handle; `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_sync_dir(fs: *const persimmon_fs, path: *const c_char) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, path) = unsafe { (object(fs)?, self::path(path)?) };
        Ok(fs.0.sync_dir(path)?)
    })
}
