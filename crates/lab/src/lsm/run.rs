//! The database at work on a volume.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use persimmon_device::BLOCK_SIZE;
use persimmon_engine::{FormatOptions, Progress, Task, Volume, ZoneEvent};
use persimmon_format::Ino;
use persimmon_format::table::Role;
use persimmon_vfs::{Caller, Handle, Lifetime, OpenFlags, ROOT, Vfs, WriteFlags};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::tree::{Compaction, Hint, Table, Tree};
use super::{Outcome, Plan, Victims};
use crate::chores::{background, names};
use crate::measure::MeasureError;
use persimmon_sim::device::pattern;
use persimmon_sim::{SimConfig, SimDevice};

/// Blocks written by one call: RocksDB's buffer of a file.
const PIECE_BLOCKS: u64 = 256;
/// Entries written between two looks at what else is to be done.
const ENTRIES_AT_ONCE: u32 = 16;
/// Blocks that a flush, and a compaction, write meanwhile.
const FLUSHED_AT_ONCE: u64 = 256;
const COMPACTED_AT_ONCE: u64 = 256;
/// Flushed tables at which writers wait for a compaction.
const FLUSHED_MAX: usize = 8;
/// Jobs whose records fill a block of the manifest; until then they are inlined in the journal.
const CHANGES_IN_BLOCK: u64 = 8;
/// Blocks of a log that the kernel keeps before the device gets them.
const KEPT_BLOCKS: u64 = 256;

/// A file being written.
struct Open {
    ino: Ino,
    handle: Handle,
    blocks: u64,
}

/// Files of a volume.
struct Files {
    vfs: Vfs,
    volume: Arc<Volume>,
    hints: bool,
    bytes: Vec<u8>,
    next_pattern: u64,
    written_blocks: u64,
    told: HashMap<Ino, Lifetime>,
}

impl Files {
    fn create(&mut self, name: &str, lifetime: Lifetime) -> Result<Open, MeasureError> {
        let flags = OpenFlags {
            write: true,
            exclusive: true,
            ..OpenFlags::default()
        };
        let root = Caller::root();
        let (attr, handle) = self
            .vfs
            .create(&root, ROOT, name.as_bytes(), 0o644, flags)?;
        if self.hints {
            self.vfs.set_lifetime(attr.ino, handle, Some(lifetime))?;
        }
        self.told.insert(attr.ino, lifetime);
        Ok(Open {
            ino: attr.ino,
            handle,
            blocks: 0,
        })
    }

    fn append(&mut self, file: &mut Open, blocks: u64) -> Result<(), MeasureError> {
        let bytes = self.bytes.get_mut(..blocks as usize * BLOCK_SIZE);
        let bytes = bytes.unwrap_or_default();
        pattern::fill(bytes, self.next_pattern);
        self.next_pattern += blocks;
        let (offset, flags) = (file.blocks * BLOCK_SIZE as u64, WriteFlags::default());
        let written = self
            .vfs
            .write(file.ino, file.handle, offset, bytes, flags)?;
        if written.len < bytes.len() {
            return Err(persimmon_engine::Error::NoSpace.into());
        }
        file.blocks += blocks;
        self.written_blocks += blocks;
        Ok(())
    }

    fn sync(&self, file: &Open) -> Result<(), MeasureError> {
        Ok(self.vfs.fsync(file.ino, file.handle)?)
    }

    fn close(&self, file: &Open) -> Result<(), MeasureError> {
        Ok(self.vfs.release(file.ino, file.handle)?)
    }

    fn remove(&self, name: &str) -> Result<(), MeasureError> {
        Ok(self.vfs.unlink(ROOT, name.as_bytes())?)
    }
}

/// Tables on their way to the device.
struct Job {
    /// Their keys, the next one last.
    waiting: Vec<Vec<u32>>,
    made: Vec<Table>,
    /// Being written, and blocks that are missing.
    open: Option<(Open, u64)>,
    lifetime: Lifetime,
    /// What is merged; else it is a flush, of what this log has.
    compaction: Option<Compaction>,
    log: Option<String>,
}

struct Database<'p> {
    plan: &'p Plan,
    files: Files,
    tree: Tree,
    memory: BTreeSet<u32>,
    /// Entries in memory, each time they were written.
    in_memory: u64,
    log: Open,
    log_name: String,
    manifest: Open,
    /// Jobs that have changed what the manifest says.
    changes: u64,
    jobs: [Option<Job>; 2],
    trace: Traced,
}

/// What was seen of zones.
#[derive(Default)]
struct Traced {
    next: u64,
    /// Hints of files that each zone holds.
    holds: HashMap<u32, BTreeSet<u8>>,
    victims: BTreeMap<u8, Victims>,
}

const FLUSH: usize = 0;
const COMPACTION: usize = 1;

/// Fills a database, overwrites it at random, and tells what that wrote.
///
/// # Errors
/// When the volume is too small, or breaks.
pub fn run(plan: &Plan) -> Result<Outcome, MeasureError> {
    let config = SimConfig::new(plan.zones, plan.zone_blocks)
        .limits(plan.active_max, plan.active_max)
        .patterns();
    let device = Arc::new(SimDevice::new(config));
    Volume::format(Arc::clone(&device) as _, &FormatOptions::default())?;
    persimmon_engine::invariant::panic_on_bugs();
    let (volume, _) = Volume::open(Arc::clone(&device) as _, plan.options.clone())?;
    let volume = Arc::new(volume);
    let vfs = names(Arc::clone(&volume));
    let mut files = Files {
        vfs,
        volume: Arc::clone(&volume),
        hints: plan.hints,
        bytes: vec![0; PIECE_BLOCKS as usize * BLOCK_SIZE],
        next_pattern: 1,
        written_blocks: 0,
        told: HashMap::new(),
    };
    let log_name = "0.log".to_owned();
    let mut database = Database {
        plan,
        log: files.create(&log_name, Lifetime::Short)?,
        manifest: files.create("MANIFEST", Lifetime::Long)?,
        changes: 0,
        files,
        tree: Tree::new(plan.shape),
        memory: BTreeSet::new(),
        in_memory: 0,
        log_name,
        jobs: [None, None],
        trace: Traced::default(),
    };
    let mut rng = ChaCha8Rng::seed_from_u64(plan.seed);
    let mut written = 0;
    let all = u64::from(plan.shape.entries) + plan.overwrites;
    while written < all {
        let mut entries = Vec::new();
        for number in written..all.min(written + u64::from(ENTRIES_AT_ONCE)) {
            entries.push(match u32::try_from(number) {
                Ok(number) if number < plan.shape.entries => number,
                _ => rng.random_range(0..plan.shape.entries),
            });
        }
        written += entries.len() as u64;
        database.put(&entries)?;
    }
    database.end()?;
    let statistics = volume.statistics();
    Ok(Outcome {
        database_blocks: database.files.written_blocks,
        device_blocks: statistics.device_bytes() / BLOCK_SIZE as u64,
        blocks_moved: statistics.blocks_moved,
        stalls: statistics.stalls,
        victims: database.trace.victims.into_values().collect(),
    })
}

impl Database<'_> {
    fn put(&mut self, entries: &[u32]) -> Result<(), MeasureError> {
        let blocks = entries.len() as u64;
        self.files.append(&mut self.log, blocks)?;
        if self.log.blocks % KEPT_BLOCKS < blocks {
            self.files.volume.commit_file(self.log.ino)?;
        }
        self.memory.extend(entries);
        self.in_memory += blocks;
        let memory_max = self.plan.shape.table_bytes / self.plan.shape.entry_bytes;
        if self.in_memory >= memory_max {
            while self.jobs[FLUSH].is_some() || self.tree.flushed_tables() >= FLUSHED_MAX {
                self.work()?;
            }
            self.flush()?;
        }
        self.work()
    }

    /// What is in memory becomes a table, and there is a new log.
    fn flush(&mut self) -> Result<(), MeasureError> {
        self.files.close(&self.log)?;
        let name = format!("{}.log", self.tree.number());
        self.log = self.files.create(&name, Lifetime::Short)?;
        let log = std::mem::replace(&mut self.log_name, name);
        let keys = std::mem::take(&mut self.memory).into_iter().collect();
        self.in_memory = 0;
        self.jobs[FLUSH] = Some(Job {
            waiting: vec![keys],
            made: Vec::new(),
            open: None,
            lifetime: Lifetime::Medium,
            compaction: None,
            log: Some(log),
        });
        Ok(())
    }

    /// Flushes and compacts a little, and does what is due for the volume.
    fn work(&mut self) -> Result<(), MeasureError> {
        self.advance(FLUSH, FLUSHED_AT_ONCE)?;
        if self.jobs[COMPACTION].is_none()
            && let Some(compaction) = self.tree.pick()
        {
            self.jobs[COMPACTION] = Some(Job {
                waiting: compaction.outputs.iter().rev().cloned().collect(),
                made: Vec::new(),
                open: None,
                lifetime: match compaction.hint {
                    Hint::Medium => Lifetime::Medium,
                    Hint::Long => Lifetime::Long,
                    Hint::Extreme => Lifetime::Extreme,
                },
                compaction: Some(compaction),
                log: None,
            });
        }
        self.advance(COMPACTION, COMPACTED_AT_ONCE)?;
        while self.files.volume.step(Task::WriteBackIfDue)? == Progress::Worked {}
        background(&self.files.volume)?;
        self.trace.read(&self.files);
        Ok(())
    }

    fn advance(&mut self, job: usize, blocks: u64) -> Result<(), MeasureError> {
        let Some(mut under_way) = self.jobs.get_mut(job).and_then(Option::take) else {
            return Ok(());
        };
        let is_over = self.write(&mut under_way, blocks)?;
        if is_over {
            return self.install(under_way);
        }
        if let Some(place) = self.jobs.get_mut(job) {
            *place = Some(under_way);
        }
        Ok(())
    }

    /// Writes some of a job's tables. True once all are there.
    fn write(&mut self, job: &mut Job, blocks: u64) -> Result<bool, MeasureError> {
        let mut left = blocks;
        while left > 0 {
            let Some((file, missing)) = &mut job.open else {
                let Some(keys) = job.waiting.pop() else {
                    return Ok(true);
                };
                let bytes = keys.len() as u64 * self.plan.shape.entry_bytes;
                let number = self.tree.number();
                let file = self.files.create(&format!("{number}.sst"), job.lifetime)?;
                job.made.push(Table { number, keys });
                job.open = Some((file, bytes.div_ceil(BLOCK_SIZE as u64)));
                continue;
            };
            let now = (*missing).min(PIECE_BLOCKS).min(left);
            self.files.append(file, now)?;
            *missing -= now;
            left -= now;
            if *missing == 0 {
                self.files.sync(file)?;
                self.files.close(file)?;
                job.open = None;
            }
        }
        Ok(false)
    }

    /// What a job has made counts, and what it was made of goes.
    fn install(&mut self, job: Job) -> Result<(), MeasureError> {
        self.changes += 1;
        if self.changes.is_multiple_of(CHANGES_IN_BLOCK) {
            self.files.append(&mut self.manifest, 1)?;
            self.files.sync(&self.manifest)?;
        }
        match &job.compaction {
            Some(compaction) => {
                self.tree.install(compaction, job.made);
                for table in &compaction.inputs {
                    self.files.remove(&format!("{}.sst", table.number))?;
                }
            }
            None => {
                for table in job.made {
                    self.tree.add_flushed(table.number, table.keys);
                }
            }
        }
        if let Some(log) = job.log {
            self.files.remove(&log)?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), MeasureError> {
        while self.jobs.iter().any(Option::is_some) {
            self.work()?;
        }
        self.files.volume.sync()?;
        Ok(())
    }
}

impl Traced {
    fn read(&mut self, files: &Files) {
        let told = &files.told;
        let traced = files.volume.trace(self.next, usize::MAX);
        self.next = traced.next();
        for event in traced.events {
            match event {
                ZoneEvent::Opened { zone, .. } => {
                    self.holds.remove(&zone.0);
                }
                ZoneEvent::Written {
                    zone,
                    role: Role::Data,
                    ino: Some(ino),
                    ..
                } => {
                    let class = told.get(&ino).and_then(|told| told.class());
                    self.holds.entry(zone.0).or_default().extend(class);
                }
                ZoneEvent::Victim {
                    zone,
                    role: Role::Data,
                    lifetime,
                    valid_blocks,
                    capacity_blocks,
                    ..
                } => {
                    let victims = self.victims.entry(lifetime).or_default();
                    victims.class = lifetime;
                    victims.zones += 1;
                    victims.blocks += u64::from(capacity_blocks);
                    victims.live_blocks += u64::from(valid_blocks);
                    let hints = self.holds.get(&zone.0).map_or(0, BTreeSet::len);
                    victims.mixed += u64::from(hints > 1);
                }
                _ => {}
            }
        }
    }
}
