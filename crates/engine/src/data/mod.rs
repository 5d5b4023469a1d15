//! The content of files: staged when written, flown to the device in flights of many files, read
//! back verified.
//!
//! [`files`] holds what is staged of each file, [`space`] what is promised, `write`, `read` and
//! `resize` and `seek` are the calls from above, `growth` which staged blocks make a file longer, `truncations` what is left of long
//! ones to do later. `write_back` takes staged data to the device, `placing` finds zones
//! for it, `journal_inline` what an fsync inlines in its record, which `packing`
//! puts into blocks later; `tails` are last blocks, in memory for who appends.

mod files;
mod growth;
mod journal_inline;
mod packing;
mod placing;
mod read;
mod read_cache;
mod resize;
mod seek;
mod space;
mod staged;
mod tails;
mod truncations;
mod write;
mod write_back;

pub(crate) use files::Files;
pub use files::InoMap;
pub(crate) use journal_inline::Compressibility;
pub(crate) use packing::{Exchange, Unpacked};
pub(crate) use placing::{Places, Placing};
pub(crate) use read_cache::ReadCache;
pub use seek::Seek;
pub(crate) use space::Space;
pub use space::{Promised, SpaceReport};
pub(crate) use tails::Tails;
pub(crate) use truncations::Truncations;

/// Largest file offset, bytes: 8 EiB less one.
pub(crate) const OFFSET_MAX: u64 = i64::MAX as u64;

/// The block that holds a byte.
pub(crate) fn block_of(offset: u64) -> u64 {
    offset / persimmon_device::BLOCK_SIZE as u64
}

/// Blocks that hold `size` bytes.
pub(crate) fn blocks_in(size: u64) -> u64 {
    size.div_ceil(persimmon_device::BLOCK_SIZE as u64)
}
