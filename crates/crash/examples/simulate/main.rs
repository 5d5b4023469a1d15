//! A campaign of crash states against Persimmon: `cargo xtask simulate --help`.

mod report;
mod saved;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use persimmon_crash::filesystem::Filesystem;
use persimmon_crash::harness::{Campaign, Case, Origin, Selection, replay, shrink};
use persimmon_crash::workload::Sequences;

use report::Progress;
use saved::Saved;

/// Runs workloads on simulated devices, cuts the power, and compares what is recovered with what
/// may be recovered: short sequences first, if asked for, then random runs
#[derive(Parser)]
#[command(name = "cargo xtask simulate")]
struct Arguments {
    /// Crash states of random runs to try [default: 20000, none with --exhaustive or --samples]
    #[arg(long)]
    states: Option<u64>,
    /// First seed; each random run takes the next
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// All sequences of up to so many operations (1 or 2)
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    exhaustive: u8,
    /// How often each sequence of two operations is run, every time on another ground or device
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=Sequences::ROUNDS))]
    rounds: u64,
    /// Sequences of three operations, sampled by the seed
    #[arg(long, default_value_t = 0)]
    samples: u64,
    /// Keep the state in this file, and go on from it if it is there
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Failures after which to stop
    #[arg(long, default_value_t = 1)]
    failures: usize,
    /// Runs to spend on making a failure shorter; 0 prints it as it was found
    #[arg(long, default_value_t = 200)]
    shrink: usize,
    /// Report as JSON
    #[arg(long)]
    json: bool,
    /// Run this alone, as a failure names it: seed:N, sequence:N or sample:N
    #[arg(long, value_name = "WHICH")]
    replay: Option<Origin>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// True when nothing failed.
fn run(arguments: &Arguments) -> Result<bool> {
    let sequences = Sequences::new();
    if let Some(origin) = arguments.replay {
        return run_one(origin, &sequences, arguments.shrink);
    }
    let campaign = campaign(arguments, &sequences);
    let mut saved = match &arguments.resume {
        Some(file) => Saved::load(file, &campaign)?,
        None => Saved::new(&campaign),
    };
    let mut progress = Progress::new(&campaign);
    let mut problem = None;
    let report = campaign.go_on(&Filesystem, saved.take_report(), |report| {
        progress.show(report);
        if let Some(file) = &arguments.resume
            && problem.is_none()
            && saved.is_due()
        {
            problem = saved.save(file, report).err();
        }
    });
    progress.close();
    if let Some(file) = &arguments.resume {
        saved.save(file, &report)?;
    }
    problem.map_or(Ok(()), Err)?;
    report::print(&campaign, &report, &saved, arguments.json);
    Ok(saved.earlier_failures().is_empty() && report.failures.is_empty())
}

fn campaign(arguments: &Arguments, sequences: &Sequences) -> Campaign {
    let (ones, twos) = (sequences.ones(), sequences.twos());
    let ends = [ones, ones + twos * arguments.rounds];
    let mut first = 0;
    let mut selected = Vec::new();
    for end in ends.into_iter().take(arguments.exhaustive.into()) {
        let step = 1;
        selected.push(Selection { first, end, step });
        first = end;
    }
    let random_alone = arguments.exhaustive == 0 && arguments.samples == 0;
    Campaign {
        seed: arguments.seed,
        states: arguments
            .states
            .unwrap_or(if random_alone { 20_000 } else { 0 }),
        sequences: selected,
        samples: arguments.samples,
        jobs: arguments.jobs.max(1),
        failures_max: arguments.failures.max(1),
        shrink_tries: arguments.shrink,
    }
}

fn run_one(origin: Origin, sequences: &Sequences, shrink_tries: usize) -> Result<bool> {
    let case = Case::new(origin, sequences).context("there is no sequence of this number")?;
    for (at, op) in case.ops.iter().enumerate() {
        println!("{at:4}  {op}");
    }
    match replay(&Filesystem, &case) {
        Ok(statistics) => {
            println!("{statistics}");
            Ok(true)
        }
        Err(failure) if shrink_tries == 0 => {
            println!("{failure}");
            Ok(false)
        }
        Err(failure) => {
            println!("{}", shrink(&Filesystem, failure, shrink_tries));
            Ok(false)
        }
    }
}
