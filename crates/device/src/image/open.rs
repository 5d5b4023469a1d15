//! Opening an image: superblock, table, and what can be damaged in them.

use std::fmt;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

use persimmon_format::BLOCK_SIZE;
use persimmon_format::container::{
    CELL_BYTES, ContainerError, Superblock, ZONE_COUNT_MAX, has_magic,
};

use super::flush::FlushGate;
use super::host::{Host, HostFile};
use super::table::{Found, Table};
use super::{ImageDevice, Zones, lock};
use crate::lock::{explain, open_error, open_locked};
use crate::options::OpenOptions;
use crate::zones::{Snapshot, ZoneMachine};
use crate::{DeviceError, Result, ZoneId, ZoneState, probe, traces};

/// What to do about an image whose volume may be whole.
const SAVE_IT: &str = "`persimmon recover` may save it; do not run mkfs";

/// Damage that opening an image found and could live with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A copy of the superblock is damaged; the other one is good.
    SuperblockCopy {
        /// 0 or 1.
        copy: u32,
    },
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
            Notice::SuperblockCopy { .. } => None,
            Notice::ZoneRecord { zone } | Notice::ZoneRecordLost { zone } => Some(zone),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::SuperblockCopy { copy } => write!(
                f,
                "copy {copy} of the image's superblock is damaged; the other copy is used"
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
        let found = ImageDevice::open_on(path, Box::new(host), length, options.read_only)?;
        found.ok_or_else(|| foreign(path))
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
        settle(path, &*host, read_only)?;
        let (superblock, bad_copies) = match read_superblock(&*host, length) {
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
        if length < layout.total {
            return Err(open_error(
                path,
                &format!(
                    "the image is truncated: it has {length} bytes of {total}; copy it again, or \
                     read what is left after `truncate -s {total}`",
                    total = layout.total
                ),
            ));
        }
        let device = ImageDevice::assemble(path, host, superblock, read_only)?;
        device.heal(bad_copies).map(Some)
    }

    /// Builds the device from the superblock and the table.
    pub(super) fn assemble(
        path: &Path,
        host: Box<dyn Host>,
        superblock: Superblock,
        read_only: bool,
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
        let table = Table::load(
            &*host,
            &layout,
            geometry.zone_count,
            superblock.table_seed,
            |zone, found| {
                let snapshot = match found {
                    Found::Sound(snapshot) => snapshot,
                    Found::Healed(snapshot) => {
                        notices.push(Notice::ZoneRecord { zone });
                        snapshot
                    }
                    Found::Lost => {
                        notices.push(Notice::ZoneRecordLost { zone });
                        Snapshot {
                            state: ZoneState::Full,
                            written: geometry.capacity_blocks,
                            resets: 0,
                        }
                    }
                };
                machine.restore(zone, snapshot)
            },
            |error| explain(path, &error),
        )?;
        let device = ImageDevice {
            path: path.to_owned(),
            geometry: ImageDevice::device_geometry(&geometry),
            layout,
            superblock: Mutex::new(superblock),
            read_only,
            notices,
            on_file: host.is_file(),
            host,
            limits: (0..geometry.zone_count)
                .map(|_| AtomicU64::new(0))
                .collect(),
            orders: (0..geometry.zone_count).map(|_| Mutex::default()).collect(),
            zones: Mutex::new(Zones {
                machine,
                dirty: Vec::new(),
                is_dirty: vec![false; geometry.zone_count as usize],
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
        let damaged = !bad_copies.is_empty() || !self.notices.is_empty();
        for copy in bad_copies {
            self.notices.insert(0, Notice::SuperblockCopy { copy });
            if !self.read_only {
                let superblock = lock(&self.superblock).clone();
                self.write_superblock(&superblock, copy)?;
            }
        }
        for notice in &self.notices {
            tracing::warn!(path = %self.path.display(), "{notice}");
            if let (Some(zone), false) = (notice.zone(), self.read_only) {
                self.write_entry(zone)?;
            }
        }
        if damaged && !self.read_only {
            let synced = self.host.sync();
            synced.map_err(|error| explain(&self.path, &error))?;
        }
        Ok(self)
    }

    /// Writes one copy of the superblock to the page cache.
    pub(super) fn write_superblock(&self, superblock: &Superblock, copy: u32) -> Result<()> {
        let offset = if copy == 0 {
            0
        } else {
            self.layout.second_copy
        };
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
        self.write_superblock(&next, 1)?;
        sync()?;
        self.write_superblock(&next, 0)?;
        sync()
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

enum Unusable {
    Io(std::io::Error),
    NotAContainer,
    Bad(ContainerError),
}

/// The newest good superblock, and the copies that are not good or not as new.
fn read_superblock(host: &dyn Host, length: u64) -> Result<(Superblock, Vec<u32>), Unusable> {
    let Some(block) = read_block(host, 0, length)? else {
        return Err(Unusable::NotAContainer);
    };
    let first = match Superblock::decode(&block) {
        Err(error @ (ContainerError::Newer { .. } | ContainerError::UnknownFeatures { .. })) => {
            return Err(Unusable::Bad(error));
        }
        first => first,
    };
    let place = match &first {
        Ok(superblock) => superblock
            .geometry
            .layout()
            .map(|layout| layout.second_copy)
            .ok(),
        Err(_) => find_second_copy(host, &block, length)?,
    };
    let second = match place {
        Some(place) => second_copy_at(host, place, length)?,
        None => None,
    };
    match (first, second) {
        // Making an image begins with this copy, and the other may be that of the one before.
        (Ok(first), _) if !first.complete => Ok((first, vec![])),
        (Ok(first), Some(second)) if second.generation > first.generation => Ok((second, vec![0])),
        (Ok(first), Some(second)) if second.generation == first.generation => Ok((first, vec![])),
        (Ok(first), _) => Ok((first, vec![1])),
        (Err(_), Some(second)) => Ok((second, vec![0])),
        (Err(ContainerError::NotAContainer), None) => Err(Unusable::NotAContainer),
        (Err(error), None) => Err(Unusable::Bad(error)),
    }
}

/// The place of the second copy when the first is damaged: where the first says, or else, if the
/// first is one at all, wherever there is one.
fn find_second_copy(
    host: &dyn Host,
    first: &[u8; BLOCK_SIZE],
    length: u64,
) -> Result<Option<u64>, Unusable> {
    let hint = Superblock::hint_of_second_copy(first);
    if second_copy_at(host, hint, length)?.is_some() {
        return Ok(Some(hint));
    }
    if !has_magic(first) {
        return Ok(None);
    }
    let table_max = u64::from(ZONE_COUNT_MAX) * CELL_BYTES as u64;
    let end = length.min(table_max + 2 * BLOCK_SIZE as u64);
    for place in (0..end).step_by(BLOCK_SIZE).skip(1) {
        if second_copy_at(host, place, length)?.is_some() {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

/// The superblock whose second copy is at `place`, if a good one is there.
fn second_copy_at(
    host: &dyn Host,
    place: u64,
    length: u64,
) -> Result<Option<Superblock>, Unusable> {
    let Some(block) = read_block(host, place, length)? else {
        return Ok(None);
    };
    let belongs = |superblock: &Superblock| {
        superblock
            .geometry
            .layout()
            .map(|layout| layout.second_copy)
            == Ok(place)
    };
    Ok(Superblock::decode(&block).ok().filter(belongs))
}

fn read_block(
    host: &dyn Host,
    offset: u64,
    length: u64,
) -> Result<Option<[u8; BLOCK_SIZE]>, Unusable> {
    let end = offset.checked_add(BLOCK_SIZE as u64);
    if end.is_none_or(|end| end > length) {
        return Ok(None);
    }
    let mut block = [0; BLOCK_SIZE];
    host.read_at(&mut block, offset).map_err(Unusable::Io)?;
    Ok(Some(block))
}

fn foreign(path: &Path) -> DeviceError {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return explain(path, &error),
    };
    if let Some(trace) = traces::of_volume(&file) {
        return open_error(path, &format!("holds {trace}; {SAVE_IT}"));
    }
    let what = match probe::identify(&file) {
        Ok(Some(found)) if found.is_image() => {
            let message = "the image is truncated: not even its superblock is whole; copy it \
                           again, or restore it from a backup";
            return open_error(path, message);
        }
        Ok(Some(found)) => format!("it holds {found}"),
        Ok(None) => "nothing known is on it; if it was one, restore it from a backup, else make \
                     one with `persimmon mkfs`"
            .to_owned(),
        Err(error) => error.to_string(),
    };
    open_error(path, &format!("is not a Persimmon image: {what}"))
}

fn remedy(error: &ContainerError) -> String {
    let what_to_do = match error {
        ContainerError::Newer { .. } | ContainerError::UnknownFeatures { .. } => {
            "use a newer release of persimmon"
        }
        _ => SAVE_IT,
    };
    format!("{error}; {what_to_do}")
}
