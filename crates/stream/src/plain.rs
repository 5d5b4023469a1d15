//! A directory of any filesystem as a target, by the calls of POSIX. Every name is opened in an open directory and without following a symbolic
//! link, so whatever is renamed or linked there meanwhile, nothing outside is touched.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid,
    XattrFlags,
};
use rustix::io::Errno;

use crate::target::{Node, Target};
use crate::wire::{Kind, Time};

/// What a directory passes on to what is made in it.
const PASSED_ON: [&str; 4] = [
    "system.posix_acl_default",
    "system.posix_acl_access",
    "user.persimmon.compression",
    "user.persimmon.lifetime",
];
/// Zeros that are written where no hole can be made, bytes at a time.
const ZEROS: usize = 256 << 10;

/// A directory that is received into.
pub struct Directory {
    /// Open for more than to find names in it.
    file: File,
    root: OpenDirectory,
    is_privileged: bool,
    /// Directories that got permissions because those were missing, by device and inode, and what they had before.
    allowed: RefCell<HashMap<(u64, u64), u32>>,
}

/// An open directory.
#[derive(Clone)]
pub struct OpenDirectory {
    fd: Arc<OwnedFd>,
    passes_on: Arc<OnceLock<bool>>,
}

impl OpenDirectory {
    fn new(fd: OwnedFd) -> OpenDirectory {
        OpenDirectory {
            fd: Arc::new(fd),
            passes_on: Arc::default(),
        }
    }

    /// Whether what is made in it gets more than it was made with.
    fn passes_on(&self) -> bool {
        *self.passes_on.get_or_init(|| {
            let path = path_of(self.fd.as_fd());
            PASSED_ON.iter().any(|name| {
                let found = rustix::fs::getxattr(path.as_str(), *name, &mut [0u8; 0][..]);
                !matches!(found, Err(Errno::NODATA | Errno::OPNOTSUPP))
            })
        })
    }
}

/// A path to what is open, for calls that take no descriptor that was opened only to be named.
/// Bytes free on a filesystem that is not full: sixteen times the longest attribute.
const ROOM: u64 = 1 << 20;

fn path_of(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Whether there is room for the longest attribute, and then some.
fn has_room(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let stat = rustix::fs::fstatvfs(fd)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize) >= ROOM)
}

fn os(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

fn timespec(time: Time) -> Timespec {
    Timespec {
        tv_sec: time.seconds,
        tv_nsec: time.nanoseconds.into(),
    }
}

impl Directory {
    /// Opens a directory.
    pub fn open(path: &Path) -> io::Result<Directory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let names = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(&fd, c".", names, Mode::empty())?;
        Ok(Directory {
            file: fd.into(),
            root: OpenDirectory::new(root),
            is_privileged: rustix::process::geteuid().is_root(),
            allowed: RefCell::default(),
        })
    }

    /// Does something in a directory; its owner gets the permission for that, if that is all that is missing. The receiver gives it its own
    /// back at the end.
    fn within<R>(
        &self,
        at: &OpenDirectory,
        f: impl Fn(BorrowedFd<'_>) -> rustix::io::Result<R>,
    ) -> io::Result<R> {
        match f(at.fd.as_fd()) {
            Err(Errno::ACCESS) if !self.is_privileged => {
                self.allow(at.fd.as_fd(), Mode::RWXU)?;
                Ok(f(at.fd.as_fd())?)
            }
            done => Ok(done?),
        }
    }

    /// Something open, only to be named.
    fn named(&self, at: &OpenDirectory, name: &[u8]) -> io::Result<Arc<OwnedFd>> {
        if name.is_empty() {
            return Ok(Arc::clone(&at.fd));
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |dir: BorrowedFd<'_>| rustix::fs::openat(dir, os(name), flags, Mode::empty());
        Ok(Arc::new(self.within(at, open)?))
    }

    /// Does something that takes the permission to write, also to what its owner may not write to, which has its permissions back at once: what
    /// changes of it need not be followed by those.
    fn writable(
        &self,
        fd: BorrowedFd<'_>,
        f: impl Fn(&str) -> rustix::io::Result<()>,
    ) -> io::Result<()> {
        let path = path_of(fd);
        match f(&path) {
            Err(Errno::ACCESS) if !self.is_privileged => {
                let stat = rustix::fs::fstat(fd)?;
                let before = Mode::from_raw_mode(stat.st_mode & 0o7777);
                if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
                    return Err(Errno::ACCESS.into());
                }
                rustix::fs::chmod(path.as_str(), before | Mode::WUSR)?;
                let done = f(&path);
                rustix::fs::chmod(path.as_str(), before)?;
                Ok(done?)
            }
            done => Ok(done?),
        }
    }

    /// Gives the owner of a file permissions.
    fn allow(&self, fd: BorrowedFd<'_>, more: Mode) -> io::Result<()> {
        let stat = rustix::fs::fstat(fd)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Symlink {
            return Err(Errno::ACCESS.into());
        }
        let before = Mode::from_raw_mode(stat.st_mode & 0o7777);
        rustix::fs::chmod(path_of(fd), before | more)?;
        // A file gets its own with its times, for its content changes.
        if kind == FileType::Directory && !before.contains(more) {
            let mut allowed = self.allowed.borrow_mut();
            let first = allowed.entry((stat.st_dev, stat.st_ino));
            first.or_insert(before.as_raw_mode());
        }
        Ok(())
    }
}

impl Target for Directory {
    type Dir = OpenDirectory;
    type File = File;

    fn root(&mut self) -> io::Result<OpenDirectory> {
        Ok(self.root.clone())
    }

    fn is_privileged(&self) -> bool {
        self.is_privileged
    }

    fn own_mode(&mut self, at: &OpenDirectory, name: &[u8]) -> Option<u32> {
        if self.allowed.borrow().is_empty() {
            return None;
        }
        let fd = self.named(at, name).ok()?;
        let stat = rustix::fs::fstat(&fd).ok()?;
        let mut allowed = self.allowed.borrow_mut();
        allowed.remove(&(stat.st_dev, stat.st_ino))
    }

    fn open_dir(&mut self, at: &OpenDirectory, name: &[u8]) -> io::Result<OpenDirectory> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |dir: BorrowedFd<'_>| rustix::fs::openat(dir, os(name), flags, Mode::empty());
        Ok(OpenDirectory::new(self.within(at, open)?))
    }

    fn kind(&mut self, at: &OpenDirectory, name: &[u8]) -> io::Result<Kind> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let stat = self.within(at, |dir| rustix::fs::statat(dir, os(name), flags))?;
        Kind::of_mode(stat.st_mode).ok_or_else(|| Errno::IO.into())
    }

    fn list(&mut self, at: &OpenDirectory, max: usize) -> io::Result<Vec<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = self.within(at, |dir| {
            rustix::fs::openat(dir, c".", flags, Mode::empty())
        })?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
                if names.len() >= max {
                    break;
                }
            }
        }
        Ok(names)
    }

    fn make(&mut self, at: &OpenDirectory, name: &[u8], node: Node<'_>) -> io::Result<()> {
        let file = Mode::RUSR | Mode::WUSR;
        let name_os = os(name);
        self.within(at, |dir| match node {
            Node::Directory => rustix::fs::mkdirat(dir, name_os, Mode::RWXU),
            Node::Regular => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                rustix::fs::openat(dir, name_os, flags | OFlags::CLOEXEC, file).map(drop)
            }
            Node::Symlink(target) => rustix::fs::symlinkat(os(target), dir, name_os),
            Node::Special(kind, rdev) => {
                let kind = FileType::from_raw_mode(kind.mode());
                rustix::fs::mknodat(dir, name_os, kind, file, rdev.into())
            }
        })
    }

    fn strip(&mut self, at: &OpenDirectory, name: &[u8]) -> io::Result<()> {
        if !at.passes_on() {
            return Ok(());
        }
        let fd = self.named(at, name)?;
        let path = path_of(fd.as_fd());
        for attribute in PASSED_ON {
            match rustix::fs::removexattr(path.as_str(), attribute) {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM | Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn link(
        &mut self,
        from: (&OpenDirectory, &[u8]),
        to: (&OpenDirectory, &[u8]),
    ) -> io::Result<()> {
        let link = || {
            self.within(to.0, |dir| {
                rustix::fs::linkat(&from.0.fd, os(from.1), dir, os(to.1), AtFlags::empty())
            })
        };
        match link() {
            Err(error) if error.kind() == ErrorKind::PermissionDenied && !self.is_privileged => {
                // The directory that it has a name in.
                self.allow(from.0.fd.as_fd(), Mode::RWXU)?;
                link()
            }
            done => done,
        }
    }

    fn rename(
        &mut self,
        from: (&OpenDirectory, &[u8]),
        to: (&OpenDirectory, &[u8]),
    ) -> io::Result<()> {
        let (old, new) = (os(from.1), os(to.1));
        let rename = || {
            self.within(from.0, |from| {
                match rustix::fs::renameat_with(from, old, &to.0.fd, new, RenameFlags::NOREPLACE) {
                    Err(Errno::INVAL) => {
                        // A directory into itself, or a filesystem that does not know the flag.
                        match rustix::fs::statat(&to.0.fd, new, AtFlags::SYMLINK_NOFOLLOW) {
                            Err(Errno::NOENT) => rustix::fs::renameat(from, old, &to.0.fd, new),
                            Err(error) => Err(error),
                            Ok(_) => Err(Errno::EXIST),
                        }
                    }
                    done => done,
                }
            })
        };
        match rename() {
            Err(error) if error.kind() == ErrorKind::PermissionDenied && !self.is_privileged => {
                // The other directory, or the one that is moved, whose `..` changes.
                self.allow(to.0.fd.as_fd(), Mode::RWXU)?;
                if let Ok(moved) = self.named(from.0, from.1)
                    && let Ok(stat) = rustix::fs::fstat(&moved)
                    && FileType::from_raw_mode(stat.st_mode) == FileType::Directory
                {
                    self.allow(moved.as_fd(), Mode::RWXU)?;
                }
                rename()
            }
            done => done,
        }
    }

    fn unlink(&mut self, at: &OpenDirectory, name: &[u8]) -> io::Result<()> {
        self.within(at, |dir| {
            rustix::fs::unlinkat(dir, os(name), AtFlags::empty())
        })
    }

    fn remove_dir(&mut self, at: &OpenDirectory, name: &[u8]) -> io::Result<()> {
        self.within(at, |dir| {
            rustix::fs::unlinkat(dir, os(name), AtFlags::REMOVEDIR)
        })
    }

    fn open_file(&mut self, at: &OpenDirectory, name: &[u8]) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = |dir: BorrowedFd<'_>| rustix::fs::openat(dir, os(name), flags, Mode::empty());
        let opened = match open(at.fd.as_fd()) {
            Err(Errno::ACCESS) if !self.is_privileged => {
                let named = self.named(at, name)?;
                self.allow(named.as_fd(), Mode::RUSR | Mode::WUSR)?;
                open(at.fd.as_fd())?
            }
            opened => opened?,
        };
        let stat = rustix::fs::fstat(&opened)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Errno::NOTDIR.into());
        }
        Ok(opened.into())
    }

    fn write(&mut self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn punch(&mut self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        let size = file.metadata()?.len();
        let end = offset.saturating_add(len).min(size);
        if offset >= end {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(file, flags, offset, end - offset) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            done => return Ok(done?),
        }
        let zeros = vec![0; ZEROS];
        let mut at = offset;
        while at < end {
            let len = (end - at).min(ZEROS as u64) as usize;
            file.write_all_at(zeros.get(..len).unwrap_or_default(), at)?;
            at += len as u64;
        }
        Ok(())
    }

    fn set_size(&mut self, file: &File, size: u64) -> io::Result<()> {
        file.set_len(size)
    }

    fn set_owner(&mut self, at: &OpenDirectory, name: &[u8], uid: u32, gid: u32) -> io::Result<()> {
        let fd = self.named(at, name)?;
        let stat = rustix::fs::fstat(&fd)?;
        // What takes setuid away is not called for nothing.
        if (stat.st_uid, stat.st_gid) == (uid, gid) {
            return Ok(());
        }
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        let flags = AtFlags::EMPTY_PATH;
        Ok(rustix::fs::chownat(&fd, c"", Some(uid), Some(gid), flags)?)
    }

    fn set_xattr(
        &mut self,
        at: &OpenDirectory,
        name: &[u8],
        attribute: &[u8],
        value: &[u8],
    ) -> io::Result<()> {
        let fd = self.named(at, name)?;
        let flags = XattrFlags::empty();
        let set = self.writable(fd.as_fd(), |path| {
            rustix::fs::setxattr(path, os(attribute), value, flags)
        });
        match set {
            // ext4 says so of what is longer than it stores, too.
            Err(error) if error.kind() == ErrorKind::StorageFull && has_room(fd.as_fd())? => {
                Err(Errno::TOOBIG.into())
            }
            set => set,
        }
    }

    fn remove_xattr(
        &mut self,
        at: &OpenDirectory,
        name: &[u8],
        attribute: &[u8],
    ) -> io::Result<()> {
        let fd = self.named(at, name)?;
        self.writable(fd.as_fd(), |path| {
            rustix::fs::removexattr(path, os(attribute))
        })
    }

    fn set_mode(&mut self, at: &OpenDirectory, name: &[u8], mode: u32) -> io::Result<()> {
        let fd = self.named(at, name)?;
        let stat = rustix::fs::fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            return Err(Errno::LOOP.into());
        }
        let mode = Mode::from_raw_mode(mode);
        rustix::fs::chmod(path_of(fd.as_fd()), mode)?;
        let mut allowed = self.allowed.borrow_mut();
        allowed.remove(&(stat.st_dev, stat.st_ino));
        Ok(())
    }

    fn set_times(
        &mut self,
        at: &OpenDirectory,
        name: &[u8],
        atime: Time,
        mtime: Time,
    ) -> io::Result<()> {
        let times = Timestamps {
            last_access: timespec(atime),
            last_modification: timespec(mtime),
        };
        if name.is_empty() {
            let path = path_of(at.fd.as_fd());
            let flags = AtFlags::empty();
            return Ok(rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags)?);
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        self.within(at, |dir| {
            rustix::fs::utimensat(dir, os(name), &times, flags)
        })
    }

    fn read_whole(
        &mut self,
        at: &OpenDirectory,
        name: &[u8],
        max: usize,
    ) -> io::Result<Option<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(&at.fd, os(name), flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            fd => fd?,
        };
        let mut bytes = Vec::new();
        File::from(fd).take(max as u64).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn write_whole(&mut self, at: &OpenDirectory, name: &[u8], bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = rustix::fs::openat(&at.fd, os(name), flags | OFlags::CLOEXEC, mode)?;
        File::from(fd).write_all(bytes)
    }

    fn replace(&mut self, at: &OpenDirectory, from: &[u8], to: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::renameat(&at.fd, os(from), &at.fd, os(to))?)
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.file)?)
    }
}
