//! Space: what users may still fill. Everything staged has its space set aside when it is
//! written, so that flushing never finds the volume full.

use persimmon_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use persimmon_sync::{Alarm, Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

use persimmon_device::BLOCK_SIZE;

use crate::Volume;
use crate::error::Result;
use crate::invariant::invariant_holds;
use crate::zones::budget::STAGED_BLOCKS_MIN;
use crate::zones::{Budget, DeviceKind};

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

/// Of the zones that nothing live would need, beyond the reserved free ones, this part may be filled at once while zones
/// are short: as long as the rest is garbage, cleaning wins others meanwhile.
const STAGED_SPARE_SHARE: u32 = 4;

/// Longest wait for a batch before looking again for something to write back.
const WRITE_BACK_WAIT: Duration = Duration::from_millis(20);

/// Space set aside for staged blocks.
#[derive(Debug)]
pub(crate) struct Space {
    staged_blocks: AtomicU64,
    staged_blocks_peak: AtomicU64,
    /// Preallocated, and not in the tree yet.
    unwritten_blocks: AtomicU64,
    /// Promised, and not staged yet.
    promised_blocks: AtomicU64,
    lock: Mutex<()>,
    given_back: Condvar,
    staged_blocks_max: AtomicU64,
    /// The same where zones are short and next to nothing is garbage. What is staged of a file is committed at once, and until then the
    /// zones it fills cannot be cleaned: it must not need more of them than are reserved for that, or than cleaning
    /// wins of others.
    staged_blocks_max_short: AtomicU64,
    /// The spare blocks of the reserve may be filled too.
    reserve_allowed: AtomicBool,
    alarm: Alarm,
}

/// Blocks that are being preallocated; they are given back when this is dropped, for the tree counts them then.
pub(crate) struct Unwritten<'a> {
    space: &'a Space,
    blocks: u64,
}

impl Drop for Unwritten<'_> {
    fn drop(&mut self) {
        self.space.give_back_unwritten(self.blocks);
    }
}

/// Blocks that are promised to somebody who has not written them yet ([`Volume::write_promised`]). They are given back when this is
/// dropped.
pub struct Promised {
    volume: Arc<Volume>,
    blocks: u64,
}

impl Promised {
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }
}

impl Drop for Promised {
    fn drop(&mut self) {
        let counted = &self.volume.space.promised_blocks;
        counted.fetch_sub(self.blocks, Ordering::Relaxed);
    }
}

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
    pub(crate) fn new(staging_bytes_max: usize, budget: &Budget, alarm: &Alarm) -> Space {
        let space = Space {
            staged_blocks: AtomicU64::new(0),
            staged_blocks_peak: AtomicU64::new(0),
            unwritten_blocks: AtomicU64::new(0),
            promised_blocks: AtomicU64::new(0),
            lock: Mutex::new(()),
            given_back: Condvar::new(),
            staged_blocks_max: AtomicU64::new(0),
            staged_blocks_max_short: AtomicU64::new(0),
            reserve_allowed: AtomicBool::new(false),
            alarm: alarm.clone(),
        };
        space.set_staging(staging_bytes_max as u64, budget);
        space
    }

    /// How much may be staged from now on.
    pub(crate) fn set_staging(&self, bytes_max: u64, budget: &Budget) {
        // A batch holds the zones it fills: on small volumes it must leave some to clean.
        let blocks_max = bytes_max / BLOCK_SIZE as u64;
        let fillable = if budget.layout.is_split() {
            // All of it may lie in the tree.
            budget.user_blocks.min(budget.metadata_blocks)
        } else {
            budget.user_blocks
        };
        let blocks_max = blocks_max.min(fillable / 16).max(STAGED_BLOCKS_MIN);
        let at_once = match &budget.large {
            Some(large) => large.staged_blocks,
            None => budget.data_zone_blocks,
        };
        let short = blocks_max.min(at_once).max(STAGED_BLOCKS_MIN);
        self.staged_blocks_max.store(blocks_max, Ordering::Relaxed);
        self.staged_blocks_max_short.store(short, Ordering::Relaxed);
    }

    fn staged_blocks_max(&self) -> u64 {
        self.staged_blocks_max.load(Ordering::Relaxed)
    }

    fn staged_blocks_max_short(&self) -> u64 {
        self.staged_blocks_max_short.load(Ordering::Relaxed)
    }

    /// How much may be staged.
    pub(crate) fn staging_bytes_max(&self) -> u64 {
        self.staged_blocks_max() * BLOCK_SIZE as u64
    }

    pub(crate) fn staged_blocks(&self) -> u64 {
        self.staged_blocks.load(Ordering::Relaxed)
    }

    /// Sets blocks aside whatever is left: for overwriting, which frees as much as it takes.
    pub(crate) fn take(&self, blocks: u64) {
        let before = self.staged_blocks.fetch_add(blocks, Ordering::Relaxed);
        invariant_holds!(
            self.alarm,
            before <= u64::MAX / 2 && blocks <= u64::MAX / 2,
            "{blocks} blocks are staged beside {before}"
        );
        self.staged_blocks_peak
            .fetch_max(before + blocks, Ordering::Relaxed);
    }

    pub(crate) fn staged_blocks_peak(&self) -> u64 {
        self.staged_blocks_peak.load(Ordering::Relaxed)
    }

    pub(crate) fn release(&self, blocks: u64) {
        let before = self.staged_blocks.fetch_sub(blocks, Ordering::Relaxed);
        let has_them = invariant_holds!(
            self.alarm,
            before >= blocks,
            "{blocks} staged blocks are given back of {before}"
        );
        if !has_them {
            // A count that wrapped would have everybody wait.
            self.staged_blocks.store(0, Ordering::Relaxed);
        }
        drop(self.lock.lock());
        self.given_back.notify_all();
    }

    fn give_back_unwritten(&self, blocks: u64) {
        let before = self.unwritten_blocks.fetch_sub(blocks, Ordering::Relaxed);
        let has_them = invariant_holds!(
            self.alarm,
            before >= blocks,
            "{blocks} promised blocks are given back of {before}"
        );
        if !has_them {
            self.unwritten_blocks.store(0, Ordering::Relaxed);
        }
    }

    /// Waits for a short time until batches of other threads have made room in the buffer.
    pub(crate) fn wait_for_write_back(&self) {
        let lock = self.lock.lock();
        if self.staged_blocks() >= self.staged_blocks_max_short() {
            drop(self.given_back.wait_timeout(lock, WRITE_BACK_WAIT));
        }
    }
}

impl Volume {
    /// Whether writers should help to empty the staging buffer.
    pub(crate) fn staging_is_full(&self) -> bool {
        let (space, staged) = (&self.space, self.space.staged_blocks());
        staged >= space.staged_blocks_max_short() && staged >= self.staged_blocks_now()
    }

    /// Whether enough is staged to write some of it before it is time to make it durable.
    pub(crate) fn write_back_is_due(&self) -> bool {
        let (space, staged) = (&self.space, self.space.staged_blocks());
        2 * staged >= space.staged_blocks_max_short() && 2 * staged >= self.staged_blocks_now()
    }

    /// Zones that all that may be staged fills.
    pub(crate) fn zones_for_staged(&self) -> u32 {
        let usable = self.zones.budget.data_zone_blocks.max(1);
        let zones = self.space.staged_blocks_max().div_ceil(usable);
        u32::try_from(zones).unwrap_or(u32::MAX)
    }

    /// Blocks that may be staged now.
    fn staged_blocks_now(&self) -> u64 {
        let (space, usable) = (&self.space, self.zones.budget.data_zone_blocks.max(1));
        let (most, short) = (space.staged_blocks_max(), space.staged_blocks_max_short());
        let zones = self.zones_for_staged();
        let reserve = self.reserved_zones(DeviceKind::Data);
        let plenty = reserve.saturating_add(zones.saturating_mul(2));
        if self.zones.free_zones(DeviceKind::Data) > plenty {
            return most;
        }
        let spare = self
            .zones
            .slack_zones(DeviceKind::Data)
            .saturating_sub(reserve);
        let blocks = u64::from(spare / STAGED_SPARE_SHARE) * usable;
        blocks.clamp(short.min(most), most)
    }

    /// Blocks of files that can still be promised to somebody.
    pub(crate) fn available_blocks(&self) -> u64 {
        let room = self.room();
        let data = room.data.unwrap_or(0);
        if self.zones.budget.layout.is_split() {
            let copies = u64::from(self.zones.budget.copies);
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
    pub(crate) fn has_metadata_for(&self, room: &Room, overwriting: u64, blocks: u64) -> bool {
        let pieces = overwriting.div_ceil(OVERWRITTEN_PER_METADATA);
        let needed = (blocks - overwriting).saturating_add(pieces);
        let needed = needed.saturating_mul(self.zones.budget.copies.into());
        !self.zones.budget.layout.is_split() || room.metadata.is_some_and(|left| left >= needed)
    }

    fn overdrawn(&self) -> bool {
        let room = self.room();
        room.data.is_none() || room.metadata.is_none()
    }

    /// What can still be promised.
    pub(crate) fn room(&self) -> Room {
        // Before what the tree counts: what is preallocated meanwhile counts twice for a moment, and never in neither.
        let unwritten = self.space.unwritten_blocks.load(Ordering::Relaxed);
        let (dirty, allocated, reserved, inline) = {
            let meta = self.meta();
            let cache = &meta.cache;
            let inline = meta.journal_inline.bytes().div_ceil(BLOCK_SIZE as u64);
            (
                cache.dirty() as u64,
                cache.allocated() as u64,
                meta.reserved_blocks,
                inline,
            )
        };
        if allocated >= self.zones.budget.pages_max {
            // No footer could tell where more pages are.
            return Room {
                data: None,
                metadata: None,
            };
        }
        let reserved = reserved.saturating_add(unwritten);
        let copies = u64::from(self.zones.budget.copies);
        // What is promised counts as if it were staged.
        let promised = self.space.promised_blocks.load(Ordering::Relaxed);
        let staged = self.space.staged_blocks().saturating_add(promised);
        let live = |part| self.zones.live_blocks(part);
        let pages = dirty.saturating_mul(DIRTY_PAGE_BLOCKS * copies);
        let less = |all: u64, taken: [u64; 4]| {
            let taken = taken.into_iter().fold(0, u64::saturating_add);
            all.checked_sub(taken)
        };
        let files = staged.saturating_add(reserved);
        if let Some(large) = &self.zones.budget.large {
            // Metadata has zones of its own; what goes beyond them takes room from files, and more of it than it fills.
            let metadata = self.zones.live_metadata_blocks() + pages + inline;
            let beyond = metadata.saturating_sub(large.metadata_blocks);
            let all = self.fillable_blocks();
            let both = less(
                all,
                [self.zones.live_data_blocks(), files, beyond, beyond / 4],
            );
            return Room {
                data: both,
                metadata: both,
            };
        }
        // Room that there is to be for cleaning where the tree is most of what there is.
        let slack = |all: u64| {
            let tree = self.zones.live_metadata_blocks() + pages;
            tree.saturating_sub(all / TREE_SHARE) / TREE_SLACK
        };
        if !self.zones.budget.layout.is_split() {
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
        let of_metadata = self.zones.metadata_blocks();
        Room {
            data: less(
                self.fillable_blocks(),
                [live(DeviceKind::Data), files, inline, 0],
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

    /// Sets blocks aside, if there are so many.
    pub(crate) fn reserve(&self, blocks: u64) -> bool {
        // Taken first and given back if it was too much: of several at a time none gets what
        // another has.
        self.space.take(blocks);
        if self.overdrawn() {
            self.space.release(blocks);
            return false;
        }
        true
    }

    /// Holds blocks that are to be preallocated, if there are so many. They never lie in the tree as long as
    /// nothing is written to them.
    pub(crate) fn hold_unwritten(&self, blocks: u64) -> Option<Unwritten<'_>> {
        let space = &self.space;
        space.unwritten_blocks.fetch_add(blocks, Ordering::Relaxed);
        let reservation = Unwritten { space, blocks };
        (!self.overdrawn()).then_some(reservation)
    }

    /// Promises blocks to somebody who answers writes before the volume has them, if there are so many.
    pub fn promise(self: &Arc<Self>, blocks: u64) -> Option<Promised> {
        let counted = &self.space.promised_blocks;
        counted.fetch_add(blocks, Ordering::Relaxed);
        let volume = Arc::clone(self);
        let promised = Promised { volume, blocks };
        (!self.overdrawn()).then_some(promised)
    }

    /// Writes back what is staged and writes dirty metadata pages, to give back the part of their reservations that they
    /// do not need. True if there was something to write: then the caller looks at the count again.
    pub(crate) fn flush_reservations(&self) -> Result<bool> {
        let mut worked = false;
        // Only what is staged now: other threads may go on writing for ever.
        let mut left = self.space.staged_blocks();
        while left > 0 && self.space.staged_blocks() > 0 {
            match self.write_back_queued()? {
                0 => {
                    worked |= self.pack_ahead();
                    break;
                }
                written => left = left.saturating_sub(written),
            }
            worked = true;
        }
        if self.meta().cache.dirty() > 0 {
            self.checkpoint()?;
            worked = true;
        }
        Ok(worked)
    }

    /// Blocks that may be filled: those of users, and while the reserve is allowed, what it has to spare.
    fn fillable_blocks(&self) -> u64 {
        if self.space.reserve_allowed.load(Ordering::Relaxed) {
            self.zones.user_and_spare_blocks()
        } else {
            self.zones.user_blocks()
        }
    }

    /// From now on what is written may use that part of the reserve which only makes cleaning cheaper, or no longer: for what was
    /// acknowledged before, and must find room.
    pub fn allow_reserve(&self, reserve_allowed: bool) {
        self.space
            .reserve_allowed
            .store(reserve_allowed, Ordering::Relaxed);
    }

    /// Space in the volume.
    #[must_use]
    pub fn space(&self) -> SpaceReport {
        let metadata = if self.zones.budget.layout.is_split() {
            (
                self.zones.metadata_blocks(),
                self.room().metadata.unwrap_or(0),
            )
        } else {
            (0, 0)
        };
        SpaceReport {
            metadata_total_bytes: metadata.0 * BLOCK_SIZE as u64,
            metadata_available_bytes: metadata.1 * BLOCK_SIZE as u64,
            total_bytes: self.zones.user_blocks() * BLOCK_SIZE as u64,
            available_bytes: self.available_blocks() * BLOCK_SIZE as u64,
            inodes: self.meta().inodes,
        }
    }
}
