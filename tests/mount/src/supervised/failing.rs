//! Daemons that do not go on as they should: who waits hears of it, and nobody waits for ever.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow, bail, ensure};
use rustix::fs::FlockOperation;
use rustix::process::Signal;

use super::{PATIENCE, daemon, mounted, refused, signal, upgrade};
use crate::command::output;
use crate::scenario::{Scenario, TestBed};
use crate::volume::Volume;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "supervised::a_daemon_that_cannot_go_on_ends_the_mount",
        run: a_daemon_that_cannot_go_on,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "supervised::daemons_that_crash_again_and_again_end_the_mount",
        run: daemons_that_crash,
        limit_seconds: 180,
        only_persimmon: true,
    },
    Scenario {
        name: "supervised::a_daemon_that_hangs_is_followed_by_another",
        run: a_daemon_that_hangs,
        limit_seconds: 300,
        only_persimmon: true,
    },
    Scenario {
        name: "supervised::an_upgrade_to_what_dies_at_once_is_told",
        run: an_upgrade_to_what_dies,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "supervised::two_upgrades_at_a_time_both_come",
        run: two_upgrades,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "supervised::nobody_opens_the_device_between_two_daemons",
        run: nobody_between_two_daemons,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "supervised::a_log_on_the_mount_itself_is_refused",
        run: a_log_on_the_mount,
        limit_seconds: 60,
        only_persimmon: true,
    },
];

/// Asks the daemon, not the kernel's memory.
fn touch(volume: &Volume, name: &str) -> std::io::Result<()> {
    File::create(volume.dir.join(name)).map(drop)
}

/// The next daemon after `before`, as soon as there is one.
fn next_after(volume: &Volume, before: u32) -> Result<u32> {
    let start = Instant::now();
    loop {
        let now = daemon(volume)?;
        if now != before {
            return Ok(now);
        }
        ensure!(start.elapsed() < PATIENCE, "no daemon after {PATIENCE:?}");
        thread::yield_now();
    }
}

/// Nobody waits for ever for one that cannot come.
fn a_daemon_that_cannot_go_on(bed: &TestBed) -> Result<()> {
    let mut volume = mounted(bed, "supervised-lost", &[])?;
    fs::write(volume.dir.join("file"), "content")?;
    let image = fs::read(&volume.image)?;
    fs::write(&volume.image, b"")?;
    signal(&volume, Signal::KILL)?;
    let looked = fs::write(volume.dir.join("other"), "");
    ensure!(looked.is_err(), "{looked:?}");
    volume.detach()?;
    fs::write(&volume.image, image)?;
    volume.mount(&[])?;
    volume.unmount()?;
    volume.destroy()
}

/// Each answered something before it died, and so the next one was started, for ever.
fn daemons_that_crash(bed: &TestBed) -> Result<()> {
    let mut volume = mounted(bed, "supervised-crashing", &[])?;
    let mut crashes = 0;
    // Whoever asks is answered or hears an error.
    while touch(&volume, "file").is_ok() {
        ensure!(crashes < 30, "goes on after {crashes} crashes");
        signal(&volume, Signal::USR2)?;
        crashes += 1;
    }
    ensure!(crashes >= 10, "given up after {crashes} crashes");
    let log = volume.log_tail();
    ensure!(log.contains("the mount is given up"), "{log}");
    volume.detach()?;
    volume.mount(&[])?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

/// Programs waited for it for ever.
fn a_daemon_that_hangs(bed: &TestBed) -> Result<()> {
    let mut volume = mounted(bed, "supervised-hanging", &[])?;
    fs::write(volume.dir.join("file"), "content")?;
    let first = daemon(&volume)?;
    signal(&volume, Signal::KILL)?;
    let hanging = next_after(&volume, first)?;
    signal(&volume, Signal::STOP)?;
    let start = Instant::now();
    touch(&volume, "other")?;
    println!("      waited {:?}", start.elapsed());
    ensure!(daemon(&volume)? != hanging, "it is there still");
    let log = volume.log_tail();
    ensure!(log.contains("does not answer after 10 s"), "{log}");
    ensure!(fs::read(volume.dir.join("file"))? == b"content", "the file");
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

/// It was told that the new program goes on, by that program.
fn an_upgrade_to_what_dies(bed: &TestBed) -> Result<()> {
    let other = bed.outside("supervised-dying")?.join("persimmon-other");
    fs::copy(&bed.persimmon, &other)?;
    let mut volume = mounted(bed, "supervised-dying", &[])?;
    let first = daemon(&volume)?;
    thread::scope(|scope| {
        let told = scope.spawn(|| refused(&mut upgrade(&volume, Some(&other)), "cannot go on"));
        let second = next_after(&volume, first)?;
        // It serves by then.
        touch(&volume, "file")?;
        ensure!(daemon(&volume)? == second, "another daemon");
        signal(&volume, Signal::KILL)?;
        told.join().map_err(|_| anyhow!("it panicked"))?
    })?;
    let program = fs::read_link(format!("/proc/{}/exe", daemon(&volume)?))?;
    ensure!(program == bed.persimmon, "{} goes on", program.display());
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

/// The supervisor kept the last program that it was told of, and whoever had asked for the other was told that it goes on.
fn two_upgrades(bed: &TestBed) -> Result<()> {
    let outside = bed.outside("supervised-two")?;
    let programs = ["one", "two"].map(|name| outside.join(name));
    for program in &programs {
        fs::copy(&bed.persimmon, program)?;
    }
    let mut volume = mounted(bed, "supervised-two", &[])?;
    thread::scope(|scope| {
        let volume = &volume;
        let asked = programs.each_ref().map(|program| {
            scope.spawn(move || -> Result<()> {
                let told = output(&mut upgrade(volume, Some(program)))?;
                let told: serde_json::Value = serde_json::from_str(&told)?;
                ensure!(told["program"].as_str() == program.to_str(), "{told}");
                Ok(())
            })
        });
        asked.into_iter().try_for_each(|thread| {
            let ended = thread.join();
            ended.map_err(|_| anyhow!("it panicked"))?
        })
    })?;
    touch(&volume, "file")?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

/// What waits for the device, fsck for example, had it once the daemon was dead, and the next one found other content than it was told of.
fn nobody_between_two_daemons(bed: &TestBed) -> Result<()> {
    let mut volume = mounted(bed, "supervised-locked", &[])?;
    let (stop, image) = (AtomicBool::new(false), File::open(&volume.image)?);
    thread::scope(|scope| {
        let others = scope.spawn(|| {
            let mut tries = 0;
            while !stop.load(Ordering::SeqCst) {
                if rustix::fs::flock(&image, FlockOperation::NonBlockingLockExclusive).is_ok() {
                    // Else the next daemon waits for it.
                    rustix::fs::flock(&image, FlockOperation::Unlock)?;
                    bail!("another had the image after {tries} tries");
                }
                tries += 1;
            }
            Ok(())
        });
        let kills = (0..5).try_for_each(|_| -> Result<()> {
            signal(&volume, Signal::KILL)?;
            touch(&volume, "file")?;
            Ok(())
        });
        stop.store(true, Ordering::SeqCst);
        others.join().map_err(|_| anyhow!("it panicked"))??;
        kills
    })?;
    // Once it is unmounted anybody may, at once.
    volume.unmount()?;
    rustix::fs::flock(&image, FlockOperation::NonBlockingLockExclusive)?;
    drop(image);
    volume.fsck()?;
    volume.destroy()
}

/// The next daemon opened its log there, and waited for itself.
fn a_log_on_the_mount(bed: &TestBed) -> Result<()> {
    let volume = bed.volume("supervised-log", 64 << 20, &[])?;
    let outside = bed.outside("supervised-log")?;
    let link = outside.join("link");
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(&volume.dir, &link)?;
    let mount = |log: &Path| {
        let mut command = volume.tool("mount");
        command.arg(&volume.image).arg(&volume.dir);
        command.args(["-o", &format!("supervise,log={}", log.display())]);
        command.stdin(Stdio::null());
        command
    };
    for dir in [&volume.dir, &link] {
        refused(&mut mount(&dir.join("log")), "on the mount")?;
    }
    ensure!(
        mount(&outside.join("log")).status()?.success(),
        "a log elsewhere"
    );
    crate::command::run(volume.tool("umount").arg(&volume.dir))?;
    volume.destroy()
}
