//! Inodes in use: which are open, and which have lost their last name but must stay.
//!
//! An inode has an entry here while it is open, and from losing its last name until it is
//! reclaimed. Whoever makes it both unlinked and unused reclaims it, and does so exactly once.

use persimmon_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use persimmon_sync::{Arc, Mutex, MutexGuard};
use std::collections::VecDeque;

use persimmon_engine::InoMap;
use persimmon_format::{Ino, SubvolumeId};

use crate::lifetimes::LifetimeHint;
use crate::{Error, Result};

const SHARDS: usize = 64;
/// Inodes in a shard of which is remembered that they were emptied while nobody had them open.
const EMPTIED_MAX: usize = 16;

/// What is remembered about an open inode. All flags are shortcuts: unset, the inode is asked.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// Truncated to nothing since it was opened.
    pub(crate) truncated: AtomicBool,
    pub(crate) privileges: Privileges,
    /// The access time is later than the last change.
    pub(crate) accessed: AtomicBool,
    /// The lifetime told last of an open file of it.
    pub(crate) hint: LifetimeHint,
}

/// Whether an open inode is known to have neither setuid, setgid nor file capabilities: a write has
/// nothing to clear then. Changes are counted, so that who looked before one does not take what it
/// saw for what is there after it.
#[derive(Debug, Default)]
pub(crate) struct Privileges {
    changes: AtomicU64,
    /// One more than the changes there had been when somebody looked and found none of them.
    absent: AtomicU64,
}

impl Privileges {
    /// To be asked before the inode is looked at, and given to [`Privileges::none_found`] after that.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(crate) fn none_found(&self, changes: u64) {
        self.absent.store(changes + 1, Ordering::Release);
    }

    pub(crate) fn are_absent(&self) -> bool {
        self.absent.load(Ordering::Acquire) == self.changes() + 1
    }

    /// The inode may have some since its last change.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }
}

#[derive(Debug, Default)]
struct NodeEntry {
    node: Arc<Node>,
    opens: u32,
    /// Operations that change it by its number alone, open or not.
    pins: u32,
    /// Has no name.
    unlinked: bool,
    /// Unlinked, and the kernel may still refer to it.
    held: bool,
    /// May get a name again (`O_TMPFILE`).
    linkable: bool,
    /// Being freed.
    reclaiming: bool,
}

impl NodeEntry {
    fn is_used(&self) -> bool {
        self.opens > 0 || self.pins > 0
    }

    /// Claims it for reclaiming if nothing keeps it.
    fn claim(&mut self) -> bool {
        let free = self.unlinked && !self.is_used() && !self.held && !self.reclaiming;
        self.reclaiming |= free;
        free
    }
}

#[derive(Default)]
struct Shard {
    entries: InoMap<NodeEntry>,
    /// Emptied by name while nobody had them open, and not written and closed since; the oldest
    /// first. A bound, since most of them are never opened again.
    emptied: VecDeque<Ino>,
}

pub(crate) struct Nodes {
    shards: [Mutex<Shard>; SHARDS],
    reclaims: AtomicU64,
}

impl Default for Nodes {
    fn default() -> Nodes {
        Nodes {
            shards: std::array::from_fn(|_| Mutex::default()),
            reclaims: AtomicU64::new(0),
        }
    }
}

impl Nodes {
    fn shard(&self, ino: Ino) -> MutexGuard<'_, Shard> {
        // The remainder is below the length.
        let shard = &self.shards[(ino.0 % SHARDS as u64) as usize];
        shard.lock()
    }

    /// Counts one more user. Refused while the inode is being freed.
    pub(crate) fn acquire(&self, ino: Ino) -> Result<Arc<Node>> {
        let mut shard = self.shard(ino);
        let emptied = shard.emptied.contains(&ino);
        let entry = shard.entries.entry(ino).or_default();
        if entry.reclaiming {
            return Err(Error::Stale);
        }
        entry.opens += 1;
        if emptied {
            entry.node.truncated.store(true, Ordering::Relaxed);
        }
        Ok(Arc::clone(&entry.node))
    }

    /// The inode was truncated to nothing: remembered as long as it is open, or, where it is not,
    /// until somebody has it open.
    pub(crate) fn emptied(&self, ino: Ino) {
        let mut shard = self.shard(ino);
        if let Some(entry) = shard.entries.get(&ino).filter(|entry| entry.opens > 0) {
            entry.node.truncated.store(true, Ordering::Relaxed);
        } else if !shard.emptied.contains(&ino) {
            if shard.emptied.len() == EMPTIED_MAX {
                shard.emptied.pop_front();
            }
            shard.emptied.push_back(ino);
        }
    }

    /// What came after that is in the history.
    pub(crate) fn filled(&self, ino: Ino) {
        self.shard(ino).emptied.retain(|emptied| *emptied != ino);
    }

    /// The node, if the inode is open.
    pub(crate) fn get(&self, ino: Ino) -> Option<Arc<Node>> {
        let shard = self.shard(ino);
        shard.entries.get(&ino).map(|e| Arc::clone(&e.node))
    }

    /// Counts one user less. The answer says that the caller must reclaim the inode.
    #[must_use]
    pub(crate) fn release(&self, ino: Ino) -> bool {
        self.leave(ino, |entry| entry.opens = entry.opens.saturating_sub(1))
    }

    /// Somebody changes an inode by its number alone: it stays meanwhile. Refused while it is being freed.
    pub(crate) fn pin(&self, ino: Ino) -> Result<()> {
        let mut shard = self.shard(ino);
        let entry = shard.entries.entry(ino).or_default();
        if entry.reclaiming {
            return Err(Error::Stale);
        }
        entry.pins += 1;
        Ok(())
    }

    /// Takes that back. The answer says that the caller must reclaim the inode.
    #[must_use]
    pub(crate) fn unpin(&self, ino: Ino) -> bool {
        self.leave(ino, |entry| entry.pins = entry.pins.saturating_sub(1))
    }

    fn leave(&self, ino: Ino, leave: impl FnOnce(&mut NodeEntry)) -> bool {
        let mut shard = self.shard(ino);
        let Some(entry) = shard.entries.get_mut(&ino) else {
            return false;
        };
        leave(entry);
        if !entry.is_used() && !entry.unlinked {
            shard.entries.remove(&ino);
            return false;
        }
        entry.claim()
    }

    /// The inode lost its last name; with `hold` the kernel may still refer to it. The answer says
    /// that the caller must reclaim it.
    #[must_use]
    pub(crate) fn unlinked(&self, ino: Ino, hold: bool) -> bool {
        let mut shard = self.shard(ino);
        let entry = shard.entries.entry(ino).or_default();
        entry.unlinked = true;
        entry.held = hold;
        entry.linkable = false;
        entry.claim()
    }

    /// A file was made without a name. It has one user already.
    pub(crate) fn nameless(&self, ino: Ino, hold: bool, linkable: bool) {
        let mut shard = self.shard(ino);
        let entry = shard.entries.entry(ino).or_default();
        entry.unlinked = true;
        entry.held = hold;
        entry.linkable = linkable;
    }

    /// The inode has no name, but may get one.
    pub(crate) fn is_linkable(&self, ino: Ino) -> bool {
        let shard = self.shard(ino);
        shard.entries.get(&ino).is_some_and(|e| e.linkable)
    }

    /// The inode got a name.
    pub(crate) fn linked(&self, ino: Ino) {
        let mut shard = self.shard(ino);
        if let Some(entry) = shard.entries.get_mut(&ino) {
            entry.unlinked = false;
            entry.held = false;
            entry.linkable = false;
            if !entry.is_used() {
                shard.entries.remove(&ino);
            }
        }
    }

    /// The inode has no name, and stays for the kernel.
    pub(crate) fn is_held(&self, ino: Ino) -> bool {
        let shard = self.shard(ino);
        shard.entries.get(&ino).is_some_and(|e| e.held)
    }

    /// The kernel no longer refers to the inode. The answer says that the caller must reclaim it.
    #[must_use]
    pub(crate) fn forget(&self, ino: Ino) -> bool {
        let mut shard = self.shard(ino);
        shard.entries.get_mut(&ino).is_some_and(|entry| {
            entry.held = false;
            entry.claim()
        })
    }

    /// A snapshot was deleted: nothing in it is in use any more, and what waited to be freed went with it.
    pub(crate) fn forget_subvolume(&self, id: SubvolumeId) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.entries.retain(|ino, _| ino.subvolume() != id);
            shard.emptied.retain(|ino| ino.subvolume() != id);
        }
        self.reclaims.fetch_add(1, Ordering::Relaxed);
    }

    /// The inode was freed.
    pub(crate) fn reclaimed(&self, ino: Ino) {
        let mut shard = self.shard(ino);
        self.reclaims.fetch_add(1, Ordering::Relaxed);
        shard.entries.remove(&ino);
    }

    /// How many inodes were freed so far. An inode that existed when this was read, and could be
    /// acquired, still exists if it has not changed after.
    pub(crate) fn reclaims(&self) -> u64 {
        self.reclaims.load(Ordering::Relaxed)
    }

    /// All inodes without a name, open or not: at the end, when handles are void.
    pub(crate) fn take_unlinked(&self) -> Vec<Ino> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            for (ino, entry) in shard.entries.iter_mut() {
                if entry.unlinked && !entry.reclaiming {
                    entry.reclaiming = true;
                    all.push(*ino);
                }
            }
        }
        all.sort_unstable();
        all
    }
}
