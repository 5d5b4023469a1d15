//! Shared memory, as words that several threads, and a process that comes later, look at.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;

/// Bytes of a word.
pub const WORD: usize = 8;

/// A mapping of a file in memory. Whoever gives it away closes it, and never makes it shorter.
pub struct Region {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: words are atomic, and `fill` and `copy` are for bytes that one thread has, as they say.
unsafe impl Send for Region {}
// SAFETY: the same.
unsafe impl Sync for Region {}

impl Region {
    /// The first `len` bytes of a file in memory.
    pub fn map(memory: BorrowedFd<'_>, len: usize) -> io::Result<Region> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, wherever the kernel likes, of a file that is open.
        let start = unsafe {
            libc::mmap(
                null_mut(),
                len,
                prot,
                libc::MAP_SHARED,
                memory.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Region { start, len })
    }

    /// The word at a multiple of its length; the first one where there is none.
    pub fn word(&self, at: usize) -> &AtomicU64 {
        let inside = at.is_multiple_of(WORD) && at.saturating_add(WORD) <= self.len;
        debug_assert!(inside, "a word at {at}");
        let at = if inside { at } else { 0 };
        // SAFETY: inside the mapping, which begins at a page and lives as long as the borrow; aligned; and everybody looks at it as
        // an atomic word, for `fill` and `copy` are of other bytes.
        unsafe { &*self.start.as_ptr().add(at).cast::<AtomicU64>() }
    }

    fn is_inside(&self, at: usize, len: usize) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// Writes bytes that the caller has to itself. False where there are none.
    #[must_use]
    pub fn fill(&self, at: usize, bytes: &[u8]) -> bool {
        if !self.is_inside(at, bytes.len()) {
            return false;
        }
        // SAFETY: inside the mapping; the caller has reserved the bytes, and `bytes` is memory of this process.
        unsafe {
            let to = self.start.as_ptr().add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        true
    }

    /// Reads bytes that nobody writes. `None` where there are none.
    pub fn copy(&self, at: usize, len: usize) -> Option<Vec<u8>> {
        if !self.is_inside(at, len) {
            return None;
        }
        let mut bytes = vec![0; len];
        // SAFETY: inside the mapping; the caller knows that nobody writes there.
        unsafe {
            let from = self.start.as_ptr().add(at);
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), len);
        }
        Some(bytes)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping of this value; nobody borrows it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
