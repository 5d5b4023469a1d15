//! Developer commands: `cargo xtask demo`, `test`, `bench`, `copies`, `large`, `requests`, `peers`, `simulate`, `hosted`, `interleave`, `pins`, `tidy`, `vm`, `setup`. Run one with `--help` for its options.

mod bench;
mod capi;
mod copies;
mod demo;
mod figures;
mod hosted;
mod interleave;
mod large;
mod peers;
mod pins;
mod requests;
mod rocksdb;
mod setup;
mod shell;
mod simulate;
mod test;
mod tidy;
mod vm;
mod volume;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer commands of Persimmon")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure speed through the mount beside ext4 on a loop device, and of the library alone
    Bench(bench::Options),
    /// Count what the kernel asks of a FUSE mount while a command runs
    Requests(requests::Options),
    /// Compare how fast directories are copied to Persimmon and to btrfs, compressed and not, and what they take there
    Copies(copies::Options),
    /// Measure large files read and written in sequence beside ext4, and the processor time of the daemon
    Large(large::Options),
    /// Build the C library, with versioned symbols
    Capi(capi::Options),
    /// Show what Persimmon does, on one page: programs, cleaning, SIGKILL and recovery, with proofs
    Demo(demo::Options),
    /// Compare what Persimmon, f2fs, btrfs, XFS and ext4 send to their drives, in a virtual machine
    Peers(peers::Options),
    /// Build the RocksDB plugin, and run RocksDB's own programs through it
    Rocksdb(rocksdb::Options),
    /// Cut the power of simulated devices, a million times if you like, and compare what is recovered
    Simulate(simulate::Options),
    /// Let clients work with the library on images whose host loses power, and compare what is recovered
    Hosted(hosted::Options),
    /// Let several clients work on simulated devices at once, cut the power, and compare what is recovered
    Interleave(interleave::Options),
    /// Measure points of the engine's behaviour on simulated devices, and compare them with those that are committed
    Pins(pins::Options),
    /// Run everything: packages, formatting, lints, tidy, unit and property tests, mount tests
    Test(test::Options),
    /// Check file sizes, layering, the format document, tables of the command's document, links and dead files
    Tidy {
        /// Record the present hash of crates/format/src in docs/FORMAT.md, and write the tables of docs/CLI.md
        #[arg(long)]
        bless: bool,
    },
    /// Run a command in a virtual machine with emulated zoned drives
    Vm(vm::Options),
    /// Install the packages and tools that tests, demo and benchmarks use
    Setup,
}

fn main() -> ExitCode {
    match run(Args::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one command; true when everything it checked holds.
fn run(command: Command) -> Result<bool> {
    let root = workspace_root();
    std::env::set_current_dir(&root)?;
    match command {
        Command::Bench(options) => bench::run(&options),
        Command::Requests(options) => requests::run(&options),
        Command::Copies(options) => copies::run(&options),
        Command::Large(options) => large::run(&options),
        Command::Capi(options) => capi::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::Peers(options) => peers::run(&options),
        Command::Rocksdb(options) => rocksdb::run(&options),
        Command::Simulate(options) => simulate::run(&options),
        Command::Hosted(options) => hosted::run(&options),
        Command::Interleave(options) => interleave::run(&options),
        Command::Pins(options) => pins::run(&options),
        Command::Test(options) => test::run(&options),
        Command::Tidy { bless: true } => tidy::bless(&root).map(|()| true),
        Command::Tidy { bless: false } => Ok(tidy::report(&tidy::check(&root)?)),
        Command::Vm(options) => vm::run(&options),
        Command::Setup => setup::run().map(|()| true),
    }
}

fn workspace_root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}
