//! Operations on a mounted volume, by path.

use std::collections::BTreeMap;
use std::sync::Arc;

use persimmon_engine::{Error as EngineError, NewLimits, OwnerQuota, Quotas, Task};
use persimmon_format::table::Role;
use persimmon_format::{Ino, SubvolumeId};
use persimmon_vfs::{
    Caller, Clock, Error, Handle, OpenFlags, Owner, ROOT, RenameMode, SetAttr, SetTime, Vfs,
    WriteFlags, XattrMode,
};

use super::{WorkloadClock, snapshot_named, timestamp};
use crate::harness::{Refusal, Subject};
use crate::model::{Counting, FoundAccount, Limits, Observed, ObservedNode};
use crate::workload::{Allocate, Durability, Op, Rename, Step, bytes_of};

const BLOCK: u64 = 4096;
/// What is packed at a time, behind where a copy began.
const NEAR_BYTES: u64 = 256 << 10;

/// A mounted volume, or what one client sees of it.
pub struct Mounted {
    pub(super) vfs: Arc<Vfs>,
    /// Where paths begin.
    pub(super) root: Ino,
    clock: Arc<WorkloadClock>,
    pub(super) slots: BTreeMap<u8, (Ino, Handle)>,
    options: Vec<&'static str>,
    recovery_paths: Vec<&'static str>,
    /// Blocks of files take a block each.
    pub(super) is_whole: bool,
    /// Those who use it are limited.
    pub(super) has_limits: bool,
    /// Of the last operation a part was done, because of a limit.
    was_cut_by_quota: bool,
    /// What files may be near to, if what is written to them is packed as a near duplicate.
    near: Option<Near>,
}

#[derive(Default)]
struct Near {
    /// What files were copied from last.
    origins: BTreeMap<Ino, Origin>,
    /// The file that was written to last.
    last: Option<Ino>,
}

/// Where a file has what another one had.
#[derive(Clone, Copy)]
struct Origin {
    from: Ino,
    from_offset: u64,
    to_offset: u64,
}

/// A write or a copy of which a part was done.
struct Cut {
    bytes: u64,
    by_quota: bool,
}

impl Cut {
    /// An error after so many bytes. It is none if there was no more room for the others.
    fn of(bytes: u64, error: Error) -> Result<Cut, Error> {
        match error {
            Error::NoSpace | Error::QuotaExceeded(_) if bytes > 0 => Ok(Cut {
                bytes,
                by_quota: matches!(error, Error::QuotaExceeded(_)),
            }),
            error => Err(error),
        }
    }
}

impl Subject for Mounted {
    fn apply(&mut self, op: &Op, now: u64) -> Result<Option<u64>, Refusal> {
        self.clock.set(now);
        let came = self.run(op);
        self.must_be_sound();
        came.map_err(|error| Refusal::from(&error))
    }

    fn observe_one(&mut self, path: &str) -> Result<ObservedNode, String> {
        let ino = self.resolve(path).map_err(|error| error.to_string())?;
        self.observe_node(path, ino)
    }

    fn observe_open(&mut self, slot: u8) -> Result<ObservedNode, Refusal> {
        let found = self.node_in(slot);
        found.map_err(|error| Refusal::from(&error))
    }

    fn account(&mut self, owner: Owner) -> Result<Option<FoundAccount>, String> {
        if !self.has_limits {
            return Ok(None);
        }
        let known = Quotas::of(self.vfs.volume()).get(owner);
        let known = known.map_err(|error| error.to_string())?;
        Ok(Some(account_of(&known)))
    }

    fn counting(&self) -> Counting {
        self.quota().counting
    }

    fn observe(&mut self) -> Result<Observed, String> {
        self.observe_tree()
    }

    fn next_number(&self) -> u64 {
        let next = self
            .vfs
            .volume()
            .view::<_, EngineError>(|view| Ok(view.next_ino()));
        next.map_or(0, |next| next.0)
    }

    fn stores_whole_blocks(&self) -> bool {
        self.is_whole
    }

    fn was_cut_by_quota(&self) -> bool {
        self.was_cut_by_quota
    }

    fn options(&self) -> Vec<&'static str> {
        self.options.clone()
    }

    fn recovery_paths(&self) -> Vec<&'static str> {
        self.recovery_paths.clone()
    }

    fn close(self) -> Result<(), String> {
        let closed = self.vfs.close();
        self.must_be_sound();
        closed.map_err(|error| format!("closing: {error}"))
    }
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Refusal {
        Refusal {
            errno: error.errno(),
            message: error.to_string(),
        }
    }
}

impl Mounted {
    pub(crate) fn new(
        vfs: Arc<Vfs>,
        clock: Arc<WorkloadClock>,
        options: Vec<&'static str>,
        recovery_paths: Vec<&'static str>,
    ) -> Mounted {
        Mounted {
            vfs,
            root: ROOT,
            clock,
            slots: BTreeMap::new(),
            options,
            recovery_paths,
            is_whole: false,
            has_limits: false,
            was_cut_by_quota: false,
            near: None,
        }
    }

    /// From now on what is written is packed with what it is a copy of, and with the file that was written to before.
    pub(super) fn packing_near(self) -> Mounted {
        Mounted {
            near: Some(Near::default()),
            ..self
        }
    }

    /// Nothing that fails excuses a state that cannot be.
    ///
    /// # Panics
    /// The engine has found one.
    fn must_be_sound(&self) {
        let bug = self.vfs.volume().standing().bug();
        assert!(
            bug.is_none(),
            "{}",
            bug.map(|bug| bug.to_string()).unwrap_or_default()
        );
    }

    /// The same volume for somebody else, to whom this directory is all of it.
    ///
    /// Errors: there is no such directory.
    pub fn within(&self, path: &str) -> Result<Mounted, String> {
        let root = self.resolve(path).map_err(|error| error.to_string())?;
        Ok(Mounted {
            vfs: Arc::clone(&self.vfs),
            root,
            clock: Arc::clone(&self.clock),
            slots: BTreeMap::new(),
            options: Vec::new(),
            recovery_paths: Vec::new(),
            is_whole: self.is_whole,
            has_limits: false,
            was_cut_by_quota: false,
            near: None,
        })
    }

    /// Reads all of what a path leads to, whatever it is.
    pub(crate) fn read_all(&self, path: &str) -> Result<(), Error> {
        let ino = self.resolve(path)?;
        self.node(ino).map(drop)
    }

    /// The volume below the names.
    #[must_use]
    pub fn volume(&self) -> Arc<persimmon_engine::Volume> {
        Arc::clone(self.vfs.volume())
    }

    fn resolve(&self, path: &str) -> Result<Ino, Error> {
        let (mut at, path) = match path.split_once(':') {
            None => (self.root, path),
            Some((name, path)) => {
                let id = snapshot_named(self.vfs.volume(), name);
                (ROOT.of(id?), path)
            }
        };
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = self.vfs.lookup(at, name.as_bytes())?.ino;
        }
        Ok(at)
    }

    fn parent<'a>(&self, path: &'a str) -> Result<(Ino, &'a [u8]), Error> {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.resolve(directory)?, name.as_bytes()))
    }

    fn run(&mut self, op: &Op) -> Result<Option<u64>, Error> {
        match op {
            Op::WriteOpen { .. } | Op::Write { .. } | Op::Copy { .. } => {
                let came = self.write_or_copy(op);
                self.pack_near(op);
                let cut = came?;
                self.was_cut_by_quota = cut.as_ref().is_some_and(|cut| cut.by_quota);
                Ok(cut.map(|cut| cut.bytes))
            }
            _ => self.change(op).map(|()| None),
        }
    }

    fn change(&mut self, op: &Op) -> Result<(), Error> {
        let root = Caller::root();
        match op {
            Op::Create { path, mode } => {
                let (parent, name) = self.parent(path)?;
                let flags = OpenFlags {
                    write: true,
                    exclusive: true,
                    ..OpenFlags::default()
                };
                let (attr, handle) = self.vfs.create(&root, parent, name, *mode, flags)?;
                self.vfs.release(attr.ino, handle)
            }
            Op::Mkdir { path, mode } => {
                let (parent, name) = self.parent(path)?;
                self.vfs.mkdir(&root, parent, name, *mode).map(drop)
            }
            Op::Fifo { path, mode } => {
                let (parent, name) = self.parent(path)?;
                let mode = libc::S_IFIFO | mode;
                self.vfs.mknod(&root, parent, name, mode, 0).map(drop)
            }
            Op::Symlink { path, target } => {
                let (parent, name) = self.parent(path)?;
                let target = target.as_bytes();
                self.vfs.symlink(&root, parent, name, target).map(drop)
            }
            Op::Link { from, to } => {
                let ino = self.resolve(from)?;
                let (parent, name) = self.parent(to)?;
                self.vfs.link(ino, parent, name).map(drop)
            }
            Op::Unlink { path } => {
                let (parent, name) = self.parent(path)?;
                self.vfs.unlink(parent, name)
            }
            Op::Rmdir { path } => {
                let (parent, name) = self.parent(path)?;
                self.vfs.rmdir(parent, name)
            }
            Op::Rename { from, to, mode } => {
                let (parent, name) = self.parent(from)?;
                let (new_parent, new_name) = self.parent(to)?;
                let mode = match mode {
                    Rename::Replace => RenameMode::Replace,
                    Rename::NoReplace => RenameMode::NoReplace,
                    Rename::Exchange => RenameMode::Exchange,
                };
                self.vfs.rename(parent, name, new_parent, new_name, mode)
            }
            Op::Open {
                slot,
                path,
                truncate,
            } => self.open(*slot, path, *truncate),
            Op::OpenRead { slot, path } => self.open_as(*slot, path, reading()),
            Op::Close { slot } => {
                let (ino, handle) = self.slots.remove(slot).ok_or(Error::BadHandle)?;
                self.vfs.release(ino, handle)
            }
            Op::Chmod { path, mode } => self.set(path, |set| set.mode = Some(*mode)),
            Op::Chown { path, uid } => self.set(path, |set| set.uid = Some(*uid)),
            Op::Chgrp { path, gid } => self.set(path, |set| set.gid = Some(*gid)),
            Op::SetProject { path, project } => {
                let ino = self.resolve(path)?;
                self.vfs.set_project(&root, ino, *project)
            }
            Op::SetProjectBelow { path, project } => self.set_project_below(path, *project),
            Op::SetMtime { path, mtime } => self.set(path, |set| {
                set.mtime = Some(SetTime::At(timestamp(*mtime)));
            }),
            Op::Truncate { path, size } => self.set(path, |set| set.size = Some(*size)),
            Op::SetXattr {
                path,
                name,
                length,
                fill,
            } => {
                let ino = self.resolve(path)?;
                let value = bytes_of(*fill, *length as usize);
                let name = name.as_bytes();
                self.vfs
                    .setxattr(&root, ino, name, &value, XattrMode::Either)
            }
            Op::RemoveXattr { path, name } => {
                let ino = self.resolve(path)?;
                self.vfs.removexattr(ino, name.as_bytes())
            }
            Op::Fsync { path, data_only } => {
                let ino = self.resolve(path)?;
                let handle = self.vfs.open(ino, reading())?;
                let mut files = vec![(ino, handle)];
                // As if others synced what they have open at the same time: it may enter the history at any time.
                if !data_only {
                    files.extend(self.slots.values());
                }
                let synced = self.vfs.fsync_all(&files).into_iter().next();
                self.vfs.release(ino, handle)?;
                synced.unwrap_or(Err(Error::BadHandle))
            }
            Op::FsyncDir { path } => {
                let ino = self.resolve(path)?;
                let handle = self.vfs.opendir(ino)?;
                let synced = self.vfs.fsyncdir(ino, handle);
                self.vfs.releasedir(ino, handle)?;
                synced
            }
            Op::Sync => self.vfs.sync(),
            Op::Snapshot { .. } | Op::DeleteSnapshot { .. } | Op::RenameSnapshot { .. } => {
                self.change_snapshots(op)
            }
            Op::Limit { owner, limits } => self.limit(*owner, *limits),
            Op::SetGrace { .. } | Op::QuotaOn { .. } | Op::QuotaOff => self.change_quota(op),
            // The time of each operation comes with it.
            Op::Wait { .. } => Ok(()),
            Op::Step(step) => self.step(*step),
            Op::Allocate {
                path,
                offset,
                length,
                what,
            } => {
                let ino = self.resolve(path)?;
                let what = match what {
                    Allocate::Reserve => persimmon_vfs::Allocate::Reserve { keep_size: false },
                    Allocate::ReserveKeepSize => {
                        persimmon_vfs::Allocate::Reserve { keep_size: true }
                    }
                    Allocate::Punch => persimmon_vfs::Allocate::Punch,
                    Allocate::Zero => persimmon_vfs::Allocate::Zero { keep_size: false },
                    Allocate::Collapse => persimmon_vfs::Allocate::Collapse,
                    Allocate::Insert => persimmon_vfs::Allocate::Insert,
                };
                self.vfs
                    .fallocate(ino, Handle::NONE, *offset, *length, what)
            }
            _ => Err(Error::Invalid("operation of the harness")),
        }
    }

    fn set_project_below(&self, path: &str, project: u32) -> Result<(), Error> {
        let top = self.resolve(path)?;
        let names = self.names_below(top)?;
        let given = self.vfs.set_project_below(&Caller::root(), top, project)?;
        match given == names + 1 {
            true => Ok(()),
            false => Err(Error::Invalid("count of those that got a project")),
        }
    }

    fn change_quota(&self, op: &Op) -> Result<(), Error> {
        let quotas = Quotas::of(self.vfs.volume());
        match op {
            Op::SetGrace { kind, grace } => quotas.set_grace(*kind, *grace)?,
            Op::QuotaOn { anew } => quotas.turn_on(*anew)?,
            Op::QuotaOff => quotas.turn_off()?,
            _ => return Err(Error::Invalid("operation of the harness")),
        }
        Ok(())
    }

    fn limit(&self, owner: Owner, limits: Limits) -> Result<(), Error> {
        let limits = NewLimits {
            bytes_soft: Some(limits.bytes.soft),
            bytes_hard: Some(limits.bytes.hard),
            inodes_soft: Some(limits.inodes.soft),
            inodes_hard: Some(limits.inodes.hard),
        };
        let quotas = Quotas::of(self.vfs.volume());
        Ok(quotas.set(owner, &limits, self.clock.now()).map(drop)?)
    }

    fn change_snapshots(&self, op: &Op) -> Result<(), Error> {
        let volume = self.vfs.volume();
        match op {
            Op::Snapshot {
                name,
                of,
                is_writable,
            } => {
                let of = of.as_ref().map(|of| snapshot_named(volume, of));
                let of = of.transpose()?.unwrap_or(SubvolumeId::MAIN);
                let (name, now) = (name.as_bytes(), self.clock.now());
                let taken = volume.snapshots().take(of, name, !is_writable, now);
                Ok(taken.map(drop)?)
            }
            Op::DeleteSnapshot { name } => self.vfs.delete_snapshot(name.as_bytes()),
            Op::RenameSnapshot { from, to } => {
                let (from, to) = (from.as_bytes(), to.as_bytes());
                self.vfs.rename_snapshot(from, to, RenameMode::NoReplace)
            }
            _ => Err(Error::Invalid("operation of the harness")),
        }
    }

    fn write_or_copy(&mut self, op: &Op) -> Result<Option<Cut>, Error> {
        match op {
            Op::WriteOpen {
                slot,
                offset,
                length,
                fill,
            } => {
                let (ino, handle) = *self.slots.get(slot).ok_or(Error::BadHandle)?;
                let data = bytes_of(*fill, *length as usize);
                self.write(ino, handle, *offset, &data)
            }
            Op::Write {
                path,
                offset,
                length,
                fill,
                durability,
            } => {
                let ino = self.resolve(path)?;
                let flags = OpenFlags {
                    write: true,
                    sync: *durability == Durability::Sync,
                    data_sync: *durability == Durability::DataSync,
                    ..OpenFlags::default()
                };
                let handle = self.vfs.open(ino, flags)?;
                let data = bytes_of(*fill, *length as usize);
                let written = self.write(ino, handle, *offset, &data);
                self.vfs.release(ino, handle)?;
                written
            }
            Op::Copy {
                from,
                to,
                from_offset,
                to_offset,
                length,
            } => self.copy(from, to, *from_offset, *to_offset, *length),
            _ => Err(Error::Invalid("operation of the harness")),
        }
    }

    /// Packs a file that was written to with what it may be near. Whether that is possible is nothing to those who use the files.
    fn pack_near(&mut self, op: &Op) {
        let ino = match op {
            Op::Write { path, .. } | Op::Copy { to: path, .. } => self.resolve(path).ok(),
            Op::WriteOpen { slot, .. } => self.slots.get(slot).map(|(ino, _)| *ino),
            _ => None,
        };
        let source = match op {
            Op::Copy { from, .. } => self.resolve(from).ok(),
            _ => None,
        };
        let (Some(near), Some(ino)) = (&mut self.near, ino) else {
            return;
        };
        if let Op::Copy {
            from_offset,
            to_offset,
            ..
        } = op
        {
            let origin = source.map(|from| Origin {
                from,
                from_offset: *from_offset,
                to_offset: *to_offset,
            });
            near.origins.extend(origin.map(|origin| (ino, origin)));
        }
        let before = near.last.replace(ino).map(|from| Origin {
            from,
            from_offset: 0,
            to_offset: 0,
        });
        let origin = near.origins.get(&ino).copied();
        for origin in origin.into_iter().chain(before) {
            let whole = |offset: u64| offset / BLOCK * BLOCK;
            let source = (origin.from, Handle::NONE, whole(origin.from_offset));
            let target = (ino, Handle::NONE, whole(origin.to_offset));
            let _ = self.vfs.pack_near(source, target, NEAR_BYTES);
        }
    }

    /// Writes all there is room for, as a program does: where a part was written, the rest has to
    /// be refused before it is given up. Answers how much was written, if not all.
    fn write(
        &self,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
    ) -> Result<Option<Cut>, Error> {
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
            let at = offset + done as u64;
            match self.vfs.write(ino, handle, at, rest, WriteFlags::default()) {
                Ok(written) if written.len == 0 => break,
                Ok(written) => done += written.len,
                Err(error) => return Cut::of(done as u64, error).map(Some),
            }
        }
        Ok(None)
    }

    fn open(&mut self, slot: u8, path: &str, truncate: bool) -> Result<(), Error> {
        let flags = OpenFlags {
            write: true,
            truncate,
            ..OpenFlags::default()
        };
        self.open_as(slot, path, flags)
    }

    fn open_as(&mut self, slot: u8, path: &str, flags: OpenFlags) -> Result<(), Error> {
        if self.slots.contains_key(&slot) {
            return Err(Error::BadHandle);
        }
        let ino = self.resolve(path)?;
        let handle = self.vfs.open(ino, flags)?;
        self.slots.insert(slot, (ino, handle));
        Ok(())
    }

    fn set(&self, path: &str, set: impl FnOnce(&mut SetAttr)) -> Result<(), Error> {
        let ino = self.resolve(path)?;
        let mut attributes = SetAttr::default();
        set(&mut attributes);
        self.vfs.setattr(ino, Handle::NONE, &attributes).map(drop)
    }

    fn copy(
        &self,
        from: &str,
        to: &str,
        from_offset: u64,
        to_offset: u64,
        length: u64,
    ) -> Result<Option<Cut>, Error> {
        let source = self.resolve(from)?;
        let target = self.resolve(to)?;
        // Within one file the source may grow while it is copied.
        let size = self.vfs.getattr(source)?.size;
        let length = length.min(size.saturating_sub(from_offset));
        let mut done = 0;
        // Nothing is asked for, too: a directory refuses that as well.
        loop {
            let copied = self.vfs.copy_file_range(
                (source, Handle::NONE, from_offset + done),
                (target, Handle::NONE, to_offset + done),
                length - done,
            );
            match copied {
                Ok(0) => return Ok(None),
                Ok(copied) => done += copied,
                Err(error) => return Cut::of(done, error).map(Some),
            }
        }
    }

    fn step(&self, step: Step) -> Result<(), Error> {
        let task = match step {
            Step::WriteBack => Task::WriteBack,
            Step::Commit => {
                self.vfs.volume().step(Task::Reset)?;
                self.vfs.volume().step(Task::GiveBackIfIdle)?;
                Task::Commit
            }
            Step::Checkpoint => Task::Checkpoint,
            Step::Settle => Task::Settle,
            Step::Count => Task::Count,
            Step::Clean => {
                self.vfs.volume().step(Task::Clean)?;
                Task::FreeZones
            }
            Step::Empty(number) => return self.empty_a_zone(number),
        };
        self.vfs.volume().step(task).map(drop).map_err(Error::from)
    }

    fn empty_a_zone(&self, number: u32) -> Result<(), Error> {
        let volume = self.vfs.volume();
        let mut zones = volume.zones();
        zones.retain(|status| status.entry.role == Role::Data && status.entry.valid > 0);
        if zones.is_empty() {
            return Ok(());
        }
        let zone = zones[number as usize % zones.len()].zone;
        volume.empty_zones(&[zone]).map_err(Error::from)
    }
}

/// What an owner may take, and the ends of grace times where soft limits are exceeded.
pub(super) fn account_of(known: &OwnerQuota) -> FoundAccount {
    let end = |soft: u64, used: u64, end: Option<i64>| {
        let is_over = soft != 0 && used > soft;
        is_over.then_some(end.unwrap_or_default())
    };
    FoundAccount {
        limits: Limits {
            bytes: known.bytes,
            inodes: known.inodes,
        },
        bytes_end: end(known.bytes.soft, known.bytes_used(), known.bytes_grace_end),
        inodes_end: end(
            known.inodes.soft,
            known.usage.inodes,
            known.inodes_grace_end,
        ),
    }
}

pub(super) fn reading() -> OpenFlags {
    OpenFlags {
        read: true,
        ..OpenFlags::default()
    }
}
