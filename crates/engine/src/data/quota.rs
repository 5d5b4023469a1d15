//! Quota at the door: who is about to write is admitted, or told that the quota of one of the file's owners is exhausted. What is staged counts
//! as if it took whole blocks until it is in the tree.

use persimmon_format::extent::Extent;
use persimmon_format::inode::Inode;
use persimmon_format::quota::{Counting, Owner, Quota};
use persimmon_format::{Ino, SubvolumeId};

use super::staged::Staged;
use super::{FileData, block_of, blocks_in};
use crate::error::{Error, Result};
use crate::meta::Intent;
use crate::meta::quota::{self, Account, Owners, Verdict};
use crate::space::{Admitted, BLOCK_SECTORS};
use persimmon_device::BLOCK_SIZE;

/// Looks for room until it is said that there is none: others may come between.
const LOOKS_MAX: u32 = 64;

/// Somebody whose grace time begins.
type Begins = Vec<(Owner, Quota)>;

/// How it ended that somebody asked to be admitted.
enum Asked {
    Admitted(Admitted, Begins),
    /// This owner may take no more, or only these sectors.
    Refused(Owner, u64),
}

/// What of a write is admitted.
pub struct Admission {
    /// Bytes of it, from its beginning.
    pub len: u64,
    /// To be kept until these are written; `None` if nothing is counted.
    pub admitted: Option<Admitted>,
}

impl FileData {
    /// Counts what is staged of a file for its owners; to be called after each change of that, before the file's lock is given back.
    pub(super) fn count_staged(&self, staged: &mut Staged) {
        let ledger = &self.space.quota;
        if !ledger.is_on() && staged.counted == 0 {
            return;
        }
        let Some(owners) = staged.owners else { return };
        let now = match ledger.is_on() {
            true => staged.staged_blocks(),
            false => 0,
        };
        if now != staged.counted {
            ledger.staged(owners, staged.counted, now);
            staged.counted = now;
        }
    }

    /// What is staged of a file is that of its present owners: after these changed.
    pub(crate) fn owners_changed(&self, ino: Ino) -> Result<()> {
        let Some(file) = self.files.get(ino) else {
            return Ok(());
        };
        let inode: Option<Inode> = self.store.view(|view| view.inode(ino))?;
        if let Some(inode) = inode {
            self.set_owners(&mut file.lock(), ino, &inode);
        }
        self.files.forget_if_clean_of(ino, file);
        Ok(())
    }

    /// What is written to a snapshot is nobody's, while it is staged as well as later.
    pub(super) fn set_owners(&self, staged: &mut Staged, ino: Ino, inode: &Inode) {
        if ino.subvolume() != SubvolumeId::MAIN {
            return;
        }
        let owners = Owners::of(inode);
        if staged.owners == Some(owners) {
            return;
        }
        if let Some(before) = staged.owners.replace(owners)
            && staged.counted > 0
        {
            self.space.quota.staged(before, staged.counted, 0);
            self.space.quota.staged(owners, 0, staged.counted);
        }
    }

    /// Admits a write of `len` bytes at `offset`, or of fewer unless it `is_whole`. One who is not limited is admitted whatever the limits are,
    /// and what it takes counts.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`]: not one byte more, or not all of them.
    pub(crate) fn admit(
        &self,
        ino: Ino,
        (offset, len): (u64, u64),
        (is_whole, is_limited): (bool, bool),
        now: i64,
    ) -> Result<Admission> {
        let everything = Admission {
            len,
            admitted: None,
        };
        if len == 0 || !self.counts(ino) {
            return Ok(everything);
        }
        let Some(inode) = self.store.view::<_, Error>(|view| view.inode(ino))? else {
            return Ok(everything);
        };
        let owners = Owners::of(&inode);
        let first = block_of(offset);
        let mut len = len;
        let mut looks = 0;
        // What the blocks take that the write replaces, once it matters.
        let mut taken = None;
        loop {
            let end = blocks_in(offset.saturating_add(len));
            let all = (end - first).saturating_mul(BLOCK_SECTORS);
            let more = all.saturating_sub(taken.unwrap_or(0));
            let (owner, room) = match self.ask(owners, more, is_limited, now)? {
                Asked::Admitted(admitted, begins) => {
                    self.begin_grace(&begins)?;
                    return Ok(Admission {
                        len,
                        admitted: Some(admitted),
                    });
                }
                Asked::Refused(owner, room) => (owner, room),
            };
            looks += 1;
            if looks > LOOKS_MAX {
                return Err(Error::QuotaExceeded { owner });
            }
            // What is overwritten pays first: nobody waits for others of the same group for that.
            if taken.is_none() {
                taken = Some(self.sectors_taken(ino, first, end)?);
                continue;
            }
            // What is staged may take less once it is written, and so may what others are about to write.
            if self.space.quota.wait_for_others(owners.iter()) {
                continue;
            }
            if self.space.quota.has_staged(owners.iter()) && self.write_back_queued()? > 0 {
                taken = None;
                continue;
            }
            if is_whole {
                return Err(Error::QuotaExceeded { owner });
            }
            let blocks = room.saturating_add(taken.unwrap_or(0)) / BLOCK_SECTORS;
            let fits = first
                .saturating_add(blocks)
                .saturating_mul(BLOCK_SIZE as u64);
            // Where the last blocks take nothing, those before them take all that was found.
            match fits
                .checked_sub(offset)
                .filter(|fits| (1..len).contains(fits))
            {
                Some(fits) => {
                    len = fits;
                    taken = None;
                }
                None => return Err(Error::QuotaExceeded { owner }),
            }
        }
    }

    /// Before an owner is refused: has less promised to it, if that is possible. What is staged may take less once it is written, and so may what
    /// others are about to write.
    pub(crate) fn settle_promises(&self, owner: Owner) -> Result<bool> {
        let ledger = &self.space.quota;
        Ok(ledger.wait_for_others([owner])
            || ledger.has_staged([owner]) && self.write_back_queued()? > 0)
    }

    /// Whether what is written to a file is counted, and limited.
    fn counts(&self, ino: Ino) -> bool {
        if !self.space.quota.is_on() {
            return false;
        }
        let state = self.store.meta().quota;
        state.counting == Counting::All && quota::counts(&state, ino)
    }

    fn ask(&self, owners: Owners, sectors: u64, is_limited: bool, now: i64) -> Result<Asked> {
        self.store.view::<_, Error>(|view| {
            let mut begins = Begins::new();
            let asked = self
                .space
                .admit::<_, Error>(owners, sectors, |owner, promised| {
                    let mut account = view.find(|meta| Account::of(meta, owner))?;
                    let verdict = account.judge(owner.kind, promised, (sectors, 0), now);
                    match verdict {
                        Verdict::Exceeds if is_limited => {
                            return Ok(Some((owner, account.room(promised, now))));
                        }
                        Verdict::BeginsGrace => begins.push((owner, account.quota)),
                        Verdict::Exceeds | Verdict::Fits => {}
                    }
                    Ok(None)
                })?;
            Ok(match asked {
                Ok(admitted) => Asked::Admitted(admitted, begins),
                Err((owner, room)) => Asked::Refused(owner, room),
            })
        })
    }

    /// Makes the ends of grace times known.
    fn begin_grace(&self, begins: &[(Owner, Quota)]) -> Result<()> {
        if begins.is_empty() {
            return Ok(());
        }
        self.history.update(Intent::Shrink, |tx| {
            for (owner, begun) in begins {
                let stored = tx.find(|meta| quota::read(meta, *owner))?;
                let Some(stored) = stored else { continue };
                let quota = Quota {
                    bytes_grace_end: begun.bytes_grace_end,
                    ..stored
                };
                tx.put(owner.key(), quota.encode());
            }
            Ok(())
        })
    }

    /// Sectors that blocks of a file take in the tree.
    fn sectors_taken(&self, ino: Ino, first: u64, end: u64) -> Result<u64> {
        self.store.view::<_, Error>(|view| {
            let extents = view.extents(ino, first, end, usize::MAX)?;
            let sectors = extents.iter().map(|mapped| {
                let within = mapped.end().min(end) - mapped.block.max(first);
                match &mapped.extent {
                    Extent::Frame { .. }
                    | Extent::Reserved { .. }
                    | Extent::Shared { frame: None, .. } => within * BLOCK_SECTORS,
                    // What takes less than whole blocks gives back at least nothing.
                    _ => 0,
                }
            });
            Ok(sectors.sum())
        })
    }

    /// Counts what is staged from now on, or no longer.
    pub(crate) fn turn_quota(&self, is_on: bool) -> Result<()> {
        self.space.quota.turn(is_on);
        for ino in self.files.all() {
            let Some(file) = self.files.get(ino) else {
                continue;
            };
            if is_on {
                self.owners_changed(ino)?;
            }
            self.count_staged(&mut file.lock());
            self.files.forget_if_clean_of(ino, file);
        }
        Ok(())
    }
}
