//! What snapshots hold: what deleting one of them, or all, gives back.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds};

use persimmon_format::extent::Extent;
use persimmon_format::frame_part::FramePart;
use persimmon_format::inode::SHARED;
use persimmon_format::packed::PackUnits;
use persimmon_format::{Ino, Key, KeyKind, SubvolumeId, VersionId};

use super::Snapshots;
use crate::error::{Error, Result};
use crate::meta::extents::MappedExtent;
use crate::meta::versions::{Lineage, Lone};
use crate::meta::{extents, references};
use crate::store::Walked;

/// Blocks of the store of shared blocks that one look takes.
const SHARED_BLOCKS_MAX: u64 = 4096;

/// What snapshots hold.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// What is freed when one of them alone is deleted; nothing where it is not told.
    pub(crate) alone: BTreeMap<SubvolumeId, PackUnits>,
    /// What is freed when all are deleted: what the main subvolume does not show.
    pub(crate) together: PackUnits,
}

/// What goes when a snapshot, or all, are deleted.
#[derive(Default)]
struct Going {
    /// Of files' own.
    own: PackUnits,
    /// Blocks of the store of shared blocks that are named less, once for each that does.
    named: Vec<(u64, u64)>,
}

/// What goes with a snapshot, or with all of them.
type Sums = BTreeMap<Option<SubvolumeId>, Going>;

/// A compressed frame of a version, of which more may come.
struct Frame {
    first: FramePart,
    /// The file block that has this part.
    block: u64,
    /// Blocks of it that are stored,
    live: u64,
    /// and that stay when a snapshot, or all of them, are deleted.
    stay: Vec<(Option<SubvolumeId>, u64)>,
}

impl Snapshots {
    /// What is freed when a snapshot alone is deleted. As long as what was changed since it was taken, in all versions of these files.
    pub(crate) fn space(&self, id: SubvolumeId) -> Result<PackUnits> {
        self.of_one_table(|| {
            let lineage = {
                let meta = self.store.meta();
                let is_there = meta.versions.subvolumes().contains_key(&id);
                is_there.then(|| meta.versions.lineage())
            };
            let lineage = lineage.ok_or(Error::NoSuchSnapshot)?;
            let mut inos = BTreeSet::new();
            for (version, lone) in lineage.going_with(id) {
                let changed = lone.below.unwrap_or(version);
                let owned = self.store.meta().versions.owned(changed);
                for (first, last) in owned {
                    self.add_changed((VersionId(first), VersionId(last)), &mut inos)?;
                }
                if lone.below.is_none() {
                    self.each_made(version, |ino| {
                        inos.insert(ino);
                    })?;
                }
            }
            let mut sums = Sums::new();
            for ino in inos {
                self.add_inode(&lineage, ino, &mut sums)?;
            }
            self.freed(sums.remove(&Some(id)).unwrap_or_default())
        })
    }

    /// What each snapshot holds alone, and all of them together. Looks at each file that any version changed once, however many did.
    pub(crate) fn held(&self) -> Result<Held> {
        self.of_one_table(|| {
            let lineage = self.store.meta().versions.lineage();
            let mut inos = BTreeSet::new();
            self.add_changed((VersionId(0), VersionId(u32::MAX)), &mut inos)?;
            self.add_made_aside(&lineage, &mut inos)?;
            let mut sums = Sums::new();
            for ino in inos {
                self.add_inode(&lineage, ino, &mut sums)?;
            }
            let mut held = Held::default();
            for (id, going) in sums {
                let freed = self.freed(going)?;
                match id {
                    Some(id) => drop(held.alone.insert(id, freed)),
                    None => held.together = freed,
                }
            }
            Ok(held)
        })
    }

    /// Calls `visit` with what `pick` makes of the items of all versions in a range of keys.
    fn each_stored<T>(
        &self,
        first: Key,
        keys: &impl RangeBounds<Key>,
        pick: impl Fn(Key, &[u8]) -> Option<T>,
        mut visit: impl FnMut(T),
    ) -> Result<()> {
        let mut from = Bound::Included(first);
        loop {
            let (found, last) = self.store.look(Walked::Stored, from, keys, &pick)?;
            found.into_iter().for_each(&mut visit);
            match last {
                Some(key) => from = Bound::Excluded(key),
                None => return Ok(()),
            }
        }
    }

    /// The older inodes that versions with these numbers changed.
    fn add_changed(
        &self,
        (first, last): (VersionId, VersionId),
        inos: &mut BTreeSet<Ino>,
    ) -> Result<()> {
        let last = Key::changes(last, Ino(u64::MAX));
        let changed = |key: Key, _: &[u8]| {
            let is_entry = key.kind == KeyKind::CHANGES && key.item != 0;
            is_entry.then_some(Ino(key.item))
        };
        self.each_stored(Key::changes(first, Ino(0)), &(..=last), changed, |ino| {
            inos.insert(ino);
        })
    }

    /// The inodes that were made in versions that the main subvolume does not show.
    fn add_made_aside(&self, lineage: &Lineage, inos: &mut BTreeSet<Ino>) -> Result<()> {
        let Some(since) = lineage.aside_since else {
            return Ok(());
        };
        let made = |key: Key, _: &[u8]| {
            let owner = lineage.owner(key.version)?;
            let is_made = key.kind == KeyKind::INODE && !lineage.is_main(owner);
            is_made.then_some(key.ino)
        };
        let end = Key::new(Ino(Ino::END), KeyKind(0), 0);
        self.each_stored(Key::inode(Ino(since)), &(..end), made, |ino| {
            inos.insert(ino);
        })
    }

    /// Adds what goes of an inode.
    fn add_inode(&self, lineage: &Lineage, ino: Ino, sums: &mut Sums) -> Result<()> {
        let (mut gone, mut is_shown) = (BTreeSet::new(), false);
        let owned = |key: Key, value: &[u8]| {
            let owner = lineage.owner(key.version)?;
            Some((owner, key.is_whiteout(value)))
        };
        let end = Key::new(ino, KeyKind(KeyKind::INODE.0 + 1), 0);
        self.each_stored(Key::inode(ino), &(..end), owned, |(owner, is_whiteout)| {
            // The newest item of each comes last.
            match is_whiteout {
                true => gone.insert(owner),
                false => gone.remove(&owner),
            };
            if lineage.is_main(owner) {
                is_shown = !is_whiteout;
            }
        })?;
        let mut inode = OfInode {
            lineage,
            sums,
            gone,
            is_shown,
            block: 0,
            here: BTreeMap::new(),
            shown_here: None,
            frames: BTreeMap::new(),
        };
        let owned = |key: Key, value: &[u8]| {
            let owner = lineage.owner(key.version)?;
            Some((key.item, owner, Extent::decode(value).ok()?))
        };
        let end = Key::new(ino, KeyKind::ORPHAN, 0);
        self.each_stored(
            Key::extent(ino, 0),
            &(..end),
            owned,
            |(block, owner, extent)| {
                inode.add(block, owner, extent);
            },
        )?;
        inode.end();
        Ok(())
    }

    /// What is freed when this goes: of shared blocks those that nothing else names.
    fn freed(&self, going: Going) -> Result<PackUnits> {
        let mut free: Vec<(u64, u64)> = Vec::new();
        for (from, to, count) in counted(going.named) {
            for (from, to) in pieces(from, to) {
                let counts = self.store.view::<_, Error>(|view| {
                    view.find(|meta| references::counts(meta, from, to))
                })?;
                for (from, to, named) in counts {
                    match free.last_mut() {
                        _ if named > count => {}
                        Some((_, end)) if *end == from => *end = to,
                        _ => free.push((from, to)),
                    }
                }
            }
        }
        let mut freed = going.own;
        // Frames that were counted.
        let mut frames: Vec<(FramePart, u64)> = Vec::new();
        for (from, to) in free.iter().flat_map(|(from, to)| pieces(*from, *to)) {
            for mapped in self.stored_shared(from, to)? {
                let (start, end) = (mapped.block.max(from), mapped.end().min(to));
                let Some(part) = mapped.extent.frame_part() else {
                    let gone = mapped.extent.part(start - mapped.block, end - start);
                    freed += gone.stored(0).units;
                    continue;
                };
                frames.retain(|(first, at)| first.end_at(*at) > mapped.block);
                let is_same = |other: &FramePart, at| part.counts_with(mapped.block, other, at);
                if frames.iter().any(|(first, at)| is_same(first, *at)) {
                    continue;
                }
                frames.push((part, mapped.block));
                let (first, last) = part.range_at(mapped.block);
                let (mut live, mut gone) = (0, 0);
                for other in self.stored_shared(first, last)? {
                    let of_frame = other.extent.frame_part();
                    if of_frame.is_some_and(|of_frame| is_same(&of_frame, other.block)) {
                        live += other.extent.blocks();
                        gone += covered(&free, other.block, other.end());
                    }
                }
                freed += beyond(&part, live, live.saturating_sub(gone));
            }
        }
        Ok(freed)
    }

    fn stored_shared(&self, from: u64, to: u64) -> Result<Vec<MappedExtent>> {
        self.store.view::<_, Error>(|view| {
            view.find(|meta| extents::overlapping(meta, SHARED, from, to, usize::MAX))
        })
    }
}

/// The versions of an inode's blocks, one block after the other.
struct OfInode<'a> {
    lineage: &'a Lineage,
    sums: &'a mut Sums,
    /// Versions that deleted the inode.
    gone: BTreeSet<VersionId>,
    /// The main subvolume shows the inode.
    is_shown: bool,
    /// What there is at this block: the newest of each version,
    block: u64,
    here: BTreeMap<VersionId, Extent>,
    /// and whose of it the main subvolume shows.
    shown_here: Option<VersionId>,
    frames: BTreeMap<VersionId, Vec<Frame>>,
}

impl OfInode<'_> {
    /// Takes the items in the order of their keys.
    fn add(&mut self, block: u64, owner: VersionId, extent: Extent) {
        if block != self.block {
            self.count();
            self.block = block;
        }
        if self.is_shown && self.lineage.is_main(owner) {
            self.shown_here = Some(owner);
        }
        self.here.insert(owner, extent);
    }

    fn end(mut self) {
        self.count();
        let frames = std::mem::take(&mut self.frames);
        frames
            .values()
            .flatten()
            .for_each(|frame| self.count_frame(frame));
    }

    /// Counts what there is at a block.
    fn count(&mut self) {
        let here = std::mem::take(&mut self.here);
        let shown = self.shown_here.take();
        for (owner, extent) in &here {
            // What the main subvolume owns and does not show goes without any snapshot.
            let is_shown = shown == Some(*owner) || *owner == self.lineage.main;
            let lone = self.lineage.lone(*owner).iter();
            let with_one = lone.map(|Lone { id, below }| {
                let stays = below
                    .is_some_and(|below| !here.contains_key(&below) && !self.gone.contains(&below));
                (Some(*id), stays)
            });
            let stay: Vec<_> = [(None, is_shown)].into_iter().chain(with_one).collect();
            match (extent, extent.frame_part()) {
                (Extent::Packed(_), Some(part)) => self.add_part(*owner, part, &stay),
                _ => {
                    for (with, _) in stay.iter().filter(|(_, stays)| !stays) {
                        let going = self.sums.entry(*with).or_default();
                        going.own += extent.stored(0).units;
                        going.named.extend(extent.names());
                    }
                }
            }
        }
    }

    fn add_part(
        &mut self,
        owner: VersionId,
        part: FramePart,
        stay: &[(Option<SubvolumeId>, bool)],
    ) {
        let block = self.block;
        let frames = self.frames.entry(owner).or_default();
        let is_over = |frame: &mut Frame| frame.first.end_at(frame.block) <= block;
        let over: Vec<Frame> = frames.extract_if(.., is_over).collect();
        let mut known = frames.iter_mut();
        let same = known.find(|frame| frame.first.counts_with(frame.block, &part, block));
        let blocks = part.blocks();
        let stay = stay
            .iter()
            .map(|(with, stays)| (*with, u64::from(*stays) * blocks));
        match same {
            Some(frame) => {
                frame.live += blocks;
                let both = frame.stay.iter_mut().zip(stay);
                both.for_each(|((_, all), (_, more))| *all += more);
            }
            None => frames.push(Frame {
                first: part,
                block,
                live: blocks,
                stay: stay.collect(),
            }),
        }
        over.iter().for_each(|frame| self.count_frame(frame));
    }

    fn count_frame(&mut self, frame: &Frame) {
        let names = match frame.first {
            FramePart::Packed(packed) => Extent::Packed(packed).names(),
            FramePart::Shared { .. } => None,
        };
        for (with, left) in &frame.stay {
            let going = self.sums.entry(*with).or_default();
            going.own += beyond(&frame.first, frame.live, *left);
            going.named.extend(names.filter(|_| *left == 0));
        }
    }
}

/// What a frame gives back that had `live` blocks and has `left` then.
fn beyond(part: &FramePart, live: u64, left: u64) -> PackUnits {
    let units = |blocks: u64| match blocks.min(part.frame_blocks()) {
        0 => PackUnits::ZERO,
        blocks => part.stored(blocks).units,
    };
    units(live).saturating_sub(units(left))
}

/// A range of the store in pieces that one look takes.
fn pieces(from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
    let starts = (from..to).step_by(SHARED_BLOCKS_MAX as usize);
    starts.map(move |from| (from, to.min(from + SHARED_BLOCKS_MAX)))
}

/// How many of the blocks `from..to` are in ranges, which are in order.
fn covered(ranges: &[(u64, u64)], from: u64, to: u64) -> u64 {
    let first = ranges.partition_point(|(_, end)| *end <= from);
    let found = ranges.iter().skip(first);
    let found = found.take_while(|(start, _)| *start < to);
    found
        .map(|(start, end)| (*end).min(to) - (*start).max(from))
        .sum()
}

/// Ranges of blocks, each with how many of those given have it, in order.
fn counted(ranges: Vec<(u64, u64)>) -> Vec<(u64, u64, u32)> {
    let mut edges: Vec<(u64, i64)> = { ranges.into_iter() }
        .flat_map(|(from, to)| [(from, 1), (to, -1)])
        .collect();
    edges.sort_unstable();
    let (mut counted, mut count, mut since) = (Vec::new(), 0_i64, 0);
    for (at, more) in edges {
        if count > 0 && since < at {
            counted.push((since, at, count as u32));
        }
        count += more;
        since = at;
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::{counted, covered};

    #[test]
    fn ranges_are_counted_where_they_overlap() {
        assert_eq!(counted(Vec::new()), []);
        assert_eq!(counted(vec![(3, 5)]), [(3, 5, 1)]);
        assert_eq!(
            counted(vec![(5, 9), (1, 6), (6, 9), (20, 21)]),
            [(1, 5, 1), (5, 6, 2), (6, 9, 2), (20, 21, 1)]
        );
    }
    #[test]
    fn blocks_in_ranges_are_counted() {
        let ranges = [(2, 4), (4, 6), (9, 12)];
        assert_eq!(covered(&ranges, 0, 20), 7);
        assert_eq!(covered(&ranges, 3, 10), 4);
        assert_eq!(covered(&ranges, 6, 9), 0);
        assert_eq!(covered(&[], 0, 9), 0);
    }
}
