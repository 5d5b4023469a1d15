//! What clones cost, by the size of the file and for a tree: seconds, bytes that the device is sent, bytes of metadata a file.
//! `cargo run -p persimmon-lab --release --example clones [-- --files 100000]`

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use persimmon_device::BLOCK_SIZE;
use persimmon_engine::{Error, FormatOptions, Options, Progress, Task, Volume};
use persimmon_format::inode::Timestamp;
use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{Caller, Clock, Handle, Ino, OpenFlags, ROOT, Vfs, WriteFlags};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// 4 GiB.
const ZONES: u32 = 1024;
const ZONE_BLOCKS: u32 = 1024;
/// Of the file that is cloned whole.
const FILE_BYTES: u64 = 100 << 30;
/// In how many places it was written.
const PIECES: [u64; 3] = [1, 1024, 16_384];
const FILES_A_DIRECTORY: u64 = 1000;
/// Bytes of names that a call may return.
const NAMES_MAX: usize = 64 << 10;

/// Measures what clones cost.
#[derive(Parser)]
struct Arguments {
    /// Files of the tree that is cloned, of 4 KiB each
    #[arg(long, default_value_t = 100_000)]
    files: u64,
}

struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }
}

/// A volume on a simulated device, with what is measured of it.
struct Bench {
    device: Arc<SimDevice>,
    vfs: Vfs,
    noise: ChaCha8Rng,
}

/// What some work took.
struct Cost {
    /// Until it was done, and until it was durable.
    seconds: (f64, f64),
    bytes: u64,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    println!("| clone of | seconds | and durable | KiB sent |");
    println!("|---|---|---|---|");
    for pieces in PIECES {
        let cost = of_a_file(pieces)?;
        println!(
            "| a file of 100 GiB, written in {pieces} places | {:.3} | {:.3} | {} |",
            cost.seconds.0,
            cost.seconds.1,
            cost.bytes >> 10
        );
    }
    let cost = of_a_tree(arguments.files)?;
    println!(
        "| a tree of {} files of 4 KiB | {:.3} | {:.3} | {} ({:.0} bytes a file) |",
        arguments.files,
        cost.seconds.0,
        cost.seconds.1,
        cost.bytes >> 10,
        cost.bytes as f64 / arguments.files as f64
    );
    Ok(())
}

impl Bench {
    fn new() -> Result<Bench> {
        let device = Arc::new(SimDevice::new(SimConfig::new(ZONES, ZONE_BLOCKS).fast()));
        Volume::format(Arc::clone(&device) as _, &FormatOptions::default())?;
        let (volume, _) = Volume::open(Arc::clone(&device) as _, Options::default())?;
        let options = persimmon_vfs::Options::default();
        Ok(Bench {
            device,
            vfs: Vfs::new(Arc::new(volume), Arc::new(Still), options),
            noise: ChaCha8Rng::seed_from_u64(1),
        })
    }

    fn create(&self, dir: Ino, name: &str) -> Result<(Ino, Handle)> {
        let flags = OpenFlags {
            read: true,
            write: true,
            ..OpenFlags::default()
        };
        let (made, handle) =
            self.vfs
                .create(&Caller::root(), dir, name.as_bytes(), 0o644, flags)?;
        Ok((made.ino, handle))
    }

    /// Writes a block that does not compress.
    fn write(&mut self, (ino, handle): (Ino, Handle), offset: u64) -> Result<()> {
        let mut content = [0; BLOCK_SIZE];
        self.noise.fill(content.as_mut_slice());
        self.vfs
            .write(ino, handle, offset, &content, WriteFlags::default())?;
        Ok(())
    }

    /// What is done in the background otherwise.
    fn background(&self) -> Result<()> {
        for task in [
            Task::WriteBackIfDue,
            Task::CheckpointIfDue,
            Task::FreeIfDue,
            Task::Reset,
        ] {
            while matches!(step(self.vfs.volume(), task)?, Progress::Worked) {}
        }
        Ok(())
    }

    fn measured(&self, work: impl FnOnce() -> Result<()>) -> Result<Cost> {
        self.vfs.sync()?;
        self.background()?;
        let (start, before) = (Instant::now(), self.device.counters().written_blocks());
        work()?;
        let done = start.elapsed();
        self.vfs.sync()?;
        let seconds = |elapsed: Duration| elapsed.as_secs_f64();
        Ok(Cost {
            seconds: (seconds(done), seconds(start.elapsed())),
            bytes: (self.device.counters().written_blocks() - before) * BLOCK_SIZE as u64,
        })
    }
}

fn step(volume: &Volume, task: Task) -> Result<Progress, Error> {
    match volume.step(task) {
        Err(Error::NoSpace) => Ok(Progress::Idle),
        other => other,
    }
}

fn of_a_file(pieces: u64) -> Result<Cost> {
    let mut bench = Bench::new()?;
    let (source, handle) = bench.create(ROOT, "source")?;
    for piece in 0..pieces {
        let offset = FILE_BYTES / pieces * piece / BLOCK_SIZE as u64 * BLOCK_SIZE as u64;
        bench.write((source, handle), offset)?;
    }
    bench.write((source, handle), FILE_BYTES - BLOCK_SIZE as u64)?;
    let (target, to) = bench.create(ROOT, "target")?;
    bench.measured(|| {
        let mut done = 0;
        while done < FILE_BYTES {
            let (from, into) = ((source, handle, done), (target, to, done));
            let copied = bench.vfs.copy_file_range(from, into, FILE_BYTES - done)?;
            ensure!(copied > 0, "nothing was cloned at {done}");
            done += copied;
            bench.background()?;
        }
        Ok(())
    })
}

fn of_a_tree(files: u64) -> Result<Cost> {
    let mut bench = Bench::new()?;
    let root = Caller::root();
    let mut directories = Vec::new();
    for number in 0..files {
        if number % FILES_A_DIRECTORY == 0 {
            let name = format!("from-{number}");
            directories.push(bench.vfs.mkdir(&root, ROOT, name.as_bytes(), 0o755)?.ino);
            bench.background()?;
        }
        let Some(dir) = directories.last() else {
            continue;
        };
        let (ino, handle) = bench.create(*dir, &number.to_string())?;
        bench.write((ino, handle), 0)?;
        bench.vfs.release(ino, handle)?;
    }
    bench.measured(|| {
        let mut made = 0;
        for (number, from) in directories.iter().enumerate() {
            let name = format!("to-{number}");
            let to = bench.vfs.mkdir(&root, ROOT, name.as_bytes(), 0o755)?.ino;
            let mut cookie = Some(0);
            while let Some(after) = cookie {
                let cloned = bench
                    .vfs
                    .clone_entries(&root, *from, to, (after, NAMES_MAX))?;
                ensure!(cloned.left.is_empty(), "{:?} are left", cloned.left);
                made += cloned.files;
                cookie = cloned.next;
                bench.background()?;
            }
        }
        ensure!(made == files, "{made} files");
        Ok(())
    })
}
