//! The tables of an LSM tree, key by key, and which of them are compacted next: RocksDB 7.8 with leveled compaction and dynamic
//! level sizes, as far as it decides how large files are and which die together.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::Shape;

/// Levels, the first of which holds tables as they were flushed.
const LEVELS: usize = 7;
const BOTTOM: usize = LEVELS - 1;
/// Each level is so many times as large as the one above.
const MULTIPLIER: u64 = 10;
/// Flushed tables that are compacted together.
const FLUSHED_TRIGGER: usize = 4;

/// How long RocksDB says that a file will live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    Medium,
    Long,
    Extreme,
}

/// A table.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub number: u64,
    /// Sorted.
    pub keys: Vec<u32>,
}

impl Table {
    fn range(&self) -> (u32, u32) {
        let ends = self.keys.first().zip(self.keys.last());
        ends.map_or((u32::MAX, 0), |(first, last)| (*first, *last))
    }

    fn overlaps(&self, (first, last): (u32, u32)) -> bool {
        let own = self.range();
        own.0 <= last && first <= own.1
    }
}

/// Tables that are merged into others, and what these will hold.
pub(super) struct Compaction {
    from: usize,
    to: usize,
    pub inputs: Vec<Rc<Table>>,
    pub outputs: Vec<Vec<u32>>,
    pub hint: Hint,
}

/// All tables. Those of the first level are ordered by age, those of others by key.
pub(super) struct Tree {
    shape: Shape,
    levels: [Vec<Rc<Table>>; LEVELS],
    next: u64,
}

impl Tree {
    pub fn new(shape: Shape) -> Tree {
        Tree {
            shape,
            levels: Default::default(),
            next: 0,
        }
    }

    pub fn flushed_tables(&self) -> usize {
        self.levels[0].len()
    }

    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn add_flushed(&mut self, number: u64, keys: Vec<u32>) {
        self.levels[0].push(Rc::new(Table { number, keys }));
    }

    fn bytes(&self, tables: &[Rc<Table>]) -> u64 {
        let keys: usize = tables.iter().map(|table| table.keys.len()).sum();
        keys as u64 * self.shape.entry_bytes
    }

    fn level_bytes(&self, level: usize) -> u64 {
        self.levels
            .get(level)
            .map_or(0, |tables| self.bytes(tables))
    }

    fn overlapping(&self, level: usize, range: (u32, u32)) -> Vec<Rc<Table>> {
        let tables = self.levels.get(level).into_iter().flatten();
        tables
            .filter(|table| table.overlaps(range))
            .cloned()
            .collect()
    }

    /// The level that flushed tables are compacted into.
    fn base_level(&self) -> usize {
        let base_max = self.shape.base_bytes.max(self.level_bytes(0));
        let filled = (1..LEVELS).filter(|level| self.level_bytes(*level) > 0);
        let Some(first) = filled.clone().min() else {
            return BOTTOM;
        };
        let mut bytes = filled
            .map(|level| self.level_bytes(level))
            .max()
            .unwrap_or(0);
        bytes /= MULTIPLIER.pow((BOTTOM - first) as u32);
        let mut base = first;
        while base > 1 && bytes > base_max {
            base -= 1;
            bytes /= MULTIPLIER;
        }
        base
    }

    /// How much each level is to hold.
    fn target_bytes(&self, level: usize, base: usize) -> u64 {
        let largest = (1..LEVELS)
            .map(|level| self.level_bytes(level))
            .max()
            .unwrap_or(0);
        let below = MULTIPLIER.pow(BOTTOM.saturating_sub(level.max(base)) as u32);
        (largest / below).max(self.shape.base_bytes)
    }

    /// What RocksDB says of files of a level.
    fn hint(&self, level: usize) -> Hint {
        match level.saturating_sub(self.base_level()) {
            0 => Hint::Medium,
            1 => Hint::Long,
            _ => Hint::Extreme,
        }
    }

    /// The next compaction, of the level that is most beyond what it is to hold. What overlaps nothing moves down as it is.
    pub fn pick(&mut self) -> Option<Compaction> {
        loop {
            let base = self.base_level();
            let flushed = self.levels[0].len() as f64 / FLUSHED_TRIGGER as f64;
            let beyond =
                |level| self.level_bytes(level) as f64 / self.target_bytes(level, base) as f64;
            let scores = (base..BOTTOM).map(|level| (level, beyond(level)));
            let best = std::iter::once((0, flushed)).chain(scores);
            let (from, score) = best.max_by(|a, b| a.1.total_cmp(&b.1))?;
            if score < 1.0 {
                return None;
            }
            let to = if from == 0 { base } else { from + 1 };
            let upper = match from {
                0 => self.levels[0].clone(),
                _ => vec![self.least_overlapping(from)?],
            };
            let ranges = upper.iter().map(|table| table.range());
            let range = ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
            let lower = self.overlapping(to, range);
            let is_apart = upper.windows(2).all(|two| match two {
                [a, b] => a.range().1 < b.range().0,
                _ => true,
            });
            let below = self.overlapping(to + 1, range);
            if lower.is_empty() && is_apart && self.bytes(&below) <= self.shape.compaction_bytes {
                self.replace(from, to, &upper, upper.clone());
                continue;
            }
            let inputs: Vec<Rc<Table>> = upper.into_iter().chain(lower).collect();
            let keys = inputs.iter().flat_map(|table| table.keys.iter().copied());
            let keys: BTreeSet<u32> = keys.collect();
            return Some(Compaction {
                from,
                to,
                outputs: self.cut(keys, &below),
                hint: self.hint(to),
                inputs,
            });
        }
    }

    fn least_overlapping(&self, level: usize) -> Option<Rc<Table>> {
        let ratio = |table: &Rc<Table>| {
            let below = self.bytes(&self.overlapping(level + 1, table.range()));
            below * 1024 / (table.keys.len() as u64 * self.shape.entry_bytes).max(1)
        };
        let tables = self.levels.get(level)?.iter();
        tables.min_by_key(|table| ratio(table)).cloned()
    }

    /// What is merged becomes tables of a size, none of which overlaps more of the next level than a compaction may have.
    fn cut(&self, keys: BTreeSet<u32>, below: &[Rc<Table>]) -> Vec<Vec<u32>> {
        let keys_max = (self.shape.table_bytes / self.shape.entry_bytes) as usize;
        let (mut tables, mut table) = (Vec::new(), Vec::new());
        let mut below = below.iter().peekable();
        let mut passed = 0;
        for key in keys {
            while let Some(next) = below.next_if(|next| next.range().1 < key) {
                passed += next.keys.len() as u64 * self.shape.entry_bytes;
            }
            if table.len() >= keys_max || passed > self.shape.compaction_bytes {
                passed = 0;
                if !table.is_empty() {
                    tables.push(std::mem::take(&mut table));
                }
            }
            table.push(key);
        }
        tables.push(table);
        tables
    }

    /// The tables that a compaction has written take the place of those it has read.
    pub fn install(&mut self, compaction: &Compaction, made: Vec<Table>) {
        let made = made.into_iter().map(Rc::new).collect();
        self.replace(compaction.from, compaction.to, &compaction.inputs, made);
    }

    fn replace(&mut self, from: usize, to: usize, gone: &[Rc<Table>], made: Vec<Rc<Table>>) {
        let gone: BTreeSet<u64> = gone.iter().map(|table| table.number).collect();
        for level in [from, to] {
            if let Some(tables) = self.levels.get_mut(level) {
                tables.retain(|table| !gone.contains(&table.number));
            }
        }
        if let Some(tables) = self.levels.get_mut(to) {
            tables.extend(made);
            tables.sort_by_key(|table| table.range());
        }
    }
}
