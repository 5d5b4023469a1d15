//! `persimmon fsck` and `fsck.persimmon`: checks without writing; repairs through the engine.

use std::ffi::OsString;
use std::io::{BufRead, IsTerminal};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use persimmon::SystemClock;
use persimmon::internal::device::{Drive, ZonedDevice};
use persimmon::internal::engine::{Options, Task, Volume};
use persimmon::vfs::{Clock, Vfs};
use persimmon_inspect::finding::DATA;
use persimmon_inspect::salvage::rebuild;
use persimmon_inspect::{CheckOptions, InspectError, Inspector, Repairs, Report, Severity, check};
use persimmon_salvage::{Loss, mend};
use serde::Serialize;

use crate::device;
use crate::exit::{self, FSCK_CORRECTED, FSCK_FAILED, FSCK_UNCORRECTED, FSCK_USAGE};
use crate::mounted::mounted_at;
use crate::output::{self, Said, say};
use crate::progress::Progress;

/// Checks and repairs in turn: what one brings to light the next puts right.
const ROUNDS_MAX: usize = 10;
/// Losses that `--json` tells; as text all are told.
const LOSSES_MAX: usize = 10_000;

/// Check a volume that is not mounted.
#[derive(Args)]
pub struct Fsck {
    /// Device, image file, LABEL= or UUID=
    device: OsString,
    /// Read every block of every file too
    #[arg(long)]
    data: bool,
    /// Repair what can be repaired, after asking
    #[arg(long, short = 'r')]
    repair: bool,
    /// Of an image: look for it everywhere, and read what zones hold beyond their write pointers
    #[arg(long)]
    scan: bool,
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
    /// What is lost, where metadata was written anew.
    losses: &'a [Loss],
    /// The last check; null where there is no checkpoint to begin one with.
    report: Option<&'a Report>,
}

impl Fsck {
    pub fn run(&self) -> Result<u8> {
        let failed = |error: anyhow::Error| exit::error(FSCK_FAILED, output::Causes(&error));
        let path = crate::spec::resolve(&self.device).map_err(failed)?;
        if let Some(dir) = mounted_at(&path) {
            return Err(failed(anyhow!(
                "{} is mounted at {1}; `umount {1}` first",
                path.display(),
                dir.display()
            )));
        }
        let repair = self.repair || self.yes || self.automatic;
        let before = match self.check(&path) {
            Ok(report) => Some(report),
            Err(error) if repair && !self.automatic && is_log_lost(&error) => {
                output::tell(output::Causes(&error));
                None
            }
            Err(error) => return Err(failed(error)),
        };
        // A repair is not ended half-way because nobody takes what it says.
        let mut said = Said::nothing();
        if let Some(before) = &before {
            if !self.json {
                said.more(|| say(&path, before));
            }
            if !repair || !is_repairable(before) {
                return self.end(said, before, false, &[]);
            }
        }
        let anew = before.as_ref().is_none_or(needs_new_metadata);
        // Not without being asked to: what is lost is lost for good after it.
        let refused = anew && self.automatic;
        if refused || !(self.yes || self.automatic || agreed(&path, anew)?) {
            return match &before {
                Some(before) => self.end(said, before, false, &[]),
                None => self.unchecked(),
            };
        }
        let uncorrected = |error: anyhow::Error| {
            exit::error(
                FSCK_UNCORRECTED,
                format!(
                    "{}: cannot be repaired: {}",
                    path.display(),
                    output::Causes(&error)
                ),
            )
        };
        // Held until the end: what was found and agreed to is what is repaired.
        let device =
            device::open_by(&path, false, self.scan).map_err(|error| uncorrected(error.into()))?;
        if !is_unchanged(&device, before.as_ref()) {
            return Err(uncorrected(anyhow!(
                "somebody else changed it after it was checked; run fsck again"
            )));
        }
        let device = Arc::new(device);
        // The repair may move damaged blocks of files to another zone. Reading all data finds them there.
        let is_data = |report: &Report| report.numbers.contains(&DATA.number);
        let reads = self.data || before.as_ref().is_some_and(is_data);
        let mut losses = Vec::new();
        let mut repaired = anew;
        let mut after = match &before {
            Some(before) if !anew => before.clone(),
            _ => {
                losses = self.write_anew(&device, &mut said).map_err(uncorrected)?;
                self.check_again(&path, &device, reads).map_err(failed)?
            }
        };
        for _ in 0..ROUNDS_MAX {
            repaired |= !after.repairs.is_empty();
            repair_by_engine(&device, &after.repairs).map_err(uncorrected)?;
            after = self.check_again(&path, &device, reads).map_err(failed)?;
            if after.repairs.is_empty() {
                break;
            }
        }
        if !self.json {
            said.more(|| Ok(say!("after the repair:")?));
            said.more(|| say(&path, &after));
        }
        // What opening and a checkpoint put right is planned by nobody.
        repaired |= before.is_none_or(|before| wrongs(&after) < wrongs(&before));
        self.end(said, &after, repaired, &losses)
    }

    /// Writes the metadata anew, from what is left of it, and tells what is lost.
    fn write_anew(&self, device: &Arc<Drive>, said: &mut Said) -> Result<Vec<Loss>> {
        let bar = Progress::start("looking for what is left", !self.json);
        let rebuilt = rebuild(&**device, &mut |_, done, total| {
            bar.advance("looking for what is left".into(), done, total);
        })?;
        let mut losses = Vec::new();
        let mut on_loss = |loss: &Loss| {
            if !self.json {
                said.more(|| Ok(say!("lost: {loss}")?));
            }
            if losses.len() < LOSSES_MAX {
                losses.push(loss.clone());
            }
        };
        let how = (SystemClock.now(), Options::default());
        let to = Arc::clone(device) as Arc<dyn ZonedDevice>;
        mend(&rebuilt, to, how, &mut on_loss, &mut |_, done, total| {
            bar.advance("writing metadata anew".into(), done, total);
        })?;
        Ok(losses)
    }

    /// The check before anything is written: whoever reads the volume too is not in its way.
    fn check(&self, path: &Path) -> Result<Report> {
        let device = device::open_by(path, true, self.scan)?;
        let notices = device.notices().into_iter().cloned().collect();
        let options = CheckOptions {
            data: self.data,
            notices,
            ..CheckOptions::default()
        };
        self.check_on(path, &device, &options)
    }

    /// A check of what the repair holds open. What opening an image found damaged was mended by that.
    fn check_again(&self, path: &Path, device: &Drive, reads: bool) -> Result<Report> {
        let options = CheckOptions {
            data: reads,
            ..CheckOptions::default()
        };
        self.check_on(path, device, &options)
    }

    fn check_on(&self, path: &Path, device: &Drive, options: &CheckOptions) -> Result<Report> {
        let bar = Progress::start("looking for the volume", !self.json);
        check(device as &dyn ZonedDevice, options, &mut |at| {
            bar.advance(at.stage.to_string(), at.done, at.total);
        })
        .with_context(|| path.display().to_string())
    }

    /// The end of a repair of what cannot be checked before, and was not agreed to.
    fn unchecked(&self) -> Result<u8> {
        let outcome = Outcome {
            clean: false,
            repaired: false,
            losses: &[],
            report: None,
        };
        self.told(Said::nothing(), &outcome, FSCK_UNCORRECTED)
    }

    fn end(&self, said: Said, report: &Report, repaired: bool, losses: &[Loss]) -> Result<u8> {
        let code = match (report.is_clean(), repaired) {
            (true, false) => 0,
            (true, true) => FSCK_CORRECTED,
            (false, _) => FSCK_UNCORRECTED,
        };
        let outcome = Outcome {
            clean: report.is_clean(),
            repaired,
            losses,
            report: Some(report),
        };
        self.told(said, &outcome, code)
    }

    /// The exit code is the answer, also where what was found could not be said.
    fn told(&self, mut said: Said, outcome: &Outcome, code: u8) -> Result<u8> {
        if self.json {
            said.more(|| output::json(outcome));
        }
        said.done(code)
            .map_err(|error| exit::error(code | FSCK_FAILED, output::Causes(&error)))
    }
}

/// Whether mounting and checkpointing may do something about it. The journal of a volume that was
/// unmounted in order is nothing to repair.
fn is_repairable(report: &Report) -> bool {
    let journal_waits = persimmon_inspect::finding::LOG_REPLAY.number;
    report.numbers.iter().any(|number| *number != journal_waits)
}

/// Whether the log, the tables or pages are damaged: then the metadata is written anew from what
/// is left of it.
fn needs_new_metadata(report: &Report) -> bool {
    use persimmon_inspect::finding as f;
    let rules = [
        &f::LOG_BLOCK,
        &f::LOG_GAP,
        &f::LOG_RECORD,
        &f::LOG_ZONE,
        &f::LOG_LOST,
        &f::FOOTER_FIELDS,
        &f::MAT_CHUNK,
        &f::MAT_ENTRY,
        &f::MAT_SHARED,
        &f::ZIT_CHUNK,
        &f::PAGE,
        &f::PAGE_IDENTITY,
        &f::PAGE_SHARED,
        &f::PAGE_MISSING,
        &f::PAGE_KEYS,
    ];
    rules
        .iter()
        .any(|rule| report.numbers.contains(&rule.number))
}

/// Whether a check failed since there is no checkpoint to begin with.
fn is_log_lost(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(
            cause.downcast_ref(),
            Some(InspectError::NoCheckpoint { .. })
        )
    })
}

/// Whether the volume is what the check before saw: the same one, at the same record of the same epoch. Where
/// that saw no checkpoint there still is none.
fn is_unchanged(device: &dyn ZonedDevice, before: Option<&Report>) -> bool {
    match (Inspector::open(device), before) {
        (Ok(now), Some(before)) => now.volume() == before.volume,
        (Err(InspectError::NoCheckpoint { .. }), None) => true,
        _ => false,
    }
}

/// Asks, on standard error, which leaves standard output to JSON; where nobody can answer, `--yes`
/// must have.
fn agreed(path: &Path, anew: bool) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(exit::error(
            FSCK_USAGE,
            "--repair asks before it writes; where nobody can answer, add --yes",
        ));
    }
    if anew {
        output::tell(
            "Metadata is lost. The repair writes it anew from what is left, and gives up the rest; \
             `persimmon recover` copies what is left to another volume instead.",
        );
    }
    output::ask(format_args!("repair {}? [y/N] ", path.display()));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// What a mount repairs: the journal is replayed, unlinked files are freed, and a new checkpoint
/// is written; and what the check has planned.
fn repair_by_engine(device: &Arc<Drive>, repairs: &Repairs) -> Result<()> {
    let device = Arc::clone(device) as Arc<dyn ZonedDevice>;
    let options = Options {
        recount: repairs.recount,
        ..Options::default()
    };
    let (volume, _) = Volume::open(device, options)?;
    let volume = Arc::new(volume);
    if !repairs.is_empty() {
        volume.repair(&repairs.ops, repairs.recount, repairs.partial)?;
        volume.empty_zones(&repairs.zones)?;
    }
    let vfs = Vfs::new(
        Arc::clone(&volume),
        Arc::new(SystemClock),
        Default::default(),
    );
    // What is freed takes shared blocks along whose counts say that nobody else has them: these have to be right.
    if !repairs.partial {
        while volume.step(Task::Truncate)? == persimmon::internal::engine::Progress::Worked {}
        vfs.reclaim_orphans(&volume.orphans()?)?;
    }
    volume.step(Task::Checkpoint)?;
    vfs.close()?;
    Ok(())
}

fn say(path: &Path, report: &Report) -> Result<()> {
    for finding in &report.findings {
        say!("{finding}")?;
        if finding.severity > Severity::Note {
            say!("    {}", finding.repair)?;
        }
    }
    let untold = report.findings_total - report.findings.len() as u64;
    if untold > 0 {
        say!("and {untold} more")?;
    }
    let c = &report.counts;
    say!(
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
    )?;
    say!(
        "{}: {}",
        path.display(),
        if report.is_clean() {
            "clean".to_owned()
        } else {
            format!("{} errors", report.errors_total)
        }
    )?;
    Ok(())
}

/// How many findings are more than notes.
fn wrongs(report: &Report) -> u64 {
    report.findings_total - report.notes_total
}
