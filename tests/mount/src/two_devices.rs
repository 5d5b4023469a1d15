//! A volume on two image files: filled, killed, found again, and looked for with the wrong ones.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::command::run;
use crate::posix::expect::noise;
use crate::scenario::{Scenario, TestBed};
use crate::snapshot::sync_tree;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "two_devices::what_is_synced_survives_kills_and_only_both_are_mounted",
    run: what_is_synced_survives_kills_and_only_both_are_mounted,
    limit_seconds: 120,
    only_persimmon: true,
}];

const FILES: u64 = 200;

fn what_is_synced_survives_kills_and_only_both_are_mounted(bed: &TestBed) -> Result<()> {
    let (fast, bulk) = ("two.fast", "two.bulk");
    let [fast, bulk] = [fast, bulk].map(|name| bed.work.join(name));
    for path in [&fast, &bulk] {
        let _ = std::fs::remove_file(path);
        File::create(path)?.set_len(if path == &fast { 64 << 20 } else { 512 << 20 })?;
    }
    let pair = format!("pair:{}+{}", fast.display(), bulk.display());
    let mut volume = bed.volume_on("two", Path::new(&pair))?;
    for round in 0..3 {
        volume.mount_foreground(&[])?;
        for number in 0..FILES {
            let path = volume.dir.join(number.to_string());
            if round > 0 {
                let kept = std::fs::read(&path).with_context(|| format!("file {number}"))?;
                let wanted = noise(number + round - 1, length(number));
                ensure!(kept == wanted, "file {number} of round {round} differs");
            }
            std::fs::write(&path, noise(number + round, length(number)))?;
        }
        sync_tree(&volume.dir)?;
        volume.kill()?;
    }
    let [fast, bulk] = [&fast, &bulk].map(|path| path.display().to_string());
    for name in [&fast, &bulk, &format!("pair:{bulk}+{fast}")] {
        let output = volume.tool("mount").arg(name).arg(&volume.dir).output()?;
        ensure!(
            output.status.code() == Some(32),
            "{name} was mounted: {output:?}"
        );
    }
    let meta = format!("meta={fast}");
    let mut command = volume.tool("mount");
    command.arg(&bulk).arg(&volume.dir).args(["-o", &meta]);
    // The daemon must not hold the pipes.
    let status = command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()?;
    ensure!(status.success(), "-o meta= did not mount");
    // Either of the two means the mount.
    run(volume.tool("info").arg(&fast))?;
    run(volume.tool("scrub").arg(&volume.dir))?;
    run(volume.tool("umount").arg(&bulk))?;
    volume.fsck()?;
    volume.destroy()?;
    for path in [fast, bulk] {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

fn length(number: u64) -> usize {
    [0, 100, 5000, 60_000, 1_000_000][(number % 5) as usize] + number as usize
}
