//! Writes a database as RocksDB does on drives with zones of several sizes, and tells what the device was sent and what cleaning moved.

use anyhow::Result;
use clap::Parser;
use persimmon_lab::lsm::{Plan, Shape, run};

#[derive(Parser)]
struct Args {
    /// Sizes of zones in MiB
    #[arg(long, value_delimiter = ',', default_values_t = [4, 16])]
    zone: Vec<u32>,
    /// Size of the drive in MiB
    #[arg(long, default_value_t = 1024)]
    drive: u32,
    /// Zones open and active at most; 0: any number
    #[arg(long, default_value_t = 0)]
    active: u32,
    /// Entries of 4,000 bytes
    #[arg(long, value_delimiter = ',', default_values_t = [135_000])]
    entries: Vec<u32>,
    /// Entries overwritten, as a share of all
    #[arg(long, default_value_t = 1.5)]
    overwrites: f64,
    /// Files carry no hints
    #[arg(long)]
    unhinted: bool,
    /// Tell which zones were emptied
    #[arg(long)]
    victims: bool,
    /// Of the order of overwriting
    #[arg(long, value_delimiter = ',', default_values_t = [1])]
    seed: Vec<u64>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    println!(
        "zones | MiB of a zone | entries | device / database | moved, % of what was sent | blocks moved | stalls"
    );
    for zone in &args.zone {
        for entries in &args.entries {
            for seed in &args.seed {
                let plan = Plan {
                    zones: args.drive / zone,
                    zone_blocks: zone * 256,
                    active_max: (args.active > 0).then_some(args.active),
                    shape: Shape {
                        entries: *entries,
                        ..Plan::default().shape
                    },
                    overwrites: (f64::from(*entries) * args.overwrites) as u64,
                    hints: !args.unhinted,
                    seed: *seed,
                    ..Plan::default()
                };
                let outcome = run(&plan)?;
                println!(
                    "{} | {zone} | {entries} | {:.3} | {:.2} | {} | {}",
                    plan.zones,
                    outcome.device_share(),
                    outcome.moved_share() * 100.0,
                    outcome.blocks_moved,
                    outcome.stalls,
                );
                if args.victims {
                    for of in &outcome.victims {
                        println!(
                            "  class {}: {} zones, {:.0} % live, {} with files of several hints",
                            of.class,
                            of.zones,
                            100.0 * of.live_blocks as f64 / of.blocks.max(1) as f64,
                            of.mixed
                        );
                    }
                }
            }
        }
    }
    Ok(())
}
