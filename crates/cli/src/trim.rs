//! `persimmon trim`: has a mounted volume free what it can give back now.

use std::fs::File;

use anyhow::{Context, Result, bail};
use clap::Args;
use persimmon_fuse::size::show_bytes;
use rustix::io::Errno;
use serde::Serialize;

use crate::live::Target;
use crate::output::{self, say};

/// Free the zones of a mounted volume in which nothing is live, and have the device reset them.
///
/// `fstrim` does the same. It happens by itself, sooner or later; `persimmon clean` moves data to make zones empty.
#[derive(Args)]
pub struct Trim {
    /// A directory of the mount, or its device
    target: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `--json`.
#[derive(Serialize)]
struct Trimmed {
    trimmed_bytes: u64,
}

impl Trim {
    pub fn run(&self) -> Result<u8> {
        let dir = Target::mounted(&self.target, ": nothing has to be given back")?;
        let shown = dir.display();
        let file = File::open(&dir).with_context(|| format!("{shown}"))?;
        let trimmed_bytes = match persimmon_fuse::trim::trim(&file) {
            Ok(bytes) => bytes,
            Err(Errno::NOTTY) => bail!("the daemon of {shown} is too old for this command"),
            Err(Errno::PERM) => bail!("{shown}: only root and the user who mounted it may do that"),
            Err(error) => return Err(error).with_context(|| format!("{shown}")),
        };
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
