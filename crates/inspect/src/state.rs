//! The content of the volume after replay: the checkpoint's tree, and above it what the journal
//! changed. A second, naive implementation of what the engine does to its pages.
//!
//! The tree has items of all versions. A key without a version names a *place*; what is shown at a place depends on the version that
//! one looks at ([`Scope`]).

mod deltas;
mod dictionary;
mod extents;
mod quota;
mod settle;
mod sharing;
mod shown;
#[cfg(test)]
mod tests;
mod versions;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::rc::Rc;

use persimmon_format::inode::Inode;
use persimmon_format::name::{self, DirEntry};
use persimmon_format::page::PageView;
use persimmon_format::quota::QuotaState;
use persimmon_format::record::{Op, Touch};
use persimmon_format::version::WHITEOUT;
use persimmon_format::{FormatError, Ino, Key, KeyKind, PageId, SubvolumeId, VersionId};

use crate::tree::{CheckedTree, Leaf, StoredPage};
use crate::volume::Inspector;
pub(crate) use deltas::Base;
pub(crate) use quota::owners;
pub(crate) use shown::Picker;
pub(crate) use versions::{Scope, Versions, changes_of, is_of_table, subvolume_of, version_of};

/// Pages kept for single look-ups.
const PAGES_KEPT_MAX: usize = 64;

/// A record that cannot be applied.
pub(crate) type Result<T, E = FormatError> = std::result::Result<T, E>;

pub(crate) struct State<'i, 'd> {
    inspector: &'i Inspector<'d>,
    pub tree: CheckedTree,
    overlay: BTreeMap<Key, Option<Vec<u8>>>,
    pages: RefCell<HashMap<PageId, StoredPage>>,
    last_dictionary: RefCell<dictionary::Last>,
    versions: Versions,
    quota: QuotaState,
    /// What owners take more by the record that is applied.
    charges: quota::Charges,
}

/// An inode, without a subvolume, and the version in which it is looked at.
#[derive(Clone, Debug)]
pub(crate) struct At {
    pub ino: Ino,
    pub scope: Rc<Scope>,
}

/// By how much the sectors of inodes grow with a record.
#[derive(Debug, Default)]
struct Grown(BTreeMap<Ino, i64>);

impl Grown {
    fn add(&mut self, ino: Ino, sectors: i64) {
        let sum = self.0.entry(ino).or_default();
        *sum = sum.saturating_add(sectors);
    }
}

impl<'i, 'd> State<'i, 'd> {
    pub(crate) fn new(inspector: &'i Inspector<'d>, tree: CheckedTree) -> State<'i, 'd> {
        let mut state = State {
            inspector,
            tree,
            overlay: BTreeMap::new(),
            pages: RefCell::default(),
            last_dictionary: RefCell::default(),
            versions: Versions::default(),
            quota: QuotaState::default(),
            charges: quota::Charges::default(),
        };
        state.versions = Versions::read(&state);
        state.read_quota();
        state
    }

    /// The table of subvolumes and versions.
    pub(crate) fn versions(&self) -> &Versions {
        &self.versions
    }

    /// The table of versions is lost: of all items at a place the newest is taken for what the main subvolume shows.
    pub(crate) fn take_newest(&mut self) {
        self.versions.take_newest();
    }

    /// What the main subvolume has.
    pub(crate) fn main(&self) -> Rc<Scope> {
        let version = self.versions.of(SubvolumeId::MAIN);
        self.versions.scope(version.unwrap_or_default())
    }

    /// Where an inode is looked at that names its subvolume.
    pub(crate) fn at(&self, ino: Ino) -> Result<At> {
        let (scope, key) = self.place(&Key::extent(ino, 0))?;
        Ok(At {
            ino: key.ino,
            scope,
        })
    }

    /// The place that a key means which names a subvolume, and what the subvolume has.
    pub(crate) fn place(&self, key: &Key) -> Result<(Rc<Scope>, Key)> {
        if key.is_unversioned() {
            return Ok((Rc::new(Scope::only(VersionId(0))), *key));
        }
        let subvolume = key.ino.subvolume();
        let version = self.versions.of(subvolume).ok_or(FormatError::Value {
            what: "record",
            field: "subvolume",
            value: subvolume.0.into(),
        })?;
        let mut place = Key {
            ino: key.ino.plain(),
            ..*key
        };
        if !self.versions.is_plain() {
            place.version = VersionId(0);
        }
        Ok((self.versions.scope(version), place))
    }

    /// The items of all versions at a place, the oldest first.
    pub(crate) fn items_at(&self, place: &Key) -> Vec<(VersionId, Vec<u8>)> {
        let (first, last) = (place.at(VersionId(0)), place.at(VersionId(u32::MAX)));
        let mut found: BTreeMap<VersionId, Vec<u8>> = BTreeMap::new();
        let mut at = self.leaf_of(&first).unwrap_or(0);
        while self
            .tree
            .leaves
            .get(at)
            .is_some_and(|leaf| leaf.low <= last)
        {
            self.with_leaf(at, |leaf, view| {
                let items = leaf.items(view);
                let here = items.filter(|(key, _)| first <= *key && *key <= last);
                found.extend(here.map(|(key, value)| (key.version, value.to_vec())));
            });
            at += 1;
        }
        for (key, value) in self.overlay.range(first..=last) {
            match value {
                Some(value) => drop(found.insert(key.version, value.clone())),
                None => drop(found.remove(&key.version)),
            }
        }
        found.into_iter().collect()
    }

    /// What a version shows at a place, and the number of that item.
    pub(crate) fn shown(&self, scope: &Scope, place: &Key) -> Option<(VersionId, Vec<u8>)> {
        if self.versions.is_plain() {
            let number = VersionId(0);
            return self.get(&place.at(number)).map(|value| (number, value));
        }
        self.newest(place, |number| scope.shows(number))
    }

    /// What the parent of a version shows at a place.
    fn shown_below(&self, scope: &Scope, place: &Key) -> Option<(VersionId, Vec<u8>)> {
        self.newest(place, |number| scope.is_below(number))
    }

    /// The newest of the items at a place that count, unless it says that there is nothing.
    fn newest(
        &self,
        place: &Key,
        counts: impl Fn(VersionId) -> bool,
    ) -> Option<(VersionId, Vec<u8>)> {
        let items = self.items_at(place).into_iter().rev();
        let newest = { items }.find(|(number, _)| counts(*number));
        newest.filter(|(_, value)| !place.is_whiteout(value))
    }

    /// Whether a version shows an inode. What belongs to none is always there.
    fn is_there(&self, scope: &Scope, ino: Ino) -> bool {
        ino == Key::GLOBAL || self.shown(scope, &Key::inode(ino)).is_some()
    }

    /// What a subvolume shows under a key, which names it in its inode.
    pub(crate) fn visible(&self, key: &Key) -> Option<Vec<u8>> {
        let (scope, place) = self.place(key).ok()?;
        self.shown(&scope, &place).map(|(_, value)| value)
    }

    /// The item with exactly this key.
    pub(crate) fn get(&self, key: &Key) -> Option<Vec<u8>> {
        if let Some(changed) = self.overlay.get(key) {
            return changed.clone();
        }
        let leaf = self.leaf_of(key)?;
        self.with_leaf(leaf, |leaf, view| {
            leaf.items(view)
                .find(|(found, _)| found == key)
                .map(|(_, value)| value.to_vec())
        })?
    }

    /// Whether the journal put or deleted the item with exactly this key.
    pub(crate) fn is_changed(&self, key: &Key) -> bool {
        self.overlay.contains_key(key)
    }

    /// An inode as its subvolume shows it.
    pub(crate) fn inode(&self, ino: Ino) -> Option<Inode> {
        self.inode_in(&self.at(ino).ok()?)
    }

    fn inode_in(&self, at: &At) -> Option<Inode> {
        let (_, value) = self.shown(&at.scope, &Key::inode(at.ino))?;
        Inode::decode(&value).ok()
    }

    /// The inode that a name in a directory leads to, both in the directory's subvolume.
    pub(crate) fn lookup(
        &self,
        inspector: &Inspector<'_>,
        directory: Ino,
        name: &[u8],
    ) -> Option<Ino> {
        let first = name::first_item(&inspector.key, name);
        let at = self.at(directory).ok()?;
        let mut found = None;
        let from = Key::new(at.ino, KeyKind::DIR_ENTRY, first);
        let _ = self.scan_shown(&at.scope, from, &mut |key, value| {
            let is_near = key.ino == at.ino
                && key.kind == KeyKind::DIR_ENTRY
                && name::may_have(first, key.item);
            match DirEntry::decode(value) {
                _ if !is_near => return ControlFlow::Break(()),
                Ok(entry) if entry.name == name => found = Some(entry.ino),
                _ => return ControlFlow::Continue(()),
            }
            ControlFlow::Break(())
        });
        found.map(|ino| ino.of(directory.subvolume()))
    }

    /// Hands the items of all versions from `from` on to `visit`, in key order.
    pub(crate) fn scan(
        &self,
        from: Key,
        visit: &mut dyn FnMut(Key, &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut changed = self.overlay.range(from..).peekable();
        let first = self.leaf_of(&from).unwrap_or(0);
        for leaf in self.tree.leaves.iter().skip(first) {
            let Ok(stored) = self.inspector.page(leaf.page) else {
                continue;
            };
            let Ok(view) = PageView::new(&stored.image) else {
                continue;
            };
            for (key, value) in leaf.items(&view).filter(|(key, _)| *key >= from) {
                while let Some((other, value)) = changed.next_if(|(other, _)| **other < key) {
                    if let Some(value) = value {
                        visit(*other, value)?;
                    }
                }
                if let Some((_, value)) = changed.next_if(|(other, _)| **other == key) {
                    if let Some(value) = value {
                        visit(key, value)?;
                    }
                } else {
                    visit(key, value)?;
                }
            }
        }
        for (key, value) in changed {
            if let Some(value) = value {
                visit(*key, value)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// The last item at or before `key`.
    pub(crate) fn floor(&self, key: &Key) -> Option<(Key, Vec<u8>)> {
        let changed = self
            .overlay
            .range(..=*key)
            .rev()
            .find_map(|(key, value)| Some((*key, value.as_ref()?.clone())));
        let last = self.leaf_of(key)?;
        let stored = (0..=last).rev().find_map(|leaf| {
            self.with_leaf(leaf, |leaf, view| {
                leaf.items(view)
                    .rev()
                    .find(|(found, _)| found <= key && !self.overlay.contains_key(found))
                    .map(|(key, value)| (key, value.to_vec()))
            })?
        });
        match (changed, stored) {
            (Some(a), Some(b)) => Some(if a.0 > b.0 { a } else { b }),
            (a, b) => a.or(b),
        }
    }

    /// Applies the record's operations.
    pub(crate) fn apply(&mut self, ops: &[Op]) -> Result<()> {
        let mut grown = Grown::default();
        let result = ops.iter().try_for_each(|op| self.op(op, &mut grown));
        self.grow(&mut grown);
        self.apply_charges();
        result
    }

    fn op(&mut self, op: &Op, grown: &mut Grown) -> Result<()> {
        self.change_deltas(op, grown)?;
        match op {
            Op::Put { key, value } => {
                // The inode that a record puts is as after all that it did before.
                if key.kind == KeyKind::INODE || is_of_table(key) {
                    self.grow(grown);
                }
                self.put(key, value.clone())?;
            }
            Op::Delete { key } => self.delete(key)?,
            Op::Map { ino, block, extent } => {
                let end = block.saturating_add(extent.blocks());
                let more = self.replace(&self.at(*ino)?, (*block, end), Some(extent.clone()))?;
                grown.add(*ino, more);
            }
            Op::Punch { ino, from, to } => {
                let more = self.replace(&self.at(*ino)?, (*from, *to), None)?;
                grown.add(*ino, more);
            }
            Op::Splice {
                ino,
                block,
                at,
                bytes,
            } => {
                let more = self.splice(*ino, *block, (*at).into(), bytes)?;
                grown.add(*ino, more);
            }
            Op::Touch { ino, set } => self.touch(*ino, set)?,
            Op::Share(share) => {
                let (source, target) = self.share(share)?;
                grown.add(share.from, source);
                grown.add(share.to, target);
            }
            // The number says which item has the content, not what a subvolume shows.
            Op::Move {
                version,
                ino,
                block,
                extent,
            } => {
                let end = block.saturating_add(extent.blocks());
                let at = At {
                    ino: *ino,
                    scope: Rc::new(Scope::only(*version)),
                };
                let more = self.replace(&at, (*block, end), Some(extent.clone()))?;
                // What several subvolumes show, or a read-only one, is charged to none of them.
                if let Some(owner) = self.versions.sole_viewer(*version) {
                    grown.add(ino.of(owner), more);
                }
            }
            Op::Settle(settle) => self.settle(settle)?,
            // Of no item: the inspector knows where the lots end.
            Op::Lot { .. } => {}
        }
        Ok(())
    }

    /// Makes an item of the version that the key's subvolume has.
    fn put(&mut self, key: &Key, value: Vec<u8>) -> Result<()> {
        let (scope, place) = self.place(key)?;
        let before = self.counted(key);
        self.take_owned(&scope, &place);
        self.overlay
            .insert(self.own(&scope, &place), Some(value.clone()));
        let after = self.counted(key);
        self.charge(before, after);
        if place == QuotaState::KEY {
            self.read_quota();
        }
        if is_of_table(&place) {
            self.versions.change(&place, Some(&value));
        }
        Ok(())
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        let (scope, place) = self.place(key)?;
        let before = self.counted(key);
        self.charge(before, None);
        self.take_owned(&scope, &place);
        if place == QuotaState::KEY {
            self.read_quota();
        }
        if is_of_table(&place) {
            self.versions.change(&place, None);
        }
        let hides = scope.has_parent && self.shown_below(&scope, &place).is_some();
        let is_inode = place.kind == KeyKind::INODE;
        if hides && (is_inode || self.is_there(&scope, place.ino)) {
            let whiteout = Some(WHITEOUT.to_vec());
            self.overlay.insert(place.at(scope.number), whiteout);
        }
        Ok(())
    }

    /// The key of what a version makes at a place. While there is one version, records name their keys whole.
    fn own(&self, scope: &Scope, place: &Key) -> Key {
        match self.versions.is_plain() || place.is_unversioned() {
            true => *place,
            false => place.at(scope.number),
        }
    }

    /// Removes what a version owns at a place.
    fn take_owned(&mut self, scope: &Scope, place: &Key) {
        if self.versions.is_plain() || place.is_unversioned() {
            self.overlay.insert(*place, None);
            return;
        }
        for (number, _) in self.items_at(place) {
            if scope.owns(number) {
                self.overlay.insert(place.at(number), None);
            }
        }
    }

    fn touch(&mut self, ino: Ino, set: &Touch) -> Result<()> {
        let at = self.at(ino)?;
        let Some(mut inode) = self.inode_in(&at) else {
            return Ok(());
        };
        inode.size = set.size.unwrap_or(inode.size);
        inode.mtime = set.mtime.unwrap_or(inode.mtime);
        inode.ctime = set.ctime.unwrap_or(inode.ctime);
        inode.atime = set.atime.unwrap_or(inode.atime);
        inode.mode = set.mode.unwrap_or(inode.mode);
        self.put(&Key::inode(ino), inode.encode())
    }

    /// Adds to the sectors of inodes.
    fn grow(&mut self, grown: &mut Grown) {
        for (ino, more) in std::mem::take(&mut grown.0) {
            let Ok(at) = self.at(ino) else { continue };
            if more != 0
                && let Some(mut inode) = self.inode_in(&at)
            {
                inode.sectors = inode.sectors.saturating_add_signed(more);
                // The subvolume was looked up, so this cannot fail.
                let _ = self.put(&Key::inode(ino), inode.encode());
            }
        }
    }

    /// The leaf whose range holds `key`.
    fn leaf_of(&self, key: &Key) -> Option<usize> {
        self.tree
            .leaves
            .partition_point(|leaf| leaf.low <= *key)
            .checked_sub(1)
    }

    fn with_leaf<R>(&self, at: usize, look: impl FnOnce(Leaf, &PageView<'_>) -> R) -> Option<R> {
        let leaf = *self.tree.leaves.get(at)?;
        let page = leaf.page;
        let kept = self.pages.borrow().get(&page).cloned();
        let stored = match kept {
            Some(stored) => stored,
            None => {
                let stored = self.inspector.page(page).ok()?;
                let mut pages = self.pages.borrow_mut();
                if pages.len() >= PAGES_KEPT_MAX {
                    pages.clear();
                }
                pages.insert(page, stored.clone());
                stored
            }
        };
        let view = PageView::new(&stored.image).ok()?;
        Some(look(leaf, &view))
    }
}
