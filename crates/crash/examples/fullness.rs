//! Takes volumes through cycles of filling, emptying and overwriting, between nothing and the last
//! block, and ends with the first broken promise.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;
use persimmon_crash::fullness::{self, Report};

#[derive(Parser)]
struct Args {
    /// Cycles in all
    #[arg(long, default_value_t = 1_000_000)]
    cycles: u64,
    /// Cycles of one volume
    #[arg(long, default_value_t = 500)]
    per_volume: u64,
    /// Seed of the first volume; the next has the next
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads
    #[arg(long, default_value_t = 1)]
    jobs: u64,
    /// Go on after so many broken promises
    #[arg(long, default_value_t = 0)]
    failures: usize,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    ensure!(
        args.per_volume > 0 && args.jobs > 0,
        "cycles of a volume and threads are at least 1"
    );
    let volumes = args.cycles.div_ceil(args.per_volume);
    let results: Vec<(Report, usize)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.jobs)
            .map(|job| {
                let args = &args;
                scope.spawn(move || work(args, job, volumes))
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|result| result.unwrap_or_default()).collect()
    });
    let (mut report, mut broken) = (Report::default(), 0);
    for (part, failures) in results {
        report.add(&part);
        broken += failures;
    }
    println!("{}", serde_json::to_string_pretty(&report)?);
    println!("broken promises: {broken}");
    Ok(match broken {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn work(args: &Args, job: u64, volumes: u64) -> (Report, usize) {
    let (mut report, mut broken) = (Report::default(), 0);
    for number in (job..volumes).step_by(args.jobs as usize) {
        match fullness::volume(args.seed + number, args.per_volume) {
            Ok(part) => report.add(&part),
            Err(violation) => {
                eprintln!("{violation}");
                broken += 1;
                if broken > args.failures {
                    break;
                }
            }
        }
    }
    (report, broken)
}
