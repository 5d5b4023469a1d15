//! The volume as where from and where to. By inode numbers: no symbolic link on the way is ever followed.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use persimmon::internal::format::shown::shown;
use persimmon::vfs::{Entry as Listed, Handle, Listing, NamedIno, OpenFlags, WriteFlags};
use persimmon::{
    Attr, Caller, FileKind, Filesystem, FilesystemError, Ino, SeekTo, SetAttr, SetTime, Vfs,
    XattrMode,
};

use super::NOT_PERMITTED;
use super::tree::{
    Children, ClonedEntries, Content, Copied, CopyError, Entry, Identity, Kind, Meta, Seen, Sink,
    Target, Tree, each_piece_not_shared,
};

/// The cookie of `..`, behind which the entries of a directory begin.
const AFTER_DOTS: u64 = 2;
/// Entries fetched at a time.
const BATCH: usize = 256;
/// Names tried for something that replaces another.
const ATTEMPTS: u32 = 1000;

/// An open file.
struct Open {
    filesystem: Filesystem,
    ino: Ino,
    handle: Handle,
    size: u64,
}

impl Open {
    fn vfs(&self) -> &Vfs {
        self.filesystem.vfs()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // What was written is in the history already, or goes with a file that never got a name.
        let _ = self.vfs().release(self.ino, self.handle);
    }
}

impl Content for Open {
    fn share(&mut self, range: Range<u64>, with: &Target<'_>) -> Copied<u64> {
        let Target::Volume(ino, handle) = *with else {
            return Ok(0);
        };
        let source = (self.ino, self.handle, range.start);
        let target = (ino, handle, range.start);
        let len = range.end - range.start;
        Ok(self.vfs().copy_file_range(source, target, len)?)
    }

    fn next_data(&mut self, at: u64) -> Copied<Option<Range<u64>>> {
        let seek = |at, to| match self.vfs().seek(self.ino, self.handle, at, to) {
            Ok(found) => Ok(Some(found)),
            Err(FilesystemError::NoSuchOffset) => Ok(None),
            Err(error) => Err(error),
        };
        let Some(start) = seek(at, SeekTo::Data)? else {
            return Ok(None);
        };
        let end = seek(start, SeekTo::Hole)?.unwrap_or(self.size);
        Ok((start < end).then_some(start..end))
    }

    fn read_at(&mut self, buffer: &mut [u8], at: u64) -> Copied<usize> {
        Ok(self.vfs().read(self.ino, self.handle, at, buffer)?)
    }
}

/// A volume to copy from.
pub struct VolumeTree(pub Filesystem);

impl VolumeTree {
    fn vfs(&self) -> &Arc<Vfs> {
        self.0.vfs()
    }
}

/// What an inode is.
pub fn kind_of(vfs: &Vfs, attr: &Attr) -> Copied<Kind> {
    Ok(match attr.kind() {
        FileKind::Directory => Kind::Directory,
        FileKind::Regular => Kind::File { size: attr.size },
        FileKind::Symlink => Kind::Symlink(vfs.readlink(attr.ino)?),
        FileKind::Fifo => Kind::Fifo,
        FileKind::Socket => Kind::Socket,
        FileKind::CharDevice => Kind::CharDevice(attr.rdev),
        FileKind::BlockDevice => Kind::BlockDevice(attr.rdev),
    })
}

fn xattr_names(vfs: &Vfs, ino: Ino) -> Copied<Vec<Vec<u8>>> {
    let names = vfs.listxattr(&Caller::root(), ino)?;
    let names = names.split(|byte| *byte == 0);
    Ok(names
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect())
}

impl Tree for VolumeTree {
    type Node = Ino;

    fn look(&self, ino: &Ino) -> Copied<Seen> {
        let vfs = self.vfs();
        let attr = vfs.getattr(*ino)?;
        let mut xattrs = Vec::new();
        for name in xattr_names(vfs, *ino)? {
            let value = vfs.getxattr(*ino, &name)?;
            xattrs.push((name, value));
        }
        Ok(Seen {
            identity: Identity(0, ino.0),
            links: attr.nlink.into(),
            kind: kind_of(vfs, &attr)?,
            meta: Meta {
                mode: attr.mode & 0o7777,
                uid: attr.uid,
                gid: attr.gid,
                atime: attr.atime,
                mtime: attr.mtime,
                xattrs,
            },
        })
    }

    fn children(&self, ino: &Ino) -> Copied<Children<Ino>> {
        Ok(Box::new(Directory {
            vfs: Arc::clone(self.vfs()),
            ino: *ino,
            cookie: AFTER_DOTS,
            fetched: VecDeque::new(),
            ended: false,
        }))
    }

    fn directory_in_volume(&self, ino: &Ino) -> Option<Ino> {
        Some(*ino)
    }

    fn some_children(&self, _: &Ino, wanted: Vec<NamedIno>) -> Copied<Children<Ino>> {
        let children = wanted.into_iter().map(|named| Ok((named.name, named.ino)));
        Ok(Box::new(children))
    }

    fn content(&self, ino: &Ino, size: u64) -> Copied<Box<dyn Content>> {
        let flags = OpenFlags {
            read: true,
            no_atime: true,
            ..OpenFlags::default()
        };
        let handle = self.vfs().open(*ino, flags)?;
        Ok(Box::new(Open {
            filesystem: self.0.clone(),
            ino: *ino,
            handle,
            size,
        }))
    }
}

/// The entries of a directory, some hundred of them in memory.
pub struct Directory {
    vfs: Arc<Vfs>,
    ino: Ino,
    cookie: u64,
    fetched: VecDeque<(Vec<u8>, Ino)>,
    ended: bool,
}

impl Iterator for Directory {
    type Item = Copied<(Vec<u8>, Ino)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.fetched.is_empty() && !self.ended {
            let Directory {
                vfs,
                ino,
                cookie,
                fetched,
                ended,
            } = self;
            let after = *cookie;
            let listed = vfs.readdir(*ino, Handle::NONE, after, &mut |entry: &Listed<'_>| {
                if fetched.len() >= BATCH {
                    return Listing::Full;
                }
                *cookie = entry.cookie;
                fetched.push_back((entry.name.to_vec(), entry.ino));
                Listing::More
            });
            *ended = fetched.len() < BATCH;
            if let Err(error) = listed {
                *ended = true;
                fetched.clear();
                return Some(Err(error.into()));
            }
        }
        self.fetched.pop_front().map(Ok)
    }
}

/// A volume to copy to.
pub struct VolumeSink {
    filesystem: Filesystem,
    /// Of the top, for messages.
    path: Vec<u8>,
    /// The directories on the way down, the top first.
    way: Vec<Ino>,
}

impl VolumeSink {
    /// Below the directory `top`, whose path is `path`.
    pub fn new(filesystem: &Filesystem, top: Ino, path: &Path) -> VolumeSink {
        VolumeSink {
            filesystem: filesystem.clone(),
            path: path.as_os_str().as_bytes().to_vec(),
            way: vec![top],
        }
    }

    fn vfs(&self) -> &Vfs {
        self.filesystem.vfs()
    }

    /// What came out. Messages name what is copied; where it is to go to is named here, if it is that which forbids it.
    fn at<T>(&self, entry: &Entry, result: Result<T, FilesystemError>) -> Copied<T> {
        match result {
            Err(FilesystemError::NotPermitted) => {
                let top = self.path.strip_suffix(b"/").unwrap_or(&self.path);
                let target = [top, b"/", &entry.path].concat();
                let target = shown(&target);
                Err(CopyError::one(format!("to {target}: {NOT_PERMITTED}")))
            }
            result => Ok(result?),
        }
    }

    fn directory(&self) -> Copied<Ino> {
        self.way
            .last()
            .copied()
            .ok_or_else(|| CopyError::ends("no directory is entered"))
    }

    /// What a path below the top names. Directories alone are gone through.
    fn find(&self, path: &[u8]) -> Copied<Ino> {
        let top = self.way.first().copied();
        let mut at = top.ok_or_else(|| CopyError::ends("no directory is entered"))?;
        for name in path.split(|byte| *byte == b'/') {
            // Of anything but a directory it is refused.
            at = self.vfs().lookup(at, name)?.ino;
        }
        Ok(at)
    }

    /// Gives something made by `make` a name, in the place of what has it.
    fn place(
        &self,
        parent: Ino,
        entry: &Entry,
        make: impl Fn(&[u8]) -> Result<Ino, FilesystemError>,
    ) -> Copied<Ino> {
        let name = entry.name();
        match make(name) {
            Err(FilesystemError::Exists) => {}
            made => return self.at(entry, made),
        }
        if self.vfs().lookup(parent, name)?.kind() == FileKind::Directory {
            return Err(CopyError::one("a directory has that name"));
        }
        for number in 0..ATTEMPTS {
            let other = format!(".persimmon-{}-{number}", std::process::id()).into_bytes();
            let ino = match make(&other) {
                Err(FilesystemError::Exists) => continue,
                made => self.at(entry, made)?,
            };
            let mode = persimmon::RenameMode::Replace;
            let renamed = self.vfs().rename(parent, &other, parent, name, mode);
            if renamed.is_err() {
                let _ = self.vfs().unlink(parent, &other);
            }
            self.at(entry, renamed)?;
            return Ok(ino);
        }
        Err(CopyError::one("no name is free to make it under"))
    }

    /// Sets all attributes. Tells those that a volume does not take.
    fn set_meta(&self, ino: Ino, entry: &Entry) -> Copied<Vec<String>> {
        let (vfs, Entry { kind, meta, .. }) = (self.vfs(), entry);
        // What it got from its directory, or had before; but for how it is to be stored, of which a source outside says nothing.
        for name in xattr_names(vfs, ino)? {
            let is_kept = name.starts_with(OWN_ATTRIBUTES);
            if !is_kept && !meta.xattrs.iter().any(|(wanted, _)| *wanted == name) {
                self.at(entry, vfs.removexattr(ino, &name))?;
            }
        }
        // In one change of the inode. A change of owner takes setuid and capabilities away, so these come with it or after it.
        let set = SetAttr {
            uid: Some(meta.uid),
            gid: Some(meta.gid),
            mode: (!matches!(kind, Kind::Symlink(_))).then_some(meta.mode),
            atime: Some(SetTime::At(meta.atime)),
            mtime: Some(SetTime::At(meta.mtime)),
            ..SetAttr::default()
        };
        self.at(entry, vfs.setattr(ino, Handle::NONE, &set))?;
        let mut lost = Vec::new();
        for (name, value) in &meta.xattrs {
            let put = vfs.setxattr(&Caller::root(), ino, name, value, XattrMode::Either);
            match put {
                Ok(()) => {}
                Err(error @ (FilesystemError::HostFull | FilesystemError::ReadOnly)) => {
                    return Err(error.into());
                }
                Err(error) if error.is_failure() => return Err(error.into()),
                // A longer value than a volume takes is answered so as well.
                Err(FilesystemError::NoSpace) => {
                    lost.push(super::not_kept(name, "too large for a volume"));
                }
                Err(error) => lost.push(super::not_kept(name, &error.to_string())),
            }
        }
        Ok(lost)
    }

    fn put_file(
        &self,
        parent: Ino,
        entry: &Entry,
        size: u64,
        content: &mut dyn Content,
    ) -> Copied<Vec<String>> {
        let flags = OpenFlags {
            read: true,
            write: true,
            ..OpenFlags::default()
        };
        // Without a name until it is whole: one that is given up, or left by a crash, goes by itself.
        let vfs = self.vfs();
        let made = vfs.tmpfile(&Caller::root(), parent, 0o600, flags);
        let (attr, handle) = self.at(entry, made)?;
        let file = Open {
            filesystem: self.filesystem.clone(),
            ino: attr.ino,
            handle,
            size,
        };
        let with = Target::Volume(file.ino, handle);
        each_piece_not_shared(content, Some(with), |piece, at| {
            let (mut rest, mut at) = (piece, at);
            while !rest.is_empty() {
                let written = vfs.write(file.ino, handle, at, rest, WriteFlags::default())?;
                rest = rest.get(written.len..).unwrap_or_default();
                at = written.end;
            }
            Ok(())
        })?;
        if vfs.getattr(file.ino)?.size != size {
            let set = SetAttr {
                size: Some(size),
                ..SetAttr::default()
            };
            vfs.setattr(file.ino, handle, &set)?;
        }
        let lost = self.set_meta(file.ino, entry)?;
        self.place(parent, entry, |name| {
            vfs.link(file.ino, parent, name).map(|attr| attr.ino)
        })?;
        Ok(lost)
    }
}

impl Sink for VolumeSink {
    fn enter(&mut self, entry: &Entry) -> Copied<()> {
        let parent = self.directory()?;
        if entry.path.is_empty() {
            self.way.push(parent);
            return Ok(());
        }
        let made = self
            .vfs()
            .mkdir(&Caller::root(), parent, entry.name(), 0o700);
        let attr = match made {
            Err(FilesystemError::Exists) => self.vfs().lookup(parent, entry.name())?,
            made => self.at(entry, made)?,
        };
        if attr.kind() != FileKind::Directory {
            return Err(CopyError::one("has the name of a directory, and is none"));
        }
        self.way.push(attr.ino);
        Ok(())
    }

    fn clone_entries(&mut self, from: Ino, cookie: u64) -> Copied<Option<ClonedEntries>> {
        let to = self.directory()?;
        let cloned = self
            .vfs()
            .clone_entries(&Caller::root(), from, to, (cookie, usize::MAX))?;
        Ok(Some(ClonedEntries::new(cloned)))
    }

    fn leave(&mut self, entry: &Entry) -> Copied<Vec<String>> {
        let ino = self.directory()?;
        self.way.pop();
        self.set_meta(ino, entry)
    }

    fn put(&mut self, entry: &Entry, content: &mut dyn Content) -> Copied<Vec<String>> {
        let parent = self.directory()?;
        let (vfs, caller) = (self.vfs(), Caller::root());
        let node = |mode: u32, rdev: u32| {
            self.place(parent, entry, |name| {
                vfs.mknod(&caller, parent, name, mode | 0o600, rdev)
                    .map(|attr| attr.ino)
            })
        };
        let ino = match &entry.kind {
            Kind::File { size } => return self.put_file(parent, entry, *size, content),
            Kind::HardLink(path) => {
                let original = self.find(path)?;
                let there = vfs.lookup(parent, entry.name());
                if there.is_ok_and(|there| there.ino == original) {
                    return Ok(Vec::new());
                }
                self.place(parent, entry, |name| {
                    vfs.link(original, parent, name).map(|attr| attr.ino)
                })?;
                return Ok(Vec::new());
            }
            Kind::Symlink(target) => self.place(parent, entry, |name| {
                vfs.symlink(&caller, parent, name, target)
                    .map(|attr| attr.ino)
            })?,
            Kind::Fifo => node(FileKind::Fifo.mode(), 0)?,
            Kind::Socket => node(FileKind::Socket.mode(), 0)?,
            Kind::CharDevice(rdev) => node(FileKind::CharDevice.mode(), *rdev)?,
            Kind::BlockDevice(rdev) => node(FileKind::BlockDevice.mode(), *rdev)?,
            Kind::Directory => return Err(CopyError::one("is a directory")),
        };
        self.set_meta(ino, entry)
    }
}

/// What Persimmon's own attributes begin with: how a file is compressed and how long it will live.
const OWN_ATTRIBUTES: &[u8] = b"user.persimmon.";
