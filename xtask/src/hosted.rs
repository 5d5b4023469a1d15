//! `cargo xtask hosted`: the library on images whose host loses power, many times, in a release build.

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
    let mut cargo = shell::command(&["cargo", "run", "--quiet", "--release"]);
    cargo.args(["--package", "persimmon-crash", "--example", "hosted", "--"]);
    shell::succeeds(cargo.args(&options.runs))
}
