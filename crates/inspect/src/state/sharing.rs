//! Shared blocks: what records do to the store of them and to its counts, and what a file has there.

use std::ops::ControlFlow;

use persimmon_format::extent::Extent;
use persimmon_format::inode::SHARED;
use persimmon_format::record::Share;
use persimmon_format::references::References;
use persimmon_format::zone_header::SHARED_FRAMES;
use persimmon_format::{FormatError, Key, KeyKind};

use super::extents::{Extents, difference, sectors};
use super::{At, Result, State};

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
    /// Has blocks of one file in another one too. Returns by how many sectors the source and the target grow.
    pub(super) fn share(&mut self, share: &Share) -> Result<(i64, i64)> {
        let (source, target) = (self.at(share.from)?, self.at(share.to)?);
        let from_end = share.source_end();
        let to = (share.to_block, share.target_end());
        let mut target_grows = self.replace(&target, to, None)?;
        for block in [share.from_block, from_end] {
            self.cut_frame(&source, block)?;
        }
        let source_grows = self.move_to_store(share, &source)?;
        for (block, (_, extent)) in self.shown_extents(&source, share.from_block, from_end)? {
            let start = block.max(share.from_block);
            let end = block.saturating_add(extent.blocks()).min(from_end);
            let part = extent.part(start - block, end - start);
            let Extent::Shared { at, blocks, .. } = part else {
                continue;
            };
            self.add_references(at, at.saturating_add(blocks.into()))?;
            let block = share.to_block.saturating_add(start - share.from_block);
            let range = (block, block.saturating_add(blocks.into()));
            let more = self.replace(&target, range, Some(part))?;
            target_grows = target_grows.saturating_add(more);
        }
        Ok((source_grows, target_grows))
    }

    /// Moves to the store what the source shows of the range and is not there yet. Each item stays the version's whose it is.
    fn move_to_store(&mut self, share: &Share, source: &At) -> Result<i64> {
        let moved = self.to_move(share, source)?;
        let (Some(((first, _), _)), Some(((last, _), extent))) =
            (moved.first_key_value(), moved.last_key_value())
        else {
            return Ok(0);
        };
        let (first, end) = (*first, last.saturating_add(extent.blocks()));
        let before = sectors(source, &self.around(source.ino, first, end)?);
        let tells_frames = self.inspector.identity.incompatible & SHARED_FRAMES != 0;
        for ((block, number), extent) in &moved {
            let at = place_of(share, *block)?;
            let shared = extent.shared_at(at, tells_frames);
            let in_store = Key::extent(SHARED, at);
            self.overlay.insert(in_store, Some(extent.encode()));
            let in_file = Key::extent(source.ino, *block).at(*number);
            self.overlay.insert(in_file, Some(shared.encode()));
        }
        let after = sectors(source, &self.around(source.ino, first, end)?);
        Ok(difference(after, before))
    }

    /// What of the source moves to the store: frames in the range, and of a compressed frame that has blocks there all that there is, which
    /// is one version's.
    fn to_move(&self, share: &Share, source: &At) -> Result<Extents> {
        let mut moved = Extents::new();
        let range = (share.from_block, share.source_end());
        for (block, (number, extent)) in self.shown_extents(source, range.0, range.1)? {
            match &extent {
                Extent::Shared { .. } => {}
                Extent::Frame { .. } => {
                    moved.insert((block, number), extent);
                }
                Extent::Packed(packed) if packed.dictionary().is_none() => {
                    let whole = packed.frame_at(block);
                    let (start, end) = whole.ok_or_else(|| wrong("block", block))?;
                    let parts = self.around(source.ino, start, end)?.into_iter();
                    moved.extend(parts.filter(|((block, of), extent)| {
                        let is_part =
                            matches!(extent, Extent::Packed(part) if part.shares_frame(packed));
                        is_part && *of == number && (start..end).contains(block)
                    }));
                }
                Extent::Packed(_)
                | Extent::Inline(_)
                | Extent::Reserved { .. }
                | Extent::Compressed(_)
                | Extent::Hole { .. } => {
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
    pub(super) fn add_references(&mut self, from: u64, to: u64) -> Result<()> {
        self.change_references(from, to, |count| count.saturating_add(1))
            .map(drop)
    }

    /// One extent less names these blocks of the store: it loses those that none names any more.
    pub(super) fn drop_references(&mut self, from: u64, to: u64) -> Result<()> {
        let store = self.at(SHARED)?;
        // A count at its end stays.
        let less = |count: u32| match count {
            u32::MAX => count,
            count => count.saturating_sub(1),
        };
        for range in self.change_references(from, to, less)? {
            self.replace(&store, range, None)?;
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
