//! Trees that are compared: in a volume that this process has opened, and below a directory of a mount.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use persimmon::internal::format::Ino;
use persimmon::vfs::{Handle, Listing};
use persimmon::{Caller, FileKind, FilesystemError, Vfs};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::diff::{Child, Side, State};
use crate::fs::host::{HostNode, raise_descriptors, time};

/// The cookie of `..`, behind which the entries of a directory begin.
const AFTER_DOTS: u64 = 2;

type Errnos<T> = rustix::io::Result<T>;

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
    top: MountNode,
    ino: Ino,
    device: u64,
}

/// Something there. By open directories: a path may be longer than the system takes.
#[derive(Clone)]
pub struct MountNode {
    node: HostNode,
    /// For messages.
    path: PathBuf,
}

impl MountSide {
    pub fn new(path: PathBuf) -> Result<MountSide> {
        raise_descriptors();
        let named = || path.display().to_string();
        let node = HostNode::of(&path).with_context(named)?;
        let stat = node.stat().with_context(named)?;
        Ok(MountSide {
            ino: Ino(stat.st_ino).plain(),
            device: stat.st_dev,
            top: MountNode { node, path },
        })
    }

    fn try_list(&self, directory: &MountNode) -> Errnos<BTreeMap<Vec<u8>, Child<MountNode>>> {
        // What is mounted there is another filesystem.
        if directory.node.stat()?.st_dev != self.device {
            return Ok(BTreeMap::new());
        }
        let entries = directory.node.entries()?.into_iter().map(|entry| {
            let name = entry.node.name().to_vec();
            let child = Child {
                ino: Ino(entry.ino).plain(),
                is_directory: entry.kind == FileType::Directory,
                node: MountNode {
                    path: directory.path.join(OsStr::from_bytes(&name)),
                    node: entry.node,
                },
            };
            (name, child)
        });
        Ok(entries.collect())
    }
}

impl Side for MountSide {
    type Node = MountNode;

    fn root(&self) -> Child<MountNode> {
        Child {
            ino: self.ino,
            is_directory: true,
            node: self.top.clone(),
        }
    }

    fn list(&self, directory: &MountNode) -> Result<BTreeMap<Vec<u8>, Child<MountNode>>> {
        match self.try_list(directory) {
            Err(Errno::NOENT) => Ok(BTreeMap::new()),
            list => list.with_context(|| directory.path.display().to_string()),
        }
    }

    fn state(&self, node: &MountNode) -> Result<State> {
        let state = || -> Errnos<State> {
            let stat = node.node.stat()?;
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            let modified = time(stat.st_mtime, stat.st_mtime_nsec);
            let changed = time(stat.st_ctime, stat.st_ctime_nsec);
            let size_and_times = (stat.st_size as u64, modified, changed);
            let mut xattrs = match is_directory {
                true => node.node.xattrs()?,
                false => Vec::new(),
            };
            xattrs.sort();
            Ok(State {
                mode: stat.st_mode,
                uid: stat.st_uid,
                gid: stat.st_gid,
                size_and_times: (!is_directory).then_some(size_and_times),
                xattrs,
            })
        };
        match state() {
            // Gone meanwhile: other than it was.
            Err(Errno::NOENT) => Ok(State {
                mode: 0,
                uid: 0,
                gid: 0,
                size_and_times: None,
                xattrs: Vec::new(),
            }),
            state => state.with_context(|| node.path.display().to_string()),
        }
    }
}
