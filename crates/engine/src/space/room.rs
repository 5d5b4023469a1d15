//! Room: blocks that can still be promised.

use persimmon_sync::atomic::Ordering;

use persimmon_device::BLOCK_SIZE;

use super::Space;
use crate::zones::DeviceKind;

/// Blocks a dirty page is counted as, until a checkpoint says how many it takes.
const DIRTY_PAGE_BLOCKS: u64 = 3;

/// On two devices, blocks of data that a block of metadata is good for at least, where they are written
/// in pieces of some size: an extent of 1 MiB takes little more than 1 KiB in the tree.
const DATA_PER_METADATA: u64 = 128;

/// On two devices, blocks of metadata that a write must find whatever becomes of it: one of 1 MiB may lie
/// in the tree as a whole.
const METADATA_PER_WRITE: u64 = 256;

/// Blocks of files that are there, or set aside, for which a block of metadata is reserved when they are
/// written, in whatever pieces.
const OVERWRITTEN_PER_METADATA: u64 = 64;

/// What the tree takes beyond this part of a volume, or of the device for metadata, takes so much of its own size
/// more: each of its pages may change, in no order, and is written elsewhere then. Zones that are all full of
/// pages must have some garbage, or cleaning them would win next to nothing.
const TREE_SHARE: u64 = 16;
const TREE_SLACK: u64 = 8;

/// Blocks that can still be promised; `None` if more are than there should be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// To files; on one device, with the metadata they need.
    pub(crate) data: Option<u64>,
    /// To metadata; on one device the same.
    pub(crate) metadata: Option<u64>,
}

/// What statfs tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceReport {
    /// Bytes that users can fill in all.
    pub total_bytes: u64,
    /// Bytes that can still be written.
    pub available_bytes: u64,
    /// Bytes that metadata may fill on a device of its own; 0 on one device.
    pub metadata_total_bytes: u64,
    /// Of those, bytes that can still be promised.
    pub metadata_available_bytes: u64,
    /// Inodes there are.
    pub inodes: u64,
}

impl Space {
    /// Blocks of files that can still be promised to somebody.
    pub(crate) fn available_blocks(&self) -> u64 {
        let room = self.room();
        let data = room.data.unwrap_or(0);
        if self.store.zones.budget.layout.is_split() {
            let copies = u64::from(self.store.zones.budget.copies);
            let metadata = room.metadata.unwrap_or(0);
            let metadata = metadata.saturating_sub(METADATA_PER_WRITE * copies);
            data.min(metadata.saturating_mul(DATA_PER_METADATA))
        } else {
            data
        }
    }

    /// Whether a change that makes the tree larger finds room.
    pub(crate) fn has_metadata_room(&self) -> bool {
        self.room().metadata.is_some_and(|blocks| blocks > 0)
    }

    /// Whether so many blocks, of which some overwrite others, find room in the tree. On one device
    /// what is overwritten gives its own.
    fn has_metadata_for(&self, room: &Room, overwriting: u64, blocks: u64) -> bool {
        let pieces = overwriting.div_ceil(OVERWRITTEN_PER_METADATA);
        let needed = (blocks - overwriting).saturating_add(pieces);
        let needed = needed.saturating_mul(self.store.zones.budget.copies.into());
        !self.store.zones.budget.layout.is_split()
            || room.metadata.is_some_and(|left| left >= needed)
    }

    /// Whether there is room for so many blocks, of which some overwrite others.
    pub(crate) fn has_room_over(&self, blocks: u64, overwriting: u64) -> bool {
        let room = self.room();
        let more = blocks.saturating_sub(overwriting);
        let fits = more == 0 || room.data.is_some_and(|left| left >= more);
        fits && self.has_metadata_for(&room, overwriting.min(blocks), blocks)
    }

    /// The same where they are taken already.
    pub(super) fn has_room_with(&self, blocks: u64, overwriting: u64) -> bool {
        let overwriting = overwriting.min(blocks);
        let room = self.room_beside(overwriting);
        let fits = blocks == overwriting || room.data.is_some();
        fits && self.has_metadata_for(&room, overwriting, overwriting)
    }

    pub(crate) fn overdrawn(&self) -> bool {
        let room = self.room();
        room.data.is_none() || room.metadata.is_none()
    }

    /// What can still be promised.
    pub(crate) fn room(&self) -> Room {
        self.room_beside(0)
    }

    /// What can still be promised, if so many staged blocks do not count.
    fn room_beside(&self, uncounted: u64) -> Room {
        // Before what the tree counts: what is preallocated meanwhile counts twice for a moment, and never in neither.
        let unwritten = self.unwritten_blocks.load(Ordering::Relaxed);
        let (dirty, allocated, reserved, inline, deltas) = {
            let meta = self.store.meta();
            let cache = &meta.cache;
            let inline = meta.journal_inline.bytes().div_ceil(BLOCK_SIZE as u64);
            (
                cache.dirty() as u64,
                cache.allocated() as u64,
                meta.reserved_blocks,
                inline,
                meta.deltas,
            )
        };
        if allocated >= self.store.zones.budget.pages_max {
            // No footer could tell where more pages are.
            return Room {
                data: None,
                metadata: None,
            };
        }
        let reserved = reserved.saturating_add(unwritten);
        let copies = u64::from(self.store.zones.budget.copies);
        // What is promised counts as if it were staged.
        let promised = self.promised_blocks.load(Ordering::Relaxed);
        let staged = self.staged_blocks().saturating_sub(uncounted);
        let staged = staged.saturating_add(promised);
        let live = |part| self.store.zones.live_blocks(part);
        let pages = dirty.saturating_mul(DIRTY_PAGE_BLOCKS * copies);
        let less = |all: u64, taken: [u64; 4]| {
            let taken = taken.into_iter().fold(0, u64::saturating_add);
            all.checked_sub(taken)
        };
        // A group that cleaning moves ends with a block that is not full: small pieces take more than they count.
        let pieces = deltas.div_ceil(self.store.transaction_ops_max().max(1) as u64);
        let files = staged.saturating_add(reserved).saturating_add(pieces);
        if let Some(large) = &self.store.zones.budget.large {
            // Metadata has zones of its own; what goes beyond them takes room from files, and more of it than it fills.
            let metadata = self.store.zones.live_metadata_blocks() + pages + inline;
            let beyond = metadata.saturating_sub(large.metadata_blocks);
            let all = self.fillable_blocks();
            let both = less(
                all,
                [
                    self.store.zones.live_data_blocks(),
                    files,
                    beyond,
                    beyond / 4,
                ],
            );
            return Room {
                data: both,
                metadata: both,
            };
        }
        // Room that there is to be for cleaning where the tree is most of what there is.
        let slack = |all: u64| {
            let tree = self.store.zones.live_metadata_blocks() + pages;
            tree.saturating_sub(all / TREE_SHARE) / TREE_SLACK
        };
        if !self.store.zones.budget.layout.is_split() {
            let all = self.fillable_blocks();
            let both = less(
                all,
                [live(DeviceKind::Data), files, inline, pages + slack(all)],
            );
            return Room {
                data: both,
                metadata: both,
            };
        }
        // What is staged may come to lie in the tree, whole.
        let in_tree = staged.saturating_add(reserved / OVERWRITTEN_PER_METADATA);
        let in_tree = in_tree.saturating_add(inline).saturating_mul(copies);
        let of_metadata = self.store.zones.metadata_blocks();
        // Zones for data that still hold what belongs on the other device.
        let misplaced = u64::from(self.store.zones.counts().misplaced);
        let misplaced = misplaced.saturating_mul(self.store.zones.budget.data_zone_blocks);
        Room {
            data: less(
                self.fillable_blocks(),
                [live(DeviceKind::Data), files, inline, misplaced],
            ),
            metadata: less(
                of_metadata,
                [
                    live(DeviceKind::Metadata),
                    in_tree,
                    pages,
                    slack(of_metadata),
                ],
            ),
        }
    }

    /// Blocks that may be filled: those of users, and while the reserve is allowed, what it has to spare.
    fn fillable_blocks(&self) -> u64 {
        if self.reserve_allowed.load(Ordering::Relaxed) {
            self.store.zones.user_and_spare_blocks()
        } else {
            self.store.zones.user_blocks()
        }
    }

    /// From now on what is written may use that part of the reserve which only makes cleaning cheaper, or no longer: for what was
    /// acknowledged before, and must find room.
    pub(crate) fn allow_reserve(&self, reserve_allowed: bool) {
        self.reserve_allowed
            .store(reserve_allowed, Ordering::Relaxed);
    }

    /// Space in the volume.
    #[must_use]
    pub(crate) fn report(&self) -> SpaceReport {
        let metadata = if self.store.zones.budget.layout.is_split() {
            (
                self.store.zones.metadata_blocks(),
                self.room().metadata.unwrap_or(0),
            )
        } else {
            (0, 0)
        };
        SpaceReport {
            metadata_total_bytes: metadata.0 * BLOCK_SIZE as u64,
            metadata_available_bytes: metadata.1 * BLOCK_SIZE as u64,
            total_bytes: self.store.zones.user_blocks() * BLOCK_SIZE as u64,
            available_bytes: self.available_blocks() * BLOCK_SIZE as u64,
            inodes: self.store.meta().inodes,
        }
    }
}
