//! Blocks of files that were read lately, in memory. A mount has the kernel's page cache above it and needs none; a program that
//! uses the library has nothing else between its reads and the device.
//!
//! What a block of a zone holds does not change until the zone is reset: a block is known by its address and by how
//! often its zone was reset before. Nothing has to be forgotten in time, then. What the cache holds was verified when it was read.

use std::sync::Arc;

use persimmon_device::BLOCK_SIZE;
use persimmon_format::Addr;
use quick_cache::sync::Cache;

use crate::zones::Pin;

/// Bytes of the largest reads that look here: what is read in larger pieces is read once, from one end to the other.
const READ_BYTES_MAX: usize = 64 << 10;

/// Memory that an entry takes besides the block: the key, its place in a queue and in a table, and the count of who shares it.
const ENTRY_BYTES: usize = 128;

/// A block of a zone, between two resets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    addr: Addr,
    resets: u32,
}

impl Place {
    /// Of a block in a zone that a reader has pinned.
    fn of(addr: Addr, pin: &Pin) -> Place {
        let resets = pin.resets();
        Place { addr, resets }
    }
}

pub(crate) struct ReadCache(Cache<Place, Arc<[u8]>>);

impl ReadCache {
    /// None where not one block fits.
    pub(crate) fn new(bytes_max: usize) -> Option<ReadCache> {
        let blocks = bytes_max / (BLOCK_SIZE + ENTRY_BYTES);
        (blocks > 0).then(|| ReadCache(Cache::new(blocks)))
    }

    /// Whether a read of so many bytes looks here, and leaves what it read.
    pub(super) fn serves(bytes: usize) -> bool {
        bytes <= READ_BYTES_MAX
    }

    /// A block of a pinned zone.
    pub(super) fn get(&self, addr: Addr, pin: &Pin) -> Option<Arc<[u8]>> {
        self.0.get(&Place::of(addr, pin))
    }

    /// Keeps a block of a pinned zone that was read and verified.
    pub(super) fn insert(&self, addr: Addr, pin: &Pin, content: &[u8]) {
        self.0.insert(Place::of(addr, pin), content.into());
    }
}
