//! `persimmon clean`: cleans a mounted volume now. The daemon empties a zone each time it is asked to.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use clap::Args;
use persimmon::internal::device::BLOCK_SIZE;
use persimmon_fuse::size::{parse_basis_points, show_bytes};
use serde::Serialize;

use crate::control::clean::{Cleaned, State};
use crate::control::{Command, ask};
use crate::exit::{CLEAN_INTERRUPTED, CLEAN_SHORT};
use crate::live::Target;
use crate::output::{self, say};
use crate::progress::Progress;

/// Without a goal, a volume that is written to meanwhile is not cleaned for ever: so many steps for
/// each of its zones.
const STEPS_PER_ZONE: u64 = 2;

/// Clean a mounted volume now: move what is live out of zones that hold garbage, and free them.
#[derive(Args)]
pub struct Clean {
    /// A directory of the mount, or its device
    target: OsString,
    /// Until so many of the zones are free [default: until there is nothing to win]
    #[arg(long, value_name = "FREE%", value_parser = parse_basis_points)]
    until: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `--json`.
#[derive(Serialize)]
struct Outcome {
    /// reached, exhausted, or, if it was stopped, interrupted.
    state: &'static str,
    free_zones_before: u32,
    free_zones: u32,
    zone_count: u32,
    wanted_zones: Option<u32>,
    moved_bytes: u64,
}

impl Clean {
    pub fn run(&self) -> Result<u8> {
        let dir = Target::mounted(&self.target, "; only a mount can be cleaned")?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        let outcome = self.clean(&dir, &stop)?;
        let said = if self.json {
            output::json(&outcome)
        } else {
            say(&outcome)
        };
        let code = match (outcome.state, self.until) {
            ("interrupted", _) => CLEAN_INTERRUPTED,
            ("exhausted", Some(_)) => CLEAN_SHORT,
            _ => 0,
        };
        output::done(code, said)
    }

    fn clean(&self, dir: &Path, stop: &AtomicBool) -> Result<Outcome> {
        let bar = Progress::start("cleaning", !self.json);
        // All that is free already counts as reached.
        let before: Cleaned = ask(dir, &step(Some(0)))?;
        let mut outcome = Outcome {
            state: "interrupted",
            free_zones_before: before.free_zones,
            free_zones: before.free_zones,
            zone_count: before.zone_count,
            wanted_zones: None,
            moved_bytes: 0,
        };
        let mut steps_left = u64::from(before.zone_count) * STEPS_PER_ZONE;
        while !stop.load(Ordering::Relaxed) {
            let done: Cleaned = ask(dir, &step(self.until))?;
            outcome.free_zones = done.free_zones;
            outcome.wanted_zones = done.wanted_zones;
            outcome.moved_bytes += done.blocks_moved * BLOCK_SIZE as u64;
            let goal = done.wanted_zones.unwrap_or(done.zone_count);
            let what = format!("{} zones free", done.free_zones);
            bar.advance(what, done.free_zones.min(goal).into(), goal.into());
            steps_left = steps_left.saturating_sub(1);
            outcome.state = match done.state {
                State::GoesOn if self.until.is_none() && steps_left == 0 => "exhausted",
                State::GoesOn => continue,
                State::Reached => "reached",
                State::Exhausted => "exhausted",
            };
            break;
        }
        Ok(outcome)
    }
}

fn step(free_basis_points: Option<u32>) -> Command {
    Command::Clean { free_basis_points }
}

fn say(outcome: &Outcome) -> Result<()> {
    say!(
        "{} of {} zones are free, {} were; {} moved",
        outcome.free_zones,
        outcome.zone_count,
        outcome.free_zones_before,
        show_bytes(outcome.moved_bytes)
    )?;
    match (outcome.state, outcome.wanted_zones) {
        ("interrupted", _) => say!("interrupted")?,
        ("exhausted", Some(wanted)) => {
            say!(
                "{wanted} cannot be: there is not so much garbage, or no room to move what is live"
            )?;
        }
        _ => {}
    }
    Ok(())
}
