//! Random operations through system calls, compared step by step with the model of the crash tests: the same model, the
//! same workloads, with remounts and checks in between.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow};
use persimmon_crash::filesystem::{Target, model_test_of};
use persimmon_crash::harness::{Refusal, Subject};
use persimmon_crash::model::{Kind, Model, Observed, ObservedNode};
use persimmon_crash::workload::{Allocate, Durability, Generator, Mix, Op, Rename, Step, bytes_of};
use persimmon_posix_tests::door::{Door, OpenFile, Outcome, SetTime, Time};
use rustix::fs::{FallocateFlags, FileType, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::posix::door::{Mounted, Opened};
use crate::scenario::{Scenario, TestBed};
use crate::volume::Volume;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "model::random_operations_do_what_the_model_does",
        run: random_operations_do_what_the_model_does,
        limit_seconds: 3600,
        // The model tells operations apart by the times that they stamp, which others take from a coarser clock.
        only_persimmon: true,
    },
    Scenario {
        name: "model::a_killed_daemon_leaves_what_the_model_admits",
        run: a_killed_daemon_leaves_what_the_model_admits,
        limit_seconds: 3600,
        only_persimmon: true,
    },
];

/// Seeds, where the command line says nothing.
const SEEDS: u32 = 4;
/// Operations of a seed: some of each mix.
const OPS: u32 = 720;
/// All files together, bytes.
const BYTES_MAX: u64 = 4 << 20;
const BLOCK: u64 = 4096;
const SECOND: u64 = 1_000_000_000;

fn random_operations_do_what_the_model_does(bed: &TestBed) -> Result<()> {
    let mut ops = 0;
    for seed in bed.seed..bed.seed + u64::from(bed.rounds.unwrap_or(SEEDS)) {
        let volume = bed.volume("model", 256 << 20, &[])?;
        let mut target = OnMount::new(volume);
        let tally = model_test_of(&mut target, seed, OPS, BYTES_MAX)
            .map_err(|why| anyhow!("seed {seed} (--seed {seed} --rounds 1): {why}"))?;
        ops += tally.ops;
        target.destroy()?;
    }
    println!("      {ops} operations, as the model has them");
    Ok(())
}

/// Operations between two kills.
const OPS_OF_LIFE: u32 = 60;

/// After a crash the volume is as it was after some prefix of the history (docs/POSIX.md): also after that of the daemon.
fn a_killed_daemon_leaves_what_the_model_admits(bed: &TestBed) -> Result<()> {
    let mut kills = 0;
    for seed in bed.seed..bed.seed + u64::from(bed.rounds.unwrap_or(SEEDS)) {
        let volume = bed.volume("killed-model", 256 << 20, &[])?;
        let mut target = OnMount::new(volume);
        let mut now = 1;
        let mut history = None;
        for mix in Mix::ALL {
            locked(&target.volume).mount_foreground(&[])?;
            let lived = target.live(&mut history, Generator::new(seed, mix, BYTES_MAX), &mut now);
            lived.map_err(|why| anyhow!("seed {seed}, {mix:?}, --rounds 1: {why}"))?;
            locked(&target.volume).kill()?;
            kills += 1;
        }
        locked(&target.volume).mount(&[])?;
        let found = target
            .in_use()
            .found_in(&history)
            .map_err(|why| anyhow!("seed {seed}: {why}"));
        found.and(locked(&target.volume).unmount())?;
        locked(&target.volume).fsck()?;
        target.destroy()?;
    }
    println!("      {kills} kills, each found in the history");
    Ok(())
}

impl OnMount {
    /// Finds what the last kill has left in the history before it, and goes on from there.
    fn live(
        &mut self,
        history: &mut Option<Model>,
        mut generator: Generator,
        now: &mut u64,
    ) -> Result<(), String> {
        let mut mounted = self.in_use();
        let mut model = Model::new(mounted.found_in(history)?.to_tree());
        for _ in 0..OPS_OF_LIFE {
            let op = generator.next_op(&model);
            if matches!(op, Op::Remount | Op::Read { .. }) {
                continue;
            }
            *now += 1_000_000;
            let (is, should) = (mounted.apply(&op, *now), model.apply(&op, *now));
            match (is, should) {
                (Ok(_), Ok(())) => {
                    if let Op::Allocate { path, .. } = &op {
                        model.adopt_mtime(path, mounted.observe_one(path)?.mtime);
                    }
                    model.acknowledge(&op);
                }
                (Err(_), Err(_)) => {}
                (is, should) => return Err(format!("{op}: {is:?}, should have {should:?}")),
            }
        }
        *history = Some(model);
        Ok(())
    }
}

/// When operations had ended, by the clock and by the model's time, in nanoseconds.
type Stamps = Arc<Mutex<Vec<(u64, u64)>>>;

struct OnMount {
    volume: Arc<Mutex<Volume>>,
    stamps: Stamps,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn told(error: impl Into<anyhow::Error>) -> String {
    format!("{:#}", error.into())
}

impl OnMount {
    fn new(volume: Volume) -> OnMount {
        OnMount {
            volume: Arc::new(Mutex::new(volume)),
            stamps: Arc::new(Mutex::new(vec![(real_now(), 1)])),
        }
    }

    fn in_use(&self) -> InUse {
        InUse {
            door: Mounted(locked(&self.volume).dir.clone()),
            slots: BTreeMap::new(),
            volume: Arc::clone(&self.volume),
            stamps: Arc::clone(&self.stamps),
        }
    }

    fn destroy(self) -> Result<()> {
        match Arc::into_inner(self.volume).map(Mutex::into_inner) {
            Some(volume) => volume.unwrap_or_else(PoisonError::into_inner).destroy(),
            None => Ok(()),
        }
    }
}

impl Target for OnMount {
    type Subject = InUse;

    fn mount(&mut self) -> Result<InUse, String> {
        locked(&self.volume).mount(&[]).map_err(told)?;
        Ok(self.in_use())
    }

    fn check(&mut self) -> Result<(), String> {
        locked(&self.volume).fsck().map_err(told)
    }
}

struct InUse {
    door: Mounted,
    slots: BTreeMap<u8, Opened>,
    volume: Arc<Mutex<Volume>>,
    stamps: Stamps,
}

fn real_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// A path of the model on the mount.
fn at(path: &str) -> &str {
    match path.trim_start_matches('/') {
        "" => ".",
        path => path,
    }
}

impl Subject for InUse {
    fn apply(&mut self, op: &Op, now: u64) -> Result<Option<u64>, Refusal> {
        let came = self.run(op);
        locked(&self.stamps).push((real_now(), now));
        came.map_err(|error| Refusal {
            errno: error.raw_os_error(),
            message: error.to_string(),
        })
    }

    fn observe_one(&mut self, path: &str) -> Result<ObservedNode, String> {
        let node = self.node(at(path));
        node.map_err(|error| format!("{path}: {error}"))
    }

    fn observe(&mut self) -> Result<Observed, String> {
        let mut nodes = BTreeMap::from([("/".to_owned(), self.observe_one("/")?)]);
        let mut directories = vec![String::new()];
        while let Some(above) = directories.pop() {
            let entries = self.door.list(at(&above)).map_err(told)?;
            for entry in entries {
                let path = format!("{above}/{}", entry.name.to_string_lossy());
                let node = self.observe_one(&path)?;
                if node.ino != entry.ino {
                    return Err(format!("{path} is listed as inode {}, {node:?}", entry.ino));
                }
                if node.kind == Kind::Directory {
                    directories.push(path.clone());
                }
                nodes.insert(path, node);
            }
        }
        Ok(Observed {
            nodes,
            ..Observed::default()
        })
    }

    fn close(self) -> Result<(), String> {
        drop(self.slots);
        locked(&self.volume).unmount().map_err(told)
    }
}

impl InUse {
    /// What is there, which has to be a state that the history before a kill admits, if there is one.
    fn found_in(&mut self, history: &Option<Model>) -> Result<Observed, String> {
        let found = self.observe()?;
        if let Some(before) = history {
            found.find_in(&before.admissible())?;
        }
        Ok(found)
    }

    fn open(&self, path: &str, flags: OFlags) -> Outcome<Opened> {
        // What should not be opened must not be waited for.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        self.door.open(at(path), flags, 0)
    }

    fn run(&mut self, op: &Op) -> Outcome<Option<u64>> {
        match op {
            Op::Open {
                slot,
                path,
                truncate,
            } => {
                let truncate = if *truncate {
                    OFlags::TRUNC
                } else {
                    OFlags::empty()
                };
                let file = self.open(path, OFlags::WRONLY | truncate)?;
                self.slots.insert(*slot, file);
                Ok(None)
            }
            Op::Close { slot } => self.slots.remove(slot).ok_or(Errno::BADF).map(|_| None),
            Op::WriteOpen {
                slot,
                offset,
                length,
                fill,
            } => {
                let file = self.slots.get(slot).ok_or(Errno::BADF)?;
                file.write_all_at(&bytes_of(*fill, *length as usize), *offset)?;
                Ok(None)
            }
            Op::Copy {
                from,
                to,
                from_offset,
                to_offset,
                length,
            } => self.copy((from, *from_offset), (to, *to_offset), *length),
            _ => self.change(op).map(|()| None),
        }
    }

    fn copy(&self, from: (&str, u64), to: (&str, u64), length: u64) -> Outcome<Option<u64>> {
        let source = self.open(from.0, OFlags::RDONLY)?;
        let target = self.open(to.0, OFlags::WRONLY)?;
        // Within one file the source may grow while it is copied.
        let length = length.min(source.stat()?.size.saturating_sub(from.1));
        let mut done = 0;
        while done < length {
            let left = (length - done) as usize;
            match source.copy_to(from.1 + done, &target, to.1 + done, left)? {
                0 => break,
                copied => done += copied as u64,
            }
        }
        Ok(None)
    }

    fn change(&self, op: &Op) -> Outcome<()> {
        let door = &self.door;
        match op {
            Op::Create { path, mode } => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                door.open(at(path), flags, *mode).map(drop)
            }
            Op::Mkdir { path, mode } => door.mkdir(at(path), *mode),
            Op::Fifo { path, mode } => door.mknod(at(path), 0o010_000 | mode, (0, 0)),
            Op::Symlink { path, target } => door.symlink(target, at(path)),
            Op::Link { from, to } => door.link(at(from), at(to)),
            Op::Unlink { path } => door.unlink(at(path)),
            Op::Rmdir { path } => door.rmdir(at(path)),
            Op::Rename { from, to, mode } => {
                let flags = match mode {
                    Rename::Replace => RenameFlags::empty(),
                    Rename::NoReplace => RenameFlags::NOREPLACE,
                    Rename::Exchange => RenameFlags::EXCHANGE,
                };
                door.rename_with(at(from), at(to), flags)
            }
            Op::Write {
                path,
                offset,
                length,
                fill,
                durability,
            } => {
                let sync = match durability {
                    Durability::Buffered => OFlags::empty(),
                    Durability::DataSync => OFlags::DSYNC,
                    Durability::Sync => OFlags::SYNC,
                };
                let file = self.open(path, OFlags::WRONLY | sync)?;
                file.write_all_at(&bytes_of(*fill, *length as usize), *offset)
            }
            Op::Truncate { path, size } => door.truncate(at(path), *size),
            Op::Allocate {
                path,
                offset,
                length,
                what,
            } => {
                let mode = match what {
                    Allocate::Reserve => FallocateFlags::empty(),
                    Allocate::ReserveKeepSize => FallocateFlags::KEEP_SIZE,
                    Allocate::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    Allocate::Zero => FallocateFlags::ZERO_RANGE,
                    Allocate::Collapse => FallocateFlags::COLLAPSE_RANGE,
                    Allocate::Insert => FallocateFlags::INSERT_RANGE,
                };
                let file = self.open(path, OFlags::WRONLY)?;
                file.allocate(mode, *offset, *length)
            }
            Op::Chmod { path, mode } => door.chmod(at(path), *mode),
            Op::Chown { path, uid } => door.chown(at(path), Some(*uid), None),
            Op::SetMtime { path, mtime } => {
                let time = SetTime::At((mtime / SECOND) as i64, (mtime % SECOND) as i64);
                door.utimens(at(path), SetTime::Omit, time)
            }
            Op::SetXattr {
                path,
                name,
                length,
                fill,
            } => door.setxattr(at(path), name, &bytes_of(*fill, *length as usize)),
            Op::RemoveXattr { path, name } => door.removexattr(at(path), name),
            Op::Fsync { path, data_only } => {
                let file = self.open(path, OFlags::RDONLY)?;
                if *data_only {
                    file.sync_data()
                } else {
                    file.sync()
                }
            }
            Op::FsyncDir { path } => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                self.open(path, flags)?.sync()
            }
            // A checkpoint makes durable what came before it.
            Op::Sync | Op::Step(Step::Checkpoint) => door.sync(),
            // Other background work is the daemon's own.
            Op::Step(_) => Ok(()),
            _ => Err(Errno::NOSYS),
        }
    }

    fn node(&self, path: &str) -> Outcome<ObservedNode> {
        let stat = self.door.stat(path)?;
        let kind = match stat.kind() {
            FileType::Directory => Kind::Directory,
            FileType::Symlink => {
                let target = self.door.readlink(path)?;
                Kind::Symlink(target.to_string_lossy().into_owned())
            }
            FileType::Fifo => Kind::Fifo,
            FileType::RegularFile => Kind::File {
                size: stat.size,
                blocks: blocks(&self.door, path)?,
            },
            _ => Kind::Other,
        };
        let mut xattrs = BTreeMap::new();
        for name in self.door.listxattr(path)? {
            let value = self.door.getxattr(path, &name)?;
            xattrs.insert(name, value);
        }
        Ok(ObservedNode {
            ino: stat.ino,
            kind,
            mode: stat.mode & 0o7777,
            links: stat.nlink as u32,
            uid: stat.uid,
            gid: stat.gid,
            // None is given out here.
            project: 0,
            mtime: self.model_time(stat.mtime),
            xattrs,
            lost: BTreeSet::new(),
        })
    }

    /// A time as the model has it: that of the operation that went on then, unless it was set to the first seconds of
    /// 1970, as operations of the model do.
    fn model_time(&self, (seconds, nanoseconds): Time) -> u64 {
        let time = seconds as u64 * SECOND + nanoseconds as u64;
        if time < 1 << 40 {
            return time;
        }
        let stamps = locked(&self.stamps);
        let next = stamps.partition_point(|(ended, _)| *ended < time);
        stamps.get(next).map_or(time, |(_, now)| *now)
    }
}

/// The blocks of a file that `SEEK_DATA` finds, zeros left out.
fn blocks(door: &Mounted, path: impl AsRef<Path>) -> Outcome<BTreeMap<u64, Vec<u8>>> {
    let file = door.open(path, OFlags::RDONLY, 0)?;
    let (mut blocks, mut at) = (BTreeMap::new(), 0);
    loop {
        let data = match file.next_data(at) {
            Err(Errno::NXIO) => return Ok(blocks),
            found => found?,
        };
        at = file.next_hole(data)?;
        let start = data / BLOCK * BLOCK;
        let bytes = file.read(start, (at - start) as usize)?;
        for (number, block) in (start / BLOCK..).zip(bytes.chunks(BLOCK as usize)) {
            if block.iter().any(|byte| *byte != 0) {
                blocks.insert(number, block.to_vec());
            }
        }
    }
}
