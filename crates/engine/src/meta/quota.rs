//! What owners take of the volume, counted where inodes change: the same code when it happens and when it is replayed, so no record tells of
//! it. Only what the main subvolume shows counts: taking a snapshot changes nothing, and neither does what is written to one.
//!
//! The counts are items of the tree, and nothing of them is kept elsewhere.

use persimmon_format::inode::Inode;
use persimmon_format::quota::{Counting, Limit, Owner, OwnerKind, Quota, QuotaState, SECTOR};
use persimmon_format::record::Op;
use persimmon_format::{Ino, Key, KeyKind, SubvolumeId};

use super::Meta;
use super::apply::{decode_inode, moved_of, read_inode};
use crate::error::{Error, Result};
use crate::faults::{Fault, fault};

/// A grace time that is under way is taken for a new one if that would end by this part of it later.
const GRACE_TOLERANCE: u32 = 64;

/// Owners that [`EnsuredOwners`] remembers: a file and its directory have six at most.
const ENSURED_OWNERS: usize = 8;

/// Those that an inode is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owners([u32; 3]);

impl Owners {
    pub(crate) fn of(inode: &Inode) -> Owners {
        Owners([inode.uid, inode.gid, inode.project])
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Owner> {
        let owners = OwnerKind::ALL.into_iter().zip(self.0);
        owners
            .map(|(kind, id)| Owner { kind, id })
            .filter(|owner| owner.kind != OwnerKind::Project || owner.id != 0)
    }
}

/// Whether a key is that of the state of quota, which [`Meta`] keeps.
pub(crate) fn is_state(key: &Key) -> bool {
    *key == QuotaState::KEY
}

/// By how much owners take more with a record.
pub(crate) struct Charges {
    /// As when the record began: none changes it and inodes too.
    state: QuotaState,
    more: Vec<(Owner, i64, i64)>,
}

impl Charges {
    pub(crate) fn new(meta: &Meta) -> Charges {
        Charges {
            state: meta.quota,
            more: Vec::new(),
        }
    }

    /// Whether an inode is counted.
    pub(crate) fn count(&self, ino: Ino) -> bool {
        self.state.counting != Counting::Off && counts(&self.state, ino)
    }

    fn add(&mut self, inode: &Inode, sectors: i64, inodes: i64) {
        for owner in Owners::of(inode).iter() {
            match self.more.iter_mut().find(|(other, _, _)| *other == owner) {
                Some((_, sum, count)) => {
                    *sum = sum.saturating_add(sectors);
                    *count += inodes;
                }
                None => self.more.push((owner, sectors, inodes)),
            }
        }
    }

    /// An inode that is counted is replaced by another.
    pub(crate) fn replace(&mut self, before: Option<&Inode>, after: Option<&Inode>) {
        if let Some(inode) = before {
            self.add(inode, -(inode.sectors as i64), -1);
        }
        if let Some(inode) = after {
            self.add(inode, inode.sectors as i64, 1);
        }
    }

    /// Counts them. Their items are in memory and intact ([`ensure`]).
    pub(crate) fn apply(self, meta: &mut Meta) -> Result<()> {
        for (owner, sectors, inodes) in self.more {
            if sectors == 0 && inodes == 0 || fault(Fault::OwnerNotCharged) {
                continue;
            }
            let mut quota = read(meta, owner)?.unwrap_or_default();
            let ends = (quota.bytes_grace_end, quota.inodes_grace_end);
            quota.charge(&self.state, sectors, inodes);
            if fault(Fault::GraceKept) {
                (quota.bytes_grace_end, quota.inodes_grace_end) = ends;
            }
            meta.put(&owner.key(), &quota.encode())?;
        }
        Ok(())
    }
}

pub(crate) fn counts(state: &QuotaState, ino: Ino) -> bool {
    ino.subvolume() == SubvolumeId::MAIN && (state.counts(ino) || fault(Fault::CountedAhead))
}

/// Makes sure that what owners take can be counted after these operations.
pub(crate) fn ensure(meta: &Meta, ops: &[Op]) -> Result<()> {
    if meta.quota.counting == Counting::Off {
        return Ok(());
    }
    let (mut last, mut ensured) = (None, EnsuredOwners::default());
    for op in ops {
        let both = match op {
            Op::Share(share) => [Some(share.from), Some(share.to)],
            Op::Put { key, .. } | Op::Delete { key } if key.kind != KeyKind::INODE => continue,
            // They change no space.
            Op::Touch { .. } => continue,
            // What is compressed anew where it goes may take less.
            Op::Move { version, ino, .. } => [moved_of(meta, *version, *ino), None],
            op => [op.ino(), None],
        };
        if let Op::Put { key, value } = op
            && counts(&meta.quota, key.ino)
        {
            ensured.add(meta, &decode_inode(key.ino, value)?)?;
        }
        for ino in both.into_iter().flatten() {
            if last != Some(ino) && counts(&meta.quota, ino) {
                meta.ensure(&Key::inode(ino))?;
                if let Some(inode) = read_inode(meta, ino)? {
                    ensured.add(meta, &inode)?;
                }
            }
            last = Some(ino);
        }
    }
    Ok(())
}

/// Owners whose items are known to be in memory and intact. Most operations of a record concern the same few.
#[derive(Default)]
struct EnsuredOwners(Vec<Owner>);

impl EnsuredOwners {
    fn add(&mut self, meta: &Meta, inode: &Inode) -> Result<()> {
        for owner in Owners::of(inode).iter() {
            if self.0.contains(&owner) {
                continue;
            }
            meta.ensure(&owner.key())?;
            read(meta, owner)?;
            if self.0.len() == ENSURED_OWNERS {
                self.0.clear();
            }
            self.0.push(owner);
        }
        Ok(())
    }
}

/// Has what owners take of a new volume, which has its root directory alone, be counted.
pub(crate) fn begin(meta: &mut Meta, root: &Inode) -> Result<()> {
    let state = QuotaState {
        counting: Counting::All,
        ..QuotaState::default()
    };
    meta.insert_stored(&QuotaState::KEY, &state.encode());
    meta.quota = state;
    let mut charges = Charges::new(meta);
    charges.replace(None, Some(root));
    charges.apply(meta)
}

/// What is stored of an owner.
pub(crate) fn read(meta: &Meta, owner: Owner) -> Result<Option<Quota>> {
    meta.get(&owner.key())?
        .map(|value| decode(owner, value))
        .transpose()
}

/// Decodes the value of an owner's item.
pub(crate) fn decode(owner: Owner, value: &[u8]) -> Result<Quota> {
    Quota::decode(value).map_err(|error| {
        let Owner { kind, id } = owner;
        Error::Inconsistent(format!("quota of {kind} {id}: {error}"))
    })
}

pub(crate) fn decode_state(value: &[u8]) -> Result<QuotaState> {
    QuotaState::decode(value)
        .map_err(|error| Error::Inconsistent(format!("state of quota: {error}")))
}

impl Meta {
    /// The state of quota is put or, without a value, removed.
    pub(crate) fn change_quota(&mut self, value: Option<&[u8]>) -> Result<()> {
        self.quota = match value {
            Some(value) => decode_state(value)?,
            None => QuotaState::default(),
        };
        Ok(())
    }

    /// Reads the state of quota off the tree.
    pub(crate) fn read_quota(&mut self) -> Result<()> {
        let value = self.get(&QuotaState::KEY)?.map(<[u8]>::to_vec);
        self.change_quota(value.as_deref())
    }
}

/// How much more of one thing somebody may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// So much.
    Fits,
    /// So much, and the grace time of the soft limit begins.
    BeginsGrace,
    /// No more.
    Exceeds,
}

/// Whether somebody who takes `used` of something may take `more`.
pub(crate) fn judge(
    limit: Limit,
    (used, more): (u64, u64),
    (grace_end, now): (i64, i64),
) -> Verdict {
    let then = used.saturating_add(more);
    if more == 0 {
        return Verdict::Fits;
    }
    let most = limit.hard.saturating_sub(fault(Fault::LimitTooLow).into());
    if limit.hard != 0 && then > most && !fault(Fault::LimitIgnored) {
        return Verdict::Exceeds;
    }
    if !limit.is_exceeded(then) {
        return Verdict::Fits;
    }
    // Each time that it is exceeded anew, and where what was exceeded was set later.
    if !limit.is_exceeded(used) && !fault(Fault::GraceKept) || grace_end == 0 {
        return Verdict::BeginsGrace;
    }
    match now < grace_end || fault(Fault::GraceNotEnded) {
        true => Verdict::Fits,
        false => Verdict::Exceeds,
    }
}

/// What an owner may take, as of one moment.
pub(crate) struct Account {
    pub(crate) state: QuotaState,
    pub(crate) quota: Quota,
}

impl Account {
    pub(crate) fn of(meta: &Meta, owner: Owner) -> Result<Account> {
        Ok(Account {
            state: meta.quota,
            quota: read(meta, owner)?.unwrap_or_default(),
        })
    }

    /// Sectors that its owner may take beside those that are promised.
    pub(crate) fn room(&self, promised: u64, now: i64) -> u64 {
        let (limit, used) = (self.quota.bytes, self.quota.usage_in(self.state.round));
        let used = used.sectors.saturating_add(promised).saturating_mul(SECTOR);
        let hard = (limit.hard != 0).then_some(limit.hard);
        let is_over = limit.is_exceeded(used);
        let ended = is_over && self.quota.bytes_grace_end != 0 && now >= self.quota.bytes_grace_end;
        let most = if ended { 0 } else { hard.unwrap_or(u64::MAX) };
        most.saturating_sub(used) / SECTOR
    }

    /// Whether its owner may take more: sectors beside those that are `staged`, and inodes. Notes the grace time that begins with it.
    pub(crate) fn judge(
        &mut self,
        kind: OwnerKind,
        staged: u64,
        (sectors, inodes): (u64, u64),
        now: i64,
    ) -> Verdict {
        let (usage, grace) = (
            self.quota.usage_in(self.state.round),
            self.state.grace(kind),
        );
        let quota = &mut self.quota;
        let used = usage.sectors.saturating_add(staged);
        let bytes = judge(
            quota.bytes,
            (used.saturating_mul(SECTOR), sectors.saturating_mul(SECTOR)),
            (quota.bytes_grace_end, now),
        );
        let inodes = judge(
            quota.inodes,
            (usage.inodes, inodes),
            (quota.inodes_grace_end, now),
        );
        if bytes == Verdict::Exceeds || inodes == Verdict::Exceeds {
            return Verdict::Exceeds;
        }
        let begins = [
            bytes == Verdict::BeginsGrace
                && begin_grace(&mut quota.bytes_grace_end, grace.bytes, now),
            inodes == Verdict::BeginsGrace
                && begin_grace(&mut quota.inodes_grace_end, grace.inodes, now),
        ];
        match begins {
            [false, false] => Verdict::Fits,
            _ => Verdict::BeginsGrace,
        }
    }
}

/// Begins a grace time. False if that which is under way ends at nearly the same time: who writes around a soft limit need not tell each time.
fn begin_grace(end: &mut i64, grace: u32, now: i64) -> bool {
    let anew = now.saturating_add(grace.into());
    let tolerance = i64::from(grace / GRACE_TOLERANCE);
    let begins = *end <= now || anew.saturating_sub(*end).unsigned_abs() > tolerance.unsigned_abs();
    if begins {
        *end = anew;
    }
    begins
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        let limit = Limit { soft: 10, hard: 20 };
        let of = |used, more, grace_end| judge(limit, (used, more), (grace_end, 100));
        assert_eq!(of(0, 10, 0), Verdict::Fits);
        assert_eq!(of(0, 11, 0), Verdict::BeginsGrace);
        // It was exceeded before, and is exceeded anew: the old grace time does not count.
        assert_eq!(of(10, 1, 50), Verdict::BeginsGrace);
        assert_eq!(of(11, 1, 101), Verdict::Fits);
        assert_eq!(of(11, 1, 100), Verdict::Exceeds);
        assert_eq!(of(11, 1, 0), Verdict::BeginsGrace);
        assert_eq!(of(19, 1, 101), Verdict::Fits);
        assert_eq!(of(19, 2, 101), Verdict::Exceeds);
        // Who takes no more is never refused.
        assert_eq!(of(30, 0, 1), Verdict::Fits);
        assert_eq!(
            judge(Limit::default(), (u64::MAX, 1), (0, 0)),
            Verdict::Fits
        );
        let hard = Limit { soft: 0, hard: 5 };
        assert_eq!(judge(hard, (5, 1), (0, 0)), Verdict::Exceeds);
        assert_eq!(judge(hard, (4, 1), (0, 0)), Verdict::Fits);
    }
}
