//! Versions that one subvolume alone shows, and can change: what becomes of their items is its business alone.

use std::collections::{BTreeMap, BTreeSet};

use persimmon_format::{SubvolumeId, VersionId};

use super::Versions;

impl Versions {
    /// The subvolume that owns the items of a version, if no other one shows them and it can be changed.
    pub(crate) fn sole_owner(&self, number: VersionId) -> Option<SubvolumeId> {
        if self.is_plain() {
            return (number == VersionId(0)).then_some(SubvolumeId::MAIN);
        }
        let soles = self.soles.get_or_init(|| self.find_soles());
        if let Some(owner) = soles.get(&number) {
            return Some(*owner);
        }
        let absorbs = |version: &VersionId| {
            let of_it = self.versions.get(version);
            let mut absorbed = of_it.into_iter().flat_map(|version| &version.absorbed);
            absorbed.any(|(first, last)| (*first..=*last).contains(&number.0))
        };
        let mut soles = { soles.iter() }.filter(|_| !self.versions.contains_key(&number));
        soles.find_map(|(version, owner)| absorbs(version).then_some(*owner))
    }

    /// The same, if the subvolume shows all that has this number: until a version is settled, what it absorbed may be hidden by newer items of
    /// its own, and counts for no file.
    pub(crate) fn sole_viewer(&self, number: VersionId) -> Option<SubvolumeId> {
        let owner = self.sole_owner(number)?;
        let version = self.subvolumes.get(&owner).map(|owner| owner.version);
        let is_absorbed = version.is_some_and(|version| version != number);
        let stored = version.and_then(|version| self.versions.get(&version));
        let is_settled = stored.is_none_or(|version| !version.is_unsettled);
        (!is_absorbed || is_settled).then_some(owner)
    }

    fn find_soles(&self) -> BTreeMap<VersionId, SubvolumeId> {
        let parents: BTreeSet<VersionId> = { self.versions.values() }
            .filter_map(|version| version.parent)
            .collect();
        let mut soles = BTreeMap::new();
        let mut shared = parents;
        for (id, subvolume) in &self.subvolumes {
            let version = subvolume.version;
            if soles
                .insert(version, (*id, subvolume.is_read_only))
                .is_some()
            {
                shared.insert(version);
            }
        }
        let soles = soles.into_iter();
        soles
            .filter(|(version, (_, is_read_only))| !is_read_only && !shared.contains(version))
            .map(|(version, (id, _))| (version, id))
            .collect()
    }
}
