//! Quota: what owners take, and how much they may.

use persimmon_format::Ino;
use persimmon_format::inode::{Inode, Timestamp};
use persimmon_format::quota::{Counting, Grace, Owner, OwnerKind, QuotaState};

use super::Volume;
use crate::data::Admission;
use crate::engine::Engine;
use crate::error::Result;
use crate::meta::Transaction;
use crate::quota::{self, NewLimits, OwnerQuota};

/// The quota of a volume.
#[derive(Clone, Copy)]
pub struct Quotas<'a> {
    engine: &'a Engine,
}

impl<'a> Quotas<'a> {
    /// Of an open volume.
    #[must_use]
    pub fn of(volume: &'a Volume) -> Quotas<'a> {
        Quotas {
            engine: &volume.engine,
        }
    }

    /// Whether what owners take is counted, and their grace times.
    #[must_use]
    pub fn state(&self) -> QuotaState {
        self.engine.quotas.state()
    }

    /// Whether limits count now: what owners take is counted, and all of it is. Reads nothing.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        self.engine.space.quota.is_on() && self.state().counting == Counting::All
    }

    /// Whether inodes may have projects.
    #[must_use]
    pub fn has_projects(&self) -> bool {
        self.engine.quotas.has_feature()
    }

    /// Begins to count what owners take. It takes checkpoints if the volume never had quota, and what is there is counted in the background
    /// ([`Task::Count`](crate::Task::Count)). `anew`: even if it is counted already.
    pub fn turn_on(&self, anew: bool) -> Result<()> {
        self.engine.quotas.add_feature()?;
        self.engine.quotas.turn_on(anew)?;
        self.engine.data.turn_quota(true)
    }

    /// Counts and limits nothing any more. Limits and projects stay.
    pub fn turn_off(&self) -> Result<()> {
        self.engine.quotas.turn_off()?;
        self.engine.data.turn_quota(false)
    }

    /// Counts what is left of what was there when it was turned on. Returns when that is all.
    pub fn count(&self) -> Result<()> {
        while self.engine.quotas.count_some()? {}
        Ok(())
    }

    /// What somebody takes and may take.
    pub fn get(&self, owner: Owner) -> Result<OwnerQuota> {
        self.engine.quotas.get(owner)
    }

    /// Of everybody who takes anything, or is limited: users, groups and projects, by their numbers.
    pub fn list(&self) -> Result<Vec<OwnerQuota>> {
        self.engine.quotas.list()
    }

    /// Limits somebody. They may take more than that already ([`OwnerQuota::exceeds`]): nothing is lost, and they may take no more before it is
    /// less.
    ///
    /// # Errors
    /// [`Error::QuotaOff`](crate::Error::QuotaOff).
    pub fn set(&self, owner: Owner, limits: &NewLimits, now: Timestamp) -> Result<OwnerQuota> {
        self.engine.quotas.set(owner, limits, now.seconds)
    }

    /// For how long owners of a kind may exceed soft limits. It counts for those who exceed one from now on.
    pub fn set_grace(&self, kind: OwnerKind, grace: Grace) -> Result<()> {
        self.engine.quotas.set_grace(kind, grace)
    }

    /// Admits a write of `len` bytes at `offset` of a file, or of fewer unless it `is_whole`. Who is not limited is admitted whatever the
    /// limits are.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`](crate::Error::QuotaExceeded): not one byte more, or not all of them.
    pub fn admit(
        &self,
        ino: Ino,
        (offset, len): (u64, u64),
        (is_whole, is_limited): (bool, bool),
        now: Timestamp,
    ) -> Result<Admission> {
        let how = (is_whole, is_limited);
        let data = &self.engine.data;
        data.admit(ino, (offset, len), how, now.seconds)
    }

    /// Refuses a change after which an inode, which may be new, would take more of its owners' quota than there is. In a transaction that makes
    /// the change.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`](crate::Error::QuotaExceeded).
    pub fn admit_inode(
        &self,
        tx: &mut Transaction<'_>,
        (before, after): (Option<&Inode>, &Inode),
        now: Timestamp,
    ) -> Result<()> {
        let ledger = &self.engine.space.quota;
        // The transaction has the metadata: nothing here may ask for it again.
        if !ledger.is_on() {
            return Ok(());
        }
        let promised = |owner| ledger.promised(owner);
        quota::admit_inode(tx, (before, after), promised, now.seconds)
    }

    /// Tells whether somebody who was refused ([`Error::QuotaExceeded`](crate::Error::QuotaExceeded)) may be asked again: what is staged of them
    /// has been written, or others have given back what they were promised.
    pub fn settle(&self, owner: Owner) -> Result<bool> {
        self.engine.data.settle_promises(owner)
    }

    /// To be called after the owner, the group or the project of a file changed: what is staged of it is theirs from now on.
    pub fn owners_changed(&self, ino: Ino) -> Result<()> {
        match self.engine.space.quota.is_on() {
            true => self.engine.data.owners_changed(ino),
            false => Ok(()),
        }
    }
}
