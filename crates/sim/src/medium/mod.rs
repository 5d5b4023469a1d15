//! Bytes of a file: as programs see them, as they are durable, and what was written in between.
//!
//! What a power cut leaves of it is any of the versions that each sector had since the last time that it was made durable.

mod choice;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

pub use choice::Choice;

/// What is written whole or not at all.
pub const SECTOR_BYTES: u64 = 512;
/// What copies of a medium share while it does not change.
const PAGE_BYTES: usize = 64 << 10;

/// Content in pages.
#[derive(Clone)]
struct Pages(Vec<Arc<[u8; PAGE_BYTES]>>);

impl Pages {
    fn read(&self, into: &mut [u8], offset: u64) {
        let mut done = 0;
        while done < into.len() {
            let (page, within, count) = place(offset + done as u64, into.len() - done);
            into[done..done + count].copy_from_slice(&self.0[page][within..within + count]);
            done += count;
        }
    }

    /// Lets `change` have the bytes from `offset` on, piece by piece, with the place of each within all of them.
    fn write(&mut self, offset: u64, length: usize, mut change: impl FnMut(usize, &mut [u8])) {
        let mut done = 0;
        while done < length {
            let (page, within, count) = place(offset + done as u64, length - done);
            let page = Arc::make_mut(&mut self.0[page]);
            change(done, &mut page[within..within + count]);
            done += count;
        }
    }
}

/// The page of an offset, the place in it, and how much of `length` is there.
fn place(offset: u64, length: usize) -> (usize, usize, usize) {
    let within = offset as usize % PAGE_BYTES;
    let page = offset as usize / PAGE_BYTES;
    (page, within, length.min(PAGE_BYTES - within))
}

/// One write, or a hole.
struct Change {
    offset: u64,
    length: usize,
    /// `None`: zeros.
    bytes: Option<Box<[u8]>>,
}

impl Change {
    fn end(&self) -> u64 {
        self.offset + self.length as u64
    }

    /// The sectors it touches.
    fn sectors(&self) -> std::ops::Range<u64> {
        self.offset / SECTOR_BYTES..self.end().div_ceil(SECTOR_BYTES)
    }

    fn apply(&self, pages: &mut Pages) {
        self.apply_within(pages, self.offset, self.end());
    }

    /// What of it is from `start` to `end`.
    fn apply_within(&self, pages: &mut Pages, start: u64, end: u64) {
        let (start, end) = (start.max(self.offset), end.min(self.end()));
        if start >= end {
            return;
        }
        let skipped = (start - self.offset) as usize;
        pages.write(start, (end - start) as usize, |at, piece| {
            match &self.bytes {
                Some(bytes) => {
                    let from = skipped + at;
                    piece.copy_from_slice(&bytes[from..from + piece.len()]);
                }
                None => piece.fill(0),
            }
        });
    }
}

/// A file and its history since the last fdatasync.
#[derive(Clone)]
pub struct Medium {
    length: u64,
    durable: Pages,
    now: Pages,
    /// What is not durable, oldest first.
    pending: VecDeque<Arc<Change>>,
    /// Changes that are durable.
    durable_changes: u64,
}

impl Medium {
    /// Zeros.
    pub fn new(length: u64) -> Medium {
        let page = Arc::new([0; PAGE_BYTES]);
        let pages = Pages(vec![page; (length as usize).div_ceil(PAGE_BYTES)]);
        Medium {
            length,
            durable: pages.clone(),
            now: pages,
            pending: VecDeque::new(),
            durable_changes: 0,
        }
    }

    /// Bytes of it.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// False: not all of it is there.
    pub fn read(&self, into: &mut [u8], offset: u64) -> bool {
        let fits = offset + into.len() as u64 <= self.length;
        if fits {
            self.now.read(into, offset);
        }
        fits
    }

    /// Writes, not durably.
    pub fn write(&mut self, bytes: &[u8], offset: u64) {
        self.change(offset, bytes.len(), Some(bytes.into()));
    }

    /// Makes zeros of a range, not durably.
    pub fn punch(&mut self, offset: u64, length: u64) {
        let length = length.min(self.length.saturating_sub(offset));
        self.change(offset, length as usize, None);
    }

    fn change(&mut self, offset: u64, length: usize, bytes: Option<Box<[u8]>>) {
        let change = Change {
            offset,
            length,
            bytes,
        };
        change.apply(&mut self.now);
        self.pending.push_back(Arc::new(change));
    }

    /// All changes there ever were.
    pub fn changes(&self) -> u64 {
        self.durable_changes + self.pending.len() as u64
    }

    /// The first so many changes are durable.
    pub fn make_durable(&mut self, changes: u64) {
        while self.durable_changes < changes
            && let Some(change) = self.pending.pop_front()
        {
            change.apply(&mut self.durable);
            self.durable_changes += 1;
        }
    }

    /// What a power cut leaves.
    pub fn after_power_cut(&self, choice: &mut Choice) -> Medium {
        let mut touched: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (number, change) in self.pending.iter().enumerate() {
            for sector in change.sectors() {
                touched.entry(sector).or_default().push(number);
            }
        }
        let mut left = self.durable.clone();
        for (sector, changes) in &touched {
            let start = sector * SECTOR_BYTES;
            for number in changes.iter().take(choice.kept(*sector, changes)) {
                self.pending[*number].apply_within(&mut left, start, start + SECTOR_BYTES);
            }
        }
        Medium {
            length: self.length,
            durable: left.clone(),
            now: left,
            pending: VecDeque::new(),
            durable_changes: 0,
        }
    }

    /// How many changes are not durable.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// All bytes, as programs see them.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length as usize];
        self.now.read(&mut bytes, 0);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(medium: &Medium, offset: u64) -> u8 {
        let mut byte = [0];
        assert!(medium.read(&mut byte, offset));
        byte[0]
    }

    #[test]
    fn what_was_settled_stays_and_the_rest_is_any_version() {
        let mut medium = Medium::new(256 << 10);
        medium.write(&[1; 2048], PAGE_BYTES as u64 - 1024);
        let mark = medium.changes();
        medium.write(&[2; 512], PAGE_BYTES as u64 - 512);
        medium.make_durable(mark);
        medium.write(&[3; 100], PAGE_BYTES as u64 - 512);
        assert_eq!(medium.pending(), 2);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let left = medium.after_power_cut(&mut Choice::new(seed, &medium, &(0..1), 1));
            assert_eq!(read(&left, PAGE_BYTES as u64 - 513), 1);
            assert_eq!(read(&left, PAGE_BYTES as u64), 1);
            let sector = (
                read(&left, PAGE_BYTES as u64 - 512),
                read(&left, PAGE_BYTES as u64 - 1),
            );
            seen.insert(sector);
        }
        // Durable, after the first change, after both: never the second without the first.
        assert_eq!(
            seen.into_iter().collect::<Vec<_>>(),
            [(1, 1), (2, 2), (3, 2)]
        );
        assert_eq!(medium.bytes()[PAGE_BYTES - 512], 3);
    }

    #[test]
    fn a_hole_is_a_version() {
        let mut medium = Medium::new(8192);
        medium.write(&[9; 4096], 0);
        medium.make_durable(medium.changes());
        medium.punch(0, 1 << 20);
        assert_eq!(read(&medium, 0), 0);
        let left = |seed| {
            let left = medium.after_power_cut(&mut Choice::new(seed, &medium, &(0..1), 1));
            read(&left, 0)
        };
        let kept: std::collections::BTreeSet<u8> = (0..50).map(left).collect();
        assert_eq!(kept.into_iter().collect::<Vec<_>>(), [0, 9]);
    }
}
