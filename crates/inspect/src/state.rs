//! The content of the volume after replay: the checkpoint's tree, and above it what the journal
//! changed. A second, naive implementation of what the engine does to its pages.

mod sharing;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use persimmon_format::extent::{Extent, FRAME_BLOCKS_MAX};
use persimmon_format::inode::{Inode, SHARED};
use persimmon_format::name::{self, DirEntry};
use persimmon_format::packed::{self, FrameTally};
use persimmon_format::page::PageView;
use persimmon_format::record::{Op, Touch};
use persimmon_format::{FormatError, Ino, Key, KeyKind, PageId};

use crate::tree::{CheckedTree, Leaf, StoredPage};
use crate::volume::Inspector;

/// Pages kept for single look-ups.
const PAGES_KEPT_MAX: usize = 64;

/// A record that cannot be applied.
pub(crate) type Result<T, E = FormatError> = std::result::Result<T, E>;

pub(crate) struct State<'i, 'd> {
    inspector: &'i Inspector<'d>,
    pub tree: CheckedTree,
    overlay: BTreeMap<Key, Option<Vec<u8>>>,
    pages: RefCell<HashMap<PageId, StoredPage>>,
}

impl<'i, 'd> State<'i, 'd> {
    pub(crate) fn new(inspector: &'i Inspector<'d>, tree: CheckedTree) -> State<'i, 'd> {
        State {
            inspector,
            tree,
            overlay: BTreeMap::new(),
            pages: RefCell::default(),
        }
    }

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

    pub(crate) fn inode(&self, ino: Ino) -> Option<Inode> {
        Inode::decode(&self.get(&Key::inode(ino))?).ok()
    }

    /// The inode that a name in a directory leads to.
    pub(crate) fn lookup(
        &self,
        inspector: &Inspector<'_>,
        directory: Ino,
        name: &[u8],
    ) -> Option<Ino> {
        let first = name::first_item(&inspector.key, name);
        let mut found = None;
        let from = Key::new(directory, KeyKind::DIR_ENTRY, first);
        let _ = self.scan(from, &mut |key, value| {
            let is_near = key.ino == directory
                && key.kind == KeyKind::DIR_ENTRY
                && name::may_have(first, key.item);
            match DirEntry::decode(value) {
                _ if !is_near => return ControlFlow::Break(()),
                Ok(entry) if entry.name == name => found = Some(entry.ino),
                _ => return ControlFlow::Continue(()),
            }
            ControlFlow::Break(())
        });
        found
    }

    /// Hands the items from `from` on to `visit`, in key order.
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
        for op in ops {
            match op {
                Op::Put { key, value } => {
                    self.overlay.insert(*key, Some(value.clone()));
                }
                Op::Delete { key } => {
                    self.overlay.insert(*key, None);
                }
                Op::Map { ino, block, extent } => {
                    let end = block.saturating_add(extent.blocks());
                    self.replace(*ino, *block, end, Some(extent.clone()))?;
                }
                Op::Punch { ino, from, to } => {
                    self.replace(*ino, *from, *to, None)?;
                }
                Op::Splice {
                    ino,
                    block,
                    at,
                    bytes,
                } => self.splice(*ino, *block, (*at).into(), bytes)?,
                Op::Touch { ino, set } => self.touch(*ino, set),
                Op::Share(share) => self.share(share)?,
                // Of no item: the inspector knows where the lots end.
                Op::Lot { .. } => {}
            }
        }
        Ok(())
    }

    /// Writes into the inline content of a block, which may be a hole.
    fn splice(&mut self, ino: Ino, block: u64, at: usize, bytes: &[u8]) -> Result<()> {
        let key = Key::extent(ino, block);
        let content = match self.floor(&key).filter(|(found, _)| *found == key) {
            Some((_, value)) => match Extent::decode(&value)? {
                Extent::Inline(content) => content,
                // No such record is written: what it leaves is checked like all else.
                _ => Vec::new(),
            },
            None => Vec::new(),
        };
        let extent = Extent::spliced(content, at, bytes);
        self.replace(ino, block, block.saturating_add(1), Some(extent))
    }

    /// Removes file blocks `from..to`, and maps an extent from `from` on, if there is one.
    fn replace(&mut self, ino: Ino, from: u64, to: u64, mapped: Option<Extent>) -> Result<()> {
        let first = self
            .floor(&Key::extent(ino, from))
            .map(|(key, _)| key)
            .filter(|key| key.ino == ino && key.kind == KeyKind::EXTENT)
            .map_or(from, |key| key.item);
        // Blocks of a frame count by what the file has of all of it: so look at all there may be of those cut into.
        let start = first.min(from.saturating_sub(packed::COMPRESSED_BLOCKS_MAX as u64));
        let end = to.saturating_add(packed::COMPRESSED_BLOCKS_MAX as u64);
        let mut before: BTreeMap<u64, Extent> = BTreeMap::new();
        let mut broken = None;
        let _ = self.scan(Key::extent(ino, start), &mut |key, value| {
            if key.ino != ino || key.kind != KeyKind::EXTENT || key.item >= end {
                return ControlFlow::Break(());
            }
            match Extent::decode(value) {
                Ok(extent) => {
                    before.insert(key.item, extent);
                }
                Err(error) if (first..to).contains(&key.item) => broken = Some(error),
                Err(_) => {}
            }
            ControlFlow::Continue(())
        });
        if let Some(error) = broken {
            return Err(error);
        }
        let mut after = before.clone();
        let mut unshared = Vec::new();
        for (block, extent) in &before {
            let end = block.saturating_add(extent.blocks());
            if *block >= to || end <= from {
                continue;
            }
            let (cut, cut_end) = (from.max(*block), to.min(end));
            if let Extent::Shared { at, blocks } = extent.part(cut - block, cut_end - cut)
                && ino != SHARED
            {
                unshared.push((at, at.saturating_add(blocks.into())));
            }
            self.overlay.insert(Key::extent(ino, *block), None);
            after.remove(block);
            if *block < from {
                after.insert(*block, extent.part(0, from - block));
            }
            if end > to {
                after.insert(to, extent.part(to - block, end - to));
            }
        }
        let is_frame = matches!(mapped, Some(Extent::Frame { .. }));
        if let Some(extent) = mapped {
            after.insert(from, extent);
        }
        for (block, extent) in &after {
            let key = Key::extent(ino, *block);
            let is_gone = self.overlay.get(&key).is_some_and(Option::is_none);
            if is_gone || before.get(block) != Some(extent) {
                self.overlay.insert(key, Some(extent.encode()));
            }
        }
        let (gone, added) = (sectors(ino, &before), sectors(ino, &after));
        self.change_inode(ino, |inode| {
            inode.sectors = inode.sectors.saturating_add(added).saturating_sub(gone);
        });
        for (from, to) in unshared {
            self.drop_references(from, to)?;
        }
        if is_frame {
            self.join(ino, from);
        }
        Ok(())
    }

    /// Makes one extent of a frame that begins at `block` and the one before it, where both are one run on the device, as the engine
    /// does: what is shown is what it has.
    fn join(&mut self, ino: Ino, block: u64) {
        let frame_at = |block: u64| {
            let (key, value) = self.floor(&Key::extent(ino, block))?;
            let is_extent = key.ino == ino && key.kind == KeyKind::EXTENT;
            match Extent::decode(&value) {
                Ok(Extent::Frame { addr, crcs }) if is_extent => Some((key.item, addr, crcs)),
                _ => None,
            }
        };
        let Some((first, addr, mut crcs)) = block.checked_sub(1).and_then(frame_at) else {
            return;
        };
        let Some((_, next, more)) = frame_at(block).filter(|(at, ..)| *at == block) else {
            return;
        };
        let blocks = crcs.len() as u64;
        let follows = first.saturating_add(blocks) == block
            && (addr.device(), addr.zone()) == (next.device(), next.zone())
            && u64::from(addr.block()) + blocks == u64::from(next.block());
        if follows && crcs.len() + more.len() <= FRAME_BLOCKS_MAX {
            crcs.extend(more);
            let whole = Extent::Frame { addr, crcs };
            self.overlay
                .insert(Key::extent(ino, first), Some(whole.encode()));
            self.overlay.insert(Key::extent(ino, block), None);
        }
    }

    fn touch(&mut self, ino: Ino, set: &Touch) {
        self.change_inode(ino, |inode| {
            inode.size = set.size.unwrap_or(inode.size);
            inode.mtime = set.mtime.unwrap_or(inode.mtime);
            inode.ctime = set.ctime.unwrap_or(inode.ctime);
            inode.atime = set.atime.unwrap_or(inode.atime);
            inode.mode = set.mode.unwrap_or(inode.mode);
        });
    }

    fn change_inode(&mut self, ino: Ino, change: impl FnOnce(&mut Inode)) {
        if let Some(mut inode) = self.inode(ino) {
            change(&mut inode);
            self.overlay.insert(Key::inode(ino), Some(inode.encode()));
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

/// What extents of a file take, in units of 512 bytes.
fn sectors(ino: Ino, extents: &BTreeMap<u64, Extent>) -> u64 {
    let mut tally = FrameTally::default();
    let each = extents.iter();
    each.map(|(block, extent)| tally.extent(ino, *block, extent).sectors)
        .fold(0, u64::saturating_add)
}
