//! Whole trees, to be compared: in a volume, and in a directory.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;

use persimmon::stream::STATE_DIRECTORY;
use persimmon::vfs::{Handle, Listing};
use persimmon::{Caller, FileKind, Filesystem, Ino, Vfs};

/// All that a file has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub mode: u32,
    pub owner: (u32, u32),
    pub rdev: u64,
    pub size: u64,
    pub atime: (i64, i64),
    pub mtime: (i64, i64),
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Bytes of a file, target of a link.
    pub content: Vec<u8>,
    /// The first path of the same inode.
    pub same_as: Vec<u8>,
}

pub type Tree = BTreeMap<Vec<u8>, File>;

/// What is below a directory of a volume.
pub fn of_volume(fs: &Filesystem, root: Ino) -> Tree {
    let (mut tree, mut first) = (Tree::new(), HashMap::new());
    walk(fs.vfs(), root, Vec::new(), &mut tree, &mut first);
    tree
}

fn walk(vfs: &Vfs, ino: Ino, path: Vec<u8>, tree: &mut Tree, first: &mut HashMap<Ino, Vec<u8>>) {
    let attr = vfs.getattr(ino).unwrap();
    let time = |time: persimmon::Timestamp| (time.seconds, i64::from(time.nanoseconds));
    let names = vfs.listxattr(&Caller::root(), ino).unwrap();
    let names = names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    let kind = attr.kind();
    let content = match kind {
        FileKind::Regular => {
            let mut content = vec![0; attr.size as usize];
            let read = vfs.read(ino, Handle::NONE, 0, &mut content).unwrap();
            assert_eq!(read, content.len());
            content
        }
        FileKind::Symlink => vfs.readlink(ino).unwrap(),
        _ => Vec::new(),
    };
    let file = File {
        mode: attr.mode,
        owner: (attr.uid, attr.gid),
        rdev: attr.rdev.into(),
        size: if kind == FileKind::Directory {
            0
        } else {
            attr.size
        },
        // Changed by who looks.
        atime: if kind == FileKind::Regular
            || kind == FileKind::Symlink
            || kind == FileKind::Directory
        {
            (0, 0)
        } else {
            time(attr.atime)
        },
        mtime: time(attr.mtime),
        xattrs: names
            .map(|name| (name.to_vec(), vfs.getxattr(ino, name).unwrap()))
            .collect(),
        content,
        same_as: first.entry(ino).or_insert(path.clone()).clone(),
    };
    tree.insert(path.clone(), file);
    if kind == FileKind::Directory {
        let mut below = Vec::new();
        let mut each = |entry: &persimmon::vfs::Entry<'_>| {
            if entry.name != b"." && entry.name != b".." {
                below.push((entry.name.to_vec(), entry.ino));
            }
            Listing::More
        };
        vfs.readdir(ino, Handle::NONE, 0, &mut each).unwrap();
        below.sort();
        for (name, ino) in below {
            if !(path.is_empty() && name == STATE_DIRECTORY) {
                walk(vfs, ino, [&path[..], b"/", &name].concat(), tree, first);
            }
        }
    }
}

/// What is below a directory of the system.
pub fn of_directory(top: &Path) -> Tree {
    let (mut tree, mut first) = (Tree::new(), HashMap::new());
    walk_directory(top, Vec::new(), &mut tree, &mut first);
    tree
}

fn walk_directory(top: &Path, path: Vec<u8>, tree: &mut Tree, first: &mut HashMap<u64, Vec<u8>>) {
    let at = top.join(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(&path)));
    let stat = std::fs::symlink_metadata(&at).unwrap();
    let kind = FileKind::from_mode(stat.mode());
    let content = match kind {
        FileKind::Regular => std::fs::read(&at).unwrap(),
        FileKind::Symlink => std::fs::read_link(&at)
            .unwrap()
            .as_os_str()
            .as_bytes()
            .to_vec(),
        _ => Vec::new(),
    };
    let mut names = vec![0; 64 << 10];
    let len = rustix::fs::llistxattr(&at, &mut names[..]).unwrap_or(0);
    names.truncate(len);
    let names = names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 64 << 10];
        let len = rustix::fs::lgetxattr(&at, OsStr::from_bytes(name), &mut value[..]).unwrap();
        value.truncate(len);
        value
    };
    let file = File {
        mode: stat.mode(),
        owner: (stat.uid(), stat.gid()),
        rdev: stat.rdev(),
        size: if kind == FileKind::Directory {
            0
        } else {
            stat.len()
        },
        atime: if kind == FileKind::Regular
            || kind == FileKind::Symlink
            || kind == FileKind::Directory
        {
            (0, 0)
        } else {
            (stat.atime(), stat.atime_nsec())
        },
        mtime: (stat.mtime(), stat.mtime_nsec()),
        xattrs: names.map(|name| (name.to_vec(), value(name))).collect(),
        content,
        same_as: first.entry(stat.ino()).or_insert(path.clone()).clone(),
    };
    tree.insert(path.clone(), file);
    if kind == FileKind::Directory {
        let mut below: Vec<(Vec<u8>, u64)> = std::fs::read_dir(&at)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                (entry.file_name().as_bytes().to_vec(), entry.ino())
            })
            .collect();
        below.sort();
        for (name, _) in below {
            if !(path.is_empty() && name == STATE_DIRECTORY) {
                walk_directory(top, [&path[..], b"/", &name].concat(), tree, first);
            }
        }
    }
}

/// Fails where two differ, and says where.
pub fn compare(due: &Tree, found: &Tree, what: &str) {
    for path in due.keys().chain(found.keys()) {
        let show = |file: Option<&File>| {
            file.map(|file| {
                let mut short = file.clone();
                short.content.truncate(64);
                format!("{short:?}")
            })
        };
        let (one, other) = (due.get(path), found.get(path));
        if one != other {
            let at = one.zip(other).and_then(|(one, other)| {
                let pairs = one.content.iter().zip(&other.content);
                pairs
                    .enumerate()
                    .find(|(_, (a, b))| a != b)
                    .map(|(at, _)| at)
            });
            panic!(
                "{what}: {}: due {:?}, found {:?}, content differs at {at:?}",
                String::from_utf8_lossy(path),
                show(one),
                show(other)
            );
        }
    }
}
