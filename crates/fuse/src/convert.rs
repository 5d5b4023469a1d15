//! The protocol's types to those of the vfs, and back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, Generation, INodeNo, Request, TimeOrNow};
use persimmon_vfs::{Attr, Caller, FileKind, Ino, SetTime, Timestamp};

pub fn ino(number: INodeNo) -> Ino {
    Ino(number.0)
}

pub fn node(ino: Ino) -> INodeNo {
    INodeNo(ino.0)
}

pub fn generation(attr: &Attr) -> Generation {
    Generation(attr.generation)
}

/// The protocol tells neither the supplementary groups nor, except where files are made, the
/// mask.
pub fn caller(request: &Request, umask: u32) -> Caller {
    Caller {
        uid: request.uid(),
        gid: request.gid(),
        pid: request.pid(),
        umask,
        groups: None,
    }
}

pub fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

pub fn attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: node(attr.ino),
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: system_time(attr.btime),
        kind: file_type(attr.kind()),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: attr.blksize,
        flags: 0,
    }
}

/// A name that does not exist, for the kernel to remember: inode number 0.
pub fn negative() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 {
        UNIX_EPOCH.checked_sub(seconds)
    } else {
        UNIX_EPOCH.checked_add(seconds)
    };
    whole
        .and_then(|whole| whole.checked_add(Duration::from_nanos(time.nanoseconds.into())))
        .unwrap_or(UNIX_EPOCH)
}

/// The time the kernel sent. Before 1970 fuser counts the nanoseconds backwards from the second
/// instead of forwards (`-2 s + 0.8 s` becomes `-2.8 s`), which is undone here: the two parts of
/// the distance from 1970 are what the kernel said.
pub fn timestamp(time: SystemTime) -> Timestamp {
    let (seconds, nanoseconds) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (
            i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            after.subsec_nanos(),
        ),
        Err(error) => {
            let before = error.duration();
            let seconds = 0i64.checked_sub_unsigned(before.as_secs());
            (seconds.unwrap_or(i64::MIN), before.subsec_nanos())
        }
    };
    Timestamp {
        seconds,
        nanoseconds,
    }
}

pub fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::SpecificTime(time) => SetTime::At(timestamp(time)),
        TimeOrNow::Now => SetTime::Now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64, nanoseconds: u32) -> Timestamp {
        Timestamp {
            seconds,
            nanoseconds,
        }
    }

    #[test]
    fn times_to_the_kernel() {
        for (time, expected) in [
            (at(0, 1), UNIX_EPOCH + Duration::new(0, 1)),
            (
                at(-2, 800_000_000),
                UNIX_EPOCH - Duration::new(1, 200_000_000),
            ),
            (at(-1, 0), UNIX_EPOCH - Duration::new(1, 0)),
        ] {
            assert_eq!(system_time(time), expected);
        }
        // The ends of the range must not panic.
        system_time(at(i64::MAX, 999_999_999));
        system_time(at(i64::MIN, 0));
    }

    /// `utimensat` to a time before 1970 with nanoseconds came out up to two seconds early,
    /// because of how fuser joins the parts: this is its arithmetic.
    #[test]
    fn times_before_1970_come_as_the_kernel_sent_them() {
        let as_fuser_joins =
            |seconds: u64, nanoseconds| UNIX_EPOCH - Duration::new(seconds, nanoseconds);
        assert_eq!(
            timestamp(as_fuser_joins(2, 800_000_000)),
            at(-2, 800_000_000)
        );
        assert_eq!(timestamp(as_fuser_joins(2, 0)), at(-2, 0));
        assert_eq!(timestamp(UNIX_EPOCH + Duration::new(5, 7)), at(5, 7));
    }
}
