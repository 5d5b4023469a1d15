//! Dividing a page in two, and joining two pages.

use persimmon_format::Key;

use super::{CAPACITY_BYTES, Page, item_bytes, slot_key, slot_value};

impl Page {
    /// Divides a page that has no room for an item with `key` and `value` at slot `index`, adds
    /// the item to the half it belongs to, and returns the lower bound of `right`, an empty page
    /// of the same level that takes the upper half.
    pub fn split_insert(&mut self, right: &mut Page, index: usize, key: &Key, value: &[u8]) -> Key {
        let left_items = self.split_point(index, key, item_bytes(value.len()));
        let (keep, into_left) = if index < left_items {
            (left_items - 1, true)
        } else {
            (left_items, false)
        };
        self.move_tail(keep, right);
        let fitted = if into_left {
            self.insert(index, key, value)
        } else {
            right.insert(index - keep, key, value)
        };
        debug_assert!(fitted, "a page divided in two has room for one item");
        right.key(0)
    }

    /// How many items, the new one counted, stay in the left page.
    ///
    /// In the middle by bytes, unless the new item continues a run of keys: at the end of the page
    /// the left page stays as it is, so that pages filled in order are full; where a file's or
    /// directory's items end in the second half of the page, what follows them moves away, and the
    /// run goes on filling this page.
    fn split_point(&self, index: usize, key: &Key, new_bytes: usize) -> usize {
        let slots = self.slots();
        if index >= slots.len() {
            return slots.len();
        }
        let total = self.used_bytes() + new_bytes;
        let left_bytes = |items: usize| -> usize {
            slots
                .iter()
                .take(items)
                .map(|slot| item_bytes(slot_value(slot).1))
                .sum()
        };
        let run = |slot: Option<&[u8; super::SLOT_BYTES]>| {
            slot.map(slot_key)
                .is_some_and(|other| (other.ino, other.kind) == (key.ino, key.kind))
        };
        if run(index.checked_sub(1).and_then(|before| slots.get(before))) && !run(slots.get(index))
        {
            let left = left_bytes(index) + new_bytes;
            if left >= total / 2 && left <= CAPACITY_BYTES {
                return index + 1;
            }
        }
        let mut left = 0;
        for item in 0..slots.len() {
            left += match item.cmp(&index) {
                std::cmp::Ordering::Less => item_bytes(slot_value(&slots[item]).1),
                std::cmp::Ordering::Equal => new_bytes,
                std::cmp::Ordering::Greater => item_bytes(slot_value(&slots[item - 1]).1),
            };
            if left * 2 >= total {
                return item + 1;
            }
        }
        slots.len()
    }

    /// Moves the items from slot `from` on to the end of `right`.
    fn move_tail(&mut self, from: usize, right: &mut Page) {
        for index in from..self.count() {
            let fitted = right.insert(right.count(), &self.key(index), self.value(index));
            debug_assert!(fitted, "the tail of a page fits an empty page");
        }
        if from < self.count() {
            self.set_count(from);
            self.pack();
        }
    }

    /// Adds all items of `right`, whose keys are above this page's and which fit.
    pub fn append(&mut self, right: &Page) {
        for index in 0..right.count() {
            let fitted = self.insert(self.count(), &right.key(index), right.value(index));
            debug_assert!(fitted, "the caller compared the sizes");
        }
    }
}
