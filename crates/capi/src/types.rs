//! Structures and constants of C.

use std::ffi::{c_char, c_int};

use persimmon::{Attr, FileKind, Filesystem, Lifetime, StatFs, Timestamp};

use crate::process::{Object, Process};

/// Major version of the interface that this header is of: a program works with every library of the same one, from its own minor version on.
/// It is in the name of the shared library.
pub const PERSIMMON_VERSION_MAJOR: u32 = 0;
/// Minor version: functions, flags and fields were added since the one before.
pub const PERSIMMON_VERSION_MINOR: u32 = 1;

/// Version of the library that the program runs with, which may be newer than its header: 65536 times the major version, plus the minor one.
#[unsafe(no_mangle)]
pub extern "C" fn persimmon_version() -> u32 {
    PERSIMMON_VERSION_MAJOR << 16 | PERSIMMON_VERSION_MINOR
}

/// A filesystem in use.
pub struct persimmon_fs(pub(crate) Filesystem, Process);

impl persimmon_fs {
    pub(crate) fn new(fs: Filesystem) -> persimmon_fs {
        persimmon_fs(fs, Process::current())
    }
}

impl Object for persimmon_fs {
    const WHAT: &'static str = "the filesystem";

    fn process(&self) -> Process {
        self.1
    }
}

/// How to make a volume. Set `struct_size` to `sizeof` and everything else to 0 for the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct persimmon_create_options {
    /// `sizeof(persimmon_create_options)`.
    pub struct_size: usize,
    /// Bytes of an image; 0: all of the block device or image that is there. Ignored on zoned drives, which have a size.
    pub size_bytes: u64,
    /// Bytes of a zone of an image: whole blocks of 4096 bytes, 1 MiB to 4 GiB; 0: by its size.
    pub zone_bytes: u64,
    /// UTF-8, at most 64 bytes; NULL: none.
    pub label: *const c_char,
    /// Share held back for metadata and cleaning, 1/100 percent, plus 1; 0: the default.
    pub reserve_basis_points_plus_one: u32,
    /// Copies of metadata, 1 or 2; 0: 1.
    pub copies: u32,
    /// Not 0: overwrite what is there.
    pub force: c_int,
    /// How files are compressed, where the attribute `user.persimmon.compression` does not say it: `none`, `lz4`, `zstd`,
    /// `zstd:1` to `zstd:15`; NULL: as whoever opens the volume says.
    pub compression: *const c_char,
    /// 2: each block of the device, of files and metadata, is in two zones, and any one can be lost. 0 or 1: it is not.
    pub data_copies: u32,
    /// Zones of file data that share a zone of parity, 2 to 15: any one of them can be lost. 0: no parity.
    pub data_parity: u32,
}

/// How to open a volume. Set `struct_size` to `sizeof` and everything else to 0 for the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct persimmon_options {
    /// `sizeof(persimmon_options)`.
    pub struct_size: usize,
    /// Not 0: write nothing.
    pub read_only: c_int,
    /// Bytes of metadata kept in memory; 0: 64 MiB.
    pub cache_bytes: u64,
    /// Bytes of file data that wait in memory; 0: 32 MiB.
    pub staging_bytes: u64,
    /// Milliseconds until what was written is durable without being asked; 0: 5000.
    pub commit_milliseconds: u64,
    /// Bytes of blocks of files kept in memory that were read in pieces of up to 64 KiB; 0: none.
    pub read_cache_bytes: u64,
    /// How files are compressed, where neither the attribute `user.persimmon.compression` nor the volume says it: `none`, `lz4`,
    /// `zstd`, `zstd:1` to `zstd:15`; NULL: `lz4`.
    pub compression: *const c_char,
    /// Which synced blocks are written as differences to what is stored, where little changed: `none`; `memory`, those whose stored content
    /// is in memory; `always`, for which it is read; NULL: `memory`.
    pub deltas: *const c_char,
    /// Whether blocks that some file has already become shared with it while they are written: `none`, `write`; NULL: `none`.
    pub dedup: *const c_char,
    /// Bytes of hashes of blocks kept in memory for that, and never more than 1/1000 of the data; 0: 64 MiB.
    pub dedup_bytes: u64,
}

/// A point in time, from 1970 on.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct persimmon_time {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds behind them.
    pub nanoseconds: u32,
}

impl From<Timestamp> for persimmon_time {
    fn from(time: Timestamp) -> persimmon_time {
        persimmon_time {
            seconds: time.seconds,
            nanoseconds: time.nanoseconds,
        }
    }
}

/// Attributes, as of stat(2).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct persimmon_stat {
    /// Inode number, never used for another file in the life of the volume.
    pub ino: u64,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Space taken, units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: persimmon_time,
    /// Last change of content.
    pub mtime: persimmon_time,
    /// Last change of anything.
    pub ctime: persimmon_time,
    /// Creation.
    pub btime: persimmon_time,
}

impl From<Attr> for persimmon_stat {
    fn from(attr: Attr) -> persimmon_stat {
        persimmon_stat {
            ino: attr.ino.0,
            mode: attr.mode,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            blocks: attr.blocks,
            atime: attr.atime.into(),
            mtime: attr.mtime.into(),
            ctime: attr.ctime.into(),
            btime: attr.btime.into(),
        }
    }
}

/// Space and inodes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct persimmon_space {
    /// Bytes that users may fill, all together.
    pub total_bytes: u64,
    /// Bytes of them that are left.
    pub available_bytes: u64,
    /// Inodes in use, and an estimate of how many more there may be.
    pub inodes: u64,
    /// That estimate.
    pub inodes_available: u64,
}

impl From<StatFs> for persimmon_space {
    fn from(space: StatFs) -> persimmon_space {
        let block = u64::from(space.block_size);
        persimmon_space {
            total_bytes: space.blocks * block,
            available_bytes: space.blocks_available * block,
            inodes: space.files.saturating_sub(space.files_free),
            inodes_available: space.files_free,
        }
    }
}

/// Open for reading.
pub const PERSIMMON_OPEN_READ: u32 = 1;
/// Open for writing.
pub const PERSIMMON_OPEN_WRITE: u32 = 2;
/// Writes go to the end.
pub const PERSIMMON_OPEN_APPEND: u32 = 4;
/// Make it if it is missing.
pub const PERSIMMON_OPEN_CREATE: u32 = 8;
/// Make it; it must be missing.
pub const PERSIMMON_OPEN_CREATE_NEW: u32 = 16;
/// Empty it.
pub const PERSIMMON_OPEN_TRUNCATE: u32 = 32;
/// Every write is durable before it returns.
pub const PERSIMMON_OPEN_SYNC: u32 = 64;
/// Every write outlives the death of the process once it has returned, with every change of names and attributes before:
/// the device, or the kernel where the volume is an image, has it. The power may still take it. A small write costs a block of the
/// journal, and no flush of the device.
pub const PERSIMMON_OPEN_WRITE_THROUGH: u32 = 128;
/// What was appended before `persimmon_flush` outlives the death of the process for the cost of copying it: the kernel keeps it in a
/// file in `/dev/shm`, up to 1 MiB for each open file, and the next opening of the volume that writes brings it in. Changes of names do not
/// go with it, except before the first flush. Where the kernel cannot keep it, a flush goes to the device.
pub const PERSIMMON_OPEN_KEEP_FLUSHED: u32 = 256;
/// Reads go to the device, past `read_cache_bytes` of `persimmon_options`.
pub const PERSIMMON_OPEN_DIRECT: u32 = 512;

/// How long data will live is not known.
pub const PERSIMMON_LIFETIME_NONE: u32 = 1;
/// It is soon overwritten or removed.
pub const PERSIMMON_LIFETIME_SHORT: u32 = 2;
/// In between.
pub const PERSIMMON_LIFETIME_MEDIUM: u32 = 3;
/// It stays.
pub const PERSIMMON_LIFETIME_LONG: u32 = 4;
/// As good as for ever.
pub const PERSIMMON_LIFETIME_EXTREME: u32 = 5;

/// The lifetime of a number; `None` for 0.
pub(crate) fn lifetime(number: u32) -> Result<Option<Lifetime>, crate::call::Failure> {
    Ok(Some(match number {
        0 => return Ok(None),
        PERSIMMON_LIFETIME_NONE => Lifetime::None,
        PERSIMMON_LIFETIME_SHORT => Lifetime::Short,
        PERSIMMON_LIFETIME_MEDIUM => Lifetime::Medium,
        PERSIMMON_LIFETIME_LONG => Lifetime::Long,
        PERSIMMON_LIFETIME_EXTREME => Lifetime::Extreme,
        _ => {
            return Err(crate::call::Failure::invalid(
                "a lifetime is a number from 0 to 5",
            ));
        }
    }))
}

/// A regular file.
pub const PERSIMMON_KIND_FILE: u32 = 1;
/// A directory.
pub const PERSIMMON_KIND_DIRECTORY: u32 = 2;
/// A symbolic link.
pub const PERSIMMON_KIND_SYMLINK: u32 = 3;
/// A pipe, socket or device node.
pub const PERSIMMON_KIND_OTHER: u32 = 4;

pub(crate) fn kind(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => PERSIMMON_KIND_FILE,
        FileKind::Directory => PERSIMMON_KIND_DIRECTORY,
        FileKind::Symlink => PERSIMMON_KIND_SYMLINK,
        _ => PERSIMMON_KIND_OTHER,
    }
}
