//! Record locks (`fcntl`) and whole-file locks (`flock`), for doors that do not keep their own.

use persimmon_sync::{Condvar, Mutex, MutexGuard};
use std::collections::HashSet;

use persimmon_engine::InoMap;

use crate::{Error, Ino, Result, Vfs};

/// Whoever locks: a process, an open file description, as the door sees fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockOwner(pub u64);

/// What is locked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// Not any more.
    Unlock,
}

/// A lock on a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLock {
    /// Who.
    pub owner: LockOwner,
    /// Process to name in `F_GETLK`.
    pub pid: u32,
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `u64::MAX` is the end of every file.
    pub end: u64,
    /// What for.
    pub kind: LockKind,
}

impl FileLock {
    fn overlaps(&self, other: &FileLock) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    fn conflicts(&self, other: &FileLock) -> bool {
        self.owner != other.owner
            && self.overlaps(other)
            && (self.kind == LockKind::Write || other.kind == LockKind::Write)
    }

    /// Ends right before the other begins, or the other way round.
    fn touches(&self, other: &FileLock) -> bool {
        self.end.checked_add(1) == Some(other.start) || other.end.checked_add(1) == Some(self.start)
    }
}

/// Record locks and whole-file locks do not see each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    Records,
    Whole,
}

#[derive(Debug, Default)]
struct FileLocks {
    records: Vec<FileLock>,
    whole: Vec<FileLock>,
}

impl FileLocks {
    fn of(&self, space: Space) -> &[FileLock] {
        match space {
            Space::Records => &self.records,
            Space::Whole => &self.whole,
        }
    }

    fn of_mut(&mut self, space: Space) -> &mut Vec<FileLock> {
        match space {
            Space::Records => &mut self.records,
            Space::Whole => &mut self.whole,
        }
    }

    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.whole.is_empty()
    }
}

#[derive(Default)]
struct State {
    files: InoMap<FileLocks>,
    count: usize,
    /// Locks that are waited for, to detect deadlocks. What blocks each is looked up in the locks that are held: a released lock blocks
    /// nobody, even if the waiting thread has not run since.
    waits: Vec<Wait>,
}

/// A lock that its owner waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Wait {
    ino: Ino,
    space: Space,
    lock: FileLock,
}

impl State {
    fn conflicts(&self, ino: Ino, space: Space, lock: FileLock) -> impl Iterator<Item = &FileLock> {
        let file = self.files.get(&ino);
        let held = file.map_or(&[][..], |file| file.of(space));
        held.iter().filter(move |held| held.conflicts(&lock))
    }

    fn conflict(&self, ino: Ino, space: Space, lock: &FileLock) -> Option<FileLock> {
        let conflicts = self.conflicts(ino, space, *lock);
        conflicts.min_by_key(|held| held.start).copied()
    }

    /// Waiting for the lock, its owner would wait for itself.
    fn is_circle(&self, wait: &Wait) -> bool {
        let owner = wait.lock.owner;
        let mut seen = HashSet::new();
        let mut next = vec![*wait];
        while let Some(Wait { ino, space, lock }) = next.pop() {
            for blocker in self.conflicts(ino, space, lock) {
                if blocker.owner == owner {
                    return true;
                }
                if seen.insert(blocker.owner) {
                    let waits = self.waits.iter();
                    next.extend(waits.filter(|wait| wait.lock.owner == blocker.owner));
                }
            }
        }
        false
    }

    fn give_up_other_kind(&mut self, ino: Ino, lock: &FileLock) {
        if let Some(file) = self.files.get_mut(&ino) {
            let before = file.whole.len();
            let other = |held: &FileLock| held.owner == lock.owner && held.kind != lock.kind;
            file.whole.retain(|held| !other(held));
            self.count -= before - file.whole.len();
        }
    }

    /// Puts `lock` in place of what its owner holds of the range.
    fn apply(&mut self, ino: Ino, space: Space, lock: &FileLock, max: usize) -> Result<()> {
        let file = self.files.entry(ino).or_default();
        let held = file.of_mut(space);
        let before = held.len();
        let mut next = Vec::with_capacity(before + 2);
        let mut new = *lock;
        for old in held.iter() {
            if old.owner != lock.owner {
                next.push(*old);
            } else if old.kind == lock.kind && (old.overlaps(&new) || old.touches(&new)) {
                new.start = new.start.min(old.start);
                new.end = new.end.max(old.end);
            } else if old.overlaps(lock) {
                if old.start < lock.start {
                    next.push(FileLock {
                        end: lock.start - 1,
                        ..*old
                    });
                }
                if old.end > lock.end {
                    next.push(FileLock {
                        start: lock.end + 1,
                        ..*old
                    });
                }
            } else {
                next.push(*old);
            }
        }
        if lock.kind != LockKind::Unlock {
            next.push(new);
        }
        let count = self.count - before + next.len();
        // Giving up locks always works, even where a split makes one more.
        if count > max && lock.kind != LockKind::Unlock {
            if file.is_empty() {
                self.files.remove(&ino);
            }
            return Err(Error::TooManyLocks);
        }
        self.count = count;
        *held = next;
        if file.is_empty() {
            self.files.remove(&ino);
        }
        Ok(())
    }
}

pub(crate) struct LockTable {
    state: Mutex<State>,
    released: Condvar,
    max: usize,
}

impl LockTable {
    pub(crate) fn new(max: usize) -> LockTable {
        LockTable {
            state: Mutex::default(),
            released: Condvar::new(),
            max,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn set(&self, ino: Ino, space: Space, lock: &FileLock, wait: bool) -> Result<()> {
        if lock.start > lock.end {
            return Err(Error::Invalid("lock range"));
        }
        let mut state = self.lock();
        if space == Space::Whole {
            // As everywhere, converting gives up the old lock first: two that both convert from
            // shared to exclusive would wait for each other.
            state.give_up_other_kind(ino, lock);
            self.released.notify_all();
        }
        if lock.kind != LockKind::Unlock {
            let waiting = Wait {
                ino,
                space,
                lock: *lock,
            };
            while state.conflict(ino, space, lock).is_some() {
                if !wait {
                    return Err(Error::WouldBlock);
                }
                if space == Space::Records && state.is_circle(&waiting) {
                    return Err(Error::Deadlock);
                }
                state.waits.push(waiting);
                state = self.released.wait(state);
                // One of those that are equal is as good as another.
                if let Some(at) = state.waits.iter().position(|wait| *wait == waiting) {
                    state.waits.swap_remove(at);
                }
            }
        }
        let result = state.apply(ino, space, lock, self.max);
        drop(state);
        // A lock made smaller or weaker may be what another waits for.
        self.released.notify_all();
        result
    }

    fn release(&self, ino: Ino, owner: LockOwner) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(file) = state.files.get_mut(&ino) else {
            return;
        };
        for space in [Space::Records, Space::Whole] {
            let held = file.of_mut(space);
            let before = held.len();
            held.retain(|lock| lock.owner != owner);
            state.count -= before - held.len();
        }
        if file.is_empty() {
            state.files.remove(&ino);
        }
        drop(guard);
        self.released.notify_all();
    }
}

impl Vfs {
    /// The first lock in the way of `lock`, if there is one (`F_GETLK`).
    pub fn test_lock(&self, ino: Ino, lock: &FileLock) -> Result<Option<FileLock>> {
        if lock.start > lock.end || lock.kind == LockKind::Unlock {
            return Err(Error::Invalid("lock"));
        }
        Ok(self.locks.lock().conflict(ino, Space::Records, lock))
    }

    /// Takes or releases a record lock. With `wait` it waits its turn, otherwise answers `EAGAIN`.
    pub fn set_lock(&self, ino: Ino, lock: &FileLock, wait: bool) -> Result<()> {
        self.locks.set(ino, Space::Records, lock, wait)
    }

    /// Takes, converts or releases a lock on the whole file (`flock`), apart from record locks.
    pub fn flock(&self, ino: Ino, owner: LockOwner, kind: LockKind, wait: bool) -> Result<()> {
        let lock = FileLock {
            owner,
            pid: 0,
            start: 0,
            end: u64::MAX,
            kind,
        };
        self.locks.set(ino, Space::Whole, &lock, wait)
    }

    /// Releases all locks of `owner` on the file.
    pub fn release_locks(&self, ino: Ino, owner: LockOwner) {
        self.locks.release(ino, owner);
    }
}
