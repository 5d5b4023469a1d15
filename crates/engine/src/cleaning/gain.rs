//! What emptying a zone wins, and what is written for it.
//!
//! A block of data that moves changes a leaf of the tree, which the next checkpoint writes anew. Where most of a volume lies
//! in the tree (small files, names, attributes), each block is of another leaf, and a zone of data with little garbage
//! makes more of it in others than is won: it is left alone until there is room for all that, or nothing else is to be won. What is
//! live in a zone of metadata costs no more than itself and the chunks that tell where it is.

use super::Cleaner;
use super::cursor::FOUND_MAX;
use crate::zones::table::ZoneStatus;
use crate::zones::{DeviceKind, Written};
use persimmon_format::table::Role;

/// Blocks won and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gain {
    pub garbage: u64,
    /// Live in the zone.
    pub moved: u64,
    /// What checkpoints write anew because those move.
    pub again: u64,
}

impl Gain {
    /// Of a zone of data with so much garbage and so much that is live, whose leaves are some of this tree's. What fits
    /// in memory until the next checkpoint changes for others too.
    fn of_data((garbage, moved): (u64, u64), tree: Written, dirty_pages_max: u64) -> Gain {
        let pages = tree.pages;
        let changed = moved.min(moved.div_ceil(FOUND_MAX as u64).saturating_mul(pages));
        let written = u128::from(tree.for_leaves(changed));
        let alone = u128::from(pages.saturating_sub(dirty_pages_max));
        let again = written * alone / u128::from(pages.max(1));
        Gain {
            garbage,
            moved,
            again: u64::try_from(again).unwrap_or(u64::MAX),
        }
    }

    /// Of a zone of metadata with so many pages, that many at a time, whose table has so many chunks. They leave in the
    /// order of the table: each checkpoint writes a part of it, and the last chunk of that once more.
    fn of_metadata((garbage, moved): (u64, u64), pages: u64, chunks: u64, at_once: u64) -> Gain {
        let checkpoints = pages.div_ceil(at_once.max(1));
        Gain {
            garbage,
            moved,
            again: chunks.saturating_add(checkpoints).min(pages),
        }
    }

    /// All that is written.
    pub(crate) fn written(&self) -> u64 {
        self.moved.saturating_add(self.again)
    }

    /// Whether there is more room afterwards.
    fn is_positive(&self) -> bool {
        self.garbage > self.again
    }

    /// Whether it wins more for what is written.
    pub(super) fn is_better_than(&self, other: &Gain) -> bool {
        let cost = |gain: &Gain| u128::from(gain.written());
        u128::from(self.garbage) * cost(other) > u128::from(other.garbage) * cost(self)
    }
}

/// What tells of a victim what it wins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    tree: Written,
    /// Of the table of pages.
    chunks: u64,
    pages_moved_max: u64,
    dirty_pages_max: u64,
}

impl Weights {
    /// What a zone wins in which so many blocks are valid.
    pub(crate) fn gain(&self, victim: &ZoneStatus, valid: u32) -> Gain {
        let moved = u64::from(valid);
        let garbage = u64::from(victim.capacity).saturating_sub(moved);
        match victim.entry.role {
            Role::Metadata => {
                let Written { pages, blocks } = self.tree;
                let pages = u128::from(moved) * u128::from(pages) / u128::from(blocks.max(1));
                let pages = u64::try_from(pages).unwrap_or(u64::MAX);
                Gain::of_metadata((garbage, moved), pages, self.chunks, self.pages_moved_max)
            }
            _ => Gain::of_data((garbage, moved), self.tree, self.dirty_pages_max),
        }
    }
}

impl Cleaner {
    /// Pages that leave a zone of metadata with one checkpoint.
    pub(crate) fn pages_moved_max(&self) -> usize {
        self.store.zones.budget.dirty_pages_reserved / 2
    }

    /// What the tree is like, to weigh many zones by.
    pub(super) fn weights(&self) -> Weights {
        let meta = self.store.meta();
        Weights {
            tree: meta.mat.written(),
            chunks: meta.mat.chunks().len() as u64,
            pages_moved_max: self.pages_moved_max() as u64,
            dirty_pages_max: self.store.zones.budget.dirty_pages_max as u64,
        }
    }

    pub(crate) fn gain(&self, victim: &ZoneStatus) -> Gain {
        let valid = self.store.zones.valid_blocks(victim.zone);
        self.weights().gain(victim, valid)
    }

    /// Whether a zone wins more than is written anew, or there are zones for that beyond those that the next
    /// checkpoint needs.
    pub(crate) fn is_affordable(&self, victim: &ZoneStatus) -> bool {
        let gain = self.gain(victim);
        let again = gain
            .again
            .saturating_mul(self.store.zones.budget.copies.into());
        match victim.entry.role {
            // What is won and moved is on another device than what is written anew.
            Role::Data if self.store.zones.budget.layout.is_split() => self.has_zones_for(again),
            Role::Data => {
                gain.is_positive() || self.has_zones_for(gain.moved.saturating_add(again))
            }
            _ => gain.is_positive(),
        }
    }

    fn has_zones_for(&self, blocks: u64) -> bool {
        let free = self.store.zones.free_zones(DeviceKind::Metadata);
        let zones = free.saturating_sub(self.space.view().left_by_cleaning(DeviceKind::Metadata));
        blocks <= u64::from(zones) * self.store.zones.budget.metadata_zone_blocks
    }

    /// Whether to empty a zone of metadata in place of one of data: the one with most garbage, or one that was
    /// worth most and is not worth it.
    pub(crate) fn wins_more(
        &self,
        metadata: &ZoneStatus,
        data: &ZoneStatus,
        by_garbage: bool,
    ) -> bool {
        let (of_metadata, of_data) = (self.gain(metadata), self.gain(data));
        let is_in_question = by_garbage || !of_data.is_positive();
        let is_the_way_out = of_metadata.is_positive() && !self.is_affordable(data);
        is_in_question && (is_the_way_out || of_metadata.is_better_than(&of_data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(pages: u64, blocks: u64) -> Written {
        Written { pages, blocks }
    }

    #[test]
    fn leaves_that_stay_in_memory_cost_nothing() {
        let gain = Gain::of_data((10, 500), tree(4000, 4000), 8192);
        assert_eq!(gain.again, 0);
        assert!(gain.is_positive());
    }

    #[test]
    fn each_block_of_another_leaf_costs_that_leaf() {
        let gain = Gain::of_data((10, 500), tree(1_000_000, 2_500_000), 50);
        assert!((1550..=1565).contains(&gain.again), "{gain:?}");
        assert!(!gain.is_positive());
        // A small tree is written once for each time that much is found.
        let gain = Gain::of_data((10, 500_000), tree(1000, 1000), 0);
        assert_eq!(gain.again, 38_750);
        assert_eq!(Gain::of_data((10, 500), tree(0, 0), 0).again, 0);
    }

    #[test]
    fn each_checkpoint_writes_chunks_for_the_pages_it_moves() {
        let gain = Gain::of_metadata((700, 1000), 400, 7, 25);
        assert_eq!(gain.again, 7 + 16);
        // No more of them than pages.
        assert_eq!(Gain::of_metadata((700, 1000), 400, 700, 25).again, 400);
    }

    #[test]
    fn what_is_written_counts_against_what_is_won() {
        let metadata = Gain {
            garbage: 30,
            moved: 200,
            again: 5,
        };
        let data = Gain {
            garbage: 32,
            moved: 200,
            again: 400,
        };
        assert!(metadata.is_better_than(&data) && !data.is_better_than(&metadata));
    }
}
