//! What a volume takes, by its features.

use persimmon_format::zone_header::{DELTAS, DICTIONARIES, FRAMES, SHARED_BLOCKS, SNAPSHOTS};
use persimmon_format::{extent, packed};

use super::Store;

/// A frame that does not fit the end of a zone leaves it unused. Frames are no longer than this part of a zone, so that this is less
/// than a percent of it on average.
const ZONE_SHARE: u64 = 64;
/// But they may have so many blocks where zones are very small.
const FRAME_BLOCKS_LEAST: usize = 4;

impl Store {
    /// Whether frames may have several blocks and parts, and records may map packed extents.
    pub(crate) fn has_frames(&self) -> bool {
        self.identity.incompatible & FRAMES != 0
    }

    /// Whether files may share blocks.
    pub(crate) fn has_shared_blocks(&self) -> bool {
        self.identity.incompatible & SHARED_BLOCKS != 0
    }

    /// Whether there may be snapshots.
    pub(crate) fn has_snapshots(&self) -> bool {
        self.identity.incompatible & SNAPSHOTS != 0
    }

    /// Whether blocks may be stored as differences to what was stored before.
    pub(crate) fn has_deltas(&self) -> bool {
        self.identity.incompatible & DELTAS != 0
    }

    /// Whether compressed frames may have dictionaries.
    pub(crate) fn has_dictionaries(&self) -> bool {
        self.identity.incompatible & DICTIONARIES != 0
    }

    /// Blocks of the longest run: it goes to the device in one append.
    pub(crate) fn run_blocks_max(&self) -> usize {
        let append = self.media.geometry().max_append_blocks as usize;
        extent::FRAME_BLOCKS_MAX.min(append).max(1)
    }

    /// Blocks of a file that are compressed together at most.
    pub(crate) fn frame_blocks_max(&self) -> usize {
        let share = self.zones.budget.data_zone_blocks.div_ceil(ZONE_SHARE) as usize;
        let most = packed::COMPRESSED_BLOCKS_MAX.min(self.run_blocks_max());
        // A power of two: frames begin at multiples of it.
        1 << most.min(share.max(FRAME_BLOCKS_LEAST)).max(1).ilog2()
    }
}
