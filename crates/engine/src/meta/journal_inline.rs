//! Compressed blocks that are inline in the tree since an fsync, and wait to be packed.

use std::collections::BTreeMap;
use std::ops::Bound;

use persimmon_format::page::PAGE_SIZE;
use persimmon_format::{Ino, VersionId};
use persimmon_sync::Alarm;

use crate::invariant::{invariant_holds, invariant_sub};

/// A block of a file, in a version.
pub(crate) type InlinePlace = (Ino, u64, VersionId);

/// Which blocks of which files, in this order, and their compressed bytes. It follows the tree:
/// who maps a compressed extent adds it, who takes it away removes it.
#[derive(Debug, Default)]
pub(crate) struct JournalInline {
    blocks: BTreeMap<InlinePlace, u16>,
    bytes: u64,
    /// Bytes added since the last cut, with their keys: a replay has them all in the tree.
    journaled: u64,
    /// The same before the cut of a checkpoint that is not durable yet.
    cut: u64,
    alarm: Alarm,
}

/// What an item takes in a page beside its value, more or less, bytes.
const ITEM_BYTES: u64 = 32;

impl JournalInline {
    /// A state that cannot be raises this alarm.
    pub(super) fn watch(&mut self, alarm: &Alarm) {
        self.alarm = alarm.clone();
    }

    pub(super) fn add(&mut self, place: InlinePlace, bytes: usize) {
        self.journaled += bytes as u64 + ITEM_BYTES;
        let before = self.blocks.insert(place, bytes as u16);
        self.bytes += bytes as u64;
        let before = u64::from(before.unwrap_or(0));
        invariant_sub!(self.alarm, self.bytes, before, "bytes inline");
    }

    pub(super) fn remove(&mut self, place: InlinePlace) {
        let before = self.blocks.remove(&place);
        let before = u64::from(before.unwrap_or(0));
        invariant_sub!(self.alarm, self.bytes, before, "bytes inline");
        invariant_holds!(
            self.alarm,
            self.bytes == 0 || !self.blocks.is_empty(),
            "{} bytes inline in no block",
            self.bytes
        );
    }

    /// Compressed bytes of all of them.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Pages that a replay makes dirty for what was added since the last cut and is packed by now:
    /// leaves that were split are half full at least.
    pub(crate) fn replayed_pages(&self) -> usize {
        (self.journaled + self.cut).div_ceil(PAGE_SIZE as u64 / 2) as usize
    }

    /// The cut of a checkpoint: when that is durable a replay begins behind it.
    pub(crate) fn cut(&mut self) {
        self.cut += std::mem::take(&mut self.journaled);
    }

    /// The checkpoint is durable.
    pub(crate) fn forget_cut(&mut self) {
        self.cut = 0;
    }

    /// The checkpoint failed.
    pub(crate) fn undo_cut(&mut self) {
        self.journaled += std::mem::take(&mut self.cut);
    }

    /// The next `count` of them, after one.
    pub(crate) fn after(&self, after: Option<InlinePlace>, count: usize) -> Vec<InlinePlace> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.blocks.range((start, Bound::Unbounded));
        next.take(count).map(|(place, _)| *place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_follow_what_is_added_replaced_and_removed() {
        let mut inline = JournalInline::default();
        inline.add((Ino(5), 7, VersionId(0)), 100);
        inline.add((Ino(4), 9, VersionId(0)), 50);
        inline.add((Ino(5), 7, VersionId(0)), 30);
        inline.remove((Ino(5), 8, VersionId(0)));
        assert_eq!(inline.bytes(), 80);
        assert_eq!(
            inline.after(None, 9),
            [(Ino(4), 9, VersionId(0)), (Ino(5), 7, VersionId(0))]
        );
        assert_eq!(
            inline.after(Some((Ino(4), 9, VersionId(0))), 9),
            [(Ino(5), 7, VersionId(0))]
        );
        assert_eq!(inline.after(None, 1), [(Ino(4), 9, VersionId(0))]);
        inline.remove((Ino(5), 7, VersionId(0)));
        inline.remove((Ino(4), 9, VersionId(0)));
        assert_eq!(inline.bytes(), 0);
        // What was packed is replayed all the same.
        assert_eq!(inline.replayed_pages(), 1);
        inline.cut();
        inline.undo_cut();
        assert_eq!(inline.replayed_pages(), 1);
        inline.cut();
        assert_eq!(inline.replayed_pages(), 1);
        inline.forget_cut();
        assert_eq!(inline.replayed_pages(), 0);
    }
}
