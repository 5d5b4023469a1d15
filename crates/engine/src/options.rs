//! Settings of a volume: those fixed when it is made, and those of one opening.

use persimmon_device::Geometry;
use persimmon_format::inode::Timestamp;

/// Share that is held back by default, in 1/100 percent of the capacity.
const RESERVE: u32 = 700;
/// Zones from which on less of it is: what a volume needs for itself are some zones, and the rest of the reserve is garbage that
/// may wait for better times to clean it.
const RESERVE_ZONES_MANY: u32 = 1000;
/// The share there.
const RESERVE_OF_MANY: u32 = 300;

/// How to make a volume.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// UUID; chosen by the caller, so that nothing here is random.
    pub uuid: [u8; 16],
    /// Secret of the keyed checksums; random bytes from the caller.
    pub secret: [u8; 32],
    /// Label, at most 64 bytes.
    pub label: String,
    /// Share held back for metadata and cleaning, in 1/100 percent of the capacity; `None`: 7 percent, and 3
    /// where there are 1,000 zones for data.
    pub reserve_basis_points: Option<u32>,
    /// Zones that hold each block of the log and of metadata: 1, or 2, with which any one zone can
    /// be lost and nothing is but the file data in it.
    pub copies: u32,
    /// Pages by columns, short summaries, and counts in footers: without it the volume is as those were made that
    /// know none of these.
    pub compact: bool,
    /// Creation time, also of the root directory.
    pub now: Timestamp,
    /// Permissions of the root directory.
    pub root_mode: u32,
    /// Its owner.
    pub root_uid: u32,
    /// Its group.
    pub root_gid: u32,
}

impl Default for FormatOptions {
    fn default() -> Self {
        FormatOptions {
            uuid: [0; 16],
            secret: [0; 32],
            label: String::new(),
            reserve_basis_points: None,
            copies: 1,
            compact: true,
            now: Timestamp::default(),
            root_mode: 0o755,
            root_uid: 0,
            root_gid: 0,
        }
    }
}

impl FormatOptions {
    /// Share held back on such a device, in 1/100 percent of the capacity.
    #[must_use]
    pub fn reserve_on(&self, geometry: &Geometry) -> u32 {
        self.reserve_basis_points
            .unwrap_or(match geometry.zone_count - geometry.metadata_zones {
                ..RESERVE_ZONES_MANY => RESERVE,
                RESERVE_ZONES_MANY.. => RESERVE_OF_MANY,
            })
    }
}

/// In which order fsync sends file data and the record that refers to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FsyncOrder {
    /// Both at once; recovery tells by write pointers or checksums whether the data had arrived.
    #[default]
    WritePointer,
    /// The data first, waited for and flushed, then the record: slower, to compare with.
    Strict,
}

/// Whether the device is told to flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Barrier {
    /// If it has a volatile cache.
    #[default]
    Auto,
    /// Always, even if it says that it has no volatile cache.
    On,
    /// Not before the volume is closed: what was acknowledged can be lost with the power, but not with the process.
    Off,
}

/// How to open a volume. Every bound on memory is here.
#[derive(Clone, Debug)]
pub struct Options {
    /// Replay in memory, write nothing.
    pub read_only: bool,
    /// Metadata pages kept in memory, bytes. Dirty pages come on top, up to
    /// [`Options::dirty_pages_max`].
    pub cache_bytes_max: usize,
    /// File data waiting to be written, bytes.
    pub staging_bytes_max: usize,
    /// Last blocks of files that were synced lately, kept for who appends to them, bytes.
    pub tails_bytes_max: usize,
    /// Journal between two checkpoints, bytes, at most 256 MiB. Smaller on small volumes.
    pub journal_bytes_max: u64,
    /// Distinct pages changed since the last durable checkpoint. Smaller on small volumes.
    pub dirty_pages_max: usize,
    /// Journal, or pages changed, in percent of their bounds, from which on a checkpoint is written
    /// ahead.
    pub checkpoint_due_percent: u32,
    /// Zones of so many blocks are large: a volume on one device keeps few of them for itself, by the room left in those that
    /// are open. One that was filled so must be opened so.
    pub large_zone_blocks: u32,
    /// How fsync goes.
    pub fsync: FsyncOrder,
    /// When the device is flushed.
    pub barrier: Barrier,
    /// When zones are cleaned.
    pub cleaning: CleaningOptions,
}

/// Thresholds of cleaning. [`crate::Volume::set_cleaning_options`] changes them at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleaningOptions {
    /// Zones kept free for the time between two checkpoints, in 1/100 percent of those that nothing
    /// live would need: with more of them there are fewer checkpoints, which each write the zone
    /// table, and less garbage in those that are cleaned. 12 MiB, or three zones, where they would be less, as far as
    /// that is no more than an eighth of those that nothing live would need; none by this with 0.
    pub pool_basis_points: u32,
    /// At least so many.
    pub pool_zones_min: u32,
    /// Garbage, in percent of its capacity, from which on a metadata zone is cleaned. Less of it
    /// is left to die by itself.
    pub metadata_garbage_percent: u32,
}

impl Default for CleaningOptions {
    fn default() -> Self {
        CleaningOptions {
            pool_basis_points: 200,
            pool_zones_min: 2,
            metadata_garbage_percent: 70,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            read_only: false,
            cache_bytes_max: 64 << 20,
            staging_bytes_max: 32 << 20,
            tails_bytes_max: 4 << 20,
            journal_bytes_max: 32 << 20,
            dirty_pages_max: 8192,
            large_zone_blocks: 1 << 17,
            checkpoint_due_percent: 75,
            fsync: FsyncOrder::default(),
            barrier: Barrier::default(),
            cleaning: CleaningOptions::default(),
        }
    }
}
