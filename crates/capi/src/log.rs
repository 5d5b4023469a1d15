//! What the library has to say of its own accord: warnings and errors, to standard error or to who asked for them.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::io::{self, Write};
use std::sync::Once;

use persimmon_sync::RwLock;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use crate::call::{Failure, call};

/// Something failed that no call will tell, such as a write of the background.
pub const PERSIMMON_LOG_ERROR: u32 = 1;
/// Something that a user should know, and nothing failed.
pub const PERSIMMON_LOG_WARNING: u32 = 2;

/// Takes a message: what was given with it, a level (`PERSIMMON_LOG_*`), a line of text without its end.
pub type persimmon_log =
    Option<unsafe extern "C" fn(argument: *mut c_void, level: u32, message: *const c_char)>;

struct Target {
    callback: persimmon_log,
    argument: *mut c_void,
}

// SAFETY: as the caller of `persimmon_set_log` promises, any thread may hand the argument to the callback.
unsafe impl Send for Target {}
// SAFETY: as above, also several at once.
unsafe impl Sync for Target {}

static TARGET: RwLock<Target> = RwLock::new(Target {
    callback: None,
    argument: std::ptr::null_mut(),
});

thread_local! {
    /// The callback runs in this thread: it would wait for itself.
    static IS_CALLED: Cell<bool> = const { Cell::new(false) };
}

/// Sees to messages from now on, unless the program does so itself: a program in Rust that has its own log.
#[inline]
pub(crate) fn begin() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let lines = tracing_subscriber::fmt()
            .with_max_level(Level::WARN)
            .with_ansi(false)
            .with_level(false)
            .with_target(false)
            .without_time()
            .with_writer(Lines);
        let _ = tracing::subscriber::set_global_default(lines.finish());
    });
}

struct Lines;

/// One message. It is sent when it is complete.
struct Line {
    level: u32,
    text: Vec<u8>,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line {
            level: PERSIMMON_LOG_WARNING,
            text: Vec::new(),
        }
    }

    fn make_writer_for(&'a self, of: &Metadata<'_>) -> Line {
        let level = match *of.level() {
            Level::ERROR => PERSIMMON_LOG_ERROR,
            _ => PERSIMMON_LOG_WARNING,
        };
        Line {
            level,
            text: Vec::new(),
        }
    }
}

impl Write for Line {
    fn write(&mut self, some: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(some);
        Ok(some.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Line {
    fn to_stderr(&self) {
        let word = match self.level {
            PERSIMMON_LOG_ERROR => "error",
            _ => "warning",
        };
        let text = self.text.trim_ascii_end();
        // In one piece: other threads write there as well. Where that fails there is nobody to tell.
        let line = [format!("persimmon: {word}: ").as_bytes(), text, b"\n"].concat();
        let _ = io::stderr().write_all(&line);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let text = self.text.trim_ascii_end();
        if IS_CALLED.get() {
            return self.to_stderr();
        }
        // Held while it is called: who has replaced a callback knows that it is not called any more.
        let target = TARGET.read();
        let Some(callback) = target.callback else {
            return self.to_stderr();
        };
        let bytes: Vec<u8> = text.iter().copied().filter(|byte| *byte != 0).collect();
        let text = CString::new(bytes).unwrap_or_default();
        IS_CALLED.set(true);
        // SAFETY: as the caller of `persimmon_set_log` promises.
        unsafe { callback(target.argument, self.level, text.as_ptr()) };
        IS_CALLED.set(false);
    }
}

/// Has messages of this library go to a callback, for all volumes of the process; NULL: to standard error, where they go by
/// themselves. Once this has returned, what was set before is not called any more. `EDEADLK`: a callback called this.
///
/// # Safety
/// `callback` is NULL, or may be called with `argument` by any thread, by several at once, until another is set. It calls no function of this
/// library, and copies the message where that has to live longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persimmon_set_log(
    callback: persimmon_log,
    argument: *mut c_void,
) -> c_int {
    call(|| {
        if IS_CALLED.get() {
            let what = "a callback for messages cannot set another: it would wait for its own end";
            return Err(Failure::new(libc::EDEADLK, what.into()));
        }
        *TARGET.write() = Target { callback, argument };
        Ok(())
    })
}
