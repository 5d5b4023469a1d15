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

/// Who was waited for let go of its lock and asked for one of the waiter's, which did not run in between: refused as a circle.
#[test]
fn a_lock_that_was_let_go_of_makes_no_circle() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    for _ in 0..200 {
        set(&fs, ino, 1, 0, 0, Write).unwrap();
        set(&fs, ino, 2, 1, 1, Write).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                fs.vfs.set_lock(ino, &lock(2, 0, 0, Write), true).unwrap();
                set(&fs, ino, 2, 0, 1, Unlock).unwrap();
            });
            std::thread::sleep(std::time::Duration::from_millis(1));
            set(&fs, ino, 1, 0, 0, Unlock).unwrap();
            fs.vfs.set_lock(ino, &lock(1, 1, 1, Write), true).unwrap();
            set(&fs, ino, 1, 1, 1, Unlock).unwrap();
            waiter.join().unwrap();
        });
    }
}

/// Of several that were in the way only the first was looked at, and of several threads of an owner that wait only the last: a
/// circle through another was waited for without an end.
#[test]
fn a_circle_through_any_who_is_in_the_way_is_refused() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    set(&fs, ino, 1, 0, 0, Read).unwrap();
    set(&fs, ino, 2, 1, 1, Read).unwrap();
    set(&fs, ino, 3, 2, 3, Write).unwrap();
    set(&fs, ino, 4, 4, 4, Write).unwrap();
    std::thread::scope(|scope| {
        // 3 waits for 1 and 2, and in another thread for 4.
        let waits = [lock(3, 0, 1, Write), lock(3, 4, 4, Write)];
        let waiters = waits.map(|lock| {
            let vfs = &fs.vfs;
            let waiter = scope.spawn(move || vfs.set_lock(ino, &lock, true));
            std::thread::sleep(std::time::Duration::from_millis(100));
            waiter
        });
        // 1, 2 and 4 wait for 3, one after the other.
        for (owner, at) in [(1, 0), (2, 1), (4, 4)] {
            let refused = fs.vfs.set_lock(ino, &lock(owner, 2, 2, Write), true);
            assert!(matches!(refused, Err(Error::Deadlock)), "{owner}");
            set(&fs, ino, owner, at, at, Unlock).unwrap();
        }
        for waiter in waiters {
            waiter.join().unwrap().unwrap();
        }
    });
}
