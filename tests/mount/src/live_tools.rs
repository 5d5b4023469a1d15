//! Tools on a live mount: `clean`, `tune`, `trace`, `zones --watch`; and lifetimes told through it.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use rustix::fs::{Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Setter, ioctl, opcode};
use serde_json::Value;

use crate::posix::expect::noise;
use crate::scenario::{Scenario, TestBed};
use crate::volume::Volume;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "live_tools::a_mount_is_cleaned_tuned_and_watched",
        run: a_mount_is_cleaned_tuned_and_watched,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "live_tools::lists_are_bounded_and_deep_directories_are_moved_into",
        run: lists_are_bounded_and_deep_directories_are_moved_into,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "live_tools::a_mount_is_trimmed_and_ranges_move",
        run: a_mount_is_trimmed_and_ranges_move,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "live_tools::lifetimes_place_data",
        run: lifetimes_place_data,
        limit_seconds: 120,
        only_persimmon: true,
    },
];

const LIFETIME: &str = "user.persimmon.lifetime";

fn tool(volume: &Volume, name: &str, arguments: &[&str]) -> Result<Output> {
    let mut command = volume.tool(name);
    Ok(command.arg(&volume.dir).args(arguments).output()?)
}

/// The document it prints, and its exit code.
fn json(volume: &Volume, name: &str, arguments: &[&str]) -> Result<(Value, Option<i32>)> {
    let output = tool(volume, name, &[arguments, &["--json"]].concat())?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let value = serde_json::from_slice(&output.stdout).with_context(|| told)?;
    Ok((value, output.status.code()))
}

/// Sends its errors back as words.
fn refused(volume: &Volume, name: &str, arguments: &[&str], code: i32) -> Result<String> {
    let output = tool(volume, name, arguments)?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(code), "{output:?}");
    Ok(told)
}

/// Events of the whole ring, one a line.
fn events(volume: &Volume, arguments: &[&str]) -> Result<Vec<Value>> {
    let output = tool(
        volume,
        "trace",
        &[arguments, &["--once", "--json"]].concat(),
    )?;
    ensure!(output.status.success(), "{output:?}");
    let lines = output.stdout.split(|byte| *byte == b'\n');
    lines
        .filter(|line| !line.is_empty())
        .map(|line| Ok(serde_json::from_slice(line)?))
        .collect()
}

fn a_mount_is_cleaned_tuned_and_watched(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("tools", 256 << 20, &[])?;
    for name in ["clean", "tune", "trace"] {
        let mut unmounted = volume.tool(name);
        let output = unmounted.arg(&volume.image).output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(1) && told.contains("not mounted"),
            "{output:?}"
        );
    }
    volume.mount(&[])?;
    // Every other file goes: zones are half garbage.
    let path = |number: u64| volume.dir.join(number.to_string());
    for number in 0..240 {
        std::fs::write(path(number), noise(number, 400_000))?;
    }
    File::open(path(239))?.sync_all()?;
    for number in (0..240).step_by(2) {
        std::fs::remove_file(path(number))?;
    }
    clean(&volume)?;
    for number in (1..240).step_by(2) {
        ensure!(
            std::fs::read(path(number))? == noise(number, 400_000),
            "file {number}"
        );
    }
    tune(&volume)?;

    let told = events(&volume, &["--paths"])?;
    for (at, event) in (0..).zip(&told) {
        ensure!(event["number"] == at, "{event}");
    }
    let kind = |name: &'static str| told.iter().filter(move |event| event["event"] == name);
    ensure!(
        kind("victim").any(|event| event["why"] == "score"),
        "no victim"
    );
    ensure!(
        kind("cleaned").count() == kind("victim").count(),
        "victims and what came of them"
    );
    ensure!(kind("reset").count() > 0, "nothing was reset");
    let named = |event: &Value| {
        event["path"]
            .as_str()
            .is_some_and(|path| path.starts_with('/'))
    };
    ensure!(kind("written").any(named), "no path");
    let words = tool(&volume, "trace", &["--once"])?;
    let words = String::from_utf8_lossy(&words.stdout).into_owned();
    ensure!(words.contains("victim   data"), "{words}");

    let watched = tool(
        &volume,
        "zones",
        &["--watch", "--interval", "0.1", "--frames", "3"],
    )?;
    let text = String::from_utf8_lossy(&watched.stdout).into_owned();
    ensure!(watched.status.success(), "{watched:?}");
    ensure!(
        text.matches("(height: valid blocks)").count() == 3,
        "{text}"
    );

    for name in ["clean", "tune", "trace", "sync"] {
        let refused = Command::new(volume.tool("").get_program())
            .args([name, &volume.dir.display().to_string()])
            .uid(65_534)
            .output()?;
        let told = String::from_utf8_lossy(&refused.stderr);
        ensure!(
            refused.status.code() == Some(1) && told.contains("only root"),
            "{told}"
        );
    }
    // Others may ask how it is: those answers look at little of the volume.
    for name in ["info", "stats", "zones"] {
        let answered = Command::new(volume.tool("").get_program())
            .args([name, &volume.dir.display().to_string(), "--json"])
            .uid(65_534)
            .output()?;
        ensure!(answered.status.success(), "{answered:?}");
    }
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

/// All attributes that can be set can be listed; and a directory is moved into one far below the root.
fn lists_are_bounded_and_deep_directories_are_moved_into(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("bounds", 256 << 20, &[])?;
    volume.mount(&[])?;
    let file = volume.dir.join("file");
    File::create(&file)?;
    let set = |n: u32| {
        let name = format!("user.{n:0>195}");
        rustix::fs::setxattr(&file, name, b"value", XattrFlags::CREATE)
    };
    let refused = (0..).map(|n| (n, set(n))).find(|(_, set)| set.is_err());
    ensure!(
        refused == Some((325, Err(Errno::NOSPC))),
        "the bound: {refused:?}"
    );
    let mut names = vec![0; 64 << 10];
    let length = rustix::fs::listxattr(&file, &mut names)?;
    ensure!(length == 325 * 201, "{length} bytes of names");

    let mode = Mode::RWXU;
    let mut at = File::open(&volume.dir)?;
    for _ in 0..4000 {
        rustix::fs::mkdirat(&at, "d", mode)?;
        at = rustix::fs::openat(&at, "d", OFlags::DIRECTORY, Mode::empty())?.into();
    }
    let root = File::open(&volume.dir)?;
    rustix::fs::mkdirat(&root, "moved", mode)?;
    rustix::fs::renameat(&root, "moved", &at, "moved")?;
    rustix::fs::openat(&at, "moved", OFlags::DIRECTORY, Mode::empty())?;
    let circle = rustix::fs::renameat(&root, "d", &at, "d");
    ensure!(circle == Err(Errno::INVAL), "{circle:?}");
    drop((at, root));
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

fn a_mount_is_trimmed_and_ranges_move(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("trim", 256 << 20, &[])?;
    volume.mount(&[])?;
    let path = volume.dir.join("file");
    let mut due = noise(1, 60 << 20);
    std::fs::write(&path, &due)?;
    File::open(&path)?.sync_all()?;
    let change = |volume: &Volume, arguments: &[&str]| -> Result<Output> {
        let mut command = volume.tool("fallocate");
        Ok(command.args(arguments).arg(&path).output()?)
    };
    for (arguments, code) in [
        (&["-c", "-o", "4K", "-l", "8M"][..], 0),
        (&["-i", "-o", "12K", "-l", "1M"][..], 0),
        (&["-c", "-l", "1000"][..], 2),
        (&["-c", "-l", "1G"][..], 1),
        (&["-i", "-o", "1G", "-l", "4K"][..], 1),
    ] {
        let output = change(&volume, arguments)?;
        ensure!(
            output.status.code() == Some(code),
            "{arguments:?}: {output:?}"
        );
    }
    due.drain(4 << 10..(4 << 10) + (8 << 20));
    due.splice(12 << 10..12 << 10, vec![0; 1 << 20]);
    ensure!(std::fs::read(&path)? == due, "the file is another");
    // The kernel went on with the old size.
    volume.unmount()?;
    volume.mount(&["writeback_cache"])?;
    let output = change(&volume, &["-c", "-l", "4K"])?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(1) && told.contains("writeback_cache"),
        "{output:?}"
    );
    ensure!(std::fs::read(&path)? == due, "the file is another");
    volume.unmount()?;
    volume.mount(&[])?;

    std::fs::remove_file(&path)?;
    let mut unprivileged = volume.tool("trim");
    let refused = unprivileged.arg(&volume.dir).uid(65_534).output()?;
    ensure!(refused.status.code() == Some(1), "{refused:?}");
    let (trimmed, code) = json(&volume, "trim", &[])?;
    let bytes = trimmed["trimmed_bytes"].as_u64();
    ensure!(code == Some(0) && bytes >= Some(40 << 20), "{trimmed}");
    let fstrim = |arguments: &[&str]| -> Result<Output> {
        let mut command = Command::new("fstrim");
        Ok(command.args(arguments).arg(&volume.dir).output()?)
    };
    // What is free is told each time.
    for _ in 0..2 {
        let output = fstrim(&["-v"])?;
        let told = String::from_utf8(output.stdout)?;
        let bytes = told
            .split_once('(')
            .and_then(|(_, rest)| rest.split_once(' '));
        let bytes: u64 = bytes.context(told.clone())?.0.parse()?;
        ensure!((128 << 20..256 << 20).contains(&bytes), "{told}");
    }
    for (arguments, code) in [
        (&["-o", "1M", "-l", "1T"][..], 0),
        (&["-o", "1T"][..], 1),
        (&["-l", "100"][..], 1),
        (&["-m", "1T"][..], 1),
    ] {
        let output = fstrim(arguments)?;
        ensure!(
            output.status.code() == Some(code),
            "{arguments:?}: {output:?}"
        );
    }
    volume.unmount()?;
    // Read-only it is not trimmed, and nothing is recovered.
    let refused = volume.mount(&["norecovery"]);
    ensure!(refused.is_err(), "norecovery without ro");
    volume.mount(&["ro", "norecovery"])?;
    let refused = Command::new("fstrim").arg(&volume.dir).output()?;
    ensure!(refused.status.code() == Some(1), "{refused:?}");
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

fn clean(volume: &Volume) -> Result<()> {
    let (nothing, code) = json(volume, "clean", &["--until", "1%"])?;
    ensure!(
        nothing["state"] == "reached" && code == Some(0),
        "{nothing}"
    );
    ensure!(nothing["moved_bytes"] == 0, "{nothing}");
    let free = nothing["free_zones"].as_u64().context("no free_zones")?;
    let zones = nothing["zone_count"].as_u64().context("no zone_count")?;
    let wanted = free + 3;
    let share = format!("{:.2}%", wanted as f64 * 100.0 / zones as f64);
    let (some, code) = json(volume, "clean", &["--until", &share])?;
    ensure!(some["state"] == "reached" && code == Some(0), "{some}");
    ensure!(
        some["free_zones"].as_u64() >= Some(wanted),
        "{some}, {wanted} wanted"
    );
    let (all, code) = json(volume, "clean", &[])?;
    ensure!(all["state"] == "exhausted" && code == Some(0), "{all}");
    let (short, code) = json(volume, "clean", &["--until", "100%"])?;
    ensure!(short["state"] == "exhausted" && code == Some(4), "{short}");
    refused(volume, "clean", &["--until", "lots"], 2)?;
    Ok(())
}

fn tune(volume: &Volume) -> Result<()> {
    let (all, _) = json(volume, "tune", &[])?;
    let keys: Vec<&str> = all
        .as_array()
        .context("a list")?
        .iter()
        .filter_map(|setting| setting["key"].as_str())
        .collect();
    ensure!(
        keys.contains(&"commit_interval_seconds") && keys.len() == 8,
        "{all}"
    );
    let changes = [
        "free_target_basis_points=10%",
        "cache_bytes_max=16M",
        "commit_interval_seconds=9",
    ];
    let (changed, code) = json(volume, "tune", &changes)?;
    ensure!(code == Some(0), "{changed}");
    let values: Vec<_> = changed
        .as_array()
        .context("a list")?
        .iter()
        .filter_map(|setting| setting["value"].as_u64())
        .collect();
    ensure!(values == [1000, 16 << 20, 9], "{changed}");
    let told = refused(
        volume,
        "tune",
        &["free_target_zones_min=3", "cache_bytes_max=1K"],
        2,
    )?;
    ensure!(
        told.contains("cache_bytes_max is between 1.0 MiB and"),
        "{told}"
    );
    let told = refused(volume, "tune", &["speed=9"], 2)?;
    ensure!(
        told.contains("there is no threshold speed; there are free_target_"),
        "{told}"
    );
    let (now, _) = json(volume, "tune", &[])?;
    let target = now.as_array().context("a list")?.iter();
    let target = target.filter(|setting| setting["key"] == "free_target_zones_min");
    ensure!(
        target
            .map(|setting| &setting["value"])
            .eq([&Value::from(2)]),
        "{now}"
    );
    Ok(())
}

const SET: rustix::ioctl::Opcode = opcode::write::<u64>(b'P', 0x71);
const GET: rustix::ioctl::Opcode = opcode::read::<u64>(b'P', 0x72);

/// As docs/POSIX.md tells programs to.
#[allow(unsafe_code)]
fn tell(file: &File, number: u64) -> rustix::io::Result<()> {
    // SAFETY: the kernel reads a u64.
    unsafe { ioctl(file, Setter::<SET, u64>::new(number)) }
}

#[allow(unsafe_code)]
fn told(file: &File) -> rustix::io::Result<u64> {
    // SAFETY: the kernel writes a u64.
    unsafe { ioctl(file, Getter::<GET, u64>::new()) }
}

/// Lifetimes of the zones that files of this inode were written to.
fn lifetimes(volume: &Volume, file: &File) -> Result<Vec<String>> {
    use std::os::unix::fs::MetadataExt;
    file.sync_all()?;
    let ino = file.metadata()?.ino();
    let mut found: Vec<String> = events(volume, &[])?
        .iter()
        .filter(|event| event["event"] == "written" && event["ino"] == ino)
        .filter_map(|event| Some(event["lifetime"].as_str()?.to_owned()))
        .collect();
    found.dedup();
    Ok(found)
}

fn lifetimes_place_data(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("lifetimes", 512 << 20, &["--zone-size", "2M"])?;
    volume.mount(&[])?;
    let dir = volume.dir.join("logs");
    std::fs::create_dir(&dir)?;
    let set = |value: &[u8]| rustix::fs::setxattr(&dir, LIFETIME, value, XattrFlags::empty());
    ensure!(
        set(b"brief") == Err(rustix::io::Errno::INVAL),
        "a wrong value"
    );
    set(b"short")?;
    let mut inherits = File::create(dir.join("inherits"))?;
    inherits.write_all(&noise(1, 300_000))?;
    ensure!(lifetimes(&volume, &inherits)? == ["short"]);
    ensure!(told(&inherits)? == 2);

    let mut open = File::create(dir.join("open"))?;
    tell(&open, 5)?;
    ensure!(told(&open)? == 5);
    open.write_all(&noise(2, 300_000))?;
    ensure!(lifetimes(&volume, &open)? == ["extreme"]);
    // Of this open file alone.
    let again = File::options().write(true).open(dir.join("open"))?;
    ensure!(told(&again)? == 2);
    ensure!(
        tell(&open, 9) == Err(rustix::io::Errno::INVAL),
        "a wrong number"
    );
    let reader = File::open(dir.join("open"))?;
    ensure!(tell(&reader, 2) == Err(rustix::io::Errno::BADF), "a reader");
    drop((inherits, open, again, reader));

    volume.unmount()?;
    volume.mount(&[])?;
    let mut value = [0; 16];
    let length = rustix::fs::getxattr(dir.join("inherits"), LIFETIME, &mut value)?;
    ensure!(value.get(..length) == Some(b"short"), "{value:?}");
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}
