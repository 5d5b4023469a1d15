//! A call from C: arguments checked, panics caught, errors kept for who asks.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use persimmon::Error;

use crate::process::Object;

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Why a call fails: an error number, and words.
pub(crate) struct Failure {
    errno: c_int,
    message: String,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    #[cold]
    pub(crate) fn new(errno: c_int, message: String) -> Failure {
        Failure { errno, message }
    }

    #[cold]
    pub(crate) fn invalid(message: impl Into<String>) -> Failure {
        Failure {
            errno: libc::EINVAL,
            message: message.into(),
        }
    }
}

impl Failure {
    /// The caller's buffer is shorter than what goes there.
    pub(crate) fn too_short(needed: usize) -> Failure {
        Failure {
            errno: libc::ERANGE,
            message: format!("the buffer is too short: {needed} bytes are needed"),
        }
    }

    /// An offset behind the end of a file.
    pub(crate) fn past_end() -> Failure {
        Failure {
            errno: libc::ENXIO,
            message: "nothing of the kind at or behind that offset".into(),
        }
    }

    pub(crate) fn errno(&self) -> c_int {
        self.errno
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Failure {
        Failure {
            errno: error.errno(),
            message: chain(&error),
        }
    }
}

/// An error with those below it, unless it tells them itself.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        let told = error.to_string();
        if !text.contains(&told) {
            text = format!("{text}: {told}");
        }
        below = error.source();
    }
    text
}

/// Runs the body of a function: 0, or an error number whose message is kept.
#[inline]
pub(crate) fn call(body: impl FnOnce() -> Result<()>) -> c_int {
    crate::log::begin();
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(failure)) => failed(failure),
        Err(panic) => failed(panicked(&*panic)),
    }
}

#[cold]
fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let what = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    // A thread that is ending may have nothing left to log with: that panics too, where nobody catches it.
    let _ = catch_unwind(|| tracing::error!("a call panicked: {what}"));
    Failure {
        errno: libc::EIO,
        message: format!("a bug in libpersimmon, please report it: {what}"),
    }
}

/// Keeps the message.
#[cold]
fn failed(failure: Failure) -> c_int {
    let bytes: Vec<u8> = failure
        .message
        .into_bytes()
        .into_iter()
        .filter(|byte| *byte != 0)
        .collect();
    // A thread that is ending may have none any more.
    let _ = MESSAGE.try_with(|message| {
        *message.borrow_mut() = CString::new(bytes).unwrap_or_default();
    });
    failure.errno
}

/// Why the last failing call of this thread failed, in words: valid until the thread's next call. Empty before any failed.
#[unsafe(no_mangle)]
pub extern "C" fn persimmon_error_message() -> *const c_char {
    let message = MESSAGE.try_with(|message| message.borrow().as_ptr());
    message.unwrap_or(c"".as_ptr())
}

/// What a pointer to an object of this library points to. One of another process is refused.
///
/// # Safety
/// The pointer is null, or one that this library gave out and that was not given back.
#[inline]
pub(crate) unsafe fn object<'a, T: Object>(pointer: *const T) -> Result<&'a T> {
    // SAFETY: as the caller promises.
    let object = unsafe { structure(pointer, T::WHAT) }?;
    object.process().check(T::WHAT)?;
    Ok(object)
}

/// The same, for who changes it.
///
/// # Safety
/// As of [`object`]; no other thread uses it during the call.
pub(crate) unsafe fn object_mut<'a, T: Object>(pointer: *mut T) -> Result<&'a mut T> {
    // SAFETY: as the caller promises.
    let object = unsafe { pointer.as_mut() }.ok_or_else(|| is_null(T::WHAT))?;
    object.process().check(T::WHAT)?;
    Ok(object)
}

/// A structure of the caller.
///
/// # Safety
/// The pointer is null, or points to one that stays as it is during the call.
#[inline]
pub(crate) unsafe fn structure<'a, T>(pointer: *const T, what: &str) -> Result<&'a T> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_ref() }.ok_or_else(|| is_null(what))
}

#[cold]
fn is_null(what: &str) -> Failure {
    Failure::invalid(format!("{what} is NULL"))
}

/// The place for an answer.
///
/// # Safety
/// The pointer is null, or the caller may write a `T` there.
pub(crate) unsafe fn answer<'a, T>(pointer: *mut T) -> Result<&'a mut std::mem::MaybeUninit<T>> {
    // SAFETY: as the caller promises; nothing is read there.
    unsafe { pointer.cast::<std::mem::MaybeUninit<T>>().as_mut() }
        .ok_or_else(|| Failure::invalid("the place for the answer is NULL"))
}

/// A string of C as a path.
///
/// # Safety
/// The pointer is null, or points to bytes that end with a zero byte and stay as they are during the call.
pub(crate) unsafe fn path<'a>(pointer: *const c_char) -> Result<&'a Path> {
    // SAFETY: as the caller promises.
    let bytes = unsafe { text(pointer, "the path") }?;
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// A string of C.
///
/// # Safety
/// As of [`path`].
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a [u8]> {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("{what} is NULL")));
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// A string of C that has to be UTF-8.
///
/// # Safety
/// As of [`path`].
pub(crate) unsafe fn utf8<'a>(pointer: *const c_char, what: &str) -> Result<&'a str> {
    // SAFETY: as the caller promises.
    let bytes = unsafe { text(pointer, what) }?;
    std::str::from_utf8(bytes).map_err(|_| Failure::invalid(format!("{what} is not UTF-8")))
}

/// Refuses a length that no object in memory can have.
#[inline]
pub(crate) fn check_len(len: usize, what: &str) -> Result<()> {
    match isize::try_from(len) {
        Ok(_) => Ok(()),
        Err(_) => Err(too_long(len, what)),
    }
}

#[cold]
fn too_long(len: usize, what: &str) -> Failure {
    Failure::invalid(format!("{what} has {len} bytes, more than memory can have"))
}

/// Bytes of the caller to read from.
///
/// # Safety
/// `len` is 0, or `pointer` is null or points to `len` bytes that stay as they are during the call.
#[inline]
pub(crate) unsafe fn bytes<'a>(pointer: *const u8, len: usize) -> Result<&'a [u8]> {
    check_len(len, "the data")?;
    match (len, pointer.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(Failure::invalid("the data is NULL")),
        // SAFETY: as the caller promises; the length was checked.
        (_, false) => Ok(unsafe { std::slice::from_raw_parts(pointer, len) }),
    }
}

/// Bytes of the caller to write to.
///
/// # Safety
/// `len` is 0, or `pointer` is null or points to `len` initialized bytes that nobody else uses during the call.
pub(crate) unsafe fn bytes_mut<'a>(pointer: *mut u8, len: usize) -> Result<&'a mut [u8]> {
    check_len(len, "the buffer")?;
    match (len, pointer.is_null()) {
        (0, _) => Ok(&mut []),
        (_, true) => Err(Failure::invalid("the buffer is NULL")),
        // SAFETY: as the caller promises; the length was checked.
        (_, false) => Ok(unsafe { std::slice::from_raw_parts_mut(pointer, len) }),
    }
}

/// Gives an object to C.
pub(crate) fn give<T: Object>(object: T) -> *mut T {
    Box::into_raw(Box::new(object))
}

/// Takes an object back from C; `None` for null. One of another process stays in memory: to drop it would close what is open there.
///
/// # Safety
/// The pointer is null, or came from [`give`] and is not used any more.
pub(crate) unsafe fn take<T: Object>(pointer: *mut T) -> Result<Option<T>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    unsafe { object(pointer) }?;
    // SAFETY: as the caller promises; nothing refers to it any more.
    Ok(Some(*unsafe { Box::from_raw(pointer) }))
}
