//! How many files have each block of the store of shared blocks. A block has no count while one file has it: so the first file that
//! shares a block counts itself and the other, and the last one finds none.

use persimmon_format::inode::SHARED;
use persimmon_format::references::References;
use persimmon_format::{Key, KeyKind};

use super::{Meta, tree};
use crate::error::{Error, Result};
use crate::faults::{Fault, fault, unless};

/// Blocks of the store from `from` on, before `to`, that several files have.
struct Counted {
    from: u64,
    to: u64,
    count: u32,
}

fn decode(key: &Key, value: &[u8]) -> Result<Counted> {
    let references = References::decode(key.item, value)
        .map_err(|e| Error::item_damaged(SHARED, format_args!("references {}: {e}", key.item)))?;
    Ok(Counted {
        from: key.item,
        to: key.item + u64::from(references.blocks),
        count: references.count,
    })
}

/// Counts that overlap the blocks `from..to`.
fn overlapping(meta: &Meta, from: u64, to: u64) -> Result<Vec<Counted>> {
    let mut found = Vec::new();
    let (start, end) = (Key::references(from), Key::references(to));
    for item in tree::range_from_floor(&meta.cache, meta.root, start, end) {
        let (key, value) = item?;
        if (key.ino, key.kind) != (SHARED, KeyKind::REFERENCES) {
            continue;
        }
        let counted = decode(&key, value)?;
        if counted.to > from {
            found.push(counted);
        }
    }
    Ok(found)
}

/// Ranges of these blocks, all of which some file has, each with how many files have it.
pub(crate) fn counts(meta: &Meta, from: u64, to: u64) -> Result<Vec<(u64, u64, u32)>> {
    let (mut ranges, mut done) = (Vec::new(), from);
    for counted in overlapping(meta, from, to)? {
        let (start, end) = (counted.from.max(from), counted.to.min(to));
        ranges.push((done, start, 1));
        ranges.push((start, end, counted.count));
        done = end;
    }
    ranges.push((done, to, 1));
    ranges.retain(|(start, end, _)| start < end);
    Ok(ranges)
}

/// Makes sure that [`add`] and [`drop`] find all they need in memory and intact.
pub(crate) fn ensure(meta: &Meta, from: u64, to: u64) -> Result<()> {
    meta.ensure_stored(&Key::references(from))?;
    meta.ensure_stored(&Key::references(to))?;
    for counted in overlapping(meta, from, to)? {
        meta.ensure_stored(&Key::references(counted.from))?;
    }
    Ok(())
}

/// One more file has these blocks.
pub(crate) fn add(meta: &mut Meta, from: u64, to: u64) -> Result<()> {
    unless(Fault::ReferenceNotAdded, || {
        change(meta, from, to, |count| count.saturating_add(1)).map(|_| ())
    })
}

/// One file less has these blocks. Returns those that none has any more. Of a count at its end nobody knows how many there are: it stays, for
/// a block that is kept too long is no loss.
pub(crate) fn drop(meta: &mut Meta, from: u64, to: u64) -> Result<Vec<(u64, u64)>> {
    change(meta, from, to, |count| match count {
        u32::MAX => count,
        count => count - u32::from(!fault(Fault::ReferenceNotDropped)),
    })
}

/// Changes the counts of blocks, all of which some file has. Returns those that none has then.
fn change(
    meta: &mut Meta,
    from: u64,
    to: u64,
    new: impl Fn(u32) -> u32,
) -> Result<Vec<(u64, u64)>> {
    let mut orphaned = Vec::new();
    let mut done = from;
    for counted in overlapping(meta, from, to)? {
        let (start, end) = (counted.from.max(from), counted.to.min(to));
        put_or_note(meta, (done, start), new(1), &mut orphaned);
        let changed = new(counted.count);
        let first = if counted.from < start {
            counted.count
        } else {
            changed
        };
        // A count that stays is replaced where it is: to take it out and put it in again would pack a full page each time.
        if first <= 1 {
            meta.remove_stored(&Key::references(counted.from));
        }
        put(meta, (counted.from, start), counted.count);
        put_or_note(meta, (start, end), changed, &mut orphaned);
        put(meta, (end, counted.to), counted.count);
        done = end;
    }
    put_or_note(meta, (done, to), new(1), &mut orphaned);
    Ok(orphaned)
}

fn put_or_note(meta: &mut Meta, range: (u64, u64), count: u32, orphaned: &mut Vec<(u64, u64)>) {
    if range.0 < range.1 && count == 0 {
        orphaned.push(range);
    } else {
        put(meta, range, count);
    }
}

fn put(meta: &mut Meta, (from, to): (u64, u64), count: u32) {
    if from < to && count > 1 {
        let blocks = (to - from) as u32;
        let value = References { blocks, count }.encode();
        meta.insert_stored(&Key::references(from), &value);
    }
}
