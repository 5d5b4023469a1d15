//! A node of the metadata tree: a slotted page of 16 KiB.
//!
//! Little endian. Header, 32 bytes: level u8 at 0 (0 is a leaf), flags u8 at 1 (zero), count u16
//! at 2, heap start u16 at 4, dead u16 at 6, page id u64 at 8, sequence u64 at 16, zeros to 32.
//! Then `count` slots of 25 bytes in key order: the key (21 bytes), offset u16 and length u16 of
//! the value. Values lie in a heap that grows down from the end of the page; `dead` counts the
//! bytes in it that no slot uses. In memory bytes 24 to 28 tell the longest run of those that a value
//! left, offset u16 and length u16: the next value that fits goes there, so a full page whose values are
//! exchanged one by one need not be packed for each.
//!
//! In an inner page the value of a slot is the id of a child (u64) and the key is the lower bound
//! of the child's range. The key of slot 0 is the lower bound of the page itself, the one the
//! parent holds for it; searches treat it as smaller than every key.
//!
//! On the device pages are *packed*: values follow each other in slot order from the end of the
//! page without a gap, dead is zero, and so is the room between slots and heap. So a page of given
//! items has one image, and checking it is one pass.

mod image;
mod search;
mod split;

use persimmon_format::page::{PAGE_SIZE, VALUE_LEN_MAX};
use persimmon_format::{Key, PageId};

pub use image::PageError;
pub(super) use search::{Expected, SearchKey};
use search::{upper_bound, upper_bound_expecting, upper_bound_near};

const HEADER_BYTES: usize = 32;
const SLOT_BYTES: usize = Key::LEN + 4;
const CHILD_BYTES: usize = 8;
/// Where the header tells of the hole.
const HOLE: usize = 24;

/// Bytes for slots and values in a page.
pub const CAPACITY_BYTES: usize = PAGE_SIZE - HEADER_BYTES;
/// Highest level a page may have. A tree this high has more pages than a volume has blocks.
pub const LEVEL_MAX: u8 = 12;

const _: () = assert!(3 * (SLOT_BYTES + VALUE_LEN_MAX) <= CAPACITY_BYTES);
const _: () = assert!(PAGE_SIZE <= u16::MAX as usize);

/// Bytes an item with a value of `value_len` bytes takes in a page.
#[must_use]
pub const fn item_bytes(value_len: usize) -> usize {
    SLOT_BYTES + value_len
}

/// A node of the tree. Every page is well formed: made empty, or checked by [`Page::validate`].
///
/// Slots are named by their index; an index that is not below [`Page::count`] is a mistake of the
/// caller and panics.
#[derive(Clone)]
pub struct Page {
    bytes: [u8; PAGE_SIZE],
}

impl Page {
    /// An empty page.
    #[must_use]
    pub fn new(id: PageId, level: u8) -> Page {
        let mut page = Page {
            bytes: [0; PAGE_SIZE],
        };
        page.bytes[0] = level;
        page.bytes[8..16].copy_from_slice(&id.0.to_le_bytes());
        page.set_heap_start(PAGE_SIZE);
        page
    }

    /// Height above the leaves.
    #[inline]
    #[must_use]
    pub fn level(&self) -> u8 {
        self.bytes[0]
    }

    /// Items in the page.
    #[inline]
    #[must_use]
    pub fn count(&self) -> usize {
        self.u16_at(2)
    }

    /// The page's own id.
    #[must_use]
    pub fn id(&self) -> PageId {
        PageId(self.u64_at(8))
    }

    /// The checkpoint that wrote the image this page was read from; 0 if it never was.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.u64_at(16)
    }

    /// Bytes that slots and values take, of [`CAPACITY_BYTES`].
    #[inline]
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.count() * SLOT_BYTES + (PAGE_SIZE - self.heap_start()) - self.dead()
    }

    /// The key of slot `index`.
    #[inline]
    #[must_use]
    pub fn key(&self, index: usize) -> Key {
        slot_key(&self.slots()[index])
    }

    /// The value of slot `index`.
    #[inline]
    #[must_use]
    pub fn value(&self, index: usize) -> &[u8] {
        let (offset, len) = slot_value(&self.slots()[index]);
        &self.bytes[offset..offset + len]
    }

    /// The child of slot `index` of an inner page.
    #[inline]
    #[must_use]
    pub fn child(&self, index: usize) -> PageId {
        let (offset, _) = slot_value(&self.slots()[index]);
        PageId(self.u64_at(offset))
    }

    /// Where `key` is (`Ok`), or where it would have to be inserted (`Err`).
    #[inline]
    pub fn search(&self, key: &Key) -> Result<usize, usize> {
        found(
            self.slots(),
            key,
            upper_bound(self.slots(), SearchKey::new(key)),
        )
    }

    /// As [`Page::search`]. What is known of the page makes it quicker, and so does a place at or beside `near`.
    #[inline]
    pub(super) fn search_expecting(
        &self,
        key: &Key,
        expected: &Expected,
        near: usize,
    ) -> Result<usize, usize> {
        let slots = self.slots_expecting(expected);
        let target = SearchKey::new(key);
        let above = upper_bound_near(slots, target, near)
            .unwrap_or_else(|| upper_bound_expecting(slots, key, expected));
        found(slots, key, above)
    }

    /// As [`Page::child_index`], quicker with what is known of the page.
    #[inline]
    pub(super) fn child_index_expecting(&self, key: &Key, expected: &Expected) -> usize {
        let slots = self.slots_expecting(expected);
        upper_bound_expecting(slots, key, expected).saturating_sub(1)
    }

    /// The slot of an inner page whose child's range holds `key`. 0 in a page without items.
    #[inline]
    #[must_use]
    pub fn child_index(&self, key: &Key) -> usize {
        upper_bound(self.slots(), SearchKey::new(key)).saturating_sub(1)
    }

    /// Whether an item with a value of `value_len` bytes can be added.
    #[must_use]
    pub fn fits(&self, value_len: usize) -> bool {
        self.used_bytes() + item_bytes(value_len) <= CAPACITY_BYTES
    }

    /// Adds an item at slot `index`, where [`Page::search`] said. False, and nothing changed, if
    /// it does not fit.
    #[must_use]
    pub fn insert(&mut self, index: usize, key: &Key, value: &[u8]) -> bool {
        let count = self.count();
        if index > count || value.len() > VALUE_LEN_MAX || !self.fits(value.len()) {
            return false;
        }
        let offset = self.push_value(value, SLOT_BYTES);
        let at = HEADER_BYTES + index * SLOT_BYTES;
        let end = HEADER_BYTES + count * SLOT_BYTES;
        self.bytes.copy_within(at..end, at + SLOT_BYTES);
        self.set_count(count + 1);
        let slot = &mut self.slots_mut()[index];
        slot[..Key::LEN].copy_from_slice(&key.to_bytes());
        set_slot_value(slot, offset, value.len());
        true
    }

    /// Replaces the value of slot `index`. False, and nothing changed, if it does not fit.
    #[must_use]
    pub fn replace(&mut self, index: usize, value: &[u8]) -> bool {
        let (offset, len) = slot_value(&self.slots()[index]);
        if value.len() <= len {
            self.bytes[offset..offset + value.len()].copy_from_slice(value);
            set_slot_value(&mut self.slots_mut()[index], offset, value.len());
            self.set_dead(self.dead() + len - value.len());
            return true;
        }
        if value.len() > VALUE_LEN_MAX || self.used_bytes() - len + value.len() > CAPACITY_BYTES {
            return false;
        }
        self.drop_value(offset, len);
        set_slot_value(&mut self.slots_mut()[index], PAGE_SIZE, 0);
        let offset = self.push_value(value, 0);
        set_slot_value(&mut self.slots_mut()[index], offset, value.len());
        true
    }

    /// Removes the item of slot `index`.
    pub fn remove(&mut self, index: usize) {
        let (offset, len) = slot_value(&self.slots()[index]);
        self.drop_value(offset, len);
        let at = HEADER_BYTES + index * SLOT_BYTES;
        let end = self.slots_end();
        self.bytes.copy_within(at + SLOT_BYTES..end, at);
        let count = self.count() - 1;
        self.set_count(count);
        if count == 0 {
            self.set_heap_start(PAGE_SIZE);
            self.set_dead(0);
            self.set_hole(0, 0);
        }
    }

    /// Gives slot `index` another key. The caller keeps the order.
    pub fn set_key(&mut self, index: usize, key: &Key) {
        self.slots_mut()[index][..Key::LEN].copy_from_slice(&key.to_bytes());
    }

    /// Moves the values together, so that all free bytes lie between slots and heap.
    fn pack(&mut self) {
        let old = self.clone();
        old.pack_into(&mut self.bytes);
    }

    /// Writes header, slots and values, packed, and leaves the bytes between them as they are.
    fn pack_into(&self, out: &mut [u8; PAGE_SIZE]) {
        let slots_end = self.slots_end();
        let (head, heap) = out.split_at_mut(slots_end);
        head.copy_from_slice(&self.bytes[..slots_end]);
        let (slots, _) = head[HEADER_BYTES..].as_chunks_mut();
        let mut to = heap.len();
        for slot in slots {
            let (offset, len) = slot_value(slot);
            to -= len;
            heap[to..to + len].copy_from_slice(&self.bytes[offset..offset + len]);
            set_slot_value(slot, slots_end + to, len);
        }
        out[4..6].copy_from_slice(&((slots_end + to) as u16).to_le_bytes());
        out[6..8].fill(0);
        out[HOLE..HEADER_BYTES].fill(0);
    }

    /// Puts a value into the heap, where another one was or else at its low end, and leaves so many bytes for slots. The page has room for
    /// both; it is packed if they are not together.
    fn push_value(&mut self, value: &[u8], slot_bytes: usize) -> usize {
        let len = value.len();
        let fits_hole = self.hole().1 >= len;
        let of_gap = slot_bytes + if fits_hole { 0 } else { len };
        let packs = self.slots_end() + of_gap > self.heap_start();
        if packs {
            self.pack();
        }
        let offset = if fits_hole && !packs {
            let (offset, hole_len) = self.hole();
            self.set_hole(offset + len, hole_len - len);
            self.set_dead(self.dead() - len);
            offset
        } else {
            let offset = self.heap_start() - len;
            self.set_heap_start(offset);
            offset
        };
        self.bytes[offset..offset + len].copy_from_slice(value);
        offset
    }

    fn drop_value(&mut self, offset: usize, len: usize) {
        if offset == self.heap_start() {
            self.set_heap_start(offset + len);
            return;
        }
        self.set_dead(self.dead() + len);
        if len > self.hole().1 {
            self.set_hole(offset, len);
        }
    }

    #[inline]
    fn slots(&self) -> &[[u8; SLOT_BYTES]] {
        let (slots, _) = self.bytes[HEADER_BYTES..].as_chunks();
        &slots[..self.count()]
    }

    /// The slots, their count not taken from the page, which need not have come from memory yet.
    #[inline]
    fn slots_expecting(&self, expected: &Expected) -> &[[u8; SLOT_BYTES]] {
        debug_assert_eq!(expected.count, self.count());
        let (slots, _) = self.bytes[HEADER_BYTES..].as_chunks();
        &slots[..expected.count]
    }

    fn slots_mut(&mut self) -> &mut [[u8; SLOT_BYTES]] {
        let count = self.count();
        let (slots, _) = self.bytes[HEADER_BYTES..].as_chunks_mut();
        &mut slots[..count]
    }

    fn slots_end(&self) -> usize {
        HEADER_BYTES + self.count() * SLOT_BYTES
    }

    #[inline]
    fn heap_start(&self) -> usize {
        self.u16_at(4)
    }

    #[inline]
    fn dead(&self) -> usize {
        self.u16_at(6)
    }

    /// Offset and length of a part of the heap that no slot uses.
    #[inline]
    fn hole(&self) -> (usize, usize) {
        (self.u16_at(HOLE), self.u16_at(HOLE + 2))
    }

    fn set_hole(&mut self, offset: usize, len: usize) {
        self.set_u16(HOLE, offset);
        self.set_u16(HOLE + 2, len);
    }

    fn set_count(&mut self, count: usize) {
        self.set_u16(2, count);
    }

    fn set_heap_start(&mut self, offset: usize) {
        self.set_u16(4, offset);
    }

    fn set_dead(&mut self, bytes: usize) {
        self.set_u16(6, bytes);
    }

    #[inline]
    fn u16_at(&self, at: usize) -> usize {
        usize::from(u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]))
    }

    #[inline]
    fn u64_at(&self, at: usize) -> u64 {
        self.bytes[at..]
            .first_chunk()
            .map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    fn set_u16(&mut self, at: usize, value: usize) {
        // Counts and offsets are at most PAGE_SIZE, which a u16 holds.
        self.bytes[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
    }
}

/// Whether the last of the `above` slots that are not above `key` is the key's own.
#[inline]
fn found(slots: &[[u8; SLOT_BYTES]], key: &Key, above: usize) -> Result<usize, usize> {
    match above.checked_sub(1).and_then(|last| slots.get(last)) {
        Some(slot) if slot_key(slot) == *key => Ok(above - 1),
        _ => Err(above),
    }
}

#[inline]
fn slot_key(slot: &[u8; SLOT_BYTES]) -> Key {
    let (key, _) = slot.split_first_chunk().unwrap_or((&[0; Key::LEN], &[]));
    Key::from_bytes(key)
}

#[inline]
fn slot_value(slot: &[u8; SLOT_BYTES]) -> (usize, usize) {
    (
        usize::from(u16::from_le_bytes([slot[21], slot[22]])),
        usize::from(u16::from_le_bytes([slot[23], slot[24]])),
    )
}

fn set_slot_value(slot: &mut [u8; SLOT_BYTES], offset: usize, len: usize) {
    slot[21..23].copy_from_slice(&(offset as u16).to_le_bytes());
    slot[23..25].copy_from_slice(&(len as u16).to_le_bytes());
}

#[cfg(test)]
mod tests;
