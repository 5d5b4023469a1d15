//! Which process an object belongs to. A child of `fork` has a copy of all that its parent opened: of where the next block goes and of what is
//! not written yet, on the same device. It has none of the threads, and locks that are held stay so. What it wrote there went over what the
//! parent had been told is durable.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::call::{Failure, Result};

/// The process that an object was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

/// Of the next process that makes an object: a child goes on where its parent was, so that none has the number of one before it.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// The number of this process; 0: it has made no object yet. It lies in memory that the kernel empties in each child, however that was
/// forked, and costs a load. `None` where the kernel cannot: before Linux 4.14.
#[inline]
fn number() -> Option<&'static AtomicU32> {
    static NUMBER: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();
    *NUMBER.get_or_init(emptied_by_fork)
}

fn emptied_by_fork() -> Option<&'static AtomicU32> {
    let (len, protection) = (size_of::<AtomicU32>(), libc::PROT_READ | libc::PROT_WRITE);
    let flags: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory, which nothing else refers to.
    let page = unsafe { libc::mmap(null_mut(), len, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the memory that was just mapped.
    if unsafe { libc::madvise(page, len, libc::MADV_WIPEONFORK) } != 0 {
        // SAFETY: as above; nothing refers to it.
        unsafe { libc::munmap(page, len) };
        return None;
    }
    // SAFETY: it is aligned to pages, zeros are a value, and it is never unmapped.
    Some(unsafe { &*page.cast::<AtomicU32>() })
}

impl Process {
    /// The one that calls, for an object that it makes.
    pub(crate) fn current() -> Process {
        let Some(number) = number() else {
            return Process(std::process::id());
        };
        let known = number.load(Ordering::Relaxed);
        if known != 0 {
            return Process(known);
        }
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        match number.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Process(next),
            // Another thread was first.
            Err(known) => Process(known),
        }
    }

    /// Refuses an object that the process has from its parent.
    #[inline]
    pub(crate) fn check(self, what: &str) -> Result<()> {
        let now = match number() {
            Some(number) => number.load(Ordering::Relaxed),
            None => std::process::id(),
        };
        if now == self.0 {
            Ok(())
        } else {
            Err(forked(what))
        }
    }
}

#[cold]
fn forked(what: &str) -> Failure {
    let reason = "was opened before this process was forked, and can be used in the process that opened it alone";
    Failure::new(libc::EBADF, format!("{what} {reason}"))
}

/// An object that C has: it is of one process.
pub(crate) trait Object {
    /// What messages call it.
    const WHAT: &'static str;

    /// The process that made it.
    fn process(&self) -> Process;
}
