//! Quota: who is limited, and what is asked before somebody takes more; and the project of an inode, which what is made in a directory takes
//! from it.
//!
//! As with other filesystems a project keeps to its tree: into a directory that has one nothing is linked or renamed that has another.

use std::ops::ControlFlow;

use persimmon_engine::{Admission, Admitted, Intent, Quotas, Transaction};
use persimmon_format::inode::Inode;
use persimmon_format::quota::{Limit, Owner, OwnerKind};
use persimmon_format::{BLOCK_SIZE, Key, KeyKind, SubvolumeId};

use crate::handles::Open;
use crate::named::Target;
use crate::{Author, Caller, Error, Handle, Ino, Result, StatFs, Timestamp, Vfs, is_snapshots};

/// Entries of a directory that are looked at in one hold of the metadata lock, and inodes that one record gives a project.
const ENTRIES_AT_ONCE: usize = 64;
/// Times that a change is tried anew before it is refused: others may come between.
const LOOKS_MAX: u32 = 64;

/// Refuses to give an inode a name in a directory of another project.
pub(crate) fn check_same_project(dir: &Inode, inode: &Inode) -> Result<()> {
    match dir.project {
        0 => Ok(()),
        project if project == inode.project => Ok(()),
        _ => Err(Error::OtherProject),
    }
}

impl Vfs {
    /// Whether limits count for who calls.
    pub(crate) fn limits(&self, caller: &Caller) -> bool {
        self.options().limits_everybody || !caller.is_privileged()
    }

    /// The same of an author.
    pub(crate) fn limits_author(&self, author: Author) -> bool {
        self.options().limits_everybody || matches!(author, Author::User { .. })
    }

    /// Admits a write to a file, or the first bytes of it unless it `is_whole`. Limits count for who opened the file; what a kernel writes from
    /// its cache is anybody's.
    pub(crate) fn admit(
        &self,
        ino: Ino,
        open: Option<&Open>,
        (offset, len): (u64, u64),
        is_whole: bool,
    ) -> Result<Admission> {
        let quotas = Quotas::of(&self.volume);
        if !quotas.is_enforced() {
            let admitted = None;
            return Ok(Admission { len, admitted });
        }
        let is_limited = self.options().limits_everybody || open.is_none_or(|o| o.flags.is_limited);
        let how = (is_whole, is_limited);
        self.watch(quotas.admit(ino, (offset, len), how, self.now()))
    }

    /// The same of what is answered now and written later, by [`Vfs::write_promised`]: to be kept until then. `None` where nothing is counted.
    ///
    /// # Errors
    /// `EDQUOT`: not all of it may be written.
    pub fn admit_later(
        &self,
        ino: Ino,
        handle: Handle,
        (offset, len): (u64, u64),
    ) -> Result<Option<Admitted>> {
        let open = self.opened_to_write(ino, handle)?;
        let admission = self.admit(ino, open.as_deref(), (offset, len), true)?;
        Ok(admission.admitted.map(Admitted::for_later))
    }

    /// Refuses an inode, which may be new, with owners who may not take so much more. For a transaction that puts it.
    pub(crate) fn admit_inode(
        &self,
        tx: &mut Transaction<'_>,
        ino: Ino,
        (before, after): (Option<&Inode>, &Inode),
        now: Timestamp,
    ) -> Result<()> {
        if ino.subvolume() != SubvolumeId::MAIN {
            return Ok(());
        }
        let quotas = Quotas::of(&self.volume);
        Ok(quotas.admit_inode(tx, (before, after), now)?)
    }

    /// Makes a change that [admits an inode](Vfs::admit_inode). Before somebody is refused, what is staged of them is written, which may take
    /// less then: it is called without locks.
    pub(crate) fn with_admission<R>(&self, mut change: impl FnMut() -> Result<R>) -> Result<R> {
        for _ in 0..LOOKS_MAX {
            let result = change();
            if let Err(Error::QuotaExceeded(Some(refusal))) = &result
                && let persimmon_engine::Error::QuotaExceeded { owner } = **refusal
                && self.watch(Quotas::of(&self.volume).settle(owner))?
            {
                continue;
            }
            return result;
        }
        change()
    }

    /// [`Vfs::with_admission`] for a change in one transaction.
    pub(crate) fn change_admitted<R>(
        &self,
        intent: Intent,
        mut f: impl FnMut(&mut Transaction<'_>) -> Result<R>,
    ) -> Result<R> {
        self.with_admission(|| self.change(intent, &mut f))
    }

    /// The project of an inode; 0 is none.
    pub fn project(&self, ino: Ino) -> Result<u32> {
        Ok(self.inode(ino)?.project)
    }

    /// Gives an inode a project, or none; what is made in a directory from then on has it too.
    ///
    /// # Errors
    /// `EPERM`: `caller` is not privileged: who may choose the project chooses the limit. `EOPNOTSUPP`: quota was never turned on.
    pub fn set_project(&self, caller: &Caller, ino: Ino, project: u32) -> Result<()> {
        self.check_project(caller, ino)?;
        self.set_projects(&[ino], project)
    }

    /// The same of a directory and all that is in it, below it too. Returns how many inodes have it then. Where this ends early some have it.
    pub fn set_project_below(&self, caller: &Caller, top: Ino, project: u32) -> Result<u64> {
        self.check_project(caller, top)?;
        let mut directories = vec![top];
        let mut count = 1;
        // A directory first: what is made in it meanwhile has the project, and what is not of it does not get in.
        self.set_projects(&[top], project)?;
        while let Some(dir) = directories.pop() {
            if !self.inode(dir)?.is_dir() {
                continue;
            }
            let mut from = Some(0);
            while let Some(start) = from {
                let (entries, next) = self.entries(dir, start)?;
                let inos: Vec<Ino> = entries.iter().map(|target| target.ino).collect();
                self.set_projects(&inos, project)?;
                count += inos.len() as u64;
                let below = entries.iter().filter(|target| target.is_dir());
                directories.extend(below.map(|target| target.ino));
                from = next;
            }
        }
        Ok(count)
    }

    /// What some entries of a directory lead to, from an item on, and where it goes on.
    fn entries(&self, dir: Ino, from: u64) -> Result<(Vec<Target>, Option<u64>)> {
        self.view(|view| {
            let (mut entries, mut next) = (Vec::new(), None);
            let first = Key::new(dir, KeyKind::DIR_ENTRY, from);
            let names = first..Key::new(dir, KeyKind::EXTENT, 0);
            let passed = view.scan_some(names, |key, bytes| {
                if entries.len() >= ENTRIES_AT_ONCE {
                    next = Some(key.item);
                    return Ok(ControlFlow::Break(()));
                }
                if let Ok((_, target)) = Target::decode(dir, bytes) {
                    entries.push(target);
                }
                Ok(ControlFlow::Continue(()))
            })?;
            Ok((entries, next.or(passed.map(|key| key.item))))
        })
    }

    fn check_project(&self, caller: &Caller, ino: Ino) -> Result<()> {
        if !caller.is_privileged() || is_snapshots(ino) {
            return Err(Error::NotPermitted);
        }
        self.changeable(ino)?;
        match Quotas::of(&self.volume).has_projects() {
            true => Ok(()),
            false => Err(Error::QuotaOff),
        }
    }

    fn set_projects(&self, inos: &[Ino], project: u32) -> Result<()> {
        let at_once = (self.volume.transaction_ops_max() / 2).clamp(1, ENTRIES_AT_ONCE);
        for some in inos.chunks(at_once) {
            let mut times = Vec::with_capacity(some.len());
            for ino in some {
                times.push(match self.change_time(*ino) {
                    // Removed meanwhile.
                    Err(Error::Stale) => None,
                    time => Some(time?),
                });
            }
            self.change(Intent::Shrink, |tx| {
                for (ino, now) in some.iter().zip(&times) {
                    let (Some(mut inode), Some(now)) = (tx.inode(*ino)?, *now) else {
                        continue;
                    };
                    if inode.project != project {
                        inode.project = project;
                        inode.ctime = inode.ctime.next(now);
                        tx.put_inode(*ino, &inode);
                    }
                }
                Ok(())
            })?;
            for ino in some {
                self.watch(Quotas::of(&self.volume).owners_changed(*ino))?;
            }
        }
        Ok(())
    }

    /// Space and inodes where an inode is: of its project, if that is limited.
    pub fn statfs_at(&self, ino: Ino) -> Result<StatFs> {
        let whole = self.statfs()?;
        let quotas = Quotas::of(&self.volume);
        if ino.subvolume() != SubvolumeId::MAIN || !quotas.is_enforced() {
            return Ok(whole);
        }
        let id = self.inode(ino)?.project;
        if id == 0 {
            return Ok(whole);
        }
        let kind = OwnerKind::Project;
        let quota = self.watch(quotas.get(Owner { kind, id }))?;
        let of = |limit: Limit| {
            Some(limit.soft)
                .filter(|soft| *soft != 0)
                .unwrap_or(limit.hard)
        };
        let mut space = whole;
        let bytes = of(quota.bytes);
        if bytes != 0 {
            let block = BLOCK_SIZE as u64;
            let free = bytes.saturating_sub(quota.bytes_used()) / block;
            space.blocks = (bytes / block).min(whole.blocks);
            space.blocks_free = free.min(whole.blocks_free);
            space.blocks_available = free.min(whole.blocks_available);
        }
        let inodes = of(quota.inodes);
        if inodes != 0 {
            space.files = inodes.min(whole.files);
            space.files_free = inodes
                .saturating_sub(quota.usage.inodes)
                .min(whole.files_free);
        }
        Ok(space)
    }
}
