//! What an image asks of the file it lives in.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, FallocateFlags, SeekFrom};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

use crate::Buffer;
use crate::lock::Opened;

/// Slices one vectored write takes (IOV_MAX on Linux).
const SLICES_MAX: usize = 1024;

/// Bytes given back at a time. The host lets nobody else write to the file meanwhile (15 ms for
/// 64 MiB were seen), and a commit should not have to wait for a whole zone.
const PUNCH_BYTES_MAX: u64 = 4 << 20;

/// The same of a block device, where others wait less: it splits this as it likes.
const DISCARD_BYTES_MAX: u64 = 64 << 20;

/// EXT4_SUPER_MAGIC and XFS_SUPER_MAGIC of <linux/magic.h>.
const EXT4_MAGIC: u64 = 0xEF53;
const XFS_MAGIC: u64 = 0x5846_5342;

/// BLKDISCARD of <linux/fs.h>.
const BLKDISCARD: Opcode = opcode::none(0x12, 119);

/// The file below an image. A trait so that tests can put a host in its place that loses power.
pub trait Host: Send + Sync {
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
    /// Gives space back; what the range reads as is not said: zeros, or as before where the host cannot.
    fn punch(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Whether its space is a filesystem's, which has to find it for what is written.
    fn is_file(&self) -> bool {
        false
    }
    /// Whether it is a file of a filesystem that writes a block that it has to the same place again, so that only the first
    /// time costs it a change of its own metadata.
    fn overwrites_in_place(&self) -> bool {
        false
    }
    /// Up to where blocks from `offset` on were written before, as far as it knows.
    fn written_until(&self, offset: u64) -> u64 {
        offset
    }
    /// Reserves space; what is written stays.
    fn allocate(&self, offset: u64, length: u64) -> io::Result<()>;
}

/// A real file or block device.
#[derive(Debug)]
pub(crate) struct HostFile {
    pub(crate) opened: Opened,
    /// A block device that has not refused to discard anything.
    discards: AtomicBool,
}

impl HostFile {
    pub(crate) fn new(opened: Opened) -> HostFile {
        HostFile {
            discards: AtomicBool::new(opened.is_block_device),
            opened,
        }
    }

    /// Tells a block device that nobody needs what is there. One that cannot discard keeps it, and is not asked again: to have
    /// zeros written there would take its time and wear it out, and win nothing.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let end = offset.saturating_add(length);
        let mut at = offset;
        while at < end && self.discards.load(Ordering::Relaxed) {
            let step = DISCARD_BYTES_MAX.min(end - at);
            match retry(|| discard(&self.opened.file, at, step)) {
                Ok(()) => at += step,
                Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS) => {
                    self.discards.store(false, Ordering::Relaxed);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Drop for HostFile {
    fn drop(&mut self) {
        self.opened.release();
    }
}

impl Host for HostFile {
    fn overwrites_in_place(&self) -> bool {
        let kind = rustix::fs::fstatfs(&self.opened.file).map(|found| found.f_type as u64);
        !self.opened.is_block_device
            && kind.is_ok_and(|kind| [EXT4_MAGIC, XFS_MAGIC].contains(&kind))
    }

    fn written_until(&self, offset: u64) -> u64 {
        // The file's own offset, which this moves, is used by nobody.
        rustix::fs::seek(&self.opened.file, SeekFrom::Hole(offset)).unwrap_or(offset)
    }

    fn is_file(&self) -> bool {
        self.opened
            .file
            .metadata()
            .is_ok_and(|about| about.is_file())
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.opened.file.read_exact_at(into, offset)
    }

    fn write_at(&self, data: &[Buffer], offset: u64) -> io::Result<()> {
        let mut offset = offset;
        if let [one] = data {
            return self.opened.file.write_all_at(one, offset);
        }
        for group in data.chunks(SLICES_MAX) {
            let filled = group.iter().filter(|buffer| buffer.blocks() > 0);
            let mut slices: Vec<IoSlice<'_>> = filled.map(|b| IoSlice::new(b)).collect();
            let mut left = slices.as_mut_slice();
            while !left.is_empty() {
                match rustix::io::pwritev(&self.opened.file, left, offset) {
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
        self.opened.file.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.opened.file.sync_data()
    }

    fn drop_cached(&self) -> io::Result<()> {
        drop_cached(&self.opened.file)
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        if self.opened.is_block_device {
            // A hole in one is zeros, which the kernel writes where the device has no quicker way.
            return self.discard(offset, length);
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let end = offset.saturating_add(length);
        let mut at = offset;
        while at < end {
            let step = PUNCH_BYTES_MAX.min(end - at);
            match retry(|| rustix::fs::fallocate(self.opened.file.as_fd(), mode, at, step)) {
                Ok(()) => at += step,
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        if self.opened.is_block_device {
            return Ok(());
        }
        let mode = FallocateFlags::KEEP_SIZE;
        match retry(|| rustix::fs::fallocate(self.opened.file.as_fd(), mode, offset, length)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            result => result.map_err(Into::into),
        }
    }
}

/// Drops the pages of a file or block device that are in memory and not to be written.
pub(crate) fn drop_cached(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Has a block device discard a range of bytes.
fn discard(file: &File, offset: u64, length: u64) -> rustix::io::Result<()> {
    // SAFETY: BLKDISCARD reads two numbers of 64 bits and nothing else, and changes only the device.
    #[allow(unsafe_code)]
    unsafe {
        ioctl(file, Setter::<BLKDISCARD, [u64; 2]>::new([offset, length]))
    }
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
