//! Answering a request: with a result, with an error's number, or, where the operation panics,
//! with `EIO`. Every request is answered once, so none can hang the mount.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fuser::{
    Errno, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};
use persimmon_vfs::{Error, Result, Vfs};
use tracing::{debug, error};

use crate::latency::Latencies;

/// Replies that can carry an error.
pub trait Refuse {
    fn refuse(self, errno: Errno);
}

macro_rules! refuse {
    ($($reply:ty),*) => {
        $(impl Refuse for $reply {
            fn refuse(self, errno: Errno) {
                self.error(errno);
            }
        })*
    };
}

refuse!(
    ReplyAttr,
    ReplyCreate,
    ReplyData,
    ReplyDirectory,
    ReplyDirectoryPlus,
    ReplyEmpty,
    ReplyEntry,
    ReplyLseek,
    ReplyOpen,
    ReplyStatfs,
    ReplyWrite,
    ReplyXattr
);

/// The vfs, and what surrounds every operation on it. Cheap to clone.
#[derive(Clone)]
pub struct Door {
    pub vfs: Arc<Vfs>,
    pub latencies: Arc<Latencies>,
    /// Set by the first operation that panics.
    pub panicked: Arc<AtomicBool>,
}

impl Door {
    /// Runs `work` and answers with its result, its error, or `EIO` where it panics.
    pub fn answer<R: Refuse, T>(
        &self,
        operation: &'static str,
        reply: R,
        work: impl FnOnce() -> Result<T>,
        accept: impl FnOnce(R, T),
    ) {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(value)) => accept(reply, value),
            Ok(Err(error)) => reply.refuse(errno(operation, &error)),
            Err(panic) => {
                self.give_up(operation, panic.as_ref());
                reply.refuse(Errno::EIO);
            }
        }
    }

    /// After a panic, memory may hold half an operation, which must not reach the device: the
    /// volume takes no more changes, and the next mount recovers it.
    pub fn give_up(&self, operation: &'static str, panic: &(dyn Any + Send)) {
        error!(
            "{operation} panicked: {}; the volume takes no more changes",
            panic_message(panic)
        );
        self.panicked.store(true, Ordering::Release);
        self.vfs.volume().make_read_only();
    }

    /// As [`Door::answer`], where the work filled the reply itself.
    pub fn answer_listing<R: Refuse>(
        &self,
        operation: &'static str,
        filled: std::thread::Result<Result<()>>,
        reply: R,
        accept: impl FnOnce(R),
    ) {
        self.answer(
            operation,
            reply,
            || filled.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            |reply, ()| accept(reply),
        );
    }
}

/// The one place where an error leaves the daemon: what is not an ordinary refusal is logged with
/// its whole chain of causes.
fn errno(operation: &'static str, error: &Error) -> Errno {
    let errno = error.errno();
    if errno == libc::EIO || errno == libc::EUCLEAN {
        let mut chain = error.to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(source) = cause {
            chain = format!("{chain}: {source}");
            cause = source.source();
        }
        error!("{operation}: {chain}");
    } else {
        debug!("{operation}: {error}");
    }
    Errno::from_i32(errno)
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}
