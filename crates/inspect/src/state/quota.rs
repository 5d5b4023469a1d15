//! What owners take, as records change it: each inode that the main subvolume gets, loses or changes, once a record is applied.

use std::collections::BTreeMap;

use persimmon_format::inode::Inode;
use persimmon_format::quota::{Counting, Owner, OwnerKind, Quota, QuotaState};
use persimmon_format::{Key, KeyKind, SubvolumeId};

use super::State;

/// By how many sectors and inodes owners take more.
pub(super) type Charges = BTreeMap<Owner, (i64, i64)>;

/// Those that an inode is counted for.
pub(crate) fn owners(inode: &Inode) -> Vec<Owner> {
    let owner = |kind, id| Owner { kind, id };
    let mut owners = vec![
        owner(OwnerKind::User, inode.uid),
        owner(OwnerKind::Group, inode.gid),
    ];
    if inode.project != 0 {
        owners.push(owner(OwnerKind::Project, inode.project));
    }
    owners
}

impl State<'_, '_> {
    /// Whether what owners take is counted.
    pub(crate) fn quota(&self) -> QuotaState {
        self.quota
    }

    pub(super) fn read_quota(&mut self) {
        let value = self.get(&QuotaState::KEY);
        let state = value.and_then(|value| QuotaState::decode(&value).ok());
        self.quota = state.unwrap_or_default();
    }

    /// The inode at a key before or after it is changed, if it counts.
    pub(super) fn counted(&self, key: &Key) -> Option<Inode> {
        let is_counted = key.kind == KeyKind::INODE
            && self.quota.counting != Counting::Off
            && key.ino.subvolume() == SubvolumeId::MAIN
            && self.quota.counts(key.ino);
        is_counted.then(|| self.inode(key.ino)).flatten()
    }

    pub(super) fn charge(&mut self, before: Option<Inode>, after: Option<Inode>) {
        for (inode, sign) in [(before, -1), (after, 1)] {
            let Some(inode) = inode else { continue };
            for owner in owners(&inode) {
                let (sectors, inodes) = self.charges.entry(owner).or_default();
                *sectors = sectors.saturating_add(sign * inode.sectors as i64);
                *inodes += sign;
            }
        }
    }

    /// At the end of a record.
    pub(super) fn apply_charges(&mut self) {
        for (owner, (sectors, inodes)) in std::mem::take(&mut self.charges) {
            if (sectors, inodes) == (0, 0) {
                continue;
            }
            let stored = self.get(&owner.key());
            let stored = stored.and_then(|value| Quota::decode(&value).ok());
            let mut quota = stored.unwrap_or_default();
            quota.charge(&self.quota, sectors, inodes);
            self.overlay.insert(owner.key(), Some(quota.encode()));
        }
    }
}
