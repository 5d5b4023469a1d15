//! The leaves of a tree that may have gaps: what its root leads to, and for what is lost, what a
//! scan found in its place.

use persimmon_format::page::PageView;
use persimmon_format::table::MatEntry;
use persimmon_format::{Ino, Key, PageId};

use super::content::Damage;
use super::scan::{PageVersion, Scan};
use crate::tree::Leaf;
use crate::volume::Inspector;

/// A range of keys whose page is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostRange {
    pub low: Key,
    pub high: Option<Key>,
    pub instead: Instead,
}

/// What stands in for a lost page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instead {
    /// Nothing.
    Nothing,
    /// The page as this earlier checkpoint wrote it.
    Older(u64),
    /// An inner page is lost: so many of the leaves under it were found by their keys.
    Leaves(u64),
}

impl LostRange {
    pub(crate) fn holds(&self, key: &Key) -> bool {
        *key >= self.low && self.high.is_none_or(|high| *key < high)
    }

    /// Whether an inode has, or could have, items in it.
    pub(crate) fn holds_any_of(&self, ino: Ino) -> bool {
        self.low.ino <= ino && self.high.is_none_or(|high| ino <= high.ino)
    }

    /// What of it is in a range of keys.
    pub(crate) fn damage(&self, from: Key, to: Key) -> Damage {
        Damage {
            from: self.low.max(from),
            to: self.high.map_or(to, |high| high.min(to)),
            older: match self.instead {
                Instead::Older(checkpoint) => Some(checkpoint),
                Instead::Nothing | Instead::Leaves(_) => None,
            },
        }
    }
}

/// Ranges of keys that are lost, as they are looked up for each item and each block of the device: there may be very many of both.
#[derive(Clone, Debug, Default)]
pub(crate) struct LostRanges {
    /// By their first keys. One may hold others: of a lost inner page, and of the leaves under it.
    ranges: Vec<LostRange>,
    /// How far the ranges up to each one reach; nothing for the end of the tree.
    reach: Vec<Option<Key>>,
}

impl LostRanges {
    pub(crate) fn new(mut ranges: Vec<LostRange>) -> LostRanges {
        ranges.sort_by_key(|lost| lost.low);
        let mut most = Some(Key::from_bytes(&[0; Key::LEN]));
        let further = |lost: &LostRange| {
            most = most.zip(lost.high).map(|(most, high)| most.max(high));
            most
        };
        let reach = ranges.iter().map(further).collect();
        LostRanges { ranges, reach }
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, LostRange> {
        self.ranges.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Those that reach past a key, beginning with one that may.
    fn past(&self, key: Key) -> impl Iterator<Item = &LostRange> {
        let ends = |high: &Option<Key>| high.is_some_and(|high| high <= key);
        let first = self.reach.partition_point(ends);
        let ranges = self.ranges.iter().skip(first);
        ranges.filter(move |lost| lost.high.is_none_or(|high| key < high))
    }

    /// Those that overlap `from..to`.
    pub(crate) fn between(&self, from: Key, to: Key) -> impl Iterator<Item = &LostRange> {
        self.past(from).take_while(move |lost| lost.low < to)
    }

    /// Those that hold a key.
    pub(crate) fn holding(&self, key: Key) -> impl Iterator<Item = &LostRange> {
        self.past(key).take_while(move |lost| lost.low <= key)
    }
}

/// What is left of a tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Forest {
    /// In key order, without overlaps.
    pub leaves: Vec<Leaf>,
    /// Pages that are to be read elsewhere than the table says.
    pub moved: Vec<(PageId, MatEntry)>,
    pub lost: Vec<LostRange>,
    /// Pages reached, by id.
    pub reached: Vec<bool>,
    pub pages: u64,
    pub height: u8,
    /// Pages that are lost or out of place; 0 for a whole tree.
    pub faults: u64,
}

/// A page that is still to be looked at.
struct Pending {
    page: PageId,
    low: Key,
    high: Option<Key>,
    level: Option<u8>,
}

pub(crate) struct Grower<'a, 'd> {
    pub inspector: &'a Inspector<'d>,
    pub scan: &'a Scan,
    /// Where each page is, by id.
    pub mat: &'a [MatEntry],
    pub checkpoint: u64,
}

impl Grower<'_, '_> {
    fn entry(&self, id: PageId) -> MatEntry {
        let entry = usize::try_from(id.0).ok().and_then(|id| self.mat.get(id));
        entry.copied().unwrap_or(MatEntry::NONE)
    }

    /// The page as the table means it, if it is intact.
    fn page(&self, id: PageId) -> Option<&PageVersion> {
        let entry = self.entry(id);
        self.scan
            .page_at(id, entry)
            .filter(|page| entry.is_used() && page.checkpoint <= self.checkpoint)
    }

    fn children(&self, page: &PageVersion) -> Vec<(Key, PageId)> {
        let Ok(stored) = self.inspector.page_at(page.entry(), Some(page.id)) else {
            return Vec::new();
        };
        PageView::new(&stored.image)
            .map(|view| view.children().collect())
            .unwrap_or_default()
    }

    /// Pages that can be the root: those in use that no page in use leads to, the highest first.
    pub(crate) fn roots(&self) -> Vec<PageId> {
        let mut child = vec![false; self.mat.len()];
        let mut pages = Vec::new();
        for id in (0..self.mat.len() as u64).map(PageId) {
            let Some(page) = self.page(id) else {
                continue;
            };
            pages.push((page.level, page.checkpoint, id));
            if page.level > 0 {
                for (_, id) in self.children(page) {
                    if let Some(child) = child.get_mut(id.0 as usize) {
                        *child = true;
                    }
                }
            }
        }
        pages.retain(|(_, _, id)| !child.get(id.0 as usize).copied().unwrap_or(true));
        pages.sort_unstable_by(|a, b| b.cmp(a));
        pages.into_iter().map(|(_, _, id)| id).collect()
    }

    /// What hangs on a root; on none, whatever is left.
    pub(crate) fn grow(&self, root: Option<PageId>) -> Forest {
        let mut forest = Forest {
            reached: vec![false; self.mat.len()],
            ..Forest::default()
        };
        let lowest = Key::from_bytes(&[0; Key::LEN]);
        let mut gaps = Vec::new();
        match root {
            None => gaps.push(LostRange {
                low: lowest,
                high: None,
                instead: Instead::Leaves(0),
            }),
            Some(page) => {
                let mut stack = vec![Pending {
                    page,
                    low: lowest,
                    high: None,
                    level: None,
                }];
                while let Some(pending) = stack.pop() {
                    self.visit(&pending, &mut forest, &mut stack, &mut gaps);
                }
            }
        }
        forest.faults += gaps.len() as u64;
        for gap in gaps {
            self.fill(gap, &mut forest);
        }
        forest.leaves.sort_by_key(|leaf| leaf.low);
        forest.lost.sort_by_key(|lost| lost.low);
        let unreached = |(id, entry): (usize, &MatEntry)| {
            let reached = forest.reached.get(id).copied().unwrap_or(false);
            !reached
                && entry.is_used()
                && self.page(PageId(id as u64)).is_some_and(|p| p.level == 0)
        };
        forest.faults += self
            .mat
            .iter()
            .enumerate()
            .filter(|e| unreached(*e))
            .count() as u64;
        forest
    }

    fn visit(
        &self,
        pending: &Pending,
        forest: &mut Forest,
        stack: &mut Vec<Pending>,
        gaps: &mut Vec<LostRange>,
    ) {
        let lost = |instead| LostRange {
            low: pending.low,
            high: pending.high,
            instead,
        };
        let twice = forest.reached.get(pending.page.0 as usize).copied() != Some(false);
        if twice {
            forest.faults += 1;
            forest.lost.push(lost(Instead::Nothing));
            return;
        }
        let found = self
            .page(pending.page)
            .filter(|page| pending.level.is_none_or(|level| level == page.level));
        let Some(page) = found else {
            match pending.level {
                Some(0) => {
                    forest.faults += 1;
                    self.stand_in(pending.page, (pending.low, pending.high), forest);
                }
                _ => gaps.push(lost(Instead::Leaves(0))),
            }
            return;
        };
        mark(forest, page);
        if page.level == 0 {
            if let Some((first, last)) = page.keys
                && (first < pending.low || pending.high.is_some_and(|high| last >= high))
            {
                forest.faults += 1;
            }
            forest.leaves.push(Leaf {
                low: pending.low,
                high: pending.high,
                page: page.id,
            });
            return;
        }
        let children = self.children(page);
        let mut high = pending.high;
        for (index, (key, child)) in children.iter().enumerate().rev() {
            let low = if index == 0 { pending.low } else { *key };
            if low < pending.low || high.is_some_and(|high| low >= high) {
                forest.faults += 1;
                continue;
            }
            stack.push(Pending {
                page: *child,
                low,
                high,
                level: Some(page.level - 1),
            });
            high = Some(low);
        }
    }

    /// The newest older version of a lost leaf, if there is one.
    fn older(&self, id: PageId) -> Option<&PageVersion> {
        let mut versions = self.scan.versions(id).iter().rev();
        versions.find(|page| page.level == 0 && page.checkpoint <= self.checkpoint)
    }

    fn stand_in(&self, id: PageId, (low, high): (Key, Option<Key>), forest: &mut Forest) {
        let instead = match self.older(id) {
            None => Instead::Nothing,
            Some(page) => {
                mark(forest, page);
                forest.moved.push((id, page.entry()));
                forest.leaves.push(Leaf {
                    low,
                    high,
                    page: id,
                });
                Instead::Older(page.checkpoint)
            }
        };
        forest.lost.push(LostRange { low, high, instead });
    }

    /// An inner page is lost: leaves in use that nothing else leads to, and whose keys lie in its
    /// range, were under it.
    fn fill(&self, gap: LostRange, forest: &mut Forest) {
        let mut found: Vec<(Key, PageId, Option<&PageVersion>)> = Vec::new();
        for (id, entry) in self.mat.iter().enumerate().filter(|(_, e)| e.is_used()) {
            let id = PageId(id as u64);
            let reached = forest.reached.get(id.0 as usize).copied().unwrap_or(true);
            if reached {
                continue;
            }
            let current = self.scan.page_at(id, *entry);
            let page = match current {
                Some(page) if page.level > 0 => continue,
                Some(page) => page,
                None => match self.older(id) {
                    Some(page) => page,
                    None => continue,
                },
            };
            if let Some((first, _)) = page.keys
                && gap.holds(&first)
            {
                let older = current.is_none().then_some(page);
                found.push((first, id, older));
            }
        }
        found.sort_unstable_by_key(|(first, id, _)| (*first, *id));
        let count = found.len() as u64;
        for (at, (first, id, older)) in found.iter().enumerate() {
            let low = if at == 0 { gap.low } else { *first };
            let high = found
                .get(at + 1)
                .map_or(gap.high, |(next, _, _)| Some(*next));
            if high.is_some_and(|high| low >= high) {
                forest.faults += 1;
                continue;
            }
            match older {
                Some(_) => {
                    forest.faults += 1;
                    self.stand_in(*id, (low, high), forest);
                }
                None => {
                    if let Some(page) = self.page(*id) {
                        mark(forest, page);
                    }
                    forest.leaves.push(Leaf {
                        low,
                        high,
                        page: *id,
                    });
                }
            }
        }
        forest.lost.push(LostRange {
            instead: Instead::Leaves(count),
            ..gap
        });
    }
}

fn mark(forest: &mut Forest, page: &PageVersion) {
    if let Some(reached) = forest.reached.get_mut(page.id.0 as usize) {
        *reached = true;
    }
    forest.pages += 1;
    forest.height = forest.height.max(page.level);
}

#[cfg(test)]
mod tests {
    use persimmon_format::{Ino, Key};

    use super::{Instead, LostRange, LostRanges};

    /// Ranges beside each other, in each other, and without an end: a search finds those that a look at each finds.
    #[test]
    fn lost_ranges_are_found_by_key() {
        let key = |number: u64| Key::inode(Ino(number));
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for round in 0..200 {
            let mut ranges = Vec::new();
            for _ in 0..random(12) {
                let low = random(60);
                let most = if random(4) == 0 { 60 } else { 4 };
                let high = low + 1 + random(most);
                let is_last = round % 5 == 0 && random(6) == 0;
                ranges.push(LostRange {
                    low: key(low),
                    high: (!is_last).then_some(key(high)),
                    instead: Instead::Leaves(high),
                });
            }
            let lost = LostRanges::new(ranges.clone());
            ranges.sort_by_key(|range| range.low);
            let same = |found: Vec<&LostRange>, right: Vec<&LostRange>| {
                let told =
                    |all: &[&LostRange]| all.iter().map(|l| (l.low, l.high)).collect::<Vec<_>>();
                assert_eq!(told(&found), told(&right));
            };
            for at in 0..130 {
                let right = ranges.iter().filter(|range| range.holds(&key(at)));
                same(lost.holding(key(at)).collect(), right.collect());
                let (from, to) = (key(at), key(at + random(9)));
                let overlaps = |range: &&LostRange| {
                    range.low < to && range.high.is_none_or(|high| from < high)
                };
                let right = ranges.iter().filter(overlaps);
                same(lost.between(from, to).collect(), right.collect());
            }
        }
    }
}
