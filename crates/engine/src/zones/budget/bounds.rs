//! How much may change between two checkpoints.

use persimmon_device::BLOCK_SIZE;

use crate::options::Options;
use crate::zones::large::Large;

/// Longest journal between two checkpoints that options can ask for, bytes: what a mount reads
/// and keeps in memory at most is twice that.
pub(crate) const JOURNAL_BYTES_LIMIT: u64 = 256 << 20;
/// Of the volume the journal may take this part at most.
const JOURNAL_SHARE: u64 = 32;
/// And this part at least: so much can always be reserved for it.
const JOURNAL_SHARE_RESERVED: u64 = 256;
/// Blocks of journal below which no volume works well.
pub(in crate::zones) const JOURNAL_BLOCKS_MIN: u64 = 48;
const DIRTY_PAGES_MIN: usize = 48;
/// A volume has a page for this many blocks at least that may be dirty,
const DIRTY_PAGES_SHARE: u64 = 128;
/// and, where zones are short, for this many.
const DIRTY_PAGES_SHARE_RESERVED: u64 = 256;

/// How much may change between two checkpoints, at most and where zones are short.
pub(super) struct Bounds {
    pub(super) journal_blocks_max: u64,
    pub(super) journal_blocks_reserved: u64,
    pub(super) dirty_pages_max: usize,
    pub(super) dirty_pages_reserved: usize,
}

impl Bounds {
    /// Of a volume of so many blocks, with large zones of so many, if they are.
    pub(super) fn of(total: u64, large_zone: Option<u64>, options: &Options) -> Bounds {
        let of_large = |limit: fn(u64) -> u64| large_zone.map_or(u64::MAX, limit);
        let journal_bytes_max = options.journal_bytes_max.min(JOURNAL_BYTES_LIMIT);
        let journal_blocks_max = (journal_bytes_max / BLOCK_SIZE as u64)
            .min(total / JOURNAL_SHARE)
            .max(JOURNAL_BLOCKS_MIN);
        let journal_blocks_reserved = journal_blocks_max
            .min(total / JOURNAL_SHARE_RESERVED)
            .min(of_large(Large::journal_blocks_max))
            .max(JOURNAL_BLOCKS_MIN);
        let dirty_pages_max = options
            .dirty_pages_max
            .min((total / DIRTY_PAGES_SHARE) as usize)
            .max(DIRTY_PAGES_MIN);
        let dirty_pages_reserved = dirty_pages_max
            .min((total / DIRTY_PAGES_SHARE_RESERVED) as usize)
            .min(of_large(Large::dirty_pages_max) as usize)
            .max(DIRTY_PAGES_MIN);
        Bounds {
            journal_blocks_max,
            journal_blocks_reserved,
            dirty_pages_max,
            dirty_pages_reserved,
        }
    }
}
