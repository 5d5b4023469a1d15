//! Mounts that end badly: what is left of one whose daemon was killed, and unmounting on a full host.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use persimmon_fuse::mounts;
use rustix::fs::OFlags;
use rustix::mount::UnmountFlags;

use crate::command::{run, script};
use crate::durable::transports;
use crate::posix::expect::{create, noise};
use crate::scenario::{Scenario, TestBed};
use crate::sys::Map;
use crate::volume::{Volume, abort_file, is_mounted};

/// How long a killed daemon may take to be gone.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is tried to kill the daemon in the right moment.
const ATTEMPTS: u32 = 20;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "unmounting::a_mount_whose_daemon_was_killed_is_named_and_taken_away",
        run: a_mount_whose_daemon_was_killed_is_named_and_taken_away,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "unmounting::a_daemon_killed_while_it_unmounts_holds_up_nobody",
        run: a_daemon_killed_while_it_unmounts_holds_up_nobody,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "unmounting::a_daemon_killed_while_the_kernel_writes_for_it_holds_up_nobody",
        run: a_daemon_killed_while_the_kernel_writes_for_it_holds_up_nobody,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "unmounting::one_of_two_places_is_unmounted_at_once",
        run: one_of_two_places_is_unmounted_at_once,
        limit_seconds: 50,
        only_persimmon: true,
    },
    Scenario {
        name: "unmounting::a_fresh_mount_is_not_busy",
        run: a_fresh_mount_is_not_busy,
        limit_seconds: 50,
        only_persimmon: true,
    },
    Scenario {
        name: "unmounting::on_a_full_host_nothing_is_given_up",
        run: on_a_full_host_nothing_is_given_up,
        limit_seconds: 120,
        only_persimmon: true,
    },
];

/// Commands said that nothing was mounted there, that the mount point is no directory, or only that an endpoint is
/// not connected; and `persimmon umount` could not take it away.
fn a_mount_whose_daemon_was_killed_is_named_and_taken_away(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("abandoned", 64 << 20, &[])?;
    volume.mount_foreground(&[])?;
    // The kernel remembers what it knows of the directory.
    std::fs::metadata(&volume.dir)?;
    volume.kill_daemon()?;
    let is_told = |command: &mut Command| -> Result<()> {
        let output = command.output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(
            !output.status.success() && told.contains("its daemon is gone; `umount "),
            "{command:?}: {output:?}"
        );
        Ok(())
    };
    for name in ["info", "stats", "zones", "sync", "clean", "tune", "scrub"] {
        is_told(volume.tool(name).arg(&volume.dir))?;
        is_told(volume.tool(name).arg(&volume.image))?;
    }
    is_told(volume.tool("mount").arg(&volume.image).arg(&volume.dir))?;
    run(volume.tool("umount").arg(&volume.dir))?;
    ensure!(!is_mounted(&volume.dir)?, "it is still mounted");
    volume.mount(&[])?;
    volume.unmount()?;
    volume.destroy()
}

/// The thread that unmounts waits in the kernel for the daemon's own answer, and kept the connection open when there was
/// nobody to give it any more: sync(2) of the whole machine waited for ever.
fn a_daemon_killed_while_it_unmounts_holds_up_nobody(bed: &TestBed) -> Result<()> {
    for transport in transports() {
        killed_while(
            bed,
            transport,
            ("unmount", "request_wait_answer"),
            |volume| {
                File::create(volume.dir.join("late"))?.write_all(&noise(1, 60 << 20))?;
                let pid = volume.daemon_pid().context("a daemon in the foreground")?;
                run(Command::new("kill").arg(pid.to_string()))?;
                Ok(None)
            },
        )
        .with_context(|| (*transport).to_owned())?;
    }
    Ok(())
}

/// The same of a thread that has the kernel write what a map has stored, before a rename over a file.
fn a_daemon_killed_while_the_kernel_writes_for_it_holds_up_nobody(bed: &TestBed) -> Result<()> {
    for transport in transports() {
        killed_while(bed, transport, ("rename-0", "folio_wait_bit"), |volume| {
            let (new, target) = (volume.dir.join("new"), volume.dir.join("target"));
            File::create(&target)?;
            let bytes = 20 << 20;
            let file = create(&new, OFlags::CREATE | OFlags::RDWR, 0o644)?;
            file.set_len(bytes as u64)?;
            let map = Map::new(&file, bytes, true)?;
            (0..bytes).step_by(4096).for_each(|at| map.set(at, 7));
            Ok(Some(thread::spawn(move || {
                let renamed = std::fs::rename(new, target);
                drop((file, map));
                renamed
            })))
        })
        .with_context(|| (*transport).to_owned())?;
    }
    Ok(())
}

/// Kills the daemon when its thread of this name waits so in the kernel, which it does soon after `work` has begun. What
/// `work` leaves running must come to an end.
fn killed_while(
    bed: &TestBed,
    transport: &str,
    waits: (&str, &str),
    work: impl Fn(&Volume) -> Result<Option<JoinHandle<std::io::Result<()>>>>,
) -> Result<()> {
    let mut volume = bed.volume("killed-while", 512 << 20, &[])?;
    for _ in 0..ATTEMPTS {
        volume.mount_foreground(&["commit=3600", transport])?;
        let pid = volume.daemon_pid().context("a daemon in the foreground")?;
        let line = mounts::at(&volume.dir)?.context("the mount")?;
        let mut abort = abort_file(&line)?;
        let begun = work(&volume)?;
        let is_over = || begun.as_ref().is_some_and(JoinHandle::is_finished);
        let mut seen = false;
        while !seen && !is_over() && Path::new(&format!("/proc/{pid}/fd")).exists() {
            seen = waits_in_kernel(pid, waits)?;
        }
        let killed = volume.kill_daemon_within(PATIENCE);
        if killed.is_err() {
            abort.write_all(b"1")?;
        }
        if let Some(begun) = begun {
            let _ = begun.join();
        }
        killed?;
        volume.detach()?;
        volume.mount(&[])?;
        volume.unmount()?;
        volume.fsck()?;
        if seen {
            return volume.destroy();
        }
    }
    bail!("{waits:?} was not seen")
}

fn waits_in_kernel(pid: u32, (name, function): (&str, &str)) -> Result<bool> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Ok(false);
    };
    for thread in threads {
        let thread = thread?.path();
        let told = |file: &str| std::fs::read_to_string(thread.join(file)).unwrap_or_default();
        if told("comm").trim() == name {
            return Ok(told("wchan").trim() == function);
        }
    }
    Ok(false)
}

/// `persimmon umount` waited for a minute for a daemon that had to go on.
fn one_of_two_places_is_unmounted_at_once(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("bound", 64 << 20, &[])?;
    volume.mount(&[])?;
    let other = bed.outside("bound-too")?;
    run(Command::new("mount")
        .arg("--bind")
        .arg(&volume.dir)
        .arg(&other))?;
    run(volume.tool("umount").arg(&other))?;
    ensure!(is_mounted(&volume.dir)?, "both are gone");
    File::create(volume.dir.join("goes-on"))?.sync_all()?;
    volume.unmount()?;
    volume.destroy()
}

/// `umount` right after `mount` said that the target is busy, once in some thousand runs on a busy machine: the daemon's
/// guard was still becoming another program, which takes up to 45 ms there, and had the mount open until it was one.
fn a_fresh_mount_is_not_busy(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("fresh", 64 << 20, &[])?;
    for round in 0..20 {
        volume.mount(&[])?;
        // Not umount(8), which takes a moment to begin.
        rustix::mount::unmount(&volume.dir, UnmountFlags::empty())
            .with_context(|| format!("round {round}"))?;
        volume.let_go()?;
    }
    volume.destroy()
}

/// `persimmon umount` ended with 0 though what was written last had found no room below the image.
fn on_a_full_host_nothing_is_given_up(bed: &TestBed) -> Result<()> {
    let host = bed.outside("full-host")?;
    script(&host, &[], "mount -t tmpfs -o size=48M tmpfs .")?;
    let result = fill_and_unmount(&TestBed {
        work: host.clone(),
        ..bed.clone()
    });
    run(Command::new("umount").arg("-l").arg(&host))?;
    result
}

fn fill_and_unmount(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("full", 256 << 20, &[])?;
    volume.mount(&[])?;
    let outcome = unmount_when_full(bed, &volume);
    volume.detach()?;
    outcome
}

fn unmount_when_full(bed: &TestBed, volume: &Volume) -> Result<()> {
    let ballast = bed.work.join("ballast");
    script(
        &bed.work,
        &[],
        "head -c 1G /dev/zero > ballast 2>/dev/null || true",
    )?;
    let due = noise(1, 8 << 20);
    File::create(volume.dir.join("late"))?.write_all(&due)?;
    let output = volume.tool("umount").arg(&volume.dir).output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(1) && told.contains("stays mounted"),
        "{output:?}"
    );
    std::fs::remove_file(ballast)?;
    run(volume.tool("umount").arg(&volume.dir))?;
    run(volume.tool("mount").arg(&volume.image).arg(&volume.dir))?;
    ensure!(std::fs::read(volume.dir.join("late"))? == due, "it is lost");
    run(volume.tool("umount").arg(&volume.dir))
}
