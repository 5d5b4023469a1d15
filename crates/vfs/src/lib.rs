//! POSIX semantics by inode number, above the engine and below every door.
//!
//! [`Vfs`] has one method for each filesystem operation, free of any transport: FUSE, the library
//! and tests call the same ones. Errors are typed; [`Error::errno`] is the one place where they
//! become numbers. Permission checks on paths are the door's: the kernel makes them for the mount
//! (`default_permissions`), the library does without or asks [`Vfs::access`]. `docs/POSIX.md` says
//! what holds and what does not.

mod access_times;
mod acl;
mod attributes;
mod clock;
mod clones;
mod directories;
mod error;
mod files;
mod freezing;
mod handles;
mod inode_attributes;
mod inode_flags;
mod lifetimes;
mod locks;
mod make;
mod named;
mod namespace;
mod nodes;
mod privileges;
mod protection;
mod quota;
mod rename;
mod resumed;
mod snapshots;
mod storage;
mod trim;
mod types;
mod volume;
mod xattrs;

pub use clock::Clock;
pub use clones::{ClonedEntries, NamedIno};
pub use error::{Error, Result};
pub use locks::{FileLock, LockKind, LockOwner};
pub use persimmon_engine::Snapshot;
pub use persimmon_engine::{Barrier, Dedup, Deltas, FsyncOrder};
pub use persimmon_engine::{NewLimits, OwnerQuota};
pub use persimmon_format::SubvolumeId;
pub use persimmon_format::inode::{ROOT, Timestamp};
pub use persimmon_format::name::NAME_MAX;
pub use persimmon_format::quota::{Counting, Grace, Limit, Owner, OwnerKind, QuotaState};
pub use persimmon_format::{Compression, Ino, Lifetime};
pub use privileges::{Author, Processes, UnknownProcesses};
pub use resumed::Keeper;
pub use snapshots::{SNAPSHOTS, SNAPSHOTS_NAME, is_snapshots, snapshots_of};
pub use storage::StorageLook;
pub use trim::TrimRange;
pub use types::{
    Allocate, Attr, Caller, Entry, FILE_SIZE_MAX, FileKind, GENERATION, Handle, InodeFlags,
    LINKS_MAX, Listing, OpenFlags, RenameMode, SYMLINK_MAX, SeekTo, SetAttr, SetTime, StatFs,
    WriteFlags, Written, XattrMode,
};
pub use volume::{AccessTimes, OnError, Options, Vfs};
