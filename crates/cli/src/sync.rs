//! `persimmon sync`: makes everything on a mounted volume durable. The kernel does not tell every
//! mount of sync(2) and syncfs(2), so there has to be another way.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::live::{self, Target, is_abandoned};
use crate::output;
use crate::report::Info;

/// How often the kernel is asked again to pass on what it holds back, while users write beyond their quota.
const TRIES_OVER_QUOTA: usize = 3;

/// Make everything on a mounted volume durable.
#[derive(Args)]
pub struct Sync {
    /// A directory of the mount, or its device
    target: OsString,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What the daemon answers.
#[derive(Serialize, Deserialize)]
pub struct Synced {
    /// Everything that was done before the question.
    pub durable: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Synced {
    /// What is to be told where not everything is durable.
    pub fn why_not(&self) -> Option<&str> {
        let why = self.reason.as_deref();
        (!self.durable).then(|| why.unwrap_or("see the log of its daemon"))
    }

    /// # Errors
    /// Not everything is durable.
    pub fn check(&self) -> Result<()> {
        match self.why_not() {
            Some(why) => bail!("the volume could not be written: {why}"),
            None => Ok(()),
        }
    }
}

impl Sync {
    pub fn run(&self) -> Result<u8> {
        let dir = Target::mounted(&self.target, ": nothing waits to be written")?;
        let synced = make_durable(&dir)?;
        let said = if self.json {
            output::json(&synced)
        } else {
            Ok(())
        };
        synced.check()?;
        output::done(0, said)
    }
}

/// Makes everything on the mount at `dir` durable, or tells why the daemon could not.
///
/// # Errors
/// When nobody answers there.
pub fn make_durable(dir: &Path) -> Result<Synced> {
    // Opening a directory, which comes first, waits for a daemon for as long as that is stopped; a question does not.
    live::ask::<Info>(dir, "info")?;
    let written = write_back(dir);
    let synced = have_made_durable(dir)?;
    // If nothing is wrong with the volume, the kernel could not pass on something else.
    if synced.durable {
        written?;
    }
    Ok(synced)
}

/// Has the kernel pass on what it still holds back (shared maps, `-o writeback_cache`), which has to come first.
///
/// What somebody wrote beyond a limit of theirs is given up by the kernel, who tells the first one that asks, and whoever wrote it when they
/// sync or close the file: nothing is wrong with the volume, and what can be passed on is. The kernel keeps one error for all of a mount: one
/// of other pages before it is told to who syncs their file alone.
///
/// # Errors
/// When it cannot.
pub fn write_back(dir: &Path) -> Result<()> {
    let pass_on = || File::open(dir).and_then(|dir| Ok(rustix::fs::syncfs(dir)?));
    let is_over_quota = |passed: &std::io::Result<()>| {
        let error = passed.as_ref().err();
        error.and_then(Errno::from_io_error) == Some(Errno::DQUOT)
    };
    let mut passed = pass_on();
    for _ in 0..TRIES_OVER_QUOTA {
        if !is_over_quota(&passed) {
            break;
        }
        passed = pass_on();
    }
    match passed {
        passed if is_over_quota(&passed) => {
            tracing::warn!(dir = %dir.display(), "what somebody wrote beyond a quota is given up");
            Ok(())
        }
        // Who is asked next tells more.
        Err(_) if is_abandoned(dir) => Ok(()),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOSPC) => {
            Err(anyhow!("{}: {}", dir.display(), why_no_space(dir)))
        }
        result => result.with_context(|| format!("syncfs of {}", dir.display())),
    }
}

/// Why there is no space on a mount, for whom the system told only that: its daemon knows whether the volume is full, or the filesystem that
/// its image is on.
pub fn why_no_space(dir: &Path) -> String {
    let synced = have_made_durable(dir).ok();
    let why = synced.as_ref().and_then(Synced::why_not);
    let unknown = "no space is left on the volume, or on the host filesystem below its image";
    why.unwrap_or(unknown).to_owned()
}

/// The same of what the daemon has. What the kernel holds back is not waited for: that it cannot be written is told to whoever syncs that.
///
/// # Errors
/// When nobody answers there.
pub fn have_made_durable(dir: &Path) -> Result<Synced> {
    live::ask_for_work(dir, "sync")
}
