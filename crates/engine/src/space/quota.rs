//! Whose the space is that is promised and not in the tree yet: what is staged, and what is about to be. So somebody who writes is told at once
//! that the quota is exhausted, and write-back never asks.

use persimmon_sync::atomic::{AtomicBool, Ordering};
use persimmon_sync::{Alarm, Arc, Condvar, Mutex};
use std::collections::BTreeMap;
use std::time::Duration;

use persimmon_format::BLOCK_SIZE;
use persimmon_format::quota::{Owner, SECTOR};

use super::Space;
use crate::invariant::invariant_sub;
use crate::meta::quota::Owners;

/// Sectors of a block.
pub(crate) const BLOCK_SECTORS: u64 = BLOCK_SIZE as u64 / SECTOR;

/// Longest wait for others before looking again.
const OTHERS_WAIT: Duration = Duration::from_millis(20);

/// Sectors that are promised to one owner.
#[derive(Clone, Copy, Debug, Default)]
struct Promises {
    /// Staged.
    staged: u64,
    /// About to be, by who was admitted.
    admitted: u64,
    /// Answered, and staged at some time: nobody waits for that.
    answered: u64,
}

impl Promises {
    fn sectors(self) -> u64 {
        self.staged
            .saturating_add(self.admitted)
            .saturating_add(self.answered)
    }

    fn of(&mut self, is_answered: bool) -> &mut u64 {
        match is_answered {
            true => &mut self.answered,
            false => &mut self.admitted,
        }
    }
}

/// See the module.
pub(crate) struct QuotaLedger {
    /// What is staged is counted for its owners.
    is_on: AtomicBool,
    promises: Mutex<BTreeMap<Owner, Promises>>,
    given_back: Condvar,
    alarm: Alarm,
}

/// Sectors that somebody may stage. They are given back when this is dropped: what was staged by then counts as that.
pub struct Admitted {
    space: Arc<Space>,
    owners: Owners,
    sectors: u64,
    is_answered: bool,
}

impl Admitted {
    /// Of what is answered before it is staged, which may take as long as it likes: it counts, and nobody waits for it.
    #[must_use]
    pub fn for_later(mut self) -> Admitted {
        if !self.is_answered {
            let ledger = &self.space.quota;
            ledger.change(self.owners, |promises| {
                promises.answered += self.sectors;
                ledger.less(promises.of(false), self.sectors);
            });
            ledger.given_back.notify_all();
            self.is_answered = true;
        }
        self
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let ledger = &self.space.quota;
        ledger.change(self.owners, |promises| {
            ledger.less(promises.of(self.is_answered), self.sectors);
        });
        ledger.given_back.notify_all();
    }
}

impl QuotaLedger {
    pub(super) fn new(alarm: &Alarm) -> QuotaLedger {
        QuotaLedger {
            is_on: AtomicBool::new(false),
            promises: Mutex::default(),
            given_back: Condvar::new(),
            alarm: alarm.clone(),
        }
    }

    /// Whether what is staged is to be counted.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub(crate) fn turn(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    fn change(&self, owners: Owners, change: impl Fn(&mut Promises)) {
        let mut all = self.promises.lock();
        for owner in owners.iter() {
            let promises = all.entry(owner).or_default();
            change(promises);
            if promises.sectors() == 0 {
                all.remove(&owner);
            }
        }
    }

    fn less(&self, admitted: &mut u64, sectors: u64) {
        invariant_sub!(
            self.alarm,
            *admitted,
            sectors,
            "sectors admitted for an owner"
        );
    }

    /// The staged blocks of a file were `before`, and are `now`.
    pub(crate) fn staged(&self, owners: Owners, before: u64, now: u64) {
        self.change(owners, |promises| {
            invariant_sub!(
                self.alarm,
                promises.staged,
                before * BLOCK_SECTORS,
                "sectors staged for an owner"
            );
            promises.staged += now * BLOCK_SECTORS;
        });
    }

    /// Sectors that are promised to an owner.
    pub(crate) fn promised(&self, owner: Owner) -> u64 {
        let all = self.promises.lock();
        all.get(&owner).map_or(0, |promises| promises.sectors())
    }

    /// Whether anything of one of these is staged.
    pub(crate) fn has_staged(&self, owners: impl IntoIterator<Item = Owner>) -> bool {
        let all = self.promises.lock();
        let mut promises = owners.into_iter().filter_map(|owner| all.get(&owner));
        promises.any(|promises| promises.staged > 0)
    }

    /// Waits a short time for those who were admitted, and may not need all of it. False if there is nobody.
    pub(crate) fn wait_for_others(&self, owners: impl IntoIterator<Item = Owner>) -> bool {
        let all = self.promises.lock();
        let mut promises = owners.into_iter().filter_map(|owner| all.get(&owner));
        let has_others = promises.any(|promises| promises.admitted > 0);
        if has_others {
            drop(self.given_back.wait_timeout(all, OTHERS_WAIT));
        }
        has_others
    }
}

impl Space {
    /// Admits somebody who is to stage `sectors`, unless `refuse` refuses it for one of the owners. It is told what else is promised to that
    /// owner.
    pub(crate) fn admit<R, E>(
        self: &Arc<Self>,
        owners: Owners,
        sectors: u64,
        mut refuse: impl FnMut(Owner, u64) -> Result<Option<R>, E>,
    ) -> Result<Result<Admitted, R>, E> {
        // From the look at what is promised until it is promised: of several at a time none gets what another has.
        let mut all = self.quota.promises.lock();
        for owner in owners.iter() {
            let promised = all.get(&owner).map_or(0, |promises| promises.sectors());
            if let Some(refused) = refuse(owner, promised)? {
                return Ok(Err(refused));
            }
        }
        for owner in owners.iter() {
            let promises = all.entry(owner).or_default();
            promises.admitted = promises.admitted.saturating_add(sectors);
        }
        Ok(Ok(Admitted {
            space: Arc::clone(self),
            owners,
            sectors,
            is_answered: false,
        }))
    }
}
