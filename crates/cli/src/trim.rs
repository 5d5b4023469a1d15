//! `persimmon trim`: has a mounted volume free what it can give back now.

use anyhow::Result;
use clap::Args;
use persimmon_fuse::size::show_bytes;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;

use crate::control::{Command, ask};
use crate::live::Target;
use crate::output::{self, say};

/// Free the zones of a mounted volume in which nothing is live, and have the device reset them.
///
/// `fstrim` does the same, and tells how much is free then. It happens by itself, sooner or later; `persimmon clean` moves data to make zones empty.
#[derive(Args)]
pub struct Trim {
    /// A directory of the mount, or its device
    target: OsString,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What the daemon answers.
#[derive(Serialize, Deserialize)]
pub struct Trimmed {
    /// Of zones that became free.
    pub trimmed_bytes: u64,
}

impl Trim {
    pub fn run(&self) -> Result<u8> {
        let dir = Target::mounted(&self.target, ": nothing has to be given back")?;
        let Trimmed { trimmed_bytes } = ask(&dir, &Command::Trim)?;
        let said = if self.json {
            output::json(&Trimmed { trimmed_bytes })
        } else {
            tell(trimmed_bytes)
        };
        output::done(0, said)
    }
}

fn tell(bytes: u64) -> Result<()> {
    say!("{} freed", show_bytes(bytes))?;
    Ok(())
}
