//! Quota: turning the count of what owners take on and off, and their limits. What is taken is counted where inodes change
//! (`meta/quota.rs`), and asked for where somebody writes (`data/quota.rs`).

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use persimmon_format::inode::Inode;
use persimmon_format::quota::{
    Counting, Grace, Limit, Owner, OwnerKind, Quota, QuotaState, SECTOR, Usage,
};
use persimmon_format::{Ino, Key, KeyKind};
use persimmon_sync::Arc;
use persimmon_sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::faults::{Fault, fault};
use crate::history::History;
use crate::meta::quota::{self, Account, Owners, Verdict};
use crate::meta::{Intent, Transaction};
use crate::reclaim::{Demand, Reclaimer};
use crate::space::Space;
use crate::store::Store;

/// Inodes that are counted with one record.
const INODES_MAX: usize = 64;

/// See the module.
pub(crate) struct Quotas {
    store: Arc<Store>,
    space: Arc<Space>,
    reclaimer: Arc<Reclaimer>,
    history: Arc<History>,
}

/// What somebody takes and may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerQuota {
    /// Who.
    pub owner: Owner,
    /// What is in the history.
    pub usage: Usage,
    /// Bytes that are written and not in the history yet; they may take less there.
    pub staged_bytes: u64,
    /// Limit of bytes.
    pub bytes: Limit,
    /// Limit of inodes.
    pub inodes: Limit,
    /// When the soft limit of bytes becomes a hard one, seconds since 1970, if more than it is taken.
    pub bytes_grace_end: Option<i64>,
    /// When the soft limit of inodes becomes a hard one, if more than it is taken.
    pub inodes_grace_end: Option<i64>,
}

impl OwnerQuota {
    fn new(owner: Owner, quota: &Quota, round: u32, staged_sectors: u64) -> OwnerQuota {
        let usage = quota.usage_in(round);
        let staged_bytes = staged_sectors.saturating_mul(SECTOR);
        let mut known = OwnerQuota {
            owner,
            usage,
            staged_bytes,
            bytes: quota.bytes,
            inodes: quota.inodes,
            bytes_grace_end: None,
            inodes_grace_end: None,
        };
        let end = |is_over: bool, end: i64| Some(end).filter(|end| is_over && *end != 0);
        known.bytes_grace_end = end(
            quota.bytes.is_exceeded(known.bytes_used()),
            quota.bytes_grace_end,
        );
        known.inodes_grace_end = end(
            quota.inodes.is_exceeded(usage.inodes),
            quota.inodes_grace_end,
        );
        known
    }

    /// Bytes taken, with those that are not in the history yet.
    #[must_use]
    pub fn bytes_used(&self) -> u64 {
        let sectors = self.usage.sectors.saturating_mul(SECTOR);
        sectors.saturating_add(self.staged_bytes)
    }

    /// Whether more is taken than there may ever be.
    #[must_use]
    pub fn exceeds(&self) -> bool {
        let exceeds = |limit: Limit, used| limit.hard != 0 && used > limit.hard;
        exceeds(self.bytes, self.bytes_used()) || exceeds(self.inodes, self.usage.inodes)
    }
}

/// Limits to set; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewLimits {
    /// Soft limit of bytes; 0 is none, as of all of them.
    pub bytes_soft: Option<u64>,
    /// Hard limit of bytes.
    pub bytes_hard: Option<u64>,
    /// Soft limit of inodes.
    pub inodes_soft: Option<u64>,
    /// Hard limit of inodes.
    pub inodes_hard: Option<u64>,
}

impl Quotas {
    pub(crate) fn new(
        store: &Arc<Store>,
        space: &Arc<Space>,
        reclaimer: &Arc<Reclaimer>,
        history: &Arc<History>,
    ) -> Quotas {
        let quotas = Quotas {
            store: Arc::clone(store),
            space: Arc::clone(space),
            reclaimer: Arc::clone(reclaimer),
            history: Arc::clone(history),
        };
        quotas.space.quota.turn(quotas.is_on());
        quotas.note_if_on();
        quotas
    }

    fn is_on(&self) -> bool {
        self.state().counting != Counting::Off
    }

    /// Tells transactions how much changes with an inode.
    fn note_if_on(&self) {
        let counts = &self.store.tuned.counts_owners;
        counts.store(self.is_on(), Ordering::Relaxed);
    }

    /// What is counted.
    pub(crate) fn state(&self) -> QuotaState {
        self.store.meta().quota
    }

    /// Whether the volume may have what goes with quota.
    pub(crate) fn has_feature(&self) -> bool {
        self.store.on_device().has_quota
    }

    /// From now on footers tell that there may be quota. They are durable before anything is written that needs it: programs that do not know
    /// it must not find it.
    pub(crate) fn add_feature(&self) -> Result<()> {
        self.store.check_writable()?;
        if self.has_feature() {
            return Ok(());
        }
        self.store.on_device().has_quota = true;
        // Is the newest footer damaged, the one before it tells it too.
        let told = self
            .reclaimer
            .serve(Demand::Checkpoint)
            .and_then(|()| self.reclaimer.serve(Demand::Checkpoint));
        told.inspect_err(|_| self.store.on_device().has_quota = false)
    }

    /// Begins to count, from nothing, unless it is counted already.
    pub(crate) fn turn_on(&self, anew: bool) -> Result<()> {
        self.change_state(|state| match state.counting {
            Counting::Off if fault(Fault::CountNotAnew) => QuotaState {
                counting: Counting::All,
                ..state
            },
            Counting::Off => state.anew(),
            _ if anew => state.anew(),
            _ => state,
        })
    }

    /// Nothing is counted any more. Limits stay as they are.
    pub(crate) fn turn_off(&self) -> Result<()> {
        self.change_state(|state| QuotaState {
            counting: Counting::Off,
            ..state
        })
    }

    /// Sets the grace times of a kind.
    pub(crate) fn set_grace(&self, kind: OwnerKind, grace: Grace) -> Result<()> {
        self.change_state(|mut state| {
            let kinds = OwnerKind::ALL.iter().zip(&mut state.graces);
            for (other, known) in kinds {
                if *other == kind {
                    *known = grace;
                }
            }
            state
        })
    }

    fn change_state(&self, change: impl Fn(QuotaState) -> QuotaState) -> Result<()> {
        if !self.has_feature() {
            return Err(Error::QuotaOff);
        }
        // Before it is on.
        self.store
            .tuned
            .counts_owners
            .store(true, Ordering::Relaxed);
        let changed = self.history.update(Intent::Shrink, |tx| {
            let before = tx.find(|meta| Ok(meta.quota))?;
            let after = change(before);
            if before != after {
                tx.put(QuotaState::KEY, after.encode());
            }
            Ok::<_, Error>(())
        });
        self.note_if_on();
        self.store.activity.note();
        changed
    }

    /// Counts some of the inodes that were there when the count began. False if there is nothing left to count.
    pub(crate) fn count_some(&self) -> Result<bool> {
        if !matches!(self.state().counting, Counting::Below(_)) {
            return Ok(false);
        }
        // Those of owners are reckoned with.
        let at_once = self.store.transaction_ops_max().clamp(1, INODES_MAX);
        self.history.update(Intent::Shrink, |tx| {
            let state = tx.find(|meta| Ok(meta.quota))?;
            let Counting::Below(from) = state.counting else {
                return Ok(false);
            };
            let (mut next, mut more) = (Some(from), BTreeMap::new());
            for _ in 0..at_once {
                let Some(start) = next else { break };
                let (found, rest) = next_inode(tx, Ino(start))?;
                next = rest.map(|ino| ino.0);
                let Found::Inode(inode) = found else {
                    if matches!(found, Found::Enough) {
                        break;
                    }
                    continue;
                };
                if let Some(inode) = inode {
                    for owner in Owners::of(&inode).iter() {
                        let usage: &mut Usage = more.entry(owner).or_default();
                        usage.sectors = usage.sectors.saturating_add(inode.sectors);
                        usage.inodes += 1;
                    }
                }
            }
            for (owner, usage) in more {
                let stored = tx.find(|meta| quota::read(meta, owner))?;
                let mut quota = stored.unwrap_or_default();
                let before = quota.usage_in(state.round);
                quota.round = state.round;
                quota.usage = Usage {
                    sectors: before.sectors.saturating_add(usage.sectors),
                    inodes: before.inodes.saturating_add(usage.inodes),
                };
                tx.put(owner.key(), quota.encode());
            }
            let counting = next.map_or(Counting::All, Counting::Below);
            let state = QuotaState { counting, ..state };
            tx.put(QuotaState::KEY, state.encode());
            Ok(true)
        })
    }

    /// What somebody takes and may take.
    pub(crate) fn get(&self, owner: Owner) -> Result<OwnerQuota> {
        let account = self
            .store
            .view::<_, Error>(|view| view.find(|meta| Account::of(meta, owner)))?;
        let promised = self.space.quota.promised(owner);
        let (quota, round) = (account.quota, account.state.round);
        Ok(OwnerQuota::new(owner, &quota, round, promised))
    }

    /// Of everybody who takes anything, or is limited.
    pub(crate) fn list(&self) -> Result<Vec<OwnerQuota>> {
        let round = self.state().round;
        let first = Key::new(Key::GLOBAL, KeyKind::QUOTA, 1);
        let end = Key::new(Key::GLOBAL, KeyKind(KeyKind::QUOTA.0 + 1), 0);
        let mut all = Vec::new();
        self.store.walk_while(
            (Bound::Included(first), Bound::Excluded(end)),
            |key, value| {
                let owner = Owner::of_key(&key)?;
                Some((owner, value.to_vec()))
            },
            |(owner, value)| {
                if let Ok(quota) = quota::decode(owner, &value) {
                    let promised = self.space.quota.promised(owner);
                    all.push(OwnerQuota::new(owner, &quota, round, promised));
                }
                ControlFlow::Continue(())
            },
        )?;
        let is_nothing = |known: &OwnerQuota| {
            known.usage == Usage::default()
                && known.staged_bytes == 0
                && known.bytes.is_none()
                && known.inodes.is_none()
        };
        all.retain(|known| !is_nothing(known));
        Ok(all)
    }

    /// Limits somebody. They may take more than that already: then they may take no more before it is less.
    pub(crate) fn set(&self, owner: Owner, limits: &NewLimits, now: i64) -> Result<OwnerQuota> {
        if self.state().counting == Counting::Off {
            return Err(Error::QuotaOff);
        }
        self.history.update(Intent::Shrink, |tx| {
            let account = tx.find(|meta| Account::of(meta, owner))?;
            let (mut quota, grace) = (account.quota, account.state.grace(owner.kind));
            let usage = quota.usage_in(account.state.round);
            let before = (quota.bytes, quota.inodes);
            let set = |known: &mut u64, new: Option<u64>| *known = new.unwrap_or(*known);
            set(&mut quota.bytes.soft, limits.bytes_soft);
            set(&mut quota.bytes.hard, limits.bytes_hard);
            set(&mut quota.inodes.soft, limits.inodes_soft);
            set(&mut quota.inodes.hard, limits.inodes_hard);
            // What is exceeded by the limit that is set now, and was not by the one before, is exceeded from now on. An end from when
            // somebody took too much once says nothing then.
            let begin = |limit: Limit, before: Limit, used: u64, end: &mut i64, seconds: u32| {
                if !limit.is_exceeded(used) {
                    *end = 0;
                } else if *end == 0 || !before.is_exceeded(used) {
                    *end = now.saturating_add(seconds.into());
                }
            };
            let bytes = usage.sectors.saturating_mul(SECTOR);
            let (bytes_end, inodes_end) = (&mut quota.bytes_grace_end, &mut quota.inodes_grace_end);
            begin(quota.bytes, before.0, bytes, bytes_end, grace.bytes);
            begin(
                quota.inodes,
                before.1,
                usage.inodes,
                inodes_end,
                grace.inodes,
            );
            tx.put(owner.key(), quota.encode());
            Ok::<_, Error>(())
        })?;
        self.get(owner)
    }
}

/// What is found first in the main subvolume from an inode number on.
enum Found {
    /// An inode; one that is damaged has no content, and is counted once it is mended.
    Inode(Option<Inode>),
    /// Items that lost their inode.
    Items,
    /// As many stored items that show nothing as should be looked at in a transaction.
    Enough,
}

/// The same, with the inode number to go on at, if there may be more.
fn next_inode(tx: &Transaction<'_>, from: Ino) -> Result<(Found, Option<Ino>)> {
    let following = |ino: Ino| Some(Ino(ino.0 + 1)).filter(|ino| *ino == ino.plain());
    let (mut found, mut rest) = (Found::Items, None);
    let end = Key::inode(Ino(Ino(u64::MAX).plain().0));
    let passed = tx.scan_some(Key::inode(from)..end, |key, value| {
        if key.kind == KeyKind::INODE {
            found = Found::Inode(Inode::decode(value).ok());
        }
        rest = following(key.ino);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(match passed {
        // Where it is in the midst of an inode's items there is no inode: that comes first.
        Some(key) => (
            Found::Enough,
            if key.kind == KeyKind::INODE {
                Some(key.ino)
            } else {
                following(key.ino)
            },
        ),
        None => (found, rest),
    })
}

/// Refuses a change after which an inode would take more of its owners' quota than there is. Of those that had it before it takes only what
/// it has more than then.
pub(crate) fn admit_inode(
    tx: &mut Transaction<'_>,
    (before, after): (Option<&Inode>, &Inode),
    promised: impl Fn(Owner) -> u64,
    now: i64,
) -> Result<()> {
    let state = tx.find(|meta| Ok(meta.quota))?;
    if state.counting != Counting::All {
        return Ok(());
    }
    for owner in Owners::of(after).iter() {
        let had = before.filter(|before| Owners::of(before).iter().any(|other| other == owner));
        // An inode that shrinks asks for nothing.
        let more = match had {
            Some(before) => (after.sectors.saturating_sub(before.sectors), 0),
            None => (after.sectors, 1),
        };
        if more == (0, 0) {
            continue;
        }
        // What this transaction did before may have begun a grace time.
        let stored = tx.get(&owner.key())?;
        let quota = stored
            .map(|value| quota::decode(owner, value))
            .transpose()?;
        let quota = quota.unwrap_or_default();
        let mut account = Account { state, quota };
        match account.judge(owner.kind, promised(owner), more, now) {
            Verdict::Fits => {}
            Verdict::BeginsGrace => tx.put(owner.key(), account.quota.encode()),
            Verdict::Exceeds => return Err(Error::QuotaExceeded { owner }),
        }
    }
    Ok(())
}
