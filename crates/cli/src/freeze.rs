//! `persimmon freeze` and `persimmon thaw`: a mounted volume whose device is not written, so that a copy can be taken below.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;
use std::{io, thread};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use persimmon_fuse::freeze::{self, Answer, SECONDS_MAX};
use rustix::io::Errno;
use serde::Serialize;

use crate::live::Target;
use crate::output::{self, say};

/// How long a freeze lasts if the process that holds it is gone.
const HELD: Duration = Duration::from_secs(10);
/// How often it is prolonged.
const PROLONGED_EVERY: Duration = Duration::from_secs(2);

/// Freeze a mounted volume: everything is durable, nothing is written to the device, and changes wait.
///
/// With COMMAND it is frozen while that runs. Without, until `persimmon thaw`, and no longer than --seconds.
#[derive(Args)]
pub struct Freeze {
    /// A directory of the mount, or its device
    target: OsString,
    /// The longest that it lasts without COMMAND, 1 to 3600
    #[arg(long, value_name = "N", default_value_t = 60, conflicts_with = "command",
          value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    seconds: u64,
    /// Print JSON
    #[arg(long, conflicts_with = "command")]
    json: bool,
    /// What to do meanwhile; its exit code is that of this command
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// End the freeze of a mounted volume: what waits is done.
#[derive(Args)]
pub struct Thaw {
    /// A directory of the mount, or its device
    target: OsString,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `--json` of `freeze`.
#[derive(Serialize)]
struct Frozen {
    seconds_max: u64,
}

/// `--json` of `thaw`.
#[derive(Serialize)]
struct Thawed {
    frozen_seconds: f64,
}

impl Freeze {
    pub fn run(&self) -> Result<u8> {
        let dir = Target::mounted(&self.target, ": nothing is written to it")?;
        // What the kernel still holds back has to come first.
        crate::sync::write_back(&dir)?;
        let time = match self.command.is_empty() {
            true => Duration::from_secs(self.seconds),
            false => HELD,
        };
        let number = match freeze::freeze(&dir, time).map_err(|error| refused(&dir, &error))? {
            Answer::Frozen(number) => number,
            Answer::Thawed(_) | Answer::NotFrozen(_) => bail!("{} is not frozen", dir.display()),
        };
        let Some((program, arguments)) = self.command.split_first() else {
            let said = if self.json {
                output::json(&Frozen {
                    seconds_max: self.seconds,
                })
            } else {
                tell_frozen(&dir, self.seconds)
            };
            return output::done(0, said);
        };
        let started = Command::new(program).args(arguments).spawn();
        let ended = started.and_then(|child| hold(&dir, number, child));
        // Whatever became of the command.
        let thawed = freeze::thaw(&dir, number);
        let status = ended.with_context(|| program.display().to_string())?;
        match thawed.map_err(|error| refused(&dir, &error))? {
            Answer::Thawed(_) => Ok(code(status)),
            Answer::NotFrozen(why) => bail!(
                "{} was not frozen to the end: {}. What {} made of it is not of one moment",
                dir.display(),
                why.why(),
                program.display()
            ),
            Answer::Frozen(_) => bail!("{} stays frozen", dir.display()),
        }
    }
}

/// Waits for a process, and prolongs the freeze while it runs.
fn hold(dir: &Path, number: u64, mut child: Child) -> io::Result<ExitStatus> {
    let (ended, has_ended) = sync_channel(1);
    let waiter = thread::spawn(move || {
        let status = child.wait();
        // Somebody listens until this has come.
        let _ = ended.send(());
        status
    });
    while let Err(RecvTimeoutError::Timeout) = has_ended.recv_timeout(PROLONGED_EVERY) {
        // Where it has ended, thawing tells.
        let _ = freeze::prolong(dir, number, HELD);
    }
    let joined = waiter.join();
    joined.unwrap_or_else(|_| Err(io::Error::other("nobody waits for it")))
}

/// As a shell has it.
fn code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

impl Thaw {
    pub fn run(&self) -> Result<u8> {
        let dir = Target::mounted(&self.target, ": it is not frozen")?;
        let time = match freeze::thaw(&dir, 0).map_err(|error| refused(&dir, &error))? {
            Answer::Thawed(time) => time,
            Answer::NotFrozen(why) => bail!("{}: {}", dir.display(), why.why()),
            Answer::Frozen(_) => bail!("{} stays frozen", dir.display()),
        };
        let frozen_seconds = (time.as_secs_f64() * 1000.0).round() / 1000.0;
        let said = if self.json {
            output::json(&Thawed { frozen_seconds })
        } else {
            tell_thawed(&dir, frozen_seconds)
        };
        output::done(0, said)
    }
}

fn tell_frozen(dir: &Path, seconds: u64) -> Result<()> {
    let dir = dir.display();
    say!("{dir} is frozen: `persimmon thaw {dir}` within {seconds} seconds")?;
    Ok(())
}

fn tell_thawed(dir: &Path, seconds: f64) -> Result<()> {
    say!("{} was frozen for {seconds} seconds", dir.display())?;
    Ok(())
}

fn refused(dir: &Path, error: &io::Error) -> anyhow::Error {
    let why_no_space = || crate::sync::why_no_space(dir);
    let dir = dir.display();
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC) => anyhow!("{dir}: {}", why_no_space()),
        Some(Errno::PERM) => anyhow!("{dir}: only root and the user who mounted it may do that"),
        Some(Errno::BUSY) => {
            anyhow!("{dir} is frozen already, or changes that are under way do not end")
        }
        Some(Errno::NOTTY) => anyhow!("the daemon of {dir} is too old for this command"),
        Some(Errno::INTR) => anyhow!("{dir} was thawed before it was frozen"),
        _ => anyhow!("{dir}: {error}"),
    }
}
