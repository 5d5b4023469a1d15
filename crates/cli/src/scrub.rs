//! `persimmon scrub`: reads and verifies everything live on a mounted volume. The daemon verifies
//! piece by piece as it is asked to; how fast is decided here.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use persimmon::internal::format::shown::as_text;
use persimmon_fuse::size::show_bytes;
use serde::Serialize;

use crate::control::{Command, Cursor, Found, Name, PATHS_MAX, Paths, Scrubbed, ask};
use crate::exit::{self, FAILED, SCRUB_DAMAGE, SCRUB_INTERRUPTED};
use crate::live::Target;
use crate::output::{self, say};
use crate::progress::Progress;

/// Findings kept and shown, those of errors first; others are counted.
const FINDINGS_MAX: usize = 10_000;
/// Longest sleep between two looks at whether to stop.
const NAP: Duration = Duration::from_millis(100);

/// Read and verify everything live on a mounted volume.
#[derive(Args)]
pub struct Scrub {
    /// A directory of the mount, or its device
    target: OsString,
    /// MiB a second at most [default: as fast as it goes]
    #[arg(long, value_name = "MIB_PER_S", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `--json`.
#[derive(Default, Serialize)]
struct Outcome {
    /// Everything was looked at.
    complete: bool,
    bytes: u64,
    seconds: f64,
    findings: Vec<Row>,
    findings_total: u64,
    /// Of all findings, those not kept included, one is more than a warning.
    #[serde(skip)]
    damaged: bool,
}

#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    found: Found,
    /// Of the file; null if it has no name, or it could not be found. Bytes that are no UTF-8 are replaced.
    path: Option<String>,
    /// The path where it is not UTF-8, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    /// The path as it is told to people.
    #[serde(skip)]
    shown: Option<String>,
}

impl Outcome {
    /// Counts what was found, and keeps it as long as there is room: an error has that of a warning.
    fn add(&mut self, found: Found) {
        self.findings_total += 1;
        let is_error = !found.is_warning();
        self.damaged |= is_error;
        let row = Row {
            found,
            path: None,
            path_bytes: None,
            shown: None,
        };
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(row);
        } else if is_error
            && let Some(last) = self.findings.iter().rposition(|row| row.found.is_warning())
        {
            self.findings.remove(last);
            self.findings.push(row);
        }
    }
}

impl Scrub {
    pub fn run(&self) -> Result<u8> {
        let dir = Target::mounted(
            &self.target,
            "; `persimmon fsck --data` reads everything on it",
        )?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        let mut outcome = Outcome::default();
        let done = self.scrub(&dir, &stop, &mut outcome);
        let done = done.and_then(|()| name_files(&dir, &mut outcome.findings));
        // What was found before the mount ended is told.
        if done.is_err() && outcome.findings.is_empty() {
            return done.map(|()| 0);
        }
        let said = if self.json {
            output::json(&outcome)
        } else {
            say(&outcome)
        };
        let code = match (outcome.damaged, &done) {
            (true, _) => SCRUB_DAMAGE,
            (false, Err(_)) => FAILED,
            (false, Ok(())) if outcome.complete => 0,
            (false, Ok(())) => SCRUB_INTERRUPTED,
        };
        let code = output::done(code, said)?;
        let told = done.map_err(|error| exit::error(code, output::Causes(&error)));
        told.map(|()| code)
    }

    fn scrub(&self, dir: &Path, stop: &AtomicBool, outcome: &mut Outcome) -> Result<()> {
        let bar = Progress::start("scrubbing", !self.json);
        let begin = Instant::now();
        let mut cursor = Some(Cursor::default());
        while let Some(at) = cursor
            && !stop.load(Ordering::Relaxed)
        {
            let done: Scrubbed = ask(dir, &Command::Scrub(at))?;
            outcome.bytes += done.bytes;
            done.findings
                .into_iter()
                .for_each(|found| outcome.add(found));
            let what = match outcome.findings_total {
                0 => at.stage().to_owned(),
                count => format!("{}, {count} damaged", at.stage()),
            };
            bar.advance(what, outcome.bytes.min(done.bytes_total), done.bytes_total);
            cursor = done.next;
            self.pace(outcome.bytes, begin, stop);
            outcome.seconds = begin.elapsed().as_secs_f64();
        }
        outcome.complete = cursor.is_none();
        Ok(())
    }

    /// Waits until so many bytes are allowed to have been read.
    fn pace(&self, bytes: u64, begin: Instant, stop: &AtomicBool) {
        let Some(rate) = self.rate else {
            return;
        };
        let due = Duration::from_secs_f64(bytes as f64 / (f64::from(rate) * 1_048_576.0));
        while let Some(left) = due.checked_sub(begin.elapsed())
            && !left.is_zero()
            && !stop.load(Ordering::Relaxed)
        {
            thread::sleep(left.min(NAP));
        }
    }
}

/// Asks for the paths of damaged files.
fn name_files(dir: &Path, rows: &mut [Row]) -> Result<()> {
    let inos: BTreeMap<u64, Option<Name>> = rows
        .iter()
        .filter_map(|row| Some((row.found.ino?, None)))
        .collect();
    let mut asked: Vec<u64> = inos.into_keys().collect();
    let mut known = BTreeMap::new();
    while !asked.is_empty() {
        let part: Vec<u64> = asked.iter().take(PATHS_MAX).copied().collect();
        let Paths(paths) = ask(dir, &Command::Paths(part))?;
        // A path too long for an answer is left out.
        let count = paths.len().max(1);
        known.extend(asked.drain(..count.min(asked.len())).zip(paths));
    }
    for row in rows {
        let name = row.found.ino.and_then(|ino| known.get(&ino)?.as_ref());
        if let Some(name) = name {
            let (path, bytes) = as_text(name.bytes());
            (row.path, row.path_bytes) = (Some(path), bytes);
            row.shown = Some(name.to_string());
        }
    }
    Ok(())
}

fn say(outcome: &Outcome) -> Result<()> {
    for Row { found, shown, .. } in &outcome.findings {
        let severity = if found.is_warning() {
            "warning"
        } else {
            "error"
        };
        let place = match (found.ino, shown) {
            (Some(_), Some(path)) => format!("{path}: "),
            (Some(ino), None) => format!("inode {ino}: "),
            (None, _) => String::new(),
        };
        let range = match found.offset {
            Some(offset) => format!(
                "bytes {offset} to {} are damaged, ",
                offset + u64::from(found.blocks) * 4096
            ),
            None => String::new(),
        };
        say!(
            "{severity} {}: {place}{range}zone {} block {}: {}",
            found.number,
            found.zone,
            found.block,
            found.message
        )?;
    }
    let untold = outcome.findings_total - outcome.findings.len() as u64;
    if untold > 0 {
        say!("and {untold} more")?;
    }
    say!(
        "{} verified in {:.1} s, {} damaged{}",
        show_bytes(outcome.bytes),
        outcome.seconds,
        outcome.findings_total,
        if outcome.complete {
            ""
        } else {
            "; interrupted"
        }
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(number: u16) -> Found {
        Found {
            number,
            zone: 1,
            block: 2,
            blocks: 1,
            ino: None,
            offset: None,
            message: String::new(),
        }
    }

    /// A scrub ended with 0 though files were damaged, and showed none of them, where 10,000 warnings came before:
    /// one for each block of which a copy was gone.
    #[test]
    fn damage_is_told_behind_any_number_of_warnings() {
        let mut outcome = Outcome::default();
        for _ in 0..FINDINGS_MAX + 5 {
            outcome.add(found(407));
        }
        assert!(!outcome.damaged);
        outcome.add(found(801));
        assert!(outcome.damaged);
        assert_eq!(outcome.findings.len(), FINDINGS_MAX);
        assert_eq!(outcome.findings_total, FINDINGS_MAX as u64 + 6);
        let last = outcome.findings.last().unwrap();
        assert_eq!(last.found.number, 801);
    }

    #[test]
    fn damage_past_what_is_kept_counts() {
        let mut outcome = Outcome::default();
        for _ in 0..FINDINGS_MAX + 5 {
            outcome.add(found(801));
        }
        outcome.add(found(407));
        let is_error = |row: &Row| row.found.number == 801;
        assert!(outcome.damaged && outcome.findings.iter().all(is_error));
    }
}
