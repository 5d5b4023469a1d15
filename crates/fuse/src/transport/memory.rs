//! Memory that the kernel reads and writes while nobody here does: that of one ring.
#![allow(unsafe_code)]

use std::io;
use std::ptr::{NonNull, null_mut};

/// Bytes of a request's headers in a ring: header, fixed part, place of the rest; and a list of
/// two vectors that tells the kernel of both pieces, rounded up to a page.
const HEADERS_BYTES: usize = 4096;
/// Where the list is.
const VECTORS_AT: usize = 2048;
/// What the kernel takes for the headers.
pub const HEADERS_LEN: usize = 288;

/// Pieces of memory for so many requests. Untouched, they take none.
pub struct Memory {
    start: NonNull<u8>,
    count: usize,
    payload: usize,
    /// Given to the kernel, which may write to it at any time.
    lent: Vec<bool>,
}

// SAFETY: the memory belongs to the value alone, and to the kernel.
unsafe impl Send for Memory {}

impl Memory {
    /// For `count` requests with `payload` bytes, whole pages, each.
    pub fn new(count: usize, payload: usize) -> io::Result<Memory> {
        let len = count * (HEADERS_BYTES + payload);
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, wherever the kernel likes.
        let start = unsafe { libc::mmap(null_mut(), len, prot, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Memory {
            start,
            count,
            payload,
            lent: vec![false; count],
        })
    }

    fn at(&self, request: usize) -> *mut u8 {
        // SAFETY: callers have checked `request` against the count, so this is inside the mapping.
        unsafe {
            self.start
                .as_ptr()
                .add(request * (HEADERS_BYTES + self.payload))
        }
    }

    /// Headers and payload of a request. `None` while the kernel has them.
    pub fn get(&mut self, request: usize) -> Option<(&mut [u8], &mut [u8])> {
        if *self.lent.get(request)? {
            return None;
        }
        let at = self.at(request);
        // SAFETY: both pieces are inside the mapping, apart from each other, initialized by the
        // system, and not lent to the kernel; the borrow of `self` keeps everybody else away.
        unsafe {
            Some((
                std::slice::from_raw_parts_mut(at, HEADERS_LEN),
                std::slice::from_raw_parts_mut(at.add(HEADERS_BYTES), self.payload),
            ))
        }
    }

    /// Lends a request's memory to the kernel, until [`Memory::returned`]. The address of two
    /// vectors that describe it. `None` if it is lent.
    pub fn lend(&mut self, request: usize) -> Option<u64> {
        let lent = self.lent.get_mut(request)?;
        if std::mem::replace(lent, true) {
            return None;
        }
        let at = self.at(request);
        // SAFETY: the place of the vectors is inside the mapping, aligned (pages are), and no
        // part of what `get` gives away.
        unsafe {
            let vectors = at.add(VECTORS_AT).cast::<[libc::iovec; 2]>();
            vectors.write([
                libc::iovec {
                    iov_base: at.cast(),
                    iov_len: HEADERS_LEN,
                },
                libc::iovec {
                    iov_base: at.add(HEADERS_BYTES).cast(),
                    iov_len: self.payload,
                },
            ]);
            Some(vectors as u64)
        }
    }

    /// The kernel has told that it is done with a request's memory for now.
    pub fn returned(&mut self, request: usize) {
        if let Some(lent) = self.lent.get_mut(request) {
            *lent = false;
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // What the kernel may still write to must never be anything else.
        if self.lent.iter().any(|lent| *lent) {
            return;
        }
        let len = self.count * (HEADERS_BYTES + self.payload);
        // SAFETY: the mapping of this value; nobody borrows it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), len) };
    }
}
