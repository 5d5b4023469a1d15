//! The library on images whose host loses power: `cargo xtask hosted --help`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use persimmon_crash::hosted::{Plan, Tally, run};
use persimmon_sync::host::Mutex;

/// Lets several clients work with the library on an image, has its host lose power, and compares what is recovered with
/// what was acknowledged
#[derive(Parser)]
#[command(name = "cargo xtask hosted")]
struct Arguments {
    /// Runs
    #[arg(long, default_value_t = 100)]
    runs: u64,
    /// First seed; each run takes the next
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs at the same time
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Failures after which to stop
    #[arg(long, default_value_t = 1)]
    failures: u64,
    /// Directory in which the images of failures are kept
    #[arg(long)]
    keep: Option<PathBuf>,
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
                        Err(failure) => {
                            failures.fetch_add(1, Ordering::Relaxed);
                            println!("seed {}: {}\n{plan:?}", plan.seed, failure.why);
                            keep(&arguments, plan.seed, &failure.image);
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

fn keep(arguments: &Arguments, seed: u64, image: &[u8]) {
    let Some(directory) = arguments.keep.as_ref().filter(|_| !image.is_empty()) else {
        return;
    };
    let path = directory.join(format!("seed-{seed}.img"));
    match std::fs::write(&path, image) {
        Ok(()) => println!("the image is {}", path.display()),
        Err(error) => println!("{}: {error}", path.display()),
    }
}
