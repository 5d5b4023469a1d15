//! A volume on a simulated drive, and the load on it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use persimmon_device::BLOCK_SIZE;
use persimmon_engine::{Error, FormatOptions, Volume};
use persimmon_format::Ino;
use persimmon_format::inode::Timestamp;
use persimmon_format::table::Role;
use persimmon_vfs::{Caller, Handle, Lifetime, OpenFlags, ROOT, Vfs, WriteFlags};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::report::Usage;
use super::{Look, MeasureError, Plan};
use crate::chores::{background, nameless_file, names};
use crate::load::{FileChange, FileLife, Files, Load, Pieces, Scatter, Shape, Trace, TraceChange};
use persimmon_sim::device::pattern;
use persimmon_sim::{SimConfig, SimDevice};

/// Blocks written by one call where it is long.
const PIECE_BLOCKS: u64 = 256;
/// The engine stages so many blocks at least. Where the plan has less it is sent by the load.
const STAGED_BLOCKS_MIN: u64 = 64;
/// Operations between two looks at what is due in the background.
const TICK_OPERATIONS: u64 = 64;

/// The drive, the volume, and what the load remembers.
pub(super) struct Drive {
    pub device: Arc<SimDevice>,
    pub volume: Arc<Volume>,
    vfs: Vfs,
    subject: Subject,
    /// Number of the next pattern: no two blocks are the same.
    next_pattern: u64,
    operations: u64,
    /// Blocks written so far.
    pub written_blocks: u64,
    /// After so many of them they are sent.
    sent_after: Option<u64>,
    bytes: Vec<u8>,
}

enum Subject {
    File {
        ino: Ino,
        blocks: u64,
        source: Source,
    },
    Files {
        files: Box<Files>,
        directories: HashMap<u64, Ino>,
        inodes: HashMap<u64, Ino>,
        shape: Shape,
    },
}

/// Where what is done to the file next comes from.
enum Source {
    Drawn {
        scatter: Scatter,
        rng: Box<ChaCha8Rng>,
    },
    Pieces {
        pieces: Pieces,
        rng: Box<ChaCha8Rng>,
    },
    Recorded {
        trace: Arc<Trace>,
        next: usize,
    },
}

impl Source {
    fn next(&mut self) -> TraceChange {
        match self {
            Source::Drawn { scatter, rng } => TraceChange::Write {
                block: scatter.draw(rng),
                blocks: 1,
            },
            Source::Pieces { pieces, rng } => {
                let (block, blocks) = pieces.draw(rng);
                TraceChange::Write { block, blocks }
            }
            Source::Recorded { trace, next } => {
                let change = trace.changes.get(*next);
                *next = (*next + 1) % trace.changes.len().max(1);
                change.copied().unwrap_or(TraceChange::Sync)
            }
        }
    }
}

impl Drive {
    pub fn new(plan: &Plan) -> Result<Drive, MeasureError> {
        let mut config = SimConfig::new(plan.zones, plan.zone_blocks)
            .limits(plan.active_max, plan.active_max)
            .patterns();
        if let Some(pace) = &plan.pace {
            config = config.timed(pace.timing);
        }
        let device = Arc::new(SimDevice::new(config));
        let format = FormatOptions {
            reserve_basis_points: Some(plan.reserve_basis_points),
            ..FormatOptions::default()
        };
        Volume::format(Arc::clone(&device) as _, &format)?;
        let (volume, _) = Volume::open(Arc::clone(&device) as _, plan.options.clone())?;
        let volume = Arc::new(volume);
        let vfs = names(Arc::clone(&volume));
        let rng = ChaCha8Rng::seed_from_u64(plan.seed);
        let file = |source| {
            let ino = nameless_file(&volume)?;
            Ok::<_, MeasureError>(Subject::File {
                ino,
                blocks: 0,
                source,
            })
        };
        let subject = match &plan.load {
            Load::Overwrite(popularity) => file(Source::Drawn {
                scatter: Scatter::new(*popularity, 1, plan.clustered),
                rng: Box::new(rng),
            })?,
            Load::Pieces => file(Source::Pieces {
                pieces: Pieces::new(0),
                rng: Box::new(rng),
            })?,
            Load::Replay(trace) => file(Source::Recorded {
                trace: Arc::clone(trace),
                next: 0,
            })?,
            &Load::Files(shape) => Subject::Files {
                files: Box::new(Files::new(shape, 0, plan.zone_blocks.into(), rng)),
                directories: HashMap::new(),
                inodes: HashMap::new(),
                shape,
            },
        };
        let staged_blocks = (plan.options.staging_bytes_max / BLOCK_SIZE) as u64;
        Ok(Drive {
            device,
            volume,
            vfs,
            subject,
            next_pattern: 1,
            operations: 0,
            written_blocks: 0,
            sent_after: (staged_blocks < STAGED_BLOCKS_MIN).then_some(staged_blocks.max(1)),
            bytes: vec![0; PIECE_BLOCKS as usize * BLOCK_SIZE],
        })
    }

    /// Makes so many blocks live, of a plan's load.
    pub fn fill(&mut self, plan: &Plan, target: u64) -> Result<(), MeasureError> {
        match &mut self.subject {
            Subject::File {
                ino,
                blocks,
                source,
            } => {
                let (ino, before) = (*ino, *blocks);
                match (source, &plan.load) {
                    (Source::Drawn { scatter, .. }, Load::Overwrite(popularity)) => {
                        *scatter = Scatter::new(*popularity, target, plan.clustered);
                    }
                    (Source::Pieces { pieces, .. }, _) => *pieces = Pieces::new(target),
                    (Source::Recorded { trace, .. }, _) if trace.blocks > target => {
                        return Err(MeasureError::Plan(format!(
                            "the trace writes to {} blocks, and {target} make the drive as full as asked for: \
                             it takes {} zones",
                            trace.blocks,
                            (u64::from(plan.zones) * trace.blocks).div_ceil(target.max(1))
                        )));
                    }
                    _ => {}
                }
                *blocks = target;
                if target < before {
                    let size = target * BLOCK_SIZE as u64;
                    self.volume.truncate(ino, size, Timestamp::default())?;
                }
                self.write(ino, before, target.saturating_sub(before))?;
            }
            Subject::Files { files, .. } => {
                files.bound(target);
                while let Subject::Files { files, .. } = &mut self.subject
                    && !files.is_full()
                {
                    self.operate()?;
                }
            }
        }
        self.volume.sync()?;
        Ok(())
    }

    /// The next operation of the load, and now and then what is due in the background.
    pub fn operate(&mut self) -> Result<(), MeasureError> {
        match &mut self.subject {
            Subject::File { ino, source, .. } => {
                let (ino, now) = (*ino, Timestamp::default());
                match source.next() {
                    TraceChange::Write { block, blocks } => self.write(ino, block, blocks)?,
                    TraceChange::Trim { block, blocks } => {
                        let bytes = [block, blocks].map(|n| n * BLOCK_SIZE as u64);
                        self.volume.punch(ino, bytes[0], bytes[1], now)?;
                    }
                    TraceChange::Sync => self.volume.sync_file(ino)?,
                }
            }
            Subject::Files { files, .. } => {
                let change = files.draw();
                self.change(change)?;
            }
        }
        self.operations += 1;
        if self.operations.is_multiple_of(TICK_OPERATIONS) {
            background(&self.volume)?;
        }
        Ok(())
    }

    fn write(&mut self, ino: Ino, block: u64, blocks: u64) -> Result<(), MeasureError> {
        for at in (0..blocks).step_by(PIECE_BLOCKS as usize) {
            let count = PIECE_BLOCKS.min(blocks - at);
            let bytes = self.bytes.get_mut(..count as usize * BLOCK_SIZE);
            let bytes = bytes.unwrap_or_default();
            pattern::fill(bytes, self.next_pattern);
            self.next_pattern += count;
            let offset = (block + at) * BLOCK_SIZE as u64;
            let written = self
                .volume
                .write(ino, offset, bytes, Timestamp::default())?;
            if written < bytes.len() {
                return Err(Error::NoSpace.into());
            }
            self.has_written(ino, count)?;
        }
        Ok(())
    }

    /// Sends what is staged of a file where that is as much as the plan allows.
    fn has_written(&mut self, ino: Ino, blocks: u64) -> Result<(), MeasureError> {
        let before = self.written_blocks;
        self.written_blocks += blocks;
        let number = |blocks: u64| self.sent_after.map(|after| blocks / after);
        if number(before) != number(self.written_blocks) {
            self.volume.commit_file(ino)?;
        }
        Ok(())
    }

    fn change(&mut self, change: FileChange) -> Result<(), MeasureError> {
        match change {
            FileChange::Make {
                file,
                directory,
                blocks,
                life,
            } => {
                let parent = self.directory(directory)?;
                let flags = OpenFlags {
                    write: true,
                    exclusive: true,
                    ..OpenFlags::default()
                };
                let name = file.to_string();
                let root = Caller::root();
                let (attr, handle) =
                    self.vfs
                        .create(&root, parent, name.as_bytes(), 0o644, flags)?;
                self.hint(attr.ino, handle, life)?;
                self.write_file(attr.ino, handle, blocks)?;
                self.vfs.release(attr.ino, handle)?;
                if let Subject::Files { inodes, .. } = &mut self.subject {
                    inodes.insert(file, attr.ino);
                }
            }
            FileChange::Delete { file, directory } => {
                let parent = self.directory(directory)?;
                self.vfs.unlink(parent, file.to_string().as_bytes())?;
                if let Subject::Files { inodes, .. } = &mut self.subject {
                    inodes.remove(&file);
                }
            }
        }
        Ok(())
    }

    /// Tells the open file, as RocksDB does.
    fn hint(&self, ino: Ino, file: Handle, life: FileLife) -> Result<(), MeasureError> {
        let told = match life {
            FileLife::Unknown => None,
            FileLife::Short => Some(Lifetime::Short),
            FileLife::Long => Some(Lifetime::Long),
        };
        Ok(self.vfs.set_lifetime(ino, file, told)?)
    }

    /// Writes all of a new file.
    fn write_file(&mut self, ino: Ino, file: Handle, blocks: u64) -> Result<(), MeasureError> {
        for at in (0..blocks).step_by(PIECE_BLOCKS as usize) {
            let count = PIECE_BLOCKS.min(blocks - at);
            let bytes = self.bytes.get_mut(..count as usize * BLOCK_SIZE);
            let bytes = bytes.unwrap_or_default();
            pattern::fill(bytes, self.next_pattern);
            self.next_pattern += count;
            let (offset, flags) = (at * BLOCK_SIZE as u64, WriteFlags::default());
            let written = self.vfs.write(ino, file, offset, bytes, flags)?;
            if written.len < bytes.len() {
                return Err(Error::NoSpace.into());
            }
            self.has_written(ino, count)?;
        }
        Ok(())
    }

    fn directory(&mut self, number: u64) -> Result<Ino, MeasureError> {
        let Subject::Files {
            directories, shape, ..
        } = &mut self.subject
        else {
            return Ok(ROOT);
        };
        if matches!(shape, Shape::Compaction { .. }) {
            return Ok(ROOT);
        }
        if let Some(ino) = directories.get(&number) {
            return Ok(*ino);
        }
        let name = format!("d{number}");
        let made = self
            .vfs
            .mkdir(&Caller::root(), ROOT, name.as_bytes(), 0o755)?;
        directories.insert(number, made.ino);
        Ok(made.ino)
    }

    /// The file that is overwritten, and its blocks.
    pub fn file(&self) -> Option<(Ino, u64)> {
        match self.subject {
            Subject::File { ino, blocks, .. } => Some((ino, blocks)),
            Subject::Files { .. } => None,
        }
    }

    /// How things stand, at a time of the caller's.
    pub fn look(&self, time: Duration) -> Look {
        Look {
            time,
            statistics: self.volume.statistics(),
            usage: self.usage(),
        }
    }

    /// What the zones are used for now.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for zone in self.volume.zones() {
            let (zones, capacity) = (1.0, f64::from(zone.capacity));
            match zone.entry.role {
                Role::Free => usage.free += zones,
                Role::Log => usage.log += zones,
                Role::Metadata => usage.metadata += zones,
                Role::Data if zone.entry.valid == 0 && !zone.open => usage.reclaimable += zones,
                Role::Data => {}
                Role::Retired => continue,
            }
            if matches!(zone.entry.role, Role::Data | Role::Free) {
                usage.capacity += capacity;
                usage.live += f64::from(zone.entry.valid);
            }
            if zone.entry.role == Role::Data && zone.open {
                usage.unwritten += f64::from(zone.capacity - zone.entry.write_pointer) / capacity;
            }
        }
        usage
    }
}
