//! `cargo xtask interleave`: several clients at once, in builds whose threads a seed chooses between.

use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::shell;

/// Passed on as they are.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Options {
    /// Options of the runs; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    runs: Vec<String>,
}

/// Builds and runs them; true when nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    let mut cargo = cargo("run");
    cargo.args(["--quiet", "--release", "--example", "threads", "--"]);
    shell::succeeds(cargo.args(&options.runs))
}

/// A cargo whose builds are kept apart from the others: all they consist of is compiled for the scheduler.
pub fn cargo(command: &str) -> Command {
    let mut cargo = shell::command(&["cargo", command, "--package", "persimmon-crash"]);
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    cargo.env("RUSTFLAGS", format!("{flags} --cfg interleave"));
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    cargo.env("CARGO_TARGET_DIR", format!("{target}/interleave"));
    cargo
}
