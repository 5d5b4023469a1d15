//! Record locks and whole-file locks.

use persimmon_vfs::{Error, FileLock, Ino, LockKind, LockOwner, Result};

use crate::fixture::Fixture;
use LockKind::{Read, Unlock, Write};

fn lock(owner: u64, start: u64, end: u64, kind: LockKind) -> FileLock {
    FileLock {
        owner: LockOwner(owner),
        pid: owner as u32,
        start,
        end,
        kind,
    }
}

fn set(fs: &Fixture, ino: Ino, owner: u64, start: u64, end: u64, kind: LockKind) -> Result<()> {
    fs.vfs.set_lock(ino, &lock(owner, start, end, kind), false)
}

/// What stops owner 9 from locking all for writing, lock after lock from the start.
fn held(fs: &Fixture, ino: Ino) -> Vec<(u64, u64, u64, LockKind)> {
    let mut held = Vec::new();
    let mut start = 0;
    while let Some(found) = fs
        .vfs
        .test_lock(ino, &lock(9, start, u64::MAX, Write))
        .unwrap()
    {
        held.push((found.owner.0, found.start, found.end, found.kind));
        match found.end.checked_add(1) {
            Some(next) => start = next,
            None => break,
        }
    }
    held
}

#[test]
fn releasing_an_owner_releases_its_locks_alone() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    set(&fs, ino, 1, 0, 9, Read).unwrap();
    set(&fs, ino, 2, 0, 9, Read).unwrap();
    fs.vfs.flock(ino, LockOwner(1), Write, false).unwrap();
    fs.vfs.release_locks(ino, LockOwner(1));
    assert_eq!(held(&fs, ino), [(2, 0, 9, Read)]);
    fs.vfs.flock(ino, LockOwner(2), Write, false).unwrap();
}

#[test]
fn a_waiting_lock_gets_its_turn() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    set(&fs, ino, 1, 0, 9, Write).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| fs.vfs.set_lock(ino, &lock(2, 0, 9, Write), true));
        // Whether it waits already or not: it ends only after this.
        set(&fs, ino, 1, 0, 9, Unlock).unwrap();
        waiter.join().unwrap().unwrap();
    });
    assert_eq!(held(&fs, ino), [(2, 0, 9, Write)]);
}

#[test]
fn a_circle_of_waiters_is_refused() {
    let fs = Fixture::default();
    let a = fs.file("a", b"");
    let b = fs.file("b", b"");
    set(&fs, a, 1, 0, 0, Write).unwrap();
    set(&fs, b, 2, 0, 0, Write).unwrap();
    std::thread::scope(|scope| {
        // Each wants what the other has. Whoever asks second is refused, lets go of its own, and
        // then the first gets both.
        let want = |owner, mine, other| {
            let result = fs.vfs.set_lock(other, &lock(owner, 0, 0, Write), true);
            if result.is_err() {
                set(&fs, mine, owner, 0, 0, Unlock).unwrap();
            }
            result
        };
        let first = scope.spawn(move || want(1, a, b));
        let second = scope.spawn(move || want(2, b, a));
        let results = [first.join().unwrap(), second.join().unwrap()];
        let refused = |result: &Result<()>| matches!(result, Err(Error::Deadlock));
        assert_eq!(results.iter().filter(|r| refused(r)).count(), 1);
        assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 1);
    });
}
