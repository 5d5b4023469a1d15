//! Zonefs: a file for each zone, whose size is the write pointer. `zonefs:DIR` names one by the
//! directory it is mounted at.
//!
//! Writes go through io_uring at the end of files, past the page cache, one at a time for each zone. A
//! zone is emptied and finished by truncating its file. Mounted with explicit-open, a file open for
//! writing is an open zone: so a bounded number of files is open, as many as the drive may have open
//! zones. Without it the drive opens zones itself, nobody closes one, and some drives refuse to finish
//! a zone while others have all open places; the kernel does not tell how it is mounted. No more than
//! permission to the files is needed.
//!
//! While a file is truncated, which takes as long as the drive takes to finish the zone, nobody can
//! read it. So reads go to the block device below where the user may read it, and otherwise to the
//! files; those of a zone that is being finished are held back then, so that all others go on.
//!
//! What has failed zonefs is asked and, where it may be read, the block device. Mounted without errors=repair, one
//! failed write makes all of the zonefs read-only.
//!
//! Opening for writing pads a block of which only some sectors are written, where there is a volume. A zone with
//! which that fails is finished, or else counts as read-only. Zone 0 is `seq/0`: files of conventional zones hold an image,
//! to which [`crate::Drive`] joins the rest ([`crate::Joined`]).

mod files;
mod front;
mod open;

use std::ffi::CString;
use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

pub(crate) use open::first_file;
pub use open::{ZonefsLimits, directory, identity, list, uri};

use files::{Held, Readers, Writers, ZoneFiles};

use crate::linux::failure::Failure;
use crate::linux::files::{FileWire, Spot};
use crate::linux::limits::SECTOR_BYTES;
use crate::linux::{Action, KernelDevice, Port};
use crate::zbd::kernel;
use crate::{BLOCK_SIZE, BufferMut, Result, ZoneId, ZoneInfo, ZoneKind, ZoneState};

/// A zonefs.
pub type ZonefsDevice = KernelDevice<ZonefsPort>;

/// The way to a zonefs.
pub struct ZonefsPort {
    files: ZoneFiles,
    writers: Arc<Writers>,
    readers: Readers,
    /// The block device below, if it may be read.
    block_device: Option<Arc<File>>,
    /// The number, on the drive, of each zone here.
    numbers: Vec<u32>,
    zone_bytes: u64,
    /// The directory, which holds the lock.
    _locked: File,
}

impl ZonefsDevice {
    /// Whether reads go past the files, so that they do not wait for a zone that is finished.
    #[must_use]
    pub fn reads_block_device(&self) -> bool {
        self.port().block_device.is_some()
    }
}

impl Port for ZonefsPort {
    type Wire = FileWire;
    type Hold = Held;

    const NAME: &'static str = "zonefs";
    const APPENDS: bool = false;

    fn reading(&self, zone: ZoneId, block: u32) -> Result<Spot, Failure> {
        let offset = bytes(block);
        if let (Some(device), Some(number)) = (&self.block_device, self.number(zone)) {
            return Ok(Spot {
                file: Arc::clone(device),
                offset: u64::from(number)
                    .saturating_mul(self.zone_bytes)
                    .saturating_add(offset),
            });
        }
        Ok(Spot {
            file: self.readers.get(zone)?,
            offset,
        })
    }

    fn reads_wait(&self) -> bool {
        self.block_device.is_none()
    }

    fn writing(&self, _: ZoneId, block: u32, held: &Held) -> Spot {
        Spot {
            file: Arc::clone(held.file()),
            offset: bytes(block),
        }
    }

    fn flushing(&self) -> Result<Spot, Failure> {
        let file = match &self.block_device {
            Some(device) => Arc::clone(device),
            None => self.readers.first_alive()?,
        };
        Ok(Spot { file, offset: 0 })
    }

    fn hold(
        &self,
        zone: ZoneId,
        admit: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Result<Held, Failure>> {
        self.writers.hold(zone, admit)
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>, Failure> {
        let report = zones.clone().map(ZoneId).map(|zone| {
            let metadata = fs::metadata(self.files.path(zone))?;
            Ok(info(&metadata, self.writers.is_open(zone)))
        });
        let report: io::Result<Vec<ZoneInfo>> = report.collect();
        let mut report = report?;
        self.notice_worn_out(zones, &mut report)?;
        Ok(report)
    }

    fn manage(&self, zone: ZoneId, action: Action) -> Result<(), Failure> {
        let path = self.files.path(zone);
        match action {
            Action::Open => return self.writers.pin(zone),
            Action::Close | Action::Reset | Action::Finish => self.writers.release(zone),
        }
        match action {
            Action::Reset => truncate(&path, 0)?,
            Action::Finish => truncate(&path, capacity_bytes(&fs::metadata(&path)?))?,
            Action::Open | Action::Close => {}
        }
        Ok(())
    }

    fn pad(&self, zone: ZoneId) -> Result<(), Failure> {
        let metadata = fs::metadata(self.files.path(zone))?;
        let written = torn_bytes(&metadata);
        if written > 0 {
            let zeros = BufferMut::zeroed(1);
            let zeros = zeros.get(written..).unwrap_or_default();
            let file = self.files.open(zone, true)?;
            file.write_all_at(zeros, metadata.len())?;
        }
        Ok(())
    }
}

impl ZonefsPort {
    fn number(&self, zone: ZoneId) -> Option<u32> {
        self.numbers.get(zone.0 as usize).copied()
    }

    /// Adds which zones have failed by the drive's own word, where it may be asked. Zonefs learns of it
    /// only from what it reads and writes itself: not from reads of the block device, nor from a file
    /// that cannot be truncated.
    fn notice_worn_out(&self, zones: Range<u32>, report: &mut [ZoneInfo]) -> Result<(), Failure> {
        let ends = (
            self.number(ZoneId(zones.start)),
            self.number(ZoneId(zones.end.saturating_sub(1))),
        );
        let (Some(device), (Some(first), Some(last))) = (&self.block_device, ends) else {
            return Ok(());
        };
        let sector = u64::from(first).saturating_mul(self.zone_bytes / SECTOR_BYTES);
        let count = last.saturating_sub(first).saturating_add(1);
        let found = match kernel::report(device, sector, count) {
            Ok(found) => found,
            // Older kernels tell it to root alone.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for (zone, info) in zones.map(ZoneId).zip(report) {
            let place = self.number(zone).and_then(|n| n.checked_sub(first));
            let of_drive = place.and_then(|place| found.get(place as usize));
            if let Some(worn_out) = of_drive.filter(|zone| zone.state.is_worn_out()) {
                info.state = worn_out.state;
            }
        }
        Ok(())
    }
}

/// What a zone file's size and permissions say of its zone. `is_open`: for writing, and whether
/// explicitly.
fn info(metadata: &Metadata, is_open: Option<bool>) -> ZoneInfo {
    let blocks = |bytes: u64| u32::try_from(bytes / BLOCK_SIZE as u64).unwrap_or(u32::MAX);
    let capacity = blocks(capacity_bytes(metadata));
    let size = metadata.len();
    let state = match is_open {
        _ if metadata.mode() & 0o777 == 0 => ZoneState::Offline,
        _ if metadata.mode() & 0o222 == 0 => ZoneState::ReadOnly,
        _ if size >= capacity_bytes(metadata) => ZoneState::Full,
        Some(true) => ZoneState::ExplicitlyOpen,
        Some(false) => ZoneState::ImplicitlyOpen,
        None if size == 0 => ZoneState::Empty,
        None => ZoneState::Closed,
    };
    ZoneInfo {
        kind: ZoneKind::Sequential,
        state,
        capacity,
        write_pointer: blocks(size).min(capacity),
    }
}

/// Zonefs says how much of a zone can be written as the space its file takes.
fn capacity_bytes(metadata: &Metadata) -> u64 {
    metadata.blocks().saturating_mul(SECTOR_BYTES)
}

/// Bytes of its last block that are written, if that is not all of them.
fn torn_bytes(metadata: &Metadata) -> usize {
    metadata.len() as usize % BLOCK_SIZE
}

fn bytes(blocks: u32) -> u64 {
    u64::from(blocks) * BLOCK_SIZE as u64
}

/// Changes the size of a file without opening it, for to open it for writing is to open the zone.
fn truncate(path: &Path, size: u64) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let size = libc::off_t::try_from(size).map_err(io::Error::other)?;
    // SAFETY: `name` is a string that ends with a zero and lives until the call returns.
    #[allow(unsafe_code)]
    let done = unsafe { libc::truncate(name.as_ptr(), size) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
