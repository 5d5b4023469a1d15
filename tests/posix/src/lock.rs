//! flock, and record locks of open files.

use anyhow::Result;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::door::{Door, Lock, OpenFile};
use crate::expect::*;

crate::table!("lock":
    flock_excludes_other_open_files,
    flock_is_shared_by_readers,
    readers_share_and_writers_do_not,
    locks_of_one_file_split_and_join,
    the_last_close_lets_go,
);

const EXCLUSIVE: FlockOperation = FlockOperation::NonBlockingLockExclusive;
const SHARED: FlockOperation = FlockOperation::NonBlockingLockShared;

fn pair<D: Door>(d: &D) -> Result<(D::File, D::File)> {
    Ok((d.file("f", &[0; 1000])?, d.edit("f")?))
}

fn flock_excludes_other_open_files(d: &impl Door) -> Result<()> {
    let (one, two) = pair(d)?;
    one.flock(EXCLUSIVE)?;
    refused(two.flock(EXCLUSIVE), Errno::WOULDBLOCK)?;
    refused(two.flock(SHARED), Errno::WOULDBLOCK)?;
    one.flock(FlockOperation::Unlock)?;
    Ok(two.flock(EXCLUSIVE)?)
}

fn flock_is_shared_by_readers(d: &impl Door) -> Result<()> {
    let (one, two) = pair(d)?;
    one.flock(SHARED)?;
    two.flock(SHARED)?;
    // The attempt costs the shared lock.
    refused(one.flock(EXCLUSIVE), Errno::WOULDBLOCK)?;
    two.flock(EXCLUSIVE)?;
    refused(one.flock(SHARED), Errno::WOULDBLOCK)?;
    two.flock(SHARED)?;
    Ok(one.flock(SHARED)?)
}

fn readers_share_and_writers_do_not(d: &impl Door) -> Result<()> {
    let (one, two) = pair(d)?;
    one.lock(Lock::Read, 0, 10)?;
    two.lock(Lock::Read, 0, 10)?;
    refused(two.lock(Lock::Write, 5, 1), Errno::AGAIN)?;
    two.lock(Lock::Write, 10, 10)?;
    refused(one.lock(Lock::Read, 0, 11), Errno::AGAIN)?;
    d.file("g", b"")?.lock(Lock::Write, 0, 100)?;
    two.lock(Lock::Unlock, 0, 0)?;
    Ok(one.lock(Lock::Write, 0, 0)?)
}

/// What stops `other` from locking all for writing, lock after lock from the start.
fn held(other: &impl OpenFile) -> Result<Vec<(u64, u64)>> {
    let (mut held, mut start) = (Vec::new(), 0);
    while let Some((at, len)) = other.lock_holder(Lock::Write, start, 0)? {
        held.push((at, len));
        if len == 0 {
            break;
        }
        start = at + len;
    }
    Ok(held)
}

fn locks_of_one_file_split_and_join(d: &impl Door) -> Result<()> {
    let (file, other) = pair(d)?;
    file.lock(Lock::Write, 0, 100)?;
    file.lock(Lock::Unlock, 40, 20)?;
    equal(held(&other)?, vec![(0, 40), (60, 40)])?;
    file.lock(Lock::Read, 20, 60)?;
    equal(held(&other)?, vec![(0, 20), (20, 60), (80, 20)])?;
    file.lock(Lock::Write, 10, 80)?;
    equal(held(&other)?, vec![(0, 100)])?;
    file.lock(Lock::Write, 100, 0)?;
    equal(held(&other)?, vec![(0, 0)])?;
    file.lock(Lock::Unlock, 0, 0)?;
    equal(held(&other)?, vec![])
}

fn the_last_close_lets_go(d: &impl Door) -> Result<()> {
    let (one, two) = pair(d)?;
    one.lock(Lock::Write, 0, 0)?;
    drop(one);
    Ok(two.lock(Lock::Write, 0, 0)?)
}
