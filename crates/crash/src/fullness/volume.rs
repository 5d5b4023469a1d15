//! One volume, its files, and what may be done to them.

use std::sync::Arc;

use persimmon_device::{BLOCK_SIZE, Stripes};
use persimmon_engine::{Dedup, Deltas, Error as EngineError, Options, Progress, Task, Volume};
use persimmon_format::Compression;
use persimmon_inspect::{CheckOptions, Severity};
use persimmon_vfs::{
    AccessTimes, Allocate, Caller, Error, Handle, ROOT, RenameMode, SetAttr, StatFs, Vfs,
    WriteFlags,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::small::Sizes;
use super::twin::{
    Block, COMPRESSIBLE_FROM, Content, EDITED_BYTES, File, REPEATING_FROM, Small, Twin, fill,
};
use super::{Report, shape};
use crate::filesystem::WorkloadClock;
use crate::stripes;
use persimmon_sim::SimDevice;
use persimmon_sim::device::Sampled;

/// Most blocks one call writes.
const PIECE_BLOCKS: usize = 256;
/// Operations between two looks at what is due in the background.
const TICK_OPERATIONS: u64 = 16;
/// Operations of a cycle at most.
const CYCLE_OPERATIONS: u32 = 4000;
/// As many where what is written is small.
const SMALL_OPERATIONS: u32 = 40_000;
/// One of so many names is long.
const LONG_NAMES: u32 = 16;

/// Power cuts in a row at most.
const CRASHES_MAX: u32 = 3;
/// A file that is written while the power is cut.
const SCRATCH: &[u8] = b"scratch";

/// What is wrong, in words.
pub(super) type Outcome<T> = Result<T, String>;

pub(super) struct Subject {
    device: Arc<SimDevice>,
    options: Options,
    stripes: Option<Stripes>,
    pub(super) vfs: Vfs,
    pub(super) twin: Twin,
    pub(super) rng: ChaCha8Rng,
    pub(super) next_pattern: u64,
    operations: u64,
    told: String,
    /// With a device of its own for metadata.
    pub(super) split: bool,
    /// The power is cut now and then.
    crashes: bool,
    /// What the tree holds fills it.
    pub(super) by_tree: Option<Sizes>,
    /// Files are packed with others as dictionaries.
    is_near: bool,
}

fn open(device: &Arc<SimDevice>, stripes: Option<Stripes>, options: &Options) -> Outcome<Vfs> {
    persimmon_engine::invariant::panic_on_bugs();
    let opened = Volume::open(stripes::used(device, stripes, true)?, options.clone());
    let (volume, _) = opened.map_err(|error| format!("mounting: {error}"))?;
    let options = persimmon_vfs::Options {
        access_times: AccessTimes::Never,
        ..persimmon_vfs::Options::default()
    };
    let clock = Arc::new(WorkloadClock::default());
    Ok(Vfs::new(Arc::new(volume), clock, options))
}

/// What must not fail failed.
pub(super) fn sure<T>(result: Result<T, Error>, what: &str, room: StatFs) -> Outcome<T> {
    result.map_err(|error| format!("{what}: {error}; {}", told(room)))
}

fn told(room: StatFs) -> String {
    let StatFs {
        blocks,
        blocks_available,
        ..
    } = room;
    format!("statfs told {blocks_available} of {blocks} blocks")
}

/// Volumes of seeds from here on have a device of its own for metadata.
const SPLIT_FROM: u64 = 1_000_000;
/// Those from here on are on one device again, of many zones, and hold few of them back.
const MANY_FROM: u64 = 10_000_000;
/// And those from here on of few zones, which are large.
const LARGE_FROM: u64 = 20_000_000;
/// Those from here on are filled by what lies in the tree: of three, one is on one device, one has
/// a device for metadata, and one is of few large zones.
const BY_TREE_FROM: u64 = 30_000_000;
/// Those from here on are of few zones of usual size.
const FEW_FROM: u64 = 50_000_000;

/// Those from here on are those of seeds so much smaller, but for content that is compressed.
const COMPRESSED_FROM: u64 = 100_000_000;
/// And those from here on of seeds so much smaller, but for deltas: overwriting is mostly of a few bytes that are synced.
const DELTAS_FROM: u64 = 200_000_000;
/// And those from here on of seeds so much smaller, but on stripe sets: with parity where metadata has zones of its own.
const STRIPED_FROM: u64 = 800_000_000;

/// And those from here on of seeds so much smaller, but for deduplication of what is written: few contents are written again and again.
const DEDUP_FROM: u64 = 400_000_000;
/// Blocks that are written again and again.
const REPEATED_BLOCKS: u64 = 1024;

/// And those from here on of seeds so much smaller, but for near duplicates: even fewer contents are written, and files packed with others.
const NEAR_FROM: u64 = 1_600_000_000;
/// Bytes of a file that are packed at a time.
const NEAR_BYTES: u64 = 4 << 20;
/// Blocks that are written again and again then: half of what a frame has is in any other, or more.
const NEAR_BLOCKS: u64 = 16;

impl Subject {
    pub fn new(seed: u64) -> Outcome<Subject> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let is_near = seed >= NEAR_FROM;
        let seed = seed % NEAR_FROM;
        let striped = seed >= STRIPED_FROM;
        let seed = seed % STRIPED_FROM;
        let repeats = seed >= DEDUP_FROM;
        let seed = seed % DEDUP_FROM;
        let has_deltas = seed >= DELTAS_FROM;
        let seed = seed % DELTAS_FROM;
        let is_compressed = seed >= COMPRESSED_FROM;
        let seed = seed % COMPRESSED_FROM;
        let family = match seed {
            ..SPLIT_FROM => shape::Family::Single,
            SPLIT_FROM..MANY_FROM => shape::Family::Split,
            MANY_FROM..LARGE_FROM => shape::Family::Many,
            LARGE_FROM..BY_TREE_FROM => shape::Family::Large,
            FEW_FROM.. => shape::Family::Few,
            BY_TREE_FROM.. => match seed % 3 {
                0 => shape::Family::Single,
                1 => shape::Family::Split,
                _ => shape::Family::Large,
            },
        };
        let by_tree = (BY_TREE_FROM..FEW_FROM).contains(&seed);
        let shape::Shape {
            device,
            options,
            stripes,
            told,
        } = shape::draw(&mut rng, family, by_tree, striped);
        let options = Options {
            compression: if is_compressed {
                Compression::Lz4
            } else {
                Compression::None
            },
            deltas: if has_deltas {
                Deltas::Always
            } else {
                Deltas::None
            },
            dedup: match repeats {
                true => Dedup::Write,
                false => Dedup::None,
            },
            ..options
        };
        let by_tree = by_tree.then(|| Sizes::draw(&mut rng));
        let told = by_tree.map_or(told.clone(), |sizes| format!("{told}, {sizes}"));
        Ok(Subject {
            vfs: open(&device, stripes, &options)?,
            device,
            options,
            stripes,
            twin: Twin::default(),
            rng,
            next_pattern: if is_compressed { COMPRESSIBLE_FROM } else { 1 },
            operations: 0,
            told,
            split: family == shape::Family::Split,
            crashes: matches!(family, shape::Family::Large | shape::Family::Few),
            by_tree,
            is_near,
        })
    }

    /// Fills, empties or overwrites, up to some amount.
    pub fn cycle(&mut self, report: &mut Report) -> Outcome<()> {
        let result = self.any_cycle(report);
        result.map_err(|what| format!("{what} ({})", self.told))
    }

    /// Packs what some file has with what another one has as a dictionary, where there is room for that.
    fn pack_near(&mut self) -> Outcome<()> {
        let count = self.twin.files.len();
        for _ in 0..count.min(4) {
            let mut any = || self.twin.files[self.rng.random_range(0..count)].ino;
            let (source, target) = ((any(), Handle::NONE, 0), (any(), Handle::NONE, 0));
            match self.vfs.pack_near(source, target, NEAR_BYTES) {
                Ok(_) | Err(Error::NoSpace) => {}
                Err(error) => return Err(format!("packing near duplicates: {error}")),
            }
        }
        Ok(())
    }

    fn any_cycle(&mut self, report: &mut Report) -> Outcome<()> {
        let room = self.room()?;
        let used = room.blocks - room.blocks_available.min(room.blocks);
        // Mostly small changes, and mostly near the end of the space.
        let share = 2f64.powf(-self.rng.random_range(0.0..8.0));
        let step = (room.blocks as f64 * share) as u64;
        let nearly_full = used * 10 > room.blocks * 9;
        match self.rng.random_range(0..10) {
            0..4 => self.fill(used + step, report)?,
            4 if !nearly_full => self.fill(u64::MAX, report)?,
            4..7 => self.empty(used.saturating_sub(step), report)?,
            _ => self.overwrite(step, report)?,
        }
        if self.is_near {
            self.pack_near()?;
        }
        if self.rng.random_ratio(1, 8) {
            let room = self.room()?;
            sure(self.vfs.sync(), "sync", room)?;
        }
        if self.rng.random_ratio(1, 64) {
            self.remount()?;
        }
        if self.crashes && self.rng.random_ratio(1, 4) {
            for _ in 0..self.rng.random_range(1..=CRASHES_MAX) {
                self.crash()?;
            }
        }
        Ok(())
    }

    /// A power cut while a file is written that nobody has synced, and so nobody misses.
    fn crash(&mut self) -> Outcome<()> {
        let room = self.room()?;
        sure(self.vfs.sync(), "sync", room)?;
        let made = self.vfs.mknod(&Caller::root(), ROOT, SCRATCH, 0o644, 0);
        if let Some(attr) = Self::may_be_refused(self.split, made, "making a file", 1, room)? {
            for piece in 0..self.rng.random_range(0..16_u64) {
                let bytes = vec![1; self.length() * BLOCK_SIZE];
                let offset = piece * (4 * PIECE_BLOCKS * BLOCK_SIZE) as u64;
                let flags = WriteFlags::default();
                match self
                    .vfs
                    .write(attr.ino, Handle::NONE, offset, &bytes, flags)
                {
                    Ok(_) | Err(Error::NoSpace) => {}
                    Err(error) => return Err(format!("writing: {error}")),
                }
            }
            let task = match self.rng.random_range(0..4) {
                0 => Task::Checkpoint,
                1 => Task::Commit,
                2 => Task::WriteBack,
                _ => Task::Clean,
            };
            match self.vfs.volume().step(task) {
                Ok(_) | Err(EngineError::NoSpace) => {}
                Err(error) => return Err(format!("{task:?}: {error}")),
            }
        }
        let choices = &mut Sampled::new(self.rng.random());
        self.device = Arc::new(self.device.snapshot().persisted(choices));
        self.vfs = open(&self.device, self.stripes, &self.options)?;
        match self.vfs.unlink(ROOT, SCRATCH) {
            Err(Error::NotFound) => Ok(()),
            removed => sure(removed, "unlinking what a power cut left", self.room()?),
        }
    }

    pub(super) fn room(&self) -> Outcome<StatFs> {
        self.vfs
            .statfs()
            .map_err(|error| format!("statfs: {error}"))
    }

    fn worked(&mut self, report: &mut Report) -> Outcome<()> {
        report.operations += 1;
        self.operations += 1;
        if self.operations.is_multiple_of(TICK_OPERATIONS) {
            for task in [
                Task::CheckpointIfDue,
                Task::FreeIfDue,
                Task::Reset,
                Task::CleanIfDue,
            ] {
                match self.vfs.volume().step(task) {
                    Ok(Progress::Worked | Progress::Idle) | Err(EngineError::NoSpace) => {}
                    Err(error) => return Err(format!("{task:?}: {error}")),
                }
            }
        }
        Ok(())
    }

    /// Most operations of a cycle.
    fn operations_max(&self) -> u32 {
        match self.by_tree {
            Some(_) => SMALL_OPERATIONS,
            None => CYCLE_OPERATIONS,
        }
    }

    /// Until so many blocks are used, or no more can be.
    fn fill(&mut self, target: u64, report: &mut Report) -> Outcome<()> {
        for _ in 0..self.operations_max() {
            let room = self.room()?;
            if room.blocks - room.blocks_available.min(room.blocks) >= target {
                break;
            }
            let grown = match self.rng.random_range(0..10) {
                2.. if self.by_tree.is_some() => self.grow_tree(room)?,
                0 => self.small_file(room)?,
                1 => self.preallocate(room, report)?,
                2 | 3 => self.append(room, report)?,
                _ => self.new_file(room, report)?,
            };
            self.worked(report)?;
            if !grown {
                report.refused += 1;
                break;
            }
        }
        Ok(())
    }

    /// Blocks of a file or a part of one: mostly few.
    fn length(&mut self) -> usize {
        let most = [1, 4, 16, 64, PIECE_BLOCKS, 4 * PIECE_BLOCKS];
        let most = most[self.rng.random_range(0..most.len())];
        self.rng.random_range(1..=most)
    }

    /// Whether it was done, which must be if there is room for so many blocks and 1 % more. With a
    /// device for metadata overwriting needs room too, on that: `statfs` has none then.
    pub(super) fn may_be_refused<T>(
        split: bool,
        result: Result<T, Error>,
        what: &str,
        blocks: usize,
        room: StatFs,
    ) -> Outcome<Option<T>> {
        match result {
            Ok(done) => Ok(Some(done)),
            Err(Error::NoSpace)
                if (blocks as u64 * 101).div_ceil(100) > room.blocks_available
                    || split && room.blocks_available == 0 =>
            {
                Ok(None)
            }
            Err(error) => Err(format!(
                "{what} of {blocks} blocks: {error}; {}",
                told(room)
            )),
        }
    }

    pub(super) fn make(&mut self, room: StatFs) -> Outcome<Option<File>> {
        let name = self.new_name();
        let made = self
            .vfs
            .mknod(&Caller::root(), ROOT, name.as_bytes(), 0o644, 0);
        let made = Self::may_be_refused(self.split, made, "making a file", 1, room)?;
        Ok(made.map(|attr| File {
            name,
            ino: attr.ino,
            content: Content::Blocks(Vec::new()),
            attribute: None,
        }))
    }

    fn new_name(&mut self) -> String {
        let long = self.by_tree.map_or(LONG_NAMES, |sizes| sizes.long_names);
        self.twin.new_name(&mut self.rng, long)
    }

    pub(super) fn new_file(&mut self, room: StatFs, report: &mut Report) -> Outcome<bool> {
        let Some(file) = self.make(room)? else {
            return Ok(false);
        };
        self.twin.files.push(file);
        let (at, blocks) = (self.twin.files.len() - 1, self.length());
        let start = match self.rng.random_range(0..8) {
            0 => self.rng.random_range(0..1000),
            _ => 0,
        };
        self.write(at, start, blocks, report)
    }

    fn small_file(&mut self, room: StatFs) -> Outcome<bool> {
        let Some(file) = self.make(room)? else {
            return Ok(false);
        };
        let (len, value) = (self.rng.random_range(1..BLOCK_SIZE), self.rng.random());
        self.fill_small(file, Small::Same(len, value))
    }

    /// Writes it and keeps it, with nothing in it if there was no room.
    pub(super) fn fill_small(&mut self, mut file: File, small: Small) -> Outcome<bool> {
        let room = self.room()?;
        let flags = WriteFlags::default();
        let written = self
            .vfs
            .write(file.ino, Handle::NONE, 0, &small.bytes(), flags);
        let written = Self::may_be_refused(self.split, written, "a small file", 1, room)?;
        let len = written.map_or(0, |written| written.len);
        file.content = Content::Small(small.cut(len));
        self.twin.files.push(file);
        Ok(len > 0)
    }

    fn append(&mut self, room: StatFs, report: &mut Report) -> Outcome<bool> {
        let Some(at) = self.twin.any(&mut self.rng) else {
            return self.new_file(room, report);
        };
        let Content::Blocks(blocks) = &self.twin.files[at].content else {
            return Ok(true);
        };
        let (start, blocks) = (blocks.len(), self.length());
        self.write(at, start, blocks, report)
    }

    /// Writes so many blocks. False if refused, with reason, before the last one.
    fn write(
        &mut self,
        at: usize,
        start: usize,
        count: usize,
        report: &mut Report,
    ) -> Outcome<bool> {
        let end = start + count;
        for from in (start..end).step_by(PIECE_BLOCKS) {
            let count = PIECE_BLOCKS.min(end - from);
            let room = self.room()?;
            let file = &mut self.twin.files[at];
            let Content::Blocks(blocks) = &mut file.content else {
                return Ok(true);
            };
            let before = |block: usize| blocks.get(block).copied().unwrap_or(Block::Hole);
            let new = (from..from + count).filter(|block| before(*block).takes_space());
            let new = new.count();
            let mut bytes = vec![0; count * BLOCK_SIZE];
            if self.is_near {
                self.next_pattern = REPEATING_FROM + self.rng.random_range(0..NEAR_BLOCKS);
            } else if self.options.dedup != Dedup::None {
                self.next_pattern = REPEATING_FROM + self.rng.random_range(0..REPEATED_BLOCKS);
            }
            fill(&mut bytes, self.next_pattern);
            let offset = (from * BLOCK_SIZE) as u64;
            let written = self.vfs.write(
                file.ino,
                Handle::NONE,
                offset,
                &bytes,
                WriteFlags::default(),
            );
            let done = match written {
                Ok(written) => written.len / BLOCK_SIZE,
                Err(Error::NoSpace) => 0,
                Err(error) => return Err(format!("writing: {error}; {}", told(room))),
            };
            if done > 0 && blocks.len() < from + done {
                blocks.resize(from + done, Block::Hole);
            }
            for block in 0..done {
                blocks[from + block] = Block::Pattern(self.next_pattern + block as u64);
            }
            self.next_pattern += count as u64;
            report.blocks_written += done as u64;
            if done < count {
                let short = Err::<(), _>(Error::NoSpace);
                let what = format!("writing {done} of {count} blocks, {new} of them new: a write");
                Self::may_be_refused(self.split, short, &what, new, room)?;
                return Ok(false);
            }
        }
        if self.rng.random_ratio(1, 16) {
            let room = self.room()?;
            let ino = self.twin.files[at].ino;
            sure(self.vfs.fsync(ino, Handle::NONE), "fsync", room)?;
        }
        Ok(true)
    }

    fn preallocate(&mut self, room: StatFs, report: &mut Report) -> Outcome<bool> {
        let Some(at) = self.twin.any(&mut self.rng) else {
            return self.new_file(room, report);
        };
        let more = self.length();
        let file = &mut self.twin.files[at];
        let Content::Blocks(blocks) = &mut file.content else {
            return Ok(true);
        };
        let from = blocks.len();
        let reserve = Allocate::Reserve { keep_size: false };
        let (offset, len) = (from * BLOCK_SIZE, more * BLOCK_SIZE);
        let done = self
            .vfs
            .fallocate(file.ino, Handle::NONE, offset as u64, len as u64, reserve);
        let done = Self::may_be_refused(self.split, done, "preallocating", more, room)?;
        if done.is_some() {
            blocks.resize(from + more, Block::Reserved);
        }
        Ok(done.is_some())
    }

    /// Removes and truncates until no more blocks are used than these.
    fn empty(&mut self, target: u64, report: &mut Report) -> Outcome<()> {
        for _ in 0..self.operations_max() {
            let room = self.room()?;
            let used = room.blocks - room.blocks_available.min(room.blocks);
            let Some(at) = self.twin.any(&mut self.rng).filter(|_| used > target) else {
                break;
            };
            match self.rng.random_range(0..8) {
                0 => self.truncate(at, room)?,
                1 => self.rename(at, room)?,
                2 => self.punch(at, room)?,
                3 if self.by_tree.is_some() => self.remove_attribute(at, room)?,
                _ => {
                    let file = self.twin.files.swap_remove(at);
                    sure(
                        self.vfs.unlink(ROOT, file.name.as_bytes()),
                        "unlinking",
                        room,
                    )?;
                }
            }
            self.worked(report)?;
        }
        Ok(())
    }

    fn truncate(&mut self, at: usize, room: StatFs) -> Outcome<()> {
        let file = &mut self.twin.files[at];
        let size = match &mut file.content {
            Content::Blocks(blocks) => {
                let keep = self.rng.random_range(0..=blocks.len());
                blocks.truncate(keep);
                keep * BLOCK_SIZE
            }
            Content::Small(small) => {
                *small = small.cut(self.rng.random_range(0..=small.len()));
                small.len()
            }
        };
        let set = SetAttr {
            size: Some(size as u64),
            ..SetAttr::default()
        };
        let done = self.vfs.setattr(file.ino, Handle::NONE, &set);
        sure(done, "truncating", room).map(drop)
    }

    fn punch(&mut self, at: usize, room: StatFs) -> Outcome<()> {
        let file = &mut self.twin.files[at];
        let Content::Blocks(blocks) = &mut file.content else {
            return Ok(());
        };
        if blocks.is_empty() {
            return Ok(());
        }
        let from = self.rng.random_range(0..blocks.len());
        let to = self.rng.random_range(from..blocks.len()) + 1;
        blocks[from..to].fill(Block::Hole);
        let (offset, len) = (from * BLOCK_SIZE, (to - from) * BLOCK_SIZE);
        let done = self.vfs.fallocate(
            file.ino,
            Handle::NONE,
            offset as u64,
            len as u64,
            Allocate::Punch,
        );
        sure(done, "punching", room)
    }

    /// To a new name or over another file.
    fn rename(&mut self, at: usize, room: StatFs) -> Outcome<()> {
        let other = self.twin.any(&mut self.rng).filter(|other| *other != at);
        let over = other.filter(|_| self.rng.random());
        let new = match over {
            Some(over) => self.twin.files[over].name.clone(),
            None => self.new_name(),
        };
        let old = std::mem::replace(&mut self.twin.files[at].name, new.clone());
        let (old, new_name) = (old.as_bytes(), new.as_bytes());
        let done = self
            .vfs
            .rename(ROOT, old, ROOT, new_name, RenameMode::Replace);
        sure(done, "renaming", room)?;
        if let Some(over) = over {
            self.twin.files.remove(over);
        }
        Ok(())
    }

    /// Overwrites about so many blocks.
    fn overwrite(&mut self, target: u64, report: &mut Report) -> Outcome<()> {
        let end = report.blocks_written + target;
        for _ in 0..CYCLE_OPERATIONS {
            if report.blocks_written >= end {
                break;
            }
            let Some(at) = self.twin.any(&mut self.rng) else {
                break;
            };
            let Content::Blocks(blocks) = &self.twin.files[at].content else {
                if self.by_tree.is_some() {
                    self.overwrite_small(at)?;
                    report.blocks_written += 1;
                    self.worked(report)?;
                }
                continue;
            };
            let from = self.rng.random_range(0..=blocks.len());
            let most = self.length();
            let taken = blocks_at(&self.twin.files[at], from)
                .iter()
                .take(most)
                .take_while(|block| !block.takes_space())
                .count();
            if self.options.deltas != Deltas::None && self.rng.random_ratio(3, 4) {
                self.edit(at, from, report)?;
            } else if taken > 0 && !self.write(at, from, taken, report)? {
                if self.split {
                    break;
                }
                return Err("overwriting was refused".into());
            }
            self.worked(report)?;
        }
        Ok(())
    }

    /// Changes a few bytes of a block of a file, and of some after it, and syncs the file. Both must be possible, but where blocks
    /// are compressed or metadata has a device of its own.
    fn edit(&mut self, at: usize, from: usize, report: &mut Report) -> Outcome<()> {
        let mut edited = false;
        for block in from..from + self.rng.random_range(1..=4) {
            let room = self.room()?;
            let file = &mut self.twin.files[at];
            let Content::Blocks(blocks) = &mut file.content else {
                return Ok(());
            };
            let Some(before) = blocks.get_mut(block) else {
                break;
            };
            let Some(after) = before.edited() else {
                continue;
            };
            let mut bytes = vec![0; BLOCK_SIZE];
            after.fill(&mut bytes);
            let (offset, flags) = ((block * BLOCK_SIZE) as u64, WriteFlags::default());
            let bytes = &bytes[..EDITED_BYTES];
            let written = self.vfs.write(file.ino, Handle::NONE, offset, bytes, flags);
            let new = usize::from(before.takes_space());
            let what = "changing some bytes";
            if Self::may_be_refused(self.split, written, what, new, room)?.is_some() {
                *before = after;
                edited = true;
            }
        }
        if edited {
            let room = self.room()?;
            let ino = self.twin.files[at].ino;
            sure(self.vfs.fsync(ino, Handle::NONE), "fsync", room)?;
            report.blocks_written += 1;
        }
        Ok(())
    }

    fn remount(&mut self) -> Outcome<()> {
        let room = self.room()?;
        sure(self.vfs.close(), "unmounting", room)?;
        self.vfs = open(&self.device, self.stripes, &self.options)?;
        let orphans = self.vfs.volume().orphans();
        match orphans.map_err(|error| error.to_string())?.len() {
            0 => Ok(()),
            count => Err(format!("{count} removed files were not freed")),
        }
    }

    /// Compares all there is, before and after a mount, and checks the volume.
    pub fn end(mut self) -> Outcome<()> {
        let told = self.told.clone();
        let result = (|| {
            self.compare()?;
            self.remount()?;
            self.compare()?;
            let room = self.room()?;
            sure(self.vfs.close(), "unmounting", room)?;
            self.check()
        })();
        result.map_err(|what| format!("{what} ({told})"))
    }

    fn compare(&self) -> Outcome<()> {
        let mut found = Vec::new();
        for file in &self.twin.files {
            let due = file.content.bytes();
            found.clear();
            found.resize(due.len() + 1, 0);
            let read = self.vfs.read(file.ino, Handle::NONE, 0, &mut found);
            let read = read.map_err(|error| format!("reading: {error}"))?;
            if found[..read] != due {
                return Err(format!("{} does not hold what was written", file.name));
            }
            self.compare_attribute(file)?;
        }
        Ok(())
    }

    fn check(&self) -> Outcome<()> {
        let options = CheckOptions {
            data: false,
            findings_max: 20,
            ..CheckOptions::default()
        };
        let device = stripes::used(&self.device, self.stripes, false)?;
        let report = persimmon_inspect::check(&*device, &options, &mut |_| {});
        let report = report.map_err(|error| error.to_string())?;
        if report.worst() < Some(Severity::Warning) {
            return Ok(());
        }
        let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        Err(findings.join("\n  "))
    }
}

fn blocks_at(file: &File, from: usize) -> &[Block] {
    match &file.content {
        Content::Blocks(blocks) => blocks.get(from..).unwrap_or_default(),
        Content::Small(_) => &[],
    }
}
