//! Everything the device is sent, per fsync, with checkpoints and write-back inside.

use persimmon_engine::{Deltas, FsyncOrder, Statistics};
use persimmon_lab::fsync::{Appends, Changes, Overwrites};

use crate::setup::{BLOCK, Outcome, Sample, Setup, verdict};

/// Of the file: 512 MiB.
const FILE_BLOCKS: u64 = 131_072;
const FSYNCS: u64 = 40_000;
const CHECKPOINTS_MIN: u64 = 3;

pub fn measure(seed: u64) -> Outcome<u32> {
    println!("## Device KiB per fsync, everything counted, with PLP\n");
    println!(
        "| what | KiB per fsync | bar | holds | data | summaries | journal | pages | tables, \
         footers | checkpoints | commits per fsync |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let setup = Setup::new(true, FsyncOrder::WritePointer);
    let mut missed = 0;
    for (name, incompressible, bar) in [
        ("4 KiB random overwrite, incompressible", BLOCK, 8.8),
        ("4 KiB random overwrite, compresses 4:1", BLOCK / 4, 5.5),
    ] {
        let overwrites = Overwrites {
            file_blocks: FILE_BLOCKS,
            blocks: 1,
            random_bytes: incompressible,
            fsyncs: FSYNCS,
            seed,
        };
        let sample = overwrites.run(setup)?;
        missed += row(name, &sample, FSYNCS, bar);
    }
    for (name, deltas, reads) in [
        (
            "100 bytes of a 4 KiB block, deltas=always",
            Deltas::Always,
            false,
        ),
        (
            "100 bytes of a 4 KiB block that was read before, deltas=memory",
            Deltas::InMemory,
            true,
        ),
    ] {
        let changes = Changes {
            file_blocks: FILE_BLOCKS,
            bytes: 100,
            reads,
            fsyncs: FSYNCS,
            seed,
        };
        let sample = changes.run(Setup { deltas, ..setup })?;
        missed += row(name, &sample, FSYNCS, 4.6);
    }
    // Callers share journal blocks: the more of them, the more fsyncs between two checkpoints.
    for (threads, fsyncs) in [(1, FSYNCS), (4, 2 * FSYNCS), (16, 8 * FSYNCS)] {
        let appends = Appends {
            clients: threads,
            bytes: 100,
            fsyncs,
            seed,
        };
        let sample = appends.run(setup)?;
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
