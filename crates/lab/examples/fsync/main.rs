//! What an fsync costs, in virtual time and in device bytes:
//! `cargo run -p persimmon-lab --release --example fsync [-- overwrite varmail oltp bytes recovery]`
//!
//! The drive is that of [`persimmon_sim::time`]: a write or read of n KiB takes 10 us + 0.9 us x n, zones
//! work in parallel; with power-loss protection (PLP) there is no flush, without it a flush takes
//! 600 us. Computing takes no time in `overwrite`, `bytes` and `recovery`, 1 us a call in `varmail`, 100 us a transaction in
//! `oltp`.
//! Checkpoints are written by a client of their own that looks every 50 virtual milliseconds, as
//! the background thread of a mount does. Everything is computed from seeds.

mod bytes;
mod oltp;
mod overwrite;
mod recovery;
mod setup;
mod varmail;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use setup::Failure;

/// Measures fsync in virtual time.
#[derive(Parser)]
struct Arguments {
    /// What to measure; everything if nothing is named.
    parts: Vec<Part>,
    /// Seed of offsets and sizes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads of the mail server, and of the database.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16])]
    threads: Vec<u64>,
    /// Answer failure when a bar is missed.
    #[arg(long)]
    check: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// One thread, random overwrites then fsync: both orders, with and without a volatile cache.
    Overwrite,
    /// The mix of a mail server, 1, 4 and 16 threads.
    Varmail,
    /// Transactions of a database, 1, 4 and 16 threads.
    Oltp,
    /// Device bytes per fsync.
    Bytes,
    /// Time of recovery by journal length and volume size.
    Recovery,
}

fn main() -> Result<ExitCode, Failure> {
    let arguments = Arguments::parse();
    let wanted = |part| arguments.parts.is_empty() || arguments.parts.contains(&part);
    let seed = arguments.seed;
    let mut missed = 0;
    if wanted(Part::Overwrite) {
        missed += overwrite::measure(seed)?;
    }
    if wanted(Part::Varmail) {
        missed += varmail::measure(&arguments.threads, seed)?;
    }
    if wanted(Part::Oltp) {
        missed += oltp::measure(&arguments.threads, seed)?;
    }
    if wanted(Part::Bytes) {
        missed += bytes::measure(seed)?;
    }
    if wanted(Part::Recovery) {
        missed += recovery::measure(seed)?;
    }
    println!("{missed} bars missed");
    let failed = arguments.check && missed > 0;
    Ok(ExitCode::from(u8::from(failed)))
}
