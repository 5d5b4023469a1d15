//! What a snapshot alone holds: what its deletion gives back.

use std::collections::BTreeSet;
use std::ops::Bound;

use persimmon_format::extent::Extent;
use persimmon_format::inode::SHARED;
use persimmon_format::packed::{FrameTally, PackUnits};
use persimmon_format::{Ino, Key, KeyKind, SubvolumeId, VersionId};

use super::Snapshots;
use crate::error::{Error, Result};
use crate::meta::{extents, references};
use crate::settling;
use crate::store::Walked;

/// Blocks of the store of shared blocks that one look takes.
const SHARED_BLOCKS_MAX: u64 = 4096;

/// What a version alone has.
#[derive(Default)]
struct Alone {
    /// Of its own.
    own: PackUnits,
    /// Shared blocks that it names, with each extent that does.
    named: Vec<(u64, u64)>,
}

impl Snapshots {
    /// What is freed when a snapshot alone is deleted.
    pub(crate) fn space(&self, id: SubvolumeId) -> Result<PackUnits> {
        self.of_one_table(|| self.space_in_table(id))
    }

    fn space_in_table(&self, id: SubvolumeId) -> Result<PackUnits> {
        let (version, child) = {
            let meta = self.store.meta();
            let all = meta.versions.subvolumes();
            let version = all.get(&id).ok_or(Error::NoSuchSnapshot)?.version;
            let shown = all.values().filter(|s| s.version == version).count();
            match (shown, meta.versions.children(version).as_slice()) {
                (1, []) => (version, version),
                (1, [child]) => (version, *child),
                _ => return Ok(PackUnits::ZERO),
            }
        };
        let mut inos = BTreeSet::new();
        let mut from = Bound::Unbounded;
        while let Some(entry) = settling::next_entry(&self.store, child, from)? {
            inos.insert(Ino(entry.item));
            from = Bound::Excluded(entry);
        }
        if child == version {
            self.each_made(version, |ino| {
                inos.insert(ino);
            })?;
        }
        let mut alone = Alone::default();
        for ino in inos {
            self.add_inode(&mut alone, ino, version, child)?;
        }
        let mut freed = alone.own;
        for (from, to, count) in counted(alone.named) {
            freed += self.space_of_shared(from, to, count)?;
        }
        Ok(freed)
    }

    /// What is freed when `count` extents that name shared blocks go: the blocks that nothing else names.
    fn space_of_shared(&self, from: u64, to: u64, count: u32) -> Result<PackUnits> {
        let (mut tally, mut freed) = (FrameTally::default(), PackUnits::ZERO);
        for from in (from..to).step_by(SHARED_BLOCKS_MAX as usize) {
            let to = to.min(from + SHARED_BLOCKS_MAX);
            let found = self.store.view::<_, Error>(|view| {
                view.find(|meta| {
                    let mut found = Vec::new();
                    for (from, to, named) in references::counts(meta, from, to)? {
                        if named <= count {
                            let limit = usize::MAX;
                            found.extend(
                                extents::overlapping(meta, SHARED, from, to, limit)?
                                    .into_iter()
                                    .map(|mapped| {
                                        let (start, end) =
                                            (mapped.block.max(from), mapped.end().min(to));
                                        let part = (start - mapped.block, end - start);
                                        (start, mapped.extent.part(part.0, part.1))
                                    }),
                            );
                        }
                    }
                    Ok(found)
                })
            })?;
            for (block, extent) in found {
                freed += tally.extent(SHARED, block, &extent).units;
            }
        }
        Ok(freed)
    }

    /// Adds what a version has of an inode that nobody has once it is gone, `child` being the one below it, or itself if there is none.
    fn add_inode(
        &self,
        alone: &mut Alone,
        ino: Ino,
        version: VersionId,
        child: VersionId,
    ) -> Result<()> {
        let (held, hiding) = {
            let meta = self.store.meta();
            let at = |number| meta.versions.at_version(ino, number);
            (at(version)?, at(child)?)
        };
        let is_gone = self.store.view::<_, Error>(|view| {
            view.find(|meta| Ok(version == child || !meta.is_there(&hiding)?))
        })?;
        let mut tally = FrameTally::default();
        let (mut from, end) = (
            Bound::Included(Key::extent(ino, 0)),
            Key::new(ino, KeyKind::ORPHAN, 0),
        );
        let mut here: Option<(u64, Extent)> = None;
        loop {
            let (found, last) = self
                .store
                .look(Walked::Stored, from, &(..end), |key, value| {
                    let held = held.scope.owns(key.version);
                    let hides = hiding.scope.owns(key.version);
                    let extent = Extent::decode(value).ok()?;
                    (held || hides).then_some((key.item, held, hides, extent))
                })?;
            for (item, is_held, hides, extent) in found {
                if is_held {
                    here = Some((item, extent));
                }
                if let Some((block, extent)) = &here
                    && *block == item
                    && (is_gone && is_held || hides && !is_held)
                {
                    alone.own += tally.extent(ino, *block, extent).units;
                    if let Extent::Shared { .. } = extent {
                        alone.named.extend(extent.names());
                    }
                    here = None;
                }
            }
            match last {
                Some(key) => from = Bound::Excluded(key),
                None => return Ok(()),
            }
        }
    }
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
    use super::counted;

    #[test]
    fn ranges_are_counted_where_they_overlap() {
        assert_eq!(counted(Vec::new()), []);
        assert_eq!(counted(vec![(3, 5)]), [(3, 5, 1)]);
        assert_eq!(
            counted(vec![(5, 9), (1, 6), (6, 9), (20, 21)]),
            [(1, 5, 1), (5, 6, 2), (6, 9, 2), (20, 21, 1)]
        );
    }
}
