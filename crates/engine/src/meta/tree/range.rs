//! Reading in key order.

use std::ops::{Bound, RangeBounds};

use persimmon_format::{Key, PageId};

use super::cursor::Cursor;
use super::{KEY_MIN, TreeError};
use crate::meta::cache::PageCache;

/// The last item whose key is not above `key`.
///
/// # Errors
/// A page on the way is missing or damaged.
pub fn floor<'a>(
    cache: &'a PageCache,
    root: PageId,
    key: &Key,
) -> Result<Option<(Key, &'a [u8])>, TreeError> {
    let (cursor, index) = floor_at(cache, root, key)?;
    let leaf = cursor.leaf();
    Ok(index.map(|index| (leaf.key(index), leaf.value(index))))
}

/// The leaf that has the last item whose key is not above `key`, and where in it; or the first leaf, if there is none.
fn floor_at<'a>(
    cache: &'a PageCache,
    root: PageId,
    key: &Key,
) -> Result<(Cursor<'a>, Option<usize>), TreeError> {
    let (mut cursor, place) = Cursor::seek(cache, root, key)?;
    let mut items = match place {
        Ok(index) => index + 1,
        Err(index) => index,
    };
    while items == 0 {
        if !cursor.back()? {
            return Ok((cursor, None));
        }
        items = cursor.leaf().count();
    }
    Ok((cursor, Some(items - 1)))
}

/// The items with keys in `keys`, in order. Pages are looked at as the iteration comes to them:
/// the first that is missing or damaged is returned as an error, after which the iteration is over.
pub fn range(cache: &PageCache, root: PageId, keys: impl RangeBounds<Key>) -> Range<'_> {
    let state = RangeState::Before(root, keys.start_bound().cloned());
    Range {
        cache,
        state,
        end: keys.end_bound().cloned(),
    }
}

/// The items from `start` on with keys below `end`, and before them the last one below `start`, if `start` itself is not there: what
/// [`floor`] and [`range`] find, in one search.
pub fn range_from_floor(cache: &PageCache, root: PageId, start: Key, end: Key) -> Range<'_> {
    Range {
        cache,
        state: RangeState::BeforeFloor(root, start),
        end: Bound::Excluded(end),
    }
}

/// Iterator of [`range`] and [`range_from_floor`].
pub struct Range<'a> {
    cache: &'a PageCache,
    state: RangeState<'a>,
    end: Bound<Key>,
}

enum RangeState<'a> {
    Before(PageId, Bound<Key>),
    BeforeFloor(PageId, Key),
    /// The next item is at this index of the cursor's leaf, or in the leaves after it.
    At(Cursor<'a>, usize),
    Over,
}

impl<'a> Range<'a> {
    fn try_next(&mut self) -> Result<Option<(Key, &'a [u8])>, TreeError> {
        match self.state {
            RangeState::Before(root, start) => self.state = start_at(self.cache, root, start)?,
            RangeState::BeforeFloor(root, start) => {
                let (cursor, index) = floor_at(self.cache, root, &start)?;
                self.state = RangeState::At(cursor, index.unwrap_or(0));
            }
            RangeState::At(..) | RangeState::Over => {}
        }
        let RangeState::At(cursor, index) = &mut self.state else {
            return Ok(None);
        };
        let is_inside = |key: &Key| match &self.end {
            Bound::Included(end) => key <= end,
            Bound::Excluded(end) => key < end,
            Bound::Unbounded => true,
        };
        while *index >= cursor.leaf().count() {
            // What is behind the end needs no look, for which a page may have to be read.
            let ends_here = cursor.upper().is_none_or(|upper| !is_inside(upper));
            if ends_here || !cursor.forward()? {
                return Ok(None);
            }
            *index = 0;
        }
        let leaf = cursor.leaf();
        let key = leaf.key(*index);
        let inside = is_inside(&key);
        let item = inside.then(|| (key, leaf.value(*index)));
        *index += 1;
        Ok(item)
    }
}

fn start_at(
    cache: &PageCache,
    root: PageId,
    start: Bound<Key>,
) -> Result<RangeState<'_>, TreeError> {
    let (key, skip) = match start {
        Bound::Included(key) => (key, 0),
        Bound::Excluded(key) => (key, 1),
        Bound::Unbounded => (KEY_MIN, 0),
    };
    let (cursor, place) = Cursor::seek(cache, root, &key)?;
    let index = match place {
        Ok(index) => index + skip,
        Err(index) => index,
    };
    Ok(RangeState::At(cursor, index))
}

impl<'a> Iterator for Range<'a> {
    type Item = Result<(Key, &'a [u8]), TreeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.try_next().transpose();
        if !matches!(item, Some(Ok(_))) {
            self.state = RangeState::Over;
        }
        item
    }
}
