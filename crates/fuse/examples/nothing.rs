//! A FUSE filesystem that does nothing: names in a hash map, every file empty, every answer kept by
//! the kernel for a day. Its transport is that of the mount: two threads with a descriptor each,
//! `default_permissions`, `allow_other`.
//!
//! What it reaches is the most that any FUSE filesystem can reach with these options; `cargo xtask
//! bench` shows it beside the mount. Run by root with the directory to mount on; ends with the
//! unmount.

use std::collections::HashMap;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::time::{Duration, SystemTime};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyCreate, ReplyEmpty, ReplyEntry, Request,
    SessionACL,
};
use persimmon_sync::{Mutex, MutexGuard};

const KEPT: Duration = Duration::from_secs(86_400);
const THREADS: usize = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args_os()
        .nth(1)
        .ok_or("name the directory to mount on")?;
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("nothing".into()),
        MountOption::DefaultPermissions,
    ];
    config.acl = SessionACL::All;
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    Ok(fuser::mount(Nothing::default(), dir, &config)?)
}

#[derive(Default)]
struct Nothing(Mutex<Names>);

/// Folders have even inode numbers, files odd ones: 1 is the root of every FUSE filesystem.
#[derive(Default)]
struct Names {
    inodes: HashMap<(INodeNo, OsString), INodeNo>,
    given: u64,
}

impl Names {
    fn add(&mut self, parent: INodeNo, name: &OsStr, kind: FileType) -> FileAttr {
        self.given += 1;
        let odd = u64::from(kind != FileType::Directory);
        let inode = INodeNo(self.given * 2 + odd);
        self.inodes.insert((parent, name.to_owned()), inode);
        attributes(inode)
    }
}

impl Nothing {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.0.lock()
    }
}

fn attributes(inode: INodeNo) -> FileAttr {
    let (kind, perm) = if inode == INodeNo::ROOT || inode.0.is_multiple_of(2) {
        (FileType::Directory, 0o755)
    } else {
        (FileType::RegularFile, 0o644)
    };
    let time = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: inode,
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// The number that tells the kernel to keep "there is no such name".
const ABSENT: INodeNo = INodeNo(0);

impl Filesystem for Nothing {
    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let known = self.names().inodes.get(&(parent, name.to_owned())).copied();
        let attributes = attributes(known.unwrap_or(ABSENT));
        reply.entry(&KEPT, &attributes, Generation(0));
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&KEPT, &attributes(inode));
    }

    fn mkdir(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let attributes = self.names().add(parent, name, FileType::Directory);
        reply.entry(&KEPT, &attributes, Generation(0));
    }

    fn create(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let attributes = self.names().add(parent, name, FileType::RegularFile);
        let (handle, flags) = (FileHandle(0), FopenFlags::FOPEN_NOFLUSH);
        reply.created(&KEPT, &attributes, Generation(0), handle, flags);
    }

    fn release(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.names().inodes.remove(&(parent, name.to_owned())) {
            Some(_) => reply.ok(),
            None => reply.error(Errno::ENOENT),
        }
    }
}
