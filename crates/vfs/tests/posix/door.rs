//! The operations of `Vfs` as a door of the POSIX statements: by path, of which no symbolic link is followed.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use persimmon_posix_tests::door::{Door, Entry, Lock, OpenFile, Outcome, SetTime, Stat, User};
use persimmon_posix_tests::{Statement, statements};
use persimmon_vfs::{
    Allocate, Attr, Author, Caller, Error, FileKind, FileLock, Handle, Ino, InodeFlags, Listing,
    LockKind, LockOwner, OpenFlags, Options, Processes, ROOT, RenameMode, SeekTo, SetAttr,
    Timestamp, WriteFlags, XattrMode,
};
use rustix::fs::{FallocateFlags, FileType, FlockOperation, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;

use crate::fixture::Fixture;

/// Reaches a filesystem as somebody.
#[derive(Clone)]
struct Through {
    fs: Arc<Fixture>,
    caller: Caller,
    author: Author,
}

/// Processes have the number of the further group that their user is in.
#[derive(Debug)]
struct ByNumber;

impl Processes for ByNumber {
    fn is_in_group(&self, pid: u32, gid: u32) -> bool {
        pid == gid
    }

    fn has_fsetid(&self, _pid: u32) -> bool {
        false
    }
}

struct File {
    door: Through,
    ino: Ino,
    handle: Handle,
    is_directory: bool,
}

fn errno(error: Error) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

fn time(time: Timestamp) -> (i64, i64) {
    (time.seconds, time.nanoseconds.into())
}

fn stat(attr: &Attr) -> Stat {
    let rdev = rustix::fs::Dev::from(attr.rdev);
    // As `new_encode_dev` of Linux has it.
    let (major, minor) = (rdev >> 8 & 0xfff, rdev & 0xff | rdev >> 12 & 0xfff00);
    Stat {
        ino: attr.ino.0,
        mode: attr.mode,
        nlink: attr.nlink.into(),
        uid: attr.uid,
        gid: attr.gid,
        rdev: (major as u32, minor as u32),
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
    }
}

impl Through {
    fn resolve(&self, path: &Path) -> Outcome<Ino> {
        let names = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
        let mut names = names.filter(|name| !name.is_empty());
        let found = names.try_fold(ROOT, |at, name| Ok(self.fs.vfs.lookup(at, name)?.ino));
        found.map_err(errno)
    }

    /// The directory and the name.
    fn split<'a>(&self, path: &'a Path) -> Outcome<(Ino, &'a [u8])> {
        let path = path.as_os_str().as_bytes();
        let end = path.iter().rposition(|byte| *byte == b'/');
        let (dir, name) = end.map_or((&b""[..], path), |end| (&path[..end], &path[end + 1..]));
        let dir = self.resolve(Path::new(std::ffi::OsStr::from_bytes(dir)))?;
        Ok((dir, name))
    }

    fn set(&self, path: impl AsRef<Path>, set: impl FnOnce(&mut SetAttr)) -> Outcome<()> {
        let ino = self.resolve(path.as_ref())?;
        self.set_of(ino, Handle::NONE, set)
    }

    fn set_of(&self, ino: Ino, handle: Handle, set: impl FnOnce(&mut SetAttr)) -> Outcome<()> {
        let mut attributes = SetAttr {
            author: self.author,
            ..SetAttr::default()
        };
        set(&mut attributes);
        let set = self.fs.vfs.setattr(ino, handle, &attributes);
        set.map(drop).map_err(errno)
    }

    fn opened(&self, ino: Ino, handle: Handle, is_directory: bool) -> File {
        File {
            door: self.clone(),
            ino,
            handle,
            is_directory,
        }
    }
}

impl Door for Through {
    type File = File;

    fn open(&self, path: impl AsRef<Path>, flags: OFlags, mode: u32) -> Outcome<File> {
        let (vfs, path) = (&self.fs.vfs, path.as_ref());
        let how = OpenFlags {
            author: self.author,
            ..OpenFlags::from_linux(flags.bits() as i32)
        };
        if flags.contains(OFlags::TMPFILE) {
            let dir = self.resolve(path)?;
            let made = vfs.tmpfile(&self.caller, dir, mode, how);
            let (attr, handle) = made.map_err(errno)?;
            return Ok(self.opened(attr.ino, handle, false));
        }
        if flags.contains(OFlags::CREATE) {
            let (dir, name) = self.split(path)?;
            let made = vfs.create(&self.caller, dir, name, mode, how);
            let (attr, handle) = made.map_err(errno)?;
            return Ok(self.opened(attr.ino, handle, false));
        }
        let opened = || {
            let ino = self.resolve(path)?;
            let is_directory = vfs.getattr(ino).map_err(errno)?.kind() == FileKind::Directory;
            let handle = if is_directory && !how.write {
                vfs.opendir(ino)
            } else {
                vfs.open(ino, how)
            };
            Ok(self.opened(ino, handle.map_err(errno)?, is_directory))
        };
        // Replaced between finding and opening it: like the kernel, look again.
        loop {
            match opened() {
                Err(Errno::STALE) => {}
                opened => return opened,
            }
        }
    }

    fn stat(&self, path: impl AsRef<Path>) -> Outcome<Stat> {
        let attr = self.fs.vfs.getattr(self.resolve(path.as_ref())?);
        attr.map(|attr| stat(&attr)).map_err(errno)
    }

    fn access(&self, path: impl AsRef<Path>, mask: u32) -> Outcome<()> {
        let ino = self.resolve(path.as_ref())?;
        self.fs.vfs.access(&self.caller, ino, mask).map_err(errno)
    }

    fn mkdir(&self, path: impl AsRef<Path>, mode: u32) -> Outcome<()> {
        let (dir, name) = self.split(path.as_ref())?;
        let made = self.fs.vfs.mkdir(&self.caller, dir, name, mode);
        made.map(drop).map_err(errno)
    }

    fn rmdir(&self, path: impl AsRef<Path>) -> Outcome<()> {
        let (dir, name) = self.split(path.as_ref())?;
        self.fs.vfs.rmdir(dir, name).map_err(errno)
    }

    fn mknod(&self, path: impl AsRef<Path>, mode: u32, device: (u32, u32)) -> Outcome<()> {
        let (dir, name) = self.split(path.as_ref())?;
        let (major, minor) = device;
        let rdev = minor & 0xff | major << 8 | (minor & !0xff) << 12;
        let made = self.fs.vfs.mknod(&self.caller, dir, name, mode, rdev);
        made.map(drop).map_err(errno)
    }

    fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Outcome<()> {
        let (dir, name) = self.split(path.as_ref())?;
        let target = target.as_ref().as_os_str().as_bytes();
        let made = self.fs.vfs.symlink(&self.caller, dir, name, target);
        made.map(drop).map_err(errno)
    }

    fn readlink(&self, path: impl AsRef<Path>) -> Outcome<OsString> {
        let target = self.fs.vfs.readlink(self.resolve(path.as_ref())?);
        target.map(OsString::from_vec).map_err(errno)
    }

    fn link(&self, old: impl AsRef<Path>, new: impl AsRef<Path>) -> Outcome<()> {
        let ino = self.resolve(old.as_ref())?;
        let (dir, name) = self.split(new.as_ref())?;
        let made = self.fs.vfs.link(ino, dir, name);
        made.map(drop).map_err(errno)
    }

    fn link_open(&self, file: &File, new: impl AsRef<Path>) -> Outcome<()> {
        let (dir, name) = self.split(new.as_ref())?;
        let made = self.fs.vfs.link(file.ino, dir, name);
        made.map(drop).map_err(errno)
    }

    fn unlink(&self, path: impl AsRef<Path>) -> Outcome<()> {
        let (dir, name) = self.split(path.as_ref())?;
        self.fs.vfs.unlink(dir, name).map_err(errno)
    }

    fn rename_with(
        &self,
        old: impl AsRef<Path>,
        new: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> Outcome<()> {
        let (mode, leaves_whiteout) = RenameMode::from_linux(flags.bits()).map_err(errno)?;
        let (old, new) = (self.split(old.as_ref())?, self.split(new.as_ref())?);
        let vfs = &self.fs.vfs;
        let renamed = if leaves_whiteout {
            vfs.rename_leaving_whiteout(&self.caller, old, new, mode)
        } else {
            vfs.rename(old.0, old.1, new.0, new.1, mode)
        };
        renamed.map_err(errno)
    }

    fn truncate(&self, path: impl AsRef<Path>, size: u64) -> Outcome<()> {
        self.set(path, |set| set.size = Some(size))
    }

    fn chmod(&self, path: impl AsRef<Path>, mode: u32) -> Outcome<()> {
        self.set(path, |set| set.mode = Some(mode))
    }

    fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Outcome<()> {
        self.set(path, |set| (set.uid, set.gid) = (uid, gid))
    }

    fn utimens(&self, path: impl AsRef<Path>, atime: SetTime, mtime: SetTime) -> Outcome<()> {
        let of = |time| match time {
            SetTime::Omit => None,
            SetTime::Now => Some(persimmon_vfs::SetTime::Now),
            SetTime::At(seconds, nanoseconds) => Some(persimmon_vfs::SetTime::At(Timestamp {
                seconds,
                nanoseconds: nanoseconds as u32,
            })),
        };
        self.set(path, |set| (set.atime, set.mtime) = (of(atime), of(mtime)))
    }

    fn flags(&self, path: impl AsRef<Path>) -> Outcome<u32> {
        let ino = self.resolve(path.as_ref())?;
        let flags = self.fs.vfs.inode_flags(ino).map_err(errno)?;
        Ok(flags.to_linux())
    }

    fn set_flags(&self, path: impl AsRef<Path>, flags: u32) -> Outcome<()> {
        let ino = self.resolve(path.as_ref())?;
        let flags = InodeFlags::from_linux(flags).map_err(errno)?;
        let set = self.fs.vfs.set_inode_flags(&self.caller, ino, flags);
        set.map_err(errno)
    }

    fn setxattr_with(
        &self,
        path: impl AsRef<Path>,
        name: &str,
        value: &[u8],
        flags: XattrFlags,
    ) -> Outcome<()> {
        let mode = XattrMode::from_linux(flags.bits() as i32).map_err(errno)?;
        let (ino, name) = (self.resolve(path.as_ref())?, name.as_bytes());
        let set = self.fs.vfs.setxattr(&self.caller, ino, name, value, mode);
        set.map_err(errno)
    }

    fn getxattr(&self, path: impl AsRef<Path>, name: &str) -> Outcome<Vec<u8>> {
        let ino = self.resolve(path.as_ref())?;
        self.fs.vfs.getxattr(ino, name.as_bytes()).map_err(errno)
    }

    fn listxattr(&self, path: impl AsRef<Path>) -> Outcome<Vec<String>> {
        let ino = self.resolve(path.as_ref())?;
        let names = self.fs.vfs.listxattr(&self.caller, ino).map_err(errno)?;
        let names = names.split(|byte| *byte == 0).filter(|n| !n.is_empty());
        Ok(names.map(|n| String::from_utf8_lossy(n).into()).collect())
    }

    fn removexattr(&self, path: impl AsRef<Path>, name: &str) -> Outcome<()> {
        let ino = self.resolve(path.as_ref())?;
        self.fs.vfs.removexattr(ino, name.as_bytes()).map_err(errno)
    }

    fn list_from(&self, path: impl AsRef<Path>, from: u64, most: usize) -> Outcome<Vec<Entry>> {
        let (vfs, ino) = (&self.fs.vfs, self.resolve(path.as_ref())?);
        let handle = vfs.opendir(ino).map_err(errno)?;
        let mut entries = Vec::new();
        let listed = vfs.readdir(ino, handle, from, &mut |entry| {
            if entries.len() == most {
                return Listing::Full;
            }
            entries.push(Entry {
                name: OsString::from_vec(entry.name.to_vec()),
                ino: entry.ino.0,
                kind: FileType::from_raw_mode(entry.kind.mode()),
                next: entry.cookie,
            });
            Listing::More
        });
        vfs.releasedir(ino, handle).map_err(errno)?;
        listed.map(|()| entries).map_err(errno)
    }

    fn sync(&self) -> Outcome<()> {
        self.fs.vfs.sync().map_err(errno)
    }

    /// It moves on each time somebody looks.
    fn tick(&self) {}

    fn as_user<T: Send>(
        &self,
        user: User,
        body: impl FnOnce(&Self) -> Result<T> + Send,
    ) -> Result<T> {
        body(&Through {
            caller: Caller {
                uid: user.id,
                gid: user.id,
                groups: Some(user.group.into_iter().collect()),
                ..Caller::default()
            },
            author: Author::User {
                pid: user.group.unwrap_or_default(),
                gid: user.id,
            },
            ..self.clone()
        })
    }

    fn with_umask<T: Send>(
        &self,
        umask: u32,
        body: impl FnOnce(&Self) -> Result<T> + Send,
    ) -> Result<T> {
        let mut masked = self.clone();
        masked.caller.umask = umask;
        body(&masked)
    }
}

impl OpenFile for File {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> Outcome<usize> {
        let vfs = &self.door.fs.vfs;
        vfs.read(self.ino, self.handle, at, buffer).map_err(errno)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Outcome<usize> {
        let flags = WriteFlags {
            author: self.door.author,
            ..WriteFlags::default()
        };
        let vfs = &self.door.fs.vfs;
        let written = vfs.write(self.ino, self.handle, at, bytes, flags);
        written.map(|written| written.len).map_err(errno)
    }

    fn stat(&self) -> Outcome<Stat> {
        let attr = self.door.fs.vfs.getattr(self.ino);
        attr.map(|attr| stat(&attr)).map_err(errno)
    }

    fn truncate(&self, size: u64) -> Outcome<()> {
        let set = |set: &mut SetAttr| set.size = Some(size);
        self.door.set_of(self.ino, self.handle, set)
    }

    fn allocate(&self, mode: FallocateFlags, at: u64, len: u64) -> Outcome<()> {
        let (vfs, ino, handle) = (&self.door.fs.vfs, self.ino, self.handle);
        let what = Allocate::from_linux(mode.bits() as i32).map_err(errno)?;
        let done = vfs.fallocate_by(self.door.author, (ino, handle), (at, len), what);
        done.map(drop).map_err(errno)
    }

    fn copy_to(&self, at: u64, to: &File, to_at: u64, len: usize) -> Outcome<usize> {
        let vfs = &self.door.fs.vfs;
        let (from, to) = ((self.ino, self.handle, at), (to.ino, to.handle, to_at));
        let copied = vfs.copy_file_range_by(self.door.author, from, to, len as u64);
        copied.map(|(copied, _)| copied as usize).map_err(errno)
    }

    fn next_data(&self, from: u64) -> Outcome<u64> {
        let vfs = &self.door.fs.vfs;
        let found = vfs.seek(self.ino, self.handle, from, SeekTo::Data);
        found.map_err(errno)
    }

    fn next_hole(&self, from: u64) -> Outcome<u64> {
        let vfs = &self.door.fs.vfs;
        let found = vfs.seek(self.ino, self.handle, from, SeekTo::Hole);
        found.map_err(errno)
    }

    fn sync(&self) -> Outcome<()> {
        let vfs = &self.door.fs.vfs;
        let synced = if self.is_directory {
            vfs.fsyncdir(self.ino, self.handle)
        } else {
            vfs.fsync(self.ino, self.handle)
        };
        synced.map_err(errno)
    }

    fn sync_data(&self) -> Outcome<()> {
        self.sync()
    }

    fn flock(&self, operation: FlockOperation) -> Outcome<()> {
        let kind = match operation {
            FlockOperation::NonBlockingLockShared => LockKind::Read,
            FlockOperation::NonBlockingLockExclusive => LockKind::Write,
            FlockOperation::Unlock => LockKind::Unlock,
            _ => return Err(Errno::INVAL),
        };
        let vfs = &self.door.fs.vfs;
        let locked = vfs.flock(self.ino, LockOwner(self.handle.0), kind, false);
        locked.map_err(errno)
    }

    fn lock(&self, lock: Lock, start: u64, len: u64) -> Outcome<()> {
        let lock = self.record(lock, start, len);
        let locked = self.door.fs.vfs.set_lock(self.ino, &lock, false);
        locked.map_err(errno)
    }

    fn lock_holder(&self, lock: Lock, start: u64, len: u64) -> Outcome<Option<(u64, u64)>> {
        let lock = self.record(lock, start, len);
        let found = self.door.fs.vfs.test_lock(self.ino, &lock).map_err(errno)?;
        Ok(found.map(|found| match found.end {
            u64::MAX => (found.start, 0),
            end => (found.start, end + 1 - found.start),
        }))
    }
}

impl File {
    fn record(&self, lock: Lock, start: u64, len: u64) -> FileLock {
        FileLock {
            owner: LockOwner(self.handle.0),
            pid: 0,
            start,
            end: match len {
                0 => u64::MAX,
                len => start + len - 1,
            },
            kind: match lock {
                Lock::Read => LockKind::Read,
                Lock::Write => LockKind::Write,
                Lock::Unlock => LockKind::Unlock,
            },
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let vfs = &self.door.fs.vfs;
        vfs.release_locks(self.ino, LockOwner(self.handle.0));
        let closed = if self.is_directory {
            vfs.releasedir(self.ino, self.handle)
        } else {
            vfs.release(self.ino, self.handle)
        };
        closed.unwrap();
    }
}

/// What is known not to hold, and why; the same list as that of the mount.
const DEVIATIONS: &[&str] = &[];

/// Each on a filesystem of its own, which must close and check clean.
#[test]
fn every_statement_holds_without_a_kernel() {
    let mut wrong = Vec::new();
    for Statement { name, run } in statements() {
        let fs = Arc::new(Fixture::new(Options {
            processes: Arc::new(ByNumber),
            ..Options::default()
        }));
        let door = Through {
            fs: Arc::clone(&fs),
            caller: Caller::root(),
            author: Author::Privileged,
        };
        let held = run(&door);
        drop(door);
        match (held, DEVIATIONS.contains(&name)) {
            (Err(error), false) => wrong.push(format!("{name}: {error:#}")),
            (Ok(()), true) => wrong.push(format!("{name} holds: take it off the deviations")),
            _ => {}
        }
        match Arc::into_inner(fs) {
            Some(fs) => drop(fs.remount()),
            None => wrong.push(format!("{name} has left a file open")),
        }
    }
    assert!(wrong.is_empty(), "through `Vfs`: {wrong:#?}");
}
