//! `persimmon dedup`: equal blocks of files are stored once.

mod near;
mod sketch;
mod table;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use persimmon::internal::format::shown::{shown, shown_path};
use persimmon::vfs::Handle;
use persimmon::{Filesystem, Ino, Vfs};
use persimmon_fuse::size::{parse_bytes, show_bytes};
use serde::{Deserialize, Serialize};

use super::cp::close;
use super::host::{HostNode, HostTree};
use super::tree::{Content, Copied, CopyError, Identity, Kind, PIECE, Tree, below};
use super::volume::VolumeTree;
use super::{Access, of_path, open, rooted, stop_on_signals};
use crate::control::{self, Command, Paths};
use crate::exit::{FAILED, FS_INTERRUPTED, FS_PARTIAL};
use crate::live::{self, Target};
use crate::output::{self, say};
use crate::report::Info;
use near::Near;
use table::{Place, Table};

const NAME: &str = "dedup";
const BLOCK: usize = 4096;
/// Bytes in use for each byte of memory for hashes.
const DATA_PER_MEMORY: u64 = 1000;
/// Least memory for hashes, bytes: enough to remember each block of 256 MiB.
const MEMORY_MIN: u64 = 1 << 20;
/// Longest hole that a run goes on through, bytes: as much as one call compares.
const HOLE_MAX: u64 = 16 << 20;
/// Longest sleep between two looks at whether to stop.
const NAP: Duration = Duration::from_millis(100);

/// Store equal blocks of files once: they become shared, as those of a clone, and no reader sees a change.
///
/// Reads all regular files below the directories, and remembers hashes of their blocks. Where blocks are equal as far as
/// the hash says, their bytes are compared while neither file can be changed. It may be stopped at any time; what is shared
/// already is passed by quickly the next time.
#[derive(Args)]
pub struct DedupCommand {
    /// Device, image file, LABEL=, UUID=, or a directory of a live mount
    target: OsString,
    /// Directories or files: of a volume that is not mounted from its root on [default: all of it], of a live mount by
    /// their paths [default: TARGET]
    directories: Vec<OsString>,
    /// Leave what is equal for fewer blocks of 4 KiB
    #[arg(long, value_name = "BLOCKS", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    min_run: u32,
    /// Memory for hashes [default: 1/1000 of what is in use, at least 1M]. What does not fit is sampled: short runs are missed then
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Most bytes to look at in a second, as in 50M [default: as fast as it goes]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    rate: Option<u64>,
    /// Change nothing, and tell what would become shared
    #[arg(long)]
    dry_run: bool,
    /// Also compress what is much like what another file has with that as a dictionary. Reading it reads that too, and a clone of it is a copy
    #[arg(long, conflicts_with = "dry_run")]
    near: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was done.
#[derive(Default, Serialize)]
struct Outcome {
    /// It came to its end.
    complete: bool,
    /// Nothing was changed: the numbers are what would be.
    dry_run: bool,
    /// Regular files looked at; one with several names counts once for each.
    files: u64,
    /// Bytes looked at: hashed, compared, or found to be shared already.
    bytes: u64,
    /// Bytes that became shared, and were not before.
    shared_bytes: u64,
    /// Runs of blocks that they are in.
    runs: u64,
    /// Bytes that near duplicates take less on the device; without `--near` nothing is looked for.
    near_bytes: u64,
    /// Memory for hashes.
    memory_bytes: u64,
    /// Blocks for each one whose hash was remembered; 1: all were.
    sampling: u64,
    /// Files and directories that could not be looked at, each told by name.
    failed: u64,
    /// How long it took.
    seconds: f64,
}

/// What is asked of a daemon: blocks of two files to be shared as far as they are equal.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Pair {
    from: u64,
    from_offset: u64,
    to: u64,
    to_offset: u64,
    len: u64,
    least: u64,
    only_tells: bool,
}

impl Pair {
    /// Both files.
    pub fn files(&self) -> [Ino; 2] {
        [self.from, self.to].map(Ino)
    }
}

/// How far a pair is equal.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Equal {
    bytes: u64,
    shared: u64,
}

impl Equal {
    const NOTHING: Equal = Equal {
        bytes: 0,
        shared: 0,
    };
}

/// Shares blocks of a volume. The pair may be of any files: what is not equal is left, and so is a file that is gone or damaged; reading it
/// tells that.
///
/// # Errors
/// When the volume is full, or takes no changes.
pub fn share(vfs: &Vfs, pair: &Pair) -> Copied<Equal> {
    let pair = match pair.only_tells {
        true => *pair,
        false => match changeable_last(vfs, pair) {
            Some(pair) => pair,
            None => return Ok(Equal::NOTHING),
        },
    };
    let source = (Ino(pair.from), Handle::NONE, pair.from_offset);
    let target = (Ino(pair.to), Handle::NONE, pair.to_offset);
    let shared = vfs.share_equal(source, target, (pair.len, pair.least), pair.only_tells);
    found(shared.map(|cloned| (cloned.bytes, cloned.shared)))
}

/// Packs blocks of a volume that are much like others. The pair may be of any files, as with [`share`].
///
/// # Errors
/// When the volume is full, or takes no changes.
pub fn pack_near(vfs: &Vfs, pair: &Pair) -> Copied<Equal> {
    let source = (Ino(pair.from), Handle::NONE, pair.from_offset);
    let target = (Ino(pair.to), Handle::NONE, pair.to_offset);
    let packed = vfs.pack_near(source, target, pair.len);
    found(packed.map(|cloned| (cloned.bytes, cloned.shared)))
}

/// What a call did; nothing where one of the files has an error of its own.
fn found(done: persimmon::vfs::Result<(u64, u64)>) -> Copied<Equal> {
    match done.map_err(CopyError::from) {
        Ok((bytes, shared)) => Ok(Equal { bytes, shared }),
        Err(CopyError::One(_)) => Ok(Equal::NOTHING),
        Err(error) => Err(error),
    }
}

/// The pair with a file last that can be changed. What is in a read-only snapshot cannot: the other one gets its blocks. None: both are there.
fn changeable_last(vfs: &Vfs, pair: &Pair) -> Option<Pair> {
    let snapshots = vfs.volume().snapshots();
    let is_changeable = |ino: u64| snapshots.check_changeable(Ino(ino)).is_ok();
    // Where nothing can be changed at all, sharing says why.
    if is_changeable(pair.to) || !is_changeable(vfs.root().0) {
        return Some(*pair);
    }
    is_changeable(pair.from).then_some(Pair {
        from: pair.to,
        from_offset: pair.to_offset,
        to: pair.from,
        to_offset: pair.from_offset,
        ..*pair
    })
}

/// Whose blocks they are.
enum Door<'a> {
    Volume(&'a Filesystem),
    /// Of the daemon behind a directory.
    Live(&'a Path),
}

impl Door<'_> {
    fn pack_near(&self, pair: &Pair) -> Copied<Equal> {
        match self {
            Door::Volume(filesystem) => pack_near(filesystem.vfs(), pair),
            Door::Live(dir) => {
                control::ask(dir, &Command::PackNear(*pair)).map_err(CopyError::ends)
            }
        }
    }

    fn share(&self, pair: &Pair) -> Copied<Equal> {
        match self {
            Door::Volume(filesystem) => share(filesystem.vfs(), pair),
            Door::Live(dir) => control::ask(dir, &Command::Dedup(*pair)).map_err(CopyError::ends),
        }
    }
}

impl DedupCommand {
    pub fn run(&self) -> Result<u8> {
        match Target::of(&self.target)? {
            Target::Device(_) => self.in_volume(),
            Target::Live(dir) => self.on_mount(&dir),
        }
    }

    fn in_volume(&self) -> Result<u8> {
        let access = if self.dry_run {
            Access::Read
        } else {
            Access::Write
        };
        let opened = open(&self.target, access, "name a directory of the mount, or ")?;
        let filesystem = &opened.filesystem;
        let tree = VolumeTree(filesystem.clone());
        let named: Vec<PathBuf> = match &*self.directories {
            [] => vec![PathBuf::from("/")],
            named => named.iter().map(|path| rooted(path)).collect(),
        };
        let mut tops = Vec::new();
        for path in named {
            let attr = filesystem.symlink_metadata(&path);
            tops.push((attr.map_err(|error| of_path(&path, &error))?.ino, path));
        }
        let space = filesystem.vfs().statfs()?;
        let used = (space.blocks - space.blocks_free) * u64::from(space.block_size);
        let (went, outcome) = self.dedup(Door::Volume(filesystem), &tree, tops, used)?;
        drop(tree);
        let went = close(opened, went);
        self.conclude(&went, &outcome)
    }

    fn on_mount(&self, dir: &Path) -> Result<u8> {
        // That it is one of a mount, and that its daemon obeys: what takes hours must not fail, or find nothing, for want of that.
        let info: Info = live::ask(dir, "info")?;
        let _: Paths = control::ask(dir, &Command::Paths(Vec::new()))?;
        let used = info.total_bytes.saturating_sub(info.available_bytes);
        let named: Vec<PathBuf> = match &*self.directories {
            [] => vec![dir.to_owned()],
            named => named.iter().map(PathBuf::from).collect(),
        };
        let device = rustix::fs::stat(dir)?.st_dev;
        let mut tops = Vec::new();
        for path in named {
            let told = || shown_path(&path).to_string();
            let node = HostNode::of(&path).with_context(told)?;
            if node.stat().with_context(told)?.st_dev != device {
                anyhow::bail!("{} is not on the mount of {}", told(), shown_path(dir));
            }
            tops.push((node, path));
        }
        let tree = HostTree::on(device);
        let (went, outcome) = self.dedup(Door::Live(dir), &tree, tops, used)?;
        self.conclude(&went, &outcome)
    }

    fn dedup<T: Tree>(
        &self,
        door: Door<'_>,
        tree: &T,
        tops: Vec<(T::Node, PathBuf)>,
        used: u64,
    ) -> Result<(Copied<()>, Outcome)> {
        let memory = self
            .memory
            .unwrap_or_else(|| (used / DATA_PER_MEMORY).max(MEMORY_MIN));
        let mut run = Run {
            door,
            table: Table::new(memory)?,
            near: self.near.then(|| Near::new(memory)).transpose()?,
            stop: stop_on_signals()?,
            begin: Instant::now(),
            rate: self.rate.map(|rate| rate.max(1)),
            least: u64::from(self.min_run) * BLOCK as u64,
            outcome: Outcome {
                dry_run: self.dry_run,
                ..Outcome::default()
            },
        };
        let mut went = Ok(());
        for (node, path) in tops {
            went = run.tree(tree, node, path.into_os_string().into_encoded_bytes());
            if went.is_err() {
                break;
            }
        }
        let mut outcome = run.outcome;
        outcome.complete = went.is_ok();
        let near = run.near.as_ref().map_or(0, Near::bytes);
        outcome.memory_bytes = run.table.bytes() + near;
        outcome.sampling = run.table.sampling();
        outcome.seconds = run.begin.elapsed().as_secs_f64();
        Ok((went, outcome))
    }

    fn conclude(&self, went: &Copied<()>, outcome: &Outcome) -> Result<u8> {
        let code = match went {
            Ok(()) if outcome.failed == 0 => 0,
            Ok(()) => FS_PARTIAL,
            Err(CopyError::Interrupted) => FS_INTERRUPTED,
            Err(_) => FAILED,
        };
        if let Err(error) = went {
            output::tell(format_args!("persimmon {NAME}: {error}"));
        }
        let said = if self.json {
            output::json(outcome)
        } else {
            self.say(outcome)
        };
        output::done(code, said)
    }

    fn say(&self, outcome: &Outcome) -> Result<()> {
        let became = if self.dry_run {
            "would become shared"
        } else {
            "became shared"
        };
        say!(
            "{} files, {} looked at in {:.1} s, {} in {} runs {became}{}",
            outcome.files,
            show_bytes(outcome.bytes),
            outcome.seconds,
            show_bytes(outcome.shared_bytes),
            outcome.runs,
            if outcome.complete {
                ""
            } else {
                "; stopped before the end"
            }
        )?;
        if self.near {
            let spared = show_bytes(outcome.near_bytes);
            say!("{spared} less for what is much like what another file has")?;
        }
        let sampled = match outcome.sampling {
            1 => "each block".to_owned(),
            one => format!("one in {one} blocks"),
        };
        say!(
            "{} of memory for hashes of {sampled}",
            show_bytes(outcome.memory_bytes)
        )?;
        Ok(())
    }
}

/// A directory on the way down.
struct Level<N> {
    identity: Identity,
    path: Vec<u8>,
    children: super::tree::Children<N>,
}

/// A walk over files.
struct Run<'a> {
    door: Door<'a>,
    table: Table,
    near: Option<Near>,
    stop: Arc<AtomicBool>,
    begin: Instant,
    rate: Option<u64>,
    /// Bytes of the shortest run.
    least: u64,
    outcome: Outcome,
}

impl Run<'_> {
    fn check_stop(&self) -> Copied<()> {
        if self.stop.load(Ordering::Relaxed) {
            Err(CopyError::Interrupted)
        } else {
            Ok(())
        }
    }

    /// Waits until the rate allows what was looked at.
    fn pace(&self) -> Copied<()> {
        if let Some(rate) = self.rate {
            let due = Duration::from_secs_f64(self.outcome.bytes as f64 / rate as f64);
            while let Some(left) = due.checked_sub(self.begin.elapsed())
                && !left.is_zero()
            {
                self.check_stop()?;
                thread::sleep(left.min(NAP));
            }
        }
        self.check_stop()
    }

    /// What came out, if anything did. A failure of one file is told and counted.
    fn settle<T>(&mut self, path: &[u8], result: Copied<T>) -> Copied<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(CopyError::One(message)) => {
                self.outcome.failed += 1;
                output::tell(format_args!("persimmon {NAME}: {}: {message}", shown(path)));
                Ok(None)
            }
            Err(CopyError::Ends(message)) => {
                Err(CopyError::Ends(format!("{}: {message}", shown(path))))
            }
            Err(CopyError::Interrupted) => Err(CopyError::Interrupted),
        }
    }

    /// Everything at `node` and below.
    fn tree<T: Tree>(&mut self, tree: &T, node: T::Node, path: Vec<u8>) -> Copied<()> {
        let mut way: Vec<Level<T::Node>> = Vec::new();
        let mut next = Some((node, path));
        loop {
            if let Some((node, path)) = next.take() {
                self.check_stop()?;
                let looked = self.node(tree, &node, &path, &way);
                way.extend(self.settle(&path, looked)?.flatten());
            }
            let Some(level) = way.last_mut() else {
                return Ok(());
            };
            match level.children.next() {
                Some(Ok((name, node))) => {
                    let above = level.path.strip_suffix(b"/").unwrap_or(&level.path);
                    let path = match above {
                        [] => [b"/", &*name].concat(),
                        above => below(above, &name),
                    };
                    next = Some((node, path));
                }
                Some(Err(error)) => {
                    let path = level.path.clone();
                    self.settle::<()>(&path, Err(error))?;
                }
                None => {
                    way.pop();
                }
            }
        }
    }

    /// A file, or the level of a directory.
    fn node<T: Tree>(
        &mut self,
        tree: &T,
        node: &T::Node,
        path: &[u8],
        way: &[Level<T::Node>],
    ) -> Copied<Option<Level<T::Node>>> {
        let seen = tree.look(node)?;
        let identity = seen.identity;
        match seen.kind {
            Kind::Directory if way.iter().any(|level| level.identity == identity) => {
                Err(CopyError::one("is a directory that is within itself"))
            }
            Kind::Directory => Ok(Some(Level {
                identity,
                path: path.to_vec(),
                children: tree.children(node)?,
            })),
            Kind::File { size } => {
                self.outcome.files += 1;
                if size > 0 {
                    let mut content = tree.content(node, size)?;
                    self.file(identity.1, &mut *content, size)?;
                    if let Some(near) = self.near.take() {
                        let looked = self.near_file(near, identity.1, &mut *content, size);
                        looked?;
                    }
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// The blocks of a file, one after the other; runs that are equal to what was seen before are shared.
    fn file(&mut self, ino: u64, content: &mut dyn Content, size: u64) -> Copied<()> {
        let mut window = Window::default();
        // Before it all is done.
        let mut at = 0;
        let mut done = 0;
        while let Some(data) = content.next_data(at)? {
            let start = at.max(data.start / BLOCK as u64 * BLOCK as u64);
            if start - at > HOLE_MAX {
                done = start;
            }
            at = start;
            let end = data.end.min(size);
            while at < end {
                let Some(block) = window.block(content, at, end)? else {
                    // It became shorter.
                    return Ok(());
                };
                let hash = self.table.hash(block);
                let bytes = block.len() as u64;
                let here = Place {
                    ino,
                    block: at / BLOCK as u64,
                };
                let known = self.table.find(hash).filter(|place| *place != here);
                let equal = match known {
                    Some(place) => self.share_run(place, (here, done), content, (end, size))?,
                    None => 0,
                };
                if equal > 0 {
                    // A file that became shorter ends there.
                    at = (at + equal).next_multiple_of(BLOCK as u64);
                    done = at;
                } else {
                    if known.is_none() {
                        self.table.insert(hash, here);
                    }
                    self.outcome.bytes += bytes;
                    at += BLOCK as u64;
                }
                self.pace()?;
            }
        }
        Ok(())
    }

    /// Shares what is equal from two places on, and before them, as far back as `done`. Returns how many bytes are, from there on.
    /// The data at `here` ends at `end`; the run goes on through short holes, and ends at a long one: files may have holes of which years
    /// would not see the end.
    fn share_run(
        &mut self,
        place: Place,
        (here, done): (Place, u64),
        content: &mut dyn Content,
        (mut end, size): (u64, u64),
    ) -> Copied<u64> {
        let (from, to) = (place.block * BLOCK as u64, here.block * BLOCK as u64);
        let mut shared = 0;
        let mut equal = 0;
        while to + equal < size {
            let least = if equal == 0 { self.least } else { 0 };
            let at = (from + equal, to + equal);
            let step = self.share((place, here), at, size - to - equal, least)?;
            if step.bytes == 0 {
                break;
            }
            equal += step.bytes;
            shared += step.shared;
            self.outcome.bytes += step.bytes;
            self.pace()?;
            let at = to + equal;
            if at >= end {
                match content.next_data(at)? {
                    Some(data) if data.start.saturating_sub(at) <= HOLE_MAX => end = data.end,
                    _ => break,
                }
            }
        }
        if equal > 0 {
            shared += self.share_before((place, here), (from, to), to - done)?;
        }
        if shared > 0 {
            self.outcome.runs += 1;
            self.outcome.shared_bytes += shared;
        }
        Ok(equal)
    }

    /// Shares blocks that are equal before two places: the hashes of all blocks may not have been remembered. They have been looked at.
    fn share_before(
        &mut self,
        pair: (Place, Place),
        (mut from, mut to): (u64, u64),
        most: u64,
    ) -> Copied<u64> {
        let first = to - most.min(from).min(to);
        let (mut shared, mut step) = (0, BLOCK as u64);
        while to > first {
            let bytes = step.min(to - first);
            let found = self.share(pair, (from - bytes, to - bytes), bytes, bytes)?;
            if found.bytes == bytes {
                shared += found.shared;
                (from, to) = (from - bytes, to - bytes);
                step = (step * 2).min(PIECE as u64);
            } else if bytes > BLOCK as u64 {
                step = (bytes / 2).next_multiple_of(BLOCK as u64);
            } else {
                break;
            }
        }
        Ok(shared)
    }

    /// One call.
    fn share(
        &self,
        (place, here): (Place, Place),
        (from_offset, to_offset): (u64, u64),
        len: u64,
        least: u64,
    ) -> Copied<Equal> {
        self.door.share(&Pair {
            from: place.ino,
            from_offset,
            to: here.ino,
            to_offset,
            len,
            least,
            only_tells: self.outcome.dry_run,
        })
    }
}

/// Some of a file in memory.
#[derive(Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// The block at `at`, as far as the file has it before `end`; none of what the file does not have any more.
    fn block(&mut self, content: &mut dyn Content, at: u64, end: u64) -> Copied<Option<&[u8]>> {
        let len = (end - at).min(BLOCK as u64);
        self.read(content, at, (len, end - at))
    }

    /// So many bytes from `at` on; none if the file does not have all of them any more.
    fn bytes(&mut self, content: &mut dyn Content, at: u64, len: u64) -> Copied<Option<&[u8]>> {
        self.read(content, at, (len, len))
    }

    /// The same, where up to `most` bytes are read at once.
    fn read(
        &mut self,
        content: &mut dyn Content,
        at: u64,
        (len, most): (u64, u64),
    ) -> Copied<Option<&[u8]>> {
        let want = len as usize;
        let has = |window: &Window| {
            let from = usize::try_from(at.checked_sub(window.start)?).ok()?;
            (from + want <= window.bytes.len()).then_some(from)
        };
        if has(self).is_none() {
            self.start = at;
            self.bytes.resize(most.min(PIECE as u64) as usize, 0);
            let mut got = 0;
            while got < self.bytes.len() {
                let rest = self.bytes.get_mut(got..).unwrap_or_default();
                match content.read_at(rest, at + got as u64)? {
                    0 => break,
                    more => got += more,
                }
            }
            self.bytes.truncate(got);
        }
        Ok(has(self).and_then(|from| self.bytes.get(from..from + want)))
    }
}
