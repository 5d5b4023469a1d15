//! Mounts that end badly: what is left of one whose daemon was killed, and unmounting on a full host.

use std::fs::File;
use std::io::Write;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::command::{run, script};
use crate::posix::expect::noise;
use crate::scenario::{Ground, Scenario};
use crate::volume::{Volume, is_mounted};

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "unmounting::a_mount_whose_daemon_was_killed_is_named_and_taken_away",
        run: a_mount_whose_daemon_was_killed_is_named_and_taken_away,
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
        name: "unmounting::on_a_full_host_nothing_is_given_up",
        run: on_a_full_host_nothing_is_given_up,
        limit_seconds: 120,
        only_persimmon: true,
    },
];

/// Commands said that nothing was mounted there, that the mount point is no directory, or only that an endpoint is
/// not connected; and `persimmon umount` could not take it away.
fn a_mount_whose_daemon_was_killed_is_named_and_taken_away(ground: &Ground) -> Result<()> {
    let mut volume = ground.volume("abandoned", 64 << 20, &[])?;
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

/// `persimmon umount` waited for a minute for a daemon that had to go on.
fn one_of_two_places_is_unmounted_at_once(ground: &Ground) -> Result<()> {
    let mut volume = ground.volume("bound", 64 << 20, &[])?;
    volume.mount(&[])?;
    let other = ground.outside("bound-too")?;
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

/// `persimmon umount` ended with 0 though what was written last had found no room below the image.
fn on_a_full_host_nothing_is_given_up(ground: &Ground) -> Result<()> {
    let host = ground.outside("full-host")?;
    script(&host, &[], "mount -t tmpfs -o size=48M tmpfs .")?;
    let result = fill_and_unmount(&Ground {
        work: host.clone(),
        ..ground.clone()
    });
    run(Command::new("umount").arg("-l").arg(&host))?;
    result
}

fn fill_and_unmount(ground: &Ground) -> Result<()> {
    let mut volume = ground.volume("full", 256 << 20, &[])?;
    volume.mount(&[])?;
    let outcome = unmount_when_full(ground, &volume);
    volume.detach()?;
    outcome
}

fn unmount_when_full(ground: &Ground, volume: &Volume) -> Result<()> {
    let ballast = ground.work.join("ballast");
    script(
        &ground.work,
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
