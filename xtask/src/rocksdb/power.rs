//! The power goes below a database: its volume is an image on a disk that forgets what no fsync has made durable, in any order of
//! its sectors (`tests/lossy`).

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::Tally;
use super::kills::{lost_in, next};
use super::plugin::{Plugin, output, uri};
use crate::volume::Noise;
use crate::{shell, volume};

const VOLUME_BYTES: u64 = 256 << 20;
/// Longest time between the check at the start of a writer and the cut.
const RUN_MAX: Duration = Duration::from_millis(400);
/// One in so many writers loses its power while it still recovers.
const EARLY: u64 = 3;

/// Mode of crash_test, options of the URI, databases.
const CASES: &[(&str, &str, &str)] = &[
    ("sync", "flush=kernel", "/db"),
    ("sync-wal", "flush=kernel", "/a,/b"),
    ("sync", "flush=through", "/a,/b,/c"),
    ("sync-wal", "flush=memory", "/db"),
    // What was only flushed may be lost with the power, but only the end of it.
    ("memory", "flush=memory", "/db"),
    ("memory", "flush=through", "/db"),
    ("memory", "flush=kernel", "/db"),
];

/// So many cuts below each writer.
pub fn all(plugin: &Plugin, scratch: &Path, cuts: u32, tally: &mut Tally) {
    for (number, (mode, options, databases)) in CASES.iter().enumerate() {
        let name = format!("{mode}, {options}, {databases}");
        tally.check(&format!("{cuts} power cuts: {name}"), || {
            let work = scratch.join(format!("power-{number}"));
            fs::create_dir_all(&work)?;
            let told = case(plugin, &work, (mode, options, databases), cuts, number)?;
            println!("{name}: {told}");
            Ok(())
        });
    }
}

fn case(
    plugin: &Plugin,
    work: &Path,
    (mode, options, databases): (&str, &str, &str),
    cuts: u32,
    number: usize,
) -> Result<String> {
    let image = plugin.make_volume(work, "image", VOLUME_BYTES)?;
    let mut disk = Disk::new(plugin, &image, &work.join("mounted"))?;
    let state = work.join("state").display().to_string();
    let at = uri(&disk.path(), options);
    let words = [&at, databases, &state, mode];
    // What is in memory goes with the power.
    let kept = work.join("kept");
    let errors = work.join("errors");
    let mut dice = Noise(0x0FF + number as u64);
    let (mut lost, mut early, mut opening) = (0, 0, RUN_MAX);
    for cut in 0..cuts {
        fs::create_dir_all(&kept)?;
        let mut writer = plugin.test("crash_test");
        writer.args(words).env("PERSIMMON_KEPT_DIR", &kept);
        let mut writer = writer
            .stdout(Stdio::piped())
            .stderr(File::create(&errors)?)
            .spawn()?;
        let stdout = writer.stdout.take().context("a piped standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let start = Instant::now();
        let mut sleep = |most: Duration| {
            let micros = dice.below(most.as_micros().max(1) as u64);
            std::thread::sleep(Duration::from_micros(micros));
        };
        if cut > 0 && u64::from(cut) % EARLY == 0 {
            early += 1;
            sleep(opening);
        } else {
            let checked = next(&mut lines).and_then(|said| lost_in(&said));
            opening = start.elapsed();
            if let Err(error) = &checked {
                let saved = PathBuf::from(format!("/var/tmp/lossy-{}.img", std::process::id()));
                disk.say(&format!("save {}", saved.display()))?;
                writer.kill()?;
                writer.wait()?;
                let told = fs::read_to_string(&errors)?;
                bail!(
                    "cut {cut}: {error:#}: {}; the volume is in {}",
                    told.trim(),
                    saved.display()
                );
            }
            lost += checked?;
            sleep(RUN_MAX);
        }
        disk.say("off")?;
        writer.kill()?;
        writer.wait()?;
        fs::remove_dir_all(&kept)?;
        disk.say(&format!("on {}", dice.below(u64::MAX)))?;
    }
    let mut check = plugin.test("crash_test");
    let said = output(check.args(words).arg("check"))?;
    lost += lost_in(&said)?;
    ensure!(mode == "memory" || lost == 0, "{lost} operations are lost");
    plugin.fsck(&disk.path())?;
    disk.end()?;
    Ok(format!(
        "{}; {lost} acknowledged operations lost in {cuts} power cuts, {early} of them in recoveries",
        said.trim()
    ))
}

/// A disk that loses power.
struct Disk {
    dir: PathBuf,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Disk {
    fn new(plugin: &Plugin, image: &Path, dir: &Path) -> Result<Disk> {
        let mut cargo = shell::command(&["cargo", "build", "--quiet"]);
        shell::check(cargo.args(["--package", "persimmon-lossy-disk"]))?;
        let program = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
        let program = fs::canonicalize(program)?.join("debug/lossy-disk");
        let info = output(plugin.tool("info").arg(image).arg("--json"))?;
        let info: serde_json::Value = serde_json::from_str(&info)?;
        let zone = info["zone_size_bytes"]
            .as_u64()
            .context("bytes of a zone")?;
        fs::create_dir_all(dir)?;
        let mut command = shell::as_root(&[&program.to_string_lossy()]);
        command.arg(image).arg(dir);
        // Its first zone, or a bit more, is taken for what is before the zones.
        command.args([zone.to_string(), zone.to_string()]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("a piped standard output")?;
        let mut disk = Disk {
            dir: dir.to_owned(),
            child,
            stdin,
            lines: BufReader::new(stdout).lines(),
        };
        let said = next(&mut disk.lines)?;
        ensure!(said == "mounted", "lossy-disk says {said:?}");
        Ok(disk)
    }

    fn path(&self) -> PathBuf {
        self.dir.join("disk")
    }

    fn say(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("a disk in use")?;
        writeln!(stdin, "{line}")?;
        let said = next(&mut self.lines)?;
        let word = line.split(' ').next().unwrap_or_default();
        ensure!(said.starts_with(word), "to {line:?} it says {said:?}");
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        self.stdin = None;
        ensure!(self.child.wait()?.success(), "unmounting the disk");
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.stdin.take().is_some() {
            let _ = self.child.wait();
        }
        if let Err(error) = volume::detach(&self.dir) {
            eprintln!("unmounting {}: {error:#}", self.dir.display());
        }
    }
}
