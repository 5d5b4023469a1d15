//! How long a mount takes after a power cut, by what there is to replay and by the volume's size.

use std::sync::Arc;
use std::time::Instant;

use persimmon_engine::{FsyncOrder, Volume};
use persimmon_format::inode::Timestamp;

use crate::setup::{BLOCK, Noise, Outcome, Setup, verdict};

/// Journal blocks up to just below the bound of 32 MiB.
const FSYNCS: [u64; 5] = [0, 500, 2000, 4000, 8000];
const BAR_MS: f64 = 1000.0;

pub fn measure(seed: u64) -> Outcome<u32> {
    println!(
        "## Recovery after a power cut: 4 KiB overwrites, each synced, since the last checkpoint\n"
    );
    println!(
        "| zones of 32 MiB | file | PLP | records replayed | virtual ms | bar | holds | reads | MiB \
         read | writes | computing, real ms |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let mut missed = 0;
    for fsyncs in FSYNCS {
        missed += row(96, 512, true, fsyncs, seed)?;
    }
    missed += row(96, 512, false, 8000, seed)?;
    for (zones, file_mib) in [(96, 64), (192, 2048), (1024, 2048), (8192, 2048)] {
        missed += row(zones, file_mib, true, 8000, seed)?;
    }
    println!();
    Ok(missed)
}

fn row(zones: u32, file_mib: u64, plp: bool, fsyncs: u64, seed: u64) -> Outcome<u32> {
    let setup = Setup {
        zones,
        ..Setup::new(plp, FsyncOrder::WritePointer)
    };
    let blocks = file_mib * 256;
    let timed = setup.volume()?;
    let mut noise = Noise::new(seed);
    let ino = timed.file(blocks, &mut noise)?;
    timed.age(ino, blocks, &mut noise)?;
    for _ in 0..fsyncs {
        let offset = noise.below(blocks) * BLOCK as u64;
        let bytes = noise.bytes(BLOCK);
        timed
            .volume
            .write(ino, offset, bytes, Timestamp::default())?;
        timed.volume.sync_file(ino)?;
    }
    let device = Arc::new(timed.device.snapshot().intact());
    drop(timed);
    let began = Instant::now();
    let (volume, report) = Volume::open(Arc::clone(&device) as _, setup.options())?;
    let computing = began.elapsed();
    let counters = device.counters();
    let clock = device.clock().ok_or("no clock")?;
    let millis = clock.now().as_secs_f64() * 1e3;
    let (holds, missed) = verdict(millis <= BAR_MS);
    println!(
        "| {zones} | {file_mib} MiB | {} | {} | {millis:.1} | {BAR_MS} | {holds} | {} | {:.1} | {} | {:.0} |",
        if plp { "yes" } else { "no" },
        report.records_replayed,
        counters.reads,
        counters.read_blocks as f64 * BLOCK as f64 / f64::from(1 << 20),
        counters.writes + counters.appends,
        computing.as_secs_f64() * 1e3,
    );
    drop(volume);
    Ok(missed)
}
