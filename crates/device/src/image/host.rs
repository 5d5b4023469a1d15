//! What an image asks of the file it lives in.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{Advice, FallocateFlags};
use rustix::io::Errno;

use crate::Buffer;
use crate::lock::Opened;

/// Slices one vectored write takes (IOV_MAX on Linux).
const SLICES_MAX: usize = 1024;

/// Bytes given back at a time. The host lets nobody else write to the file meanwhile (15 ms for
/// 64 MiB were seen), and a commit should not have to wait for a whole zone.
const PUNCH_BYTES_MAX: u64 = 4 << 20;

/// The file below an image. A trait so that tests can put a host in its place that loses power.
pub(crate) trait Host: Send + Sync {
    /// Fills `into`; a short file is an error.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `data`, one buffer after the other.
    fn write_at(&self, data: &[Buffer], offset: u64) -> io::Result<()>;
    /// Writes all of `bytes`.
    fn write_bytes_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes all that was written durable.
    fn sync(&self) -> io::Result<()>;
    /// Forgets what it keeps in memory and has not to write any more: what is read next is what the medium has.
    fn drop_cached(&self) -> io::Result<()>;
    /// Gives space back; the range reads as zeros, or as before where the host cannot.
    fn punch(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Whether its space is a filesystem's, which has to find it for what is written.
    fn is_file(&self) -> bool {
        false
    }
    /// Reserves space; what is written stays.
    fn allocate(&self, offset: u64, length: u64) -> io::Result<()>;
}

/// A real file or block device.
#[derive(Debug)]
pub(crate) struct HostFile(pub(crate) Opened);

impl Host for HostFile {
    fn is_file(&self) -> bool {
        self.0.file.metadata().is_ok_and(|about| about.is_file())
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.file.read_exact_at(into, offset)
    }

    fn write_at(&self, data: &[Buffer], offset: u64) -> io::Result<()> {
        let mut offset = offset;
        if let [one] = data {
            return self.0.file.write_all_at(one, offset);
        }
        for group in data.chunks(SLICES_MAX) {
            let filled = group.iter().filter(|buffer| buffer.blocks() > 0);
            let mut slices: Vec<IoSlice<'_>> = filled.map(|b| IoSlice::new(b)).collect();
            let mut left = slices.as_mut_slice();
            while !left.is_empty() {
                match rustix::io::pwritev(&self.0.file, left, offset) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => {
                        offset += written as u64;
                        IoSlice::advance_slices(&mut left, written);
                    }
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    fn write_bytes_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.file.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.file.sync_data()
    }

    fn drop_cached(&self) -> io::Result<()> {
        drop_cached(&self.0.file)
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        // On a block device this is a discard that leaves zeros, refused where the device has none.
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let end = offset.saturating_add(length);
        let mut at = offset;
        while at < end {
            let step = PUNCH_BYTES_MAX.min(end - at);
            match retry(|| rustix::fs::fallocate(self.0.file.as_fd(), mode, at, step)) {
                Ok(()) => at += step,
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        if self.0.is_block_device {
            return Ok(());
        }
        let mode = FallocateFlags::KEEP_SIZE;
        match retry(|| rustix::fs::fallocate(self.0.file.as_fd(), mode, offset, length)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            result => result.map_err(Into::into),
        }
    }
}

/// Drops the pages of a file or block device that are in memory and not to be written.
pub(crate) fn drop_cached(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?)
}

fn retry(mut call: impl FnMut() -> rustix::io::Result<()>) -> rustix::io::Result<()> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Whether an error says that the host has no room (or the user no quota) left.
pub(super) fn is_full(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    errno == Some(Errno::NOSPC.raw_os_error()) || errno == Some(Errno::DQUOT.raw_os_error())
}
