//! Settings of a volume: those fixed when it is made, and those of one opening.

use persimmon_format::inode::Timestamp;

/// How to make a volume.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// UUID; chosen by the caller, so that nothing here is random.
    pub uuid: [u8; 16],
    /// Secret of the keyed checksums; random bytes from the caller.
    pub secret: [u8; 32],
    /// Label, at most 64 bytes.
    pub label: String,
    /// Share held back for metadata and cleaning, in 1/100 percent of the capacity.
    pub reserve_basis_points: u32,
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
            reserve_basis_points: 700,
            now: Timestamp::default(),
            root_mode: 0o755,
            root_uid: 0,
            root_gid: 0,
        }
    }
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
    /// Journal between two checkpoints, bytes. Smaller on small volumes.
    pub journal_bytes_max: u64,
    /// Distinct pages changed between two checkpoints. Smaller on small volumes.
    pub dirty_pages_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            read_only: false,
            cache_bytes_max: 64 << 20,
            staging_bytes_max: 32 << 20,
            journal_bytes_max: 32 << 20,
            dirty_pages_max: 4096,
        }
    }
}
