//! `persimmon zones`: the zone table, and a picture of it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;

use crate::open::Subject;
use crate::output::{self, say};
use crate::picture;
use crate::report::ZoneRow;
use persimmon::internal::format::shown::shown;

/// Where a picture begins on a terminal: at its top.
const HOME: &str = "\x1b[H";
/// What was below the picture goes.
const CLEAR_BELOW: &str = "\x1b[J";
/// What was right of a line goes.
const CLEAR_RIGHT: &str = "\x1b[K";
const CLEAR: &str = "\x1b[2J";
/// Longest sleep between two looks at whether to stop.
const NAP: Duration = Duration::from_millis(100);

/// Tell how the zones are used.
#[derive(Args)]
pub struct ZonesCommand {
    /// Device, image file, LABEL=, UUID=, or a directory of a live mount
    target: OsString,
    /// Only the picture
    #[arg(long, conflicts_with_all = ["json", "table"])]
    picture: bool,
    /// Only the table
    #[arg(long, conflicts_with = "json")]
    table: bool,
    /// Draw the picture of a mounted volume again and again
    #[arg(long, conflicts_with_all = ["json", "table"])]
    watch: bool,
    /// Seconds from one picture to the next
    #[arg(long, requires = "watch", default_value_t = 1.0, value_parser = parse_interval)]
    interval: f64,
    /// End after so many pictures [default: when interrupted]
    #[arg(long, requires = "watch")]
    frames: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ZonesCommand {
    pub fn run(&self) -> Result<u8> {
        let subject = Subject::of(&self.target)?;
        if self.watch {
            return self.watch(&subject);
        }
        let zones = subject.zones()?;
        if self.json {
            output::json(&zones)?;
            return Ok(0);
        }
        if !self.picture {
            let rows = zones.iter().map(|zone| {
                vec![
                    zone.zone.to_string(),
                    zone.role.clone(),
                    zone.lifetime.clone(),
                    zone.state.clone(),
                    zone.write_pointer_blocks.to_string(),
                    zone.capacity_blocks.to_string(),
                    zone.valid_blocks.to_string(),
                    zone.resets.to_string(),
                ]
            });
            let headings = [
                "zone", "role", "lifetime", "state", "written", "capacity", "valid", "resets",
            ];
            let right = [true, false, false, false, true, true, true, true];
            output::print(output::table(&headings, &right, rows))?;
        }
        if !self.table {
            if !self.picture {
                say!("")?;
            }
            output::print(picture::draw(
                &zones,
                output::width_columns(),
                output::colours(),
            ))?;
        }
        Ok(0)
    }

    fn watch(&self, subject: &Subject) -> Result<u8> {
        if matches!(subject, Subject::Opened(_)) {
            bail!(
                "{} is not mounted: nothing changes there",
                shown(self.target.as_bytes())
            );
        }
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        let terminal = output::is_terminal();
        if terminal {
            output::print(CLEAR)?;
        }
        let mut frame = 0;
        while !stop.load(Ordering::Relaxed) {
            let drawn = Instant::now();
            let zones = subject.zones()?;
            let picture = picture::draw(&zones, output::width_columns(), output::colours());
            show(&picture, &zones, terminal)?;
            frame += 1;
            if self.frames.is_some_and(|frames| frame >= frames) {
                break;
            }
            let interval = Duration::from_secs_f64(self.interval);
            while let Some(left) = interval.checked_sub(drawn.elapsed())
                && !left.is_zero()
                && !stop.load(Ordering::Relaxed)
            {
                output::pause(left.min(NAP))?;
            }
        }
        Ok(0)
    }
}

fn parse_interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!(
            "'{text}' is not a number of seconds from 0.1 to 3600"
        )),
    }
}

/// On a terminal in the place of the one before, else one below the other.
fn show(picture: &str, zones: &[ZoneRow], terminal: bool) -> Result<()> {
    let open = zones.iter().filter(|zone| zone.state == "open").count();
    let reclaimable = zones.iter().filter(|zone| is_reclaimable(zone)).count();
    let line =
        format!("{open} zones are being written to, {reclaimable} wait for the next checkpoint");
    if terminal {
        let lines = picture.lines().chain([line.as_str()]);
        let text: String = lines.map(|line| format!("{line}{CLEAR_RIGHT}\n")).collect();
        output::print(format_args!("{HOME}{text}{CLEAR_BELOW}"))?;
    } else {
        say!("{picture}{line}\n")?;
    }
    Ok(())
}

/// Nothing in it is valid: the next checkpoint frees it.
fn is_reclaimable(zone: &ZoneRow) -> bool {
    let holds = matches!(zone.role.as_str(), "data" | "metadata");
    holds && zone.valid_blocks == 0 && zone.state != "open"
}
