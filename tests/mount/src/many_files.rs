//! A volume of many files: how long a mount takes, and what the daemon keeps in memory.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::scenario::{Scenario, TestBed};
use crate::volume::{Kind, Volume};

const FILES: u32 = 100_000;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "many_files::mounting_and_memory_do_not_grow_with_them",
    run: mounting_and_memory_do_not_grow_with_them,
    limit_seconds: 300,
    only_persimmon: false,
}];

/// What a mount costs.
struct Cost {
    /// The median of nine.
    time: Duration,
    /// What it reads of the device; ext4 does not tell.
    read_bytes: Option<u64>,
}

fn mount_cost(volume: &mut Volume) -> Result<Cost> {
    let mut times = Vec::new();
    let mut read_bytes = None;
    for _ in 0..9 {
        let start = Instant::now();
        volume.mount(&[])?;
        std::fs::metadata(&volume.dir)?;
        times.push(start.elapsed());
        if volume.kind == Kind::Persimmon {
            read_bytes = volume.stats()?["read_bytes"].as_u64();
            read_bytes.context("`persimmon stats --json` has no number read_bytes")?;
        }
        volume.unmount()?;
    }
    times.sort_unstable();
    Ok(Cost {
        time: times[times.len() / 2],
        read_bytes,
    })
}

/// Resident memory of the daemon, now and at its highest.
fn memory_bytes(volume: &Volume) -> Result<Option<(u64, u64)>> {
    let Some(pid) = volume.daemon_pid() else {
        return Ok(None);
    };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| -> Result<u64> {
        let line = status.lines().find(|line| line.starts_with(name));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        let kib: u64 = number
            .with_context(|| format!("no {name} in status"))?
            .parse()?;
        Ok(kib << 10)
    };
    Ok(Some((field("VmRSS:")?, field("VmHWM:")?)))
}

fn mounting_and_memory_do_not_grow_with_them(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("many-files", 2 << 30, &[])?;
    let empty = mount_cost(&mut volume)?;
    volume.mount_foreground(&[])?;
    let at_start = memory_bytes(&volume)?;
    for number in 0..FILES {
        let dir = volume.dir.join((number % 100).to_string());
        if number < 100 {
            std::fs::create_dir(&dir)?;
        }
        std::fs::write(dir.join(number.to_string()), number.to_le_bytes())?;
    }
    let filled = memory_bytes(&volume)?;
    volume.unmount()?;
    let full = mount_cost(&mut volume)?;
    println!(
        "      mounting: empty {:.1} ms, {FILES} files {:.1} ms",
        empty.time.as_secs_f64() * 1000.0,
        full.time.as_secs_f64() * 1000.0
    );
    // Times differ from run to run; what is read of the device does not.
    if let (Some(empty), Some(full)) = (empty.read_bytes, full.read_bytes) {
        println!(
            "      mounting reads: empty {} KiB, {FILES} files {} KiB",
            empty >> 10,
            full >> 10
        );
        ensure!(
            full <= 2 * empty.max(256 << 10),
            "mounting reads {full} bytes, {empty} of an empty volume"
        );
    }
    volume.mount_foreground(&[])?;
    let mut seen = 0;
    for dir in std::fs::read_dir(&volume.dir)? {
        let dir = dir?.path();
        if dir.file_name().is_some_and(|name| name == "lost+found") {
            continue;
        }
        for entry in std::fs::read_dir(dir)? {
            ensure!(entry?.metadata()?.len() == 4, "a file has changed its size");
            seen += 1;
        }
    }
    ensure!(seen == FILES, "{seen} files");
    let walked = memory_bytes(&volume)?;
    if let (Some((start, _)), Some((_, filled)), Some((_, walked))) = (at_start, filled, walked) {
        println!(
            "      memory of the daemon: {} MiB at first, {} MiB at most making {FILES} files, {} MiB at most looking at them",
            start >> 20,
            filled >> 20,
            walked >> 20
        );
    }
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}
