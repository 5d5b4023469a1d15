//! What snapshots cost: taking one of many files while others write, deleting each of a hundred, cleaning beside them.
//! `cargo run -p persimmon-lab --release --example snapshots [-- --files 1000000]`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use persimmon_device::BLOCK_SIZE;
use persimmon_engine::{Error, FormatOptions, Intent, Options, Progress, Task, Volume};
use persimmon_format::inode::{Inode, Timestamp};
use persimmon_format::table::Role;
use persimmon_format::{Ino, SubvolumeId};
use persimmon_sim::{SimConfig, SimDevice};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const MAIN: SubvolumeId = SubvolumeId::MAIN;
/// 2 GiB.
const ZONES: u32 = 512;
const ZONE_BLOCKS: u32 = 1024;
/// Inodes made by one record.
const MADE_AT_ONCE: u64 = 16;

/// Measures what snapshots cost.
#[derive(Parser)]
struct Arguments {
    /// Files of the volume of which one is taken.
    #[arg(long, default_value_t = 1_000_000)]
    files: u64,
    /// Snapshots that are taken one after the other.
    #[arg(long, default_value_t = 100)]
    snapshots: u64,
}

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let arguments = Arguments::parse();
    take_while_writing(arguments.files)?;
    delete_each(arguments.snapshots)?;
    clean_beside()
}

fn volume(zones: u32) -> Outcome<(Arc<SimDevice>, Volume)> {
    let config = SimConfig::new(zones, ZONE_BLOCKS).limits(Some(14), Some(14));
    let device = Arc::new(SimDevice::new(config.fast()));
    Volume::format(Arc::clone(&device) as _, &FormatOptions::default())?;
    let (volume, _) = Volume::open(Arc::clone(&device) as _, Options::default())?;
    Ok((device, volume))
}

fn make(volume: &Volume, files: u64) -> Outcome<Vec<Ino>> {
    let mut made = Vec::new();
    while (made.len() as u64) < files {
        let count = MADE_AT_ONCE.min(files - made.len() as u64);
        made.extend(volume.update::<_, Error>(Intent::Grow, |tx| {
            let mut inos = Vec::new();
            for _ in 0..count {
                let ino = tx.new_ino();
                let inode = Inode {
                    mode: 0o100_644,
                    nlink: 1,
                    ..Inode::default()
                };
                tx.put_inode(ino, &inode);
                inos.push(ino);
            }
            Ok(inos)
        })?);
        step(volume, Task::CheckpointIfDue)?;
    }
    Ok(made)
}

fn step(volume: &Volume, task: Task) -> Outcome<()> {
    while volume.step(task)? == Progress::Worked {}
    Ok(())
}

fn background(volume: &Volume) -> Outcome<()> {
    for task in [
        Task::WriteBackIfDue,
        Task::CheckpointIfDue,
        Task::FreeIfDue,
        Task::Reset,
        Task::CleanIfDue,
    ] {
        for _ in 0..64 {
            match volume.step(task) {
                Ok(Progress::Worked) => {}
                Ok(Progress::Idle) | Err(Error::NoSpace) => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

fn write(volume: &Volume, ino: Ino, block: u64, content: &[u8]) -> Outcome<()> {
    let mut done = 0;
    while let Some(rest) = content.get(done..).filter(|rest| !rest.is_empty()) {
        let offset = block * BLOCK_SIZE as u64 + done as u64;
        done += volume.write(ino, offset, rest, Timestamp::default())?;
    }
    Ok(())
}

fn noise(rng: &mut ChaCha8Rng, blocks: usize) -> Vec<u8> {
    let mut content = vec![0; blocks * BLOCK_SIZE];
    rng.fill(content.as_mut_slice());
    content
}

fn held(volume: &Volume) -> u64 {
    let zones = volume.zones();
    let data = zones.iter().filter(|zone| zone.entry.role == Role::Data);
    data.map(|zone| u64::from(zone.entry.valid)).sum()
}

/// How long somebody waited, and how much of it for a processor.
#[derive(Clone, Copy, Default)]
struct Wait {
    whole: Duration,
    for_processor: Duration,
}

impl Wait {
    /// What the volume had part in.
    fn own(&self) -> Duration {
        self.whole.saturating_sub(self.for_processor)
    }
}

/// For how long this thread was ready to run, and did not.
fn waited_for_processor() -> Outcome<Duration> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let field = told.split_whitespace().nth(1).ok_or("no second field")?;
    Ok(Duration::from_nanos(field.parse()?))
}

/// Overwrites and syncs a file until it is told to stop. Returns the waits.
fn overwrite_and_sync(volume: &Volume, ino: Ino, stop: &AtomicBool) -> Outcome<Vec<Wait>> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (content, mut waits) = (noise(&mut rng, 1), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let (begun, before) = (Instant::now(), waited_for_processor()?);
        write(volume, ino, rng.random_range(0..10_000), &content)?;
        volume.sync_file(ino)?;
        waits.push(Wait {
            whole: begun.elapsed(),
            for_processor: waited_for_processor()?.saturating_sub(before),
        });
        background(volume)?;
    }
    Ok(waits)
}

/// Takes snapshots of a volume of many files, while somebody overwrites and syncs one: how long it takes, and how long the writer waits. The
/// same without a snapshot tells what is not theirs.
fn take_while_writing(files: u64) -> Outcome<()> {
    let (_device, volume) = volume(ZONES)?;
    let made = make(&volume, files)?;
    volume.sync()?;
    println!("## Snapshots of {files} files, while one is overwritten and synced\n");
    println!(
        "| taken | median ms | longest ms | syncs | longest wait of one, ms | that for a processor left out |"
    );
    println!("|---|---|---|---|---|---|");
    let file = made.first().copied().ok_or("no file")?;
    for snapshots in [0, 20] {
        let stop = AtomicBool::new(false);
        let mut taken: Vec<Duration> = Vec::new();
        let waits = std::thread::scope(|scope| -> Outcome<Vec<Wait>> {
            let writer = scope.spawn(|| overwrite_and_sync(&volume, file, &stop));
            for number in 0..20 {
                std::thread::sleep(Duration::from_millis(50));
                if number < snapshots {
                    let (name, begun) = (format!("snapshot {number}"), Instant::now());
                    let now = Timestamp::default();
                    volume.snapshots().take(MAIN, name.as_bytes(), true, now)?;
                    taken.push(begun.elapsed());
                }
            }
            stop.store(true, Ordering::Relaxed);
            writer.join().map_err(|_| "the writer panicked")?
        })?;
        taken.sort();
        let ms = |time: Option<Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e3);
        println!(
            "| {} | {:.2} | {:.2} | {} | {:.2} | {:.2} |",
            taken.len(),
            ms(taken.get(taken.len() / 2).copied()),
            ms(taken.last().copied()),
            waits.len(),
            ms(waits.iter().map(|wait| wait.whole).max()),
            ms(waits.iter().map(Wait::own).max())
        );
    }
    println!();
    Ok(())
}

/// Takes snapshots, each after one percent was overwritten, and deletes them one after the other.
fn delete_each(snapshots: u64) -> Outcome<()> {
    let (device, volume) = volume(ZONES)?;
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let files = make(&volume, 2000)?;
    let blocks_each = 32;
    for ino in &files {
        let content = noise(&mut rng, blocks_each);
        write(&volume, *ino, 0, &content)?;
        background(&volume)?;
    }
    volume.sync()?;
    let mut ids = Vec::new();
    for number in 0..snapshots {
        let name = format!("snapshot {number}");
        ids.push(
            volume
                .snapshots()
                .take(MAIN, name.as_bytes(), true, Timestamp::default())?,
        );
        // One percent, in twenty files.
        for _ in 0..20 {
            let ino = files[rng.random_range(0..files.len())];
            let content = noise(&mut rng, blocks_each);
            write(&volume, ino, 0, &content)?;
        }
        background(&volume)?;
    }
    volume.sync()?;
    volume.step(Task::Checkpoint)?;
    let before = held(&volume);
    let begun = Instant::now();
    let listed = volume.snapshots().list().len();
    let listing = begun.elapsed();
    println!(
        "## {snapshots} snapshots of 2000 files of 128 KiB, twenty of them overwritten between each\n"
    );
    println!("Listed {listed} in {listing:?}. The volume holds {before} blocks.\n");
    println!("| deleted | it alone held, blocks | freed | blocks sent to settle it | pages read |");
    println!("|---|---|---|---|---|");
    for (number, id) in ids.iter().enumerate() {
        let (alone, held_before) = (
            volume.snapshots().space(*id)? / BLOCK_SIZE as u64,
            held(&volume),
        );
        let sent = device.counters().written_blocks();
        let read = device.counters().read_blocks;
        volume.snapshots().delete(*id)?;
        step(&volume, Task::Settle)?;
        volume.sync()?;
        let (sent, read) = (
            device.counters().written_blocks() - sent,
            device.counters().read_blocks - read,
        );
        if number % 10 == 5 {
            let freed = held_before - held(&volume);
            println!("| {number} | {alone} | {freed} | {sent} | {read} |");
        }
    }
    println!();
    Ok(())
}

/// Overwrites a file at random where live data takes three quarters: all of it the file's, or a part of it a snapshot's.
fn clean_beside() -> Outcome<()> {
    println!("## Overwrites of 4 KiB at random, three quarters of the drive live\n");
    println!("| live | held by snapshots alone | write amplification | moved / written |");
    println!("|---|---|---|---|");
    let (file, file_beside) = (overwrite(0.75, 0.0)?, overwrite(0.65, 0.10)?);
    println!("\n{:.3} of it\n", file_beside / file);
    Ok(())
}

fn overwrite(share: f64, snapshot_share: f64) -> Outcome<f64> {
    let zones = 256;
    let (device, volume) = volume(zones)?;
    let total = f64::from(zones) * f64::from(ZONE_BLOCKS);
    let (blocks, held_blocks) = ((total * share) as u64, (total * snapshot_share) as u64);
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let content = noise(&mut rng, 256);
    let fill = |ino, blocks: u64| -> Outcome<()> {
        for block in (0..blocks).step_by(256) {
            write(&volume, ino, block, &content)?;
            background(&volume)?;
        }
        Ok(volume.sync()?)
    };
    let made = make(&volume, 2)?;
    let &[held_file, ino] = made.as_slice() else {
        return Err("no files".into());
    };
    if held_blocks > 0 {
        // What only the snapshot has: it is cut off in the main subvolume.
        fill(held_file, held_blocks)?;
        volume
            .snapshots()
            .take(MAIN, b"held", true, Timestamp::default())?;
        volume.truncate(held_file, 0, Timestamp::default())?;
    }
    fill(ino, blocks)?;
    let mut run = |writes: u64| -> Outcome<(u64, u64)> {
        let (sent, moved) = (
            device.counters().written_blocks(),
            volume.statistics().blocks_moved,
        );
        for number in 0..writes {
            let block = rng.random_range(0..blocks);
            write(
                &volume,
                ino,
                block,
                content.get(..BLOCK_SIZE).unwrap_or_default(),
            )?;
            if number % 64 == 0 {
                background(&volume)?;
            }
        }
        Ok((
            device.counters().written_blocks() - sent,
            volume.statistics().blocks_moved - moved,
        ))
    };
    run(2 * blocks)?;
    let writes = blocks;
    let (sent, moved) = run(writes)?;
    let amplification = sent as f64 / writes as f64;
    println!(
        "| {:.0} % | {:.0} % | {amplification:.3} | {:.3} |",
        share * 100.0,
        snapshot_share * 100.0,
        moved as f64 / writes as f64
    );
    Ok(amplification)
}
