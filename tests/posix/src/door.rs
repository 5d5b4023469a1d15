//! A door: one way to reach a filesystem, by path and by open file.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, FileType, FlockOperation, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;

use crate::expect::{Moved, refused, same_bytes};

/// What an operation answers.
pub type Outcome<T> = rustix::io::Result<T>;

/// Seconds and nanoseconds since 1970.
pub type Time = (i64, i64);

/// What `stat` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of struct stat")]
pub struct Stat {
    pub ino: u64,
    /// With the bits of the type.
    pub mode: u32,
    pub nlink: u64,
    pub uid: u32,
    pub gid: u32,
    /// Major and minor number of a device.
    pub rdev: (u32, u32),
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
}

impl Stat {
    /// What it is.
    #[must_use]
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }
}

/// A new access or modification time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// `UTIME_OMIT`.
    Omit,
    /// `UTIME_NOW`.
    Now,
    /// This one.
    At(i64, i64),
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: OsString,
    /// The inode that it leads to.
    pub ino: u64,
    /// What that is.
    pub kind: FileType,
    /// Where a listing continues after it.
    pub next: u64,
}

impl Entry {
    /// Whether it is `.` or `..`.
    #[must_use]
    pub fn is_dot(&self) -> bool {
        matches!(self.name.as_bytes(), b"." | b"..")
    }
}

/// Somebody without privileges. Group and user number are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// User and group number.
    pub id: u32,
    /// A further group.
    pub group: Option<u32>,
}

impl User {
    /// The same as a member of a further group.
    #[must_use]
    pub const fn in_group(self, group: u32) -> User {
        User {
            group: Some(group),
            ..self
        }
    }
}

/// Two users who share nothing.
pub const ALICE: User = User {
    id: 4001,
    group: None,
};
/// The other one.
pub const BOB: User = User {
    id: 4002,
    group: None,
};

/// Kinds of record lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// None.
    Unlock,
}

/// An open file; dropped, it is closed.
#[allow(missing_docs, reason = "the system calls of their names")]
pub trait OpenFile: Send + Sync + Sized {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> Outcome<usize>;
    /// At the end, if it was opened with `O_APPEND`.
    fn write_at(&self, bytes: &[u8], at: u64) -> Outcome<usize>;
    fn stat(&self) -> Outcome<Stat>;
    fn truncate(&self, size: u64) -> Outcome<()>;
    fn allocate(&self, mode: FallocateFlags, at: u64, len: u64) -> Outcome<()>;
    fn copy_to(&self, at: u64, to: &Self, to_at: u64, len: usize) -> Outcome<usize>;
    /// `SEEK_DATA`.
    fn next_data(&self, from: u64) -> Outcome<u64>;
    /// `SEEK_HOLE`.
    fn next_hole(&self, from: u64) -> Outcome<u64>;
    /// `fsync`, of a directory too.
    fn sync(&self) -> Outcome<()>;
    /// `fdatasync`.
    fn sync_data(&self) -> Outcome<()>;
    fn flock(&self, operation: FlockOperation) -> Outcome<()>;
    /// A record lock of this open file, not waited for. `len` 0: to the end.
    fn lock(&self, lock: Lock, start: u64, len: u64) -> Outcome<()>;
    /// Start and length of the lock that would refuse this one.
    fn lock_holder(&self, lock: Lock, start: u64, len: u64) -> Outcome<Option<(u64, u64)>>;

    fn write_all_at(&self, bytes: &[u8], at: u64) -> Outcome<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.write_at(&bytes[done..], at + done as u64)? {
                0 => return Err(Errno::IO),
                written => done += written,
            }
        }
        Ok(())
    }

    /// As many bytes as there are, up to `len`.
    fn read(&self, at: u64, len: usize) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; len];
        let mut done = 0;
        while done < len {
            match self.read_at(&mut bytes[done..], at + done as u64)? {
                0 => break,
                read => done += read,
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    fn content(&self) -> Outcome<Vec<u8>> {
        self.read(
            0,
            usize::try_from(self.stat()?.size).map_err(|_| Errno::FBIG)? + 1,
        )
    }
}

/// One way to reach a filesystem. Paths begin in an empty directory; the last name of one is not followed if it is a
/// symbolic link.
#[allow(missing_docs, reason = "the system calls of their names")]
pub trait Door: Sync {
    type File: OpenFile;

    fn open(&self, path: impl AsRef<Path>, flags: OFlags, mode: u32) -> Outcome<Self::File>;
    fn stat(&self, path: impl AsRef<Path>) -> Outcome<Stat>;
    /// Whether the caller may do all of this (4 read, 2 write, 1 execute).
    fn access(&self, path: impl AsRef<Path>, mask: u32) -> Outcome<()>;
    fn mkdir(&self, path: impl AsRef<Path>, mode: u32) -> Outcome<()>;
    fn rmdir(&self, path: impl AsRef<Path>) -> Outcome<()>;
    /// `mode` with the bits of the type.
    fn mknod(&self, path: impl AsRef<Path>, mode: u32, device: (u32, u32)) -> Outcome<()>;
    fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Outcome<()>;
    fn readlink(&self, path: impl AsRef<Path>) -> Outcome<OsString>;
    fn link(&self, old: impl AsRef<Path>, new: impl AsRef<Path>) -> Outcome<()>;
    /// Gives an open file a name.
    fn link_open(&self, file: &Self::File, new: impl AsRef<Path>) -> Outcome<()>;
    fn unlink(&self, path: impl AsRef<Path>) -> Outcome<()>;
    fn rename_with(
        &self,
        old: impl AsRef<Path>,
        new: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> Outcome<()>;
    fn truncate(&self, path: impl AsRef<Path>, size: u64) -> Outcome<()>;
    fn chmod(&self, path: impl AsRef<Path>, mode: u32) -> Outcome<()>;
    fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Outcome<()>;
    fn utimens(&self, path: impl AsRef<Path>, atime: SetTime, mtime: SetTime) -> Outcome<()>;
    fn setxattr_with(
        &self,
        path: impl AsRef<Path>,
        name: &str,
        value: &[u8],
        flags: XattrFlags,
    ) -> Outcome<()>;
    fn getxattr(&self, path: impl AsRef<Path>, name: &str) -> Outcome<Vec<u8>>;
    fn listxattr(&self, path: impl AsRef<Path>) -> Outcome<Vec<String>>;
    fn removexattr(&self, path: impl AsRef<Path>, name: &str) -> Outcome<()>;
    /// The flags of `lsattr`.
    fn flags(&self, path: impl AsRef<Path>) -> Outcome<u32>;
    /// Sets them all.
    fn set_flags(&self, path: impl AsRef<Path>, flags: u32) -> Outcome<()>;
    /// At most so many entries behind a position, which is 0 at the start.
    fn list_from(&self, path: impl AsRef<Path>, from: u64, most: usize) -> Outcome<Vec<Entry>>;
    /// `sync` of all of the filesystem.
    fn sync(&self) -> Outcome<()>;
    /// Until the clock that stamps files has moved on.
    fn tick(&self);
    /// Does something as somebody else.
    fn as_user<T: Send>(
        &self,
        user: User,
        body: impl FnOnce(&Self) -> Result<T> + Send,
    ) -> Result<T>;
    /// Does something with another umask.
    fn with_umask<T: Send>(
        &self,
        umask: u32,
        body: impl FnOnce(&Self) -> Result<T> + Send,
    ) -> Result<T>;

    fn rename(&self, old: impl AsRef<Path>, new: impl AsRef<Path>) -> Outcome<()> {
        self.rename_with(old, new, RenameFlags::empty())
    }

    fn setxattr(&self, path: impl AsRef<Path>, name: &str, value: &[u8]) -> Outcome<()> {
        self.setxattr_with(path, name, value, XattrFlags::empty())
    }

    /// All entries but the dots.
    fn list(&self, path: impl AsRef<Path>) -> Outcome<Vec<Entry>> {
        let mut entries = self.list_from(path, 0, usize::MAX)?;
        entries.retain(|entry| !entry.is_dot());
        Ok(entries)
    }

    /// A new file for reading and writing with this content, mode 0644.
    fn file(&self, path: impl AsRef<Path>, content: &[u8]) -> Result<Self::File> {
        let (path, flags) = (path.as_ref(), OFlags::CREATE | OFlags::EXCL | OFlags::RDWR);
        let file = self.open(path, flags, 0o644);
        let file = file.with_context(|| format!("creating {}", path.display()))?;
        file.write_all_at(content, 0)?;
        Ok(file)
    }

    /// An existing file for reading and writing.
    fn edit(&self, path: impl AsRef<Path>) -> Outcome<Self::File> {
        self.open(path, OFlags::RDWR, 0)
    }

    /// A new directory, mode 0755.
    fn dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let made = self.mkdir(path, 0o755);
        made.with_context(|| format!("making {}", path.display()))
    }

    /// New directories, one in the other.
    fn dirs(&self, path: &str) -> Result<()> {
        for (end, _) in path.match_indices('/').chain([(path.len(), "")]) {
            match self.mkdir(&path[..end], 0o777) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The low twelve bits of the mode.
    fn mode(&self, path: impl AsRef<Path>) -> Outcome<u32> {
        Ok(self.stat(path)?.mode & 0o7777)
    }

    /// The same, where nothing else is asked for: as `stat -c %a` does.
    fn mode_alone(&self, path: impl AsRef<Path>) -> Outcome<u32> {
        self.mode(path)
    }

    /// The inode number.
    fn ino(&self, path: impl AsRef<Path>) -> Outcome<u64> {
        Ok(self.stat(path)?.ino)
    }

    /// The file must hold exactly these bytes.
    fn holds(&self, path: impl AsRef<Path>, due: &[u8]) -> Result<()> {
        let path = path.as_ref();
        let of = || format!("content of {}", path.display());
        let file = self.open(path, OFlags::RDONLY, 0).with_context(of)?;
        same_bytes(&file.content()?, due).with_context(of)
    }

    /// The path must name nothing.
    fn gone(&self, path: impl AsRef<Path>) -> Result<()> {
        refused(self.stat(path), Errno::NOENT)
    }

    /// Removes a file, or a directory with all that is in it.
    fn remove_all(&self, path: &Path) -> Result<()> {
        if self.stat(path)?.kind() != FileType::Directory {
            return Ok(self.unlink(path)?);
        }
        for entry in self.list(path)? {
            self.remove_all(&path.join(entry.name))?;
        }
        Ok(self.rmdir(path)?)
    }

    /// Runs `body` when the clock has surely moved on and tells which times of `path` did.
    fn moved<T>(&self, path: impl AsRef<Path>, body: impl FnOnce() -> Result<T>) -> Result<Moved> {
        let path = path.as_ref();
        let before = self.stat(path)?;
        self.tick();
        body()?;
        let after = self.stat(path)?;
        ensure!(
            after.mtime >= before.mtime && after.ctime >= before.ctime,
            "a time went back"
        );
        Ok(Moved {
            mtime: after.mtime > before.mtime,
            ctime: after.ctime > before.ctime,
        })
    }
}
