//! Fingers: the leaves that the searches of a thread ended at lately.
//!
//! One operation searches near where the one before it did: the names of a directory, an inode, its extents. A finger names a leaf and the keys
//! whose place is there, so that the search for such a key need not come down from the root. It holds as long as the cache has the
//! [shape](PageCache::shape) that it had: no page came into memory or left it, and no inner page changed. So the pages above the leaf are in
//! memory and say what they said then.

use std::cell::{Cell, RefCell};

use persimmon_format::{Key, PageId};

use super::node::Node;
use crate::meta::cache::PageCache;
use crate::meta::page::{Expected, SearchKey};

/// An operation works at some four places: the names of a directory, its inode, the file, and what is shared.
const FINGERS: usize = 8;

#[derive(Clone, Copy)]
struct Finger {
    shape: u64,
    root: PageId,
    leaf: PageId,
    lower: Key,
    upper: Option<Key>,
}

impl Finger {
    #[inline]
    fn holds(&self, target: SearchKey) -> bool {
        target.reaches(&self.lower) && self.upper.is_none_or(|upper| !target.reaches(&upper))
    }
}

struct Fingers {
    list: RefCell<[Option<Finger>; FINGERS]>,
    /// The one that was used or made last.
    newest: Cell<usize>,
    /// For each finger, where in its leaf the last search ended. Items may have been inserted or removed since.
    places: [Cell<usize>; FINGERS],
}

thread_local! {
    static FINGERS_HERE: Fingers = const {
        Fingers {
            list: RefCell::new([None; FINGERS]),
            newest: Cell::new(0),
            places: [const { Cell::new(0) }; FINGERS],
        }
    };
}

/// The leaf that `key` belongs into, if that is known.
#[inline]
pub(super) fn find<'a>(cache: &'a PageCache, root: PageId, key: &Key) -> Option<Node<'a>> {
    let (shape, target) = (cache.shape(), SearchKey::new(key));
    let finger = FINGERS_HERE.with(|fingers| {
        let list = fingers.list.borrow();
        let newest = fingers.newest.get();
        for next in 0..FINGERS {
            let at = (newest + next) % FINGERS;
            let Some(finger) = &list[at] else { continue };
            if finger.shape == shape && finger.root == root && finger.holds(target) {
                fingers.newest.set(at);
                return Some(*finger);
            }
        }
        None
    })?;
    let (page, outline) = cache.get_outlined(finger.leaf).ok()?;
    Some(Node {
        page,
        level: outline.level,
        expected: Expected {
            count: outline.count(),
            lower: finger.lower,
            upper: finger.upper,
        },
    })
}

/// Searches the leaf of the newest finger: where `key` is, or where it would have to be inserted.
#[inline]
pub(super) fn search(leaf: &Node<'_>, key: &Key) -> Result<usize, usize> {
    FINGERS_HERE.with(|fingers| {
        let near = &fingers.places[fingers.newest.get()];
        let place = leaf.search(key, near.get());
        near.set(place.map_or_else(|above| above, |at| at + 1));
        place
    })
}

/// Remembers the leaf that a search came down to.
pub(super) fn keep(cache: &PageCache, root: PageId, leaf: &Node<'_>) {
    let finger = Finger {
        shape: cache.shape(),
        root,
        leaf: leaf.page.id(),
        lower: leaf.expected.lower,
        upper: leaf.expected.upper,
    };
    FINGERS_HERE.with(|fingers| {
        // Not in place of the one used last, which is likely to be used again.
        let at = (fingers.newest.get() + 1) % FINGERS;
        fingers.list.borrow_mut()[at] = Some(finger);
        // The search begins at the last item, which the descent has brought into the processor's cache.
        fingers.places[at].set(usize::MAX);
        fingers.newest.set(at);
    });
}
