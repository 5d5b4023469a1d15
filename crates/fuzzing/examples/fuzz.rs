//! Runs fuzz targets longer than the test command does, or one run again.

#![allow(clippy::unwrap_used, reason = "a tool for developers")]

use std::path::PathBuf;
use std::time::Instant;

use clap::Parser;
use persimmon_fuzzing::{TARGETS, by_name, runner};

/// Runs fuzz targets on stable Rust
#[derive(Parser)]
struct Arguments {
    /// Target; all of them if none is named
    target: Option<String>,
    /// Runs of each; as many as under the test command by default
    #[arg(long)]
    runs: Option<u64>,
    /// Seed of the inputs
    #[arg(long, default_value_t = runner::SEED)]
    seed: u64,
    /// One run alone
    #[arg(long)]
    run: Option<u64>,
    /// A file as the input, such as cargo-fuzz keeps one of a crash
    #[arg(long)]
    input: Option<PathBuf>,
    /// Write the seeds of each target to a folder of its name in this one, and run nothing
    #[arg(long)]
    write_seeds: Option<PathBuf>,
    /// Failures after which a target is given up
    #[arg(long, default_value_t = 1)]
    failures: usize,
}

fn main() {
    let arguments = Arguments::parse();
    let named = arguments.target.as_deref();
    if named.is_some_and(|name| by_name(name).is_none()) {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("no such target; there are {}", names.join(", "));
        std::process::exit(2);
    }
    let mut failed = false;
    for target in TARGETS
        .iter()
        .filter(|target| named.is_none_or(|name| name == target.name))
    {
        if let Some(folder) = &arguments.write_seeds {
            let folder = folder.join(target.name);
            std::fs::create_dir_all(&folder).unwrap();
            for (number, seed) in (target.seeds)().iter().enumerate() {
                std::fs::write(folder.join(format!("seed-{number}")), seed).unwrap();
            }
            continue;
        }
        if let Some(path) = &arguments.input {
            (target.run)(&std::fs::read(path).unwrap());
            continue;
        }
        let runs = match arguments.run {
            Some(run) => run..run + 1,
            None => 0..arguments.runs.unwrap_or(target.runs),
        };
        let count = runs.end - runs.start;
        let start = Instant::now();
        let failures = runner::run(target, arguments.seed, runs, arguments.failures);
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{:<12} {count:>8} runs {seconds:>7.1} s {} failures",
            target.name,
            failures.len()
        );
        for failure in failures {
            failed = true;
            println!("  --seed {} --run {}", arguments.seed, failure.run);
        }
    }
    std::process::exit(failed.into());
}
