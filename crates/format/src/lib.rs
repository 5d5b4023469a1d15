//! On-disk structures of Persimmon: bytes only, no I/O, no panics on any input.
//!
//! All integers are little endian. `docs/FORMAT.md` says every byte.

pub mod ids;

pub use ids::{Addr, BLOCK_SIZE, DeviceId, Ino, Lsn, PageId, SnapshotId, ZoneId};
