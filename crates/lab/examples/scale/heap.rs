//! Counts what is on the heap.

#![expect(
    unsafe_code,
    reason = "an allocator cannot be wrapped without; it adds to a counter and calls the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

static BYTES: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, counted.
pub struct Counting;

// SAFETY: every call goes to the system's allocator as it came, and what that answers goes back.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size() as u64;
        let before = BYTES.fetch_add(size, Ordering::Relaxed);
        PEAK.fetch_max(before + size, Ordering::Relaxed);
        // SAFETY: the caller's duties are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: it came from the system's allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Bytes on the heap now.
pub fn bytes() -> u64 {
    BYTES.load(Ordering::Relaxed)
}

/// The peak counts from here.
#[allow(dead_code, reason = "not all that count look at the peak")]
pub fn begin_peak() {
    PEAK.store(bytes(), Ordering::Relaxed);
}

/// The most bytes that were on the heap since then.
#[allow(dead_code, reason = "not all that count look at the peak")]
pub fn peak() -> u64 {
    PEAK.load(Ordering::Relaxed)
}
