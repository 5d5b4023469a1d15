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
use crate::meta::page::Expected;

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

struct Fingers {
    list: RefCell<[Option<Finger>; FINGERS]>,
    /// The one that was used or made last.
    newest: Cell<usize>,
}

thread_local! {
    static FINGERS_HERE: Fingers = const {
        Fingers {
            list: RefCell::new([None; FINGERS]),
            newest: Cell::new(0),
        }
    };
}

/// The leaf that `key` belongs into, if that is known.
#[inline]
pub(super) fn find<'a>(cache: &'a PageCache, root: PageId, key: &Key) -> Option<Node<'a>> {
    let shape = cache.shape();
    let finger = FINGERS_HERE.with(|fingers| {
        let list = fingers.list.borrow();
        let leads = |finger: &Finger| {
            finger.shape == shape
                && finger.root == root
                && *key >= finger.lower
                && finger.upper.is_none_or(|upper| *key < upper)
        };
        let newest = fingers.newest.get();
        let from_newest = (newest..FINGERS).chain(0..newest);
        let mut at = from_newest.filter(|at| list[*at].as_ref().is_some_and(leads));
        let at = at.next()?;
        fingers.newest.set(at);
        list[at]
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
        fingers.newest.set(at);
    });
}
