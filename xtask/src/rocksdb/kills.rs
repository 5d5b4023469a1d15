//! A writer that is killed at random moments, again and again, on the same databases: each start checks what the last kill left.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::Tally;
use super::plugin::{Plugin, output, uri};
use crate::volume::Noise;

const VOLUME_BYTES: u64 = 1 << 30;
/// Longest time between the check at the start of a writer and its kill.
const RUN_MAX: Duration = Duration::from_millis(600);
/// Most kills in a row of a writer that has not checked yet what the first one left.
const AGAIN_MAX: u64 = 4;
/// Longest time between the beginning of closing and the kill.
const CLOSE_MAX: Duration = Duration::from_millis(60);

/// When a writer is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    Writing,
    /// While it writes, and then a few times while it recovers what that has left.
    Recovering,
    Closing,
}

/// A writer, and how it is killed.
struct Case {
    /// As crash_test has it.
    mode: &'static str,
    options: &'static str,
    databases: &'static str,
    moment: Moment,
}

const fn case(
    mode: &'static str,
    options: &'static str,
    databases: &'static str,
    moment: Moment,
) -> Case {
    Case {
        mode,
        options,
        databases,
        moment,
    }
}

const CASES: &[Case] = &[
    case("sync", "flush=memory", "/db", Moment::Writing),
    case("flush", "flush=kernel", "/db", Moment::Writing),
    case("flush", "flush=through", "/db", Moment::Writing),
    case("memory", "flush=memory&commit=0.1", "/db", Moment::Writing),
    case("sync-wal", "flush=memory", "/db", Moment::Writing),
    case("flush-wal", "flush=kernel", "/db", Moment::Writing),
    case("flush", "flush=kernel", "/a,/b,/c", Moment::Writing),
    case("sync", "flush=kernel", "/a,/b,/c", Moment::Writing),
    case("sync", "flush=memory", "/db", Moment::Recovering),
    case("flush", "flush=kernel", "/a,/b", Moment::Recovering),
    case("flush", "flush=through", "/db", Moment::Recovering),
    case("flush", "flush=kernel", "/a,/b", Moment::Closing),
    case("sync-wal", "flush=memory", "/db", Moment::Closing),
];

impl Case {
    fn name(&self) -> String {
        let when = match self.moment {
            Moment::Writing => "",
            Moment::Recovering => ", and while it recovers",
            Moment::Closing => " while it closes",
        };
        let several = self.databases.split(',').count();
        format!(
            "{}, {}, {several} databases, killed{when}",
            self.mode, self.options
        )
    }
}

/// So many kills of each writer.
pub fn all(plugin: &Plugin, scratch: &Path, kills: u32, tally: &mut Tally) {
    for (number, case) in CASES.iter().enumerate() {
        let name = case.name();
        tally.check(&format!("{kills} kills: {name}"), || {
            let image = plugin.make_volume(scratch, &format!("{number}.img"), VOLUME_BYTES)?;
            let state = scratch.join(format!("{number}.state"));
            let mut writers = Writers {
                plugin,
                words: vec![
                    uri(&image, case.options),
                    case.databases.to_owned(),
                    state.display().to_string(),
                    case.mode.to_owned(),
                ],
                moment: case.moment,
                dice: Noise(0x5EED),
                opening: Duration::from_millis(50),
                in_recovery: 0,
            };
            let mut lost = 0;
            for kill in 0..kills {
                lost += writers.kill().with_context(|| format!("kill {kill}"))?;
            }
            let mut check = plugin.test("crash_test");
            let said = output(check.args(&writers.words).arg("check"))?;
            lost += lost_in(&said)?;
            println!("{name}: {}", said.trim());
            println!(
                "{name}: {lost} acknowledged operations lost in {kills} kills and {} more of writers that recovered",
                writers.in_recovery
            );
            ensure!(
                case.mode == "memory" || lost == 0,
                "{lost} operations are lost"
            );
            plugin.fsck(&image)?;
            Ok(std::fs::remove_file(&image)?)
        });
    }
}

/// Writers on the same databases, one after the other.
struct Writers<'a> {
    plugin: &'a Plugin,
    words: Vec<String>,
    moment: Moment,
    dice: Noise,
    /// How long the last one took to open and check.
    opening: Duration,
    in_recovery: u32,
}

impl Writers<'_> {
    /// Runs a writer until it is killed; how many operations the kill before it has lost.
    fn kill(&mut self) -> Result<u64> {
        if self.moment == Moment::Recovering {
            for _ in 0..self.dice.below(AGAIN_MAX + 1) {
                let (mut writer, _lines) = self.start()?;
                // The first part of it passes before the program begins.
                std::thread::sleep(self.opening / 4);
                self.sleep(self.opening);
                self.in_recovery += 1;
                ends(&mut writer)?;
            }
        }
        let start = Instant::now();
        let (mut writer, mut lines) = self.start()?;
        let checked = lost_in(&next(&mut lines)?);
        self.opening = start.elapsed();
        if checked.is_ok() {
            match self.moment {
                Moment::Writing | Moment::Recovering => self.sleep(RUN_MAX),
                Moment::Closing => {
                    let said = next(&mut lines)?;
                    ensure!(said == "closing", "it said {said:?}");
                    self.sleep(CLOSE_MAX);
                }
            }
        }
        ends(&mut writer).and_then(|is_killed| {
            let may_end = self.moment == Moment::Closing && checked.is_ok();
            ensure!(is_killed || may_end, "the writer ended by itself");
            Ok(())
        })?;
        checked
    }

    fn start(&self) -> Result<(Child, Lines<BufReader<ChildStdout>>)> {
        let mut command = self.plugin.test("crash_test");
        command.args(&self.words).stdout(Stdio::piped());
        if self.moment == Moment::Closing {
            command.arg("close");
        }
        let mut writer = command.spawn()?;
        let stdout = writer.stdout.take().context("a piped standard output")?;
        Ok((writer, BufReader::new(stdout).lines()))
    }

    fn sleep(&mut self, most: Duration) {
        let micros = self.dice.below(most.as_micros().max(1) as u64);
        std::thread::sleep(Duration::from_micros(micros));
    }
}

/// Kills a process; true where it had not ended by itself, which it must have done well. The wrapper has become the program: this is
/// its process.
fn ends(writer: &mut Child) -> Result<bool> {
    writer.kill()?;
    let status = writer.wait()?;
    match status.code() {
        None => Ok(true),
        Some(0) => Ok(false),
        Some(_) => bail!("the writer ended by itself: {status}"),
    }
}

/// What a writer says; empty where it has ended.
pub fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> Result<String> {
    Ok(lines.next().transpose()?.unwrap_or_default())
}

/// How many operations a check has found to be lost.
pub fn lost_in(said: &str) -> Result<u64> {
    let lost = said
        .split_once(" hold, ")
        .and_then(|(_, rest)| rest.split_once(' '));
    let (lost, _) = lost.with_context(|| format!("the check said {said:?}"))?;
    Ok(lost.parse()?)
}
