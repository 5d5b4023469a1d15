//! Shared blocks: the store of them, the extents of files that name its blocks, and the counts of these. The store and its counts come
//! before all files in the order of keys, so each extent of a file is looked up as it comes; whether the counts are right is known at
//! the end.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use persimmon_format::extent::Extent;
use persimmon_format::inode::SHARED;
use persimmon_format::references::References;
use persimmon_format::zone_header::DICTIONARIES;
use persimmon_format::{Addr, Key, KeyKind, ZoneId};

use super::files::{Context, item};
use super::repair::Plan;
use crate::finding::{
    DATA, DICTIONARY_MISSING, DICTIONARY_NESTED, Findings, ITEM_VALUE, SHARED_COUNT,
    SHARED_COUNT_OVERLAP, SHARED_EXTENT, SHARED_MISSING, SHARED_UNNAMED,
};
use crate::shared::present_parts;
use crate::state::State;

/// Blocks of the store, by their first one.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// Ranges that the store has, ascending, with gaps between them.
    stored: Vec<(u64, u64)>,
    /// Ranges that counts cover, by their first block: end and count.
    counts: BTreeMap<u64, (u64, u32)>,
    /// First blocks of counts that a repair has to put or delete.
    touched: BTreeSet<u64>,
    /// End of what the counts seen cover.
    counted_to: u64,
    /// By how much the number of extents that name a block is greater than for the block before it.
    named: BTreeMap<u64, i64>,
    /// Ranges in zones that are offline, ascending.
    lost: Vec<(u64, u64, ZoneId)>,
    /// Blocks that are damaged, ascending, and where they lie: with their frame, if it is compressed.
    damaged: Vec<(u64, u64, Addr)>,
}

/// A range that is counted wrongly, or that no file has.
#[derive(Clone, Copy)]
struct Wrong {
    from: u64,
    to: u64,
    is_stored: bool,
    said: u64,
    named: u64,
}

impl Sharing {
    /// Takes an extent of the store.
    pub(super) fn extent(&mut self, block: u64, extent: &Extent, findings: &mut Findings) {
        let end = block.saturating_add(extent.blocks());
        match self.stored.last_mut() {
            Some((_, last)) if *last >= block => *last = end.max(*last),
            _ => self.stored.push((block, end)),
        }
        if extent.names().is_some() && matches!(extent, Extent::Packed(_)) {
            let place = format!("inode {SHARED}, block {block}");
            findings.add(&DICTIONARY_NESTED, place, "");
        }
        let what = match extent {
            Extent::Frame { .. } | Extent::Packed(_) => return,
            Extent::Shared { .. } => "blocks that are shared themselves",
            Extent::Inline(_) | Extent::Compressed(_) => "content inline",
            Extent::Reserved { .. } => "blocks reserved",
            Extent::Hole { .. } => "blocks that are hidden",
        };
        let place = format!("inode {SHARED}, block {block}");
        findings.add(&SHARED_EXTENT, place, what);
    }

    pub(super) fn lose(&mut self, block: u64, blocks: u64, zone: ZoneId) {
        self.lost.push((block, block.saturating_add(blocks), zone));
    }

    pub(super) fn damage(&mut self, block: u64, blocks: u64, addr: Addr) {
        let end = block.saturating_add(blocks);
        self.damaged.push((block, end, addr));
    }

    /// Takes a count.
    pub(super) fn references(
        &mut self,
        key: &Key,
        value: &[u8],
        findings: &mut Findings,
        plan: &mut Plan,
    ) {
        let References { blocks, count } = match References::decode(key.item, value) {
            Ok(references) => references,
            Err(error) => {
                findings.add(&ITEM_VALUE, item(key), error);
                plan.delete(*key);
                return;
            }
        };
        let end = key.item.saturating_add(blocks.into());
        let from = key.item.max(self.counted_to);
        if from > key.item {
            let place = store_place(key.item, from.min(end));
            findings.add(&SHARED_COUNT_OVERLAP, place, "");
            self.touched.extend([key.item, from]);
        }
        if from < end {
            self.counts.insert(from, (end, count));
            self.counted_to = end;
        }
    }

    /// Takes an extent of a file.
    pub(super) fn named(&mut self, at: u64, end: u64) {
        for (block, change) in [(at, 1), (end, -1)] {
            let sum = self.named.entry(block).or_default();
            *sum += change;
            if *sum == 0 {
                self.named.remove(&block);
            }
        }
    }

    /// Parts of a range that the store does not have.
    fn missing(&self, at: u64, end: u64) -> Vec<(u64, u64)> {
        let first = self.stored.partition_point(|(_, to)| *to <= at);
        let mut missing = Vec::new();
        let mut done = at;
        let stored = self.stored.iter().skip(first);
        for (from, to) in stored.take_while(|(from, _)| *from < end) {
            if *from > done {
                missing.push((done, *from));
            }
            done = done.max(*to);
        }
        if done < end {
            missing.push((done, end));
        }
        missing
    }

    /// Looks at ranges of the store with the same numbers, in order.
    fn sweep(&self, visit: &mut dyn FnMut(Wrong)) {
        let mut changes: BTreeSet<u64> = self.named.keys().copied().collect();
        changes.extend(self.stored.iter().flat_map(|(from, to)| [*from, *to]));
        let counts = self.counts.iter();
        changes.extend(counts.flat_map(|(from, (to, _))| [*from, *to]));
        let mut stored = self.stored.iter().copied().peekable();
        let mut counts = self.counts.iter().peekable();
        let mut named = 0i64;
        let mut ends = changes.iter().copied().skip(1);
        for from in &changes {
            let Some(to) = ends.next() else { break };
            named += self.named.get(from).copied().unwrap_or(0);
            while stored.next_if(|(_, end)| end <= from).is_some() {}
            while counts.next_if(|(_, (end, _))| end <= from).is_some() {}
            let is_stored = stored.peek().is_some_and(|(start, _)| start <= from);
            let count = counts.peek().filter(|(start, _)| *start <= from);
            let count = count.map(|(_, (_, count))| u64::from(*count));
            visit(Wrong {
                from: *from,
                to,
                is_stored,
                said: count.unwrap_or(u64::from(is_stored)),
                named: u64::try_from(named).unwrap_or(0),
            });
        }
    }

    /// What is wrong, in ranges that are as long as can be.
    fn wrongs(&self) -> Vec<Wrong> {
        let mut wrongs: Vec<Wrong> = Vec::new();
        self.sweep(&mut |found| {
            let is_right = match found.is_stored {
                true => found.said == found.named,
                // What a file names there is told with the file.
                false => found.said == 0,
            };
            let is_more = |last: &Wrong| {
                last.to == found.from
                    && (last.is_stored, last.said) == (found.is_stored, found.said)
                    && (last.named == found.named || !found.is_stored)
            };
            match wrongs.last_mut().filter(|last| is_more(last)) {
                _ if is_right => {}
                Some(last) => last.to = found.to,
                None => wrongs.push(found),
            }
        });
        wrongs
    }

    /// Tells what is wrong with the counts, and what no file has, when all has been seen.
    pub(super) fn finish(
        mut self,
        state: &State<'_, '_>,
        findings: &mut Findings,
        plan: &mut Plan,
    ) {
        let mut unnamed = Vec::new();
        for wrong in self.wrongs() {
            let Wrong {
                from,
                to,
                is_stored,
                said,
                named,
            } = wrong;
            let place = store_place(from, to);
            match (is_stored, named) {
                (false, _) => {
                    let detail = format!("it says {said}, there are no such blocks");
                    findings.add(&SHARED_COUNT, place, detail);
                    self.set_count(from, to, 0);
                }
                (true, 0) => {
                    findings.add(&SHARED_UNNAMED, place, "");
                    self.set_count(from, to, 0);
                    unnamed.push((from, to));
                }
                (true, _) => {
                    let detail = format!("it says {said}, {named} extents name them");
                    findings.add(&SHARED_COUNT, place, detail);
                    self.set_count(from, to, u32::try_from(named).unwrap_or(u32::MAX));
                }
            }
        }
        // The last first: what shortens a count comes after what counts the rest, so that wherever the plan, or its carrying out, ends too early
        // no block of several files counts as one of a single one.
        for first in self.touched.iter().rev() {
            let key = Key::references(*first);
            match self.counts.get(first) {
                Some((end, count)) => {
                    let blocks = u32::try_from(end - first).unwrap_or(u32::MAX);
                    let count = *count;
                    plan.put(key, References { blocks, count }.encode());
                }
                None => plan.delete(key),
            }
        }
        if !unnamed.is_empty() {
            free(&unnamed, state, plan);
        }
    }

    fn set_count(&mut self, from: u64, to: u64, count: u32) {
        let before = self.counts.range(..to).rev();
        let overlapping: Vec<_> = before
            .take_while(|(_, (end, _))| *end > from)
            .map(|(first, (end, count))| (*first, *end, *count))
            .collect();
        for (first, end, old) in overlapping {
            self.counts.remove(&first);
            self.touched.insert(first);
            self.put_count(first, from, old);
            self.put_count(to, end, old);
        }
        self.put_count(from, to, count);
    }

    fn put_count(&mut self, from: u64, to: u64, count: u32) {
        if from < to && count > 1 {
            self.counts.insert(from, (to, count));
            self.touched.insert(from);
        }
    }
}

fn store_place(from: u64, to: u64) -> String {
    format!("inode {SHARED}, blocks {from} to {to}")
}

/// Plans to free ranges of the store, which ascend. Zones are to be counted again.
fn free(ranges: &[(u64, u64)], state: &State<'_, '_>, plan: &mut Plan) {
    let mut extents = Vec::new();
    let _ = state.scan(Key::extent(SHARED, 0), &mut |key, value| {
        if key.ino != SHARED || key.kind != KeyKind::EXTENT {
            return ControlFlow::Break(());
        }
        if let Ok(extent) = Extent::decode(value) {
            let end = key.item.saturating_add(extent.blocks());
            let first = ranges.partition_point(|(_, to)| *to <= key.item);
            if ranges.get(first).is_some_and(|(from, _)| *from < end) {
                extents.push((key.item, end, extent, first));
            }
        }
        ControlFlow::Continue(())
    });
    for (block, end, extent, first) in extents {
        let mut done = block;
        let mut parts = Vec::new();
        let gone = ranges.iter().copied().skip(first);
        for (from, to) in gone
            .take_while(|(from, _)| *from < end)
            .chain([(end, u64::MAX)])
        {
            if from > done {
                let part = extent.part(done - block, from - done);
                parts.push((Key::extent(SHARED, done), part));
            }
            done = to.min(end);
        }
        replace(plan, Key::extent(SHARED, block), &parts);
    }
    plan.recount();
}

/// Plans to put parts of an extent, which ascend, in its place. It gives way last: where the plan ends in between, or its carrying out, what is left
/// overlaps, which the next plan puts right, and nothing is gone that has no other place yet.
fn replace(plan: &mut Plan, whole: Key, parts: &[(Key, Extent)]) {
    for (key, part) in parts.iter().rev() {
        plan.put(*key, part.encode());
    }
    if parts.iter().all(|(key, _)| *key != whole) {
        plan.delete(whole);
    }
}

impl Context<'_, '_> {
    /// Checks an extent of a file that names blocks of the store: what of it is not there, is in a zone that is offline, or damaged.
    pub(super) fn shared_extent(&mut self, key: &Key, extent: &Extent) {
        let (blocks, (at, end)) = (extent.blocks(), extent.names().unwrap_or_default());
        self.counts.shared_blocks += blocks;
        self.sharing.named(at, end);
        let in_file = |block: u64| key.item.saturating_add(block.saturating_sub(at));
        let ino = key.ino;
        let missing = match self.lost {
            true => Vec::new(),
            false => self.sharing.missing(at, end),
        };
        for (from, to) in &missing {
            let place = format!("inode {ino}, block {}", in_file(*from));
            let detail = format!("{from} to {to}");
            if self.table.is_plain {
                self.findings.add(&SHARED_MISSING, place, detail);
            } else {
                self.findings.add_left(
                    &SHARED_MISSING,
                    format!("{place}, version {}", key.version),
                    detail,
                );
            }
        }
        if !missing.is_empty() {
            // What a file cannot have is left as a hole.
            replace(self.plan, *key, &present_parts(key, extent, &missing));
        }
        let sharing = &self.sharing;
        let first = sharing.lost.partition_point(|(_, to, _)| *to <= at);
        for (from, to, zone) in sharing.lost.iter().skip(first) {
            if *from >= end {
                break;
            }
            let (from, to) = (at.max(*from), end.min(*to));
            let part = Key::extent(ino, in_file(from)).at(key.version);
            self.losses.add(&part, to.saturating_sub(from), *zone);
        }
        let first = sharing.damaged.partition_point(|(_, to, _)| *to <= at);
        for (from, _, addr) in sharing.damaged.iter().skip(first) {
            if *from >= end {
                break;
            }
            let place = format!("inode {ino}, block {}", in_file(at.max(*from)));
            let detail = format!("the one at {addr}, which is shared");
            self.findings.add(&DATA, place, detail);
        }
    }

    /// Checks an extent of a compressed frame with a dictionary: whether that is there, or in a zone that is offline. The frame names it by
    /// the first of its extents.
    pub(super) fn dictionary(
        &mut self,
        key: &Key,
        blocks: u64,
        (at, end): (u64, u64),
        is_first: bool,
    ) {
        if self.inspector.identity.incompatible & DICTIONARIES == 0 {
            let detail = "the volume has no dictionaries";
            self.findings.add(&ITEM_VALUE, item(key), detail);
        }
        if is_first {
            self.sharing.named(at, end);
        }
        let missing = match self.lost {
            true => Vec::new(),
            false => self.sharing.missing(at, end),
        };
        if !missing.is_empty() {
            let place = format!("inode {}, block {}", key.ino, key.item);
            let detail = format!("blocks {at} to {end} of the store");
            self.findings.add(&DICTIONARY_MISSING, place, detail);
        }
        let sharing = &self.sharing;
        let first = sharing.lost.partition_point(|(_, to, _)| *to <= at);
        if let Some((from, _, zone)) = sharing.lost.get(first)
            && *from < end
        {
            self.losses.add(key, blocks, *zone);
        }
    }
}
