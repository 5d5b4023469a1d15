//! Which versions hold what snapshots alone have, told of the whole table at once: a look at it is as long as the table, and what is asked of
//! it then is not.

use std::collections::{BTreeMap, BTreeSet};

use persimmon_format::version::NumberRange;
use persimmon_format::{SubvolumeId, VersionId};

use super::Versions;

/// A snapshot with which goes what a version owns, but for what the version below does not hide, if there is one: that gets it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lone {
    pub(crate) id: SubvolumeId,
    pub(crate) below: Option<VersionId>,
}

/// The versions that are not being deleted.
#[derive(Debug, Default)]
pub(crate) struct Lineage {
    /// First and last number of the items that a version owns, in order.
    owners: Vec<(u32, u32, VersionId)>,
    /// The version of the main subvolume.
    pub(crate) main: VersionId,
    /// That one and those above it.
    main_line: BTreeSet<VersionId>,
    lone: BTreeMap<VersionId, Vec<Lone>>,
    /// The oldest inode that may have been made in a version that the main subvolume does not show, if there is such a version.
    pub(crate) aside_since: Option<u64>,
}

impl Lineage {
    /// The version that owns the items with a number; none if it is being deleted.
    pub(crate) fn owner(&self, number: VersionId) -> Option<VersionId> {
        let behind = { &self.owners }.partition_point(|(first, ..)| *first <= number.0);
        let (_, last, owner) = self.owners.get(behind.checked_sub(1)?)?;
        (number.0 <= *last).then_some(*owner)
    }

    /// Whether the main subvolume shows what a version owns, if nothing newer hides it.
    pub(crate) fn is_main(&self, owner: VersionId) -> bool {
        self.main_line.contains(&owner)
    }

    /// The snapshots with each of which something of a version goes.
    pub(crate) fn lone(&self, owner: VersionId) -> &[Lone] {
        self.lone.get(&owner).map_or(&[], Vec::as_slice)
    }

    /// The versions of which something goes with a snapshot.
    pub(crate) fn going_with(&self, id: SubvolumeId) -> Vec<(VersionId, Lone)> {
        let all = self.lone.iter();
        let all = all.flat_map(|(version, lone)| lone.iter().map(|lone| (*version, *lone)));
        all.filter(|(_, lone)| lone.id == id).collect()
    }
}

impl Versions {
    pub(crate) fn lineage(&self) -> Lineage {
        let mut lineage = Lineage {
            main: self.main(),
            ..Lineage::default()
        };
        let mut next = Some(lineage.main);
        while let Some(number) = next {
            lineage.main_line.insert(number);
            let parent = self.versions.get(&number).and_then(|of| of.parent);
            // A parent's number is smaller: the way up ends.
            next = parent.filter(|parent| *parent < number);
        }
        let mut below: BTreeMap<VersionId, Vec<VersionId>> = BTreeMap::new();
        for (number, version) in &self.versions {
            if let Some(parent) = version.parent {
                below.entry(parent).or_default().push(*number);
            }
            if version.is_discarded {
                continue;
            }
            let owned = version.absorbed.iter().copied();
            let owned = owned.chain([(number.0, number.0)]);
            lineage
                .owners
                .extend(owned.map(|(first, last)| (first, last, *number)));
            if !lineage.main_line.contains(number) {
                let since = lineage.aside_since.get_or_insert(version.first_ino);
                *since = version.first_ino.min(*since);
            }
        }
        lineage.owners.sort_unstable();
        let mut shown: BTreeMap<VersionId, (SubvolumeId, usize)> = BTreeMap::new();
        for (id, subvolume) in &self.subvolumes {
            shown.entry(subvolume.version).or_insert((*id, 0)).1 += 1;
        }
        let below = |version| below.get(&version).map_or(&[][..], Vec::as_slice);
        let mut add = |version, id, below| {
            let lone = lineage.lone.entry(version).or_default();
            lone.push(Lone { id, below });
        };
        for (version, (id, count)) in &shown {
            if *count > 1 || *id == SubvolumeId::MAIN {
                continue;
            }
            match below(*version) {
                [] => add(*version, *id, None),
                [child] => {
                    add(*version, *id, Some(*child));
                    continue;
                }
                _ => continue,
            }
            // One above that nothing shows then has another one below alone, which absorbs it.
            let parent = self.versions.get(version).and_then(|of| of.parent);
            if let Some(parent) = parent.filter(|parent| !shown.contains_key(parent))
                && let [one, other] = below(parent)
            {
                let other = if one == version { other } else { one };
                add(parent, *id, Some(*other));
            }
        }
        lineage
    }

    /// The numbers of the items that a version owns; none of one that is not in the table.
    pub(crate) fn owned(&self, number: VersionId) -> Vec<NumberRange> {
        let version = self.version(number);
        let owned = version.map(|version| {
            let mut owned = version.absorbed;
            owned.push((number.0, number.0));
            super::Numbers::of(owned).0
        });
        owned.unwrap_or_default()
    }
}
