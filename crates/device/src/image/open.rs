//! Opening an image: superblock, table, and what can be damaged in them.

use std::fmt;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

use persimmon_format::container::{COPIES, ContainerError, Superblock};

use super::find::{self, FoundImage, Unusable};
use super::flush::FlushGate;
use super::host::{Host, HostFile};
use super::table::{Condition, FoundState, Table};
use super::{ByZone, ImageDevice, Zones, lock};
use crate::lock::{explain, open_error, open_locked};
use crate::options::OpenOptions;
use crate::zones::{Snapshot, ZoneMachine};
use crate::{DeviceError, Result, ZoneId, ZoneState, probe, traces};

/// What to do about an image whose volume may be whole.
const SAVE_IT: &str = "`persimmon recover --scan` may save it; do not run mkfs";

/// Notices told one by one in the log.
const NOTICES_LOGGED_MAX: usize = 20;

/// How an image is opened.
#[derive(Clone, Copy)]
struct Opening {
    read_only: bool,
    /// Look for it everywhere, and take no write pointer for granted.
    scan: bool,
}

/// Damage that opening an image found and could live with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A copy of the superblock is damaged or missing; another one is good.
    SuperblockCopy {
        /// 0 and 1 are at the start, 2 at the end.
        copy: u32,
    },
    /// No copy of the superblock is left: the headers of the zones told the shape of the image.
    FoundByZones,
    /// A copy of a zone's record is damaged; the others tell its state.
    ZoneRecord {
        /// The zone.
        zone: ZoneId,
    },
    /// A zone's record is lost: the zone counts as full, so that all its blocks can be read.
    ZoneRecordLost {
        /// The zone.
        zone: ZoneId,
    },
}

impl Notice {
    /// The zone whose record it is about.
    #[must_use]
    pub fn zone(self) -> Option<ZoneId> {
        match self {
            Notice::SuperblockCopy { .. } | Notice::FoundByZones => None,
            Notice::ZoneRecord { zone } | Notice::ZoneRecordLost { zone } => Some(zone),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::SuperblockCopy { copy } => write!(
                f,
                "copy {copy} of the image's superblock is damaged; another copy is used"
            ),
            Notice::FoundByZones => f.write_str(
                "no copy of the image's superblock is left; the headers of its zones told its shape",
            ),
            Notice::ZoneRecord { zone } => write!(
                f,
                "a copy of the record of zone {zone} is damaged; another copy is used"
            ),
            Notice::ZoneRecordLost { zone } => write!(
                f,
                "the record of zone {zone} is damaged; the zone counts as full until it is reset"
            ),
        }
    }
}

impl ImageDevice {
    /// Opens an image file or device. [`ImageDevice::notices`] tells of damage.
    ///
    /// Errors: [`DeviceError::Busy`] where another process has it open, else
    /// [`DeviceError::Open`] with what is wrong and what to do.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<ImageDevice> {
        let path = path.as_ref();
        let mut host = HostFile::new(open_locked(
            path,
            !options.read_only,
            false,
            options.held,
            options.wait_for_lock,
        )?);
        let length = length_of(path, &mut host)?;
        let how = Opening {
            read_only: options.read_only,
            scan: options.scan,
        };
        let found = ImageDevice::find_on(path, Box::new(host), length, how)?;
        found.ok_or_else(|| foreign(path, options.scan))
    }

    /// Opens the image in the `length` bytes of a host that the caller has for itself. `None`: there
    /// is none.
    ///
    /// Errors: as of [`ImageDevice::open`].
    pub(crate) fn open_on(
        path: &Path,
        host: Box<dyn Host>,
        length: u64,
        read_only: bool,
    ) -> Result<Option<ImageDevice>> {
        let how = Opening {
            read_only,
            scan: false,
        };
        ImageDevice::find_on(path, host, length, how)
    }

    fn find_on(
        path: &Path,
        host: Box<dyn Host>,
        length: u64,
        how: Opening,
    ) -> Result<Option<ImageDevice>> {
        settle(path, &*host, how.read_only)?;
        let FoundImage {
            superblock,
            bad_copies,
            by_zones,
        } = match find::find(&|into, at| host.read_at(into, at), length, how.scan) {
            Ok(found) => found,
            Err(Unusable::Io(error)) => return Err(explain(path, &error)),
            Err(Unusable::NotAContainer) => return Ok(None),
            Err(Unusable::Bad(error)) => return Err(open_error(path, &remedy(&error))),
        };
        if !superblock.complete {
            let message = "making this image was interrupted; run `persimmon mkfs` again";
            return Err(open_error(path, message));
        }
        let layout = layout_of(path, &superblock)?;
        // What is behind the zones has its like at the start.
        if length < layout.end {
            return Err(open_error(
                path,
                &format!(
                    "the image is truncated: it has {length} bytes of {total}; copy it again, or have `persimmon \
                     recover` save what is left after `truncate -s {total}`",
                    total = layout.total
                ),
            ));
        }
        let mut device = ImageDevice::read(path, host, superblock, how, length)?;
        if by_zones {
            device.notices.insert(0, Notice::FoundByZones);
        }
        // A device that ends before has no place for them.
        let fits = |copy: &u32| {
            let end = layout.copy(*copy) + persimmon_format::BLOCK_SIZE as u64;
            device.on_file || end <= length
        };
        let bad_copies = bad_copies.into_iter().filter(fits).collect();
        device.heal(bad_copies).map(Some)
    }

    /// Builds the device from the superblock and the tables of a host that holds all of both.
    pub(super) fn assemble(
        path: &Path,
        host: Box<dyn Host>,
        superblock: Superblock,
        read_only: bool,
    ) -> Result<ImageDevice> {
        let how = Opening {
            read_only,
            scan: false,
        };
        ImageDevice::read(path, host, superblock, how, u64::MAX)
    }

    /// Builds the device from the superblock and the tables, as far as they are in `length` bytes.
    fn read(
        path: &Path,
        host: Box<dyn Host>,
        superblock: Superblock,
        how: Opening,
        length: u64,
    ) -> Result<ImageDevice> {
        let geometry = superblock.geometry.clone();
        let layout = layout_of(path, &superblock)?;
        let mut machine = ZoneMachine::new(
            geometry.zone_count,
            geometry.capacity_blocks,
            geometry.max_open,
            geometry.max_active,
        );
        let mut notices = Vec::new();
        let mut behind = Vec::new();
        // Everything in a zone can be read then: checksums tell what is true.
        let unknown = |resets| Snapshot {
            state: ZoneState::Full,
            written: geometry.capacity_blocks,
            resets,
        };
        let table = Table::load(
            &*host,
            &layout,
            length,
            geometry.zone_count,
            superblock.table_seed,
            |zone, found| {
                let snapshot = match found.state {
                    FoundState::Known(snapshot) if !how.scan => snapshot,
                    FoundState::Known(snapshot) => unknown(snapshot.resets),
                    FoundState::InUse(resets) => unknown(resets),
                    FoundState::Lost => unknown(0),
                };
                if matches!(found.state, FoundState::InUse(_) | FoundState::Lost) {
                    notices.push(Notice::ZoneRecordLost { zone });
                } else if found.cells != [Condition::Sound; 2] {
                    notices.push(Notice::ZoneRecord { zone });
                } else if found.second_is_behind {
                    behind.push(zone);
                }
                machine.restore(zone, snapshot)
            },
            |error| explain(path, &error),
        )?;
        if how.scan {
            for zone in (0..geometry.zone_count).map(ZoneId) {
                machine.restore(zone, unknown(machine.snapshot(zone)?.resets))?;
            }
        }
        let device = ImageDevice {
            path: path.to_owned(),
            geometry: ImageDevice::device_geometry(&geometry),
            layout,
            superblock: Mutex::new(superblock),
            read_only: how.read_only,
            notices,
            behind,
            on_file: host.is_file(),
            host,
            limits: (0..geometry.zone_count)
                .map(|_| AtomicU64::new(0))
                .collect(),
            orders: ByZone::new(geometry.zone_count, Default::default),
            zones: Mutex::new(Zones {
                machine,
                dirty: Vec::new(),
                is_dirty: vec![false; geometry.zone_count as usize].into(),
            }),
            table,
            gate: FlushGate::default(),
            touched: AtomicBool::new(false),
        };
        let zones = lock(&device.zones);
        for zone in 0..geometry.zone_count {
            device.publish(&zones.machine, ZoneId(zone))?;
        }
        drop(zones);
        Ok(device)
    }

    /// Repairs superblock and records.
    pub(super) fn heal(mut self, bad_copies: Vec<u32>) -> Result<ImageDevice> {
        let is_damaged = !bad_copies.is_empty() || !self.notices.is_empty();
        for copy in bad_copies {
            self.notices.insert(0, Notice::SuperblockCopy { copy });
            if !self.read_only {
                let superblock = lock(&self.superblock).clone();
                self.write_superblock(&superblock, copy)?;
            }
        }
        for notice in self.notices.iter().take(NOTICES_LOGGED_MAX) {
            tracing::warn!(path = %self.path.display(), "{notice}");
        }
        if let Some(more) = self.notices.len().checked_sub(NOTICES_LOGGED_MAX + 1) {
            tracing::warn!(path = %self.path.display(), "{} more zones have damaged records", more + 1);
        }
        if self.read_only {
            return Ok(self);
        }
        let damaged = self.notices.iter().filter_map(|notice| notice.zone());
        for zone in damaged.chain(std::mem::take(&mut self.behind)) {
            self.write_entry(zone)?;
        }
        if is_damaged {
            let synced = self.host.sync();
            synced.map_err(|error| explain(&self.path, &error))?;
        }
        Ok(self)
    }

    /// Writes one copy of the superblock to the page cache.
    pub(super) fn write_superblock(&self, superblock: &Superblock, copy: u32) -> Result<()> {
        let offset = self.layout.copy(copy);
        let block = superblock
            .encode(copy)
            .map_err(|error| open_error(&self.path, &error.to_string()))?;
        self.host
            .write_bytes_at(&block, offset)
            .map_err(|error| explain(&self.path, &error))
    }

    /// Changes what probing tells about the volume inside. Durable when it returns.
    pub fn set_identity(&self, uuid: uuid::Uuid, label: &str) -> Result<()> {
        if self.read_only {
            return Err(DeviceError::ReadOnly);
        }
        let next = {
            let mut superblock = lock(&self.superblock);
            superblock.generation = superblock.generation.saturating_add(1);
            superblock.uuid = uuid.into_bytes();
            superblock.label = label.to_owned();
            superblock.clone()
        };
        let sync = || {
            self.host
                .sync()
                .map_err(|error| explain(&self.path, &error))
        };
        // One copy is good at any time.
        for copy in (0..COPIES).rev() {
            self.write_superblock(&next, copy)?;
            sync()?;
        }
        Ok(())
    }
}

/// Makes durable what a killed process left in the page cache, so that it may be acknowledged from here on, and
/// has the rest read from the disk. After a failed fdatasync the cache has what the disk has not, and the
/// host knows nothing of it any more: a new descriptor gets no error.
pub(super) fn settle(path: &Path, host: &dyn Host, read_only: bool) -> Result<()> {
    if !read_only {
        host.sync().map_err(|error| {
            let message = format!(
                "what was written to it last cannot be made durable: {error}; see to the disk or filesystem below \
                 and try again, to go on from what is on it"
            );
            open_error(path, &message)
        })?;
    }
    host.drop_cached().map_err(|error| explain(path, &error))
}

fn layout_of(path: &Path, superblock: &Superblock) -> Result<super::Layout> {
    superblock
        .geometry
        .layout()
        .map_err(|error| open_error(path, &error.to_string()))
}

/// Length of the file or device, in bytes.
pub(super) fn length_of(path: &Path, host: &mut HostFile) -> Result<u64> {
    host.opened
        .file
        .seek(SeekFrom::End(0))
        .map_err(|error| explain(path, &error))
}

fn foreign(path: &Path, scanned: bool) -> DeviceError {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return explain(path, &error),
    };
    if let Some(trace) = traces::of_volume(&file) {
        return open_error(path, &format!("holds {trace}; {SAVE_IT}"));
    }
    let what = match probe::identify(&file) {
        Ok(Some(found)) if found.is_image() => {
            "the image is truncated: not even its first block is whole; copy it again".to_owned()
        }
        Ok(Some(found)) => {
            format!("is not a Persimmon image: it holds {found}")
        }
        Ok(None) if scanned => {
            "is not a Persimmon image: nothing of one was found anywhere on it".to_owned()
        }
        Ok(None) => "is not a Persimmon image: nothing known is on it; if it was one whose start and end are \
                     overwritten, `persimmon recover --scan` looks for it by its zones"
            .to_owned(),
        Err(error) => error.to_string(),
    };
    open_error(path, &what)
}

fn remedy(error: &ContainerError) -> String {
    let what_to_do = match error {
        ContainerError::Newer { .. } | ContainerError::UnknownFeatures { .. } => {
            "use a newer release of persimmon"
        }
        ContainerError::Older { .. } => return error.to_string(),
        _ => SAVE_IT,
    };
    format!("{error}; {what_to_do}")
}
