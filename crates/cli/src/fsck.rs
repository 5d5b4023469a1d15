//! `persimmon fsck` and `fsck.persimmon`: checks without writing; repairs through the engine.

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use persimmon::SystemClock;
use persimmon_device::ZonedDevice;
use persimmon_device::image::{ImageDevice, OpenOptions};
use persimmon_engine::{Options, Task, Volume};
use persimmon_inspect::{CheckOptions, Finding, Repairs, Report, Severity, check};
use persimmon_vfs::Vfs;
use serde::Serialize;

use crate::daemon::LOCK_WAIT_MAX;
use crate::exit::{self, FSCK_CORRECTED, FSCK_FAILED, FSCK_UNCORRECTED, FSCK_USAGE};
use crate::live::mounted_at;
use crate::output;
use crate::progress::Progress;

/// Checks and repairs in turn: what one brings to light the next puts right.
const ROUNDS_MAX: usize = 10;

/// Check a volume that is not mounted.
#[derive(Args)]
pub struct Fsck {
    /// Device, image file, LABEL= or UUID=
    device: String,
    /// Read every block of every file too
    #[arg(long)]
    data: bool,
    /// Repair what can be repaired, after asking
    #[arg(long, short = 'r')]
    repair: bool,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Repair what is safe without asking, as at boot
    #[arg(short = 'a', visible_short_alias = 'p', conflicts_with_all = ["repair", "no"])]
    automatic: bool,
    /// Only check (as without any flag)
    #[arg(short = 'n', conflicts_with_all = ["repair", "yes"])]
    no: bool,
    /// Check even a clean volume (always done)
    #[arg(short = 'f', hide = true)]
    force: bool,
    /// Progress, as fsck(8) passes it on (shown on a terminal anyway)
    #[arg(short = 'C', hide = true, num_args = 0..=1, require_equals = false, value_name = "FD")]
    progress: Option<Option<i32>>,
    /// Be verbose
    #[arg(short = 'v', hide = true)]
    verbose: bool,
}

/// `--json`.
#[derive(Serialize)]
struct Outcome<'a> {
    /// The volume has no errors, after the repair if there was one.
    clean: bool,
    /// Something was repaired.
    repaired: bool,
    /// The last check.
    report: &'a Report,
}

impl Fsck {
    pub fn run(&self) -> Result<u8> {
        let failed = |error: anyhow::Error| exit::error(FSCK_FAILED, format!("{error:#}"));
        let path = crate::spec::resolve(&self.device).map_err(failed)?;
        if let Some(dir) = mounted_at(&path) {
            return Err(failed(anyhow!(
                "{} is mounted at {1}; `umount {1}` first",
                path.display(),
                dir.display()
            )));
        }
        let repair = self.repair || self.yes || self.automatic;
        let before = self.check(&path).map_err(failed)?;
        if !self.json {
            say(&path, &before);
        }
        if !repair || !is_repairable(&before) {
            return self.end(&before, false);
        }
        if !(self.yes || self.automatic || agreed(&path)?) {
            return self.end(&before, false);
        }
        let mut after = before.clone();
        for _ in 0..ROUNDS_MAX {
            repair_by_engine(&path, &after.repairs).map_err(|error| {
                exit::error(
                    FSCK_UNCORRECTED,
                    format!("{}: cannot be repaired: {error:#}", path.display()),
                )
            })?;
            after = self.check(&path).map_err(failed)?;
            if after.repairs.is_empty() {
                break;
            }
        }
        if !self.json {
            println!("after the repair:");
            say(&path, &after);
        }
        self.end(&after, before.worst() >= Some(Severity::Warning))
    }

    fn check(&self, path: &Path) -> Result<Report> {
        let device = ImageDevice::open(
            path,
            &OpenOptions {
                read_only: true,
                wait_for_lock: LOCK_WAIT_MAX,
            },
        )?;
        if !self.json {
            for notice in device.notices() {
                println!("{}: {notice}", path.display());
            }
        }
        let bar = Progress::start("looking for the volume", !self.json);
        let options = CheckOptions {
            data: self.data,
            ..CheckOptions::default()
        };
        check(&device as &dyn ZonedDevice, &options, &mut |at| {
            bar.advance(at.stage.to_string(), at.done, at.total);
        })
        .with_context(|| path.display().to_string())
    }

    fn end(&self, report: &Report, repaired: bool) -> Result<u8> {
        if self.json {
            output::json(&Outcome {
                clean: report.is_clean(),
                repaired,
                report,
            })?;
        }
        Ok(match (report.is_clean(), repaired) {
            (true, false) => 0,
            (true, true) => FSCK_CORRECTED,
            (false, _) => FSCK_UNCORRECTED,
        })
    }
}

/// Whether mounting and checkpointing may do something about it. The journal of a volume that was
/// unmounted in order is nothing to repair.
fn is_repairable(report: &Report) -> bool {
    let journal_waits = persimmon_inspect::finding::LOG_REPLAY.number;
    report
        .findings
        .iter()
        .any(|finding| finding.number != journal_waits)
}

/// Asks; where nobody can answer, `--yes` must have.
fn agreed(path: &Path) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(exit::error(
            FSCK_USAGE,
            "--repair asks before it writes; where nobody can answer, add --yes",
        ));
    }
    print!("repair {}? [y/N] ", path.display());
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// What a mount repairs: the journal is replayed, unlinked files are freed, and a new checkpoint
/// is written; and what the check has planned.
fn repair_by_engine(path: &PathBuf, repairs: &Repairs) -> Result<()> {
    let device = ImageDevice::open(
        path,
        &OpenOptions {
            read_only: false,
            wait_for_lock: LOCK_WAIT_MAX,
        },
    )?;
    let (volume, _) = Volume::open(Arc::new(device), Options::default())?;
    let volume = Arc::new(volume);
    if !repairs.is_empty() {
        volume.repair(&repairs.ops, repairs.recount)?;
    }
    let vfs = Vfs::new(
        Arc::clone(&volume),
        Arc::new(SystemClock),
        Default::default(),
    );
    while volume.step(Task::Truncate)? == persimmon_engine::Progress::Worked {}
    vfs.reclaim_orphans(&volume.orphans()?)?;
    volume.step(Task::Checkpoint)?;
    vfs.close()?;
    Ok(())
}

fn say(path: &Path, report: &Report) {
    for finding in &report.findings {
        println!("{finding}");
        if finding.severity > Severity::Note {
            println!("    {}", finding.repair);
        }
    }
    let untold = report.findings_total - report.findings.len() as u64;
    if untold > 0 {
        println!("and {untold} more");
    }
    let c = &report.counts;
    println!(
        "{}: {} files, {} directories, {} other inodes, {} names; {} blocks of data{}",
        path.display(),
        c.files,
        c.directories,
        c.inodes.saturating_sub(c.files + c.directories),
        c.entries,
        c.data_blocks,
        match c.data_blocks_verified {
            0 => String::new(),
            verified => format!(", {verified} verified"),
        }
    );
    let errors = count(&report.findings, Severity::Error);
    println!(
        "{}: {}",
        path.display(),
        if report.is_clean() {
            "clean".to_owned()
        } else {
            format!("{errors} errors")
        }
    );
}

fn count(findings: &[Finding], severity: Severity) -> usize {
    findings
        .iter()
        .filter(|finding| finding.severity == severity)
        .count()
}
