//! Opening an image: superblock, table, and what can be damaged in them.

use persimmon_sync::Mutex;
use std::fmt;
use std::fs;
use std::io::{Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use persimmon_format::container::{COPIES, ContainerError, Layout, Superblock};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::ahead::STEP_MAX;
use super::contents::{Contents, Damage, Shortened};
use super::find::{Unusable, find};
use super::flush::FlushGate;
use super::host::{Host, HostFile};
use super::table::Table;
use super::{ByZone, ImageDevice, Zones};
use crate::lock::{damage_error, explain, open_error, open_error_of, open_locked};
use crate::options::OpenOptions;
use crate::per_zone::{PerZone, ZoneCells};
use crate::zones::ZoneMachine;
use crate::{BufferMut, DeviceError, Result, ZoneId, probe, traces};

/// What to do about an image whose volume may be whole.
const SAVE_IT: &str = "`persimmon recover` may save it; do not run mkfs";

/// What opening found damaged is logged up to so many times.
const NOTICES_LOGGED: usize = 16;

/// How an image is opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) read_only: bool,
    /// Look for it everywhere, and for what zones hold beyond their write pointers.
    pub(super) search: bool,
}

/// Damage that opening an image found and could live with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A copy of the superblock is damaged; another one is good.
    SuperblockCopy {
        /// 0, 1 or 2.
        copy: u32,
    },
    /// No copy of the superblock is left: the image was found by its zones.
    SuperblocksLost,
    /// A copy of a zone's record is damaged; the others tell its state.
    ZoneRecord {
        /// The zone.
        zone: ZoneId,
    },
    /// Records are lost in one of the tables; those in the other, or the zones themselves, tell the state.
    TableRecords {
        /// 1 or 2.
        table: u32,
        /// How many.
        zones: u32,
    },
    /// A zone's write pointer is lost: the zone counts as full, so that all its blocks can be read.
    ZoneRecordLost {
        /// The zone.
        zone: ZoneId,
    },
    /// The file or device is shorter than the image.
    Truncated {
        /// Bytes that it should have.
        total: u64,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::SuperblockCopy { copy } => write!(
                f,
                "copy {copy} of the image's superblock is damaged; another copy is used"
            ),
            Notice::SuperblocksLost => write!(
                f,
                "all copies of the image's superblock are lost; the image was found by its zones"
            ),
            Notice::ZoneRecord { zone } => write!(
                f,
                "a copy of the record of zone {zone} is damaged; another copy is used"
            ),
            Notice::TableRecords { table, zones } => write!(
                f,
                "the records of {zones} zones in table {table} of the image are lost; the other table, or \
                 the zones themselves, tell their state"
            ),
            Notice::ZoneRecordLost { zone } => write!(
                f,
                "the write pointer of zone {zone} is lost; the zone counts as full until it is reset"
            ),
            Notice::Truncated { total } => {
                write!(f, "the image is truncated: it had {total} bytes")
            }
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
        let mut host = HostFile::new(open_locked(path, false, options)?);
        let length = length_of(path, &mut host)?;
        let how = How {
            read_only: options.read_only,
            search: options.search,
        };
        let found = ImageDevice::open_as(path, Box::new(host), length, how)?;
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
        let how = How {
            read_only,
            search: false,
        };
        ImageDevice::open_as(path, host, length, how)
    }

    fn open_as(
        path: &Path,
        host: Box<dyn Host>,
        length: u64,
        how: How,
    ) -> Result<Option<ImageDevice>> {
        settle(path, &*host, how.read_only)?;
        let found = match find(&*host, length, how.search) {
            Ok(found) => found,
            Err(Unusable::Io(error)) => return Err(explain(path, &error)),
            Err(Unusable::NotAContainer) => return Ok(None),
            Err(Unusable::Bad(error)) => return Err(unusable(path, &error)),
        };
        if !found.superblock.complete {
            let message = "making this image was interrupted; `persimmon recover` looks for what was on it before, and \
                           `persimmon mkfs` makes a new one";
            return Err(open_error(path, message));
        }
        if found.bad_copies.contains(&0) && !how.read_only {
            check_not_overwritten(path, &*host, length)?;
        }
        let layout = layout_of(path, &found.superblock)?;
        if !how.read_only && fs::metadata(path).is_ok_and(|found| found.is_file()) {
            check_limit(path, layout.total)?;
        }
        let host = if length < layout.total {
            lengthened(path, host, length, &layout, how)?
        } else {
            host
        };
        let truncated = (length < layout.total).then_some(Notice::Truncated {
            total: layout.total,
        });
        let mut device = ImageDevice::assemble(path, host, found.superblock, how)?;
        if found.by_zones {
            device.notices.insert(0, Notice::SuperblocksLost);
        } else {
            let bad = found.bad_copies.iter();
            let notices = bad.map(|copy| Notice::SuperblockCopy { copy: *copy });
            device.notices.splice(0..0, notices);
        }
        device.notices.extend(truncated);
        device.heal(&found.bad_copies).map(Some)
    }

    /// Builds the device from the superblock and the tables.
    pub(super) fn assemble(
        path: &Path,
        host: Box<dyn Host>,
        superblock: Superblock,
        how: How,
    ) -> Result<ImageDevice> {
        let geometry = superblock.geometry.clone();
        let layout = layout_of(path, &superblock)?;
        let mut machine = ZoneMachine::new(
            geometry.zone_count,
            geometry.capacity_blocks,
            geometry.max_open,
            geometry.max_active,
        );
        let mut damage = Damage::default();
        let fail = |error| explain(path, &error);
        let contents = Contents {
            host: &*host,
            layout: &layout,
            capacity: geometry.capacity_blocks,
        };
        let table = Table::load(
            &*host,
            &layout,
            geometry.zone_count,
            superblock.table_seed,
            |zone, found| {
                let snapshot = damage.judge(zone, found, &contents).map_err(fail)?;
                machine.restore(zone, snapshot)
            },
            fail,
        )?;
        if how.search {
            for zone in (0..geometry.zone_count).map(ZoneId) {
                let snapshot = machine.snapshot(zone)?;
                if let Some(snapshot) = damage.distrust(zone, snapshot, &contents).map_err(fail)? {
                    machine.restore(zone, snapshot)?;
                }
            }
        }
        let zones = geometry.zone_count;
        let device = ImageDevice {
            path: path.to_owned(),
            geometry: ImageDevice::device_geometry(&geometry),
            layout,
            superblock: Mutex::new(superblock),
            read_only: how.read_only,
            on_file: host.is_file(),
            zeros: (host.overwrites_in_place() && !how.read_only)
                .then(|| BufferMut::zeroed(STEP_MAX as usize).freeze()),
            host,
            limits: ZoneCells::new(zones as usize),
            orders: ByZone::new(zones, Default::default),
            zones: Mutex::new(Zones {
                machine,
                dirty: Vec::new(),
                is_dirty: PerZone::filled(zones as usize, false),
            }),
            table,
            gate: FlushGate::default(),
            touched: AtomicBool::new(false),
            notices: damage.notices(),
        };
        let mut state = device.zones.lock();
        for zone in damage.rewrite {
            state.mark_dirty(zone);
        }
        for zone in 0..zones {
            device.publish(&state.machine, ZoneId(zone))?;
        }
        drop(state);
        Ok(device)
    }

    /// Writes again what is damaged: these copies of the superblock, and records.
    pub(super) fn heal(self, bad_copies: &[u32]) -> Result<ImageDevice> {
        let told = self.notices.iter().take(NOTICES_LOGGED);
        for notice in told {
            tracing::warn!(path = %self.path.display(), "{notice}");
        }
        let untold = self.notices.len().saturating_sub(NOTICES_LOGGED);
        if untold > 0 {
            tracing::warn!(path = %self.path.display(), "and {untold} more");
        }
        if self.read_only || self.notices.is_empty() {
            return Ok(self);
        }
        for copy in bad_copies {
            let superblock = self.superblock.lock().clone();
            self.write_superblock(&superblock, *copy)?;
        }
        self.touched.store(true, Ordering::Release);
        self.flush_cache()?;
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

    /// Changes what probing tells about the volume inside. Durable when it returns. The UUID that its zone headers have stays
    /// what it was made with.
    pub fn set_identity(&self, uuid: uuid::Uuid, label: &str) -> Result<()> {
        if self.read_only {
            return Err(DeviceError::ReadOnly);
        }
        let next = {
            let mut superblock = self.superblock.lock();
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
        for copy in 1..COPIES {
            self.write_superblock(&next, copy)?;
        }
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

/// The system ends a process, or answers an error, that writes to a file behind its limit: in the midst of work, and the image's own records
/// are at its end.
fn check_limit(path: &Path, total: u64) -> Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < total => {
            let message = format!(
                "processes may write {limit} bytes of a file here (`ulimit -f`, RLIMIT_FSIZE), and the image has {total}: raise the limit"
            );
            let os_error = Some(Errno::FBIG.raw_os_error());
            Err(open_error_of(path, &message, os_error))
        }
        _ => Ok(()),
    }
}

fn layout_of(path: &Path, superblock: &Superblock) -> Result<Layout> {
    superblock
        .layout()
        .map_err(|error| damage_error(path, &error.to_string()))
}

/// Length of the file or device, in bytes.
pub(super) fn length_of(path: &Path, host: &mut HostFile) -> Result<u64> {
    host.opened
        .file
        .seek(SeekFrom::End(0))
        .map_err(|error| explain(path, &error))
}

/// Refuses to write to an image over whose start something else was made: that would be destroyed, and may
/// be wanted by now. A partition table without partitions in use is there by mistake.
fn check_not_overwritten(path: &Path, host: &dyn Host, length: u64) -> Result<()> {
    let mut head = vec![0; length.min(probe::HEAD_BYTES as u64) as usize];
    host.read_at(&mut head, 0)
        .map_err(|error| explain(path, &error))?;
    let found = probe::identify_head(&head);
    let Some(found) = found.filter(|found| !found.is_image() && !found.is_partition_table()) else {
        return Ok(());
    };
    let message = format!(
        "holds {found}, which was made over a Persimmon image; `persimmon recover` copies what is left of that to \
         another volume"
    );
    Err(open_error(path, &message))
}

/// The host with the length of the image. Where what is missing is no zone's it can be written again.
fn lengthened(
    path: &Path,
    host: Box<dyn Host>,
    length: u64,
    layout: &Layout,
    how: How,
) -> Result<Box<dyn Host>> {
    let total = layout.total;
    if length < layout.end && !how.search {
        let message = format!(
            "the image is truncated: it has {length} bytes of {total}; copy it again, or let `persimmon recover` copy \
             what is left to another volume; `persimmon fsck --repair --scan` mends it in place"
        );
        return Err(damage_error(path, &message));
    }
    if how.read_only {
        return Ok(Box::new(Shortened::new(host, length)));
    }
    if !host.is_file() {
        let message = format!(
            "has {length} bytes, the image on it {total}; copy it to a device as large as that, or mount it with \
             `-o ro`; `persimmon recover` copies what is left to another volume"
        );
        return Err(open_error(path, &message));
    }
    host.write_bytes_at(&[0], total - 1)
        .map_err(|error| explain(path, &error))?;
    Ok(host)
}

pub(super) fn foreign(path: &Path) -> DeviceError {
    const SEARCH: &str = "`persimmon recover` looks for what is left of one everywhere on it";
    let file = match probe::open(path) {
        Ok(file) => file,
        Err(error) => return explain(path, &error),
    };
    if let Some(trace) = traces::of_volume(&file) {
        return damage_error(path, &format!("holds {trace}; {SAVE_IT}"));
    }
    let what = match probe::identify(&file) {
        Ok(Some(found)) if found.is_image() => {
            return damage_error(
                path,
                &format!(
                    "the image is truncated or damaged: no copy of its superblock is left where they are kept; {SEARCH}"
                ),
            );
        }
        Ok(Some(found)) => format!("it holds {found}; if it was one before, {SEARCH}"),
        Ok(None) => format!(
            "nothing known is on it; if it was one, {SEARCH}; a new one is made with `persimmon mkfs`"
        ),
        Err(error) => error.to_string(),
    };
    open_error(path, &format!("is not a Persimmon image: {what}"))
}

fn unusable(path: &Path, error: &ContainerError) -> DeviceError {
    let of_other_version = |message: &str| open_error_of(path, message, Some(libc::EOPNOTSUPP));
    match error {
        ContainerError::Newer { .. } | ContainerError::UnknownFeatures { .. } => {
            of_other_version(&format!("{error}; use a newer release of persimmon"))
        }
        // It says what to do.
        ContainerError::Older { .. } => of_other_version(&error.to_string()),
        _ => damage_error(
            path,
            &format!("{error}, and so are its other copies; {SAVE_IT}"),
        ),
    }
}
