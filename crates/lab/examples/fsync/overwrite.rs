//! One thread overwrites a file at random and syncs after each write, in both orders. The file's
//! extents are as scattered as they get before it is measured.

use std::time::Duration;

use persimmon_engine::FsyncOrder;
use persimmon_lab::fsync::Overwrites;
use persimmon_sim::time::Timing;

use crate::setup::{BLOCK, Outcome, Sample, Setup, micros, verdict};

/// Of the file: 128 MiB.
const FILE_BLOCKS: u64 = 32_768;
const SIZES_KIB: [u32; 4] = [4, 16, 64, 256];
/// The share of the best possible ratio that is asked for with PLP.
const SHARE: f64 = 0.95;
/// The ratio asked for without PLP, up to this size.
const WITHOUT_PLP: f64 = 1.8;
const WITHOUT_PLP_KIB: u32 = 16;

pub fn measure(seed: u64) -> Outcome<u32> {
    println!("## One thread, random overwrites of a 128 MiB file, each followed by fsync\n");
    println!(
        "| write | PLP | wp us | strict us | wp / strict | best (d+j)/max(d,j) | bar | holds | \
         device writes and blocks per fsync, wp | strict | checkpoints |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let mut missed = 0;
    for plp in [true, false] {
        for kib in SIZES_KIB {
            missed += row(plp, kib, seed)?;
        }
    }
    println!();
    Ok(missed)
}

fn row(plp: bool, kib: u32, seed: u64) -> Outcome<u32> {
    // Journal blocks decide when checkpoints come: so many make several of them.
    let fsyncs = 30_000;
    let wp = run(Setup::new(plp, FsyncOrder::WritePointer), kib, fsyncs, seed)?;
    let strict = run(Setup::new(plp, FsyncOrder::Strict), kib, fsyncs, seed)?;
    let ratio = strict.time.as_secs_f64() / wp.time.as_secs_f64();
    let timing = Timing::default();
    let (data, record) = (timing.write.of_blocks(kib / 4), timing.write.of_blocks(1));
    let flush = if plp { Duration::ZERO } else { timing.flush };
    let best = (data + record + 2 * flush).as_secs_f64() / (data.max(record) + flush).as_secs_f64();
    let bar = if plp {
        Some(SHARE * best)
    } else {
        (kib <= WITHOUT_PLP_KIB).then_some(WITHOUT_PLP)
    };
    let (holds, missed) = bar.map_or(("", 0), |bar| verdict(ratio >= bar));
    let each = |sample: &Sample| {
        let per = |count: u64| count as f64 / fsyncs as f64;
        let counters = &sample.counters;
        format!(
            "{:.3}, {:.3}",
            per(counters.writes + counters.appends),
            per(counters.written_blocks())
        )
    };
    println!(
        "| {kib} KiB | {} | {:.2} | {:.2} | {ratio:.3} | {best:.3} | {} | {holds} | {} | {} | {}, {} |",
        if plp { "yes" } else { "no" },
        micros(wp.time) / fsyncs as f64,
        micros(strict.time) / fsyncs as f64,
        bar.map_or("-".to_owned(), |bar| format!("{bar:.3}")),
        each(&wp),
        each(&strict),
        wp.statistics.checkpoints,
        strict.statistics.checkpoints,
    );
    Ok(missed)
}

fn run(setup: Setup, kib: u32, fsyncs: u64, seed: u64) -> Outcome<Sample> {
    let blocks = u64::from(kib / 4);
    let overwrites = Overwrites {
        file_blocks: FILE_BLOCKS,
        blocks,
        random_bytes: blocks as usize * BLOCK,
        fsyncs,
        seed,
    };
    overwrites.run(setup)
}
