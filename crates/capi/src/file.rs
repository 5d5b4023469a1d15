//! Open files.

use std::ffi::{c_char, c_int};

use persimmon::{Allocate, File, OpenOptions, SeekTo};

use crate::call::{
    Failure, Result, answer, bytes, bytes_mut, call, check_len, give, object, path, take,
};
use crate::process::{Object, Process};
use crate::types::lifetime;
use crate::{
    PERSIMMON_OPEN_APPEND, PERSIMMON_OPEN_CREATE, PERSIMMON_OPEN_CREATE_NEW, PERSIMMON_OPEN_DIRECT,
    PERSIMMON_OPEN_KEEP_FLUSHED, PERSIMMON_OPEN_READ, PERSIMMON_OPEN_SYNC, PERSIMMON_OPEN_TRUNCATE,
    PERSIMMON_OPEN_WRITE, PERSIMMON_OPEN_WRITE_THROUGH, persimmon_fs, persimmon_space,
    persimmon_stat,
};

/// An open file. It keeps the volume open.
pub struct persimmon_file(pub(crate) File, Process);

impl Object for persimmon_file {
    const WHAT: &'static str = "the file";

    fn process(&self) -> Process {
        self.1
    }
}

/// All flags there are.
const FLAGS: u32 = PERSIMMON_OPEN_READ
    | PERSIMMON_OPEN_WRITE
    | PERSIMMON_OPEN_APPEND
    | PERSIMMON_OPEN_CREATE
    | PERSIMMON_OPEN_CREATE_NEW
    | PERSIMMON_OPEN_TRUNCATE
    | PERSIMMON_OPEN_SYNC
    | PERSIMMON_OPEN_WRITE_THROUGH
    | PERSIMMON_OPEN_KEEP_FLUSHED
    | PERSIMMON_OPEN_DIRECT;

fn options(flags: u32, mode: u32) -> Result<OpenOptions> {
    if flags & !FLAGS != 0 {
        return Err(Failure::invalid(format!(
            "flags {:#x} of an open are not known",
            flags & !FLAGS
        )));
    }
    let is = |flag: u32| flags & flag != 0;
    Ok(OpenOptions::new()
        .read(is(PERSIMMON_OPEN_READ))
        .write(is(PERSIMMON_OPEN_WRITE) || is(PERSIMMON_OPEN_APPEND))
        .append(is(PERSIMMON_OPEN_APPEND))
        .create(is(PERSIMMON_OPEN_CREATE))
        .create_new(is(PERSIMMON_OPEN_CREATE_NEW))
        .truncate(is(PERSIMMON_OPEN_TRUNCATE))
        .sync(is(PERSIMMON_OPEN_SYNC))
        .write_through(is(PERSIMMON_OPEN_WRITE_THROUGH))
        .keep_flushed(is(PERSIMMON_OPEN_KEEP_FLUSHED))
        .direct(is(PERSIMMON_OPEN_DIRECT))
        .mode(mode))
}

/// Opens a file: `flags` are of `PERSIMMON_OPEN_*`, `mode` the permissions of one that is made, before the mask 022. Give it
/// back by [`persimmon_file_close`].
///
/// # Safety
/// `fs` is a handle; `path` a string; `file` a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_open_file(
    fs: *const persimmon_fs,
    path: *const c_char,
    flags: u32,
    mode: u32,
    file: *mut *mut persimmon_file,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, path, file) = unsafe { (object(fs)?, self::path(path)?, answer(file)?) };
        let opened = fs.0.open_file(path, &options(flags, mode)?)?;
        file.write(give(persimmon_file(opened, Process::current())));
        Ok(())
    })
}

/// Gives a file back. What was written and not synced may be lost in a crash of the machine, and what was neither synced, nor flushed, nor
/// written through, with the process.
///
/// # Safety
/// `file` is NULL, or an open file that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_file_close(file: *mut persimmon_file) {
    call(|| {
        // SAFETY: as the caller promises.
        drop(unsafe { take(file) }?);
        Ok(())
    });
}

/// Reads at `offset` and tells how many bytes: fewer than asked for only at the end of the file.
///
/// # Safety
/// `file` is open; `buffer` has `len` bytes; `done` is a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_pread(
    file: *const persimmon_file,
    buffer: *mut u8,
    len: usize,
    offset: u64,
    done: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (file, buffer, done) =
            unsafe { (object(file)?, bytes_mut(buffer, len)?, answer(done)?) };
        done.write(file.0.read_at(buffer, offset)?);
        Ok(())
    })
}

/// Writes all of the data at `offset`; through a file opened to append, at its end.
///
/// # Safety
/// `file` is open; `data` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_pwrite(
    file: *const persimmon_file,
    data: *const u8,
    len: usize,
    offset: u64,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (file, data) = unsafe { (object(file)?, bytes(data, len)?) };
        Ok(file.0.write_at(data, offset)?)
    })
}

/// `persimmon_pwrite` and `persimmon_flush` in one: for logs, which flush what they append record by record. After an error the data may
/// be in the file all the same.
///
/// # Safety
/// `file` is open; `data` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_pwrite_flush(
    file: *const persimmon_file,
    data: *const u8,
    len: usize,
    offset: u64,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (file, data) = unsafe { (object(file)?, bytes(data, len)?) };
        Ok(file.0.write_flushed_at(data, offset)?)
    })
}

/// Writes all of the data at the end of a file opened to append; `end`, which may be NULL, is told the offset behind it.
///
/// # Safety
/// `file` is open; `data` has `len` bytes; `end` is NULL or a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_append(
    file: *const persimmon_file,
    data: *const u8,
    len: usize,
    end: *mut u64,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (file, data) = unsafe { (object(file)?, bytes(data, len)?) };
        let ended = file.0.append(data)?;
        // SAFETY: as the caller promises.
        if let Ok(end) = unsafe { answer(end) } {
            end.write(ended);
        }
        Ok(())
    })
}

/// A read of a batch.
#[repr(C)]
pub struct persimmon_read_request {
    /// Where in the file.
    pub offset: u64,
    /// Where to.
    pub buffer: *mut u8,
    /// Bytes asked for.
    pub len: usize,
    /// Told: bytes read.
    pub done: usize,
    /// Told: 0, or an error number.
    pub error: c_int,
}

/// Reads several ranges as one batch: what lies on the device is asked for together. Each request is told its own result, also where
/// nothing could be read at all; the answer is 0 only where none failed, and else that of the first one that did.
///
/// # Safety
/// `file` is open; `requests` has `count` elements whose buffers have the bytes they say and do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_read_batch(
    file: *const persimmon_file,
    requests: *mut persimmon_read_request,
    count: usize,
) -> c_int {
    // Before anything is written to them.
    let sized = || {
        let bytes = count.saturating_mul(size_of::<persimmon_read_request>());
        check_len(bytes, "the list of requests")
    };
    if sized().is_err() {
        return call(sized);
    }
    // Until each is told otherwise: who looks at the requests alone takes no failed call for reads of nothing.
    let failed = |errno| {
        if !requests.is_null() {
            for at in 0..count {
                // SAFETY: so many are there, as the caller promises; fields that are not read need no value yet.
                unsafe {
                    let request = requests.add(at);
                    (&raw mut (*request).done).write(0);
                    (&raw mut (*request).error).write(errno);
                }
            }
        }
    };
    failed(libc::EIO);
    let mut whole = true;
    let errno = call(|| {
        // SAFETY: as the caller promises.
        let file = unsafe { object(file) }?;
        if count == 0 {
            return Ok(());
        }
        if requests.is_null() {
            return Err(Failure::invalid("the requests are NULL"));
        }
        // SAFETY: as the caller promises.
        let requests = unsafe { std::slice::from_raw_parts_mut(requests, count) };
        let mut ranges = Vec::with_capacity(count);
        for request in requests.iter() {
            // SAFETY: as the caller promises.
            ranges.push((request.offset, unsafe {
                bytes_mut(request.buffer, request.len)
            }?));
        }
        let read = file.0.read_batch(&mut ranges)?;
        whole = false;
        let mut first = None;
        for (request, result) in requests.iter_mut().zip(read) {
            match result {
                Ok(done) => (request.done, request.error) = (done, 0),
                Err(error) => {
                    let failure = Failure::from(error);
                    request.error = failure.errno();
                    first = first.or(Some(failure));
                }
            }
        }
        first.map_or(Ok(()), Err)
    });
    if whole {
        failed(errno);
    }
    errno
}

/// What was written to a file so far outlives the death of the process once this has returned, as with `PERSIMMON_OPEN_WRITE_THROUGH`, or
/// with `PERSIMMON_OPEN_KEEP_FLUSHED` if it was opened so;
/// the power may still take it: that is what `persimmon_fsync` is for.
///
/// # Safety
/// `file` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_flush(file: *const persimmon_file) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        Ok(unsafe { object(file) }?.0.flush_through()?)
    })
}

/// Has what was written so far, to this file and others, written to the device soon, and waits for nothing. Nothing is promised of it.
///
/// # Safety
/// `file` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_start_write_back(file: *const persimmon_file) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        unsafe { object(file) }?.0.start_write_back();
        Ok(())
    })
}

/// Makes a file durable with its name.
///
/// # Safety
/// `file` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_fsync(file: *const persimmon_file) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        Ok(unsafe { object(file) }?.0.sync_all()?)
    })
}

/// Changes the size.
///
/// # Safety
/// `file` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_ftruncate(file: *const persimmon_file, size: u64) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        Ok(unsafe { object(file) }?.0.set_len(size)?)
    })
}

/// Attributes.
///
/// # Safety
/// `file` is open; `stat` a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_fstat(
    file: *const persimmon_file,
    stat: *mut persimmon_stat,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (file, stat) = unsafe { (object(file)?, answer(stat)?) };
        stat.write(file.0.metadata()?.into());
        Ok(())
    })
}

/// Space and inodes, as of `persimmon_statfs_path`.
///
/// # Safety
/// `file` is open; `space` a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_fstatfs(
    file: *const persimmon_file,
    space: *mut persimmon_space,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (file, space) = unsafe { (object(file)?, answer(space)?) };
        space.write(file.0.statfs()?.into());
        Ok(())
    })
}

/// Set space aside for a range; the size grows with it.
pub const PERSIMMON_ALLOCATE_RESERVE: u32 = 0;
/// The same; the size stays.
pub const PERSIMMON_ALLOCATE_RESERVE_KEEP_SIZE: u32 = 1;
/// Make it a hole.
pub const PERSIMMON_ALLOCATE_PUNCH: u32 = 2;
/// Have it read as zeros, with space set aside; the size grows with it.
pub const PERSIMMON_ALLOCATE_ZERO: u32 = 3;
/// Take it out: what is behind follows what is before. Whole blocks of 4096 bytes, which end before the file does.
pub const PERSIMMON_ALLOCATE_COLLAPSE: u32 = 4;
/// Put it in, as a hole: what is there moves behind it. Whole blocks of 4096 bytes, which begin before the file ends.
pub const PERSIMMON_ALLOCATE_INSERT: u32 = 5;

/// Changes how a range is backed: `how` is one of `PERSIMMON_ALLOCATE_*`.
///
/// # Safety
/// `file` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_allocate(
    file: *const persimmon_file,
    offset: u64,
    len: u64,
    how: u32,
) -> c_int {
    call(|| {
        let what = match how {
            PERSIMMON_ALLOCATE_RESERVE => Allocate::Reserve { keep_size: false },
            PERSIMMON_ALLOCATE_RESERVE_KEEP_SIZE => Allocate::Reserve { keep_size: true },
            PERSIMMON_ALLOCATE_PUNCH => Allocate::Punch,
            PERSIMMON_ALLOCATE_ZERO => Allocate::Zero { keep_size: false },
            PERSIMMON_ALLOCATE_COLLAPSE => Allocate::Collapse,
            PERSIMMON_ALLOCATE_INSERT => Allocate::Insert,
            _ => return Err(Failure::invalid("allocating has the ways 0 to 5")),
        };
        // SAFETY: as the caller promises.
        Ok(unsafe { object(file) }?.0.allocate(offset, len, what)?)
    })
}

/// Finds the next data, or with `hole` the next hole, at or after `offset`: `ENXIO` past the end.
///
/// # Safety
/// `file` is open; `found` a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_seek(
    file: *const persimmon_file,
    offset: u64,
    hole: c_int,
    found: *mut u64,
) -> c_int {
    call(|| {
        let to = if hole != 0 {
            SeekTo::Hole
        } else {
            SeekTo::Data
        };
        // SAFETY: as the caller promises.
        let (file, found) = unsafe { (object(file)?, answer(found)?) };
        match file.0.seek_to(offset, to)? {
            Some(at) => {
                found.write(at);
                Ok(())
            }
            None => Err(Failure::past_end()),
        }
    })
}

/// Tells how long what is written through this file from now on will live: one of `PERSIMMON_LIFETIME_*`, or 0 to take that
/// back.
///
/// # Safety
/// `file` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_set_lifetime(file: *const persimmon_file, told: u32) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let file = unsafe { object(file) }?;
        Ok(file.0.set_lifetime(lifetime(told)?)?)
    })
}

/// Takes the lock on the whole file, exclusively or shared, without waiting: `EAGAIN` where another open file has it. It ends with the
/// file.
///
/// # Safety
/// `file` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_lock(file: *const persimmon_file, exclusive: c_int) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        Ok(unsafe { object(file) }?.0.try_lock(exclusive != 0)?)
    })
}

/// Lets go of that lock.
///
/// # Safety
/// `file` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_unlock(file: *const persimmon_file) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        Ok(unsafe { object(file) }?.0.unlock()?)
    })
}
