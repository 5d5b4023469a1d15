//! Finding a key among the slots of a page.
//!
//! In a large tree almost every leaf comes from main memory, and a plain binary search waits for
//! it once for each step: the address of a probe depends on the one before. Where the parent's
//! keys say between which bounds a page lies, and its keys are even enough between them (names'
//! hashes of one directory, blocks of one file, inodes that have few items each), a guess comes
//! first. Elsewhere a guess would be wrong mostly, and the pages are few and mostly near: inner
//! ones, and those where a directory with its names lies among files.

use std::hint::black_box;

use persimmon_format::Key;

use super::SLOT_BYTES;

/// So many slots are asked for from memory at once.
const LAST: usize = 16;

/// Items an inode may have on average where places are guessed by inode number.
const ITEMS_PER_INODE_MAX: u64 = 16;

/// A key taken apart for comparing: inode, and the rest in one number.
#[derive(Clone, Copy)]
pub(in crate::meta) struct SearchKey {
    ino: u64,
    rest: u128,
}

impl SearchKey {
    #[inline]
    pub(in crate::meta) fn new(key: &Key) -> SearchKey {
        let kind = u128::from(key.kind.0) << 96;
        let item = u128::from(key.item) << 32;
        SearchKey {
            ino: key.ino.0,
            rest: kind | item | u128::from(key.version.0),
        }
    }

    /// Whether `key` is not above this one. Without a branch: which way it goes is a toss in each
    /// step of a search, and a wrong guess of the processor costs more than both.
    #[inline]
    pub(in crate::meta) fn reaches(self, key: &Key) -> bool {
        let key = SearchKey::new(key);
        (key.ino < self.ino) | ((key.ino == self.ino) & (key.rest <= self.rest))
    }

    #[inline]
    fn reaches_slot(self, slot: &[u8; SLOT_BYTES]) -> bool {
        self.reaches(&super::slot_key(slot))
    }
}

/// What is known about a page in memory before it is looked at.
#[derive(Clone, Copy, Debug)]
pub(in crate::meta) struct Expected {
    /// How many items it has.
    pub(in crate::meta) count: usize,
    /// No key of it is below this one.
    pub(in crate::meta) lower: Key,
    /// All its keys are below this one, if there is a bound.
    pub(in crate::meta) upper: Option<Key>,
}

/// How many slots, which are in order, have keys not above the target.
#[inline]
pub(super) fn upper_bound(slots: &[[u8; SLOT_BYTES]], target: SearchKey) -> usize {
    slots.partition_point(|slot| target.reaches_slot(slot))
}

/// [`upper_bound`] of a few slots: all of them are asked for from memory before the first is
/// looked at.
#[inline]
fn count_reached(slots: &[[u8; SLOT_BYTES]], target: SearchKey) -> usize {
    // Two slots are shorter than a cache line. The value loaded is not used: nothing waits for it.
    for slot in slots.iter().step_by(2) {
        black_box(slot[0]);
    }
    slots.partition_point(|slot| target.reaches_slot(slot))
}

/// As [`upper_bound`], looking first about where the distances of the target from the bounds
/// suggest: mostly the only part of the page that has to be fetched from memory.
#[inline]
pub(super) fn upper_bound_expecting(
    slots: &[[u8; SLOT_BYTES]],
    target: &Key,
    expected: &Expected,
) -> usize {
    let key = SearchKey::new(target);
    let even = |upper: &&Key| slots.len() > LAST && is_even(&expected.lower, upper, slots.len());
    let Some(upper) = expected.upper.as_ref().filter(even) else {
        return upper_bound(slots, key);
    };
    let guess = (share(target, &expected.lower, upper) * slots.len() as f64) as usize;
    let from = guess.saturating_sub(LAST / 2).min(slots.len() - LAST);
    let reached = count_reached(&slots[from..from + LAST], key);
    if reached == 0 {
        upper_bound(&slots[..from], key)
    } else if reached == LAST {
        from + LAST + upper_bound(&slots[from + LAST..], key)
    } else {
        from + reached
    }
}

/// As [`upper_bound`] if the answer is `near`, one less or one more; else `None`. Operations mostly look for a key where they looked before.
#[inline]
pub(super) fn upper_bound_near(
    slots: &[[u8; SLOT_BYTES]],
    target: SearchKey,
    near: usize,
) -> Option<usize> {
    let near = near.min(slots.len());
    let reaches = |index: usize| {
        slots
            .get(index)
            .is_some_and(|slot| target.reaches_slot(slot))
    };
    if near > 0 && !reaches(near - 1) {
        Some(near - 1).filter(|below| *below == 0 || reaches(below - 1))
    } else if reaches(near) {
        Some(near + 1).filter(|above| !reaches(*above))
    } else {
        Some(near)
    }
}

/// Whether keys between the bounds of a page of `count` items can be expected to lie evenly.
#[inline]
fn is_even(lower: &Key, upper: &Key, count: usize) -> bool {
    let inos = upper.ino.0.wrapping_sub(lower.ino.0);
    match inos {
        0 => lower.kind == upper.kind,
        _ => inos.saturating_mul(ITEMS_PER_INODE_MAX) >= count as u64,
    }
}

/// How far `key` is on the way from `lower` to `upper`, about, from 0 to 1 if it is between them.
#[inline]
fn share(key: &Key, lower: &Key, upper: &Key) -> f64 {
    if (lower.ino, lower.kind) == (upper.ino, upper.kind) {
        let whole = upper.item.wrapping_sub(lower.item);
        return key.item.wrapping_sub(lower.item) as f64 / whole as f64;
    }
    let tail = |key: &Key| (u64::from(key.kind.0) << 56 | key.item >> 8) as f64;
    let from_lower = |key: &Key| {
        let inos = key.ino.0.wrapping_sub(lower.ino.0) as f64;
        inos + (tail(key) - tail(lower)) * (1.0 / 18_446_744_073_709_551_616.0)
    };
    from_lower(key) / from_lower(upper)
}
