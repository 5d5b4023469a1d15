//! One step of a workload: small, plain, and readable in a report.

use std::fmt;

use persimmon_format::quota::{Grace, Owner, OwnerKind};

use crate::model::Limits;

/// What a rename does about an existing target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rename {
    /// Replaces it.
    Replace,
    /// Fails.
    NoReplace,
    /// Swaps the two.
    Exchange,
}

/// How a range of a file is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Space is set aside; the size grows with the range.
    Reserve,
    /// Space is set aside, the size stays.
    ReserveKeepSize,
    /// A hole is made.
    Punch,
    /// Zeros with space set aside; the size grows with the range.
    Zero,
    /// It is taken out.
    Collapse,
    /// A hole is put in.
    Insert,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// At once; durable later.
    Buffered,
    /// When its data is durable (`O_DSYNC`).
    DataSync,
    /// When its data and all attributes are durable (`O_SYNC`).
    Sync,
}

/// Background work that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Staged data goes to the device.
    WriteBack,
    /// The journal is committed.
    Commit,
    /// A checkpoint is written.
    Checkpoint,
    /// Zones are cleaned.
    Clean,
    /// What deleted snapshots alone held is removed, some of it.
    Settle,
    /// One of the zones with file data, by this number, is emptied.
    Empty(u32),
    /// Some of what was there when quota was turned on is counted.
    Count,
}

/// An operation on the filesystem. Paths start with `/`, or with the name of a writable snapshot and `:/`; what is copied from may be in
/// any snapshot. No symbolic link in them is followed.
#[allow(missing_docs, reason = "fields are the arguments of the system call")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A new regular file.
    Create { path: String, mode: u32 },
    /// A new directory.
    Mkdir { path: String, mode: u32 },
    /// A new FIFO.
    Fifo { path: String, mode: u32 },
    /// A new symbolic link.
    Symlink { path: String, target: String },
    /// One more name for a file.
    Link { from: String, to: String },
    /// A name less.
    Unlink { path: String },
    /// A directory less.
    Rmdir { path: String },
    /// Another name.
    Rename {
        from: String,
        to: String,
        mode: Rename,
    },
    /// Opens a regular file and keeps it open; `truncate` empties it.
    Open {
        slot: u8,
        path: String,
        truncate: bool,
    },
    /// Opens a regular file to read it, which may be in a read-only snapshot, and keeps it open.
    OpenRead { slot: u8, path: String },
    /// Reads all of what is open in a slot to be read, and compares it.
    ReadOpen { slot: u8 },
    /// Closes what is open in a slot.
    Close { slot: u8 },
    /// Writes through a slot.
    WriteOpen {
        slot: u8,
        offset: u64,
        length: u32,
        fill: u64,
    },
    /// Writes to a regular file.
    Write {
        path: String,
        offset: u64,
        length: u32,
        fill: u64,
        durability: Durability,
    },
    /// Sets the size of a regular file.
    Truncate { path: String, size: u64 },
    /// Allocates or frees a range of a regular file.
    Allocate {
        path: String,
        offset: u64,
        length: u64,
        what: Allocate,
    },
    /// Copies a range from one regular file to another.
    Copy {
        from: String,
        to: String,
        from_offset: u64,
        to_offset: u64,
        length: u64,
    },
    /// Sets permission bits.
    Chmod { path: String, mode: u32 },
    /// Sets the owner.
    Chown { path: String, uid: u32 },
    /// Sets the group.
    Chgrp { path: String, gid: u32 },
    /// Sets the project.
    SetProject { path: String, project: u32 },
    /// Sets the project, of all below a directory too.
    SetProjectBelow { path: String, project: u32 },
    /// Sets the modification time, in nanoseconds.
    SetMtime { path: String, mtime: u64 },
    /// Sets an extended attribute.
    SetXattr {
        path: String,
        name: String,
        length: u32,
        fill: u64,
    },
    /// Removes an extended attribute.
    RemoveXattr { path: String, name: String },
    /// `fsync` or `fdatasync` of a regular file.
    Fsync { path: String, data_only: bool },
    /// `fsync` of a directory.
    FsyncDir { path: String },
    /// `sync` of everything.
    Sync,
    /// Takes a snapshot of the main subvolume, or of another snapshot.
    Snapshot {
        name: String,
        of: Option<String>,
        is_writable: bool,
    },
    /// Deletes a snapshot.
    DeleteSnapshot { name: String },
    /// Gives a snapshot another name.
    RenameSnapshot { from: String, to: String },
    /// A clean unmount, a roll-back to a snapshot, in which what was changed since becomes another one if that gets a name, and a mount.
    RollBack { to: String, keep: Option<String> },
    /// Limits what a user, a group or a project may take.
    Limit { owner: Owner, limits: Limits },
    /// Sets for how long users, groups or projects may exceed soft limits.
    SetGrace { kind: OwnerKind, grace: Grace },
    /// Turns quota on, or has all be counted anew.
    QuotaOn { anew: bool },
    /// Turns quota off.
    QuotaOff,
    /// Time passes.
    Wait { seconds: u32 },
    /// Background work.
    Step(Step),
    /// A clean unmount and a mount.
    Remount,
    /// Reads a whole file and compares it.
    Read { path: String },
}

impl Op {
    /// Whether it may free something of a file, or take it from an owner, once it is in the history.
    #[must_use]
    pub fn may_free(&self) -> bool {
        matches!(
            self,
            Op::Unlink { .. }
                | Op::Rename { .. }
                | Op::Open { truncate: true, .. }
                | Op::Close { .. }
                | Op::Truncate { .. }
                | Op::Allocate { .. }
                | Op::Copy { .. }
                | Op::SetXattr { .. }
                | Op::RemoveXattr { .. }
                | Op::Chown { .. }
                | Op::Chgrp { .. }
                | Op::SetProject { .. }
                | Op::SetProjectBelow { .. }
                | Op::RollBack { .. }
                | Op::Remount
        )
    }

    /// One word for tables.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Op::Create { .. } => "create",
            Op::Mkdir { .. } => "mkdir",
            Op::Fifo { .. } => "fifo",
            Op::Symlink { .. } => "symlink",
            Op::Link { .. } => "link",
            Op::Unlink { .. } => "unlink",
            Op::Rmdir { .. } => "rmdir",
            Op::Rename {
                mode: Rename::Exchange,
                ..
            } => "exchange",
            Op::Rename { .. } => "rename",
            Op::Open { truncate: true, .. } => "open O_TRUNC",
            Op::Open { .. } => "open",
            Op::OpenRead { .. } => "open to read",
            Op::ReadOpen { .. } => "read what is open",
            Op::Close { .. } => "close",
            Op::WriteOpen { .. } => "write",
            Op::Write { durability, .. } => match durability {
                Durability::Buffered => "write",
                Durability::DataSync => "write O_DSYNC",
                Durability::Sync => "write O_SYNC",
            },
            Op::Truncate { .. } => "truncate",
            Op::Allocate { what, .. } => match what {
                Allocate::Reserve | Allocate::ReserveKeepSize => "reserve",
                Allocate::Punch => "punch",
                Allocate::Zero => "zero",
                Allocate::Collapse => "collapse",
                Allocate::Insert => "insert",
            },
            Op::Copy { .. } => "copy",
            Op::Chmod { .. } => "chmod",
            Op::Chown { .. } => "chown",
            Op::Chgrp { .. } => "chgrp",
            Op::SetProject { .. } => "set project",
            Op::SetProjectBelow { .. } => "set project of a tree",
            Op::SetMtime { .. } => "utimens",
            Op::SetXattr { .. } => "setxattr",
            Op::RemoveXattr { .. } => "removexattr",
            Op::Fsync {
                data_only: true, ..
            } => "fdatasync",
            Op::Fsync { .. } => "fsync",
            Op::FsyncDir { .. } => "fsyncdir",
            Op::Sync => "sync",
            Op::Step(step) => match step {
                Step::WriteBack => "write back",
                Step::Commit => "commit",
                Step::Checkpoint => "checkpoint",
                Step::Clean => "clean",
                Step::Settle => "settle",
                Step::Empty(_) => "empty a zone",
                Step::Count => "count",
            },
            Op::Snapshot { .. } => "snapshot",
            Op::DeleteSnapshot { .. } => "delete snapshot",
            Op::RenameSnapshot { .. } => "rename snapshot",
            Op::RollBack { .. } => "roll back",
            Op::Limit { .. } => "limit",
            Op::SetGrace { .. } => "set grace",
            Op::QuotaOn { .. } => "quota on",
            Op::QuotaOff => "quota off",
            Op::Wait { .. } => "wait",
            Op::Remount => "remount",
            Op::Read { .. } => "read",
        }
    }
}

impl Op {
    /// Whether a full volume may refuse it: not what takes away, or makes durable what was taken.
    #[must_use]
    pub fn needs_room(&self) -> bool {
        !matches!(
            self,
            Op::Unlink { .. }
                | Op::Rmdir { .. }
                | Op::Truncate { .. }
                | Op::Fsync { .. }
                | Op::FsyncDir { .. }
                | Op::DeleteSnapshot { .. }
                | Op::RenameSnapshot { .. }
                | Op::Limit { .. }
                | Op::SetGrace { .. }
                | Op::QuotaOff
                | Op::SetProject { .. }
                | Op::SetProjectBelow { .. }
                | Op::Sync
        )
    }

    /// The same write or copy of the first `bytes` bytes only.
    #[must_use]
    pub fn shortened(&self, bytes: u64) -> Op {
        let mut op = self.clone();
        match &mut op {
            Op::WriteOpen { length, .. } | Op::Write { length, .. } => *length = bytes as u32,
            Op::Copy { length, .. } => *length = bytes,
            _ => {}
        }
        op
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Whether the bytes of a write with this `fill` compress.
pub(crate) fn compresses(fill: u64) -> bool {
    fill & 3 < 2
}

/// The bytes of a write: `fill` tells them. Of its low two bits, 0 makes them repetitive, so that
/// they compress well; with 1 every KiB of four is the same, so that they compress about 4:1;
/// otherwise they do not. Never zeros.
#[must_use]
pub fn bytes_of(fill: u64, length: usize) -> Vec<u8> {
    let mut state = fill.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        if fill & 3 == 1 && bytes.len() & 0xfff == 0x400 {
            let first = bytes.split_off(bytes.len() - 0x400);
            bytes.extend_from_slice(&first.repeat(4));
            continue;
        }
        if fill & 3 != 0 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        bytes.extend_from_slice(&(state | 0x0101_0101_0101_0101).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
