//! `cargo xtask simulate`: long campaigns of crash states, in a release build.

use anyhow::Result;
use clap::Args;

use crate::shell;

/// Passed on as they are.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Options {
    /// Options of the campaign; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    campaign: Vec<String>,
}

/// Builds and runs the campaign; true when nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    let mut cargo = shell::command(&["cargo", "run", "--quiet", "--release"]);
    cargo.args([
        "--package",
        "persimmon-crash",
        "--example",
        "simulate",
        "--",
    ]);
    shell::succeeds(cargo.args(&options.campaign))
}
