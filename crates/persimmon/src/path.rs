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

/// The directory that holds, or will hold, the last name of a path, and that name.
pub(crate) fn parent<'a>(vfs: &Vfs, path: &'a Path) -> Result<(Ino, &'a [u8])> {
    parent_or(vfs, path, Error::Invalid("a path without a name"))
}

/// The same, of what is to be made: the root is there.
pub(crate) fn parent_of_new<'a>(vfs: &Vfs, path: &'a Path) -> Result<(Ino, &'a [u8])> {
    if path.as_os_str().is_empty() {
        return Err(Error::NotFound);
    }
    parent_or(vfs, path, Error::Exists)
}

fn parent_or<'a>(vfs: &Vfs, path: &'a Path, unnamed: Error) -> Result<(Ino, &'a [u8])> {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes
        .iter()
        .rposition(|byte| *byte != b'/')
        .map(|at| at + 1)
        .ok_or(unnamed)?;
    let (trimmed, _) = bytes.split_at(end);
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
    Ok((dir.ino, name))
}
