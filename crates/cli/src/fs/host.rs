//! The host's files as where from and where to. Relative to open directories: no symbolic link below the top is ever
//! followed, whoever changes the tree meanwhile. What was made is changed by its open descriptor alone: a name may be another file's by then.

mod node;

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use persimmon::vfs::NamedIno;
use persimmon::{Ino, Timestamp};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Stat, Timespec, Timestamps,
    Uid, XattrFlags, chmod, chownat, copy_file_range, fstat, ftruncate, linkat, mkdirat, mknodat,
    openat, readlinkat, removexattr, renameat_with, seek, setxattr, statat, symlinkat, unlinkat,
    utimensat,
};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::tree::{
    Children, ClonedEntries, Content, Copied, CopyError, Entry, Identity, Kind, Meta, Seen, Sink,
    Target, Tree, each_piece_not_shared,
};
use crate::control;

use node::{DIRECTORY, of_fd};
pub use node::{HostNode, raise_descriptors, time};

/// Names tried for something that is not complete yet.
const ATTEMPTS: u32 = 1000;
const ACCESS_LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Opens a directory that somebody named; links are followed.
pub fn open_directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    openat(
        CWD,
        path,
        DIRECTORY.difference(OFlags::NOFOLLOW),
        Mode::empty(),
    )
}

/// A name that nobody can foresee, for what is not complete yet.
fn temporary_name() -> rustix::io::Result<Vec<u8>> {
    let mut random = [0; 8];
    getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(format!(".persimmon-{:016x}", u64::from_le_bytes(random)).into_bytes())
}

/// Opens a link or node that was just made. Who may write to the directory can have put another one in its place: that one is
/// refused, were it another name of a file elsewhere.
fn open_made(directory: &OwnedFd, name: &[u8], kind: &Kind) -> Copied<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = openat(directory, name, flags, Mode::empty())?;
    let found = fstat(&open)?;
    let (wanted, rdev) = match kind {
        Kind::Symlink(_) => (FileType::Symlink, None),
        Kind::Fifo => (FileType::Fifo, None),
        Kind::Socket => (FileType::Socket, None),
        Kind::CharDevice(rdev) => (FileType::CharacterDevice, Some(u64::from(*rdev))),
        Kind::BlockDevice(rdev) => (FileType::BlockDevice, Some(u64::from(*rdev))),
        Kind::Directory | Kind::File { .. } | Kind::HardLink(_) => {
            return Err(CopyError::one("is neither a link nor a node"));
        }
    };
    let is_it = FileType::from_raw_mode(found.st_mode) == wanted
        && found.st_nlink <= 1
        && rdev.is_none_or(|rdev| rdev == found.st_rdev);
    if is_it {
        Ok(open)
    } else {
        Err(CopyError::one(
            "was replaced by something else while it was made",
        ))
    }
}

/// The host's files, but for those that hold the volume.
pub struct HostTree {
    volume: Vec<Identity>,
    /// The filesystem, where others that are mounted below are left out.
    device: Option<u64>,
    /// The mount, where what is bound from elsewhere in the same filesystem is left out.
    mount: Option<u64>,
    /// It is a mounted volume, of which the daemon clones what is in a directory.
    is_in_volume: bool,
}

impl HostTree {
    /// To copy from to the volume on `devices`.
    pub fn beside(devices: &[PathBuf]) -> HostTree {
        raise_descriptors();
        let stats = devices
            .iter()
            .filter_map(|device| statat(CWD, device, AtFlags::empty()).ok());
        HostTree {
            volume: stats.map(|stat| identity(&stat)).collect(),
            device: None,
            mount: None,
            is_in_volume: false,
        }
    }

    /// On one filesystem.
    pub fn on(device: u64) -> HostTree {
        raise_descriptors();
        HostTree {
            volume: Vec::new(),
            device: Some(device),
            mount: None,
            is_in_volume: false,
        }
    }

    /// What is below a node on one filesystem, and not what is mounted there.
    pub fn below(node: &HostNode, device: u64) -> HostTree {
        HostTree {
            mount: node.mount(),
            ..HostTree::on(device)
        }
    }

    /// The same of a volume in which nothing is mounted: its daemon may clone what is in a directory.
    pub fn by_daemon(self, may: bool) -> HostTree {
        HostTree {
            is_in_volume: may,
            ..self
        }
    }
}

fn identity(stat: &Stat) -> Identity {
    Identity(stat.st_dev, stat.st_ino)
}

impl Tree for HostTree {
    type Node = HostNode;

    fn look(&self, node: &HostNode) -> Copied<Seen> {
        let stat = node.stat()?;
        if self.volume.contains(&identity(&stat)) {
            return Err(CopyError::one(
                "holds the volume that it would be copied to",
            ));
        }
        if self.device.is_some_and(|device| device != stat.st_dev) {
            return Err(CopyError::one(
                "is on another filesystem, which shares no blocks with this one; copy it, with `cp -a`",
            ));
        }
        if self.mount.is_some() && node.mount() != self.mount {
            return Err(CopyError::one(
                "is mounted there from elsewhere on the same volume; clone it where it is, or unmount it",
            ));
        }
        let rdev = || {
            u32::try_from(stat.st_rdev)
                .map_err(|_| CopyError::one("a device number larger than a volume keeps"))
        };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Kind::Directory,
            FileType::RegularFile => Kind::File {
                size: u64::try_from(stat.st_size).unwrap_or_default(),
            },
            FileType::Symlink => {
                let target = readlinkat(&node.directory, &*node.name, Vec::new())?;
                Kind::Symlink(target.into_bytes())
            }
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharacterDevice => Kind::CharDevice(rdev()?),
            FileType::BlockDevice => Kind::BlockDevice(rdev()?),
            FileType::Unknown => return Err(CopyError::one("of no known type")),
        };
        Ok(Seen {
            identity: identity(&stat),
            links: stat.st_nlink,
            kind,
            meta: Meta {
                mode: stat.st_mode & 0o7777,
                uid: stat.st_uid,
                gid: stat.st_gid,
                atime: time(stat.st_atime, stat.st_atime_nsec),
                mtime: time(stat.st_mtime, stat.st_mtime_nsec),
                xattrs: node.xattrs()?,
            },
        })
    }

    fn children(&self, node: &HostNode) -> Copied<Children<HostNode>> {
        let nodes = node.entries()?.into_iter().map(|entry| entry.node);
        Ok(Box::new(nodes.map(|node| Ok((node.name.clone(), node)))))
    }

    fn directory_in_volume(&self, node: &HostNode) -> Option<Ino> {
        let is_asked = self.is_in_volume;
        is_asked.then(|| node.stat().ok().map(|stat| Ino(stat.st_ino)))?
    }

    fn some_children(&self, node: &HostNode, wanted: Vec<NamedIno>) -> Copied<Children<HostNode>> {
        let directory = Arc::new(openat(
            &node.directory,
            &*node.name,
            DIRECTORY,
            Mode::empty(),
        )?);
        Ok(Box::new(wanted.into_iter().map(move |named| {
            let directory = Arc::clone(&directory);
            let name = named.name.clone();
            Ok((named.name, HostNode { directory, name }))
        })))
    }

    fn content(&self, node: &HostNode, size: u64) -> Copied<Box<dyn Content>> {
        // A pipe in the place of the file would wait for who writes to it.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&node.directory, &*node.name, flags, Mode::empty())?;
        Ok(Box::new(HostFile {
            file: File::from(file),
            size,
        }))
    }
}

struct HostFile {
    file: File,
    size: u64,
}

impl Content for HostFile {
    /// In one call, where the filesystem below shares blocks: nothing is read here.
    fn share(&mut self, range: Range<u64>, with: &Target<'_>) -> Copied<u64> {
        let Target::Host(file) = with else {
            return Ok(0);
        };
        let (mut from, mut to) = (range.start, range.start);
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let shared = copy_file_range(&self.file, Some(&mut from), file, Some(&mut to), len)?;
        Ok(shared as u64)
    }

    fn next_data(&mut self, at: u64) -> Copied<Option<Range<u64>>> {
        if at >= self.size {
            return Ok(None);
        }
        let start = match seek(&self.file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // Who knows no holes has data everywhere.
            Err(Errno::INVAL) => return Ok(Some(at..self.size)),
            Err(error) => return Err(error.into()),
        };
        let end = seek(&self.file, SeekFrom::Hole(start))?.min(self.size);
        Ok((start < end).then_some(start..end))
    }

    fn read_at(&mut self, buffer: &mut [u8], at: u64) -> Copied<usize> {
        Ok(self.file.read_at(buffer, at)?)
    }
}

/// A directory of the host to copy to.
pub struct HostSink {
    /// The directories on the way down, the top first.
    way: Vec<OwnedFd>,
    /// Owners, device nodes and the attributes of the system are root's to set.
    privileged: bool,
    /// What is there is filled, or replaced. If not, it is left alone, and what should have its name fails.
    replaces: bool,
    /// It is a mounted volume, whose daemon clones what is in a directory of it.
    is_in_volume: bool,
}

impl HostSink {
    /// Below an open directory.
    pub fn new(top: OwnedFd) -> HostSink {
        HostSink {
            way: vec![top],
            privileged: rustix::process::geteuid().is_root(),
            replaces: true,
            is_in_volume: false,
        }
    }

    /// The same for what must not be there yet.
    pub fn beside_all(top: OwnedFd) -> HostSink {
        HostSink {
            replaces: false,
            ..HostSink::new(top)
        }
    }

    /// The same in a volume whose daemon may clone what is in a directory of it.
    pub fn by_daemon(self, may: bool) -> HostSink {
        HostSink {
            is_in_volume: may,
            ..self
        }
    }

    fn directory(&self) -> Copied<&OwnedFd> {
        self.way
            .last()
            .ok_or_else(|| CopyError::ends("no directory is entered"))
    }

    /// The directory that holds the last name of a path below the top. Directories alone are gone through.
    fn parent(&self, path: &[u8]) -> Copied<Option<OwnedFd>> {
        let mut names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        names.pop();
        let mut at: Option<OwnedFd> = None;
        for name in names {
            let above = match &at {
                Some(directory) => directory,
                None => self.top()?,
            };
            at = Some(openat(above, name, DIRECTORY, Mode::empty())?);
        }
        Ok(at)
    }

    fn top(&self) -> Copied<&OwnedFd> {
        self.way
            .first()
            .ok_or_else(|| CopyError::ends("no directory is entered"))
    }

    /// What has that name already may be replaced: a file or a link, but nothing that somebody may want to write into.
    fn check_replaceable(&self, entry: &Entry) -> Copied<()> {
        let there = match statat(self.directory()?, entry.name(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            there => FileType::from_raw_mode(there?.st_mode),
        };
        match (there, &entry.kind) {
            _ if !self.replaces => Err(Errno::EXIST.into()),
            (FileType::Directory, _) => Err(CopyError::one("a directory has that name")),
            (FileType::RegularFile | FileType::Symlink, _) => Ok(()),
            (_, Kind::File { .. } | Kind::Symlink(_) | Kind::HardLink(_)) => Err(CopyError::one(
                "is there and is no regular file; `persimmon fs cat` writes into it",
            )),
            _ => Ok(()),
        }
    }

    /// Makes it under a name of its own.
    fn make(&self, directory: &OwnedFd, name: &[u8], entry: &Entry) -> Copied<Option<File>> {
        let mode = Mode::RUSR | Mode::WUSR;
        let node = |kind, rdev| {
            mknodat(directory, name, kind, mode, rdev)?;
            Ok(None)
        };
        match &entry.kind {
            Kind::File { .. } => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let file = openat(directory, name, flags, mode)?;
                Ok(Some(File::from(file)))
            }
            Kind::Symlink(target) => {
                symlinkat(target.as_slice(), directory, name)?;
                Ok(None)
            }
            Kind::HardLink(path) => {
                let parent = self.parent(path)?;
                let parent = match &parent {
                    Some(parent) => parent,
                    None => self.top()?,
                };
                let original = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
                linkat(parent, original, directory, name, AtFlags::empty())?;
                Ok(None)
            }
            Kind::Fifo => node(FileType::Fifo, 0),
            Kind::Socket => node(FileType::Socket, 0),
            Kind::CharDevice(rdev) => node(FileType::CharacterDevice, (*rdev).into()),
            Kind::BlockDevice(rdev) => node(FileType::BlockDevice, (*rdev).into()),
            Kind::Directory => Err(CopyError::one("is a directory")),
        }
    }

    /// Gives what was made its content and attributes, and then its name.
    fn complete(
        &self,
        temporary: &[u8],
        file: Option<&File>,
        entry: &Entry,
        content: &mut dyn Content,
    ) -> Copied<Vec<String>> {
        let directory = self.directory()?;
        let lost = match (file, &entry.kind) {
            (_, Kind::HardLink(_)) => Vec::new(),
            (Some(file), kind) => {
                if let Kind::File { size } = kind {
                    let with = Some(Target::Host(file));
                    each_piece_not_shared(content, with, |piece, at| {
                        Ok(file.write_all_at(piece, at)?)
                    })?;
                    ftruncate(file, *size)?;
                }
                self.set_meta(file.as_fd(), entry)?
            }
            (None, kind) => {
                let made = open_made(directory, temporary, kind)?;
                self.set_meta(made.as_fd(), entry)?
            }
        };
        let flags = if self.replaces {
            RenameFlags::empty()
        } else {
            RenameFlags::NOREPLACE
        };
        renameat_with(directory, temporary, directory, entry.name(), flags)?;
        // Of two names of one file a rename leaves both.
        if matches!(entry.kind, Kind::HardLink(_)) {
            let _ = unlinkat(directory, temporary, AtFlags::empty());
        }
        Ok(lost)
    }

    /// Sets all attributes, the times last. Tells those that the host does not take.
    fn set_meta(&self, open: BorrowedFd<'_>, entry: &Entry) -> Copied<Vec<String>> {
        let meta = &entry.meta;
        // Followed to what is open, and no further where that is a link.
        let path = of_fd(open);
        let mut lost = Vec::new();
        let mut keep = |what: &[u8], set: rustix::io::Result<()>| match set {
            Ok(()) => Ok(()),
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::ROFS)) => Err(CopyError::from(error)),
            Err(error) => {
                lost.push(super::not_kept(what, &CopyError::from(error).to_string()));
                Ok(())
            }
        };
        if self.privileged {
            let owner = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
            let (uid, gid) = (Some(owner.0), Some(owner.1));
            keep(
                b"the owner",
                chownat(CWD, &path, uid, gid, AtFlags::empty()),
            )?;
        }
        let is_wanted = |name: &[u8]| meta.xattrs.iter().any(|(wanted, _)| wanted == name);
        for list in ACCESS_LISTS {
            if !is_wanted(list) && !matches!(entry.kind, Kind::Symlink(_)) {
                // What it got from its directory; mostly there is none.
                let _ = removexattr(&path, list);
            }
        }
        if !matches!(entry.kind, Kind::Symlink(_)) {
            let mode = Mode::from_raw_mode(meta.mode);
            keep(b"the mode", chmod(&path, mode))?;
        }
        for (name, value) in &meta.xattrs {
            let for_root = name.starts_with(b"trusted.") || name.starts_with(b"security.");
            if for_root && !self.privileged {
                continue;
            }
            match setxattr(&path, name.as_slice(), value, XattrFlags::empty()) {
                // More than an inode of the host holds, as well as a full host.
                Err(Errno::NOSPC) => keep(name, Err(Errno::TOOBIG))?,
                set => keep(name, set)?,
            }
        }
        let at = |time: Timestamp| Timespec {
            tv_sec: time.seconds,
            tv_nsec: time.nanoseconds.into(),
        };
        let times = Timestamps {
            last_access: at(meta.atime),
            last_modification: at(meta.mtime),
        };
        let set = utimensat(CWD, &path, &times, AtFlags::empty());
        let wanted = (meta.atime.seconds, meta.mtime.seconds);
        match set.and_then(|()| statat(CWD, &path, AtFlags::empty())) {
            Err(error) => keep(b"times", Err(error))?,
            Ok(found) if (found.st_atime, found.st_mtime) == wanted => {}
            // A filesystem replaces a time outside of its range by the nearest one, and reports success.
            Ok(_) => {
                let why = "the filesystem there keeps other times than these";
                lost.push(super::not_kept(b"times", why));
            }
        }
        Ok(lost)
    }
}

impl Sink for HostSink {
    fn enter(&mut self, entry: &Entry) -> Copied<()> {
        let above = self.directory()?;
        let name = if entry.path.is_empty() {
            b"."
        } else {
            entry.name()
        };
        if !entry.path.is_empty() {
            match mkdirat(above, name, Mode::RWXU) {
                Ok(()) => {}
                Err(Errno::EXIST) if self.replaces => {}
                Err(error) => return Err(error.into()),
            }
        }
        let directory = match openat(above, name, DIRECTORY, Mode::empty()) {
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return Err(CopyError::one("has the name of a directory, and is none"));
            }
            directory => directory?,
        };
        self.way.push(directory);
        Ok(())
    }

    fn clone_entries(&mut self, from: Ino, cookie: u64) -> Copied<Option<ClonedEntries>> {
        if !self.is_in_volume {
            return Ok(None);
        }
        let directory = self.directory()?;
        let (to, path) = (fstat(directory)?.st_ino, of_fd(directory.as_fd()));
        let cloned = control::clones::ask(&path, (from.0, to), cookie);
        cloned.map_err(CopyError::ends)
    }

    fn leave(&mut self, entry: &Entry) -> Copied<Vec<String>> {
        let directory = self
            .way
            .pop()
            .ok_or_else(|| CopyError::ends("no directory is entered"))?;
        self.set_meta(directory.as_fd(), entry)
    }

    fn put(&mut self, entry: &Entry, content: &mut dyn Content) -> Copied<Vec<String>> {
        self.check_replaceable(entry)?;
        let directory = self.directory()?;
        for _ in 0..ATTEMPTS {
            let temporary = temporary_name()?;
            let file = match self.make(directory, &temporary, entry) {
                Err(_) if statat(directory, &*temporary, AtFlags::SYMLINK_NOFOLLOW).is_ok() => {
                    continue;
                }
                made => made?,
            };
            let done = self.complete(&temporary, file.as_ref(), entry, content);
            if done.is_err() {
                let _ = unlinkat(directory, &*temporary, AtFlags::empty());
            }
            return done;
        }
        Err(CopyError::one("no name is free to make it under"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests from top to bottom")]

    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    struct Nothing;

    impl Content for Nothing {
        fn next_data(&mut self, _at: u64) -> Copied<Option<Range<u64>>> {
            Ok(None)
        }

        fn read_at(&mut self, _buffer: &mut [u8], _at: u64) -> Copied<usize> {
            Ok(0)
        }
    }

    fn entry(kind: Kind) -> Entry {
        let at = time(1_000_000_000, 0);
        Entry {
            path: b"made".to_vec(),
            kind,
            meta: Meta {
                mode: 0o777,
                uid: rustix::process::getuid().as_raw(),
                gid: rustix::process::getgid().as_raw(),
                atime: at,
                mtime: at,
                xattrs: Vec::new(),
            },
        }
    }

    /// Another user who may write to the directory swapped a link in for the temporary name: root then changed the mode of any file
    /// that the link named.
    #[test]
    fn a_link_that_is_swapped_in_is_not_followed() {
        for kind in [
            Kind::File { size: 5 },
            Kind::Fifo,
            Kind::Symlink(b"to".to_vec()),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let victim = folder.path().join("victim");
            std::fs::write(&victim, "secret").unwrap();
            std::fs::set_permissions(&victim, PermissionsExt::from_mode(0o600)).unwrap();
            let before = statat(CWD, &victim, AtFlags::empty()).unwrap();
            let top = folder.path().join("top");
            std::fs::create_dir(&top).unwrap();
            let sink = HostSink::new(open_directory(&top).unwrap());
            let entry = entry(kind);
            let directory = sink.directory().unwrap();
            let file = sink.make(directory, b"temporary", &entry).unwrap();
            std::fs::remove_file(top.join("temporary")).unwrap();
            match entry.kind {
                // A link in the place of a link is told from it by nothing but its target; it is itself changed, as that was to be.
                Kind::File { .. } | Kind::Symlink(_) => {
                    symlink(&victim, top.join("temporary")).unwrap()
                }
                _ => std::fs::hard_link(&victim, top.join("temporary")).unwrap(),
            }
            let done = sink.complete(b"temporary", file.as_ref(), &entry, &mut Nothing);
            assert_eq!(done.is_err(), entry.kind == Kind::Fifo);
            let after = statat(CWD, &victim, AtFlags::empty()).unwrap();
            assert_eq!(after.st_mode & 0o7777, 0o600);
            assert_eq!((after.st_uid, after.st_size), (before.st_uid, 6));
            assert_eq!(after.st_mtime, before.st_mtime);
        }
    }

    #[test]
    fn a_link_in_the_place_of_a_node_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let directory = open_directory(folder.path()).unwrap();
        symlink("/dev/null", folder.path().join("link")).unwrap();
        for kind in [Kind::Fifo, Kind::CharDevice(0x103), Kind::Socket] {
            let refused = open_made(&directory, b"link", &kind).unwrap_err();
            assert!(refused.to_string().contains("was replaced"));
        }
        assert!(open_made(&directory, b"link", &Kind::Symlink(Vec::new())).is_ok());
    }

    #[test]
    fn names_of_what_is_not_complete_cannot_be_foreseen() {
        assert_ne!(temporary_name().unwrap(), temporary_name().unwrap());
    }
}
