//! A volume as a target of a stream.

use std::io;

use persimmon_stream::{Kind, Node, Target, Time};
use persimmon_vfs::{
    Allocate, Caller, Error, FileKind, Handle, Ino, Listing, RenameMode, SetAttr, SetTime,
    Timestamp, Vfs, WriteFlags, XattrMode,
};

use crate::Filesystem;

/// What a directory passes on to what is made in it.
const PASSED_ON: [&[u8]; 4] = [
    b"system.posix_acl_default",
    b"system.posix_acl_access",
    b"user.persimmon.compression",
    b"user.persimmon.lifetime",
];

/// The root of a volume that this process has opened.
pub struct VolumeTarget {
    filesystem: Filesystem,
    caller: Caller,
}

fn of(error: Error) -> io::Error {
    io::Error::from_raw_os_error(error.errno())
}

fn stamp(time: Time) -> SetTime {
    SetTime::At(Timestamp {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
    })
}

impl VolumeTarget {
    /// That of this volume.
    #[must_use]
    pub fn new(filesystem: &Filesystem) -> VolumeTarget {
        VolumeTarget {
            filesystem: filesystem.clone(),
            caller: Caller::root(),
        }
    }

    fn vfs(&self) -> &Vfs {
        self.filesystem.vfs()
    }

    fn find(&self, at: Ino, name: &[u8]) -> io::Result<Ino> {
        match name {
            [] => Ok(at),
            name => Ok(self.vfs().lookup(at, name).map_err(of)?.ino),
        }
    }

    fn set(&self, ino: Ino, set: &SetAttr) -> io::Result<()> {
        self.vfs().setattr(ino, Handle::NONE, set).map_err(of)?;
        Ok(())
    }

    fn write_all(&self, ino: Ino, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (mut at, mut left) = (offset, bytes);
        while !left.is_empty() {
            let flags = WriteFlags::default();
            let written = self.vfs().write(ino, Handle::NONE, at, left, flags);
            let len = written.map_err(of)?.len;
            if len == 0 {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            at += len as u64;
            left = left.get(len..).unwrap_or_default();
        }
        Ok(())
    }
}

impl Target for VolumeTarget {
    type Dir = Ino;
    type File = Ino;

    fn root(&mut self) -> io::Result<Ino> {
        Ok(self.vfs().root())
    }

    fn is_privileged(&self) -> bool {
        true
    }

    fn open_dir(&mut self, at: &Ino, name: &[u8]) -> io::Result<Ino> {
        let found = self.vfs().lookup(*at, name).map_err(of)?;
        match found.kind() {
            FileKind::Directory => Ok(found.ino),
            _ => Err(of(Error::NotDirectory)),
        }
    }

    fn kind(&mut self, at: &Ino, name: &[u8]) -> io::Result<Kind> {
        let found = self.vfs().lookup(*at, name).map_err(of)?;
        Kind::of_mode(found.mode).ok_or_else(|| io::Error::from_raw_os_error(libc::EIO))
    }

    fn list(&mut self, at: &Ino, max: usize) -> io::Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        let mut each = |entry: &persimmon_vfs::Entry<'_>| {
            if names.len() == max {
                return Listing::Full;
            }
            if entry.name != b"." && entry.name != b".." {
                names.push(entry.name.to_vec());
            }
            Listing::More
        };
        self.vfs()
            .readdir(*at, Handle::NONE, 0, &mut each)
            .map_err(of)?;
        Ok(names)
    }

    fn make(&mut self, at: &Ino, name: &[u8], node: Node<'_>) -> io::Result<()> {
        let (vfs, caller) = (self.vfs(), &self.caller);
        let made = match node {
            Node::Directory => vfs.mkdir(caller, *at, name, 0o700),
            Node::Regular => vfs.mknod(caller, *at, name, Kind::Regular.mode() | 0o600, 0),
            Node::Symlink(target) => vfs.symlink(caller, *at, name, target),
            Node::Special(kind, rdev) => vfs.mknod(caller, *at, name, kind.mode() | 0o600, rdev),
        };
        made.map_err(of)?;
        Ok(())
    }

    fn strip(&mut self, at: &Ino, name: &[u8]) -> io::Result<()> {
        let ino = self.find(*at, name)?;
        for attribute in PASSED_ON {
            match self.vfs().removexattr(ino, attribute) {
                Ok(()) | Err(Error::NoAttribute) => {}
                Err(error) => return Err(of(error)),
            }
        }
        Ok(())
    }

    fn link(&mut self, from: (&Ino, &[u8]), to: (&Ino, &[u8])) -> io::Result<()> {
        let ino = self.find(*from.0, from.1)?;
        self.vfs().link(ino, *to.0, to.1).map_err(of)?;
        Ok(())
    }

    fn rename(&mut self, from: (&Ino, &[u8]), to: (&Ino, &[u8])) -> io::Result<()> {
        let mode = RenameMode::NoReplace;
        let renamed = self.vfs().rename(*from.0, from.1, *to.0, to.1, mode);
        renamed.map_err(of)
    }

    fn unlink(&mut self, at: &Ino, name: &[u8]) -> io::Result<()> {
        self.vfs().unlink(*at, name).map_err(of)
    }

    fn remove_dir(&mut self, at: &Ino, name: &[u8]) -> io::Result<()> {
        self.vfs().rmdir(*at, name).map_err(of)
    }

    fn open_file(&mut self, at: &Ino, name: &[u8]) -> io::Result<Ino> {
        let found = self.vfs().lookup(*at, name).map_err(of)?;
        match found.kind() {
            FileKind::Regular => Ok(found.ino),
            _ => Err(of(Error::NotDirectory)),
        }
    }

    fn write(&mut self, file: &Ino, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all(*file, offset, bytes)
    }

    fn punch(&mut self, file: &Ino, offset: u64, len: u64) -> io::Result<()> {
        let size = self.vfs().getattr(*file).map_err(of)?.size;
        let end = offset.saturating_add(len).min(size);
        if offset >= end {
            return Ok(());
        }
        let (vfs, len) = (self.vfs(), end - offset);
        let punched = vfs.fallocate(*file, Handle::NONE, offset, len, Allocate::Punch);
        punched.map_err(of)
    }

    fn set_size(&mut self, file: &Ino, size: u64) -> io::Result<()> {
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        self.set(*file, &set)
    }

    fn set_owner(&mut self, at: &Ino, name: &[u8], uid: u32, gid: u32) -> io::Result<()> {
        let set = SetAttr {
            uid: Some(uid),
            gid: Some(gid),
            ..SetAttr::default()
        };
        self.set(self.find(*at, name)?, &set)
    }

    fn set_xattr(
        &mut self,
        at: &Ino,
        name: &[u8],
        attribute: &[u8],
        value: &[u8],
    ) -> io::Result<()> {
        let ino = self.find(*at, name)?;
        let (vfs, caller) = (self.vfs(), &self.caller);
        let set = vfs.setxattr(caller, ino, attribute, value, XattrMode::Either);
        set.map_err(of)
    }

    fn remove_xattr(&mut self, at: &Ino, name: &[u8], attribute: &[u8]) -> io::Result<()> {
        let ino = self.find(*at, name)?;
        self.vfs().removexattr(ino, attribute).map_err(of)
    }

    fn set_mode(&mut self, at: &Ino, name: &[u8], mode: u32) -> io::Result<()> {
        let set = SetAttr {
            mode: Some(mode),
            ..SetAttr::default()
        };
        self.set(self.find(*at, name)?, &set)
    }

    fn set_times(&mut self, at: &Ino, name: &[u8], atime: Time, mtime: Time) -> io::Result<()> {
        let set = SetAttr {
            atime: Some(stamp(atime)),
            mtime: Some(stamp(mtime)),
            ..SetAttr::default()
        };
        self.set(self.find(*at, name)?, &set)
    }

    fn read_whole(&mut self, at: &Ino, name: &[u8], max: usize) -> io::Result<Option<Vec<u8>>> {
        let found = match self.vfs().lookup(*at, name) {
            Ok(found) => found,
            Err(Error::NotFound) => return Ok(None),
            Err(error) => return Err(of(error)),
        };
        let mut bytes = vec![0; usize::try_from(found.size).unwrap_or(max).min(max)];
        let read = self.vfs().read(found.ino, Handle::NONE, 0, &mut bytes);
        bytes.truncate(read.map_err(of)?);
        Ok(Some(bytes))
    }

    fn write_whole(&mut self, at: &Ino, name: &[u8], bytes: &[u8]) -> io::Result<()> {
        let file = match self.vfs().lookup(*at, name) {
            Ok(found) => found.ino,
            Err(Error::NotFound) => {
                self.make(at, name, Node::Regular)?;
                self.find(*at, name)?
            }
            Err(error) => return Err(of(error)),
        };
        self.set_size(&file, 0)?;
        self.write_all(file, 0, bytes)
    }

    fn replace(&mut self, at: &Ino, from: &[u8], to: &[u8]) -> io::Result<()> {
        let renamed = self.vfs().rename(*at, from, *at, to, RenameMode::Replace);
        renamed.map_err(of)
    }

    fn sync(&mut self) -> io::Result<()> {
        let synced = self.filesystem.sync();
        synced.map_err(|error| io::Error::from_raw_os_error(error.errno()))
    }
}
