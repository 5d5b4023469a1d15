//! On-disk structures of Persimmon: bytes only, no I/O, no panics on any input.
//!
//! All integers are little endian. `docs/FORMAT.md` says every byte; the tests hold golden bytes
//! of each structure.

pub mod checksum;
mod codec;
pub mod compression;
pub mod container;
pub mod delta;
pub mod device_label;
pub mod dictionary;
pub mod envelope;
pub mod error;
pub mod extent;
pub mod footer;
pub mod frame_part;
pub mod gate;
pub mod ids;
pub mod inode;
pub mod key;
pub mod lifetime;
pub mod log;
pub mod name;
pub mod packed;
pub mod page;
pub mod quota;
pub mod record;
pub mod references;
pub mod shared_frame;
pub mod shown;
pub mod stripe_label;
pub mod summary;
pub mod table;
pub mod version;
pub mod xattr;
pub mod zone_header;

pub use checksum::VolumeKey;
pub use compression::Compression;
pub use error::{FormatError, Result};
pub use ids::{Addr, BLOCK_SIZE, DeviceId, Ino, Lsn, PageId, SubvolumeId, VersionId, ZoneId};
pub use key::{Key, KeyKind};
pub use lifetime::Lifetime;
pub use shown::{shown, shown_path};
