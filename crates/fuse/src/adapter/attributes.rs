//! Attributes, extended ones too, space, and questions to the daemon.

use std::sync::Arc;

use persimmon_vfs::{
    Caller, FileKind, Handle, Ino, InodeFlags, SetAttr, SetTime, Timestamp, Vfs, XattrMode,
};

use super::{Adapter, author, author_by_uid, caller, done, keeping, node};
use crate::control;
use crate::freeze;
use crate::inode_flags;
use crate::lifetimes;
use crate::live::Asked;
use crate::nodes;
use crate::protocol::{self, Answer, Call, Errno, Fields, Header};
use crate::ranges;
use crate::transport::{Outcome, Transport};
use crate::trim;

const SET_MODE: u32 = 1 << 0;
const SET_UID: u32 = 1 << 1;
const SET_GID: u32 = 1 << 2;
const SET_SIZE: u32 = 1 << 3;
const SET_ATIME: u32 = 1 << 4;
const SET_MTIME: u32 = 1 << 5;
const SET_BY_HANDLE: u32 = 1 << 6;
const SET_ATIME_NOW: u32 = 1 << 7;
const SET_MTIME_NOW: u32 = 1 << 8;
const SET_CTIME: u32 = 1 << 10;
const KILL_SUIDGID: u32 = 1 << 11;

/// A new access control list takes setgid from a file whose group the caller is not in.
const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;

/// An ioctl whose arguments have no fixed size.
const IOCTL_UNRESTRICTED: u32 = 1 << 1;

impl Adapter {
    pub(super) fn getattr(&self, call: &mut Call<'_>) -> Answer {
        let node = node(call);
        let found = self.door.run("getattr", |vfs| vfs.getattr(node))?;
        call.answer(&protocol::attributes(&nodes::shown(&self.door.vfs, found)))
    }

    /// As [`Adapter::getattr`], with the time of birth.
    pub(super) fn statx(&self, call: &mut Call<'_>) -> Answer {
        let node = node(call);
        let found = self.door.run("statx", |vfs| vfs.getattr(node))?;
        call.answer(&protocol::statx(&nodes::shown(&self.door.vfs, found)))
    }

    pub(super) fn setattr(&self, call: &mut Call<'_>) -> Answer {
        let (set, file) = set_attr(call.fields(), call.header)?;
        let node = node(call);
        let found = self
            .door
            .run("setattr", |vfs| vfs.setattr(node, file, &set))?;
        call.answer(&protocol::attributes(&nodes::shown(&self.door.vfs, found)))
    }

    pub(super) fn statfs(&self, call: &mut Call<'_>) -> Answer {
        let node = node(call);
        let space = self.door.run("statfs", |vfs| vfs.statfs_at(node))?;
        call.answer(&protocol::space(&space))
    }

    pub(super) fn setxattr(&self, call: &Call<'_>) -> Answer {
        let mut fields = call.fields();
        let (size, flags) = (fields.u32()?, fields.u32()?);
        let (name, value) = call.name_and_data()?;
        let value = value.get(..size as usize).ok_or(protocol::MALFORMED)?;
        let node = node(call);
        let caller = match fields.u32() {
            Ok(flags) => Caller {
                loses_setgid: flags & SETXATTR_ACL_KILL_SGID != 0,
                ..caller(call.header, 0)
            },
            // A kernel that does not tell (before 5.13): rather no setgid than a stranger's.
            Err(_) => Caller {
                groups: Some(Arc::default()),
                ..caller(call.header, 0)
            },
        };
        done(self.door.run("setxattr", |vfs| {
            let mode = XattrMode::from_linux(flags.cast_signed())?;
            let set = vfs.setxattr(&caller, node, name, value, mode);
            keeping::set(&call.header, vfs, (node, name, value), set)
        }))
    }

    /// The value of an attribute that is stored.
    pub(super) fn stored_attribute(&self, call: &mut Call<'_>, size: u32) -> Answer {
        let (node, name) = (node(call), call.name()?);
        let value = self.door.run("getxattr", |vfs| vfs.getxattr(node, name))?;
        answer_sized(call, size, &value)
    }

    pub(super) fn listxattr(&self, call: &mut Call<'_>) -> Answer {
        let size = call.fields().u32()?;
        let (node, caller) = (node(call), caller(call.header, 0));
        let names = self
            .door
            .run("listxattr", |vfs| vfs.listxattr(&caller, node))?;
        answer_sized(call, size, &names)
    }

    pub(super) fn removexattr(&self, call: &Call<'_>) -> Answer {
        let (node, name) = (node(call), call.name()?);
        done(self.door.run("removexattr", |vfs| {
            keeping::removed(&call.header, vfs.removexattr(node, name))
        }))
    }

    pub(super) fn ioctl(&self, call: &mut Call<'_>, transport: &dyn Transport) -> Outcome {
        match ioctl_fields(call) {
            Err(error) => Outcome::Now(Err(error)),
            Ok((_, control::COMMAND)) => match control::may(call.header.uid) {
                Err(_) if control::is_for_anybody(&*self.live, call.data()) => {
                    self.control_by_anybody(call, transport)
                }
                Err(error) => Outcome::Now(Err(error)),
                Ok(()) => self.control(call, transport),
            },
            Ok((
                _,
                command @ (inode_flags::GET
                | inode_flags::SET
                | inode_flags::GET_EXTENDED
                | inode_flags::SET_EXTENDED),
            )) => Outcome::Now(self.inode_flags(call, command)),
            Ok((_, trim::TRIM)) => match control::may(call.header.uid) {
                Err(error) => Outcome::Now(Err(error)),
                Ok(()) => self.trim(call, transport),
            },
            Ok((_, freeze::FREEZE)) => match control::may(call.header.uid) {
                Err(error) => Outcome::Now(Err(error)),
                Ok(()) => self.freeze(call, transport),
            },
            Ok((file, ranges::CHANGE)) => self.change_range(call, file, transport),
            Ok((file, command)) => Outcome::Now(self.lifetime(call, file, command)),
        }
    }

    /// A command to the daemon, answered by another thread.
    fn control(&self, call: &Call<'_>, transport: &dyn Transport) -> Outcome {
        let (door, later, live) = (self.door.clone(), transport.later(), self.live.clone());
        let (asked, message) = (asked(call), call.data().to_vec());
        self.controls.run(move || {
            let answer = door.run("ioctl", |_| Ok(control::answer(&*live, &message, asked)));
            let answer = answer.and_then(|answer| door.record().map(|()| answer));
            // It may have taken a snapshot, of which the kernel knows nothing: it is to list them anew.
            for directory in door.vfs.snapshot_directories() {
                later.write_back(directory.0);
            }
            if let Ok(answered) = &answer {
                if let Some(made) = &answered.made {
                    let directory = nodes::number(&door.vfs, made.directory);
                    made.names
                        .iter()
                        .for_each(|name| later.forget_name(directory, name));
                    later.write_back(directory);
                }
                for ino in &answered.resized {
                    later.forget_attributes(nodes::number(&door.vfs, *ino));
                }
            }
            later.answer(answer.map(|answered| whole(&answered.text)));
        });
        Outcome::Later
    }

    /// Answers a user who may not give commands. Such questions have threads of their own, so they delay no command.
    fn control_by_anybody(&self, call: &Call<'_>, transport: &dyn Transport) -> Outcome {
        let (door, later, live) = (self.door.clone(), transport.later(), self.live.clone());
        let (asked, message) = (asked(call), call.data().to_vec());
        let is_taken = self.questions.workers.try_run(move || {
            let answer = door.run("ioctl", |_| Ok(control::answer(&*live, &message, asked)));
            later.answer(answer.map(|answered| whole(&answered.text)));
        });
        match is_taken {
            true => Outcome::Later,
            false => Outcome::Now(Err(Errno(libc::EAGAIN))),
        }
    }

    /// Answered by another thread: the device takes its time.
    fn trim(&self, call: &Call<'_>, transport: &dyn Transport) -> Outcome {
        let range = match trim::parse(call.data()) {
            Ok(range) => range,
            Err(error) => return Outcome::Now(Err(error)),
        };
        let (door, later) = (self.door.clone(), transport.later());
        self.controls.run_elsewhere(move || {
            let trimmed = door.run("ioctl", |vfs| vfs.trim_range(range));
            later.answer(trimmed.map(|bytes| whole(&trim::encode(range, bytes))));
        });
        Outcome::Later
    }

    /// Freezing the mount, and thawing it.
    fn freeze(&self, call: &mut Call<'_>, transport: &dyn Transport) -> Outcome {
        let asked = freeze::parse(call.data());
        match asked.map(|asked| self.freezer.ask(asked, transport)) {
            Err(error) => Outcome::Now(Err(error)),
            Ok(Err(outcome)) => outcome,
            Ok(Ok(answer)) => Outcome::Now(call.answer(&whole(&freeze::encode(answer)))),
        }
    }

    /// Taking a range out of a file, or putting one in. Another thread does it: what the kernel holds back is written before, and what it has
    /// cached is forgotten after.
    fn change_range(&self, call: &Call<'_>, file: Handle, transport: &dyn Transport) -> Outcome {
        if self.pages.writeback_cache() {
            return Outcome::Now(Err(Errno(libc::EOPNOTSUPP)));
        }
        let (offset, length, what) = match ranges::parse(call.data()) {
            Ok(parsed) => parsed,
            Err(error) => return Outcome::Now(Err(error)),
        };
        let Some(later) = transport.later_with_pages() else {
            return Outcome::Now(Err(Errno(libc::EAGAIN)));
        };
        let (door, node, sync) = (self.door.clone(), node(call), self.sync);
        let author = author_by_uid(call.header);
        if call.header.is_resent() {
            // It may have been done, and to do it twice takes more out, or puts more in.
            tracing::warn!(
                ino = node.0,
                "taking a range out of a file, or putting one in, was under way when the daemon died: whoever asked has \
                 to look whether it was done"
            );
            return Outcome::Now(Err(Errno(libc::EIO)));
        }
        let under_way = self.freezer.goes_on_apart();
        self.renames.run_elsewhere(move || {
            let _under_way = under_way;
            later.write_back(node.0);
            let changed = door.shift(node, || {
                door.run("ioctl", |vfs| {
                    vfs.fallocate_by(author, (node, file), (offset, length), what)?;
                    if sync {
                        vfs.fsync(node, Handle::NONE)?;
                    }
                    Ok(())
                })
            });
            later.write_back(node.0);
            later.answer(changed.map(|()| whole(&[])));
        });
        Outcome::Later
    }

    /// Setting, and asking for, the flags of an inode.
    fn inode_flags(&self, call: &mut Call<'_>, command: u32) -> Answer {
        let node = node(call);
        match command {
            inode_flags::SET => {
                let (told, caller) = (inode_flags::parse(call.data())?, caller(call.header, 0));
                self.door.run("ioctl", |vfs| {
                    vfs.set_inode_flags(&caller, node, InodeFlags::from_linux(told)?)?;
                    self.sync_node(node)
                })?;
                call.answer(&whole(&[]))
            }
            inode_flags::GET => {
                let flags = self.door.run("ioctl", |vfs| vfs.inode_flags(node))?;
                call.answer(&whole(&inode_flags::encode(flags)))
            }
            inode_flags::GET_EXTENDED => {
                let extended = self.door.run("ioctl", |vfs| {
                    let flags = inode_flags::extended_flags(flags_of(vfs, node)?);
                    Ok(inode_flags::extended(vfs.project(node)?, flags))
                })?;
                call.answer(&whole(&extended))
            }
            _ => {
                let (project, told) = inode_flags::parse_extended(call.data())?;
                let caller = caller(call.header, 0);
                self.door.run("ioctl", |vfs| {
                    let flags = flags_of(vfs, node)?;
                    let wanted = inode_flags::with_extended(flags, told);
                    let is_project_new = vfs.project(node)? != project;
                    if is_project_new {
                        vfs.set_project(&caller, node, project)?;
                    }
                    if wanted != flags {
                        let wanted = InodeFlags {
                            inherits_project: vfs.inode_flags(node)?.inherits_project,
                            ..wanted
                        };
                        vfs.set_inode_flags(&caller, node, wanted)?;
                    }
                    if is_project_new || wanted != flags {
                        self.sync_node(node)?;
                    }
                    Ok(())
                })?;
                call.answer(&whole(&[]))
            }
        }
    }

    /// Telling, and asking, how long what is written through an open file will live.
    fn lifetime(&self, call: &mut Call<'_>, file: Handle, command: u32) -> Answer {
        let node = node(call);
        match command {
            lifetimes::SET => {
                let told = lifetimes::parse(call.data())?;
                self.door
                    .run("ioctl", |vfs| vfs.set_lifetime(node, file, told))?;
                call.answer(&whole(&[]))
            }
            lifetimes::GET => {
                let told = self.door.run("ioctl", |vfs| vfs.lifetime(node, file))?;
                call.answer(&whole(&lifetimes::encode(told)))
            }
            _ => Err(Errno(libc::ENOTTY)),
        }
    }
}

/// The open file that an ioctl is about, and its command.
fn ioctl_fields(call: &Call<'_>) -> Result<(Handle, u32), Errno> {
    let mut fields = call.fields();
    let file = Handle(fields.u64()?);
    let (flags, command) = (fields.u32()?, fields.u32()?);
    match flags & IOCTL_UNRESTRICTED {
        0 => Ok((file, command)),
        _ => Err(super::UNKNOWN),
    }
}

/// Whether an ioctl changes a file or directory before it is answered.
pub(super) fn is_changing_ioctl(call: &Call<'_>) -> bool {
    let command = ioctl_fields(call).map(|(_, command)| command);
    matches!(
        command,
        Ok(inode_flags::SET | inode_flags::SET_EXTENDED | ranges::CHANGE)
    )
}

/// The answer to an ioctl with this output.
pub(super) fn whole(output: &[u8]) -> Vec<u8> {
    let mut whole = protocol::ioctl_done().to_vec();
    whole.extend_from_slice(output);
    whole
}

/// A value, or, to those who have no room for any, its length.
fn answer_sized(call: &mut Call<'_>, size: u32, value: &[u8]) -> Answer {
    if size == 0 {
        call.answer(&protocol::length(value.len() as u32))
    } else if value.len() > size as usize {
        Err(Errno(libc::ERANGE))
    } else {
        call.answer(value)
    }
}

/// Whether a SETATTR changes content, times that a write sets, or permissions that a write changes.
pub(super) fn changes(mut fields: Fields<'_>) -> Result<(bool, bool, bool), Errno> {
    let which = fields.u32()?;
    let asked = |bits: u32| which & bits != 0;
    let mode = SET_MODE | SET_UID | SET_GID;
    let times = SET_MTIME | SET_CTIME;
    Ok((asked(SET_SIZE), asked(times), asked(mode)))
}

fn set_attr(mut fields: Fields<'_>, header: Header) -> Result<(SetAttr, Handle), Errno> {
    let which = fields.u32()?;
    fields.skip_u32()?;
    let (file, size) = (fields.u64()?, fields.u64()?);
    // The owner of locks.
    fields.skip_u64()?;
    let seconds = [fields.u64()?, fields.u64()?, fields.u64()?];
    let nanoseconds = [fields.u32()?, fields.u32()?, fields.u32()?];
    let mode = fields.u32()?;
    fields.skip_u32()?;
    let (owner, group) = (fields.u32()?, fields.u32()?);
    let asked = |bit: u32| which & bit != 0;
    let [atime, mtime, ctime] = [0, 1, 2].map(|at: usize| Timestamp {
        seconds: seconds[at].cast_signed(),
        nanoseconds: nanoseconds[at],
    });
    let time = |bit, now, time| match (asked(bit), asked(now)) {
        (false, _) => None,
        (true, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(time)),
    };
    let set = SetAttr {
        mode: asked(SET_MODE).then_some(mode),
        uid: asked(SET_UID).then_some(owner),
        gid: asked(SET_GID).then_some(group),
        size: asked(SET_SIZE).then_some(size),
        atime: time(SET_ATIME, SET_ATIME_NOW, atime),
        mtime: time(SET_MTIME, SET_MTIME_NOW, mtime),
        ctime: asked(SET_CTIME).then_some(ctime),
        // Of a new owner the kernel does not say who gives it.
        author: if asked(SET_SIZE) {
            author(header, asked(KILL_SUIDGID))
        } else {
            author_by_uid(header)
        },
    };
    let file = if asked(SET_BY_HANDLE) {
        Handle(file)
    } else {
        Handle::NONE
    };
    Ok((set, file))
}

/// The flags of an inode; none where it can have none.
fn flags_of(vfs: &Vfs, node: Ino) -> persimmon_vfs::Result<InodeFlags> {
    match vfs.getattr(node)?.kind() {
        FileKind::Regular | FileKind::Directory => vfs.inode_flags(node),
        _ => Ok(InodeFlags::default()),
    }
}

/// Who gives a command.
fn asked(call: &Call<'_>) -> Asked {
    Asked {
        resent: call.header.is_resent(),
        pid: call.header.pid,
        uid: call.header.uid,
        gid: call.header.gid,
    }
}
