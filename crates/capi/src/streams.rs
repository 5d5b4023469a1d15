//! Snapshots sent and received.

use std::ffi::{CString, OsStr, c_char, c_int, c_void};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use persimmon::stream::{
    Position, ReceiveError, SendError, SendOptions, SourceError, VolumeTarget, Warning, Watch,
    resume_token,
};

use crate::call::{Failure, Result, call, object, text, utf8};
use crate::names::{Room, fill};
use crate::persimmon_fs;

/// Bytes that are written to a stream at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Told of something that the volume cannot have of what is received: where, what, and `data` as it was given.
pub type persimmon_warning_visit =
    Option<unsafe extern "C" fn(data: *mut c_void, path: *const c_char, what: *const c_char)>;

impl From<SendError> for Failure {
    fn from(error: SendError) -> Failure {
        let errno = match &error {
            SendError::Write(error) => error.raw_os_error().unwrap_or(libc::EIO),
            SendError::OtherToken => libc::EINVAL,
            SendError::Source(SourceError::NoSnapshot(_)) => libc::ENOENT,
            SendError::Source(SourceError::Gone) => libc::ESTALE,
            SendError::Source(SourceError::Writable(_) | SourceError::SameSnapshot) => libc::EINVAL,
            SendError::Source(_) => libc::EIO,
        };
        Failure::new(errno, error.to_string())
    }
}

impl From<ReceiveError> for Failure {
    fn from(error: ReceiveError) -> Failure {
        let errno = match &error {
            ReceiveError::Read(error) => error.raw_os_error().unwrap_or(libc::EIO),
            ReceiveError::Target { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            ReceiveError::NothingBegun => libc::ENOENT,
            ReceiveError::Cut | ReceiveError::NoHeader => libc::ENODATA,
            ReceiveError::NotEmpty => libc::ENOTEMPTY,
            ReceiveError::State(_) => libc::EIO,
            _ => libc::EINVAL,
        };
        Failure::new(errno, error.to_string())
    }
}

/// The caller's file descriptor, as long as this call takes.
fn stream(fd: c_int) -> Result<File> {
    if fd < 0 {
        return Err(Failure::new(
            libc::EBADF,
            "the file descriptor is negative".to_owned(),
        ));
    }
    // SAFETY: the caller keeps it open during the call; a number that is none is told by the system.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let owned = borrowed.try_clone_to_owned();
    owned.map(File::from).map_err(|error| {
        Failure::new(
            error.raw_os_error().unwrap_or(libc::EBADF),
            format!("the file descriptor: {error}"),
        )
    })
}

/// A string that may be NULL.
///
/// # Safety
/// As of [`text`].
unsafe fn optional<'a>(pointer: *const c_char, what: &str) -> Result<Option<&'a [u8]>> {
    match pointer.is_null() {
        true => Ok(None),
        // SAFETY: as the caller promises.
        false => unsafe { text(pointer, what) }.map(Some),
    }
}

/// Writes the stream of a read-only snapshot to a file descriptor: a file, a pipe, a socket. With `from` other than NULL, of what it has
/// other than that snapshot, which the receiver has. With `token` other than NULL it goes on where a receiver is
/// (`persimmon_resume_token`). Where this fails the stream has no end record, and no receiver takes it for whole.
///
/// # Safety
/// `fs` is a handle; `name` is a string, `from` and `token` are strings or NULL; `fd` stays open during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_send_snapshot(
    fs: *const persimmon_fs,
    name: *const c_char,
    from: *const c_char,
    token: *const c_char,
    fd: c_int,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let (fs, name, from) = unsafe {
            (
                object(fs)?,
                text(name, "the snapshot")?,
                optional(from, "the snapshot to send from")?,
            )
        };
        let resume = match token.is_null() {
            true => None,
            // SAFETY: as the caller promises.
            false => Some(unsafe { utf8(token, "the token") }?),
        };
        let resume = resume.map(Position::of_token).transpose();
        let resume = resume.map_err(|error| Failure::invalid(error.to_string()))?;
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, stream(fd)?);
        let options = SendOptions {
            resume: resume.as_ref(),
            plain: false,
        };
        let (name, from) = (OsStr::from_bytes(name), from.map(OsStr::from_bytes));
        fs.0.send_snapshot(name, from, &mut out, &options, |_| {})?;
        out.flush().map_err(SendError::Write)?;
        Ok(())
    })
}

/// Brings the stream of a snapshot, read from a file descriptor, into the root of the volume: a full one into an empty volume, one of what
/// differs into one that has what it differs from. Where what comes cannot be there as it was, `warn`, which may be NULL, is called. No
/// snapshot is taken: one keeps what was received, while the next stream comes. `ENODATA`: the stream was cut; `persimmon_resume_token`
/// tells how to go on. `EINVAL`: it was altered, or does not belong here.
///
/// # Safety
/// `fs` is a handle; `fd` stays open during the call; `warn` may be called with `data`, and does not keep what it is told.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_receive_snapshot(
    fs: *const persimmon_fs,
    fd: c_int,
    warn: persimmon_warning_visit,
    data: *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let fs = unsafe { object(fs) }?;
        let mut watch = Warnings { warn, data };
        fs.0.receive_snapshot(stream(fd)?, &mut watch)?;
        Ok(())
    })
}

struct Warnings {
    warn: persimmon_warning_visit,
    data: *mut c_void,
}

impl Watch for Warnings {
    fn warn(&mut self, warning: Warning) {
        let (Some(warn), Ok(path), Ok(what)) = (
            self.warn,
            CString::new(warning.path),
            CString::new(warning.what),
        ) else {
            return;
        };
        // SAFETY: as the caller of `persimmon_receive_snapshot` promises.
        unsafe { warn(self.data, path.as_ptr(), what.as_ptr()) };
    }

    fn progress(&mut self, _: u64, _: u64) {}
}

/// What a sender needs to go on with a stream that was cut: text, without a zero byte at its end. `ENOENT`: nothing was begun here that is
/// not done. `ERANGE`: the buffer is shorter than `length`, which is told.
///
/// # Safety
/// `fs` is a handle; `buffer` has `buffer_bytes`; `length` is a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_resume_token(
    fs: *const persimmon_fs,
    buffer: *mut u8,
    buffer_bytes: usize,
    length: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let fs = unsafe { object(fs) }?;
        let token = resume_token(&mut VolumeTarget::new(&fs.0))?;
        let room = Room {
            buffer,
            bytes: buffer_bytes,
            length,
        };
        // SAFETY: as the caller promises.
        unsafe { fill(&room, token.as_bytes()) }
    })
}
