//! A file of the host as a name in an open directory: no symbolic link on the way to it is followed, even if the tree changes meanwhile, and its path
//! may be longer than `PATH_MAX`.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use persimmon::Timestamp;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, StatxFlags, lgetxattr, llistxattr, openat,
    statat, statx,
};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The most that the names, or one value, of extended attributes can be.
const XATTR_MAX: usize = 64 << 10;

pub(super) const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::RDONLY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A path for the calls that take no descriptor, or not one of `O_PATH`: it leads to what is open, whatever its name is now.
pub(super) fn of_fd(open: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()))
}

/// A path for the calls that take no open directory.
fn by_fd(directory: &OwnedFd, name: &[u8]) -> PathBuf {
    of_fd(directory.as_fd()).join(std::ffi::OsStr::from_bytes(name))
}

/// Where something is: a name in an open directory.
#[derive(Clone)]
pub struct HostNode {
    pub(super) directory: Arc<OwnedFd>,
    pub(super) name: Vec<u8>,
}

impl HostNode {
    /// What a path names; a link at its end is not followed.
    pub fn of(path: &Path) -> rustix::io::Result<HostNode> {
        let (above, name) = match (path.parent(), path.file_name()) {
            (Some(above), Some(name)) => (above, name.as_bytes()),
            // The root, or a path that ends in dots.
            _ => (path, b".".as_slice()),
        };
        let above = if above.as_os_str().is_empty() {
            Path::new(".")
        } else {
            above
        };
        // Searching this directory is enough: it need not be readable.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(HostNode {
            directory: Arc::new(openat(CWD, above, flags, Mode::empty())?),
            name: name.to_vec(),
        })
    }

    /// Of a directory, what is in it. All names at once: a listing that stays open would take a descriptor more for each level.
    pub fn entries(&self) -> rustix::io::Result<Vec<HostEntry>> {
        let directory = openat(&self.directory, &*self.name, DIRECTORY, Mode::empty())?;
        let list = Dir::read_from(&directory)?;
        let directory = Arc::new(directory);
        let mut entries = Vec::new();
        for entry in list {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                entries.push(HostEntry {
                    ino: entry.ino(),
                    kind: entry.file_type(),
                    node: HostNode {
                        directory: Arc::clone(&directory),
                        name: name.to_vec(),
                    },
                });
            }
        }
        Ok(entries)
    }

    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// A path for the calls that take no open directory, short however deep it lies.
    pub fn path(&self) -> PathBuf {
        by_fd(&self.directory, &self.name)
    }

    pub fn xattrs(&self) -> rustix::io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        xattrs(&self.path())
    }

    pub fn stat(&self) -> rustix::io::Result<Stat> {
        statat(&self.directory, &*self.name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// The number of the mount that it is reached through, where the kernel tells it (Linux 5.8). Asks no filesystem.
    pub fn mount(&self) -> Option<u64> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
        let told = statx(&self.directory, &*self.name, flags, StatxFlags::MNT_ID).ok()?;
        let is_told = StatxFlags::from_bits_retain(told.stx_mask).contains(StatxFlags::MNT_ID);
        is_told.then_some(told.stx_mnt_id)
    }
}

/// What a directory has of one name.
pub struct HostEntry {
    pub node: HostNode,
    pub ino: u64,
    pub kind: FileType,
}

/// A time that `stat` tells.
pub fn time(seconds: i64, nanoseconds: u64) -> Timestamp {
    Timestamp {
        seconds,
        nanoseconds: u32::try_from(nanoseconds).unwrap_or_default(),
    }
}

/// A level of directories takes one or two descriptors, and what a shell allows is 1024, for programs that cannot do with more. This one
/// can.
pub fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // If the limit cannot be raised, only less deep trees can be walked.
    let _ = setrlimit(Resource::Nofile, raised);
}

fn xattrs(path: &Path) -> rustix::io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0; XATTR_MAX];
    let len = match llistxattr(path, &mut names) {
        Ok(len) => len,
        // A filesystem without any.
        Err(Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error),
    };
    names.truncate(len);
    let mut found = Vec::new();
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0; XATTR_MAX];
        match lgetxattr(path, name, &mut value) {
            Ok(len) => {
                value.truncate(len);
                found.push((name.to_vec(), value));
            }
            // Removed meanwhile.
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
