//! What the device has when a daemon dies is not written again: where a snapshot shares it that takes room, which what was answered
//! last may need.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::{PATIENCE, daemon, kill, upgrade};
use crate::command::{output, run};
use crate::posix::expect::{noise, same_bytes};
use crate::scenario::{Scenario, TestBed};
use crate::volume::Volume;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "supervised::what_was_answered_last_is_there_where_a_snapshot_leaves_little_room",
        run: little_room,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "supervised::an_upgrade_where_there_is_little_room_loses_nothing",
        run: upgrade_with_little_room,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "supervised::what_a_snapshot_shares_is_shared_still_after_a_kill",
        run: shared_still,
        limit_seconds: 120,
        only_persimmon: true,
    },
];

/// What is left free, as `df` tells.
const LEFT_KIB: u64 = 800;

fn mounted(bed: &TestBed, name: &str) -> Result<Volume> {
    let mut volume = bed.volume(name, 64 << 20, &["--compression", "none"])?;
    volume.mount_foreground(&["supervise"])?;
    Ok(volume)
}

fn free_kib(dir: &Path) -> Result<u64> {
    let space = rustix::fs::statvfs(dir)?;
    Ok(space.f_bavail * space.f_frsize / 1024)
}

fn snapshot(volume: &Volume, arguments: &[&str]) -> Result<String> {
    let mut command = volume.tool("snapshot");
    let (what, rest) = arguments.split_first().context("what to do")?;
    output(command.arg(what).arg(&volume.dir).args(rest))
}

/// Fills it but for [`LEFT_KIB`], has that durable, and takes a snapshot. What was written.
fn fill_and_share(volume: &Volume) -> Result<Vec<u8>> {
    let bytes = (free_kib(&volume.dir)? - LEFT_KIB) * 1024;
    let big = noise(1, bytes as usize);
    std::fs::write(volume.dir.join("big"), &big)?;
    run(volume.tool("sync").arg(&volume.dir))?;
    snapshot(volume, &["create", "one"])?;
    Ok(big)
}

/// Once a daemon that comes after `before` has answered.
fn next(volume: &Volume, before: u32) -> Result<()> {
    let begun = std::time::Instant::now();
    while daemon(volume)? == before {
        ensure!(begun.elapsed() < PATIENCE, "no daemon after {PATIENCE:?}");
        std::thread::yield_now();
    }
    volume.stats().map(drop)
}

/// Not what the kernel remembers.
fn holds(path: &Path, due: &[u8]) -> Result<()> {
    let file = std::fs::File::open(path)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    same_bytes(&std::fs::read(path)?, due).with_context(|| path.display().to_string())
}

fn nothing_is_lost(volume: &Volume) -> Result<()> {
    let stats = volume.stats()?;
    ensure!(
        !volume.log_tail().contains("is lost"),
        "{}",
        volume.log_tail()
    );
    ensure!(stats.to_string().contains("\"lost_files\":0"), "{stats}");
    // Nothing answers EIO.
    run(volume.tool("sync").arg(&volume.dir))
}

/// What had long been durable was written again first, and took the room.
fn little_room(bed: &TestBed) -> Result<()> {
    let mut volume = mounted(bed, "supervised-room")?;
    let big = fill_and_share(&volume)?;
    let new = noise(2, 100_000);
    std::fs::write(volume.dir.join("new"), &new)?;
    let first = daemon(&volume)?;
    kill(&volume)?;
    next(&volume, first)?;
    for (name, due) in [("big", &big), ("new", &new)] {
        holds(&volume.dir.join(name), due)?;
    }
    nothing_is_lost(&volume)?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

/// It was told that something was lost that was on the device, and each sync answered EIO.
fn upgrade_with_little_room(bed: &TestBed) -> Result<()> {
    let mut volume = mounted(bed, "supervised-room-upgrade")?;
    let big = fill_and_share(&volume)?;
    let new: Vec<_> = (0..8).map(|number| noise(2 + number, 16 << 10)).collect();
    for (number, content) in new.iter().enumerate() {
        std::fs::write(volume.dir.join(number.to_string()), content)?;
    }
    run(&mut upgrade(&volume, None))?;
    for (number, content) in new.iter().enumerate() {
        let path = volume.dir.join(number.to_string());
        holds(&path, content)?;
        std::fs::File::options()
            .write(true)
            .open(&path)?
            .sync_all()?;
    }
    holds(&volume.dir.join("big"), &big)?;
    nothing_is_lost(&volume)?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

/// The snapshot held alone what had not changed, and a comparison told each file.
fn shared_still(bed: &TestBed) -> Result<()> {
    let mut volume = mounted(bed, "supervised-shared")?;
    for number in 0..20 {
        let path = volume.dir.join(number.to_string());
        std::fs::write(path, noise(number, 1 << 20))?;
    }
    snapshot(&volume, &["create", "one"])?;
    let first = daemon(&volume)?;
    kill(&volume)?;
    next(&volume, first)?;
    let diff = snapshot(&volume, &["diff", "one"])?;
    ensure!(diff.is_empty(), "{diff}");
    let list: serde_json::Value = serde_json::from_str(&snapshot(&volume, &["list", "--json"])?)?;
    let alone = list[0]["own_bytes"]
        .as_u64()
        .context("what it alone holds")?;
    ensure!(alone < 1 << 20, "the snapshot alone holds {alone} bytes");
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}
