//! Finding a key among the slots of a page.
//!
//! In a large tree almost every leaf comes from main memory, and a plain binary search waits for
//! it once for each step: the address of a probe depends on the one before. So a step compares
//! with several slots at once, whose loads the processor has under way together, and does not
//! branch on what it finds. Where the parent's keys say between which bounds a page lies, a guess
//! comes first; names' hashes, inodes and the blocks of a file are even enough for it.

use std::hint::black_box;

use persimmon_format::Key;

use super::SLOT_BYTES;

/// Slots compared with in one step.
const PROBES: usize = 7;
/// So many slots are asked for from memory at once.
const LAST: usize = 16;

/// A key taken apart for comparing.
#[derive(Clone, Copy)]
pub(super) struct Target {
    ino: u64,
    kind: u64,
    item: u64,
    snapshot: u32,
}

impl Target {
    #[inline]
    pub(super) fn new(key: &Key) -> Target {
        Target {
            ino: key.ino.0,
            kind: key.kind.0.into(),
            item: key.item,
            snapshot: key.snapshot.0,
        }
    }

    /// Whether the slot's key is not above the target: no borrow when it is subtracted from it,
    /// field by field from the least.
    #[inline]
    fn reaches(self, slot: &[u8; SLOT_BYTES]) -> bool {
        let key = super::slot_key(slot);
        let borrow = self.snapshot < key.snapshot.0;
        let borrow = less(self.item, key.item, borrow);
        let borrow = less(self.kind, key.kind.0.into(), borrow);
        !less(self.ino, key.ino.0, borrow)
    }
}

/// Whether subtracting `b` and a borrow from `a` borrows.
#[inline]
fn less(a: u64, b: u64, borrow: bool) -> bool {
    let (difference, first) = a.overflowing_sub(b);
    let (_, second) = difference.overflowing_sub(borrow.into());
    first | second
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
pub(super) fn upper_bound(slots: &[[u8; SLOT_BYTES]], target: Target) -> usize {
    let mut rest = slots;
    let mut before = 0;
    while rest.len() > LAST {
        let step = rest.len() / (PROBES + 1);
        // Slots at step - 1, 2 step - 1, ...: each that the target reaches leaves `step` behind.
        let reached: usize = (1..=PROBES)
            .map(|n| usize::from(target.reaches(&rest[n * step - 1])))
            .sum();
        let skip = reached * step;
        let take = if reached == PROBES {
            rest.len() - skip
        } else {
            step - 1
        };
        before += skip;
        rest = &rest[skip..skip + take];
    }
    before + count_reached(rest, target)
}

/// [`upper_bound`] of a few slots: all of them are asked for from memory before the first is
/// looked at.
#[inline]
fn count_reached(slots: &[[u8; SLOT_BYTES]], target: Target) -> usize {
    // Two slots are shorter than a cache line. The value loaded is not used: nothing waits for it.
    for slot in slots.iter().step_by(2) {
        black_box(slot[0]);
    }
    slots.partition_point(|slot| target.reaches(slot))
}

/// As [`upper_bound`], looking first about where the distances of the target from the bounds
/// suggest: mostly the only part of the page that has to be fetched from memory.
#[inline]
pub(super) fn upper_bound_expecting(
    slots: &[[u8; SLOT_BYTES]],
    target: &Key,
    expected: &Expected,
) -> usize {
    let key = Target::new(target);
    let Some(upper) = expected.upper.as_ref().filter(|_| slots.len() > LAST) else {
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
