//! Endless overwriting of a volume that is 85 % full.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::posix::expect::{Noise, noise, same_bytes};
use crate::scenario::{Scenario, TestBed};
use crate::snapshot::sync_tree;
use crate::volume::{Kind, Volume};

/// Of what users may fill.
const FULL_PERCENT: u64 = 85;
/// How often everything is written.
const VOLUMES: u64 = 5;
/// Most bytes sent to the device for a byte of the user's, uniform 4 KiB overwriting.
const AMPLIFICATION_MAX: f64 = 4.5;
const PIECE: usize = 4096;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "endurance::mixed_sizes_five_times_the_volume",
        run: mixed_sizes_five_times_the_volume,
        limit_seconds: 1200,
        only_persimmon: false,
    },
    Scenario {
        name: "endurance::uniform_4_kib_amplifies_little",
        run: uniform_4_kib_amplifies_little,
        limit_seconds: 1200,
        only_persimmon: false,
    },
];

/// What users may fill of a fresh volume.
fn available(volume: &Volume) -> Result<u64> {
    let stat = rustix::fs::statvfs(&volume.dir)?;
    Ok(stat.f_bavail * stat.f_frsize)
}

/// Sizes from a few bytes to some megabytes, most of the bytes in large files.
fn mixed_size(dice: &mut Noise) -> usize {
    let most = [300, 4096, 20_000, 150_000, 1 << 20, 4 << 20][dice.below(6) as usize];
    1 + dice.below(most) as usize
}

fn mixed_sizes_five_times_the_volume(bed: &TestBed) -> Result<()> {
    const SIZE: u64 = 384 << 20;
    let mut volume = bed.volume("endurance-mixed", SIZE, &[])?;
    volume.mount(&[])?;
    let limit = available(&volume)? * FULL_PERCENT / 100;
    let mut dice = Noise(1);
    // Every file: its seed and its size.
    let mut files: Vec<(u64, usize)> = Vec::new();
    let path = |dir: &Path, number: usize| -> PathBuf {
        dir.join((number % 50).to_string()).join(number.to_string())
    };
    for number in 0..50 {
        std::fs::create_dir(volume.dir.join(number.to_string()))?;
    }
    let footprint = |size: usize| size.next_multiple_of(PIECE) as u64;
    let (mut held, mut written, mut seed) = (0, 0, 0);
    while written < VOLUMES * SIZE {
        seed += 1;
        let size = mixed_size(&mut dice);
        let number = if held + footprint(size) <= limit {
            files.push((0, 0));
            files.len() - 1
        } else {
            dice.below(files.len() as u64) as usize
        };
        let (_, old) = files[number];
        let size = if held - footprint(old) + footprint(size) > limit {
            old // As large as before: the volume stays as full.
        } else {
            size
        };
        let file = path(&volume.dir, number);
        match dice.below(4) {
            0 if old == size && old > 0 => {
                let file = OpenOptions::new().write(true).open(&file)?;
                file.write_all_at(&noise(seed, size), 0)?;
            }
            1 => {
                let fresh = file.with_extension("new");
                std::fs::write(&fresh, noise(seed, size))?;
                std::fs::rename(&fresh, &file)?;
            }
            _ => std::fs::write(&file, noise(seed, size)).with_context(|| {
                format!("{} MiB written, {} MiB held", written >> 20, held >> 20)
            })?,
        }
        files[number] = (seed, size);
        held = held - footprint(old) + footprint(size);
        written += size as u64;
        if dice.below(100) == 0 {
            File::open(&file)?.sync_all()?;
        }
    }
    sync_tree(&volume.dir)?;
    let verify = |dir: &Path| -> Result<()> {
        for (number, (seed, size)) in files.iter().enumerate() {
            let found = std::fs::read(path(dir, number))?;
            same_bytes(&found, &noise(*seed, *size)).with_context(|| format!("file {number}"))?;
        }
        Ok(())
    };
    verify(&volume.dir)?;
    report(&volume)?;
    volume.unmount()?;
    volume.fsck()?;
    volume.mount(&[])?;
    verify(&volume.dir)?;
    volume.unmount()?;
    volume.destroy()
}

fn uniform_4_kib_amplifies_little(bed: &TestBed) -> Result<()> {
    const SIZE: u64 = 384 << 20;
    let mut volume = bed.volume("endurance-uniform", SIZE, &["--zone-size", "4M"])?;
    volume.mount(&[])?;
    let pieces = available(&volume)? * FULL_PERCENT / 100 / PIECE as u64;
    let file = File::create_new(volume.dir.join("file"))?;
    let mut versions = vec![0u32; usize::try_from(pieces)?];
    let content = |place: u64, version: u32| noise(place << 32 | u64::from(version), PIECE);
    for place in 0..pieces {
        file.write_all_at(&content(place, 0), place * PIECE as u64)?;
    }
    sync_tree(&volume.dir)?;
    let mut dice = Noise(2);
    let mut overwrite = |count: u64, versions: &mut [u32]| -> Result<()> {
        for step in 0..count {
            let place = dice.below(pieces);
            let version = &mut versions[place as usize];
            *version += 1;
            file.write_all_at(&content(place, *version), place * PIECE as u64)
                .with_context(|| format!("overwriting {step} of {count}"))?;
        }
        sync_tree(&volume.dir)
    };
    // The first overwriting uses up the order in which the file was filled; what counts is the rest.
    let settling = SIZE / PIECE as u64;
    overwrite(settling, &mut versions)?;
    let before = amplification_counters(&volume)?;
    overwrite(VOLUMES * SIZE / PIECE as u64 - settling, &mut versions)?;
    let after = amplification_counters(&volume)?;
    for place in 0..pieces {
        let mut found = vec![0; PIECE];
        file.read_exact_at(&mut found, place * PIECE as u64)?;
        same_bytes(&found, &content(place, versions[place as usize]))
            .with_context(|| format!("piece {place}"))?;
    }
    drop(file);
    if let (Some((user, device)), Some((user_now, device_now))) = (before, after) {
        let amplification = (device_now - device) / (user_now - user);
        println!(
            "      write amplification {amplification:.2}, uniform 4 KiB, {FULL_PERCENT} % full"
        );
        ensure!(
            amplification <= AMPLIFICATION_MAX,
            "write amplification {amplification:.2}"
        );
    }
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

/// Bytes of the user and bytes sent to the device so far.
fn amplification_counters(volume: &Volume) -> Result<Option<(f64, f64)>> {
    if volume.kind == Kind::Ext4 {
        return Ok(None);
    }
    let stats = volume.stats()?;
    let number = |name: &str| {
        stats[name]
            .as_f64()
            .with_context(|| format!("`persimmon stats --json` has no number {name}"))
    };
    Ok(Some((number("user_bytes")?, number("device_bytes")?)))
}

fn report(volume: &Volume) -> Result<()> {
    if let Some((user, device)) = amplification_counters(volume)? {
        println!(
            "      write amplification {:.2}, mixed sizes, {FULL_PERCENT} % full",
            device / user
        );
    }
    Ok(())
}
