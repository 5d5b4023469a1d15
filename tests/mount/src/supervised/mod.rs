//! A daemon that is killed, or replaced, again and again under a supervisor: programs that run meanwhile see no error, and all that they
//! were answered is there.

pub mod failing;
pub mod sharing;
mod workers;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::Signal;

use crate::check::{Body, Check, Place};
use crate::command::{output, run};
use crate::posix::expect::Noise;
use crate::programs;
use crate::scenario::{Scenario, TestBed};
use crate::volume::Volume;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "supervised::kills_under_load_lose_nothing_and_show_no_error",
        run: kills_under_load,
        limit_seconds: 3000,
        only_persimmon: true,
    },
    Scenario {
        name: "supervised::kills_with_a_writeback_cache_do_neither",
        run: kills_with_a_writeback_cache,
        limit_seconds: 1800,
        only_persimmon: true,
    },
    Scenario {
        name: "supervised::upgrades_under_load_are_not_noticed",
        run: upgrades_under_load,
        limit_seconds: 1800,
        only_persimmon: true,
    },
    Scenario {
        name: "supervised::what_cannot_take_over_leaves_the_old_daemon",
        run: what_cannot_take_over,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "supervised::unlinked_files_stay_until_they_are_closed",
        run: unlinked_files_stay,
        limit_seconds: 120,
        only_persimmon: true,
    },
];

/// Kills where the command line says nothing; `--rounds 200` is the measure.
const KILLS: u32 = 30;
/// The same of upgrades.
const UPGRADES: u32 = 20;
/// How long a daemon may take to be there.
const PATIENCE: Duration = Duration::from_secs(60);

fn bytes(name: &str) -> u64 {
    match name {
        "supervised-kills" => 4 << 30,
        _ => 1 << 30,
    }
}

fn mounted(bed: &TestBed, name: &str, options: &[&str]) -> Result<Volume> {
    let mut volume = bed.volume(name, bytes(name), &[])?;
    let mut all = vec!["supervise", "dev", "suid"];
    all.extend(options);
    volume.mount_foreground(&all)?;
    // A daemon that is killed in its first milliseconds may end the mount: that is not what is looked at here.
    std::fs::metadata(&volume.dir)?;
    Ok(volume)
}

/// The daemon of a volume that is mounted in the foreground.
fn daemon(volume: &Volume) -> Result<u32> {
    let supervisor = volume.daemon_pid().context("a supervisor")?;
    let start = Instant::now();
    loop {
        let children = format!("/proc/{supervisor}/task/{supervisor}/children");
        let children = std::fs::read_to_string(children)?;
        for child in children.split_whitespace() {
            let line = std::fs::read_to_string(format!("/proc/{child}/cmdline"));
            let line = line.unwrap_or_default();
            if line.contains("--supervised") || line.contains("--resumed") {
                return Ok(child.parse()?);
            }
        }
        if start.elapsed() > PATIENCE {
            bail!("no daemon after {PATIENCE:?}\n{}", volume.log_tail());
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn signal(volume: &Volume, signal: Signal) -> Result<()> {
    let pid = i32::try_from(daemon(volume)?)?;
    let pid = rustix::process::Pid::from_raw(pid).context("a process")?;
    // One that has just died of the last one is as good.
    let _ = rustix::process::kill_process(pid, signal);
    Ok(())
}

fn kill(volume: &Volume) -> Result<()> {
    signal(volume, Signal::KILL)
}

fn upgrade(volume: &Volume, program: Option<&Path>) -> Command {
    let mut command = volume.tool("upgrade-daemon");
    command.arg(&volume.dir).arg("--json");
    if let Some(program) = program {
        command.arg("--program").arg(program);
    }
    command
}

/// Real programs, which check their files themselves.
fn loads(all: bool) -> Vec<Check> {
    let mut loads = [programs::git::CHECKS, programs::sqlite::CHECKS].concat();
    if all {
        loads.extend_from_slice(programs::postgres::CHECKS);
        loads.extend_from_slice(programs::fsx::CHECKS);
        loads.extend_from_slice(programs::tree::CHECKS);
    }
    loads
}

/// Runs loads and workers, again and again, and `disturb` beside them, which says whether that was enough.
fn under_load(
    bed: &TestBed,
    volume: &Volume,
    loads: &[Check],
    mut disturb: impl FnMut() -> Result<bool>,
) -> Result<()> {
    rustix::fs::chmod(&volume.dir, rustix::fs::Mode::from_raw_mode(0o755))?;
    let (stop, rounds) = (AtomicBool::new(false), AtomicU32::new(0));
    let (stop, rounds) = (&stop, &rounds);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for load in loads {
            let Body::Place(body) = load.run else {
                continue;
            };
            let name = load.name;
            threads.push(scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    let place = place(bed, volume, name)?;
                    body(&place).with_context(|| format!("{name}\n{}", volume.log_tail()))?;
                    std::fs::remove_dir_all(&place.dir).context("removing what it made")?;
                    rounds.fetch_add(1, Ordering::SeqCst);
                }
                Ok(())
            }));
        }
        for (name, work) in workers::ALL {
            let dir = volume.dir.join(name);
            threads.push(scope.spawn(move || {
                std::fs::create_dir_all(&dir)?;
                let worked = work(&dir, stop);
                worked.with_context(|| format!("worker {name}\n{}", volume.log_tail()))
            }));
        }
        let mut disturbed = Ok(());
        while !threads.iter().any(|thread| thread.is_finished()) {
            match disturb() {
                Ok(false) => {}
                Ok(true) => break,
                Err(error) => {
                    disturbed = Err(error);
                    break;
                }
            }
        }
        stop.store(true, Ordering::SeqCst);
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a load panicked"))??;
        }
        disturbed
    })?;
    println!(
        "      {} programs came to their end",
        rounds.load(Ordering::SeqCst)
    );
    Ok(())
}

fn place(bed: &TestBed, volume: &Volume, name: &str) -> Result<Place> {
    let name = name.replace("::", "-");
    let dir = volume.dir.join(&name);
    std::fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
    rustix::fs::chmod(&dir, rustix::fs::Mode::from_raw_mode(0o777))?;
    Ok(Place {
        dir,
        outside: bed.outside(&format!("supervised-{name}"))?,
    })
}

fn kills(bed: &TestBed, name: &str, options: &[&str], kills: u32, all: bool) -> Result<()> {
    let mut volume = mounted(bed, name, options)?;
    let mut dice = Noise(7);
    let (mut killed, mut longest) = (0, Duration::ZERO);
    under_load(bed, &volume, &loads(all), || {
        thread::sleep(Duration::from_millis(100 + dice.below(900)));
        kill(&volume)?;
        killed += 1;
        let start = Instant::now();
        // Not from the kernel's memory.
        std::fs::File::create(volume.dir.join("answered"))?;
        longest = longest.max(start.elapsed());
        Ok(killed >= kills)
    })?;
    println!("      {killed} kills; the longest wait was {longest:?}");
    ensure!(killed >= kills, "ended after {killed} kills");
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

fn kills_under_load(bed: &TestBed) -> Result<()> {
    let count = bed.rounds.unwrap_or(KILLS);
    kills(bed, "supervised-kills", &[], count, bed.rounds.is_some())
}

fn kills_with_a_writeback_cache(bed: &TestBed) -> Result<()> {
    let options = ["writeback_cache"];
    let count = bed.rounds.unwrap_or(KILLS / 2);
    kills(bed, "supervised-writeback", &options, count, false)
}

fn upgrades_under_load(bed: &TestBed) -> Result<()> {
    let mut volume = mounted(bed, "supervised-upgrades", &[])?;
    // Two programs, in turn, one of which goes away when it runs.
    let other = bed.outside("supervised-program")?.join("persimmon-other");
    let (mut done, mut longest) = (0, Duration::ZERO);
    under_load(bed, &volume, &loads(false), || {
        thread::sleep(Duration::from_millis(400));
        let to_other = done % 2 == 0;
        if to_other {
            std::fs::copy(&bed.persimmon, &other)?;
        }
        let start = Instant::now();
        let before = daemon(&volume)?;
        let told = output(&mut upgrade(&volume, to_other.then_some(&*other)))?;
        longest = longest.max(start.elapsed());
        let told: serde_json::Value = serde_json::from_str(&told)?;
        let program = told["program"].as_str().map(PathBuf::from);
        let due = if to_other { &other } else { &bed.persimmon };
        ensure!(program.as_ref() == Some(due), "{told}");
        ensure!(told["process"].as_u64() != Some(before.into()), "{told}");
        if to_other {
            std::fs::remove_file(&other)?;
        }
        done += 1;
        Ok(done >= bed.rounds.unwrap_or(UPGRADES))
    })?;
    println!("      {done} upgrades; the longest took {longest:?}");
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

fn refused(command: &mut Command, why: &str) -> Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(1) && told.contains(why),
        "{output:?}, not {why}"
    );
    Ok(())
}

fn what_cannot_take_over(bed: &TestBed) -> Result<()> {
    let outside = bed.outside("supervised-bad")?;
    let mut command = Command::new(&bed.persimmon);
    command.arg("upgrade-daemon").arg(&outside);
    refused(&mut command, "not")?;
    let mut alone = bed.volume("unsupervised", 64 << 20, &[])?;
    alone.mount(&[])?;
    refused(&mut upgrade(&alone, None), "has no supervisor")?;
    alone.destroy()?;

    let mut volume = mounted(bed, "supervised-bad", &[])?;
    std::fs::write(volume.dir.join("file"), "content")?;
    let first = daemon(&volume)?;
    refused(
        &mut upgrade(&volume, Some(Path::new("/bin/false"))),
        "no persimmon",
    )?;
    refused(
        &mut upgrade(&volume, Some(Path::new("/no/such"))),
        "No such file",
    )?;
    ensure!(daemon(&volume)? == first, "the daemon did not stay");
    // One that says it can, and cannot.
    let liar = outside.join("liar");
    std::fs::write(&liar, "#!/bin/sh\n[ \"$1\" = --can-resume-a-mount ]\n")?;
    std::fs::set_permissions(&liar, std::fs::Permissions::from_mode(0o755))?;
    refused(&mut upgrade(&volume, Some(&liar)), "cannot go on")?;
    ensure!(
        std::fs::read(volume.dir.join("file"))? == b"content",
        "the file"
    );
    // A user who did not mount it.
    let mut stranger = Command::new("setpriv");
    stranger.args(["--reuid=65534", "--clear-groups"]);
    stranger
        .arg(&bed.persimmon)
        .arg("upgrade-daemon")
        .arg(&volume.dir);
    rustix::fs::chmod(&volume.dir, rustix::fs::Mode::from_raw_mode(0o755))?;
    refused(&mut stranger, "only root")?;
    run(&mut upgrade(&volume, None))?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

/// They were freed by each recovery.
fn unlinked_files_stay(bed: &TestBed) -> Result<()> {
    use std::io::{Read, Seek, Write};
    let mut volume = mounted(bed, "supervised-unlinked", &[])?;
    let path = volume.dir.join("file");
    let mut file = std::fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    file.write_all(b"written before")?;
    std::fs::remove_file(&path)?;
    std::fs::create_dir(volume.dir.join("dir"))?;
    let dir = std::fs::File::open(volume.dir.join("dir"))?;
    std::fs::remove_dir(volume.dir.join("dir"))?;
    for round in 0..3 {
        kill(&volume)?;
        file.rewind()?;
        let mut content = String::new();
        file.read_to_string(&mut content)
            .with_context(|| format!("round {round}"))?;
        ensure!(content.starts_with("written before"), "{content:?}");
        file.write_all(b", and later")?;
        dir.metadata().context("the directory")?;
    }
    let inodes = |volume: &Volume| -> Result<u64> {
        Ok(rustix::fs::statvfs(&volume.dir)?.f_files - rustix::fs::statvfs(&volume.dir)?.f_ffree)
    };
    let before = inodes(&volume)?;
    drop((file, dir));
    let start = Instant::now();
    while inodes(&volume)? + 2 > before {
        ensure!(start.elapsed() < PATIENCE, "they are not freed once closed");
        thread::sleep(Duration::from_millis(20));
    }
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}
