//! Soft limits: one may be exceeded until its grace time ends, and is a hard one from then on, until less is taken.
//!
//! How many inodes somebody has is known exactly, and so is when their grace time begins. That of bytes begins where what is taken, and what
//! is staged as if it took whole blocks, exceeds the limit: of what lies between two bounds several ends are possible.

use std::collections::BTreeSet;

use persimmon_format::quota::{Grace, Limit, Owner};

use super::counting::Counting;
use super::quota::{BLOCK, Demand, Taken};
use super::tree::Tree;
use super::{Errno, Model};
use crate::workload::Op;

const NANOSECONDS: u64 = 1_000_000_000;
/// A grace time that is under way stays where a new one would end by this part of it later or earlier.
const TOLERANCE: u32 = 64;

/// Grace times of volumes with soft limits, of users, groups and projects, seconds: some so short that each begins anew, and some that stay.
pub const GRACES: [Grace; 3] = [
    Grace {
        bytes: 30,
        inodes: 40,
    },
    Grace {
        bytes: 60,
        inodes: 50,
    },
    Grace {
        bytes: 130,
        inodes: 200,
    },
];

/// What somebody may take; 0 is as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes.
    pub bytes: Limit,
    /// Inodes.
    pub inodes: Limit,
}

/// When a soft limit becomes a hard one: what may be stored of that, in seconds. 0 is nothing.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Ends {
    may: BTreeSet<i64>,
    /// Or anything else: it shows only while the limit is exceeded.
    is_unknown: bool,
}

/// Somebody who is limited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    limits: Limits,
    bytes: Ends,
    inodes: Ends,
}

/// The same as it is found. The ends of grace times: 0 is none, and there is nothing to see of one unless the soft limit is exceeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoundAccount {
    /// What they may take.
    pub limits: Limits,
    /// When the soft limit of bytes becomes a hard one.
    pub bytes_end: Option<i64>,
    /// When that of inodes does.
    pub inodes_end: Option<i64>,
}

impl Default for Ends {
    fn default() -> Ends {
        Ends::of(0)
    }
}

impl std::fmt::Debug for Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unknown = if self.is_unknown { " or any" } else { "" };
        write!(f, "{:?}{unknown}", self.may)
    }
}

impl Ends {
    fn of(end: i64) -> Ends {
        Ends {
            may: BTreeSet::from([end]),
            is_unknown: false,
        }
    }

    fn found(end: Option<i64>) -> Ends {
        end.map_or(
            Ends {
                may: BTreeSet::new(),
                is_unknown: true,
            },
            Ends::of,
        )
    }

    fn admit(&self, found: Option<i64>) -> bool {
        found.is_none_or(|end| self.is_unknown || self.may.contains(&end))
    }

    /// Whether the limit may be a hard one by now.
    pub(super) fn may_be_over(&self, now: i64) -> bool {
        self.is_unknown || self.may.iter().any(|end| *end != 0 && *end <= now)
    }

    /// Whether it is.
    pub(super) fn is_over(&self, now: i64) -> bool {
        !self.is_unknown && self.may.iter().all(|end| *end != 0 && *end <= now)
    }

    fn and(mut self, other: Ends) -> Ends {
        self.may.extend(other.may);
        self.is_unknown |= other.is_unknown;
        self
    }

    /// A grace time begins, unless that which is under way ends at nearly the same time.
    fn begun(&self, grace: u32, now: i64) -> Ends {
        let anew = now + i64::from(grace);
        let tolerance = i64::from(grace / TOLERANCE);
        let stays = |end: &i64| *end > now && anew.abs_diff(*end) <= tolerance.unsigned_abs();
        let may = { self.may.iter() }.map(|end| if stays(end) { *end } else { anew });
        let mut begun = Ends {
            may: may.collect(),
            ..Ends::default()
        };
        if self.is_unknown {
            begun.may.insert(anew);
            let all = anew - tolerance..=anew + tolerance;
            begun.may.extend(all.filter(stays));
        }
        begun
    }

    /// Where the limit is exceeded already a grace time begins only if none has.
    fn begun_if_none(&self, grace: u32, now: i64) -> Ends {
        let none = Ends::of(0);
        let mut others = self.clone();
        let had_none = others.may.remove(&0) || self.is_unknown;
        match had_none {
            true => others.and(none.begun(grace, now)),
            false => others,
        }
    }

    /// After a limit was set. `exceeds`: the limit that is set now is exceeded, the one before was, as far as that is known.
    fn limited(&self, exceeds: (bool, bool), end: i64) -> Ends {
        match exceeds {
            (false, _) => Ends::default(),
            (true, false) => Ends::of(end),
            (true, true) => {
                let mut ends = self.clone();
                if ends.may.remove(&0) || self.is_unknown {
                    ends.may.insert(end);
                }
                ends
            }
        }
    }
}

impl Account {
    /// What they may take.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    pub(super) fn bytes_ends(&self) -> &Ends {
        &self.bytes
    }

    pub(super) fn inodes_ends(&self) -> &Ends {
        &self.inodes
    }

    pub(super) fn is_unlimited(&self) -> bool {
        self.limits == Limits::default()
    }

    /// As it is found where no soft limit is exceeded.
    pub(super) fn found(&self) -> FoundAccount {
        FoundAccount {
            limits: self.limits,
            bytes_end: None,
            inodes_end: None,
        }
    }

    pub(super) fn admits(&self, found: &FoundAccount) -> bool {
        self.limits == found.limits
            && self.bytes.admit(found.bytes_end)
            && self.inodes.admit(found.inodes_end)
    }
}

impl FoundAccount {
    pub(super) fn account(&self) -> Account {
        Account {
            limits: self.limits,
            bytes: Ends::found(self.bytes_end),
            inodes: Ends::found(self.inodes_end),
        }
    }
}

pub(super) fn seconds(nanoseconds: u64) -> i64 {
    (nanoseconds / NANOSECONDS) as i64
}

impl Model {
    pub(super) fn limit(&mut self, owner: Owner, limits: Limits, now: u64) -> Result<(), Errno> {
        let quota = *self.now().quota();
        if quota.counting == Counting::Off {
            return Err(libc::EOPNOTSUPP);
        }
        let (grace, now) = (quota.grace(owner.kind), seconds(now));
        let before = self.now().account(owner);
        let taken = Taken::of(self.now(), owner);
        let does_exceed = (
            limits.inodes.is_exceeded(taken.inodes),
            before.limits.inodes.is_exceeded(taken.inodes),
        );
        let end = now + i64::from(grace.inodes);
        let mut inodes = before.inodes.limited(does_exceed, end);
        if quota.counting == Counting::Begun {
            // Any of them may be counted, or none.
            for fewer in [(false, false), (does_exceed.0, false)] {
                inodes = inodes.and(before.inodes.limited(fewer, end));
            }
        }
        // What is staged does not count for this, so it may be nothing.
        let end = now + i64::from(grace.bytes);
        let mut bytes = before.bytes.limited((false, false), end);
        let may = |soft: u64| soft != 0 && taken.may_exceed(soft, self.is_whole);
        if may(limits.bytes.soft) {
            bytes = bytes.and(before.bytes.limited((true, false), end));
            if may(before.limits.bytes.soft) {
                bytes = bytes.and(before.bytes.limited((true, true), end));
            }
        }
        let account = Account {
            limits,
            bytes,
            inodes,
        };
        self.enter(|tree| tree.set_account(owner, account));
        Ok(())
    }

    /// The accounts of those whose grace times begin in the record that makes something, or gives it away.
    pub(super) fn graces_of_new(&self, op: &Op, now: u64) -> Vec<(Owner, Account)> {
        let now = seconds(now);
        let demand = self.demand(op).filter(|demand| demand.inodes > 0);
        let demand = demand.filter(|_| self.enforces_limits());
        let Some(demand) = demand else {
            return Vec::new();
        };
        let mut begins = Vec::new();
        for owner in &demand.owners {
            let mut account = self.now().account(*owner);
            let grace = self.now().quota().grace(owner.kind);
            let soft = account.limits.inodes.soft;
            let inodes = self.now().inodes_of(*owner);
            if soft != 0 && inodes + demand.inodes > soft {
                account.inodes = match inodes > soft {
                    true => account.inodes.begun_if_none(grace.inodes, now),
                    false => account.inodes.begun(grace.inodes, now),
                };
            }
            if self.may_begin(*owner, &demand) {
                let begun = account.bytes.begun(grace.bytes, now);
                account.bytes = account.bytes.and(begun);
            }
            if account != self.now().account(*owner) {
                begins.push((*owner, account));
            }
        }
        begins
    }

    /// Grace times of bytes may have begun by what was asked for, whatever came of it.
    pub fn asked(&mut self, op: &Op, now: u64) {
        self.begin_graces(op, false, now);
    }

    /// Grace times of bytes that may begin, or do, in a record before what is written. `is_done`: all of it is.
    pub(super) fn begin_graces(&mut self, op: &Op, is_done: bool, now: u64) {
        let now = seconds(now);
        let demand = self.demand(op).filter(|demand| demand.inodes == 0);
        let Some(demand) = demand.filter(|_| self.enforces_limits()) else {
            return;
        };
        for owner in demand.owners.clone() {
            if !self.may_begin(owner, &demand) {
                continue;
            }
            let before = self.now().account(owner);
            let grace = self.now().quota().grace(owner.kind);
            let begun = before.bytes.begun(grace.bytes, now);
            let has_to = is_done
                && matches!(op, Op::Write { .. } | Op::WriteOpen { .. })
                && self.must_begin(owner, &demand);
            let account = Account {
                bytes: match has_to {
                    true => begun,
                    false => before.bytes.clone().and(begun),
                },
                ..before.clone()
            };
            match has_to && account != before {
                true => self.enter(|tree| tree.set_account(owner, account)),
                false => self.buffer(|tree| tree.set_account(owner, account)),
            }
        }
    }

    /// Grace times may be over where no more than a soft limit is taken: for a moment, too, where something was freed while what is staged
    /// does not count yet.
    pub(super) fn end_graces(&mut self, may_have_freed: bool) {
        let accounts = self.now().accounts().iter();
        let ended = accounts.filter_map(|(owner, account)| {
            let (bytes, inodes) = (account.limits.bytes, account.limits.inodes);
            let taken = Taken::of(self.now(), *owner);
            let mut after = account.clone();
            let may_free = may_have_freed || !self.is_whole;
            if bytes.soft != 0 && (may_free || !bytes.is_exceeded(taken.least())) {
                after.bytes = after.bytes.and(Ends::default());
            }
            if inodes.soft != 0 && !inodes.is_exceeded(taken.inodes) {
                after.inodes = after.inodes.and(Ends::default());
            }
            (after != *account).then_some((*owner, after))
        });
        let ended: Vec<(Owner, Account)> = ended.collect();
        if !ended.is_empty() {
            self.buffer(|tree| {
                for (owner, account) in ended {
                    tree.set_account(owner, account);
                }
            });
        }
    }

    /// Whether a demand may exceed the soft limit of bytes by what is asked for before anything is looked up: what is overwritten counts
    /// twice while it is staged.
    pub(super) fn may_begin(&self, owner: Owner, demand: &Demand) -> bool {
        let soft = self.now().account(owner).limits.bytes.soft;
        if soft == 0 || demand.takes_no_space() {
            return false;
        }
        let taken = Taken::of(self.now(), owner);
        let more = demand.blocks.1 * BLOCK + demand.attributes;
        let estimate = |most| taken.estimate(most, self.is_whole) + more;
        let estimate = taken.most.filter(|_| !demand.is_unknown).map(estimate);
        estimate.is_none_or(|bytes| bytes > soft)
    }

    /// Whether a demand that is done as a whole exceeds the soft limit of bytes, which was not exceeded before.
    fn must_begin(&self, owner: Owner, demand: &Demand) -> bool {
        let soft = self.now().account(owner).limits.bytes.soft;
        if soft == 0 || !self.is_whole || demand.is_unknown {
            return false;
        }
        let taken = Taken::of(self.now(), owner);
        let estimate = taken.most.map(|most| taken.estimate(most, true));
        estimate.is_some_and(|bytes| bytes <= soft)
            && taken.least() + demand.blocks.0 * BLOCK > soft
    }

    /// Those of whom there is more than one end that may be stored.
    #[must_use]
    pub fn uncertain(&self) -> Vec<Owner> {
        let is_uncertain = |ends: &Ends| ends.is_unknown || ends.may.len() > 1;
        let accounts = self.now().accounts().iter();
        accounts
            .filter(|(_, account)| is_uncertain(&account.bytes) || is_uncertain(&account.inodes))
            .map(|(owner, _)| *owner)
            .collect()
    }

    /// Takes over what is stored of an owner, which is in the history, where that was left open.
    ///
    /// Errors: it is none of what it may be.
    pub fn adopt_account(&mut self, owner: Owner, found: &FoundAccount) -> Result<(), String> {
        let before = self.now().account(owner);
        if !before.admits(found) {
            return Err(format!("{owner:?} has {found:?}, should be {before:?}"));
        }
        let known = |end: Option<i64>, ends: &Ends| end.map_or(ends.clone(), Ends::of);
        let account = Account {
            limits: before.limits,
            bytes: known(found.bytes_end, &before.bytes),
            inodes: known(found.inodes_end, &before.inodes),
        };
        if account != before {
            self.enter(|tree| tree.set_account(owner, account));
            // What was freed may enter the tree later than this was found.
            self.end_graces(false);
        }
        Ok(())
    }
}

impl Tree {
    /// Somebody's account.
    pub(crate) fn account(&self, owner: Owner) -> Account {
        self.accounts().get(&owner).cloned().unwrap_or_default()
    }
}
