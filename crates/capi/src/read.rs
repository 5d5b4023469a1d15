//! Reads that are submitted, and looked at later.

use std::ffi::c_int;

use persimmon::PendingRead;

use crate::call::{Failure, answer, bytes_mut, call, give, object, take};
use crate::persimmon_file;
use crate::process::{Object, Process};

/// A read under way. It keeps its file open.
pub struct persimmon_read(PendingRead, Process);

impl Object for persimmon_read {
    const WHAT: &'static str = "the read";

    fn process(&self) -> Process {
        self.1
    }
}

/// Submits a read. Give it back by [`persimmon_read_finish`] or [`persimmon_read_abort`].
///
/// # Safety
/// `file` is open; `read` a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_read_submit(
    file: *const persimmon_file,
    len: usize,
    offset: u64,
    read: *mut *mut persimmon_read,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (file, read) = unsafe { (object(file)?, answer(read)?) };
        read.write(give(persimmon_read(
            file.0.submit_read(len, offset)?,
            Process::current(),
        )));
        Ok(())
    })
}

/// 1 where [`persimmon_read_finish`] would return at once, else 0. Of NULL it is 1: finishing it fails at once.
///
/// # Safety
/// `read` is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_read_is_done(read: *const persimmon_read) -> c_int {
    let mut done = 1;
    call(|| {
        // SAFETY: as the caller promises.
        done = unsafe { object(read) }?.0.is_done().into();
        Ok(())
    });
    done
}

/// Waits for a read, copies at most `len` bytes of what was read to the buffer, tells how many, and gives the read back.
///
/// # Safety
/// `read` is under way and not used any more; `buffer` has `len` bytes; `done` is a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_read_finish(
    read: *mut persimmon_read,
    buffer: *mut u8,
    len: usize,
    done: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (read, buffer, done) = unsafe { (take(read)?, bytes_mut(buffer, len)?, answer(done)?) };
        let read = read.ok_or_else(|| Failure::invalid("the read is NULL"))?;
        let content = read.0.wait()?;
        let mut copied = 0;
        for (to, from) in buffer.iter_mut().zip(&content) {
            *to = *from;
            copied += 1;
        }
        done.write(copied);
        Ok(())
    })
}

/// Gives a read up: one that has not begun is never done.
///
/// # Safety
/// `read` is NULL, or under way and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_read_abort(read: *mut persimmon_read) {
    call(|| {
        // SAFETY: as the caller promises.
        drop(unsafe { take(read) }?);
        Ok(())
    });
}
