//! Real programs on a drive of the guest: the programs of this machine and the checks of the mount tests that use
//! them.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::guest::{Guest, Machine};
use super::host_root;
use crate::{shell, volume};

/// The ways to the guest's first drive, which is a ZNS SSD.
const WAYS: &[&str] = &["/dev/ns1", "/dev/generic1", "zonefs:/tmp/zonefs"];

/// The emulated processor takes some ten times as long.
const PATIENCE: u32 = 20;
const LIMIT: Duration = Duration::from_secs(3 * 3600);
/// With what comes before.
pub const LIFE_LIMIT: Duration = Duration::from_secs(4 * 3600);
const SET_UP_LIMIT: Duration = Duration::from_secs(120);

/// Runs the checks with one of these in their name on each of the ways, or on one; whether all passed.
pub fn run(machine: &Machine, way: Option<&str>, filters: &[String]) -> Result<bool> {
    shell::check(&mut shell::command(&[
        "cargo",
        "build",
        "--release",
        "--quiet",
        "--package",
        "persimmon-mount-tests",
    ]))?;
    let tests = volume::built("mount-tests")?;
    let persimmon = volume::built("persimmon")?;
    let (tests, persimmon) = (text(&tests)?, text(&persimmon)?);
    let filters = match filters {
        [] => "programs::".to_owned(),
        filters => filters.join(" "),
    };
    let mut all_passed = true;
    for way in WAYS
        .iter()
        .filter(|known| way.is_none_or(|way| way == **known))
    {
        let start = Instant::now();
        let mut guest = Guest::boot(machine)?;
        host_root::set_up(&mut guest)?;
        if way.starts_with("zonefs:") {
            let zonefs = "modprobe zonefs; drive-tests zonefs-make /dev/ns1 && \
                          mount -t zonefs -o explicit-open /dev/ns1 /host/tmp/zonefs";
            guest.check(zonefs, SET_UP_LIMIT)?;
        }
        println!("-- {way} on Linux {}", machine.kernel.name());
        let command = host_root::command(&format!(
            "{tests} --persimmon {persimmon} --work /var/tmp/persimmon --device {way} --patience {PATIENCE} {filters}"
        ))?;
        let code = guest.run(&command, LIMIT, &mut |line| println!("{line}"))?;
        println!("{way}: {:.0} s", start.elapsed().as_secs_f64());
        all_passed &= code == 0;
    }
    Ok(all_passed)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}
