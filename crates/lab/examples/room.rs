//! Fills volumes to the last block, writes everything again, and tells how much they held.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Parser;
use persimmon_engine::Options;
use persimmon_lab::room::{Order, Room};

#[derive(Parser)]
struct Args {
    /// Sizes of the drives in MiB
    #[arg(long, value_delimiter = ',', default_values_t = [64 << 10, 128 << 10, 256 << 10])]
    drive: Vec<u64>,
    /// Size of a zone in MiB
    #[arg(long, default_value_t = 2048)]
    zone: u64,
    /// Zones open and active at most; 0: any number
    #[arg(long, default_value_t = 14)]
    active: u32,
    /// Reserves in percent
    #[arg(long, value_delimiter = ',', default_values_t = [0, 10])]
    reserve: Vec<u32>,
    /// Pages changed between two checkpoints
    #[arg(long, default_value_t = 8192)]
    dirty_pages: usize,
    /// Write single blocks again, scattered, and not files from beginning to end
    #[arg(long)]
    scattered: bool,
    /// How often everything is written again
    #[arg(long, default_value_t = 2.0)]
    passes: f64,
    /// Of the order
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let mut failed = 0;
    println!("drive MiB | reserve % | statfs MiB | written MiB | amplification | s");
    for drive in &args.drive {
        for reserve in &args.reserve {
            let began = Instant::now();
            let room = Room {
                zones: u32::try_from(drive / args.zone)?,
                zone_blocks: u32::try_from(args.zone * 256)?,
                active_max: (args.active > 0).then_some(args.active),
                reserve_basis_points: Some(reserve * 100),
                dirty_pages_max: args.dirty_pages,
                large_zone_blocks: Options::default().large_zone_blocks,
                order: if args.scattered {
                    Order::Scattered
                } else {
                    Order::Files
                },
                passes: args.passes,
                seed: args.seed,
            };
            match room.run() {
                Ok(held) => println!(
                    "{drive} | {reserve} | {} | {} | {:.2} | {:.0}",
                    held.total_bytes >> 20,
                    held.written_bytes >> 20,
                    held.write_amplification,
                    began.elapsed().as_secs_f64()
                ),
                Err(why) => {
                    failed += 1;
                    println!("{drive} | {reserve} | FAILED: {why}");
                }
            }
        }
    }
    Ok(match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}
