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
fn readers_share_and_writers_do_not() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    set(&fs, ino, 1, 0, 9, Read).unwrap();
    set(&fs, ino, 2, 0, 9, Read).unwrap();
    assert!(matches!(
        set(&fs, ino, 2, 5, 5, Write),
        Err(Error::WouldBlock)
    ));
    set(&fs, ino, 2, 10, 19, Write).unwrap();
    assert!(matches!(
        set(&fs, ino, 1, 0, 10, Read),
        Err(Error::WouldBlock)
    ));
    let other = fs.file("g", b"");
    set(&fs, other, 1, 0, 100, Write).unwrap();
}

#[test]
fn locks_of_one_owner_split_and_join() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    set(&fs, ino, 1, 0, 99, Write).unwrap();
    set(&fs, ino, 1, 40, 59, Unlock).unwrap();
    assert_eq!(held(&fs, ino), [(1, 0, 39, Write), (1, 60, 99, Write)]);
    set(&fs, ino, 1, 20, 79, Read).unwrap();
    assert_eq!(
        held(&fs, ino),
        [(1, 0, 19, Write), (1, 20, 79, Read), (1, 80, 99, Write)]
    );
    set(&fs, ino, 1, 10, 89, Write).unwrap();
    assert_eq!(held(&fs, ino), [(1, 0, 99, Write)]);
    set(&fs, ino, 1, 100, u64::MAX, Write).unwrap();
    assert_eq!(held(&fs, ino), [(1, 0, u64::MAX, Write)]);
    set(&fs, ino, 1, 0, u64::MAX, Unlock).unwrap();
    assert_eq!(held(&fs, ino), []);
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

#[test]
fn whole_file_locks_convert() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    let flock = |owner, kind| fs.vfs.flock(ino, LockOwner(owner), kind, false);
    flock(1, Read).unwrap();
    flock(2, Read).unwrap();
    assert!(matches!(flock(1, Write), Err(Error::WouldBlock)));
    // The attempt cost owner 1 its shared lock, as elsewhere.
    flock(2, Write).unwrap();
    assert!(matches!(flock(1, Read), Err(Error::WouldBlock)));
    flock(2, Read).unwrap();
    flock(1, Read).unwrap();
    flock(1, Unlock).unwrap();
    flock(2, Unlock).unwrap();
    flock(3, Write).unwrap();
    set(&fs, ino, 4, 0, 10, Write).unwrap();
}
