//! Takes volumes on drives of all geometries through the model test and two volumes of overwriting by 16 writers.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Parser;
use persimmon_crash::sweep::Sweep;

#[derive(Parser)]
struct Args {
    /// Sizes of zones in MiB
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16, 64, 256, 1024, 2048])]
    zone: Vec<u32>,
    /// Capacities of zones in percent of their size
    #[arg(long, value_delimiter = ',', default_values_t = [60, 75, 100])]
    capacity: Vec<u32>,
    /// Zones open and active at most; 0: any number
    #[arg(long, value_delimiter = ',', default_values_t = [3, 4, 6, 14, 128, 0])]
    active: Vec<u32>,
    /// Zones of the drive; more where they cannot carry a volume
    #[arg(long, default_value_t = 40)]
    zones: u32,
    /// Operations of the model test
    #[arg(long, default_value_t = 600)]
    model_ops: u32,
    /// Share of the space that is filled
    #[arg(long, default_value_t = 0.85)]
    fill: f64,
    /// Volumes written over
    #[arg(long, default_value_t = 2.0)]
    volumes: f64,
    /// Of the first geometry; the next has the next
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let (mut failed, mut seed) = (0, args.seed);
    println!(
        "zone MiB | capacity % | active | zones | space MiB | written MiB | amplification | s"
    );
    for zone in &args.zone {
        for capacity in &args.capacity {
            for active in &args.active {
                let began = Instant::now();
                let sweep = Sweep {
                    zones: args.zones,
                    zone_blocks: zone * 256,
                    capacity_percent: *capacity,
                    active_max: (*active > 0).then_some(*active),
                    model_ops: args.model_ops,
                    fill: args.fill,
                    volumes: args.volumes,
                    seed,
                };
                seed += 1;
                match sweep.run() {
                    Ok(done) => println!(
                        "{zone} | {capacity} | {active} | {} | {} | {} | {:.2} | {:.0}",
                        done.zones,
                        done.total_bytes >> 20,
                        done.overwritten_bytes >> 20,
                        done.write_amplification,
                        began.elapsed().as_secs_f64()
                    ),
                    Err(why) => {
                        failed += 1;
                        println!("{zone} | {capacity} | {active} | FAILED: {why} ({sweep:?})");
                    }
                }
            }
        }
    }
    println!("failed: {failed}");
    Ok(match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}
