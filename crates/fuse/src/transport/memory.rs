//! Memory that the kernel reads and writes while nobody here does: that of one ring; and that of a thread without one.
#![allow(unsafe_code)]

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};

/// Bytes of a request's headers in a ring: header, fixed part, place of the rest; and a list of
/// two vectors that tells the kernel of both pieces, rounded up to a page.
const HEADERS_BYTES: usize = 4096;
/// Where the list is.
const VECTORS_AT: usize = 2048;
/// What the kernel takes for the headers.
pub const HEADERS_LEN: usize = 288;

/// What the kernel looks up and maps in one step, where it can.
const HUGE_PAGE: usize = 2 << 20;

/// A mapping that begins at a huge page.
struct Mapping {
    start: NonNull<u8>,
    /// From where on it is mapped.
    mapped: NonNull<u8>,
    mapped_len: usize,
}

impl Mapping {
    /// `len` zeros, of which untouched pages take no memory, from `huge_from` on in huge pages. Data is copied to and from it page by
    /// page, and each is looked up: in a huge page that is quicker.
    fn new(len: usize, huge_from: usize) -> io::Result<Mapping> {
        let mapped_len = len.next_multiple_of(HUGE_PAGE) + HUGE_PAGE;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, wherever the kernel likes.
        let mapped = unsafe { libc::mmap(null_mut(), mapped_len, prot, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapped: NonNull<u8> = NonNull::new(mapped.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let skipped = mapped.addr().get().next_multiple_of(HUGE_PAGE) - mapped.addr().get();
        // SAFETY: less than a huge page, which the mapping is longer than what is used of it.
        let start = unsafe { mapped.add(skipped) };
        let huge_len = len.next_multiple_of(HUGE_PAGE) - huge_from;
        // SAFETY: whole pages of the mapping. It changes nothing of them but how they are mapped, and a kernel that cannot does
        // without.
        unsafe {
            let huge = start.add(huge_from).as_ptr();
            libc::madvise(huge.cast(), huge_len, libc::MADV_HUGEPAGE);
        }
        Ok(Mapping {
            start,
            mapped,
            mapped_len,
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping of this value; nobody borrows it any more.
        unsafe { libc::munmap(self.mapped.as_ptr().cast(), self.mapped_len) };
    }
}

/// Memory for one request at a time.
pub struct Room {
    mapping: Mapping,
    len: usize,
}

// SAFETY: memory that belongs to this value alone, as that of a vector.
unsafe impl Send for Room {}

impl Room {
    /// Of `len` bytes.
    pub fn new(len: usize) -> io::Result<Room> {
        let mapping = Mapping::new(len, 0)?;
        Ok(Room { mapping, len })
    }
}

impl Deref for Room {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: inside the mapping, which is initialized by the system and borrowed with this value.
        unsafe { std::slice::from_raw_parts(self.mapping.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else borrows it.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.start.as_ptr(), self.len) }
    }
}

/// Pieces of memory for so many requests: first the headers of all, then what follows them. Untouched, they take none.
pub struct Memory {
    mapping: Option<Mapping>,
    start: NonNull<u8>,
    /// Bytes of all headers, up to where the rest begins.
    headers: usize,
    payload: usize,
    /// Given to the kernel, which may write to it at any time.
    lent: Vec<bool>,
}

// SAFETY: the memory belongs to the value alone, and to the kernel.
unsafe impl Send for Memory {}

impl Memory {
    /// For `count` requests with `payload` bytes, whole pages, each.
    pub fn new(count: usize, payload: usize) -> io::Result<Memory> {
        let headers = (count * HEADERS_BYTES).next_multiple_of(HUGE_PAGE);
        let mapping = Mapping::new(headers + count * payload, headers)?;
        Ok(Memory {
            start: mapping.start,
            mapping: Some(mapping),
            headers,
            payload,
            lent: vec![false; count],
        })
    }

    /// Where the headers of a request are, and its payload.
    fn at(&self, request: usize) -> (*mut u8, *mut u8) {
        // SAFETY: callers have checked `request` against the count, so both are inside the mapping.
        unsafe {
            let start = self.start.as_ptr();
            let payload = self.headers + request * self.payload;
            (start.add(request * HEADERS_BYTES), start.add(payload))
        }
    }

    /// Headers and payload of a request. `None` while the kernel has them.
    pub fn get(&mut self, request: usize) -> Option<(&mut [u8], &mut [u8])> {
        if *self.lent.get(request)? {
            return None;
        }
        let (headers, payload) = self.at(request);
        // SAFETY: both pieces are inside the mapping, apart from each other, initialized by the
        // system, and not lent to the kernel; the borrow of `self` keeps everybody else away.
        unsafe {
            Some((
                std::slice::from_raw_parts_mut(headers, HEADERS_LEN),
                std::slice::from_raw_parts_mut(payload, self.payload),
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
        let (headers, payload) = self.at(request);
        // SAFETY: the place of the vectors is inside the mapping, aligned (pages are), and no
        // part of what `get` gives away.
        unsafe {
            let vectors = headers.add(VECTORS_AT).cast::<[libc::iovec; 2]>();
            vectors.write([
                libc::iovec {
                    iov_base: headers.cast(),
                    iov_len: HEADERS_LEN,
                },
                libc::iovec {
                    iov_base: payload.cast(),
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
            std::mem::forget(self.mapping.take());
        }
    }
}
