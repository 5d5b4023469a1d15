//! From the protocol to the vfs, one method an operation. No semantics here: only the shape of
//! requests and answers, what the kernel may remember, and that a panic stays one failed
//! operation.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags,
    Generation, INodeNo, IoctlFlags, KernelConfig, LockOwner, PollEvents, PollFlags, PollNotifier,
    RenameFlags, ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow,
};
use persimmon_vfs::{
    Allocate, Attr, Error, Handle, Ino, Listing, OpenFlags, RenameMode, Result, SeekTo, SetAttr,
    WriteFlags, XattrMode,
};

use crate::answer::Door;
use crate::capabilities::{self, MAX_WRITE_BYTES};
use crate::control;
use crate::convert::{self, attr, caller, generation, ino, node, set_time};
use crate::live::{self, Live};
use crate::options::MountOptions;
use crate::session::Event;
use crate::workers::Workers;

/// How long the kernel may remember names and attributes: nobody but the daemon changes the
/// volume, and it does so at the kernel's word.
const REMEMBER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Most bytes one copy request moves, so that its answer fits 32 bits.
const COPY_BYTES_MAX: u64 = 1 << 30;

/// Threads that wait for the device in fsync: as many fsyncs share one flush.
const SYNC_THREADS: usize = 4;

/// The filesystem as the kernel's requests see it.
pub struct Adapter {
    door: Door,
    live: Arc<dyn Live>,
    /// Where fsync waits for the device, so that other requests need not.
    syncs: Workers,
    writeback_cache: bool,
    /// Changes to directories are durable before they are answered.
    dirsync: bool,
    events: SyncSender<Event>,
}

thread_local! {
    /// Where data is read to before it goes to the kernel; grows to the largest read.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Adapter {
    /// `events` is told when the connection to the kernel ends.
    pub fn new(
        door: Door,
        live: Arc<dyn Live>,
        options: &MountOptions,
        events: SyncSender<Event>,
    ) -> io::Result<Adapter> {
        Ok(Adapter {
            door,
            live,
            syncs: Workers::start("sync", SYNC_THREADS)?,
            writeback_cache: options.writeback_cache,
            dirsync: options.dirsync,
            events,
        })
    }

    /// The kernel leaves it to the daemon, and tells only of a write whether the writer may keep
    /// setuid.
    fn kill_privileges(&self, request: &Request, ino: Ino, file: Handle) -> Result<()> {
        if request.uid() == 0 {
            return Ok(());
        }
        self.door.vfs.kill_privileges(ino, file)
    }

    /// With `dirsync`, makes a change of the directory `parent` durable.
    fn settle<T>(&self, parent: Ino, value: T) -> Result<T> {
        if self.dirsync {
            self.door.vfs.fsyncdir(parent, Handle::NONE)?;
        }
        Ok(value)
    }
}

fn send_entry(reply: ReplyEntry, found: Attr) {
    reply.entry(&REMEMBER, &attr(&found), generation(&found));
}

fn send_attr(reply: ReplyAttr, found: Attr) {
    reply.attr(&REMEMBER, &attr(&found));
}

fn send_bytes(reply: ReplyXattr, size: u32, value: &[u8]) {
    if size == 0 {
        reply.size(value.len() as u32);
    } else if value.len() > size as usize {
        reply.error(Errno::ERANGE);
    } else {
        reply.data(value);
    }
}

fn handle(handle: FileHandle) -> Handle {
    Handle(handle.0)
}

/// The kernel computes the offsets of appends itself, and does not say whether the opener may
/// keep setuid on truncation, only who it is.
fn open_flags(request: &Request, flags: i32) -> OpenFlags {
    OpenFlags {
        append: false,
        kill_privileges: request.uid() != 0,
        ..OpenFlags::from_linux(flags)
    }
}

/// The kernel's cache of a file always holds. A close is worth a message only where the file was
/// emptied first: then its new content enters the history before `close` returns.
fn opened(truncated: bool) -> FopenFlags {
    if truncated {
        FopenFlags::FOPEN_KEEP_CACHE
    } else {
        FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        capabilities::negotiate(config, self.writeback_cache);
        Ok(())
    }

    fn destroy(&mut self) {
        self.syncs.end();
        let _ = self.events.send(Event::Ended);
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let vfs = &self.door.vfs;
        let work = || match name.as_bytes() {
            // From a file handle, the kernel has but the number, of any kind of file.
            b"." => vfs.getattr(ino(parent)).map(Some),
            name => match vfs.lookup(ino(parent), name) {
                Ok(found) => Ok(Some(found)),
                Err(Error::NotFound) => Ok(None),
                Err(error) => Err(error),
            },
        };
        self.door
            .answer("lookup", reply, work, |reply, found| match found {
                Some(found) => send_entry(reply, found),
                None => reply.entry(&REMEMBER, &convert::negative(), Generation(0)),
            });
    }

    fn forget(&self, _request: &Request, node: INodeNo, _lookups: u64) {
        // Not counted: the kernel forgets an inode in one go, and an unlinked one cannot be
        // looked up again.
        let work = AssertUnwindSafe(|| self.door.vfs.forget(ino(node)));
        if let Err(panic) = catch_unwind(work) {
            self.door.give_up("forget", panic.as_ref());
        }
    }

    fn getattr(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        self.door.answer(
            "getattr",
            reply,
            || self.door.vfs.getattr(ino(node)),
            send_attr,
        );
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        file: Option<FileHandle>,
        _created: Option<SystemTime>,
        _changed: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttr {
            mode,
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(convert::timestamp),
            kill_privileges: size.is_some() && request.uid() != 0,
        };
        let file = file.map_or(Handle::NONE, handle);
        self.door.answer(
            "setattr",
            reply,
            || self.door.vfs.setattr(ino(node), file, &set),
            send_attr,
        );
    }

    fn readlink(&self, _request: &Request, node: INodeNo, reply: ReplyData) {
        let work = || self.door.vfs.readlink(ino(node));
        self.door
            .answer("readlink", reply, work, |reply, target| reply.data(&target));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let parent = ino(parent);
        let caller = caller(request, umask);
        let work = || {
            let made = self
                .door
                .vfs
                .mknod(&caller, parent, name.as_bytes(), mode, rdev)?;
            self.settle(parent, made)
        };
        self.door.answer("mknod", reply, work, send_entry);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let parent = ino(parent);
        let caller = caller(request, umask);
        let work = || {
            let made = self
                .door
                .vfs
                .mkdir(&caller, parent, name.as_bytes(), mode)?;
            self.settle(parent, made)
        };
        self.door.answer("mkdir", reply, work, send_entry);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let parent = ino(parent);
        let work = || {
            self.door.vfs.unlink(parent, name.as_bytes())?;
            self.settle(parent, ())
        };
        self.door
            .answer("unlink", reply, work, |reply, ()| reply.ok());
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let parent = ino(parent);
        let work = || {
            self.door.vfs.rmdir(parent, name.as_bytes())?;
            self.settle(parent, ())
        };
        self.door
            .answer("rmdir", reply, work, |reply, ()| reply.ok());
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let parent = ino(parent);
        let caller = caller(request, 0);
        let target = target.as_os_str().as_bytes();
        let work = || {
            let made = self
                .door
                .vfs
                .symlink(&caller, parent, name.as_bytes(), target)?;
            self.settle(parent, made)
        };
        self.door.answer("symlink", reply, work, send_entry);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = (ino(parent), ino(new_parent));
        let work = || {
            let mode = RenameMode::from_linux(flags.bits())?;
            self.door
                .vfs
                .rename(from, name.as_bytes(), to, new_name.as_bytes(), mode)?;
            self.settle(to, ())
        };
        self.door
            .answer("rename", reply, work, |reply, ()| reply.ok());
    }

    fn link(
        &self,
        _request: &Request,
        node: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let parent = ino(new_parent);
        let work = || {
            let linked = self.door.vfs.link(ino(node), parent, new_name.as_bytes())?;
            self.settle(parent, linked)
        };
        self.door.answer("link", reply, work, send_entry);
    }

    fn open(&self, request: &Request, node: INodeNo, flags: fuser::OpenFlags, reply: ReplyOpen) {
        let flags = open_flags(request, flags.0);
        let work = || self.door.vfs.open(ino(node), flags);
        self.door.answer("open", reply, work, |reply, file| {
            reply.opened(FileHandle(file.0), opened(flags.truncate));
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let parent = ino(parent);
        let caller = caller(request, umask);
        let flags = open_flags(request, flags);
        let work = || {
            let made = self
                .door
                .vfs
                .create(&caller, parent, name.as_bytes(), mode, flags)?;
            self.settle(parent, made)
        };
        self.door
            .answer("create", reply, work, |reply, (made, file)| {
                let file = FileHandle(file.0);
                reply.created(
                    &REMEMBER,
                    &attr(&made),
                    generation(&made),
                    file,
                    opened(false),
                );
            });
    }

    fn read(
        &self,
        _request: &Request,
        node: INodeNo,
        file: FileHandle,
        offset: u64,
        size: u32,
        _flags: fuser::OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = size.min(MAX_WRITE_BYTES) as usize;
        READ_BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let buffer = buffer.get_mut(..size).unwrap_or_default();
            let (vfs, timer) = (&self.door.vfs, &self.door.latencies.read);
            self.door.answer(
                "read",
                reply,
                move || {
                    let got =
                        timer.time(|| vfs.read(ino(node), handle(file), offset, &mut *buffer))?;
                    Ok(&*buffer.get_mut(..got).unwrap_or_default())
                },
                |reply: ReplyData, data: &[u8]| reply.data(data),
            );
        });
    }

    fn write(
        &self,
        _request: &Request,
        node: INodeNo,
        file: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: fuser::WriteFlags,
        _flags: fuser::OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let flags = WriteFlags {
            kill_privileges: write_flags.contains(fuser::WriteFlags::FUSE_WRITE_KILL_SUIDGID),
            data_sync: false,
        };
        // The handle of a write from the page cache is a guess of the kernel's.
        let file = if write_flags.contains(fuser::WriteFlags::FUSE_WRITE_CACHE) {
            Handle::NONE
        } else {
            handle(file)
        };
        let work = || {
            let write = || self.door.vfs.write(ino(node), file, offset, data, flags);
            let written = self.door.latencies.write.time(write)?;
            Ok(written.len as u32)
        };
        self.door.answer("write", reply, work, ReplyWrite::written);
    }

    fn flush(
        &self,
        _request: &Request,
        node: INodeNo,
        file: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let owner = persimmon_vfs::LockOwner(owner.0);
        let work = || self.door.vfs.flush(ino(node), handle(file), owner);
        self.door
            .answer("flush", reply, work, |reply, ()| reply.ok());
    }

    fn release(
        &self,
        _request: &Request,
        node: INodeNo,
        file: FileHandle,
        _flags: fuser::OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let work = || self.door.vfs.release(ino(node), handle(file));
        self.door
            .answer("release", reply, work, |reply, ()| reply.ok());
    }

    fn fsync(
        &self,
        _request: &Request,
        node: INodeNo,
        file: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let door = self.door.clone();
        self.syncs.run(move || {
            let fsync = || door.vfs.fsync(ino(node), handle(file), data_only);
            let work = || door.latencies.fsync.time(fsync);
            door.answer("fsync", reply, work, |reply, ()| reply.ok());
        });
    }

    /// Directories are read without handles: their cookies are stable, and the kernel then
    /// keeps listings in its cache.
    fn opendir(
        &self,
        _request: &Request,
        _node: INodeNo,
        _flags: fuser::OpenFlags,
        reply: ReplyOpen,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn readdir(
        &self,
        _request: &Request,
        node_of_directory: INodeNo,
        _handle: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectory,
    ) {
        let directory = ino(node_of_directory);
        let filled = catch_unwind(AssertUnwindSafe(|| {
            self.door
                .vfs
                .readdir(directory, Handle::NONE, cookie, &mut |entry| {
                    let kind = convert::file_type(entry.kind);
                    match reply.add(
                        node(entry.ino),
                        entry.cookie,
                        kind,
                        OsStr::from_bytes(entry.name),
                    ) {
                        true => Listing::Full,
                        false => Listing::More,
                    }
                })
        }));
        self.door
            .answer_listing("readdir", filled, reply, ReplyDirectory::ok);
    }

    fn readdirplus(
        &self,
        _request: &Request,
        node_of_directory: INodeNo,
        _handle: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let directory = ino(node_of_directory);
        let filled = catch_unwind(AssertUnwindSafe(|| {
            self.door
                .vfs
                .readdirplus(directory, Handle::NONE, cookie, &mut |entry, found| {
                    let name = OsStr::from_bytes(entry.name);
                    let number = node(entry.ino);
                    let generation = generation(found);
                    match reply.add(
                        number,
                        entry.cookie,
                        name,
                        &REMEMBER,
                        &attr(found),
                        generation,
                    ) {
                        true => Listing::Full,
                        false => Listing::More,
                    }
                })
        }));
        self.door
            .answer_listing("readdirplus", filled, reply, ReplyDirectoryPlus::ok);
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        let door = self.door.clone();
        self.syncs.run(move || {
            let fsync = || door.vfs.fsyncdir(ino(node), Handle::NONE);
            let work = || door.latencies.fsync.time(fsync);
            door.answer("fsyncdir", reply, work, |reply, ()| reply.ok());
        });
    }

    fn statfs(&self, _request: &Request, _node: INodeNo, reply: ReplyStatfs) {
        self.door.answer(
            "statfs",
            reply,
            || self.door.vfs.statfs(),
            |reply, space| {
                reply.statfs(
                    space.blocks,
                    space.blocks_free,
                    space.blocks_available,
                    space.files,
                    space.files_free,
                    space.block_size,
                    space.name_len_max,
                    space.block_size,
                );
            },
        );
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let caller = caller(request, 0);
        let work = || {
            let mode = XattrMode::from_linux(flags)?;
            self.door
                .vfs
                .setxattr(&caller, ino(node), name.as_bytes(), value, mode)
        };
        self.door
            .answer("setxattr", reply, work, |reply, ()| reply.ok());
    }

    fn getxattr(
        &self,
        _request: &Request,
        node: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let work = || match name
            .to_str()
            .and_then(|name| name.strip_prefix(live::PREFIX))
        {
            Some(question) => self.live.answer(question).ok_or(Error::NoAttribute),
            None => self.door.vfs.getxattr(ino(node), name.as_bytes()),
        };
        self.door.answer("getxattr", reply, work, |reply, value| {
            send_bytes(reply, size, &value)
        });
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let caller = caller(request, 0);
        let work = || self.door.vfs.listxattr(&caller, ino(node));
        self.door.answer("listxattr", reply, work, |reply, names| {
            send_bytes(reply, size, &names)
        });
    }

    fn removexattr(&self, _request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let work = || self.door.vfs.removexattr(ino(node), name.as_bytes());
        self.door
            .answer("removexattr", reply, work, |reply, ()| reply.ok());
    }

    fn fallocate(
        &self,
        request: &Request,
        node: INodeNo,
        file: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let work = || {
            let what = Allocate::from_linux(mode)?;
            self.kill_privileges(request, ino(node), handle(file))?;
            self.door
                .vfs
                .fallocate(ino(node), handle(file), offset, length, what)
        };
        self.door
            .answer("fallocate", reply, work, |reply, ()| reply.ok());
    }

    fn lseek(
        &self,
        _request: &Request,
        node: INodeNo,
        file: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let work = || {
            let to = match whence {
                libc::SEEK_DATA => SeekTo::Data,
                libc::SEEK_HOLE => SeekTo::Hole,
                _ => return Err(Error::Invalid("whence")),
            };
            let offset = u64::try_from(offset).map_err(|_| Error::NoSuchOffset)?;
            let found = self.door.vfs.seek(ino(node), handle(file), offset, to)?;
            i64::try_from(found).map_err(|_| Error::FileTooLarge)
        };
        self.door.answer("lseek", reply, work, ReplyLseek::offset);
    }

    fn copy_file_range(
        &self,
        request: &Request,
        source: INodeNo,
        source_file: FileHandle,
        source_offset: u64,
        target: INodeNo,
        target_file: FileHandle,
        target_offset: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let work = || {
            let from = (ino(source), handle(source_file), source_offset);
            let to = (ino(target), handle(target_file), target_offset);
            self.kill_privileges(request, to.0, to.1)?;
            let copied = self
                .door
                .vfs
                .copy_file_range(from, to, length.min(COPY_BYTES_MAX))?;
            Ok(copied as u32)
        };
        self.door
            .answer("copy_file_range", reply, work, ReplyWrite::written);
    }

    // The kernel does without the following once it has heard ENOSYS: it checks permissions, and
    // files here are always ready.

    fn access(&self, _request: &Request, _node: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn bmap(&self, _request: &Request, _node: INodeNo, _size: u32, _block: u64, reply: ReplyBmap) {
        reply.error(Errno::ENOSYS);
    }

    fn poll(
        &self,
        _request: &Request,
        _node: INodeNo,
        _file: FileHandle,
        _notifier: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        request: &Request,
        _node: INodeNo,
        _file: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        input: &[u8],
        _output_size: u32,
        reply: ReplyIoctl,
    ) {
        control::answer(&*self.live, request, command, input, reply);
    }
}
