//! Blocks that compress: they are inlined in the journal when they are synced, and are packed several in a
//! block before the next checkpoint. Held against a plain copy of what was written, and against the
//! inspector's count of every zone.

#![allow(clippy::unwrap_used, reason = "a failure ends the test")]

use std::sync::Arc;

use persimmon_crash::workload::bytes_of;
use persimmon_engine::faults::{self, Fault};
use persimmon_engine::{Error, FormatOptions, Intent, Options, Task, Volume};
use persimmon_format::Ino;
use persimmon_format::inode::{Inode, Timestamp};
use persimmon_inspect::finding::ZIT_VALID;
use persimmon_inspect::{CheckOptions, Report, Severity, check};
use persimmon_sim::{SimConfig, SimDevice};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const BLOCK: usize = 4096;
const NOW: Timestamp = Timestamp {
    seconds: 1_700_000_000,
    nanoseconds: 7,
};

fn fresh(config: SimConfig) -> Arc<SimDevice> {
    let device = Arc::new(SimDevice::new(config));
    Volume::format(Arc::clone(&device) as _, &FormatOptions::default()).unwrap();
    device
}

fn open(device: &Arc<SimDevice>) -> Volume {
    Volume::open(Arc::clone(device) as _, Options::default())
        .unwrap()
        .0
}

fn create(volume: &Volume) -> Ino {
    let made = volume.update::<_, Error>(Intent::Grow, |tx| {
        let ino = tx.new_ino();
        let inode = Inode {
            mode: 0o100_644,
            nlink: 1,
            ..Inode::default()
        };
        tx.put_inode(ino, &inode);
        Ok(ino)
    });
    made.unwrap()
}

/// A block that compresses about 4:1, never the same twice.
fn quarter(number: u64) -> Vec<u8> {
    bytes_of(number * 4 + 1, BLOCK)
}

fn inspected(device: &Arc<SimDevice>) -> Report {
    let options = CheckOptions {
        data: true,
        findings_max: 100,
        ..CheckOptions::default()
    };
    check(device.as_ref(), &options, &mut |_| {}).unwrap()
}

/// Nothing wrong, but what a volume made of inodes without names is said to be.
fn assert_sound(device: &Arc<SimDevice>, when: &str) -> Report {
    let report = inspected(device);
    let wrong = |f: &&persimmon_inspect::Finding| {
        f.severity == Severity::Error && !f.to_string().contains("name")
    };
    let wrong: Vec<String> = report
        .findings
        .iter()
        .filter(wrong)
        .map(ToString::to_string)
        .collect();
    assert!(wrong.is_empty(), "{when}: {wrong:#?}");
    report
}

#[test]
fn a_synced_block_that_compresses_takes_little_more_than_the_journal() {
    let device = fresh(SimConfig::new(40, 1024));
    let volume = open(&device);
    let ino = create(&volume);
    volume
        .write(ino, 0, &bytes_of(2, 400 * BLOCK), NOW)
        .unwrap();
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    let before = volume.statistics();
    for number in 0..200 {
        let offset = number * 7 % 400 * BLOCK as u64;
        volume.write(ino, offset, &quarter(number), NOW).unwrap();
        volume.sync_file(ino).unwrap();
    }
    let synced = volume.statistics();
    assert_eq!(
        synced.journal_bytes - before.journal_bytes,
        200 * BLOCK as u64
    );
    assert_eq!(synced.data_bytes, before.data_bytes);
    volume.step(Task::Checkpoint).unwrap();
    let packed = volume.statistics().data_bytes - synced.data_bytes;
    assert!(packed <= 200 * (BLOCK as u64 / 4 + 64), "{packed}");
    drop(volume);
    let report = assert_sound(&device, "packed");
    assert_eq!(
        (report.counts.packed_blocks, report.counts.inline_blocks),
        (200, 0)
    );
    let volume = open(&device);
    for number in 0..200 {
        let mut block = vec![0; BLOCK];
        let offset = number * 7 % 400 * BLOCK as u64;
        assert_eq!(volume.read(ino, offset, &mut block).unwrap(), BLOCK);
        assert_eq!(block, quarter(number));
    }
}

/// Files and what they hold.
struct Twin {
    files: Vec<(Ino, Vec<u8>)>,
}

impl Twin {
    fn assert_same(&self, volume: &Volume, when: &str) {
        for (ino, content) in &self.files {
            let mut found = vec![0xee; content.len() + 1];
            let len = volume.read(*ino, 0, &mut found).unwrap();
            assert_eq!(len, content.len(), "{when}: size of {ino}");
            let differs = content.chunks(BLOCK).zip(found.chunks(BLOCK));
            let differs = differs.enumerate().find(|(_, (a, b))| **a != b[..a.len()]);
            assert!(
                differs.is_none(),
                "{when}: {ino}, block {}",
                differs.unwrap().0
            );
        }
    }

    fn write(&mut self, volume: &Volume, file: usize, at: usize, bytes: &[u8]) {
        let (ino, content) = &mut self.files[file];
        volume.write(*ino, at as u64, bytes, NOW).unwrap();
        content.resize(content.len().max(at + bytes.len()), 0);
        content[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// Overwrites, appends, holes, truncations, moves by cleaning and power cuts. After a sync all is as
/// the twin has it, and the zones hold what their counts say.
#[test]
fn files_hold_what_a_naive_twin_holds() {
    for seed in 0..24u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let config = SimConfig::new(40, 128).capacity(120);
        let config = match seed % 3 {
            0 => config,
            1 => config.volatile_cache().reordering(seed),
            _ => config.host_file(),
        };
        let mut device = fresh(config);
        let mut volume = open(&device);
        let files = (0..4).map(|_| (create(&volume), Vec::new())).collect();
        let mut twin = Twin { files };
        for step in 0..400u64 {
            let file = rng.random_range(0..4);
            let ino = twin.files[file].0;
            let len = twin.files[file].1.len();
            match rng.random_range(0..100) {
                0..60 => {
                    let blocks = rng.random_range(1..=3);
                    let at = match rng.random_range(0..4) {
                        0 => len,
                        _ => rng.random_range(0..60) * BLOCK,
                    };
                    let cut = if rng.random_bool(0.2) {
                        rng.random_range(0..900)
                    } else {
                        0
                    };
                    let fill = (seed << 32 | step << 2) + [0, 1, 1, 2][rng.random_range(0..4)];
                    twin.write(&volume, file, at, &bytes_of(fill, blocks * BLOCK - cut));
                    volume.sync_file(ino).unwrap();
                }
                60..66 => {
                    twin.write(&volume, file, len, &bytes_of(step << 2, 300));
                    volume.sync_file(ino).unwrap();
                }
                66..72 => {
                    let size = rng.random_range(0..60 * BLOCK);
                    volume.truncate(ino, size as u64, NOW).unwrap();
                    twin.files[file].1.resize(size, 0);
                }
                72..78 if len > 0 => {
                    let at = rng.random_range(0..len);
                    let end = rng.random_range(at..=len);
                    volume
                        .punch(ino, at as u64, (end - at) as u64, NOW)
                        .unwrap();
                    twin.files[file].1[at..end].fill(0);
                }
                78..88 => drop(volume.step(Task::Checkpoint).unwrap()),
                88..95 => drop(volume.step(Task::Clean).unwrap()),
                _ => {
                    volume.sync().unwrap();
                    drop(volume);
                    device = Arc::new(device.persisted(seed * 1000 + step));
                    let when = format!("seed {seed}, step {step}");
                    assert_sound(&device, &when);
                    volume = open(&device);
                    twin.assert_same(&volume, &when);
                }
            }
        }
        twin.assert_same(&volume, &format!("seed {seed}"));
        volume.step(Task::Checkpoint).unwrap();
        drop(volume);
        assert_sound(&device, &format!("seed {seed}, at the end"));
    }
}

/// Blocks of which most packed extents are garbage become dense again, and their zones free.
#[test]
fn cleaning_packs_anew() {
    let device = fresh(SimConfig::new(60, 256));
    let volume = open(&device);
    let ino = create(&volume);
    let mut latest = vec![0; 2000];
    let mut number = 0;
    let mut write = |block: usize, latest: &mut Vec<u64>| {
        number += 1;
        latest[block] = number;
        volume
            .write(ino, (block * BLOCK) as u64, &quarter(number), NOW)
            .unwrap();
        volume.sync_file(ino).unwrap();
    };
    (0..2000).for_each(|block| write(block, &mut latest));
    volume.step(Task::Checkpoint).unwrap();
    // Three of four, spread over all blocks.
    (0..2000)
        .filter(|block| block % 4 != 3)
        .for_each(|block| write(block, &mut latest));
    volume.step(Task::Checkpoint).unwrap();
    let live = |volume: &Volume| -> u64 {
        let zones = volume.zones();
        let data = zones
            .iter()
            .filter(|z| z.entry.role == persimmon_format::table::Role::Data);
        data.map(|z| u64::from(z.entry.valid)).sum()
    };
    // 2000 pieces of a little more than a KiB.
    let before = live(&volume);
    assert!((500..600).contains(&before), "{before}");
    let written = volume.statistics().cleaned_data_bytes;
    for _ in 0..4 {
        volume.step(Task::Clean).unwrap();
    }
    let moved = volume.statistics().cleaned_data_bytes - written;
    assert!(moved > 100 * 1024, "{moved}");
    volume.step(Task::Checkpoint).unwrap();
    let after = live(&volume);
    assert!(
        after <= before && after + 4 > before,
        "{before} and {after}"
    );
    for (block, number) in latest.iter().enumerate() {
        let mut found = vec![0; BLOCK];
        volume
            .read(ino, (block * BLOCK) as u64, &mut found)
            .unwrap();
        assert_eq!(found, quarter(*number), "block {block}");
    }
    drop(volume);
    assert_sound(&device, "cleaned");
}

/// A volume without room for them: they stay in the tree, where they can be read and replaced, and
/// are packed when there is room again.
#[test]
fn without_room_blocks_stay_in_the_tree() {
    let device = fresh(SimConfig::new(40, 128).capacity(120));
    let volume = open(&device);
    let [large, ino] = [0; 2].map(|_| create(&volume));
    volume.write(ino, 0, &bytes_of(2, 64 * BLOCK), NOW).unwrap();
    volume.sync().unwrap();
    let mut at = 0;
    while volume
        .write(large, at, &bytes_of(at * 4 + 2, BLOCK), NOW)
        .is_ok()
    {
        at += BLOCK as u64;
    }
    volume.sync().unwrap();
    for round in 0..20u64 {
        for block in 0..40u64 {
            let bytes = quarter(round * 40 + block);
            match volume.write(ino, block * BLOCK as u64, &bytes, NOW) {
                Ok(_) => volume.sync_file(ino).unwrap(),
                Err(error) => assert!(matches!(error, Error::NoSpace), "{error}"),
            }
        }
        volume.step(Task::Checkpoint).unwrap();
    }
    let mut expected = vec![0; 64 * BLOCK];
    volume.read(ino, 0, &mut expected).unwrap();
    drop(volume);
    assert_sound(&device, "full");
    let volume = open(&device);
    volume.truncate(large, 0, NOW).unwrap();
    volume.step(Task::Checkpoint).unwrap();
    let mut found = vec![0; 64 * BLOCK];
    volume.read(ino, 0, &mut found).unwrap();
    assert!(found == expected);
    drop(volume);
    assert_sound(&device, "with room again");
}

/// Were a piece not counted in its zone, the inspector would tell.
#[test]
fn a_packed_extent_that_is_not_counted_is_found() {
    for mistake in [Fault::ExtentNotCounted, Fault::PunchNotCounted] {
        let device = fresh(SimConfig::new(40, 128).capacity(120));
        let volume = open(&device);
        let ino = create(&volume);
        for number in 0..40 {
            volume
                .write(ino, number * BLOCK as u64, &quarter(number), NOW)
                .unwrap();
            volume.sync_file(ino).unwrap();
        }
        if mistake == Fault::PunchNotCounted {
            volume.step(Task::Checkpoint).unwrap();
            volume.write(ino, 0, &quarter(99), NOW).unwrap();
        }
        faults::make(Some(mistake));
        volume.sync_file(ino).unwrap();
        volume.step(Task::Checkpoint).unwrap();
        faults::make(None);
        drop(volume);
        let report = inspected(&device);
        let found = report.findings.iter().any(|f| f.number == ZIT_VALID.number);
        assert!(found, "{mistake:?}: {:?}", report.findings);
    }
}
