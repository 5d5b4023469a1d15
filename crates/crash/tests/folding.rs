//! Cleaning folds deltas: held against a plain copy of what was written, and against the inspector's look at every extent, delta and owner.

#![allow(clippy::unwrap_used, reason = "a failure ends the test")]

use std::ops::Range;
use std::sync::{Arc, Mutex};

use persimmon_crash::workload::bytes_of;
use persimmon_device::{Command, Geometry, Pending, ZoneInfo, ZonedDevice};
use persimmon_engine::faults::{self, Fault};
use persimmon_engine::{
    CloneRange, CloneWhen, Deltas, Error, FormatOptions, Intent, Options, Quotas, Task, Volume,
};
use persimmon_format::inode::{Inode, Timestamp};
use persimmon_format::table::Role;
use persimmon_format::{Compression, Ino, SubvolumeId, ZoneId};
use persimmon_inspect::finding::DELTA_BASE;
use persimmon_inspect::{CheckOptions, Report, Severity, check};
use persimmon_sim::{SimConfig, SimDevice};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const BLOCK: usize = 4096;
const NOW: Timestamp = Timestamp {
    seconds: 1_700_000_000,
    nanoseconds: 7,
};

fn fresh() -> Arc<SimDevice> {
    let device = Arc::new(SimDevice::new(SimConfig::new(40, 1024)));
    Volume::format(Arc::clone(&device) as _, &FormatOptions::default()).unwrap();
    device
}

fn open(device: Arc<dyn ZonedDevice>) -> Volume {
    let options = Options {
        compression: Compression::None,
        deltas: Deltas::Always,
        staging_bytes_max: 1 << 20,
        ..Options::default()
    };
    Volume::open(device, options).unwrap().0
}

fn create(volume: &Volume, uid: u32) -> Ino {
    let made = volume.update::<_, Error>(Intent::Grow, |tx| {
        let ino = tx.new_ino();
        let inode = Inode {
            mode: 0o100_644,
            nlink: 1,
            uid,
            gid: uid,
            ..Inode::default()
        };
        tx.put_inode(ino, &inode);
        Ok(ino)
    });
    made.unwrap()
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
fn assert_sound(device: &Arc<SimDevice>) {
    let wrong = |f: &&persimmon_inspect::Finding| {
        f.severity == Severity::Error && !f.to_string().contains("name")
    };
    let report = inspected(device);
    let wrong = report.findings.iter().filter(wrong);
    let wrong: Vec<String> = wrong.map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn data_zones(volume: &Volume) -> Vec<ZoneId> {
    let zones = volume.zones();
    let data = zones
        .iter()
        .filter(|status| status.entry.role == Role::Data && status.entry.valid > 0);
    data.map(|status| status.zone).collect()
}

fn is_same(volume: &Volume, ino: Ino, content: &[u8]) -> Result<bool, Error> {
    let mut found = vec![0; content.len()];
    let read = volume.read(ino, 0, &mut found)?;
    Ok(read == content.len() && found == content)
}

/// Files and what they hold.
type Files = Vec<(Ino, Vec<u8>)>;

/// Small changes, whole blocks, clones, snapshots and cleaning, on a volume that counts what owners take.
#[test]
fn what_is_folded_is_what_was_written() {
    let mut folded = 0;
    for seed in 0..12 {
        let device = fresh();
        let mut volume = open(Arc::clone(&device) as _);
        if seed % 2 == 0 {
            Quotas::of(&volume).turn_on(false).unwrap();
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut files: Files = (0..4)
            .map(|number| {
                (
                    create(&volume, number),
                    bytes_of(u64::from(number) * 4 + 3, 80 * BLOCK),
                )
            })
            .collect();
        let mut snapshots: Vec<(SubvolumeId, Files)> = Vec::new();
        for (ino, content) in &files {
            volume.write(*ino, 0, content, NOW).unwrap();
        }
        volume.sync().unwrap();
        for step in 0..250u64 {
            let (which, block) = (rng.random_range(0..files.len()), rng.random_range(0..80));
            match rng.random_range(0..100) {
                0..70 => {
                    let (ino, content) = &mut files[which];
                    let at = block * BLOCK + rng.random_range(0..BLOCK - 100);
                    content[at..at + 100].iter_mut().for_each(|byte| *byte ^= 1);
                    volume
                        .write(*ino, at as u64, &content[at..at + 100], NOW)
                        .unwrap();
                    volume.sync_file(*ino).unwrap();
                }
                70..76 => {
                    let (ino, content) = &mut files[which];
                    let new = bytes_of(step * 4 + 3, BLOCK);
                    content[block * BLOCK..(block + 1) * BLOCK].copy_from_slice(&new);
                    volume
                        .write(*ino, (block * BLOCK) as u64, &new, NOW)
                        .unwrap();
                }
                76..78 if files.len() < 8 => {
                    let (from, content) = files[which].clone();
                    let to = create(&volume, 9);
                    let range = CloneRange {
                        from,
                        from_offset: 0,
                        to,
                        to_offset: 0,
                        len: content.len() as u64,
                        when: CloneWhen::Always,
                    };
                    let cloned = volume.clone_range(&range, NOW).unwrap();
                    files.push((to, content[..cloned.bytes as usize].to_vec()));
                }
                78..80 if seed % 3 == 0 && snapshots.len() < 3 => {
                    let name = format!("{step}");
                    let is_read_only = step % 2 == 0;
                    let taken = volume.snapshots().take(
                        SubvolumeId::MAIN,
                        name.as_bytes(),
                        is_read_only,
                        NOW,
                    );
                    let id = taken.unwrap();
                    let of_main = |(ino, _): &&(Ino, _)| ino.subvolume() == SubvolumeId::MAIN;
                    let then = files.iter().filter(of_main);
                    let then = then.map(|(ino, content)| (ino.of(id), content.clone()));
                    let then: Vec<_> = then.collect();
                    snapshots.push((id, then.clone()));
                    if !is_read_only {
                        // It is changed as the others are.
                        files.extend(then.into_iter().take(1));
                        snapshots.last_mut().unwrap().1.remove(0);
                    }
                }
                80..82 if step > 200 && !snapshots.is_empty() => {
                    let (id, _) = snapshots.remove(0);
                    files.retain(|(ino, _)| ino.subvolume() != id);
                    volume.snapshots().delete(id).unwrap();
                }
                82..86 => drop(volume.step(Task::Checkpoint).unwrap()),
                86..88 => drop(volume.step(Task::Settle).unwrap()),
                88..90 => {
                    volume.sync().unwrap();
                    folded += volume.statistics().deltas_folded;
                    drop(volume);
                    volume = open(Arc::clone(&device) as _);
                }
                _ => {
                    let zones = data_zones(&volume);
                    if let Some(zone) = zones.get(rng.random_range(0..zones.len().max(1))) {
                        volume.empty_zones(&[*zone]).unwrap();
                    }
                }
            }
            if step % 25 == 0 {
                for (ino, content) in files.iter().chain(snapshots.iter().flat_map(|(_, of)| of)) {
                    assert!(
                        is_same(&volume, *ino, content).unwrap(),
                        "{seed}, step {step}: {ino}"
                    );
                }
            }
        }
        volume.sync().unwrap();
        folded += volume.statistics().deltas_folded;
        for (ino, content) in files.iter().chain(snapshots.iter().flat_map(|(_, of)| of)) {
            assert!(is_same(&volume, *ino, content).unwrap(), "{seed}: {ino}");
        }
        drop(volume);
        assert_sound(&device);
    }
    assert!(folded > 100, "{folded}");
}

type Aside = Box<dyn FnOnce() + Send>;

/// A device that does something aside, once, before it reads something from some zones.
struct Interrupted {
    device: Arc<SimDevice>,
    aside: Mutex<Option<(Vec<ZoneId>, Aside)>>,
}

impl ZonedDevice for Interrupted {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn report(&self, zones: Range<u32>) -> persimmon_device::Result<Vec<ZoneInfo>> {
        self.device.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        let aside = self.aside.lock().unwrap().take_if(
            |(zones, _)| matches!(&command, Command::Read { zone, .. } if zones.contains(zone)),
        );
        if let Some((_, aside)) = aside {
            aside();
        }
        self.device.submit(command)
    }
}

/// A block with a delta is cleaned while an fsync makes another delta to it. Returns whether the file can be read as it is, and whether the
/// inspector finds a delta of nothing that is stored.
fn cleaned_while_synced(mistake: Option<Fault>) -> (bool, bool) {
    let sim = fresh();
    let device = Arc::new(Interrupted {
        device: Arc::clone(&sim),
        aside: Mutex::default(),
    });
    let before = open(Arc::clone(&sim) as _);
    let ino = create(&before, 0);
    let mut content = bytes_of(3, 20 * BLOCK);
    before.write(ino, 0, &content, NOW).unwrap();
    before.sync().unwrap();
    let mut change = |volume: &Volume| {
        let bytes = &mut content[5 * BLOCK..6 * BLOCK];
        bytes[..50].iter_mut().for_each(|byte| *byte ^= 1);
        volume.write(ino, 5 * BLOCK as u64, bytes, NOW).unwrap();
    };
    change(&before);
    before.sync_file(ino).unwrap();
    drop(before);
    let volume = Arc::new(open(Arc::clone(&device) as _));
    change(&volume);
    let (zones, cleaned) = (data_zones(&volume), Arc::clone(&volume));
    let aside = {
        let zones = zones.clone();
        move || cleaned.empty_zones(&zones).unwrap()
    };
    *device.aside.lock().unwrap() = Some((zones, Box::new(aside)));
    faults::make(mistake);
    volume.sync_file(ino).unwrap();
    faults::make(None);
    assert!(device.aside.lock().unwrap().is_none());
    let is_same = is_same(&volume, ino, &content).unwrap_or(false);
    drop(volume);
    let report = inspected(&sim);
    let is_lost = report
        .findings
        .iter()
        .any(|f| f.number == DELTA_BASE.number);
    (is_same, is_lost)
}

#[test]
fn folding_what_is_held_would_be_found() {
    assert_eq!(cleaned_while_synced(None), (true, false));
    assert_eq!(
        cleaned_while_synced(Some(Fault::HeldBaseFolded)),
        (false, true)
    );
}
