//! Quota: what users, groups and projects take, and how much they may.

use std::path::Path;

use persimmon_engine::Quotas;
use persimmon_vfs::{
    Clock, Error as FilesystemError, Grace, NewLimits, Owner, OwnerKind, OwnerQuota, QuotaState,
};

use crate::path::Last;
use crate::{Filesystem, Result, SystemClock};

impl Filesystem {
    /// Whether what owners take is counted, and their grace times.
    #[must_use]
    pub fn quota_state(&self) -> QuotaState {
        Quotas::of(self.vfs().volume()).state()
    }

    /// Turns quota on: what owners take is counted from then on, and limits count. What is there is counted before this returns, which looks at
    /// every inode. Older versions of this library do not open the volume any more. With `anew` it is counted even if it was.
    ///
    /// # Errors
    /// The device fails. A count that is cut off goes on when the volume is opened again.
    pub fn turn_quota_on(&self, anew: bool) -> Result<()> {
        let vfs = self.vfs();
        let quotas = Quotas::of(vfs.volume());
        quotas.turn_on(anew).map_err(FilesystemError::from)?;
        Ok(quotas.count().map_err(FilesystemError::from)?)
    }

    /// Turns quota off. Limits and projects stay, for when it is turned on again.
    pub fn turn_quota_off(&self) -> Result<()> {
        Ok(Quotas::of(self.vfs().volume())
            .turn_off()
            .map_err(FilesystemError::from)?)
    }

    /// What everybody takes who takes anything, or is limited: users, groups, projects, each by number.
    pub fn quotas(&self) -> Result<Vec<OwnerQuota>> {
        Ok(Quotas::of(self.vfs().volume())
            .list()
            .map_err(FilesystemError::from)?)
    }

    /// What somebody takes, and may take.
    pub fn quota(&self, owner: Owner) -> Result<OwnerQuota> {
        Ok(Quotas::of(self.vfs().volume())
            .get(owner)
            .map_err(FilesystemError::from)?)
    }

    /// Limits somebody. They may take more than that already ([`OwnerQuota::exceeds`]): nothing is lost, and they may take no more before it is
    /// less. Writes beyond a limit are refused with `EDQUOT`: the library knows no users, so limits count whoever runs the program, unless
    /// [`VfsOptions::limits_everybody`](crate::VfsOptions::limits_everybody) is turned off.
    ///
    /// # Errors
    /// Quota is off.
    pub fn set_quota(&self, owner: Owner, limits: &NewLimits) -> Result<OwnerQuota> {
        let now = SystemClock.now();
        Ok(Quotas::of(self.vfs().volume())
            .set(owner, limits, now)
            .map_err(FilesystemError::from)?)
    }

    /// For how long owners of a kind may take more than a soft limit.
    pub fn set_quota_grace(&self, kind: OwnerKind, grace: Grace) -> Result<()> {
        Ok(Quotas::of(self.vfs().volume())
            .set_grace(kind, grace)
            .map_err(FilesystemError::from)?)
    }

    /// The project of what a path means; 0 is none.
    pub fn project(&self, path: impl AsRef<Path>) -> Result<u32> {
        let vfs = self.vfs();
        self.by_path(path.as_ref(), Last::Keep, |ino| vfs.project(ino))
    }

    /// Gives a directory and all that is in it a project, or none (0). What is made in it has it too. Returns how many inodes have it.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: quota was never on.
    pub fn set_project(&self, path: impl AsRef<Path>, project: u32) -> Result<u64> {
        let (vfs, caller) = (self.vfs(), self.mounted().caller());
        self.by_path(path.as_ref(), Last::Keep, |ino| {
            vfs.set_project_below(caller, ino, project)
        })
    }
}
