//! A file whose content is written by stores to memory: what must outlive the process and needs no call of the kernel.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};

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
    #[inline]
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

    /// Stores a number in a place that is a multiple of eight, at once: the file has the old one or the new one, whenever the process is
    /// killed, and what was written before with the new one. It is little endian.
    ///
    /// # Errors
    /// Where the place is none, or beyond the end.
    #[allow(unsafe_code, reason = "a store to mapped memory")]
    #[inline]
    pub fn store(&mut self, at: usize, number: u64) -> io::Result<()> {
        let end = at.checked_add(size_of::<u64>());
        if end.is_none_or(|end| end > self.map.len()) || !at.is_multiple_of(align_of::<AtomicU64>())
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: The place lies within the mapping and is aligned, since mappings begin with a page; others reach it by atomic
        // operations or from other processes only.
        let place = unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(at).cast()) };
        place.store(number.to_le(), Ordering::Release);
        Ok(())
    }

    /// Copies bytes of the file out.
    ///
    /// # Errors
    /// Where they would come from beyond the end.
    #[allow(unsafe_code, reason = "loads from mapped memory")]
    pub fn read(&self, at: usize, len: usize) -> io::Result<Vec<u8>> {
        let end = at.checked_add(len);
        if end.is_none_or(|end| end > self.map.len()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = Vec::<u8>::with_capacity(len);
        // SAFETY: The place lies within the mapping, as was just checked. The bytes are copied without a reference to
        // them, so that other processes may store there. The vector has room for all of them, and they are there then.
        unsafe {
            let place = self.map.as_ptr().add(at);
            place.copy_to_nonoverlapping(bytes.as_mut_ptr(), len);
            bytes.set_len(len);
        }
        Ok(bytes)
    }

    /// Fetches the cache lines at which the next bytes will probably go. A file is written from its beginning to its end. Between two
    /// small writes a program uses enough memory to drive the next lines out of the cache; waiting for them was a third of the cost of a
    /// small write.
    #[allow(unsafe_code, reason = "a hint about mapped memory")]
    #[inline]
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
        assert_eq!(mapped.read(4090, 9).unwrap(), b"ending on");
        assert!(mapped.read(8184, 9).is_err());
        assert!(mapped.read(usize::MAX, 9).is_err());
        mapped.store(8184, 0x0102).unwrap();
        assert_eq!(mapped.read(8184, 8).unwrap(), [2, 1, 0, 0, 0, 0, 0, 0]);
        for at in [8188, 8192, usize::MAX - 7, 4097] {
            assert!(mapped.store(at, 0).is_err(), "{at}");
        }
        let found = std::fs::read(&path).unwrap();
        assert_eq!((found.len(), &found[4090..4099]), (8192, &b"ending on"[..]));
    }
}
