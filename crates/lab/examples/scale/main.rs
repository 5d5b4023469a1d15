//! What it costs to mount, unmount and keep mounted a volume as large as a drive; see
//! `persimmon_lab::scale`.

mod heap;

use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use persimmon_engine::Options;
use persimmon_lab::scale::{self, Making, Meter, Plan};
use persimmon_sim::Timing;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

#[derive(Clone, Copy, ValueEnum)]
enum Drive {
    /// 1 TB of flash in zones of 2 GiB of which 1,077 MiB can be written
    Zns1t,
    /// 28 TB of disk in 111,760 zones of 256 MiB, of which 1 % conventional
    Smr28t,
    /// 1 PB in zones of 256 MiB
    Large1p,
}

#[derive(Parser)]
struct Args {
    /// Which drive
    drive: Drive,
    /// Write the data, all of it, instead of putting its metadata together
    #[arg(long)]
    write: bool,
    /// A part of the drive
    #[arg(long, default_value_t = 1.0)]
    share: f64,
    /// Share of what can be written that is
    #[arg(long, default_value_t = 0.5)]
    fill: f64,
    /// Size of a file in MiB
    #[arg(long, default_value_t = 1024)]
    file: u64,
    /// Blocks written at random and synced before an unmount, and before a crash
    #[arg(long, default_value_t = 5000)]
    changes: u32,
}

/// The processor time of this thread, and the heap.
struct Machine;

impl Meter for Machine {
    fn worked(&self) -> Duration {
        // Nanoseconds on a processor come first.
        // The kernel brings the figure up to date when the processor changes hands.
        std::thread::yield_now();
        let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let first = told.split_whitespace().next();
        let nanoseconds = first.and_then(|number| number.parse().ok());
        Duration::from_nanos(nanoseconds.unwrap_or_default())
    }

    fn heap_bytes(&self) -> u64 {
        heap::bytes()
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    if Machine.worked() == Duration::ZERO {
        bail!("/proc/thread-self/schedstat does not tell how long a thread has worked");
    }
    let blocks = |mib: u32| mib * 256;
    let part = |zones: u32| (f64::from(zones) * args.share).ceil() as u32;
    let (zones, zone_mib, capacity_mib, timing) = match args.drive {
        Drive::Zns1t => (part(886), 2048, 1077, Timing::zn540()),
        Drive::Smr28t => (part(111_760), 256, 256, Timing::disk()),
        Drive::Large1p => (part(3_725_291), 256, 256, Timing::zn540()),
    };
    let plan = Plan {
        zones,
        zone_blocks: blocks(zone_mib),
        zone_capacity: blocks(capacity_mib),
        conventional_zones: match args.drive {
            Drive::Smr28t => zones.div_ceil(100),
            _ => 0,
        },
        active_max: match args.drive {
            Drive::Zns1t => Some(14),
            _ => Some(128),
        },
        fill: args.fill,
        file_blocks: args.file * 256,
        making: if args.write {
            Making::Written
        } else {
            Making::Made
        },
        changes: args.changes,
        timing,
        options: Options::default(),
    };
    let mut told = 0;
    let report = scale::run(&plan, &Machine, &mut |done, all| {
        let percent = done * 100 / all.max(1);
        if percent > told {
            told = percent;
            eprint!("\rfilling {percent} %");
        }
    })?;
    eprintln!();
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}
