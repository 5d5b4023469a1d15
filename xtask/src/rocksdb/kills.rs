//! A writer that is killed at random moments, again and again, on one database: each start checks what the last kill left.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::Tally;
use super::plugin::{Plugin, output, uri};
use crate::volume::Noise;

const VOLUME_BYTES: u64 = 1 << 30;
/// Longest time between the check at the start of a writer and its kill.
const RUN_MAX: Duration = Duration::from_millis(600);

/// What the writer does, with the options of the URI.
const MODES: &[(&str, &str)] = &[
    ("sync", "flush=memory"),
    ("flush", "flush=kernel"),
    ("flush", "flush=through"),
    ("memory", "flush=memory&commit=0.1"),
];

/// So many kills in each mode.
pub fn all(plugin: &Plugin, scratch: &Path, kills: u32, tally: &mut Tally) {
    for (number, (mode, options)) in MODES.iter().enumerate() {
        tally.check(&format!("{kills} kills, {mode}, {options}"), || {
            let image = plugin.make_volume(scratch, &format!("{number}.img"), VOLUME_BYTES)?;
            let uri = uri(&image, options);
            let state = scratch.join(format!("{number}.state"));
            let words = [uri.as_str(), "/db", &state.to_string_lossy(), mode];
            let mut dice = Noise(0x5EED);
            let mut lost = 0;
            for kill in 0..kills {
                lost +=
                    killed(plugin, &words, &mut dice).with_context(|| format!("kill {kill}"))?;
            }
            let said = output(plugin.test("crash_test").args(words).arg("check"))?;
            lost += lost_in(&said)?;
            println!("{mode}: {}", said.trim());
            println!("{mode}, {options}: {lost} acknowledged operations lost in {kills} kills");
            ensure!(*mode == "memory" || lost == 0, "{lost} operations are lost");
            plugin.fsck(&image)
        });
    }
}

/// Runs a writer until it is killed; how many operations the kill before it has lost.
fn killed(plugin: &Plugin, words: &[&str], dice: &mut Noise) -> Result<u64> {
    let mut command = plugin.test("crash_test");
    let mut writer = command.args(words).stdout(Stdio::piped()).spawn()?;
    let stdout = writer.stdout.take().context("a piped standard output")?;
    let mut said = String::new();
    BufReader::new(stdout).read_line(&mut said)?;
    let checked = lost_in(&said);
    if checked.is_ok() {
        let run = RUN_MAX.as_micros() as u64;
        std::thread::sleep(Duration::from_micros(dice.below(run)));
    }
    // The wrapper has become the program: this is its process.
    writer.kill()?;
    let status = writer.wait()?;
    if status.code().is_some() {
        bail!("the writer ended by itself: {status}");
    }
    checked
}

fn lost_in(said: &str) -> Result<u64> {
    let lost = said
        .split_once(" hold, ")
        .and_then(|(_, rest)| rest.split_once(' '));
    let (lost, _) = lost.with_context(|| format!("the check said {said:?}"))?;
    Ok(lost.parse()?)
}
