//! Paths: components, links, the last one.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use persimmon_vfs::{Attr, Error, FileKind, Ino, Result, Vfs};

/// Symbolic links followed in one path, as on Linux.
const LINKS_MAX: u32 = 40;

/// What to do about a symbolic link at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    Follow,
    Keep,
}

/// Components still to walk, the next one last.
struct Walk {
    rest: Vec<Vec<u8>>,
    /// The path ends in a slash, so it means a directory.
    directory: bool,
}

impl Walk {
    fn new(path: &[u8]) -> Walk {
        Walk {
            rest: components(path).rev().map(<[u8]>::to_vec).collect(),
            directory: path.ends_with(b"/"),
        }
    }

    fn push_front(&mut self, path: &[u8]) {
        self.rest.extend(components(path).rev().map(<[u8]>::to_vec));
    }
}

fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
}

/// The inode a path means. A path always begins at the root.
pub(crate) fn resolve(vfs: &Vfs, path: &Path, last: Last) -> Result<Attr> {
    let path = path.as_os_str().as_bytes();
    if path.is_empty() {
        return Err(Error::NotFound);
    }
    let mut walk = Walk::new(path);
    let mut at = vfs.getattr(vfs.root())?;
    let mut links = 0;
    while let Some(name) = walk.rest.pop() {
        if at.kind() != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        let found = vfs.lookup(at.ino, &name)?;
        let is_last = walk.rest.is_empty();
        let follow = !is_last || walk.directory || last == Last::Follow;
        if found.kind() == FileKind::Symlink && follow {
            links += 1;
            if links > LINKS_MAX {
                return Err(Error::SymlinkLoop);
            }
            let target = vfs.readlink(found.ino)?;
            if target.starts_with(b"/") {
                at = vfs.getattr(vfs.root())?;
            }
            walk.push_front(&target);
        } else {
            at = found;
        }
    }
    if walk.directory && at.kind() != FileKind::Directory {
        return Err(Error::NotDirectory);
    }
    Ok(at)
}

/// How often an operation begins again at the root, at most.
const TRIES_MAX: u32 = 64;

/// Does what goes by a path, and again from the root where something on the way was removed, and freed, between two of its steps: the path
/// leads nowhere or elsewhere now. A path that never holds still leads nowhere.
pub(crate) fn from_root<T>(mut act: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..TRIES_MAX {
        match act() {
            Err(Error::Stale) => {}
            done => return done,
        }
    }
    Err(Error::NotFound)
}

/// The last name of a path, and the directory that holds it, or will.
pub(crate) struct Named<'a> {
    pub(crate) dir: Ino,
    pub(crate) name: &'a [u8],
    /// The path ends in a slash, so it means a directory.
    directory: bool,
}

impl Named<'_> {
    /// What has the name, a symbolic link itself.
    ///
    /// # Errors
    /// There is none, or it is no directory and the path ends in a slash.
    pub(crate) fn found(&self, vfs: &Vfs) -> Result<Attr> {
        let found = vfs.lookup(self.dir, self.name)?;
        match self.directory && found.kind() != FileKind::Directory {
            true => Err(Error::NotDirectory),
            false => Ok(found),
        }
    }

    /// Refuses a path that ends in a slash, as that of a file which is there.
    pub(crate) fn check_of_file(&self, vfs: &Vfs) -> Result<()> {
        if self.directory {
            self.found(vfs)?;
            return Err(Error::IsDirectory);
        }
        Ok(())
    }

    /// Refuses a path that ends in a slash, as that of a file which is to be made.
    pub(crate) fn check_of_new_file(&self) -> Result<()> {
        match self.directory {
            true => Err(Error::IsDirectory),
            false => Ok(()),
        }
    }

    /// The same of a link that is to be made.
    pub(crate) fn check_of_new_link(&self, vfs: &Vfs) -> Result<()> {
        if !self.directory {
            return Ok(());
        }
        // It fails where there is none, as `link(2)` does.
        vfs.lookup(self.dir, self.name)?;
        Err(Error::Exists)
    }

    /// The same of what is to get this name from `source`.
    pub(crate) fn check_target_of(&self, source: &Attr) -> Result<()> {
        match self.directory && source.kind() != FileKind::Directory {
            true => Err(Error::NotDirectory),
            false => Ok(()),
        }
    }
}

pub(crate) fn parent<'a>(vfs: &Vfs, path: &'a Path) -> Result<Named<'a>> {
    parent_or(vfs, path, Error::Invalid("a path without a name"))
}

/// Of a file, which the root is not.
pub(crate) fn parent_of_file<'a>(vfs: &Vfs, path: &'a Path) -> Result<Named<'a>> {
    parent_or(vfs, path, Error::IsDirectory)
}

/// Of what is to be made: the root is there.
pub(crate) fn parent_of_new<'a>(vfs: &Vfs, path: &'a Path) -> Result<Named<'a>> {
    parent_or(vfs, path, Error::Exists)
}

fn parent_or<'a>(vfs: &Vfs, path: &'a Path, unnamed: Error) -> Result<Named<'a>> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(Error::NotFound);
    }
    let end = bytes
        .iter()
        .rposition(|byte| *byte != b'/')
        .map(|at| at + 1)
        .ok_or(unnamed)?;
    let (trimmed, slashes) = bytes.split_at(end);
    let at = trimmed.iter().rposition(|byte| *byte == b'/');
    let (dir, name) = match at {
        Some(at) => trimmed.split_at(at + 1),
        None => (&b"/"[..], trimmed),
    };
    let dir = resolve(
        vfs,
        Path::new(std::ffi::OsStr::from_bytes(dir)),
        Last::Follow,
    )?;
    Ok(Named {
        dir: dir.ino,
        name,
        directory: !slashes.is_empty(),
    })
}
