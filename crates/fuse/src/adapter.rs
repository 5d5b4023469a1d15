//! From the protocol to the vfs, one method an operation. No semantics here: only the shape of
//! requests and answers, what the kernel may remember, and that a panic stays one failed
//! operation.

mod attributes;
mod files;
mod freezer;
mod fsyncs;
mod keeping;
mod names;
mod pages;
mod questions;
mod syncs;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::SyncSender;

use persimmon_vfs::{Author, Caller, Handle, Ino, OpenFlags, Result, Vfs};

pub use self::freezer::Freezer;
use self::fsyncs::Fsyncs;
use self::questions::Questions;
use crate::answer::Door;
use crate::ledger::OpenFile;
use crate::live::Live;
use crate::nodes;
use crate::options::MountOptions;
use crate::protocol::{Answer, Call, Errno, Header, opcode};
use crate::session::{Closing, Event};
use crate::transport::{Outcome, Serve, Transport};
use crate::workers::Workers;

/// Threads that carry out commands, which take long.
const CONTROL_THREADS: usize = 2;

/// The filesystem as the kernel's requests see it.
pub struct Adapter {
    door: Door,
    live: Arc<dyn Live>,
    /// Where callers of fsync wait.
    fsyncs: Fsyncs,
    /// Where commands are carried out, so that other requests need not wait for them.
    controls: Workers,
    questions: Questions,
    /// Where changes pass.
    freezer: Arc<Freezer>,
    /// Where syncs of everything are.
    everything: syncs::Everything,
    /// Whose pages the kernel may hold back.
    pages: Arc<pages::HeldBack>,
    /// Operations that have them written first.
    renames: Workers,
    /// Where the end of the mount is told.
    events: SyncSender<Event>,
    /// Changes to files, and of attributes, are durable before they are answered.
    sync: bool,
    /// Changes to directories are.
    dirsync: bool,
    /// What requests have opened before this daemon was there, by their numbers: those that were not answered are sent again.
    opened_before: HashMap<u64, OpenFile>,
}

/// The kernel does without an operation once it has heard this. It checks permissions, files here
/// are always ready, what is under way is not broken off; and directories are read without handles,
/// since their cookies are stable, so that the kernel keeps listings in its cache.
const UNKNOWN: Errno = Errno(libc::ENOSYS);

impl Adapter {
    /// `events` hears of the end of a mount that the kernel waits for.
    pub fn new(
        door: Door,
        live: Arc<dyn Live>,
        options: &MountOptions,
        events: SyncSender<Event>,
    ) -> io::Result<Adapter> {
        let pages = Arc::new(pages::HeldBack::new(options.writeback_cache));
        Ok(Adapter {
            freezer: Arc::new(Freezer::new(door.clone(), Arc::clone(&pages))),
            everything: syncs::Everything::start(door.clone(), Arc::clone(&pages))?,
            pages,
            renames: Workers::start("rename", 1)?,
            events,
            fsyncs: Fsyncs::start(door.clone())?,
            door,
            live,
            controls: Workers::start("control", CONTROL_THREADS)?,
            questions: Questions::start()?,
            sync: options.sync,
            dirsync: options.dirsync,
            opened_before: HashMap::new(),
        })
    }

    /// These files are open since a daemon before this one.
    pub fn reopened(&mut self, files: &[OpenFile]) {
        for file in files {
            self.pages.opened(file.ino, file.flags);
            self.opened_before.insert(file.request, *file);
        }
    }

    /// To be served by threads, and by those that carry out what waited while it was frozen.
    pub fn shared(self) -> Arc<Adapter> {
        let adapter = Arc::new(self);
        let server: Arc<dyn Serve> = Arc::clone(&adapter) as _;
        adapter.freezer.served_by(Arc::downgrade(&server));
        adapter
    }

    /// Ends freezes.
    pub fn freezer(&self) -> Arc<Freezer> {
        Arc::clone(&self.freezer)
    }

    /// Set once the kernel has asked for a sync of everything.
    pub fn heard_of_syncs(&self) -> Arc<AtomicBool> {
        self.everything.heard()
    }

    /// Does what a request asks for.
    fn carry_out(&self, call: &mut Call<'_>, transport: &dyn Transport) -> Outcome {
        Outcome::Now(match call.header.opcode {
            opcode::LOOKUP => self.lookup(call),
            opcode::FORGET | opcode::BATCH_FORGET => {
                self.forget(call, transport);
                return Outcome::Never;
            }
            opcode::GETATTR => self.getattr(call),
            opcode::SETATTR => self.setattr(call),
            opcode::STATX => self.statx(call),
            opcode::READLINK => self.readlink(call),
            opcode::SYMLINK => self.symlink(call),
            opcode::MKNOD => self.mknod(call),
            opcode::MKDIR => return self.mkdir(call, transport),
            opcode::UNLINK => self.unlink(call),
            opcode::RMDIR => return self.rmdir(call, transport),
            opcode::RENAME | opcode::RENAME2 => return self.rename(call, transport),
            opcode::LINK => self.link(call),
            opcode::OPEN | opcode::FLUSH if self.may_leave_opens_out() => Err(UNKNOWN),
            opcode::OPEN => self.open(call, transport),
            opcode::CREATE => self.create(call),
            opcode::TMPFILE => self.tmpfile(call),
            opcode::READ => self.read(call),
            opcode::WRITE => self.write(call, transport),
            opcode::STATFS => self.statfs(call),
            opcode::RELEASE => self.release(call),
            opcode::FLUSH => self.flush(call),
            opcode::FSYNC | opcode::FSYNCDIR => match self.fsyncs.ask(call, transport) {
                Ok(()) => return Outcome::Later,
                Err(error) => Err(error),
            },
            opcode::SETXATTR => self.setxattr(call),
            opcode::GETXATTR => return self.getxattr(call, transport),
            opcode::LISTXATTR => self.listxattr(call),
            opcode::REMOVEXATTR => self.removexattr(call),
            opcode::READDIR => self.readdir(call),
            opcode::READDIRPLUS => self.readdirplus(call),
            opcode::IOCTL => return self.ioctl(call, transport),
            opcode::FALLOCATE => self.fallocate(call, transport),
            opcode::LSEEK => self.lseek(call),
            opcode::COPY_FILE_RANGE => self.copy_file_range(call, transport),
            opcode::SYNCFS => match self.everything.sync(transport) {
                Ok(()) => return Outcome::Later,
                Err(error) => Err(error),
            },
            opcode::DESTROY => {
                // Dropped where nobody takes it, which is an answer too.
                let closing = Event::Destroyed(Closing::new(transport.later()));
                let _ = self.events.send(closing);
                return Outcome::Later;
            }
            _ => Err(UNKNOWN),
        })
    }

    /// The kernel may open and close files by itself: nobody writes, so an open file holds nothing here, and none has to be refused.
    fn may_leave_opens_out(&self) -> bool {
        let vfs = &self.door.vfs;
        vfs.options().read_only && vfs.held_back().is_empty()
    }

    /// With `sync`, makes durable what a request has changed of its node, but for names, which are synced
    /// with their directory, and written data, which the kernel syncs itself.
    fn sync_changed(&self, call: &Call<'_>) -> std::result::Result<(), Errno> {
        match call.header.opcode {
            opcode::SETATTR | opcode::SETXATTR | opcode::REMOVEXATTR | opcode::FALLOCATE
                if self.sync =>
            {
                self.door.run("sync", |_| self.sync_node(node(call)))
            }
            _ => Ok(()),
        }
    }

    /// With `sync`, makes a file or directory durable.
    fn sync_node(&self, changed: Ino) -> Result<()> {
        if self.sync {
            self.door.vfs.fsync(changed, Handle::NONE)?;
        }
        Ok(())
    }

    /// With `dirsync`, makes a change of the directory `parent` durable.
    fn sync_parent<T>(&self, parent: Ino, value: T) -> Result<T> {
        sync_parent(&self.door.vfs, self.dirsync, parent)?;
        Ok(value)
    }
}

impl Serve for Adapter {
    fn serve(&self, call: &mut Call<'_>, transport: &dyn Transport) -> Outcome {
        // One that waited comes a second time, and has the inode by then.
        call.header.node = nodes::inode(&self.door.vfs, call.header.node).0;
        let _under_way = match self.freezer.admit(call, transport) {
            Ok(under_way) => under_way,
            Err(outcome) => return outcome,
        };
        let before = match call.header.opcode {
            opcode::SETATTR | opcode::SETXATTR | opcode::REMOVEXATTR => self.door.position(),
            _ => None,
        };
        let answer = match self.carry_out(call, transport) {
            Outcome::Now(answer) => answer,
            outcome => return outcome,
        };
        let kept = answer.and_then(|len| {
            self.sync_changed(call)?;
            self.keep(call, before)?;
            Ok(len)
        });
        if let Some(ledger) = &self.door.ledger {
            ledger.answered();
        }
        Outcome::Now(kept)
    }

    fn serve_waiting(&self) -> bool {
        self.fsyncs.serve()
    }

    /// Unlinked files are freed a little later as long as nobody needs their space.
    fn may_forget_late(&self) -> bool {
        let space = self.door.vfs.volume().space();
        space.available_bytes > space.total_bytes / 16
    }
}

/// With `dirsync`, makes a change of the directory `parent` durable.
fn sync_parent(vfs: &Vfs, dirsync: bool, parent: Ino) -> Result<()> {
    if dirsync {
        vfs.fsyncdir(parent, Handle::NONE)
    } else {
        Ok(())
    }
}

/// The inode a request is about: [`Serve::serve`] has put it in the place of the number in the mount.
fn node(call: &Call<'_>) -> Ino {
    Ino(call.header.node)
}

/// The protocol tells neither the supplementary groups nor, except where files are made, the
/// mask.
fn caller(header: Header, umask: u32) -> Caller {
    Caller {
        uid: header.uid,
        gid: header.gid,
        pid: header.pid,
        umask,
        groups: None,
        loses_setgid: false,
    }
}

/// Whether a request may leave setuid and setgid, where the kernel says so (FUSE_HANDLE_KILLPRIV_V2). One that has not
/// agreed to that clears them itself.
fn author(header: Header, kills: bool) -> Author {
    if kills {
        Author::User {
            pid: header.pid,
            gid: header.gid,
        }
    } else {
        Author::Privileged
    }
}

/// The same where the kernel says nothing: of fallocate, copy_file_range and chown.
fn author_by_uid(header: Header) -> Author {
    match header.uid {
        0 => Author::Superuser {
            pid: header.pid,
            gid: header.gid,
        },
        _ => author(header, true),
    }
}

/// The kernel computes the offsets of appends itself. It checks who may read; with `writeback_cache` it reads itself
/// through a descriptor that may only write, to fill up a page written in part. `kills` are flags of its own.
fn open_flags(header: Header, flags: u32, kills: u32) -> OpenFlags {
    const KILL_SUIDGID: u32 = 1 << 0;
    OpenFlags {
        read: true,
        append: false,
        door_appends: flags.cast_signed() & libc::O_APPEND != 0,
        author: author(header, kills & KILL_SUIDGID != 0),
        is_limited: header.uid != 0,
        ..OpenFlags::from_linux(flags.cast_signed())
    }
}

/// How a file is open that was opened before this daemon was there. Nobody truncates it any more.
pub fn reopen_flags(file: &OpenFile) -> OpenFlags {
    let header = Header {
        opcode: opcode::OPEN,
        unique: file.request,
        node: file.ino.0,
        uid: file.uid,
        gid: file.gid,
        pid: 0,
    };
    OpenFlags {
        truncate: false,
        ..open_flags(header, file.flags, file.kills)
    }
}

/// An answer without a body.
fn done(result: std::result::Result<(), Errno>) -> Answer {
    result.map(|()| 0)
}
