//! Extents: what records do to ranges of a file, and to those that other versions have there.
//!
//! Extents of different versions cover the same file blocks, or none in common. So before a range is changed in one version, all are
//! cut at its two ends, and what is mapped is cut where those of others begin and end.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use persimmon_format::extent::{Extent, FRAME_BLOCKS_MAX};
use persimmon_format::inode::SHARED;
use persimmon_format::packed::{self, FrameTally};
use persimmon_format::{Addr, Ino, Key, KeyKind, VersionId};

use super::dictionary::named_more;
use super::versions::Scope;
use super::{At, Result, State};

/// Extents of an inode by their first block and the number of their version.
pub(super) type Extents = BTreeMap<(u64, VersionId), Extent>;

fn end_of(block: u64, extent: &Extent) -> u64 {
    block.saturating_add(extent.blocks())
}

impl State<'_, '_> {
    /// Writes into the inline content of a block, which may be a hole. Returns by how many sectors the file grows.
    pub(super) fn splice(&mut self, ino: Ino, block: u64, at: usize, bytes: &[u8]) -> Result<i64> {
        let file = self.at(ino)?;
        let content = match self.shown(&file.scope, &Key::extent(file.ino, block)) {
            Some((_, value)) => match Extent::decode(&value)? {
                Extent::Inline(content) => content,
                // No such record is written: what it leaves is checked like all else.
                _ => Vec::new(),
            },
            None => Vec::new(),
        };
        let extent = Extent::spliced(content, at, bytes);
        self.replace(&file, (block, block.saturating_add(1)), Some(extent))
    }

    /// Removes what a version has of file blocks, hides what its parent has there, and maps an extent instead, if there is one, which
    /// covers all of them. Returns by how many sectors the file grows.
    pub(super) fn replace(
        &mut self,
        at: &At,
        (from, to): (u64, u64),
        mapped: Option<Extent>,
    ) -> Result<i64> {
        if from >= to {
            return Ok(0);
        }
        let (ino, scope) = (at.ino, &at.scope);
        let before = self.around(ino, from, to)?;
        let mut after = before.clone();
        cut(&mut after, from);
        cut(&mut after, to);
        let mut unshared = Vec::new();
        after.retain(|(block, number), extent| {
            let goes = (from..to).contains(block) && scope.owns(*number);
            if let Extent::Shared { at, blocks, .. } = extent
                && goes
                && ino != SHARED
            {
                unshared.push((*at, at.saturating_add((*blocks).into())));
            }
            !goes
        });
        let is_frame = matches!(mapped, Some(Extent::Frame { .. }));
        match mapped {
            Some(extent) => {
                for (block, piece) in pieces(&after, from, &extent) {
                    after.insert((block, scope.number), piece);
                }
            }
            None if scope.has_parent && self.is_there(scope, ino) => {
                for (block, blocks) in hidden(&after, scope, from, to) {
                    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
                    after.insert((block, scope.number), Extent::Hole { blocks });
                }
            }
            None => {}
        }
        self.write(ino, &before, &after);
        if ino != SHARED {
            let mut gone = named_more(&before, &after);
            for range in named_more(&after, &before) {
                match gone.iter().position(|gone| *gone == range) {
                    // It moved.
                    Some(same) => drop(gone.swap_remove(same)),
                    None => self.add_references(range.0, range.1)?,
                }
            }
            unshared.extend(gone);
        }
        let (gone, added) = (sectors(at, &before), sectors(at, &after));
        for (from, to) in unshared {
            self.drop_references(from, to)?;
        }
        if is_frame {
            self.join(at, from);
        }
        Ok(difference(added, gone))
    }

    /// Cuts the extent that is stored under a key to the blocks `from..to`; with none of them there is no extent.
    pub(crate) fn cut_item(&mut self, key: &Key, (from, to): (u64, u64)) {
        let stored = self.get(key).map(|value| Extent::decode(&value));
        let Some(Ok(extent)) = stored else {
            return;
        };
        self.overlay.insert(*key, None);
        if from < to {
            let part = extent.part(from - key.item, to - from);
            let key = Key { item: from, ..*key };
            self.overlay.insert(key, Some(part.encode()));
        }
    }

    /// Cuts a frame that is shown where it goes on behind the beginning of a block, and what other versions have there.
    pub(super) fn cut_frame(&mut self, at: &At, block: u64) -> Result<()> {
        let shown = self.shown_extents(at, block, block.saturating_add(1))?;
        let over = shown.first_key_value();
        if over.is_some_and(|(start, (_, extent))| {
            *start < block && matches!(extent, Extent::Frame { .. })
        }) {
            let before = self.around(at.ino, block, block.saturating_add(1))?;
            let mut after = before.clone();
            cut(&mut after, block);
            self.write(at.ino, &before, &after);
        }
        Ok(())
    }

    /// Extents of all versions that have blocks of `from..to`, and those around it that may be of the same compressed frames: blocks of a
    /// frame count by what there is of all of it.
    pub(super) fn around(&self, ino: Ino, from: u64, to: u64) -> Result<Extents> {
        let first = self
            .floor(&Key::extent(ino, from).at(VersionId(u32::MAX)))
            .map(|(key, _)| key)
            .filter(|key| key.ino == ino && key.kind == KeyKind::EXTENT)
            .map_or(from, |key| key.item);
        let start = first.min(from.saturating_sub(packed::COMPRESSED_BLOCKS_MAX as u64));
        let end = to.saturating_add(packed::COMPRESSED_BLOCKS_MAX as u64);
        let mut found = Extents::new();
        let mut broken = None;
        let _ = self.scan(Key::extent(ino, start), &mut |key, value| {
            if key.ino != ino || key.kind != KeyKind::EXTENT || key.item >= end {
                return ControlFlow::Break(());
            }
            match Extent::decode(value) {
                Ok(extent) => drop(found.insert((key.item, key.version), extent)),
                Err(error) if (first..to).contains(&key.item) => broken = Some(error),
                Err(_) => {}
            }
            ControlFlow::Continue(())
        });
        broken.map_or(Ok(found), Err)
    }

    fn write(&mut self, ino: Ino, before: &Extents, after: &Extents) {
        let key = |(block, number): (u64, VersionId)| Key::extent(ino, block).at(number);
        for place in before.keys().filter(|place| !after.contains_key(place)) {
            self.overlay.insert(key(*place), None);
        }
        for (place, extent) in after {
            if before.get(place) != Some(extent) {
                self.overlay.insert(key(*place), Some(extent.encode()));
            }
        }
    }

    /// Makes one extent of a frame that begins at `block` and the one before it, where both are one run on the device and no other
    /// version has either: a record that shares a block of it shares all of it.
    fn join(&mut self, at: &At, block: u64) {
        let Some(before) = block.checked_sub(1) else {
            return;
        };
        let Some((first, number, addr, mut crcs)) = self.frame_alone(at, before) else {
            return;
        };
        let here = self.frame_alone(at, block);
        let Some((_, own, next, more)) = here.filter(|(start, ..)| *start == block) else {
            return;
        };
        let blocks = crcs.len() as u64;
        let follows = first.saturating_add(blocks) == block
            && (addr.device(), addr.zone()) == (next.device(), next.zone())
            && u64::from(addr.block()) + blocks == u64::from(next.block());
        if follows && crcs.len() + more.len() <= FRAME_BLOCKS_MAX {
            crcs.extend(more);
            let whole = Extent::Frame { addr, crcs };
            let key = |block| Key::extent(at.ino, block);
            self.overlay
                .insert(key(first).at(number), Some(whole.encode()));
            self.overlay.insert(key(block).at(own), None);
        }
    }

    /// The frame that is the only item at the last place up to a block, if the version owns it: its first block and number, and what it is.
    fn frame_alone(&self, at: &At, block: u64) -> Option<(u64, VersionId, Addr, Vec<u32>)> {
        let last = Key::extent(at.ino, block).at(VersionId(u32::MAX));
        let (key, value) = self.floor(&last)?;
        let is_extent = key.ino == at.ino && key.kind == KeyKind::EXTENT;
        let is_alone = || self.versions.is_plain() || self.items_at(&key).len() == 1;
        if !is_extent || !at.scope.owns(key.version) || !is_alone() {
            return None;
        }
        match Extent::decode(&value) {
            Ok(Extent::Frame { addr, crcs }) => Some((key.item, key.version, addr, crcs)),
            _ => None,
        }
    }

    /// Extents that a version shows and that overlap file blocks, by their first block, with the numbers of their versions.
    pub(super) fn shown_extents(
        &self,
        at: &At,
        from: u64,
        to: u64,
    ) -> Result<BTreeMap<u64, (VersionId, Extent)>> {
        let mut extents = BTreeMap::new();
        let mut broken = None;
        self.each_extent(at, (from, to), &mut |block, number, extent| match extent {
            Ok(extent) => drop(extents.insert(block, (number, extent))),
            Err(error) => broken = Some(error),
        });
        broken.map_or(Ok(extents), Err)
    }

    /// Hands on extents that a version shows and that overlap blocks of a file, with their first blocks and the numbers of their versions,
    /// and what is wrong with those that cannot be decoded.
    pub(crate) fn each_extent(
        &self,
        at: &At,
        (from, to): (u64, u64),
        visit: &mut dyn FnMut(u64, VersionId, Result<Extent>),
    ) {
        let ino = at.ino;
        let before = self
            .floor(&Key::extent(ino, from).at(VersionId(u32::MAX)))
            .filter(|(key, _)| key.ino == ino && key.kind == KeyKind::EXTENT);
        let first = before.map_or(from, |(key, _)| key.item);
        let _ = self.scan_shown(&at.scope, Key::extent(ino, first), &mut |key, value| {
            if key.ino != ino || key.kind != KeyKind::EXTENT || key.item >= to {
                return ControlFlow::Break(());
            }
            let extent = Extent::decode(value);
            let is_before = |extent: &Extent| end_of(key.item, extent) <= from;
            if !extent.as_ref().is_ok_and(is_before) {
                visit(key.item, key.version, extent);
            }
            ControlFlow::Continue(())
        });
    }
}

/// Cuts the extents of all versions in two that reach over a block's start.
fn cut(extents: &mut Extents, at: u64) {
    let over = |((block, _), extent): &(&(u64, VersionId), &Extent)| {
        *block < at && at < end_of(*block, extent)
    };
    let over: Vec<_> = extents
        .iter()
        .filter(over)
        .map(|(place, _)| *place)
        .collect();
    for (block, number) in over {
        if let Some(extent) = extents.remove(&(block, number)) {
            let end = end_of(block, &extent);
            extents.insert((block, number), extent.part(0, at - block));
            extents.insert((at, number), extent.part(at - block, end - at));
        }
    }
}

/// An extent at a block, cut where those that are there begin and end.
fn pieces(there: &Extents, from: u64, extent: &Extent) -> Vec<(u64, Extent)> {
    let end = end_of(from, extent);
    let ends = there
        .iter()
        .flat_map(|((block, _), extent)| [*block, end_of(*block, extent)]);
    let mut cuts: BTreeSet<u64> = ends.filter(|at| from < *at && *at < end).collect();
    cuts.extend([from, end]);
    let starts = cuts.iter().zip(cuts.iter().skip(1));
    starts
        .map(|(start, end)| (*start, extent.part(start - from, end - start)))
        .collect()
}

/// File blocks in a range that the parent of a version shows: first block and how many of each extent.
fn hidden(there: &Extents, scope: &Scope, from: u64, to: u64) -> Vec<(u64, u64)> {
    let below = there
        .iter()
        .filter(|((_, number), _)| scope.is_below(*number));
    newest(below)
        .filter(|(block, _)| (from..to).contains(block))
        .map(|(block, extent)| (block, extent.blocks()))
        .collect()
}

/// Of extents with the same first block, which come the oldest first, the newest, unless it is a hole.
fn newest<'e>(
    extents: impl Iterator<Item = (&'e (u64, VersionId), &'e Extent)>,
) -> impl Iterator<Item = (u64, &'e Extent)> {
    let newest: BTreeMap<u64, &Extent> = extents
        .map(|((block, _), extent)| (*block, extent))
        .collect();
    newest
        .into_iter()
        .filter(|(_, extent)| !matches!(extent, Extent::Hole { .. }))
}

/// What the extents take that a version shows of a file, in units of 512 bytes.
pub(super) fn sectors(at: &At, extents: &Extents) -> u64 {
    let mut tally = FrameTally::default();
    let shown = extents
        .iter()
        .filter(|((_, number), _)| at.scope.shows(*number));
    newest(shown)
        .map(|(block, extent)| tally.extent(at.ino, block, extent).sectors)
        .fold(0, u64::saturating_add)
}

/// By how much a number of sectors is greater than another.
pub(super) fn difference(added: u64, gone: u64) -> i64 {
    let signed = |sectors: u64| i64::try_from(sectors).unwrap_or(i64::MAX);
    signed(added).saturating_sub(signed(gone))
}
