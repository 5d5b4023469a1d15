//! `cargo xtask bench`: speed through the mount beside ext4 on a loop device in the same run, and of the
//! library alone.
//!
//! Each round makes both filesystems afresh on sparse files in one directory and takes the rows in turn,
//! first the one, then the other, in the next round the other way round. What counts is the median of the
//! rounds' ratios: the machine's moods hit both. Rows of requests alone are taken by a filesystem that does
//! nothing too, which hears the same requests on the same transport: what is missing there is the price of
//! requests and transport. Both are served through rings where the kernel is set to offer them.

pub mod nothing;
mod phases;
mod report;
pub mod rings;
mod rows;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::volume::{self, Kind, Volume};
use crate::{demo, setup, shell};
use nothing::Nothing;
use report::{Column, Report};
use rings::TurnedOn;
use rows::{ROWS, Row};

/// How to measure.
#[derive(Args)]
pub struct Options {
    /// Rounds, of which the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// Fail when a bar is missed
    #[arg(long)]
    check: bool,
    /// Leave the kernel's setting for FUSE over io_uring as it is; otherwise it is on meanwhile, where
    /// the kernel has it
    #[arg(long)]
    no_io_uring: bool,
    /// Install nothing
    #[arg(long)]
    no_setup: bool,
    /// Where the images go, for a few minutes: four gigabytes
    #[arg(long, default_value = "/var/tmp")]
    work: PathBuf,
    /// Everything is built, this is root, and these are the library's figures
    #[arg(long, hide = true)]
    library: Option<String>,
    /// Only rows with one of these in their name
    filters: Vec<String>,
}

/// Builds and measures, as root; true unless a bar was to be checked and was missed.
pub fn run(options: &Options) -> Result<bool> {
    if let Some(library) = &options.library {
        volume::watch_for_interrupts()?;
        return measure(options, library);
    }
    if !options.no_setup {
        setup::run()?;
    }
    demo::build()?;
    nothing::build()?;
    let me = std::env::current_exe()?;
    let me = me.to_str().context("the path of this program is no text")?;
    let work = options.work.to_str().context("--work is no text")?;
    let (rounds, library) = (options.rounds.to_string(), library()?);
    let mut words = vec![me, "bench", "--rounds", &rounds, "--work", work];
    words.extend(["--library", &library]);
    words.extend(options.json.then_some("--json"));
    words.extend(options.check.then_some("--check"));
    words.extend(options.no_io_uring.then_some("--no-io-uring"));
    words.extend(options.filters.iter().map(String::as_str));
    shell::succeeds(&mut shell::as_root(&words))
}

/// The library's own figures, as JSON; measured before anything else runs.
fn library() -> Result<String> {
    eprintln!("building and measuring the library");
    let output = shell::command(&[
        "cargo",
        "run",
        "--release",
        "--quiet",
        "--package",
        "persimmon",
        "--example",
        "throughput",
    ])
    .stderr(Stdio::inherit())
    .output()?;
    ensure!(output.status.success(), "the example `throughput` failed");
    let text = String::from_utf8(output.stdout).context("the library's figures")?;
    Ok(text.trim().to_owned())
}

/// More than a FUSE filesystem needs to hear what the kernel forgot.
const FORGETTING: Duration = Duration::from_millis(500);

/// Room for all rows.
const IMAGE_BYTES: u64 = 4 << 30;

fn measure(options: &Options, library: &str) -> Result<bool> {
    let library: Value = serde_json::from_str(library).context("reading the library's figures")?;
    let temporary = tempfile::Builder::new()
        .prefix("persimmon-bench-")
        .tempdir_in(options.work.canonicalize()?)?;
    let rows: Vec<&Row> = ROWS
        .iter()
        .filter(|row| {
            options.filters.is_empty() || options.filters.iter().any(|name| row.name.contains(name))
        })
        .collect();
    let phases = options.filters.is_empty()
        || options
            .filters
            .iter()
            .any(|name| phases::NAME.contains(name.as_str()));
    let turned_on = (!options.no_io_uring).then(TurnedOn::new).transpose();
    let _turned_on = turned_on.unwrap_or_else(|error| {
        eprintln!("{error:#} Measuring as the kernel is set.");
        None
    });
    let mut report = Report::new(rings::are_on());
    report.library(&library);
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        let mut kinds = [
            (Kind::Persimmon, Column::Persimmon),
            (Kind::Ext4, Column::Ext4),
        ];
        if round % 2 == 1 {
            kinds.reverse();
        }
        if !rows.is_empty() {
            take(temporary.path(), kinds, &rows, &mut report)?;
        }
        if phases {
            let cold = |volume: &Volume| settle(volume, true);
            let measured = phases::take(&volume::persimmon()?, temporary.path(), cold);
            report.phases(measured.context(phases::NAME)?);
        }
    }
    if options.json {
        println!("{:#}", report.json());
    } else {
        print!("{}", report.table());
    }
    Ok(!options.check || report.all_met())
}

/// One round: every row on both, and on nothing.
fn take(work: &Path, kinds: [(Kind, Column); 2], rows: &[&Row], report: &mut Report) -> Result<()> {
    let persimmon = volume::persimmon()?;
    let create = |kind: Kind| {
        let volume = Volume::create(kind, &persimmon, work, kind.name(), IMAGE_BYTES, &[])?;
        volume.mount()?;
        anyhow::Ok(volume)
    };
    let volumes = [create(kinds[0].0)?, create(kinds[1].0)?];
    let nothing = Nothing::mount(work)?;
    for row in rows {
        for (volume, (_, column)) in volumes.iter().zip(kinds) {
            let rate = measure_one(row, &volume.dir, || settle(volume, row.cold))
                .with_context(|| format!("{} on {:?}", row.name, volume.kind))?;
            report.record(row, column, rate);
        }
        if row.requests_alone {
            let rate = measure_one(row, &nothing.dir, || forget(row.cold))
                .with_context(|| format!("{} on the filesystem that does nothing", row.name))?;
            report.record(row, Column::Nothing, rate);
        }
    }
    for volume in &volumes {
        volume.unmount()?;
        std::fs::remove_file(&volume.image)?;
    }
    Ok(())
}

fn measure_one(row: &Row, dir: &Path, settle: impl FnOnce() -> Result<()>) -> Result<f64> {
    volume::go_on()?;
    (row.prepare)(dir).context("preparing")?;
    settle()?;
    (row.measure)(dir)
}

/// Nothing of what was before is left to write; for a cold row nothing is left to know either.
fn settle(volume: &Volume, cold: bool) -> Result<()> {
    if cold {
        volume.unmount()?;
    }
    forget(cold)?;
    if cold {
        volume.mount()?;
    }
    Ok(())
}

/// The kernel has nothing left to write; for a cold row it knows nothing of what is not in use.
fn forget(cold: bool) -> Result<()> {
    rustix::fs::sync();
    if cold {
        std::fs::write("/proc/sys/vm/drop_caches", "3")?;
        // Of a FUSE filesystem that stays mounted it tells for each inode that it forgot it.
        std::thread::sleep(FORGETTING);
    }
    Ok(())
}
