//! Trees that are compared: in a volume that this process has opened, and below a directory of a mount.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use persimmon::internal::format::Ino;
use persimmon::vfs::{Handle, Listing};
use persimmon::{Caller, FileKind, FilesystemError, Timestamp, Vfs};

use super::diff::{Child, Side, State};

/// The cookie of `..`, behind which the entries of a directory begin.
const AFTER_DOTS: u64 = 2;
/// The longest list of extended attributes that the system gives, and the longest value.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// In a volume that is not mounted.
pub struct VolumeSide {
    vfs: Arc<Vfs>,
    top: Ino,
}

impl VolumeSide {
    pub fn new(vfs: Arc<Vfs>, top: Ino) -> VolumeSide {
        VolumeSide { vfs, top }
    }
}

impl Side for VolumeSide {
    type Node = Ino;

    fn root(&self) -> Child<Ino> {
        Child {
            ino: self.top.plain(),
            is_directory: true,
            node: self.top,
        }
    }

    fn list(&self, directory: &Ino) -> Result<BTreeMap<Vec<u8>, Child<Ino>>> {
        let mut list = BTreeMap::new();
        let mut each = |entry: &persimmon::vfs::Entry<'_>| {
            let child = Child {
                ino: entry.ino.plain(),
                is_directory: entry.kind == FileKind::Directory,
                node: entry.ino,
            };
            list.insert(entry.name.to_vec(), child);
            Listing::More
        };
        self.vfs
            .readdir(*directory, Handle::NONE, AFTER_DOTS, &mut each)?;
        Ok(list)
    }

    fn state(&self, node: &Ino) -> Result<State> {
        let attr = self.vfs.getattr(*node)?;
        let is_directory = attr.kind() == FileKind::Directory;
        let mut xattrs = Vec::new();
        if is_directory {
            let names = self.vfs.listxattr(&Caller::root(), *node)?;
            for name in names
                .split(|byte| *byte == 0)
                .filter(|name| !name.is_empty())
            {
                match self.vfs.getxattr(*node, name) {
                    Ok(value) => xattrs.push((name.to_vec(), value)),
                    Err(FilesystemError::NoAttribute) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            xattrs.sort();
        }
        Ok(State {
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            size_and_times: (!is_directory).then_some((attr.size, attr.mtime, attr.ctime)),
            xattrs,
        })
    }
}

/// Below a directory of a mount.
pub struct MountSide {
    top: PathBuf,
    ino: Ino,
    device: u64,
}

impl MountSide {
    pub fn new(top: PathBuf) -> Result<MountSide> {
        let metadata = std::fs::symlink_metadata(&top);
        let metadata = metadata.with_context(|| top.display().to_string())?;
        Ok(MountSide {
            ino: Ino(metadata.ino()).plain(),
            device: metadata.dev(),
            top,
        })
    }

    fn try_list(&self, directory: &PathBuf) -> io::Result<BTreeMap<Vec<u8>, Child<PathBuf>>> {
        let mut list = BTreeMap::new();
        // What is mounted there is another filesystem.
        if std::fs::symlink_metadata(directory)?.dev() != self.device {
            return Ok(list);
        }
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let child = Child {
                ino: Ino(entry.ino()).plain(),
                is_directory: entry.file_type()?.is_dir(),
                node: entry.path(),
            };
            list.insert(entry.file_name().as_bytes().to_vec(), child);
        }
        Ok(list)
    }
}

impl Side for MountSide {
    type Node = PathBuf;

    fn root(&self) -> Child<PathBuf> {
        Child {
            ino: self.ino,
            is_directory: true,
            node: self.top.clone(),
        }
    }

    fn list(&self, directory: &PathBuf) -> Result<BTreeMap<Vec<u8>, Child<PathBuf>>> {
        match self.try_list(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeMap::new()),
            list => list.with_context(|| directory.display().to_string()),
        }
    }

    fn state(&self, node: &PathBuf) -> Result<State> {
        let state = || -> io::Result<State> {
            let metadata = std::fs::symlink_metadata(node)?;
            let time = |seconds, nanoseconds: i64| Timestamp {
                seconds,
                nanoseconds: nanoseconds as u32,
            };
            let modified = time(metadata.mtime(), metadata.mtime_nsec());
            let changed = time(metadata.ctime(), metadata.ctime_nsec());
            let size_and_times = (metadata.len(), modified, changed);
            Ok(State {
                mode: metadata.mode(),
                uid: metadata.uid(),
                gid: metadata.gid(),
                size_and_times: (!metadata.is_dir()).then_some(size_and_times),
                xattrs: match metadata.is_dir() {
                    true => xattrs(node)?,
                    false => Vec::new(),
                },
            })
        };
        match state() {
            // Gone meanwhile: other than it was.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(State {
                mode: 0,
                uid: 0,
                gid: 0,
                size_and_times: None,
                xattrs: Vec::new(),
            }),
            state => state.with_context(|| node.display().to_string()),
        }
    }
}

fn xattrs(path: &PathBuf) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0; XATTR_BYTES_MAX];
    let len = rustix::fs::llistxattr(path, &mut names[..])?;
    names.truncate(len);
    let mut found = Vec::new();
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0; XATTR_BYTES_MAX];
        match rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..]) {
            Ok(len) => {
                value.truncate(len);
                found.push((name.to_vec(), value));
            }
            Err(rustix::io::Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        }
    }
    found.sort();
    Ok(found)
}
