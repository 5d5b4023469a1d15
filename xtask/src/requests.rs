//! `cargo xtask requests DIR COMMAND...`: what the kernel asks of a FUSE mount while a command runs, and how often the daemon's
//! threads sleep and how long they work for it. Counts do not depend on how busy the machine is, as rates do.
//!
//! The kernel's own tracepoint counts, so any FUSE filesystem can be looked at. Run as root.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context, Result, ensure};
use clap::Args;

/// Where the kernel's tracing is.
const TRACING: &str = "/sys/kernel/tracing";
const EVENT: &str = "events/fuse/fuse_request_send/enable";
/// For each processor: some 700,000 requests.
const BUFFER_KIB: &str = "65536";
/// What the kernel sends without waiting comes a little later.
const SETTLING: Duration = Duration::from_millis(300);

/// What to count.
#[derive(Args)]
pub struct Options {
    /// Divide by so many operations
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    operations: u64,
    /// The process that serves the mount, if what it takes is to be told too
    #[arg(long)]
    daemon: Option<u32>,
    /// A directory of the mount, with its whole path
    dir: PathBuf,
    /// What is to be run, in the root of the workspace
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<String>,
}

/// Runs the command and prints the table; true if it succeeded.
pub fn run(options: &Options) -> Result<bool> {
    let connection = fs::metadata(&options.dir)
        .with_context(|| format!("{}", options.dir.display()))?
        .dev();
    let before = options.daemon.map(Taken::by).transpose()?;
    let tracing = Tracing::start()?;
    let (program, arguments) = options.command.split_first().context("no command")?;
    let status = Command::new(program).args(arguments).status();
    let status = status.with_context(|| program.clone())?;
    thread::sleep(SETTLING);
    let counts = tracing.stop(connection)?;
    let total: u64 = counts.values().sum();
    let each = |count: u64| count as f64 / options.operations as f64;
    let mut sorted: Vec<(&String, &u64)> = counts.iter().collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for (kind, count) in sorted {
        println!("{kind:<18} {count:>9} {:>9.2}", each(*count));
    }
    println!("{:<18} {total:>9} {:>9.2}", "all requests", each(total));
    if let (Some(before), Some(daemon)) = (before, options.daemon) {
        let after = Taken::by(daemon)?;
        let (switches, micros) = (
            after.switches - before.switches,
            after.micros - before.micros,
        );
        println!("{:<18} {switches:>9} {:>9.2}", "switches", each(switches));
        println!(
            "{:<18} {micros:>9} {:>9.2}",
            "us of processor",
            each(micros)
        );
    }
    Ok(status.success())
}

/// What the threads of a process have taken so far. Those that ended are left out.
pub struct Taken {
    pub switches: u64,
    pub micros: u64,
}

impl Taken {
    pub fn by(process: u32) -> Result<Taken> {
        let mut taken = Taken {
            switches: 0,
            micros: 0,
        };
        for thread in fs::read_dir(format!("/proc/{process}/task"))? {
            let thread = thread?.path();
            let status = fs::read_to_string(thread.join("status"))?;
            let lines = status.lines().filter(|line| line.contains("ctxt_switches"));
            let counts =
                lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
            taken.switches += counts.sum::<u64>();
            let times = fs::read_to_string(thread.join("schedstat"))?;
            let nanoseconds = times.split_whitespace().next().unwrap_or_default();
            taken.micros += nanoseconds.parse::<u64>().context("schedstat")? / 1000;
        }
        Ok(taken)
    }
}

/// A trace of its own, beside whatever else is traced, until dropped.
struct Tracing(PathBuf);

impl Tracing {
    fn start() -> Result<Tracing> {
        let dir = Path::new(TRACING).join(format!("instances/persimmon-{}", std::process::id()));
        fs::create_dir(&dir)
            .with_context(|| format!("{}: as root, where tracefs is mounted", dir.display()))?;
        let tracing = Tracing(dir);
        tracing.set("buffer_size_kb", BUFFER_KIB)?;
        tracing.set(EVENT, "1")?;
        Ok(tracing)
    }

    fn set(&self, what: &str, value: &str) -> Result<()> {
        let path = self.0.join(what);
        fs::write(&path, value).with_context(|| format!("{}", path.display()))
    }

    /// How many requests of each kind there were on a connection.
    fn stop(self, connection: u64) -> Result<BTreeMap<String, u64>> {
        self.set(EVENT, "0")?;
        let trace = fs::read_to_string(self.0.join("trace"))?;
        let mut counts = BTreeMap::new();
        let device =
            (rustix::fs::major(connection) << 20 | rustix::fs::minor(connection)).to_string();
        for line in trace.lines() {
            let Some((_, event)) = line.split_once("fuse_request_send: connection ") else {
                ensure!(
                    !line.contains("LOST"),
                    "more requests than there was room for"
                );
                continue;
            };
            // `connection N req N opcode N (NAME) len N`
            let kind = event
                .split_once('(')
                .and_then(|(_, rest)| rest.split_once(')'));
            if let Some((kind, _)) = kind
                && event.split_whitespace().next() == Some(device.as_str())
            {
                let kind = kind.trim_start_matches("FUSE_").to_owned();
                *counts.entry(kind).or_default() += 1;
            }
        }
        Ok(counts)
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}
