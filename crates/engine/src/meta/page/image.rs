//! Pages as images: written packed, checked when read.

use std::ops::Range;

use persimmon_format::PageId;
use persimmon_format::page::{PAGE_SIZE, VALUE_LEN_MAX};
use thiserror::Error;

use super::{CHILD_BYTES, HEADER_BYTES, LEVEL_MAX, Page, SLOT_BYTES, slot_key, slot_value};

const SEQUENCE: Range<usize> = 16..24;

/// Why an image is not a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PageError {
    /// Not [`PAGE_SIZE`] bytes.
    #[error("a page has {PAGE_SIZE} bytes, not {0}")]
    Size(usize),
    /// Another page than the one asked for.
    #[error("page {found} where page {expected} should be")]
    Id {
        /// Asked for.
        expected: PageId,
        /// In the image.
        found: PageId,
    },
    /// Unknown flags, or a reserved byte that is not zero.
    #[error("reserved bytes of the page header are in use")]
    Reserved,
    /// Higher than a tree grows.
    #[error("level {0} is higher than a tree grows")]
    Level(u8),
    /// More items than fit, or none in an inner page.
    #[error("a page cannot hold {0} items")]
    Count(usize),
    /// Keys not in strictly ascending order.
    #[error("slot {0} is out of order")]
    Order(usize),
    /// A value that is too long, of the wrong length for a child, or not at its place.
    #[error("the value of slot {0} is not at its place")]
    Value(usize),
    /// Heap start or dead bytes do not agree with the values.
    #[error("the heap does not agree with the slots")]
    Heap,
}

impl Page {
    /// Checks an image wholly and takes it over: no later call on the page can fail on its bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn validate(image: &[u8]) -> Result<Page, PageError> {
        let bytes: &[u8; PAGE_SIZE] = image.try_into().map_err(|_| PageError::Size(image.len()))?;
        let page = Page { bytes: *bytes };
        page.check()?;
        Ok(page)
    }

    /// [`Page::validate`] for the image of a certain page.
    ///
    /// # Errors
    /// Also if it is another page's image.
    pub fn validate_as(image: &[u8], id: PageId) -> Result<Page, PageError> {
        let page = Page::validate(image)?;
        if page.id() != id {
            return Err(PageError::Id {
                expected: id,
                found: page.id(),
            });
        }
        Ok(page)
    }

    /// Writes the packed image of the page, stamped with `sequence`.
    pub fn write_image(&self, sequence: u64, image: &mut [u8; PAGE_SIZE]) {
        self.pack_into(image);
        image[SEQUENCE].copy_from_slice(&sequence.to_le_bytes());
        let used = self.used_bytes() - self.count() * SLOT_BYTES;
        image[self.slots_end()..PAGE_SIZE - used].fill(0);
    }

    /// Checks that the page is well formed and packed.
    fn check(&self) -> Result<(), PageError> {
        if self.bytes[1] != 0 || self.bytes[SEQUENCE.end..HEADER_BYTES] != [0; 8] {
            return Err(PageError::Reserved);
        }
        let inner = self.level() > 0;
        if self.level() > LEVEL_MAX {
            return Err(PageError::Level(self.level()));
        }
        let count = self.count();
        if HEADER_BYTES + count * SLOT_BYTES > PAGE_SIZE || (inner && count == 0) {
            return Err(PageError::Count(count));
        }
        let mut heap = PAGE_SIZE;
        let mut previous = None;
        for (index, slot) in self.slots().iter().enumerate() {
            let key = slot_key(slot);
            if previous.is_some_and(|previous| previous >= key) {
                return Err(PageError::Order(index));
            }
            previous = Some(key);
            let (offset, len) = slot_value(slot);
            if len > VALUE_LEN_MAX || (inner && len != CHILD_BYTES) || len > heap {
                return Err(PageError::Value(index));
            }
            heap -= len;
            if offset != heap || heap < self.slots_end() {
                return Err(PageError::Value(index));
            }
        }
        if self.heap_start() != heap || self.dead() != 0 {
            return Err(PageError::Heap);
        }
        Ok(())
    }
}
