//! Shared blocks: what records do to the store of them and to its counts, and what a file has there.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use persimmon_format::extent::Extent;
use persimmon_format::inode::SHARED;
use persimmon_format::record::Share;
use persimmon_format::references::References;
use persimmon_format::{FormatError, Ino, Key, KeyKind};

use super::{Result, State, sectors};

/// Where a block of the source goes in the store.
fn place_of(share: &Share, block: u64) -> Result<u64> {
    let place = share.place(block);
    place.ok_or_else(|| wrong("block of the store", share.at))
}

fn wrong(field: &'static str, value: u64) -> FormatError {
    FormatError::Value {
        what: "record that shares blocks",
        field,
        value,
    }
}

impl State<'_, '_> {
    /// Extents that overlap the file blocks `from..to`, by their first block.
    fn extents(&self, ino: Ino, from: u64, to: u64) -> Result<BTreeMap<u64, Extent>> {
        let mut extents = BTreeMap::new();
        let mut broken = None;
        self.each_extent((ino, from, to), &mut |block, extent| match extent {
            Ok(extent) => drop(extents.insert(block, extent)),
            Err(error) => broken = Some(error),
        });
        broken.map_or(Ok(extents), Err)
    }

    /// Hands on extents that overlap blocks of a file, with their first blocks, and what is wrong with those that cannot be decoded.
    pub(crate) fn each_extent(
        &self,
        (ino, from, to): (Ino, u64, u64),
        visit: &mut dyn FnMut(u64, Result<Extent>),
    ) {
        let before = self
            .floor(&Key::extent(ino, from))
            .filter(|(key, _)| key.ino == ino && key.kind == KeyKind::EXTENT);
        let first = before.map_or(from, |(key, _)| key.item);
        let _ = self.scan(Key::extent(ino, first), &mut |key, value| {
            if key.ino != ino || key.kind != KeyKind::EXTENT || key.item >= to {
                return ControlFlow::Break(());
            }
            let extent = Extent::decode(value);
            let is_before = |extent: &Extent| key.item.saturating_add(extent.blocks()) <= from;
            if !extent.as_ref().is_ok_and(is_before) {
                visit(key.item, extent);
            }
            ControlFlow::Continue(())
        });
    }

    /// Has blocks of one file in another one too.
    pub(super) fn share(&mut self, share: &Share) -> Result<()> {
        let from_end = share.source_end();
        self.replace(share.to, share.to_block, share.target_end(), None)?;
        let moved = self.to_move(share, from_end)?;
        for (block, extent) in self.beside(share, from_end)? {
            let key = Key::extent(share.from, block);
            self.overlay.insert(key, Some(extent.encode()));
        }
        let mut added = 0u64;
        for (block, extent) in &moved {
            let at = place_of(share, *block)?;
            let shared = Extent::Shared {
                at,
                blocks: extent.blocks() as u16,
            };
            added = added.saturating_add(shared.sectors());
            let in_store = Key::extent(SHARED, at);
            self.overlay.insert(in_store, Some(extent.encode()));
            let in_file = Key::extent(share.from, *block);
            self.overlay.insert(in_file, Some(shared.encode()));
        }
        let gone = sectors(share.from, &moved);
        self.change_inode(share.from, |inode| {
            inode.sectors = inode.sectors.saturating_add(added).saturating_sub(gone);
        });
        let mut added = 0u64;
        for (block, extent) in self.extents(share.from, share.from_block, from_end)? {
            let start = block.max(share.from_block);
            let end = block.saturating_add(extent.blocks()).min(from_end);
            let part = extent.part(start - block, end - start);
            let Extent::Shared { at, blocks } = part else {
                continue;
            };
            self.add_references(at, at.saturating_add(blocks.into()))?;
            added = added.saturating_add(part.sectors());
            let block = share.to_block.saturating_add(start - share.from_block);
            self.overlay
                .insert(Key::extent(share.to, block), Some(part.encode()));
        }
        self.change_inode(share.to, |inode| {
            inode.sectors = inode.sectors.saturating_add(added);
        });
        Ok(())
    }

    /// What the source keeps of frames that have blocks inside the range and outside.
    fn beside(&self, share: &Share, from_end: u64) -> Result<BTreeMap<u64, Extent>> {
        let mut kept = BTreeMap::new();
        for (block, extent) in self.extents(share.from, share.from_block, from_end)? {
            let end = block.saturating_add(extent.blocks());
            if !matches!(extent, Extent::Frame { .. }) {
                continue;
            }
            if block < share.from_block {
                kept.insert(block, extent.part(0, share.from_block - block));
            }
            if end > from_end {
                kept.insert(from_end, extent.part(from_end - block, end - from_end));
            }
        }
        Ok(kept)
    }

    /// What of the source moves to the store: of frames the blocks in the range, and of a compressed frame that has some there all that
    /// the source has.
    fn to_move(&self, share: &Share, from_end: u64) -> Result<BTreeMap<u64, Extent>> {
        let mut moved = BTreeMap::new();
        for (block, extent) in self.extents(share.from, share.from_block, from_end)? {
            match &extent {
                Extent::Shared { .. } => {}
                Extent::Frame { .. } => {
                    let start = block.max(share.from_block);
                    let end = block.saturating_add(extent.blocks()).min(from_end);
                    moved.insert(start, extent.part(start - block, end - start));
                }
                Extent::Packed(packed) => {
                    let whole = packed.frame_at(block);
                    let (start, end) = whole.ok_or_else(|| wrong("block", block))?;
                    let parts = self.extents(share.from, start, end)?.into_iter();
                    moved.extend(parts.filter(|(_, extent)| {
                        matches!(extent, Extent::Packed(part) if part.shares_frame(packed))
                    }));
                }
                Extent::Inline(_) | Extent::Reserved { .. } | Extent::Compressed(_) => {
                    return Err(wrong("block", block));
                }
            }
        }
        Ok(moved)
    }

    /// Counts that cover blocks of `from..to`: first block, end, count.
    fn references(&self, from: u64, to: u64) -> Result<Vec<(u64, u64, u32)>> {
        let before = self
            .floor(&Key::references(from))
            .filter(|(key, _)| key.ino == SHARED && key.kind == KeyKind::REFERENCES);
        let first = before.map_or(from, |(key, _)| key.item);
        let mut found = Vec::new();
        let mut broken = None;
        let _ = self.scan(Key::references(first), &mut |key, value| {
            if key.ino != SHARED || key.kind != KeyKind::REFERENCES || key.item >= to {
                return ControlFlow::Break(());
            }
            match References::decode(key.item, value) {
                Ok(References { blocks, count }) => {
                    let end = key.item.saturating_add(blocks.into());
                    if end > from {
                        found.push((key.item, end, count));
                    }
                    ControlFlow::Continue(())
                }
                Err(error) => {
                    broken = Some(error);
                    ControlFlow::Break(())
                }
            }
        });
        broken.map_or(Ok(found), Err)
    }

    /// One extent more names these blocks of the store.
    fn add_references(&mut self, from: u64, to: u64) -> Result<()> {
        self.change_references(from, to, |count| count.saturating_add(1))
            .map(drop)
    }

    /// One extent less names these blocks of the store: it loses those that none names any more.
    pub(super) fn drop_references(&mut self, from: u64, to: u64) -> Result<()> {
        for (from, to) in self.change_references(from, to, |count| count.saturating_sub(1))? {
            self.replace(SHARED, from, to, None)?;
        }
        Ok(())
    }

    /// Changes the counts of blocks. Returns those that have none then.
    fn change_references(
        &mut self,
        from: u64,
        to: u64,
        new: impl Fn(u32) -> u32,
    ) -> Result<Vec<(u64, u64)>> {
        let mut counts = Vec::new();
        let mut done = from;
        for (first, last, count) in self.references(from, to)? {
            let (start, end) = (first.max(from), last.min(to));
            self.overlay.insert(Key::references(first), None);
            counts.extend([
                (first, start, count),
                (done, start, new(1)),
                (start, end, new(count)),
                (end, last, count),
            ]);
            done = end;
        }
        counts.push((done, to, new(1)));
        let mut unnamed = Vec::new();
        for (from, to, count) in counts {
            match count {
                _ if from >= to => {}
                0 => unnamed.push((from, to)),
                1 => {}
                _ => {
                    let blocks = (to - from) as u32;
                    let value = References { blocks, count }.encode();
                    self.overlay.insert(Key::references(from), Some(value));
                }
            }
        }
        Ok(unnamed)
    }
}
