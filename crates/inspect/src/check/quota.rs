//! What owners take: the counts that are stored against the inodes that there are.

use std::collections::BTreeMap;

use persimmon_format::inode::Inode;
use persimmon_format::quota::{Counting, Owner, Quota, QuotaState, Usage};
use persimmon_format::zone_header::QUOTA;
use persimmon_format::{Ino, Key, VersionId};

use super::files::item;
use super::repair::Plan;
use crate::finding::{Findings, ITEM_KEY, ITEM_VALUE, QUOTA_USAGE};
use crate::state::{State, owners};
use crate::volume::Inspector;

/// Said of what only a volume with quota can have.
pub(super) const NO_QUOTA: &str = "the volume has no quota";

pub(super) fn has_quota(inspector: &Inspector<'_>) -> bool {
    inspector.identity.incompatible & QUOTA != 0
}

/// What is stored, and what is found, of all owners.
#[derive(Debug, Default)]
pub(crate) struct QuotaCheck {
    stored: BTreeMap<Owner, Usage>,
    found: BTreeMap<Owner, Usage>,
    /// A count cannot be read.
    is_damaged: bool,
}

impl QuotaCheck {
    /// Takes an item.
    pub(crate) fn item(
        &mut self,
        (inspector, state): (&Inspector<'_>, &State<'_, '_>),
        key: &Key,
        value: &[u8],
        findings: &mut Findings,
        plan: &mut Plan,
    ) {
        if !has_quota(inspector) {
            findings.add(&ITEM_KEY, item(key), NO_QUOTA);
        }
        let is_state = *key == QuotaState::KEY;
        let owner = Owner::of_key(key).filter(|_| key.version == VersionId(0));
        let decoded = match owner {
            _ if is_state => QuotaState::decode(value).map(drop),
            Some(owner) => Quota::decode(value).map(|quota| {
                let usage = quota.usage_in(state.quota().round);
                if usage != Usage::default() {
                    self.stored.insert(owner, usage);
                }
            }),
            None => return findings.add(&ITEM_KEY, item(key), ""),
        };
        if let Err(error) = decoded {
            findings.add(&ITEM_VALUE, item(key), error);
            plan.delete(*key);
            self.is_damaged |= !is_state;
        }
    }

    /// Takes an inode that the main subvolume shows.
    pub(crate) fn inode(&mut self, state: &State<'_, '_>, ino: Ino, inode: &Inode) {
        if !state.quota().counts(ino) {
            return;
        }
        for owner in owners(inode) {
            let usage = self.found.entry(owner).or_default();
            usage.sectors = usage.sectors.saturating_add(inode.sectors);
            usage.inodes += 1;
        }
    }

    /// Compares them. Counting again puts them right.
    pub(crate) fn finish(self, state: &State<'_, '_>, findings: &mut Findings, plan: &mut Plan) {
        let quota = state.quota();
        if quota.counting == Counting::Off {
            return;
        }
        let mut is_wrong = self.is_damaged;
        let all = self.stored.keys().chain(self.found.keys());
        let mut all: Vec<Owner> = all.copied().collect();
        all.sort_unstable();
        all.dedup();
        for owner in all {
            let of = |usages: &BTreeMap<Owner, Usage>| usages.get(&owner).copied();
            let (stored, found) = (of(&self.stored), of(&self.found));
            let (stored, found) = (stored.unwrap_or_default(), found.unwrap_or_default());
            if stored != found {
                is_wrong = true;
                let place = format!("{} {}", owner.kind, owner.id);
                let detail = format!(
                    "it says {} sectors and {} inodes, there are {} and {}",
                    stored.sectors, stored.inodes, found.sectors, found.inodes
                );
                findings.add(&QUOTA_USAGE, place, detail);
            }
        }
        if is_wrong {
            plan.put(QuotaState::KEY, quota.anew().encode());
        }
    }
}
