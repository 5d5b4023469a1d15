//! Reading and changing the tree from above: views, and transactions that collect the operations
//! of one redo record.

use std::cell::Cell;
use std::ops::{Bound, ControlFlow, Deref, Range};

use persimmon_format::extent::Extent;
use persimmon_format::inode::Inode;
use persimmon_format::record::{Op, Touch};
use persimmon_format::{Ino, Key, KeyKind, PageId, SubvolumeId, VersionId, VolumeKey};

use super::apply::decode_inode;
use super::extents::{self, MappedExtent};
use super::versions::Edit;
use super::{Meta, tree};
use crate::error::{Error, Result};

/// Stored items that are looked at under one lock, where many of them may show nothing: there are as many as snapshots hold.
const STORED_AT_ONCE: usize = 4096;

/// A place among the items of an inode.
pub(crate) type Place = (KeyKind, u64);

/// Extents of a file, each with its first block, and where the next look begins.
pub type ExtentLook = (Vec<(u64, Extent)>, Option<u64>);

/// What a transaction does to the space in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// It may add: refused on a full volume.
    Grow,
    /// It frees, or adds next to nothing while freeing: never refused.
    Shrink,
}

/// The metadata as of one moment. A page that is not in memory makes every call answer
/// [`Error::PageMissing`]; pass it on, the closure is run again when the page is there.
pub struct View<'a> {
    meta: &'a Meta,
    key: &'a VolumeKey,
    missing: Cell<Option<PageId>>,
}

impl<'a> View<'a> {
    pub(crate) fn new(meta: &'a Meta, key: &'a VolumeKey) -> View<'a> {
        View {
            meta,
            key,
            missing: Cell::new(None),
        }
    }

    pub(crate) fn missing(&self) -> Option<PageId> {
        self.missing.get()
    }

    /// Remembers the page that a call missed.
    fn note<T>(&self, result: Result<T, impl Into<Error>>) -> Result<T> {
        result.map_err(|error| {
            let error = error.into();
            if let Error::PageMissing(page) = error {
                self.missing.set(Some(page));
            }
            error
        })
    }

    /// Whether the sectors of inodes count what extended attributes take.
    #[must_use]
    pub fn counts_xattrs(&self) -> bool {
        self.meta.counts_xattrs
    }

    /// The volume's key, for hashes of names.
    #[must_use]
    pub fn key(&self) -> &'a VolumeKey {
        self.key
    }

    /// The number of the next inode. None had it before.
    #[must_use]
    pub fn next_ino(&self) -> Ino {
        Ino(self.meta.numbers.next())
    }

    /// The value of a key.
    pub fn get(&self, key: &Key) -> Result<Option<&'a [u8]>> {
        self.note(self.meta.get(key))
    }

    /// An inode as it is in the history: what is staged of a file is not in it.
    pub fn inode(&self, ino: Ino) -> Result<Option<Inode>> {
        self.get(&Key::inode(ino))?
            .map(|bytes| decode_inode(ino, bytes))
            .transpose()
    }

    /// Calls `visit` with the items of a range, in order, until it breaks. The range ends where no more is wanted: behind it there may be very
    /// many items that hide others, and show nothing.
    pub fn scan(
        &self,
        keys: Range<Key>,
        visit: impl FnMut(Key, &'a [u8]) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let keys = (Bound::Included(keys.start), Bound::Excluded(keys.end));
        self.scan_at_most(keys, usize::MAX, &Cell::default(), visit)
            .map(drop)
    }

    /// The same, over a bounded number of stored items: behind names that were removed while a snapshot has them there may be very many that show
    /// nothing. Returns where to go on, if there may be more.
    pub fn scan_some(
        &self,
        keys: Range<Key>,
        visit: impl FnMut(Key, &'a [u8]) -> Result<ControlFlow<()>>,
    ) -> Result<Option<Key>> {
        let keys = (Bound::Included(keys.start), Bound::Excluded(keys.end));
        self.scan_at_most(keys, STORED_AT_ONCE, &Cell::default(), visit)
    }

    /// [`View::scan_some`] with any bounds. `reached` becomes the last key that it came to, so that a scan which ends at a missing page can go
    /// on there: all items before that key have been visited, or are hidden. It stays `None` on a volume that never had a snapshot, where
    /// nothing is hidden.
    pub(crate) fn scan_some_from(
        &self,
        keys: (Bound<Key>, Bound<Key>),
        reached: &Cell<Option<Key>>,
        visit: impl FnMut(Key, &'a [u8]) -> Result<ControlFlow<()>>,
    ) -> Result<Option<Key>> {
        self.scan_at_most(keys, STORED_AT_ONCE, reached, visit)
    }

    fn scan_at_most(
        &self,
        (from, to): (Bound<Key>, Bound<Key>),
        stored_max: usize,
        reached: &Cell<Option<Key>>,
        mut visit: impl FnMut(Key, &'a [u8]) -> Result<ControlFlow<()>>,
    ) -> Result<Option<Key>> {
        if self.meta.versions.is_plain() {
            return self.scan_stored((from, to), visit).map(|()| None);
        }
        let (Bound::Included(first) | Bound::Excluded(first)) = from else {
            let first = Key::new(Key::GLOBAL, KeyKind(0), 0);
            let from = Bound::Included(first);
            return self.scan_at_most((from, to), stored_max, reached, visit);
        };
        let subvolume = first.ino.subvolume();
        let scope = self.find(|meta| meta.versions.scope(subvolume))?;
        let stored = |key: Key, version| Key {
            ino: key.ino.plain(),
            ..key.at(version)
        };
        let from = match from {
            Bound::Excluded(key) => Bound::Excluded(stored(key, VersionId(u32::MAX))),
            _ => Bound::Included(stored(first, VersionId(0))),
        };
        let is_within = |key: &Key| key.ino.subvolume() == subvolume;
        let to = match to {
            Bound::Excluded(key) if is_within(&key) => Bound::Excluded(stored(key, VersionId(0))),
            Bound::Included(key) if is_within(&key) => {
                Bound::Included(stored(key, VersionId(u32::MAX)))
            }
            _ => Bound::Unbounded,
        };
        // Of the items at one place the last one that is shown.
        let mut shown: Option<(Key, &'a [u8])> = None;
        let visit = &mut visit;
        let mut show = |item: Option<(Key, &'a [u8])>| match item {
            Some((key, value)) if !key.is_whiteout(value) => {
                let ino = key.ino.of(subvolume);
                visit(
                    Key {
                        ino,
                        ..key.at(VersionId(0))
                    },
                    value,
                )
            }
            _ => Ok(ControlFlow::Continue(())),
        };
        let mut ended = false;
        let (mut stored, mut place, mut next) = (0, None, None);
        self.scan_stored((from, to), |key, value| {
            // What belongs to no subvolume is behind all inodes.
            if key.ino != key.ino.plain() {
                return Ok(ControlFlow::Break(()));
            }
            // All items of a place are looked at together.
            stored += 1;
            let here = key.at(VersionId(0));
            let is_next = place.replace(here) != Some(here);
            let ino = key.ino.of(subvolume);
            if is_next && stored > stored_max {
                next = Some(Key { ino, ..here });
                return Ok(ControlFlow::Break(()));
            }
            let same = shown.is_some_and(|(before, _)| before.at(key.version) == key);
            if !same && show(shown.take())?.is_break() {
                ended = true;
                return Ok(ControlFlow::Break(()));
            }
            if is_next {
                reached.set(Some(Key { ino, ..here }));
            }
            let is_shown = match key.is_unversioned() {
                true => subvolume == SubvolumeId::MAIN,
                false => scope.shows(key.version),
            };
            if is_shown {
                shown = Some((key, value));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if !ended && show(shown)?.is_break() {
            ended = true;
        }
        Ok(next.filter(|_| !ended))
    }

    /// The same of the items of all versions, under the keys that they have.
    pub(crate) fn scan_stored(
        &self,
        keys: (Bound<Key>, Bound<Key>),
        mut visit: impl FnMut(Key, &'a [u8]) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        for item in tree::range(&self.meta.cache, self.meta.root, keys) {
            let (key, value) = self.note(item)?;
            if visit(key, value)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Keys of an inode from a place on, of some kinds but extents, under which the subvolume owns an item that is no whiteout: at
    /// most `limit` of them. With the place to go on at, if there may be more.
    pub(crate) fn owned_items(
        &self,
        ino: Ino,
        (kind, item): Place,
        is_wanted: impl Fn(KeyKind) -> bool,
        limit: usize,
    ) -> Result<(Vec<Key>, Option<Place>)> {
        let at = self.find(|meta| meta.versions.at(ino))?;
        let mut keys: Vec<Key> = Vec::new();
        let (mut stored, mut before, mut next) = (0, None, None);
        let first = Bound::Included(Key::new(at.ino, kind, item));
        // Extents, which may be many, are behind all others.
        let end = Bound::Excluded(Key::new(at.ino, KeyKind::EXTENT, 0));
        self.scan_stored((first, end), |key, value| {
            let place = Key::new(ino, key.kind, key.item);
            stored += 1;
            // A version that absorbed another may own several items at a place.
            let is_over = keys.len() >= limit || stored > STORED_AT_ONCE;
            if before.replace(place) != Some(place) && is_over {
                next = Some((key.kind, key.item));
                return Ok(ControlFlow::Break(()));
            }
            let is_owned = at.scope.owns(key.version) && !key.is_whiteout(value);
            if is_owned && is_wanted(key.kind) && keys.last() != Some(&place) {
                keys.push(place);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((keys, next))
    }

    pub(crate) fn extents(
        &self,
        ino: Ino,
        from: u64,
        to: u64,
        limit: usize,
    ) -> Result<Vec<MappedExtent>> {
        self.find(|meta| extents::overlapping(meta, ino, from, to, limit))
    }

    /// Some extents of the file blocks `from..to`, in order, and where the next look begins if there may be more. The deltas of a file are
    /// extents behind its last block.
    pub fn some_extents(
        &self,
        ino: Ino,
        (from, to): (u64, u64),
        limit: usize,
    ) -> Result<ExtentLook> {
        let (shown, next) = self.find(|meta| extents::some_shown(meta, ino, from, to, limit))?;
        let extents = shown.into_iter();
        let extents = extents.map(|mapped| (mapped.block, mapped.extent));
        Ok((extents.collect(), next))
    }

    /// Runs `f` on the metadata and notes the page it misses.
    pub(crate) fn find<T>(&self, f: impl FnOnce(&'a Meta) -> Result<T>) -> Result<T> {
        self.note(f(self.meta))
    }
}

/// A transaction: reads see what it has put and deleted itself (scans do not); nothing happens
/// before the closure that builds it returns.
pub struct Transaction<'a> {
    view: View<'a>,
    ops: Vec<Op>,
    /// Of them, those that share blocks.
    shares: usize,
    next_ino: u64,
}

impl<'a> Deref for Transaction<'a> {
    type Target = View<'a>;
    fn deref(&self) -> &View<'a> {
        &self.view
    }
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(meta: &'a Meta, key: &'a VolumeKey) -> Transaction<'a> {
        Transaction {
            view: View::new(meta, key),
            ops: Vec::new(),
            shares: 0,
            next_ino: meta.numbers.next(),
        }
    }

    pub(crate) fn into_parts(self) -> (Vec<Op>, Option<PageId>) {
        (self.ops, self.view.missing.get())
    }

    /// Operations so far.
    pub(crate) fn len(&self) -> usize {
        self.ops.len()
    }

    /// Changes of the tree so far, where each record of shared blocks stands for `a_share` of them.
    pub(crate) fn weight(&self, a_share: usize) -> usize {
        self.ops.len() - self.shares + self.shares * a_share
    }

    /// The value of a key, as this transaction leaves it so far.
    pub fn get(&self, key: &Key) -> Result<Option<&[u8]>> {
        for op in self.ops.iter().rev() {
            match op {
                Op::Put { key: put, value } if put == key => return Ok(Some(value)),
                Op::Delete { key: deleted } if deleted == key => return Ok(None),
                _ => {}
            }
        }
        self.view.get(key)
    }

    /// An inode, as this transaction leaves it so far.
    pub fn inode(&self, ino: Ino) -> Result<Option<Inode>> {
        self.get(&Key::inode(ino))?
            .map(|bytes| decode_inode(ino, bytes))
            .transpose()
    }

    /// Inserts or replaces an item.
    pub fn put(&mut self, key: Key, value: Vec<u8>) {
        if key.kind == KeyKind::INODE {
            self.next_ino = self.next_ino.max(key.ino.plain().0 + 1);
        }
        self.ops.push(Op::Put { key, value });
    }

    /// Puts what an edited table of versions has other than the one that is there.
    pub(crate) fn put_versions(&mut self, edit: &Edit) -> Result<()> {
        for (key, value) in self.find(|meta| Ok(meta.versions.differences(edit)))? {
            match value {
                Some(value) => self.put(key, value),
                None => self.delete(key),
            }
        }
        Ok(())
    }

    /// Inserts or replaces an inode.
    pub fn put_inode(&mut self, ino: Ino, inode: &Inode) {
        self.put(Key::inode(ino), inode.encode());
    }

    /// Removes an item.
    pub fn delete(&mut self, key: Key) {
        self.ops.push(Op::Delete { key });
    }

    /// Inodes made by the transaction have numbers below this.
    pub(crate) fn next_ino(&self) -> u64 {
        self.next_ino
    }

    /// The number that [`Transaction::new_ino`] would give, which is taken once the transaction puts an inode with it.
    pub(crate) fn next_new_ino(&self) -> Ino {
        Ino(self.next_ino)
    }

    /// A number for a new inode, which the transaction must put. No inode ever had it, nor will
    /// another have it.
    pub fn new_ino(&mut self) -> Ino {
        let ino = Ino(self.next_ino);
        self.next_ino += 1;
        ino
    }

    pub(crate) fn touch(&mut self, ino: Ino, set: Touch) {
        self.ops.push(Op::Touch { ino, set });
    }

    pub(crate) fn push(&mut self, op: Op) {
        self.shares += usize::from(matches!(op, Op::Share(_)));
        self.ops.push(op);
    }
}
