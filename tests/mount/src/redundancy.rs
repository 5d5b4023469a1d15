//! Volumes with two copies of all data, or with parity: what one zone of each stripe set holds is damaged, and nothing is lost.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::posix::expect::noise;
use crate::scenario::{Scenario, TestBed};
use crate::volume::Volume;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "redundancy::two_copies_outlive_the_damage_of_one",
        run: two_copies_outlive_the_damage_of_one,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "redundancy::parity_outlives_a_damaged_block_in_each_row",
        run: parity_outlives_a_damaged_block_in_each_row,
        limit_seconds: 120,
        only_persimmon: true,
    },
];

const BLOCK: usize = 4096;
/// Of the file whose blocks are damaged; it fills some zones of 1 MiB.
const FILE_BYTES: usize = 3 << 20;
/// Written behind it: a scrub compares the zones of a set when it takes no more writes.
const FILLER_BYTES: usize = 8 << 20;
/// In which a scrub's findings are mended.
const PATIENCE: Duration = Duration::from_secs(30);

/// Of a pair of zones with the same content the second is damaged.
fn two_copies_outlive_the_damage_of_one(bed: &TestBed) -> Result<()> {
    outlives(bed, "copies", &["--data-copies", "2"], 1)
}

/// Neighbouring blocks of a file are a row, to which one block of parity belongs: of each row one is damaged.
fn parity_outlives_a_damaged_block_in_each_row(bed: &TestBed) -> Result<()> {
    outlives(bed, "parity", &["--data-parity", "3"], 3)
}

/// Damages every block of a file whose number `step` divides, where it is last in the image.
fn outlives(bed: &TestBed, name: &str, mkfs: &[&str], step: usize) -> Result<()> {
    let mkfs = [&["--zone-size", "1M"], mkfs].concat();
    let mut volume = bed.volume(name, 256 << 20, &mkfs)?;
    let victim = noise(4711, FILE_BYTES);
    // Some of it compresses.
    let text = "what is written again and again. ".repeat(20_000);
    volume.mount(&[])?;
    std::fs::write(volume.dir.join("victim"), &victim)?;
    std::fs::write(volume.dir.join("text"), &text)?;
    File::open(volume.dir.join("victim"))?.sync_all()?;
    std::fs::write(volume.dir.join("filler"), noise(4712, FILLER_BYTES))?;
    File::open(volume.dir.join("filler"))?.sync_all()?;
    volume.unmount()?;
    volume.let_go()?;

    let is_as_written = |volume: &Volume| -> Result<()> {
        ensure!(std::fs::read(volume.dir.join("victim"))? == victim);
        ensure!(std::fs::read_to_string(volume.dir.join("text"))? == text);
        Ok(())
    };
    damage(&volume, &victim, step)?;
    let (code, told) = fsck(&volume, &[])?;
    // Nothing is lost, so it is clean; what another loss would lose is told.
    ensure!(code == Some(0) && told.contains("108"), "{code:?}: {told}");
    volume.mount(&[])?;
    is_as_written(&volume)?;
    ensure!(scrub(&volume)? > 0, "a scrub found nothing");
    is_mended(&volume)?;
    is_as_written(&volume)?;
    volume.unmount()?;
    volume.let_go()?;

    // The same, mended while it is not mounted.
    damage(&volume, &victim, step)?;
    let (code, told) = fsck(&volume, &["--repair", "--yes"])?;
    ensure!(code == Some(1), "{code:?}: {told}");
    let (code, told) = fsck(&volume, &[])?;
    ensure!(code == Some(0) && !told.contains("108"), "{code:?}: {told}");
    volume.mount(&[])?;
    is_as_written(&volume)?;
    volume.unmount()?;
    volume.destroy()
}

fn damage(volume: &Volume, victim: &[u8], step: usize) -> Result<()> {
    let image = std::fs::read(&volume.image)?;
    let mut places = HashMap::new();
    for (at, block) in image.chunks_exact(BLOCK).enumerate() {
        // What was moved out of a zone may still be there: what counts lies behind it.
        places.insert(block, at * BLOCK);
    }
    let file = OpenOptions::new().write(true).open(&volume.image)?;
    for block in victim.chunks_exact(BLOCK).step_by(step) {
        let at = places.get(block).context("a block is not in the image")?;
        file.write_all_at(&[block[9] ^ 4], *at as u64 + 9)?;
    }
    Ok(())
}

fn fsck(volume: &Volume, arguments: &[&str]) -> Result<(Option<i32>, String)> {
    let mut command = volume.tool("fsck");
    command.arg(&volume.image).arg("--data").args(arguments);
    let output = command.output()?;
    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(&told).into_owned();
    Ok((output.status.code(), told))
}

/// How much a scrub finds.
fn scrub(volume: &Volume) -> Result<u64> {
    let mut command = volume.tool("scrub");
    let output = command.arg(&volume.dir).arg("--json").output()?;
    let told: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    told["findings_total"].as_u64().context("no total")
}

/// What a scrub found is written anew a moment later.
fn is_mended(volume: &Volume) -> Result<()> {
    let start = Instant::now();
    while scrub(volume)? > 0 {
        if start.elapsed() > PATIENCE {
            bail!("what a scrub found is not mended");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
