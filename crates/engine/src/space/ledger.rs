//! The ledger: blocks that are promised. A write takes its blocks here before it is staged, so that write-back never finds the volume
//! full.

use persimmon_sync::Arc;
use persimmon_sync::atomic::Ordering;

use super::Space;
use crate::invariant::invariant_holds;

/// Blocks that are being preallocated; they are given back when this is dropped, for the tree counts them then.
pub(crate) struct Unwritten<'a> {
    space: &'a Space,
    blocks: u64,
}

impl Unwritten<'_> {
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Gives back some of them, which the tree counts now.
    pub(crate) fn give_back(&mut self, blocks: u64) {
        let held = invariant_holds!(
            self.space.store.media.alarm,
            blocks <= self.blocks,
            "{blocks} blocks of {} are given back",
            self.blocks
        );
        if held {
            self.blocks -= blocks;
            self.space.give_back_unwritten(blocks);
        }
    }
}

impl Drop for Unwritten<'_> {
    fn drop(&mut self) {
        self.space.give_back_unwritten(self.blocks);
    }
}

/// Blocks that are promised to somebody who has not written them yet ([`Volume::write_promised`](crate::Volume::write_promised)). They are given back when this is
/// dropped.
pub struct Promised {
    space: Arc<Space>,
    blocks: u64,
}

impl Promised {
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }
}

impl Drop for Promised {
    fn drop(&mut self) {
        let counted = &self.space.promised_blocks;
        counted.fetch_sub(self.blocks, Ordering::Relaxed);
    }
}

impl Space {
    pub(crate) fn staged_blocks(&self) -> u64 {
        self.staged_blocks.load(Ordering::Relaxed)
    }

    pub(crate) fn staged_blocks_peak(&self) -> u64 {
        self.staged_blocks_peak.load(Ordering::Relaxed)
    }

    /// Sets blocks aside whatever is left: for overwriting, which frees as much as it takes.
    pub(crate) fn take(&self, blocks: u64) {
        let before = self.staged_blocks.fetch_add(blocks, Ordering::Relaxed);
        invariant_holds!(
            self.store.media.alarm,
            before <= u64::MAX / 2 && blocks <= u64::MAX / 2,
            "{blocks} blocks are staged beside {before}"
        );
        self.staged_blocks_peak
            .fetch_max(before + blocks, Ordering::Relaxed);
    }

    pub(crate) fn release(&self, blocks: u64) {
        let before = self.staged_blocks.fetch_sub(blocks, Ordering::Relaxed);
        let has_them = invariant_holds!(
            self.store.media.alarm,
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
            self.store.media.alarm,
            before >= blocks,
            "{blocks} promised blocks are given back of {before}"
        );
        if !has_them {
            self.unwritten_blocks.store(0, Ordering::Relaxed);
        }
    }

    /// Sets blocks aside, if there are so many.
    pub(crate) fn reserve(&self, blocks: u64) -> bool {
        // Taken first and given back if it was too much: of several at a time none gets what
        // another has.
        self.take(blocks);
        if self.overdrawn() {
            self.release(blocks);
            return false;
        }
        true
    }

    /// Reserves blocks of which so many overwrite others, which come back when these are written. True if there is room for the rest.
    pub(crate) fn reserve_over(&self, blocks: u64, overwriting: u64) -> bool {
        if self.reserve(blocks) {
            return true;
        }
        if overwriting == 0 {
            return false;
        }
        // Taken first, like all others do it: of several at a time none gets what another has. One after the other, or all might fail.
        let _one = self.granting.lock();
        self.take(blocks);
        let has_room = self.has_room_with(blocks, overwriting);
        if !has_room {
            self.release(blocks);
        }
        has_room
    }

    /// Holds blocks that are to be preallocated, if there are so many. They never lie in the tree as long as
    /// nothing is written to them.
    pub(crate) fn hold_unwritten(&self, blocks: u64) -> Option<Unwritten<'_>> {
        self.unwritten_blocks.fetch_add(blocks, Ordering::Relaxed);
        let reservation = Unwritten {
            space: self,
            blocks,
        };
        (!self.overdrawn()).then_some(reservation)
    }

    /// Promises blocks to somebody who answers writes before the volume has them, if there are so many.
    pub(crate) fn promise(self: &Arc<Self>, blocks: u64) -> Option<Promised> {
        let counted = &self.promised_blocks;
        counted.fetch_add(blocks, Ordering::Relaxed);
        let space = Arc::clone(self);
        let promised = Promised { space, blocks };
        (!self.overdrawn()).then_some(promised)
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::tests::engine;
    use persimmon_sim::SimConfig;

    /// Each of several writers, half of whose blocks overwrote others, was given the same last blocks for the other half: more was staged
    /// than the volume had room for, and what was acknowledged could not be written back.
    #[test]
    fn the_last_blocks_are_promised_once() {
        let engine = engine(SimConfig::new(40, 128));
        let space = &engine.space;
        let left = space.available_blocks();
        assert!(left > 100);
        // What overwrites as much as it takes is never refused.
        assert!(space.reserve_over(left, 0));
        assert!(space.reserve_over(50, 50));
        space.release(left + 50);
        // Ten blocks more are mapped.
        assert!(space.reserve_over(left + 10, 10));
        assert!(!space.reserve_over(left + 10, 10));
        assert!(!space.reserve_over(1, 0));
        assert!(space.reserve_over(10, 10));
        space.release(left + 20);
        assert_eq!(space.available_blocks(), left);
    }

    /// Whoever takes them, and however many at a time.
    #[test]
    fn the_last_blocks_are_promised_once_to_many() {
        let engine = engine(SimConfig::new(40, 128));
        let space = &engine.space;
        let left = space.available_blocks();
        assert!(space.reserve_over(left - 10, 0));
        for round in 0..200 {
            let granted: Vec<u64> = std::thread::scope(|scope| {
                let take = |over: u64| {
                    scope.spawn(move || {
                        if space.reserve_over(10 + over, over) {
                            10 + over
                        } else {
                            0
                        }
                    })
                };
                let threads = [0, 10, 0, 20].map(take);
                threads.into_iter().map(|t| t.join().unwrap()).collect()
            });
            let winners = granted.iter().filter(|blocks| **blocks > 0).count();
            assert!(winners <= 1, "round {round}: {granted:?}");
            space.release(granted.iter().sum());
        }
        space.release(left - 10);
        assert_eq!(space.available_blocks(), left);
    }
}
