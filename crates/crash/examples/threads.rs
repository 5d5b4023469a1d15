//! Several clients at once, and power cuts: `cargo xtask interleave --help`.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use persimmon_crash::threads::{Plan, Tally, run};
use persimmon_sync::host::Mutex;

/// Lets several clients work on a simulated volume at once, cuts the power, and compares what is recovered with what
/// may be recovered
#[derive(Parser)]
#[command(name = "cargo xtask interleave")]
struct Arguments {
    /// Runs
    #[arg(long, default_value_t = 1000)]
    runs: u64,
    /// First seed; each run takes the next
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads, a run each
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Failures after which to stop
    #[arg(long, default_value_t = 1)]
    failures: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (next, failures) = (AtomicU64::new(0), AtomicU64::new(0));
    let tally = Mutex::new(Tally::default());
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let enough = failures.load(Ordering::Relaxed) >= arguments.failures;
                    if number >= arguments.runs || enough {
                        break;
                    }
                    let plan = Plan::new(arguments.seed + number);
                    match run(&plan) {
                        Ok(covered) => {
                            *tally.lock() += covered;
                        }
                        Err(why) => {
                            failures.fetch_add(1, Ordering::Relaxed);
                            println!("seed {}: {why}\n{plan:?}", plan.seed);
                        }
                    }
                }
            });
        }
    });
    let failures = failures.into_inner();
    let tally = tally.into_inner();
    println!(
        "{tally:?}, {failures} failed, {:.1} s",
        began.elapsed().as_secs_f64()
    );
    match failures {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
