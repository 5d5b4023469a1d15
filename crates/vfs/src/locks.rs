//! Record locks (`fcntl`) and whole-file locks (`flock`), for doors that do not keep their own.

use crate::{Ino, Result, Vfs};

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

impl Vfs {
    /// The first lock in the way of `lock`, if there is one (`F_GETLK`).
    pub fn test_lock(&self, ino: Ino, lock: &FileLock) -> Result<Option<FileLock>> {
        unimplemented!()
    }

    /// Takes or releases a record lock. With `wait` it waits its turn, otherwise answers `EAGAIN`.
    pub fn set_lock(&self, ino: Ino, lock: &FileLock, wait: bool) -> Result<()> {
        unimplemented!()
    }

    /// Takes, converts or releases a lock on the whole file (`flock`), apart from record locks.
    pub fn flock(&self, ino: Ino, owner: LockOwner, kind: LockKind, wait: bool) -> Result<()> {
        unimplemented!()
    }

    /// Releases all locks of `owner` on the file.
    pub fn release_locks(&self, ino: Ino, owner: LockOwner) {
        unimplemented!()
    }
}
