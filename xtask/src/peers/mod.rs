//! `cargo xtask peers`: the same workloads in the same guest on Persimmon and on what its users pick
//! instead, with what each sends to its drives.

pub mod filesystem;
mod report;
mod rows;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Error, Result, bail, ensure};
use clap::Args;

use crate::vm::counters::Counters;
use crate::vm::drive::{Drive, Kind};
use crate::vm::guest::{Clock, Guest, Machine};
use crate::vm::host_root;
use crate::vm::kernel::Kernel;
use crate::{setup, vm, volume};

use filesystem::{DIR, Filesystem};
use report::{Figures, Report};
use rows::{Row, Unit};

/// What to compare.
#[derive(Args)]
pub struct Options {
    /// Capacity of a filesystem's drives together, MiB
    #[arg(long, default_value_t = 2048)]
    size_mib: u64,
    /// Size of a zone, MiB
    #[arg(long, default_value_t = 4)]
    zone_mib: u64,
    /// What of a zone can be written, MiB [default: all of it]
    #[arg(long)]
    capacity_mib: Option<u64>,
    /// Only these: persimmon, f2fs, btrfs, xfs, ext4; and, measured only if named here, persimmon-plain (neither
    /// compression nor deltas), persimmon-zstd and btrfs-zstd (zstd:1)
    #[arg(long, num_args = 1..)]
    only: Vec<String>,
    /// Only workloads with one of these in their name
    #[arg(long, num_args = 1..)]
    rows: Vec<String>,
    /// Kernel of the guest: `6.1`, `6.12` or `sid`; other filesystems want the last one
    #[arg(long, default_value = "sid", value_parser = Kernel::parse)]
    kernel: Kernel,
    /// Memory of the guest, MiB
    #[arg(long, default_value_t = 1536)]
    memory_mib: u32,
    /// MiB that the guest's page cache may hold of what is not yet written; as the kernel has it: some fifth of
    /// its memory, which on drives as small as these overwrites much in memory
    #[arg(long)]
    dirty_mib: Option<u32>,
    /// Write the figures to this file too, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Install and build nothing
    #[arg(long)]
    no_setup: bool,
}

/// For one command in the guest.
const LIMIT: Duration = Duration::from_secs(3600);
/// For its counters, when something has failed.
const STATS_LIMIT: Duration = Duration::from_secs(60);
/// For all rows of a filesystem.
const LIFE_LIMIT: Duration = Duration::from_secs(6 * 3600);

/// Measures and prints the table; whether Persimmon failed nowhere.
pub fn run(options: &Options) -> Result<bool> {
    volume::watch_for_interrupts()?;
    if !options.no_setup {
        setup::packages()?;
        vm::build()?;
    }
    let chosen = |filesystem: &&Filesystem| match options.only.as_slice() {
        [] => !filesystem.by_name_only,
        names => names.iter().any(|name| name == filesystem.name),
    };
    let filesystems: Vec<&Filesystem> = filesystem::ALL.iter().filter(chosen).collect();
    if filesystems.is_empty() {
        bail!("there is none of these names");
    }
    let wanted = |row: &Row| {
        options.rows.is_empty() || options.rows.iter().any(|part| row.name.contains(part))
    };
    let rows: Vec<Row> = rows::all(options.size_mib)
        .into_iter()
        .filter(wanted)
        .collect();
    let mut set_up = format!("mkdir -p {DIR}");
    if let Some(mib) = options.dirty_mib {
        set_up += &format!(
            " && echo {} >/proc/sys/vm/dirty_bytes",
            u64::from(mib) << 20
        );
    }
    let mut report = Report::new(options.size_mib, options.zone_mib);
    for filesystem in filesystems {
        let machine = Machine {
            kernel: options.kernel,
            drives: drives(filesystem, options)?,
            memory_mib: options.memory_mib,
            cpus: 2,
            programs: vm::programs()?,
            clock: Clock::Host,
            sees_host: rows.iter().any(|row| row.programs),
            life_limit: LIFE_LIMIT,
        };
        let save = |report: &Report| match &options.json {
            Some(path) => write_json(path, report),
            None => Ok(()),
        };
        let place = Place {
            machine: &machine,
            set_up: &set_up,
            tests: &volume::built("drive-tests")?,
        };
        measure(filesystem, &place, &rows, &mut report, &save)?;
    }
    print!("{}", report.table());
    Ok(!report.has_failed("persimmon"))
}

/// The drives of a filesystem. Zones of which a part cannot be written are as many as it takes.
fn drives(filesystem: &Filesystem, options: &Options) -> Result<Vec<Drive>> {
    let mut drives = filesystem.drives(options.size_mib, options.zone_mib)?;
    if let Some(mib) = options.capacity_mib {
        ensure!(
            (1..=options.zone_mib).contains(&mib),
            "a zone of {} MiB cannot have {mib} MiB to be written",
            options.zone_mib
        );
        for drive in &mut drives {
            if drive.kind == Kind::Nvme {
                drive.capacity_bytes = mib << 20;
                drive.size_bytes = drive.size_bytes / drive.capacity_bytes * drive.zone_bytes;
            }
        }
    }
    Ok(drives)
}

/// Where a filesystem is measured.
struct Place<'a> {
    machine: &'a Machine,
    /// What is run first.
    set_up: &'a str,
    /// The program of the workloads, on this machine.
    tests: &'a Path,
}

impl Place<'_> {
    fn boot(&self) -> Result<Guest> {
        let mut guest = Guest::boot(self.machine)?;
        guest.check(self.set_up, LIMIT)?;
        if self.machine.sees_host {
            host_root::set_up(&mut guest)?;
        }
        Counters::set_up(&mut guest)?;
        Ok(guest)
    }

    /// The guest's command that does this work.
    fn work(&self, row: &Row, work: &str) -> Result<String> {
        if row.programs {
            host_root::command(&format!("{} work {work}", self.tests.display()))
        } else {
            Ok(format!("drive-tests work {work}"))
        }
    }
}

fn write_json(path: &Path, report: &Report) -> Result<()> {
    let text = serde_json::to_string_pretty(&report.json())?;
    Ok(std::fs::write(path, text)?)
}

/// Takes all rows; what there is so far is saved after each.
fn measure(
    filesystem: &Filesystem,
    place: &Place,
    rows: &[Row],
    report: &mut Report,
    save: &dyn Fn(&Report) -> Result<()>,
) -> Result<()> {
    let mut guest = place.boot()?;
    report.kernel(guest.check("uname -r", LIMIT)?.trim());
    report.usable(filesystem.name, usable(&mut guest, filesystem)?);
    for row in rows {
        let figures = match row_of(&mut guest, filesystem, place, row) {
            Ok(figures) => Ok(figures),
            Err(error) if error.root_cause().is::<volume::Interrupted>() => return Err(error),
            Err(error) => {
                let error = with_stats(&mut guest, filesystem, error);
                // Whatever state it is in, the next row does not begin with that.
                drop(guest);
                guest = place.boot()?;
                Err(error)
            }
        };
        match &figures {
            Ok(figures) => eprintln!(
                "{:10} {:28} {:10.2} {}, {} resets, {:.1} s",
                filesystem.name,
                row.name,
                figures.value,
                row.unit.name(),
                figures.resets,
                figures.seconds
            ),
            Err(error) => eprintln!("{:10} {:28} FAILED: {error:#}", filesystem.name, row.name),
        }
        report.record(filesystem.name, row, figures);
        save(report)?;
    }
    Ok(())
}

/// Adds what the filesystem counted itself, if it is still mounted.
fn with_stats(guest: &mut Guest, filesystem: &Filesystem, error: Error) -> Error {
    let stats = filesystem
        .stats
        .map(|command| guest.check(command, STATS_LIMIT));
    match stats {
        Some(Ok(stats)) => error.context(stats),
        _ => error,
    }
}

/// KiB that a new volume says can be written.
fn usable(guest: &mut Guest, filesystem: &Filesystem) -> Result<u64> {
    guest.check(filesystem.mkfs, LIMIT)?;
    guest.check(filesystem.mount, LIMIT)?;
    let said = guest.check(&format!("stat -f -c '%a %S' {DIR}"), LIMIT)?;
    guest.check(filesystem.unmount, LIMIT)?;
    let mut numbers = said.split_whitespace().map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(blocks)), Some(Ok(bytes))) => Ok(blocks * bytes / 1024),
        _ => bail!("stat said {said}"),
    }
}

fn row_of(guest: &mut Guest, filesystem: &Filesystem, place: &Place, row: &Row) -> Result<Figures> {
    let commands = |works: &[String]| -> Result<Vec<String>> {
        works.iter().map(|work| place.work(row, work)).collect()
    };
    guest.check(filesystem.mkfs, LIMIT)?;
    if !row.before.is_empty() {
        in_mount(guest, filesystem, &commands(&row.before)?, &mut None)?;
    }
    let before = Counters::read(guest)?;
    let mut done = Done::default();
    let mut stats = filesystem.stats.map(|_| String::new());
    for command in commands(&row.counted)? {
        done.add(in_mount(guest, filesystem, &[command], &mut stats)?);
    }
    let sent = Counters::read(guest)?.since(before);
    let bytes = sent.bytes;
    let value = match row.unit {
        Unit::UserBytes => bytes as f64 / done.bytes as f64,
        Unit::Files(files) => bytes as f64 / 1024.0 / files as f64,
        Unit::Operations | Unit::Transactions => bytes as f64 / 1024.0 / done.operations as f64,
    };
    Ok(Figures {
        value,
        bytes,
        user_bytes: done.bytes,
        resets: sent.resets,
        seconds: done.seconds,
        stats,
    })
}

/// What workloads said that they did.
#[derive(Default)]
struct Done {
    bytes: u64,
    operations: u64,
    seconds: f64,
}

impl Done {
    fn add(&mut self, other: Done) {
        self.bytes += other.bytes;
        self.operations += other.operations;
        self.seconds += other.seconds;
    }
}

/// One mount; what the filesystem counted itself, where it does, is put into `stats`.
fn in_mount(
    guest: &mut Guest,
    filesystem: &Filesystem,
    commands: &[String],
    stats: &mut Option<String>,
) -> Result<Done> {
    guest.check(filesystem.mount, LIMIT)?;
    let mut done = Done::default();
    for command in commands {
        let said = guest.check(command, LIMIT)?;
        let words = said.lines().find_map(|line| line.strip_prefix("done "));
        let words: Vec<&str> = words.context("no result")?.split_whitespace().collect();
        ensure!(words.len() == 3, "the result is {words:?}");
        done.add(Done {
            bytes: words[0].parse()?,
            operations: words[1].parse()?,
            seconds: words[2].parse()?,
        });
    }
    if let (Some(command), Some(stats)) = (filesystem.stats, stats) {
        *stats = guest.check(command, LIMIT)?;
    }
    guest.check(filesystem.unmount, LIMIT)?;
    Ok(done)
}
