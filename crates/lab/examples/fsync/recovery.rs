//! How long a mount takes after a power cut, by what there is to replay and by the volume's size.
//!
//! For a disk, which the timed device is not, the same reads are stated as if each had to wait for
//! the arm and a turn of the platter: an upper bound, since many lie behind one another.

use std::time::Instant;

use persimmon_engine::FsyncOrder;
use persimmon_lab::fsync::{Mounted, Used};

use crate::setup::{BLOCK, Outcome, Setup, verdict};

/// Journal blocks up to just below the bound of 32 MiB.
const FSYNCS: [u64; 5] = [0, 500, 2000, 4000, 8000];
const BAR_MS: f64 = 1000.0;
/// Of a disk of 7,200 turns a minute: the mean time to any block, and what it reads from there.
const DISK_ACCESS_S: f64 = 0.008;
const DISK_MIB_PER_S: f64 = 200.0;

pub fn measure(seed: u64) -> Outcome<u32> {
    println!(
        "## Recovery after a power cut: 4 KiB overwrites, each synced, since the last checkpoint\n"
    );
    println!(
        "| zones of 32 MiB | file | PLP | records replayed | pages of the trees | virtual ms | bar | holds | \
         reads | MiB read | writes | computing, real ms | on a disk, s at most |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    let mut missed = 0;
    for fsyncs in FSYNCS {
        missed += row(96, 512, true, fsyncs, seed)?;
    }
    missed += row(96, 512, false, 8000, seed)?;
    for (zones, file_mib) in [(96, 64), (192, 2048), (1024, 2048), (8192, 2048)] {
        missed += row(zones, file_mib, true, 8000, seed)?;
    }
    // About as many distinct pages as a checkpoint may leave behind: 4,096.
    missed += row(512, 6144, true, 8000, seed)?;
    println!();
    Ok(missed)
}

fn row(zones: u32, file_mib: u64, plp: bool, fsyncs: u64, seed: u64) -> Outcome<u32> {
    let setup = Setup {
        zones,
        ..Setup::new(plp, FsyncOrder::WritePointer)
    };
    let used = Used {
        file_blocks: file_mib * 256,
        fsyncs,
        closed: false,
        seed,
    };
    let device = used.device(setup)?;
    let began = Instant::now();
    let mounted = Mounted::on(&device, setup.options())?;
    let computing = began.elapsed();
    let counters = mounted.counters;
    let millis = mounted.time.as_secs_f64() * 1e3;
    let (holds, missed) = verdict(millis <= BAR_MS);
    let mib = counters.read_blocks as f64 * BLOCK as f64 / f64::from(1 << 20);
    println!(
        "| {zones} | {file_mib} MiB | {} | {} | {} | {millis:.1} | {BAR_MS} | {holds} | {} | {mib:.1} | {} | \
         {:.0} | {:.1} |",
        if plp { "yes" } else { "no" },
        mounted.records_replayed,
        mounted.pages,
        counters.reads,
        counters.writes + counters.appends,
        computing.as_secs_f64() * 1e3,
        counters.reads as f64 * DISK_ACCESS_S + mib / DISK_MIB_PER_S,
    );
    Ok(missed)
}
