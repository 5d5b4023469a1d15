//! Settings of a volume: those fixed when it is made, and those of one opening.

use std::sync::Arc;

use persimmon_device::Geometry;
use persimmon_format::Compression;
use persimmon_format::inode::Timestamp;
use persimmon_format::zone_header::LABEL_LEN_MAX;

/// All of something, in 1/100 percent.
const WHOLE: u64 = 10_000;

/// The share that is reserved by default, in 1/100 percent of the capacity.
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
    /// The share reserved for metadata and cleaning, in 1/100 percent of the capacity; `None`: 7 percent, and 3
    /// where there are 1,000 zones for data.
    pub reserve_basis_points: Option<u32>,
    /// Zones that hold each block of the log and of metadata: 1, or 2, with which any one zone can
    /// be lost and nothing is but the file data in it.
    pub copies: u32,
    /// How the files of the volume are compressed, where they are told nothing else; `None`: as whoever opens it says.
    pub compression: Option<Compression>,
    /// What owners take is counted, and can be limited, from the beginning.
    pub quota: bool,
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
            compression: None,
            quota: false,
            now: Timestamp::default(),
            root_mode: 0o755,
            root_uid: 0,
            root_gid: 0,
        }
    }
}

/// Why no volume can be made as [`FormatOptions`] say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatOptionsError {
    /// The label does not fit.
    #[error("the label is {bytes} bytes long; {LABEL_LEN_MAX} fit")]
    Label {
        /// Its length.
        bytes: usize,
    },
    /// Metadata cannot be written so many times.
    #[error("{copies} copies of the metadata: there can be 1 or 2")]
    Copies {
        /// As asked for.
        copies: u32,
    },
    /// All zones would be reserved, and none left for files.
    #[error(
        "a reserve of {} % of {zones} zones leaves no room for files; the largest that does is {} %",
        percent(*basis_points), percent(*largest)
    )]
    Reserve {
        /// As asked for, in 1/100 percent.
        basis_points: u32,
        /// Zones for data.
        zones: u32,
        /// The largest that leaves one of them.
        largest: u32,
    },
    /// More would be reserved than there is.
    #[error("a reserve of {} % is more than the whole volume", percent(*basis_points))]
    ReserveOfMore {
        /// As asked for, in 1/100 percent.
        basis_points: u32,
    },
}

fn percent(basis_points: u32) -> String {
    format!("{}.{:02}", basis_points / 100, basis_points % 100)
}

/// Refuses a label that does not fit.
pub(crate) fn check_label(label: &str) -> Result<(), FormatOptionsError> {
    match label.len() {
        bytes if bytes > LABEL_LEN_MAX => Err(FormatOptionsError::Label { bytes }),
        _ => Ok(()),
    }
}

impl FormatOptions {
    /// Whether a volume can be made so on some device: to be asked before anything is written.
    pub fn check(&self) -> Result<(), FormatOptionsError> {
        check_label(&self.label)?;
        if !(1..=2).contains(&self.copies) {
            let copies = self.copies;
            return Err(FormatOptionsError::Copies { copies });
        }
        match self.reserve_basis_points {
            Some(basis_points) if u64::from(basis_points) > WHOLE => {
                Err(FormatOptionsError::ReserveOfMore { basis_points })
            }
            _ => Ok(()),
        }
    }

    /// Whole zones are reserved: at least one must be left for users.
    pub(crate) fn check_reserve(&self, geometry: &Geometry) -> Result<(), FormatOptionsError> {
        let basis_points = self.reserve_on(geometry);
        let zones = (geometry.zone_count - geometry.metadata_zones.count()).max(1);
        // At most 10,000.
        let largest = (u64::from(zones - 1) * WHOLE / u64::from(zones)) as u32;
        if basis_points <= largest {
            Ok(())
        } else {
            Err(FormatOptionsError::Reserve {
                basis_points,
                zones,
                largest,
            })
        }
    }

    /// The share reserved on such a device, in 1/100 percent of the capacity.
    #[must_use]
    pub fn reserve_on(&self, geometry: &Geometry) -> u32 {
        self.reserve_basis_points.unwrap_or(
            match geometry.zone_count - geometry.metadata_zones.count() {
                ..RESERVE_ZONES_MANY => RESERVE,
                RESERVE_ZONES_MANY.. => RESERVE_OF_MANY,
            },
        )
    }
}

/// In which order fsync sends file data and the record that refers to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FsyncOrder {
    /// Both at once, but the record of much data after it where others sync, too; recovery tells by write pointers or checksums whether
    /// the data had arrived.
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

/// Which synced blocks are written as differences to what is stored for them, where little changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deltas {
    /// None.
    #[default]
    None,
    /// Those whose stored content is in memory, because they were synced or read lately.
    InMemory,
    /// All of them: what is stored is read first if it has to be.
    Always,
}

impl Deltas {
    /// By its name: `none`, `memory` or `always`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Deltas> {
        match name {
            "none" => Some(Deltas::None),
            "memory" => Some(Deltas::InMemory),
            "always" => Some(Deltas::Always),
            _ => None,
        }
    }
}

/// Whether content that is stored already is looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dedup {
    /// No: all that is written takes its own room.
    #[default]
    None,
    /// While it is written: blocks that some file has already become shared with it.
    Write,
}

impl Dedup {
    /// By its name: `none` or `write`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Dedup> {
        match name {
            "none" => Some(Dedup::None),
            "write" => Some(Dedup::Write),
            _ => None,
        }
    }
}

/// How whoever opens a volume runs things side by side. The engine has no threads of its own.
pub trait Parallel: std::fmt::Debug + Send + Sync {
    /// Runs jobs 0 to `jobs` - 1, in any order, and returns when all of them are done.
    fn run(&self, jobs: usize, job: &(dyn Fn(usize) + Sync));
}

/// One after the other.
#[derive(Clone, Copy, Debug)]
pub struct Serial;

impl Parallel for Serial {
    fn run(&self, jobs: usize, job: &(dyn Fn(usize) + Sync)) {
        (0..jobs).for_each(job);
    }
}

/// How to open a volume. Every bound on memory is here.
#[derive(Clone, Debug)]
pub struct Options {
    /// Replay in memory, write nothing.
    pub read_only: bool,
    /// The volume is opened to be repaired: valid counts that contradict the tree do not stop it before
    /// [`crate::Volume::repair`] has counted anew.
    pub recount: bool,
    /// The log goes on in another zone, whose header says what the volume is called now.
    pub begin_log_zone: bool,
    /// Metadata pages kept in memory, bytes. Dirty pages come on top, up to
    /// [`Options::dirty_pages_max`].
    pub cache_bytes_max: usize,
    /// File data waiting to be written, bytes.
    pub staging_bytes_max: usize,
    /// Last blocks of files that were synced lately, kept for who appends to them, bytes.
    pub tails_bytes_max: usize,
    /// Blocks of files that were read lately, in pieces of up to 64 KiB, bytes; 0: none. For who has no page cache above the volume.
    pub read_cache_bytes_max: usize,
    /// Blocks out of compressed frames that were read lately, for reads that do not use that, bytes.
    pub frame_cache_bytes_max: usize,
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
    /// How files are compressed that were told nothing ([`Inode::compression`](persimmon_format::inode::Inode::compression)). Only on
    /// volumes with the feature [`FRAMES`](persimmon_format::zone_header::FRAMES).
    pub compression: Compression,
    /// Whether synced blocks are written as differences to what is stored. Only on volumes with the feature
    /// [`DELTAS`](persimmon_format::zone_header::DELTAS).
    pub deltas: Deltas,
    /// Whether blocks that are stored already become shared while they are written. Only on volumes with the feature
    /// [`SHARED_BLOCKS`](persimmon_format::zone_header::SHARED_BLOCKS).
    pub dedup: Dedup,
    /// Hashes of blocks kept in memory for that, bytes: not more than 1/1000 of the data that the volume has, but always 64 KiB.
    pub dedup_bytes_max: usize,
    /// How frames are compressed side by side.
    pub parallel: Arc<dyn Parallel>,
    /// How fsync goes.
    pub fsync: FsyncOrder,
    /// When the device is flushed.
    pub barrier: Barrier,
    /// When zones are cleaned.
    pub cleaning: CleaningOptions,
}

/// Thresholds of cleaning. [`crate::Volume::tune`] changes them at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleaningOptions {
    /// Zones kept free for the time between two checkpoints, in 1/100 percent of those that nothing
    /// live would need: with more of them there are fewer checkpoints, which each write the zone
    /// table, and less garbage in those that are cleaned. 12 MiB, where they would be less, as far as
    /// that is no more than an eighth of those that nothing live would need; none by this with 0.
    pub free_target_basis_points: u32,
    /// At least so many.
    pub free_target_zones_min: u32,
    /// Garbage, in percent of its capacity, from which on a metadata zone is cleaned. Less of it
    /// is left to die by itself.
    pub metadata_garbage_percent: u32,
}

impl Default for CleaningOptions {
    fn default() -> Self {
        CleaningOptions {
            free_target_basis_points: 200,
            free_target_zones_min: 2,
            metadata_garbage_percent: 70,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            read_only: false,
            recount: false,
            begin_log_zone: false,
            cache_bytes_max: 64 << 20,
            staging_bytes_max: 32 << 20,
            tails_bytes_max: 4 << 20,
            read_cache_bytes_max: 0,
            frame_cache_bytes_max: 8 << 20,
            journal_bytes_max: 32 << 20,
            dirty_pages_max: 8192,
            large_zone_blocks: 1 << 17,
            checkpoint_due_percent: 75,
            compression: Compression::None,
            deltas: Deltas::None,
            dedup: Dedup::None,
            dedup_bytes_max: 64 << 20,
            parallel: Arc::new(Serial),
            fsync: FsyncOrder::default(),
            barrier: Barrier::default(),
            cleaning: CleaningOptions::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_reserve(zone_count: u32, basis_points: u32) -> Result<(), FormatOptionsError> {
        let geometry = Geometry {
            zone_count,
            zone_blocks: 256,
            conventional_zones: 0,
            metadata_zones: Default::default(),
            max_open: None,
            max_active: None,
            max_transfer_blocks: 256,
            max_append_blocks: 256,
            volatile_cache: true,
            write_pointer_is_proof: false,
            stripes: None,
        };
        let options = FormatOptions {
            reserve_basis_points: Some(basis_points),
            ..FormatOptions::default()
        };
        options.check_reserve(&geometry)
    }

    #[test]
    fn a_reserve_leaves_a_zone() {
        for zones in [1, 15, 63, 64, 127, 10_000, 12_345] {
            let largest = (0..=10_000)
                .rev()
                .find(|share| with_reserve(zones, *share).is_ok())
                .unwrap();
            let reserved = |share: u32| (u64::from(zones) * u64::from(share)).div_ceil(10_000);
            assert!(reserved(largest) < u64::from(zones), "{zones} zones");
            assert_eq!(reserved(largest + 1), u64::from(zones), "{zones} zones");
        }
        let error = with_reserve(64, 9999).unwrap_err().to_string();
        assert!(
            error.contains("99.99 %") && error.contains("98.43 %"),
            "{error}"
        );
    }

    /// A label was cut without a word, 7 copies were found wrong when the image was there already, and a reserve of
    /// 200 % made a volume of no bytes.
    #[test]
    fn what_no_volume_can_have_is_refused() {
        let options = FormatOptions::default();
        let label = |bytes| FormatOptions {
            label: "x".repeat(bytes),
            ..options.clone()
        };
        assert_eq!(label(64).check(), Ok(()));
        let error = label(65).check().unwrap_err();
        assert_eq!(error, FormatOptionsError::Label { bytes: 65 });
        for copies in [0, 3, 7] {
            let options = FormatOptions {
                copies,
                ..options.clone()
            };
            assert_eq!(options.check(), Err(FormatOptionsError::Copies { copies }));
        }
        let basis_points = 20_000;
        let options = FormatOptions {
            reserve_basis_points: Some(basis_points),
            ..options
        };
        let refused = FormatOptionsError::ReserveOfMore { basis_points };
        assert_eq!(options.check(), Err(refused));
    }
}
