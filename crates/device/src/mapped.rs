//! A file whose content is written by stores to memory: what must outlive the process and needs no call of the kernel.

use std::fs::File;
use std::io;
use std::sync::atomic::{Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// Bytes of a cache line, and lines fetched before they are written: what small writes take, a few hundred bytes.
#[cfg(target_arch = "x86_64")]
const CACHE_LINE: usize = 64;
#[cfg(target_arch = "x86_64")]
const PREFETCHED_LINES: usize = 4;

/// A file that is mapped for writing. Its pages are the kernel's: a process that is killed takes nothing of them along.
#[derive(Debug)]
pub struct MappedFile {
    file: File,
    map: MmapRaw,
}

impl MappedFile {
    /// Gives a file of the caller's own that length, sets its space aside and maps it: a store to a page without space
    /// would end the process (`SIGBUS`), and so would one to a page that another process cut off.
    pub fn new(file: File, len: usize) -> io::Result<MappedFile> {
        let map = map(&file, len)?;
        Ok(MappedFile { file, map })
    }

    /// The same, longer.
    pub fn grow(&mut self, len: usize) -> io::Result<()> {
        self.map = map(&self.file, len)?;
        Ok(())
    }

    /// The file that is mapped.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes that are mapped.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "no file of length 0 is mapped")]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Copies bytes to a place in the file. Once this has returned they outlive the process.
    ///
    /// # Errors
    /// Where they would go beyond the end.
    #[allow(unsafe_code, reason = "stores to mapped memory")]
    pub fn write(&mut self, at: usize, bytes: &[u8]) -> io::Result<()> {
        let end = at.checked_add(bytes.len());
        if end.is_none_or(|end| end > self.map.len()) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // SAFETY: The place lies within the mapping, as was just checked. No reference into the mapping is ever made, so
        // that it may be shared with other processes, and `bytes` is memory of the caller's.
        unsafe {
            self.map
                .as_mut_ptr()
                .add(at)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        // The caller goes on, and perhaps answers somebody, behind these stores.
        fence(Ordering::Release);
        self.prefetch(end.unwrap_or(at));
        Ok(())
    }

    /// Copies bytes of the file out.
    ///
    /// # Errors
    /// Where they would come from beyond the end.
    #[allow(unsafe_code, reason = "loads from mapped memory")]
    pub fn read(&self, at: usize, out: &mut [u8]) -> io::Result<()> {
        let end = at.checked_add(out.len());
        if end.is_none_or(|end| end > self.map.len()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: The place lies within the mapping, as was just checked. The bytes are copied without a reference to
        // them, so that other processes may store there; `out` is memory of the caller's.
        unsafe {
            self.map
                .as_ptr()
                .add(at)
                .copy_to_nonoverlapping(out.as_mut_ptr(), out.len());
        }
        Ok(())
    }

    /// Fetches the cache lines at a place where the next bytes will probably go. Files are written from the beginning to the end,
    /// and between two small writes a program uses enough memory to drive the next lines out: without this the
    /// writer waits for memory, a third of what a small write costs.
    #[allow(unsafe_code, reason = "a hint about mapped memory")]
    fn prefetch(&self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        for line in 0..PREFETCHED_LINES {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            let place = self.map.as_ptr().wrapping_add(at + line * CACHE_LINE);
            // SAFETY: A prefetch has no effect but on the cache, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(place.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }
}

fn map(file: &File, len: usize) -> io::Result<MmapRaw> {
    while let Err(error) = fallocate(file, FallocateFlags::empty(), 0, len as u64) {
        // A signal came; on tmpfs it begins anew.
        if error != Errno::INTR {
            return Err(error.into());
        }
    }
    MmapOptions::new().len(len).populate().map_raw(file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests from top to bottom")]

    use super::*;

    #[test]
    fn the_file_holds_what_was_written_and_nothing_goes_beyond_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let options = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path);
        let mut mapped = MappedFile::new(options.unwrap(), 4096).unwrap();
        mapped.write(4090, b"ending").unwrap();
        assert!(mapped.write(4091, b"ending").is_err());
        assert!(mapped.write(usize::MAX, b"ending").is_err());
        mapped.grow(8192).unwrap();
        mapped.write(4096, b" on").unwrap();
        let mut read = [0; 9];
        mapped.read(4090, &mut read).unwrap();
        assert_eq!(&read, b"ending on");
        assert!(mapped.read(8184, &mut read).is_err());
        assert!(mapped.read(usize::MAX, &mut read).is_err());
        let found = std::fs::read(&path).unwrap();
        assert_eq!((found.len(), &found[4090..4099]), (8192, &b"ending on"[..]));
    }
}
