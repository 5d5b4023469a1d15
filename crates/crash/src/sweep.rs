//! Volumes on drives of all geometries: each passes the model test, and is then overwritten by many writers at once
//! while it is nearly full. What was written is read back after an unmount.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use persimmon_device::{BLOCK_SIZE, Command, Geometry, Pending, ZoneInfo, ZonedDevice};
use persimmon_engine::{Error, FormatOptions, Intent, Options, Progress, Task, Volume};
use persimmon_format::Ino;
use persimmon_format::inode::{Inode, Timestamp};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::filesystem::model_test;
use persimmon_sim::device::pattern;
use persimmon_sim::{SimConfig, SimDevice};

/// Who writes at the same time.
pub const WRITERS: u64 = 16;
/// Blocks of one write at most.
const PIECE_BLOCKS: u64 = 256;
/// Of so many writes one is synced.
const SYNC_ONE_IN: u32 = 32;
/// Blocks of each file that are read back at most.
const READ_BACK_MAX: u64 = 4096;
/// Bytes of files in the model test.
const MODEL_BYTES: u64 = 4 << 20;

/// A geometry, and what is done to it.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    /// Zones; more where they cannot carry a volume.
    pub zones: u32,
    /// Blocks of each.
    pub zone_blocks: u32,
    /// How many of them can be written, in percent.
    pub capacity_percent: u32,
    /// Zones open and active at most; `None`: any number.
    pub active_max: Option<u32>,
    /// Operations of the model test.
    pub model_ops: u32,
    /// Share of what users may fill that they fill.
    pub fill: f64,
    /// Volumes of it that are written over then.
    pub volumes: f64,
    /// Of it all.
    pub seed: u64,
}

/// What was done.
#[derive(Clone, Copy, Debug)]
pub struct Swept {
    /// Zones of the drive.
    pub zones: u32,
    /// Bytes that users may fill.
    pub total_bytes: u64,
    /// Bytes written, over what was there.
    pub overwritten_bytes: u64,
    /// Everything sent to the device for each byte of them.
    pub write_amplification: f64,
}

/// A device that is opened again and again.
struct Shared(Arc<SimDevice>);

impl ZonedDevice for Shared {
    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }

    fn report(&self, zones: Range<u32>) -> persimmon_device::Result<Vec<ZoneInfo>> {
        self.0.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        self.0.submit(command)
    }
}

impl Sweep {
    fn device(&self, zones: u32) -> Arc<SimDevice> {
        let config = SimConfig::new(zones, self.zone_blocks)
            .capacity(self.zone_blocks * self.capacity_percent / 100)
            .limits(self.active_max, self.active_max)
            .patterns();
        Arc::new(SimDevice::new(config))
    }

    /// An empty volume on as many zones as it takes.
    fn formatted(&self) -> Result<Arc<SimDevice>, String> {
        let mut zones = self.zones;
        loop {
            let device = self.device(zones);
            match Volume::format(Arc::clone(&device) as _, &FormatOptions::default()) {
                Ok(()) => return Ok(device),
                Err(Error::Geometry(_)) if zones < 16 * self.zones => zones += zones.div_ceil(8),
                Err(error) => return Err(format!("making a volume: {error}")),
            }
        }
    }

    /// Does it.
    ///
    /// # Errors
    /// What failed, or was not as it was written.
    pub fn run(&self) -> Result<Swept, String> {
        let device = self.formatted()?;
        let zones = device.geometry().zone_count;
        let other = self.device(zones);
        let open = || Shared(Arc::clone(&other));
        model_test(open, self.seed, self.model_ops, MODEL_BYTES)
            .map_err(|why| format!("model test: {why}"))?;
        drop(other);

        let volume = mount(&device)?;
        let total_bytes = volume.space().total_bytes;
        let live = (total_bytes as f64 * self.fill) as u64 / BLOCK_SIZE as u64;
        let file_blocks = (live / WRITERS).max(1);
        let overwritten = (file_blocks as f64 * self.volumes) as u64;
        let mut writers = Vec::new();
        for number in 0..WRITERS {
            writers.push(Writer::new(&volume, number, file_blocks, self.seed)?);
        }
        together(&volume, &mut writers, |writer| writer.fill(&volume))?;
        let before = volume.statistics();
        together(&volume, &mut writers, |writer| {
            writer.overwrite(&volume, overwritten)
        })?;
        volume.sync().map_err(|error| format!("syncing: {error}"))?;
        let done = volume.statistics().since(&before);
        volume
            .close()
            .map_err(|error| format!("unmounting: {error}"))?;
        drop(volume);
        let volume = mount(&device)?;
        for writer in &mut writers {
            writer.read_back(&volume)?;
        }
        Ok(Swept {
            zones,
            total_bytes,
            overwritten_bytes: overwritten * WRITERS * BLOCK_SIZE as u64,
            write_amplification: done.write_amplification(),
        })
    }
}

fn mount(device: &Arc<SimDevice>) -> Result<Volume, String> {
    persimmon_engine::invariant::panic_on_bugs();
    let opened = Volume::open(Arc::clone(device) as _, Options::default());
    let (volume, _) = opened.map_err(|error| format!("mounting: {error}"))?;
    Ok(volume)
}

/// All writers at work, each in a thread of its own, and one that does what is due beside.
fn together(
    volume: &Volume,
    writers: &mut [Writer],
    work: impl Fn(&mut Writer) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                let mut worked = false;
                for task in [
                    Task::WriteBack,
                    Task::CheckpointIfDue,
                    Task::FreeIfDue,
                    Task::Reset,
                    Task::CleanIfDue,
                ] {
                    match volume.step(task) {
                        Ok(progress) => worked |= progress == Progress::Worked,
                        Err(Error::NoSpace) => {}
                        Err(error) => return Err(format!("{task:?}: {error}")),
                    }
                }
                if !worked {
                    std::thread::yield_now();
                }
            }
            Ok(())
        });
        let work = &work;
        let threads: Vec<_> = writers
            .iter_mut()
            .map(|writer| scope.spawn(move || work(writer)))
            .collect();
        let panicked = |_| Err("a thread panicked".to_owned());
        let mut result = Ok(());
        for thread in threads {
            result = result.and(thread.join().unwrap_or_else(panicked));
        }
        is_over.store(true, Ordering::Release);
        result.and(beside.join().unwrap_or_else(panicked))
    })
}

/// A file, and the number of the pattern in each of its blocks.
struct Writer {
    ino: Ino,
    blocks: Vec<u64>,
    next_pattern: u64,
    rng: ChaCha8Rng,
}

impl Writer {
    fn new(volume: &Volume, number: u64, blocks: u64, seed: u64) -> Result<Writer, String> {
        let made = volume.update::<_, Error>(Intent::Grow, |tx| {
            let ino = tx.new_ino();
            let inode = Inode {
                mode: libc::S_IFREG | 0o644,
                nlink: 1,
                ..Inode::default()
            };
            tx.put_inode(ino, &inode);
            Ok(ino)
        });
        Ok(Writer {
            ino: made.map_err(|error| format!("making a file: {error}"))?,
            blocks: vec![0; blocks as usize],
            // No two writers write the same.
            next_pattern: (number + 1) << 40,
            rng: ChaCha8Rng::seed_from_u64(seed ^ number),
        })
    }

    fn write(&mut self, volume: &Volume, block: u64, count: u64) -> Result<(), String> {
        let mut bytes = vec![0; count as usize * BLOCK_SIZE];
        pattern::fill(&mut bytes, self.next_pattern);
        let offset = block * BLOCK_SIZE as u64;
        let written = volume.write(self.ino, offset, &bytes, Timestamp::default());
        let written = written.map_err(|error| format!("writing: {error}"))?;
        if written < bytes.len() {
            return Err(format!("{written} of {} bytes were written", bytes.len()));
        }
        let places = self.blocks.iter_mut().skip(block as usize);
        for (place, number) in places.take(count as usize).zip(self.next_pattern..) {
            *place = number;
        }
        self.next_pattern += count;
        if self.rng.random_ratio(1, SYNC_ONE_IN) {
            let synced = volume.sync_file(self.ino);
            synced.map_err(|error| format!("syncing a file: {error}"))?;
        }
        Ok(())
    }

    fn fill(&mut self, volume: &Volume) -> Result<(), String> {
        let end = self.blocks.len() as u64;
        for block in (0..end).step_by(PIECE_BLOCKS as usize) {
            self.write(volume, block, PIECE_BLOCKS.min(end - block))?;
        }
        Ok(())
    }

    fn overwrite(&mut self, volume: &Volume, mut left: u64) -> Result<(), String> {
        while left > 0 {
            let end = self.blocks.len() as u64;
            // Sizes of all magnitudes.
            let most = (PIECE_BLOCKS >> self.rng.random_range(0..9))
                .min(left)
                .min(end);
            let count = self.rng.random_range(1..=most.max(1));
            let block = self.rng.random_range(0..=end - count);
            self.write(volume, block, count)?;
            left -= count;
        }
        Ok(())
    }

    fn read_back(&mut self, volume: &Volume) -> Result<(), String> {
        let (mut read, mut expected) = (vec![0; BLOCK_SIZE], vec![0; BLOCK_SIZE]);
        let end = self.blocks.len() as u64;
        for _ in 0..READ_BACK_MAX.min(end) {
            let block = self.rng.random_range(0..end);
            let done = volume.read(self.ino, block * BLOCK_SIZE as u64, &mut read);
            done.map_err(|error| format!("reading: {error}"))?;
            let number = self.blocks.get(block as usize).copied();
            pattern::fill(&mut expected, number.unwrap_or_default());
            if read != expected {
                let ino = self.ino.0;
                return Err(format!(
                    "block {block} of inode {ino} is not what was written"
                ));
            }
        }
        Ok(())
    }
}
