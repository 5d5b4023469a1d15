//! A filesystem that does nothing, on the transport of the mount and with what the mount agrees on with the kernel: it
//! hears the same requests, and answers them from a table of names. What it reaches is the most that any filesystem can
//! reach there, and what is missing to it is the mount's own.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use fuser::Session;
use persimmon_sync::{Mutex, MutexGuard};
use persimmon_vfs::{Attr, Entry, FileKind, GENERATION, Ino, InodeFlags, StatFs, Timestamp};

use crate::options::MountOptions;
use crate::protocol::{self, Answer, Call, Entries, Errno, opcode};
use crate::session::{self, Event, Handshake};
use crate::transport::{self, Connected, Connection, Outcome, Serve, Transport};
use crate::write_back::WriteBack;

/// Of every open file: its cache holds, and its close is not told (as `adapter::names::opened`).
const OPEN_FLAGS: u32 = 1 << 1 | 1 << 5;
const ROOT: Ino = Ino(1);

/// Mounts it at `dir` and serves it until it is unmounted.
///
/// # Errors
/// The kernel refuses, or the system gives no threads.
pub fn serve(dir: &Path, options: &MountOptions) -> io::Result<()> {
    let handshake = Handshake::new(options)?;
    let agreed = Arc::clone(&handshake.agreed);
    let config = session::config(OsStr::new("nothing").as_ref(), options);
    // As in a real mount: dropped, it would unmount whatever is there then.
    let session = ManuallyDrop::new(Session::new(handshake, dir, &config)?);
    let agreed = agreed.get().copied().unwrap_or_default();
    let (sender, events) = sync_channel(4);
    let server = Arc::new(Nothing::default());
    let (write_back, connected) = (WriteBack::direct(), Connected(sender));
    let connection = Connection::new(session.as_fd(), server, agreed, write_back, connected)?;
    if agreed.rings {
        transport::serve_rings(&connection)?;
    } else {
        let devices = transport::descriptors(session.as_fd(), options.threads.max(1))?;
        transport::serve_device(&connection, devices)?;
    }
    drop(connection);
    while let Ok(event) = events.recv() {
        if matches!(event, Event::Ended) {
            break;
        }
    }
    Ok(())
}

#[derive(Default)]
struct Nothing(Mutex<Names>);

/// Directories have even inode numbers, files odd ones: but for the root, which is 1.
#[derive(Default)]
struct Names {
    directories: HashMap<Ino, BTreeMap<Vec<u8>, Ino>>,
    made: u64,
    /// Of files that were written to: their content is whatever is in memory.
    sizes: HashMap<Ino, u64>,
}

fn kind(ino: Ino) -> FileKind {
    match ino == ROOT || ino.0.is_multiple_of(2) {
        true => FileKind::Directory,
        false => FileKind::Regular,
    }
}

fn attributes(ino: Ino) -> Attr {
    let mode = match kind(ino) {
        FileKind::Directory => libc::S_IFDIR | 0o755,
        _ => libc::S_IFREG | 0o644,
    };
    let time = Timestamp::default();
    Attr {
        ino,
        generation: GENERATION,
        mode,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        blocks: 0,
        blksize: 4096,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        is_staged: false,
        flags: InodeFlags::default(),
    }
}

impl Names {
    fn get(&self, parent: Ino, name: &[u8]) -> Option<Ino> {
        self.directories.get(&parent)?.get(name).copied()
    }

    fn add(&mut self, parent: Ino, name: &[u8], is_directory: bool) -> Attr {
        self.made += 1;
        let ino = Ino(self.made * 2 + u64::from(!is_directory));
        let names = self.directories.entry(parent).or_default();
        names.insert(name.to_vec(), ino);
        attributes(ino)
    }

    fn attributes(&self, ino: Ino) -> Attr {
        Attr {
            size: self.sizes.get(&ino).copied().unwrap_or(0),
            ..attributes(ino)
        }
    }

    fn remove(&mut self, parent: Ino, name: &[u8]) -> Answer {
        let names = self.directories.get_mut(&parent);
        match names.and_then(|names| names.remove(name)) {
            Some(_) => Ok(0),
            None => Err(Errno(libc::ENOENT)),
        }
    }
}

impl Nothing {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.0.lock()
    }

    fn lookup(&self, call: &mut Call<'_>) -> Answer {
        let names = self.names();
        match names.get(Ino(call.header.node), call.name()?) {
            Some(ino) => call.answer(&protocol::entry(&names.attributes(ino))),
            None => call.answer(&protocol::negative(true)),
        }
    }

    fn make(&self, call: &mut Call<'_>, is_directory: bool) -> Answer {
        let parent = Ino(call.header.node);
        let made = self.names().add(parent, call.name()?, is_directory);
        call.answer(&protocol::entry(&made))
    }

    fn create(&self, call: &mut Call<'_>) -> Answer {
        let parent = Ino(call.header.node);
        let made = self.names().add(parent, call.name()?, false);
        call.answer(&protocol::created(&made, 1, OPEN_FLAGS))
    }

    /// The place of a name is its cookie, less the two dots, which this has not.
    fn list(&self, call: &mut Call<'_>, with_attributes: bool) -> Answer {
        let mut fields = call.fields();
        fields.skip_u64()?;
        let (cookie, size) = (fields.u64()?, fields.u32()?);
        let directory = Ino(call.header.node);
        let names = self.names();
        let mut entries = Entries::new(call.room(size as usize));
        let all = names.directories.get(&directory).into_iter().flatten();
        for ((name, ino), cookie) in all.zip(1..).skip(cookie as usize) {
            let entry = Entry {
                ino: *ino,
                kind: kind(*ino),
                cookie,
                name,
            };
            let added = match with_attributes {
                true => entries.add_plus(&entry, Some(&names.attributes(*ino))),
                false => entries.add(&entry),
            };
            if !added {
                break;
            }
        }
        Ok(entries.len())
    }

    /// The length of a write, which was written.
    fn write(&self, call: &mut Call<'_>) -> Answer {
        let mut fields = call.fields();
        fields.skip_u64()?;
        let (offset, len) = (fields.u64()?, fields.u32()?);
        let mut names = self.names();
        let size = names.sizes.entry(Ino(call.header.node)).or_default();
        *size = (*size).max(offset.saturating_add(len.into()));
        call.answer(&protocol::length(len))
    }

    /// As many bytes as there are, whatever they are.
    fn read(&self, call: &mut Call<'_>) -> Answer {
        let mut fields = call.fields();
        fields.skip_u64()?;
        let (offset, len) = (fields.u64()?, fields.u32()?);
        let size = self.names().attributes(Ino(call.header.node)).size;
        let there = size.saturating_sub(offset).min(len.into());
        Ok(call.room(there as usize).len())
    }
}

impl Serve for Nothing {
    fn serve(&self, call: &mut Call<'_>, _transport: &dyn Transport) -> Outcome {
        let node = Ino(call.header.node);
        Outcome::Now(match call.header.opcode {
            opcode::LOOKUP => self.lookup(call),
            opcode::FORGET | opcode::BATCH_FORGET => return Outcome::Never,
            opcode::GETATTR | opcode::SETATTR => {
                let attributes = self.names().attributes(node);
                call.answer(&protocol::attributes(&attributes))
            }
            opcode::MKNOD => self.make(call, false),
            opcode::MKDIR => self.make(call, true),
            opcode::CREATE => self.create(call),
            opcode::UNLINK | opcode::RMDIR => {
                call.name().and_then(|name| self.names().remove(node, name))
            }
            opcode::OPEN => call.answer(&protocol::opened(1, OPEN_FLAGS)),
            opcode::WRITE => self.write(call),
            opcode::READ => self.read(call),
            opcode::RELEASE | opcode::FSYNC | opcode::FSYNCDIR => Ok(0),
            opcode::STATFS => call.answer(&protocol::space(&SPACE)),
            opcode::GETXATTR => Err(Errno(libc::ENODATA)),
            opcode::READDIR => self.list(call, false),
            opcode::READDIRPLUS => self.list(call, true),
            _ => Err(Errno(libc::ENOSYS)),
        })
    }

    fn may_forget_late(&self) -> bool {
        true
    }
}

const SPACE: StatFs = StatFs {
    block_size: 4096,
    blocks: 1 << 20,
    blocks_free: 1 << 20,
    blocks_available: 1 << 20,
    files: 1 << 20,
    files_free: 1 << 20,
    name_len_max: 255,
};
