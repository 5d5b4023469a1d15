//! A campaign of crash states against Persimmon:
//! `cargo run -p persimmon-sim --release --example simulate -- --states 100000 --seed 1 --jobs 2`

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use persimmon_sim::filesystem::Filesystem;
use persimmon_sim::harness::Campaign;

/// Runs random workloads on simulated devices, cuts the power, and compares what is recovered
/// with what may be recovered.
#[derive(Parser)]
struct Arguments {
    /// Crash states to try.
    #[arg(long, default_value_t = 20_000)]
    states: u64,
    /// First seed; each run takes the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Failures after which to stop.
    #[arg(long, default_value_t = 1)]
    failures: usize,
    /// Runs to spend on making a failure shorter; 0 prints it as it was found.
    #[arg(long, default_value_t = 200)]
    shrink: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let campaign = Campaign {
        seed: arguments.seed,
        states: arguments.states,
        jobs: arguments.jobs,
        failures_max: arguments.failures,
        shrink_tries: arguments.shrink,
    };
    let terminal = std::io::stderr().is_terminal();
    let report = campaign.run(&Filesystem, |progress| {
        if terminal {
            let mut out = std::io::stderr().lock();
            let _ = write!(
                out,
                "\r{} of {} crash states, {} runs, {} failures ",
                progress.states, arguments.states, progress.runs, progress.failures
            );
            let _ = out.flush();
        }
    });
    if terminal {
        eprintln!();
    }
    for failure in &report.failures {
        println!("{failure}");
    }
    println!("{}", report.statistics);
    if report.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
