//! Everything the device is sent, per fsync, with checkpoints and write-back inside.

use std::time::Duration;

use persimmon_engine::{FsyncOrder, Statistics, Task};
use persimmon_format::Ino;
use persimmon_format::inode::Timestamp;
use persimmon_sim::time::Client;

use crate::setup::{BLOCK, Noise, Outcome, Sample, Setup, Timed, verdict};

/// Of the file: 512 MiB.
const FILE_BLOCKS: u64 = 131_072;
const FSYNCS: u64 = 40_000;
const CHECKPOINTS_MIN: u64 = 3;
/// Between two appends of one of several threads.
const THINKS: Duration = Duration::from_micros(1);

pub fn measure(seed: u64) -> Outcome<u32> {
    println!("## Device KiB per fsync, everything counted, with PLP\n");
    println!(
        "| what | KiB per fsync | bar | holds | data | summaries | journal | pages | tables, \
         footers | checkpoints | commits per fsync |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let mut missed = 0;
    for (name, incompressible, bar) in [
        ("4 KiB random overwrite, incompressible", BLOCK, 8.8),
        ("4 KiB random overwrite, compresses 4:1", BLOCK / 4, 5.5),
    ] {
        let sample = overwrite(incompressible, seed)?;
        missed += row(name, &sample, FSYNCS, bar);
    }
    // Callers share journal blocks: the more of them, the more fsyncs between two checkpoints.
    for (threads, fsyncs) in [(1, FSYNCS), (4, 2 * FSYNCS), (16, 8 * FSYNCS)] {
        let sample = append(threads, fsyncs, seed)?;
        let name = format!("appends of 100 bytes, {threads} threads");
        missed += row(&name, &sample, fsyncs, 4.5);
    }
    println!();
    Ok(missed)
}

fn row(name: &str, sample: &Sample, fsyncs: u64, bar: f64) -> u32 {
    let Sample {
        statistics: s,
        counters,
        ..
    } = sample;
    let kib = |bytes: u64| bytes as f64 / 1024.0 / fsyncs as f64;
    // The device's own count, not the engine's.
    let all = kib(counters.written_blocks() * BLOCK as u64);
    let (holds, missed) = verdict(all <= bar && s.checkpoints >= CHECKPOINTS_MIN);
    let Statistics {
        data_bytes,
        cleaned_data_bytes,
        summary_bytes,
        metadata_bytes,
        cleaned_metadata_bytes,
        journal_bytes,
        checkpoint_bytes,
        ..
    } = s;
    println!(
        "| {name} | {all:.2} | {bar} | {holds} | {:.2} | {:.2} | {:.2} | {:.2} | {:.3} | {} | {:.3} |",
        kib(data_bytes + cleaned_data_bytes),
        kib(*summary_bytes),
        kib(*journal_bytes),
        kib(metadata_bytes + cleaned_metadata_bytes),
        kib(*checkpoint_bytes),
        s.checkpoints,
        s.commits as f64 / fsyncs as f64,
    );
    missed
}

fn overwrite(incompressible: usize, seed: u64) -> Outcome<Sample> {
    let timed = Setup::new(true, FsyncOrder::WritePointer).volume()?;
    let mut noise = Noise::new(seed);
    let ino = timed.file(FILE_BLOCKS, &mut noise)?;
    timed.age(ino, FILE_BLOCKS, &mut noise)?;
    let volume = &timed.volume;
    timed.run(vec![Box::new(move || {
        let mut block = vec![0; BLOCK];
        for _ in 0..FSYNCS {
            let offset = noise.below(FILE_BLOCKS) * BLOCK as u64;
            if let Some(part) = block.get_mut(..incompressible) {
                part.copy_from_slice(noise.bytes(incompressible));
            }
            volume.write(ino, offset, &block, Timestamp::default())?;
            volume.sync_file(ino)?;
        }
        // What waits to be written back belongs to what was synced.
        while volume.step(Task::WriteBack)? == persimmon_engine::Progress::Worked {}
        Ok(())
    })])
}

/// Each thread appends to a file of its own.
fn append(threads: u64, fsyncs: u64, seed: u64) -> Outcome<Sample> {
    let timed = Setup::new(true, FsyncOrder::WritePointer).volume()?;
    let mut noise = Noise::new(seed);
    let mut files = Vec::new();
    for _ in 0..threads {
        files.push(timed.file(1, &mut noise)?);
    }
    let clients = files
        .into_iter()
        .zip(1..)
        .map(|(ino, salt)| appender(&timed, ino, fsyncs / threads, seed + salt))
        .collect();
    timed.run(clients)
}

fn appender(timed: &Timed, ino: Ino, fsyncs: u64, seed: u64) -> Client<'_, Outcome<()>> {
    let mut noise = Noise::new(seed);
    Box::new(move || {
        let volume = &timed.volume;
        let mut size = BLOCK as u64;
        for _ in 0..fsyncs {
            timed.clock()?.sleep(THINKS);
            volume.write(ino, size, noise.bytes(100), Timestamp::default())?;
            size += 100;
            volume.sync_file(ino)?;
        }
        while volume.step(Task::WriteBack)? == persimmon_engine::Progress::Worked {}
        Ok(())
    })
}
