//! `persimmon sync`: makes everything on a mounted volume durable. The kernel does not tell every
//! mount of sync(2) and syncfs(2), so there has to be another way.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::live::{self, Target, is_abandoned};
use crate::output;

/// Make everything on a mounted volume durable.
#[derive(Args)]
pub struct Sync {
    /// A directory of the mount, or its device
    target: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What the daemon answers.
#[derive(Serialize, Deserialize)]
pub struct Synced {
    /// Everything that was done before the question.
    pub durable: bool,
}

impl Sync {
    pub fn run(&self) -> Result<u8> {
        let Target::Live(dir) = Target::of(&self.target)? else {
            bail!(
                "{} is not mounted: nothing waits to be written",
                self.target
            );
        };
        let durable = make_durable(&dir)?;
        if self.json {
            output::json(&Synced { durable })?;
        }
        if !durable {
            bail!("the volume could not be written; see the log of its daemon");
        }
        Ok(0)
    }
}

/// Makes everything on the mount at `dir` durable; false if the daemon could not, and has logged why.
///
/// # Errors
/// When nobody answers there.
pub fn make_durable(dir: &Path) -> Result<bool> {
    // What the kernel still holds back (shared maps, `-o writeback_cache`) has to come first.
    match File::open(dir).and_then(|dir| Ok(rustix::fs::syncfs(dir)?)) {
        // Who is asked next tells more.
        Err(_) if is_abandoned(dir) => {}
        result => result.with_context(|| format!("syncfs of {}", dir.display()))?,
    }
    let synced: Synced = live::ask_for_work(dir, "sync")?;
    Ok(synced.durable)
}
