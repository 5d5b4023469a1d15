//! Doing what a request asks: with a result, with an error's number, or, where the operation
//! panics, with `EIO`. So every request has an answer, and none can hang the mount.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use persimmon_vfs::{Error, Result, Vfs};
use tracing::{debug, error};

use crate::latency::Latencies;
use crate::ledger::Ledger;
use crate::lost::Lost;
use crate::protocol::Errno;

/// The vfs, and what surrounds every operation on it. Cheap to clone.
#[derive(Clone)]
pub struct Door {
    pub vfs: Arc<Vfs>,
    pub latencies: Arc<Latencies>,
    /// Set by the first operation that panics.
    pub panicked: Arc<AtomicBool>,
    /// What a daemon that comes after this one has to know, where there may be one.
    pub ledger: Option<Arc<Ledger>>,
    /// What a daemon before this one had answered and is lost.
    pub lost: Arc<Lost>,
}

impl Door {
    /// Runs `work` on the vfs: its result, or the number of its error, `EIO` where it panics.
    pub fn run<T>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Vfs) -> Result<T>,
    ) -> std::result::Result<T, Errno> {
        match catch_unwind(AssertUnwindSafe(|| work(&self.vfs))) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(errno(operation, &error)),
            Err(panic) => {
                self.give_up(operation, panic.as_ref());
                Err(Errno(libc::EIO))
            }
        }
    }

    /// After a panic, memory may hold half an operation, which must not reach the device: the
    /// volume takes no more changes, and the next mount recovers it.
    fn give_up(&self, operation: &'static str, panic: &(dyn Any + Send)) {
        error!(
            "{operation} panicked: {}; the volume takes no more changes",
            panic_message(panic)
        );
        self.panicked.store(true, Ordering::Release);
        self.vfs.volume().make_read_only();
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
    Errno(errno)
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}
