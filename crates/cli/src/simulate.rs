//! `persimmon simulate`: what a load costs on a simulated drive.

mod course;
mod latencies;
mod page;
mod zones;

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use persimmon::internal::device::Geometry;
use persimmon::internal::engine::{ZoneCapacities, check_geometry};
use persimmon_fuse::size::{parse_basis_points, parse_bytes, show_bytes};
use persimmon_lab::Timing;
use persimmon_lab::load::Load;
use persimmon_lab::measure::{Pace, Percentiles, Plan, Report, run};

use crate::exit;
use crate::output::{self, say};
use crate::progress::Progress;

const BLOCK_BYTES: u64 = 4096;

/// The least and the fullest drive that can be simulated, as the simulator says.
const FILL_MIN: f64 = 0.05;
const FILL_MAX: f64 = 0.99;
/// More nobody waits for.
const VOLUMES_MAX: f64 = 1e6;

/// How long commands take.
#[derive(Clone, Copy, ValueEnum)]
enum DriveModel {
    Even,
    Zn540,
}

/// Run a load on a simulated zoned drive and tell what it cost: write amplification, cleaning, wear,
/// and, with --rounds, latencies in virtual time. Several loads, and several fills, are run one after the
/// other.
#[derive(Args)]
pub struct Simulate {
    /// uniform, zipf[:THETA], hotcold, pieces (4 KiB to 1 MiB), churn (small files), untar[:directories] (archives of small files, a third
    /// of all files or directories deleted after each), compaction[:unhinted] (files with two
    /// lifetimes, told by hints or not), replay:FILE (a trace: log of fio, or table as of MSR Cambridge or
    /// Alibaba)
    #[arg(required = true, value_name = "WORKLOAD")]
    workloads: Vec<Load>,
    /// Zones of the drive
    #[arg(long, default_value_t = 2000)]
    zones: u32,
    /// Size of a zone
    #[arg(long, default_value = "2M", value_parser = parse_bytes)]
    zone_size: u64,
    /// Zones open and active at most; 0: any number
    #[arg(long, default_value_t = 14)]
    active: u32,
    /// Live data, as a share of the capacity of data zones and free zones; several: 0.3,85%
    #[arg(long, default_value = "0.8", value_delimiter = ',', value_name = "SHARE", value_parser = parse_fill)]
    fill: Vec<f64>,
    /// Popular blocks of zipf and hotcold lie next to each other
    #[arg(long)]
    clustered: bool,
    /// Memory for data on its way to the drive
    #[arg(long, default_value = "1M", value_parser = parse_bytes)]
    staging: u64,
    /// Journal between two checkpoints
    #[arg(long, default_value = "32M", value_parser = parse_bytes)]
    journal: u64,
    /// Pages changed between two checkpoints
    #[arg(long, default_value_t = 8192)]
    dirty_pages: usize,
    /// Zones kept free between two checkpoints, as a share of those that nothing live would need
    #[arg(long, default_value = "2%", value_parser = parse_basis_points)]
    free_target: u32,
    /// Reserve of the volume
    #[arg(long, default_value = "0%", value_parser = parse_basis_points)]
    reserve: u32,
    /// Volumes of live data to write before it is measured
    #[arg(long, default_value = "4", value_name = "VOLUMES", value_parser = parse_warm_up, allow_hyphen_values = true)]
    warm_up: f64,
    /// Volumes of live data to write while it is measured
    #[arg(long, default_value = "1", value_parser = parse_volumes, allow_hyphen_values = true)]
    volumes: f64,
    /// Of the load
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Measure latencies instead: each client overwrites a block, syncs and reads one, so many times
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// Drive whose times are taken, with --rounds: even (10 us for a command and 0.9 us for each KiB, one
    /// after the other in a zone) or zn540
    #[arg(long, default_value = "even", requires = "rounds")]
    drive: DriveModel,
    /// Clients at the same time, with --rounds
    #[arg(long, default_value_t = 4, requires = "rounds", value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// Pause of a client after each round in microseconds, with --rounds
    #[arg(long, default_value_t = 200, requires = "rounds")]
    think: u64,
    /// Write a page with plots: one file that needs no other, and no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON: of several runs a list
    #[arg(long)]
    json: bool,
}

/// Of `0.85` or `85%`.
fn parse_fill(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse().map(|share: f64| share / 100.0),
        None => text.parse(),
    };
    share
        .ok()
        .filter(|share| (FILL_MIN..=FILL_MAX).contains(share))
        .ok_or_else(|| {
            format!("'{text}' is not a share from {FILL_MIN} to {FILL_MAX}, such as 0.85 or 85%")
        })
}

fn parse_warm_up(text: &str) -> Result<f64, String> {
    let volumes = text.trim().parse().ok();
    volumes
        .filter(|volumes| (0.0..=VOLUMES_MAX).contains(volumes))
        .ok_or_else(|| format!("'{text}' is not a number from 0 to {VOLUMES_MAX}"))
}

/// Figures of nothing written would be none.
fn parse_volumes(text: &str) -> Result<f64, String> {
    let volumes = parse_warm_up(text)?;
    if volumes > 0.0 {
        Ok(volumes)
    } else {
        Err("nothing would be measured; write more than 0".into())
    }
}

impl Simulate {
    pub fn run(&self) -> Result<u8> {
        self.check_limit()?;
        // A run may take long: better to know before that its page cannot be written.
        let page = match &self.html {
            Some(path) => {
                let file = File::create(path);
                Some(file.with_context(|| format!("writing {}", path.display()))?)
            }
            None => None,
        };
        let mut reports = Vec::new();
        let bar = Progress::start("simulating", !self.json);
        for load in &self.workloads {
            for fill in &self.fill {
                let plan = self.plan(load.clone(), *fill);
                let report = run(&plan, &mut |share| {
                    bar.advance(format!("{load} {fill}"), (share * 1000.0) as u64, 1000);
                })?;
                reports.push(report);
            }
        }
        drop(bar);
        if let (Some(mut file), Some(path)) = (page, &self.html) {
            let arguments: Vec<String> = std::env::args().skip(1).collect();
            let command = format!("persimmon {}", arguments.join(" "));
            file.write_all(page::page(&reports, &command).as_bytes())
                .with_context(|| format!("writing {}", path.display()))?;
        }
        match (self.json, reports.as_slice()) {
            (true, [report]) => output::json(report)?,
            (true, reports) => output::json(&reports)?,
            (false, reports) => {
                for (number, report) in reports.iter().enumerate() {
                    if number > 0 {
                        say!("\n")?;
                    }
                    say(report)?;
                }
            }
        }
        Ok(0)
    }

    /// Refuses a limit that no drive makes right, however many zones it has.
    fn check_limit(&self) -> Result<()> {
        let zone_blocks = (self.zone_size / BLOCK_BYTES).min(u32::MAX.into()) as u32;
        let with_limit = |limit| {
            let geometry = Geometry {
                zone_count: self.zones,
                zone_blocks,
                conventional_zones: 0,
                metadata_zones: Default::default(),
                max_open: limit,
                max_active: limit,
                max_transfer_blocks: zone_blocks,
                max_append_blocks: zone_blocks,
                volatile_cache: false,
                write_pointer_is_proof: true,
                stripes: None,
            };
            check_geometry(&geometry, ZoneCapacities::all(zone_blocks), self.reserve, 1)
        };
        match with_limit((self.active > 0).then_some(self.active)) {
            Err(error) if with_limit(None).is_ok() => Err(exit::usage(error)),
            // What else is wrong is told by the run.
            _ => Ok(()),
        }
    }

    fn plan(&self, load: Load, fill: f64) -> Plan {
        let defaults = Plan::default();
        Plan {
            load,
            clustered: self.clustered,
            zones: self.zones,
            zone_blocks: (self.zone_size / BLOCK_BYTES).min(u32::MAX.into()) as u32,
            active_max: (self.active > 0).then_some(self.active),
            fill,
            warm_up_volumes: self.warm_up,
            volumes: self.volumes,
            seed: self.seed,
            options: persimmon::internal::engine::Options {
                staging_bytes_max: self.staging as usize,
                journal_bytes_max: self.journal,
                dirty_pages_max: self.dirty_pages,
                cleaning: persimmon::internal::engine::CleaningOptions {
                    free_target_basis_points: self.free_target,
                    ..defaults.options.cleaning
                },
                ..defaults.options
            },
            reserve_basis_points: self.reserve,
            pace: self.rounds.map(|rounds| Pace {
                timing: match self.drive {
                    DriveModel::Even => Timing::default(),
                    DriveModel::Zn540 => Timing::zn540(),
                },
                clients: self.clients,
                think: Duration::from_micros(self.think),
                rounds,
                threads: true,
            }),
        }
    }
}

fn say(report: &Report) -> Result<()> {
    let drive = u64::from(report.zones) * u64::from(report.zone_blocks) * BLOCK_BYTES;
    say!(
        "{} on {} zones of {} blocks ({}), {:.1} % full ({:.1} % of the drive)",
        report.load,
        report.zones,
        report.zone_blocks,
        show_bytes(drive),
        report.fill * 100.0,
        report.fill_raw * 100.0
    )?;
    say!("written by users     {}", show_bytes(report.user_bytes))?;
    if let Some(absorbed) = report.absorbed {
        say!("written over unsent  {:.1} %", absorbed * 100.0)?;
    }
    say!("write amplification  {:.3}", report.write_amplification)?;
    if let Some(bound) = report.uniform_bound {
        let over = (report.write_amplification / bound - 1.0) * 100.0;
        say!("placement alone      {bound:.3} ({over:+.1} %)")?;
    }
    say!("")?;
    let written = &report.written;
    let rows: Vec<Vec<String>> = [
        ("data", written.data),
        ("cleaned data", written.cleaned_data),
        ("summaries", written.summaries),
        ("metadata", written.metadata),
        ("cleaned metadata", written.cleaned_metadata),
        ("journal", written.journal),
        ("checkpoints", written.checkpoints),
    ]
    .iter()
    .map(|(class, share)| vec![(*class).to_owned(), format!("{share:.4}")])
    .collect();
    output::print(output::table(
        &["written as", "per user byte"],
        &[false, true],
        rows.into_iter(),
    ))?;
    say!("")?;
    say!("victims cleaned ahead       {}", report.cleaning_background)?;
    say!("victims cleaned on demand   {}", report.cleaning_foreground)?;
    say!("blocks moved                {}", report.blocks_moved)?;
    let victims = report.cleaning_background + report.cleaning_foreground;
    let live = report.blocks_moved as f64 / (victims * u64::from(report.zone_blocks)).max(1) as f64;
    say!("live in a victim            {:.1} %", live * 100.0)?;
    say!("operations that waited      {}", report.stalls)?;
    say!("checkpoints                 {}", report.checkpoints)?;
    say!("checkpoints of zones alone  {}", report.zone_checkpoints)?;
    let usage = &report.usage;
    say!(
        "zones on average            {:.1} free, {:.1} to be freed, {:.1} open and not yet written, \
         {:.1} of metadata, {:.1} of the log",
        usage.free,
        usage.reclaimable,
        usage.unwritten,
        usage.metadata,
        usage.log
    )?;
    let resets = &report.resets;
    say!(
        "resets of a zone            {} to {}, {:.1} on average, deviation {:.1}",
        resets.least,
        resets.most,
        resets.mean,
        resets.deviation
    )?;
    let timed = [
        ("read", report.reads),
        ("write", report.writes),
        ("sync", report.syncs),
    ];
    let row = |name: &str, p: Percentiles| {
        let figures = [p.p50, p.p99, p.p99_9, p.longest];
        let mut row = vec![name.to_owned()];
        row.extend(figures.map(|micros| format!("{micros:.0}")));
        row
    };
    let rows: Vec<Vec<String>> = timed
        .iter()
        .filter_map(|(name, percentiles)| Some(row(name, (*percentiles)?)))
        .collect();
    if !rows.is_empty() {
        say!("")?;
        let headings = ["microseconds", "median", "p99", "p99.9", "longest"];
        let right = [false, true, true, true, true];
        output::print(output::table(&headings, &right, rows.into_iter()))?;
    }
    Ok(())
}
