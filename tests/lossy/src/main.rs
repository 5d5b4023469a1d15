//! A file of a mount that is a disk in memory and loses power.
//!
//!     lossy-disk IMAGE DIRECTORY ZONES-FROM ZONE-BYTES
//!
//! `DIRECTORY/disk` begins as IMAGE. It keeps what was written since the last fsync as a disk does that promises no more than it
//! has to: sectors of 512 bytes in any order ([`persimmon_sim::medium`]). ZONES-FROM and ZONE-BYTES say where a volume's zones
//! are, which some of the states are made of.
//!
//! Commands come by standard input, one a line; each is answered by a line:
//!
//! - `off`: every call fails from now on.
//! - `on SEED`: what the power cut has left is there again.
//! - `save PATH`: the content goes to a file.
//!
//! The end of standard input unmounts.

use std::ffi::OsStr;
use std::io::{BufRead, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, WriteFlags,
};
use persimmon_sim::medium::{Choice, Medium, SECTOR_BYTES};

/// Bytes of an image taken at a time.
const PIECE: usize = 1 << 20;
const NAME: &str = "disk";
const FILE: INodeNo = INodeNo(2);
/// It never changes but for its content.
const TTL: Duration = Duration::from_secs(3600);

struct State {
    medium: Medium,
    is_off: bool,
}

/// Shared by the mount and who commands it.
#[derive(Clone)]
struct Disk(Arc<Mutex<State>>);

impl Disk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to what there is, while there is power.
    fn powered<T>(&self, act: impl FnOnce(&mut Medium) -> T) -> std::result::Result<T, Errno> {
        let mut state = self.lock();
        if state.is_off {
            Err(Errno::EIO)
        } else {
            Ok(act(&mut state.medium))
        }
    }

    fn attr(&self, ino: INodeNo) -> FileAttr {
        let is_file = ino == FILE;
        let size = if is_file {
            self.lock().medium.length()
        } else {
            0
        };
        FileAttr {
            ino,
            size,
            blocks: size / SECTOR_BYTES,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_file {
                FileType::RegularFile
            } else {
                FileType::Directory
            },
            perm: if is_file { 0o600 } else { 0o755 },
            nlink: if is_file { 1 } else { 2 },
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: 4096,
        }
    }
}

impl Filesystem for Disk {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == NAME {
            reply.entry(&TTL, &self.attr(FILE), Generation(0))
        } else {
            reply.error(Errno::ENOENT)
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attr(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // No page of it is left in the kernel when the power goes.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.powered(|medium| {
            let left = medium.length().saturating_sub(offset);
            let mut into = vec![0; u64::from(size).min(left) as usize];
            medium.read(&mut into, offset);
            into
        });
        match read {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.powered(|medium| {
            let fits = offset + data.len() as u64 <= medium.length();
            if fits {
                medium.write(data, offset);
            }
            fits
        });
        match written {
            Ok(true) => reply.written(data.len() as u32),
            Ok(false) => reply.error(Errno::ENOSPC),
            Err(error) => reply.error(error),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer(
            reply,
            self.powered(|medium| medium.make_durable(medium.changes())),
        );
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        /// FALLOC_FL_PUNCH_HOLE of <linux/falloc.h>.
        const PUNCH_HOLE: i32 = 2;
        let done = self.powered(|medium| {
            if mode & PUNCH_HOLE != 0 {
                medium.punch(offset, length);
            }
        });
        answer(reply, done);
    }
}

fn answer(reply: ReplyEmpty, done: std::result::Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

/// Does what a line says; its answer.
fn command(disk: &Disk, zones: &Range<u64>, zone_bytes: u64, line: &str) -> Result<String> {
    let mut state = disk.lock();
    match line.split_once(' ').unwrap_or((line, "")) {
        ("off", "") => {
            state.is_off = true;
            Ok(format!(
                "off, {} changes not durable",
                state.medium.pending()
            ))
        }
        ("on", seed) => {
            let mut choice = Choice::new(seed.parse()?, &state.medium, zones, zone_bytes);
            let rule = choice.to_string();
            state.medium = state.medium.after_power_cut(&mut choice);
            state.is_off = false;
            Ok(format!("on, {rule}"))
        }
        ("save", path) => {
            std::fs::write(path, state.medium.bytes())?;
            Ok("saved".to_owned())
        }
        _ => bail!("no command: {line}"),
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, dir, zones_from, zone_bytes] = arguments.as_slice() else {
        bail!("usage: lossy-disk IMAGE DIRECTORY ZONES-FROM ZONE-BYTES");
    };
    let bytes = std::fs::read(image).with_context(|| image.clone())?;
    let mut medium = Medium::new(bytes.len() as u64);
    for (number, piece) in (0..).zip(bytes.chunks(PIECE)) {
        if piece.iter().any(|byte| *byte != 0) {
            medium.write(piece, number * PIECE as u64);
            medium.make_durable(medium.changes());
        }
    }
    drop(bytes);
    let zones = zones_from.parse()?..medium.length();
    let zone_bytes = zone_bytes.parse()?;
    let disk = Disk(Arc::new(Mutex::new(State {
        medium,
        is_off: false,
    })));
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("lossy-disk".to_owned())];
    let session = fuser::spawn_mount(disk.clone(), Path::new(dir), &config)
        .with_context(|| format!("mounting at {dir}"))?;
    println!("mounted");
    for line in std::io::stdin().lock().lines() {
        let said = command(&disk, &zones, zone_bytes, &line?)?;
        println!("{said}");
        std::io::stdout().flush()?;
    }
    Ok(session.umount_and_join()?)
}
