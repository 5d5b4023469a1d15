//! `persimmon scrub` on a live mount: what is sound, what is damaged under the daemon's feet, who
//! may ask, and that it can be stopped.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::posix::expect::noise;
use crate::scenario::{Scenario, TestBed};
use crate::volume::Volume;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "scrub::a_live_volume_is_verified",
    run: a_live_volume_is_verified,
    limit_seconds: 120,
    only_persimmon: true,
}];

fn scrub(volume: &Volume, arguments: &[&str]) -> Result<Output> {
    let mut command = volume.tool("scrub");
    Ok(command.arg(&volume.dir).args(arguments).output()?)
}

fn json(output: &Output) -> Result<Value> {
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).with_context(|| told)
}

fn read_bytes(volume: &Volume) -> Result<u64> {
    let output = volume
        .tool("stats")
        .arg(&volume.dir)
        .arg("--json")
        .output()?;
    json(&output)?["read_bytes"]
        .as_u64()
        .context("no read_bytes")
}

fn a_live_volume_is_verified(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("scrub", 256 << 20, &[])?;
    let mut unmounted = volume.tool("scrub");
    let output = unmounted.arg(&volume.image).output()?;
    ensure!(output.status.code() == Some(1), "not mounted: {output:?}");

    volume.mount(&[])?;
    let folder = volume.dir.join("folder");
    std::fs::create_dir(&folder)?;
    for number in 0..200u64 {
        std::fs::write(folder.join(number.to_string()), noise(number, 20_000))?;
    }
    let victim = noise(7777, 3 << 20);
    std::fs::write(folder.join("victim"), &victim)?;
    // fsync of a directory makes everything before it durable, data included where it was synced.
    for entry in std::fs::read_dir(&folder)? {
        std::fs::File::open(entry?.path())?.sync_all()?;
    }

    let output = scrub(&volume, &["--json"])?;
    let sound = json(&output)?;
    ensure!(output.status.code() == Some(0), "{sound}");
    ensure!(
        sound["complete"] == true && sound["findings_total"] == 0,
        "{sound}"
    );
    let bytes = sound["bytes"].as_u64().unwrap_or(0);
    ensure!(bytes > 7_000_000, "{bytes} bytes");

    let refused = Command::new(volume.tool("").get_program())
        .args(["scrub", &volume.dir.display().to_string()])
        .uid(65_534)
        .output()?;
    let told = String::from_utf8_lossy(&refused.stderr);
    ensure!(
        refused.status.code() == Some(1) && told.contains("only root"),
        "{told}"
    );

    // One block of the file, wherever it is in the image.
    let image = std::fs::read(&volume.image)?;
    let block = victim.get(100 * 4096..101 * 4096).unwrap_or_default();
    let at = place_of(&image, block)? + 5;
    let file = OpenOptions::new().write(true).open(&volume.image)?;
    file.write_all_at(&[image[at] ^ 4], at as u64)?;
    let output = scrub(&volume, &["--json"])?;
    let damaged = json(&output)?;
    ensure!(output.status.code() == Some(4), "{damaged}");
    let finding = &damaged["findings"][0];
    ensure!(damaged["findings_total"] == 1, "{damaged}");
    ensure!(
        finding["number"] == 801 && finding["path"] == "/folder/victim",
        "{damaged}"
    );
    ensure!(
        finding["offset"] == 100 * 4096 && finding["blocks"] == 1,
        "{damaged}"
    );
    let words = scrub(&volume, &[])?;
    let words = String::from_utf8_lossy(&words.stdout).into_owned();
    ensure!(
        words.contains("error 801: /folder/victim: bytes 409600 to 413696"),
        "{words}"
    );
    file.write_all_at(&[image[at]], at as u64)?;

    // At a MiB a second it cannot be through before it is stopped.
    let mut slow = volume.tool("scrub");
    slow.arg(&volume.dir).args(["--rate", "1", "--json"]);
    let before = read_bytes(&volume)?;
    let slow = slow.stdout(Stdio::piped()).spawn()?;
    // Once it reads it listens to signals.
    while read_bytes(&volume)? == before {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&slow), Signal::INT)?;
    let output = slow.wait_with_output()?;
    let stopped = json(&output)?;
    ensure!(output.status.code() == Some(3), "{stopped}");
    ensure!(stopped["complete"] == false, "{stopped}");

    // What it found before the mount ended was told to nobody.
    let block = noise(0, 20_000);
    let at = place_of(&image, &block[4096..8192])? + 5;
    file.write_all_at(&[image[at] ^ 4], at as u64)?;
    let mut slow = volume.tool("scrub");
    slow.arg(&volume.dir).args(["--rate", "1", "--json"]);
    let before = read_bytes(&volume)?;
    let slow = slow.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    while read_bytes(&volume)? < before + (3 << 20) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    volume.unmount()?;
    let output = slow.wait_with_output()?;
    let found = json(&output)?;
    ensure!(output.status.code() == Some(4), "{found}");
    ensure!(
        found["complete"] == false && found["findings"][0]["number"] == 801,
        "{found}"
    );
    ensure!(!output.stderr.is_empty(), "{found}");
    file.write_all_at(&[image[at]], at as u64)?;
    volume.fsck()?;
    volume.destroy()
}

/// Where a block is in an image.
fn place_of(image: &[u8], block: &[u8]) -> Result<usize> {
    let mut blocks = image.chunks_exact(4096);
    let at = blocks.position(|here| here == block);
    Ok(at.context("the file's block is not in the image")? * 4096)
}
