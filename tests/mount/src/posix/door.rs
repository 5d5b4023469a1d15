//! The kernel's system calls on a mount as a door of the POSIX statements.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use persimmon_posix_tests::door::{Door, Entry, Lock, OpenFile, Outcome, SetTime, Stat, User};
use rustix::fs::{
    Access, AtFlags, CWD, Dir, FallocateFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags,
    SeekFrom, StatxFlags, Timespec, Timestamps, XattrFlags, makedev,
};

use super::expect::{create, errno, tick};
use crate::sys;

/// A directory on the mount.
pub struct Mounted(pub PathBuf);

/// An open file on it.
pub struct Opened(File);

impl Mounted {
    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }
}

fn stat(stat: &rustix::fs::Stat) -> Stat {
    Stat {
        ino: stat.st_ino,
        mode: stat.st_mode,
        nlink: stat.st_nlink,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: (
            rustix::fs::major(stat.st_rdev),
            rustix::fs::minor(stat.st_rdev),
        ),
        size: stat.st_size.cast_unsigned(),
        blocks: stat.st_blocks.cast_unsigned(),
        atime: (stat.st_atime, stat.st_atime_nsec.cast_signed()),
        mtime: (stat.st_mtime, stat.st_mtime_nsec.cast_signed()),
        ctime: (stat.st_ctime, stat.st_ctime_nsec.cast_signed()),
    }
}

/// Calls with a buffer of the most that the kernel answers of attributes.
fn answer(call: impl FnOnce(&mut [u8]) -> Outcome<usize>) -> Outcome<Vec<u8>> {
    let mut bytes = vec![0; 65_536];
    let len = call(&mut bytes)?;
    bytes.truncate(len);
    Ok(bytes)
}

impl Door for Mounted {
    type File = Opened;

    fn open(&self, path: impl AsRef<Path>, flags: OFlags, mode: u32) -> Outcome<Opened> {
        create(self.at(path), flags, mode).map(Opened)
    }

    fn stat(&self, path: impl AsRef<Path>) -> Outcome<Stat> {
        rustix::fs::lstat(self.at(path)).map(|found| stat(&found))
    }

    fn mode_alone(&self, path: impl AsRef<Path>) -> Outcome<u32> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let found = rustix::fs::statx(CWD, self.at(path), flags, StatxFlags::MODE)?;
        Ok(u32::from(found.stx_mode) & 0o7777)
    }

    fn access(&self, path: impl AsRef<Path>, mask: u32) -> Outcome<()> {
        rustix::fs::access(self.at(path), Access::from_bits_retain(mask))
    }

    fn mkdir(&self, path: impl AsRef<Path>, mode: u32) -> Outcome<()> {
        rustix::fs::mkdir(self.at(path), Mode::from_raw_mode(mode))
    }

    fn rmdir(&self, path: impl AsRef<Path>) -> Outcome<()> {
        rustix::fs::rmdir(self.at(path))
    }

    fn mknod(&self, path: impl AsRef<Path>, mode: u32, (major, minor): (u32, u32)) -> Outcome<()> {
        let (kind, mode) = (FileType::from_raw_mode(mode), Mode::from_raw_mode(mode));
        rustix::fs::mknodat(CWD, self.at(path), kind, mode, makedev(major, minor))
    }

    fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Outcome<()> {
        rustix::fs::symlink(target.as_ref(), self.at(path))
    }

    fn readlink(&self, path: impl AsRef<Path>) -> Outcome<OsString> {
        let target = rustix::fs::readlink(self.at(path), Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    fn link(&self, old: impl AsRef<Path>, new: impl AsRef<Path>) -> Outcome<()> {
        rustix::fs::link(self.at(old), self.at(new))
    }

    fn link_open(&self, file: &Opened, new: impl AsRef<Path>) -> Outcome<()> {
        let (old, flags) = (sys::proc_path(&file.0), AtFlags::SYMLINK_FOLLOW);
        rustix::fs::linkat(CWD, old, CWD, self.at(new), flags)
    }

    fn unlink(&self, path: impl AsRef<Path>) -> Outcome<()> {
        rustix::fs::unlink(self.at(path))
    }

    fn rename_with(
        &self,
        old: impl AsRef<Path>,
        new: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> Outcome<()> {
        rustix::fs::renameat_with(CWD, self.at(old), CWD, self.at(new), flags)
    }

    fn truncate(&self, path: impl AsRef<Path>, size: u64) -> Outcome<()> {
        sys::truncate(&self.at(path), size.cast_signed())
    }

    fn chmod(&self, path: impl AsRef<Path>, mode: u32) -> Outcome<()> {
        rustix::fs::chmod(self.at(path), Mode::from_raw_mode(mode))
    }

    fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Outcome<()> {
        errno(std::os::unix::fs::lchown(self.at(path), uid, gid))
    }

    fn utimens(&self, path: impl AsRef<Path>, atime: SetTime, mtime: SetTime) -> Outcome<()> {
        let of = |time| {
            let (tv_sec, tv_nsec) = match time {
                SetTime::Omit => (0, libc::UTIME_OMIT),
                SetTime::Now => (0, libc::UTIME_NOW),
                SetTime::At(seconds, nanoseconds) => (seconds, nanoseconds),
            };
            Timespec { tv_sec, tv_nsec }
        };
        let times = Timestamps {
            last_access: of(atime),
            last_modification: of(mtime),
        };
        rustix::fs::utimensat(CWD, self.at(path), &times, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn flags(&self, path: impl AsRef<Path>) -> Outcome<u32> {
        let file = errno(File::open(self.at(path)))?;
        Ok(rustix::fs::ioctl_getflags(file)?.bits())
    }

    fn set_flags(&self, path: impl AsRef<Path>, flags: u32) -> Outcome<()> {
        let file = errno(File::open(self.at(path)))?;
        rustix::fs::ioctl_setflags(file, rustix::fs::IFlags::from_bits_retain(flags))
    }

    fn setxattr_with(
        &self,
        path: impl AsRef<Path>,
        name: &str,
        value: &[u8],
        flags: XattrFlags,
    ) -> Outcome<()> {
        rustix::fs::lsetxattr(self.at(path), name, value, flags)
    }

    fn getxattr(&self, path: impl AsRef<Path>, name: &str) -> Outcome<Vec<u8>> {
        answer(|bytes| rustix::fs::lgetxattr(self.at(path), name, bytes))
    }

    fn listxattr(&self, path: impl AsRef<Path>) -> Outcome<Vec<String>> {
        let names = answer(|bytes| rustix::fs::llistxattr(self.at(path), bytes))?;
        let names = names.split(|byte| *byte == 0).filter(|n| !n.is_empty());
        Ok(names.map(|n| String::from_utf8_lossy(n).into()).collect())
    }

    fn removexattr(&self, path: impl AsRef<Path>, name: &str) -> Outcome<()> {
        rustix::fs::lremovexattr(self.at(path), name)
    }

    fn list_from(&self, path: impl AsRef<Path>, from: u64, most: usize) -> Outcome<Vec<Entry>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut dir = Dir::new(create(self.at(path), flags, 0)?)?;
        dir.seek(from.cast_signed())?;
        let entries = dir.take(most).map(|entry| {
            let entry = entry?;
            Ok(Entry {
                name: OsStr::from_bytes(entry.file_name().to_bytes()).to_owned(),
                ino: entry.ino(),
                kind: entry.file_type(),
                next: entry.offset().cast_unsigned(),
            })
        });
        entries.collect()
    }

    fn sync(&self) -> Outcome<()> {
        rustix::fs::syncfs(create(&self.0, OFlags::RDONLY, 0)?)
    }

    fn tick(&self) {
        tick();
    }

    fn as_user<T: Send>(
        &self,
        user: User,
        body: impl FnOnce(&Self) -> Result<T> + Send,
    ) -> Result<T> {
        let groups: Vec<u32> = user.group.into_iter().collect();
        sys::User(user.id).run_in(&groups, || body(self))
    }

    fn with_umask<T: Send>(
        &self,
        umask: u32,
        body: impl FnOnce(&Self) -> Result<T> + Send,
    ) -> Result<T> {
        sys::with_umask(umask, || body(self))
    }
}

impl OpenFile for Opened {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> Outcome<usize> {
        errno(FileExt::read_at(&self.0, buffer, at))
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Outcome<usize> {
        errno(FileExt::write_at(&self.0, bytes, at))
    }

    fn stat(&self) -> Outcome<Stat> {
        rustix::fs::fstat(&self.0).map(|found| stat(&found))
    }

    fn truncate(&self, size: u64) -> Outcome<()> {
        rustix::fs::ftruncate(&self.0, size)
    }

    fn allocate(&self, mode: FallocateFlags, at: u64, len: u64) -> Outcome<()> {
        let moves = [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE];
        match rustix::fs::fallocate(&self.0, mode, at, len) {
            // The kernel passes these to no FUSE filesystem.
            Err(rustix::io::Errno::OPNOTSUPP) if moves.contains(&mode) => {
                let inserts = mode == FallocateFlags::INSERT_RANGE;
                errno(persimmon_fuse::ranges::change(&self.0, at, len, inserts))
            }
            result => result,
        }
    }

    fn copy_to(&self, at: u64, to: &Opened, to_at: u64, len: usize) -> Outcome<usize> {
        let (mut at, mut to_at) = (at, to_at);
        rustix::fs::copy_file_range(&self.0, Some(&mut at), &to.0, Some(&mut to_at), len)
    }

    fn next_data(&self, from: u64) -> Outcome<u64> {
        rustix::fs::seek(&self.0, SeekFrom::Data(from))
    }

    fn next_hole(&self, from: u64) -> Outcome<u64> {
        rustix::fs::seek(&self.0, SeekFrom::Hole(from))
    }

    fn sync(&self) -> Outcome<()> {
        rustix::fs::fsync(&self.0)
    }

    fn sync_data(&self) -> Outcome<()> {
        rustix::fs::fdatasync(&self.0)
    }

    fn flock(&self, operation: FlockOperation) -> Outcome<()> {
        rustix::fs::flock(&self.0, operation)
    }

    fn lock(&self, lock: Lock, start: u64, len: u64) -> Outcome<()> {
        sys::lock_description(&self.0, lock, start.cast_signed(), len.cast_signed())
    }

    fn lock_holder(&self, lock: Lock, start: u64, len: u64) -> Outcome<Option<(u64, u64)>> {
        let (start, len) = (start.cast_signed(), len.cast_signed());
        let found = sys::description_lock_holder(&self.0, lock, start, len)?;
        Ok(found.map(|(_, start, len)| (start.cast_unsigned(), len.cast_unsigned())))
    }
}
