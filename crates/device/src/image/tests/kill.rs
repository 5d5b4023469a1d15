//! `kill -9` in the middle of writes, flushes, resets and finishes: nothing flushed is lost, no
//! zone is half of anything. The test runs itself again as the child that is killed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command as Process, Stdio};

use super::*;
use crate::ZoneState;

const IMAGE_VARIABLE: &str = "PERSIMMON_TEST_KILL_IMAGE";
const SEED_VARIABLE: &str = "PERSIMMON_TEST_KILL_SEED";
const ROUNDS: u64 = 25;

/// What the child has told about a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    /// Resets begun.
    life: u32,
    /// Of the last flush: life, blocks written, finished.
    flushed: (u32, u32, bool),
    now: (u32, bool),
}

#[test]
fn child() {
    let Ok(path) = std::env::var(IMAGE_VARIABLE) else {
        return;
    };
    let seed: u64 = std::env::var(SEED_VARIABLE).unwrap().parse().unwrap();
    let device = ImageDevice::open(path, &OpenOptions::default()).unwrap();
    let mut random = Random(seed);
    let mut out = std::io::stdout();
    let mut told = device_state(&device);
    // Printed before a thing is begun, except for flushes: after they are done.
    loop {
        let number = random.below(geometry().zone_count);
        let zone = ZoneId(number);
        let (written, full) = told[number as usize].now;
        match random.below(10) {
            0 => {
                let keep_allocated = random.below(2) == 0;
                writeln!(out, "reset {number}").unwrap();
                device
                    .run(Command::Reset {
                        zone,
                        keep_allocated,
                    })
                    .unwrap();
                told[number as usize].life += u32::from(full || written > 0);
                told[number as usize].now = (0, false);
            }
            1 if random.below(4) == 0 => {
                writeln!(out, "finish {number}").unwrap();
                if device.run(Command::Finish { zone }).is_ok() {
                    told[number as usize].now.1 = true;
                }
            }
            2 | 3 => {
                // Both outlive the process.
                match random.below(2) {
                    0 => device.flush().unwrap(),
                    _ => drop(device.run(Command::Record).unwrap()),
                }
                let states: Vec<String> = told
                    .iter()
                    .map(|told| format!("{}:{}:{}", told.life, told.now.0, told.now.1))
                    .collect();
                writeln!(out, "flushed {}", states.join(" ")).unwrap();
            }
            _ => {
                let blocks = (random.below(40) + 1).min(geometry().capacity_blocks - written);
                if full || blocks == 0 {
                    continue;
                }
                let life = told[number as usize].life;
                let data = vec![tagged(zone, written, blocks, life)];
                let block = written;
                match device.run(Command::Write { zone, block, data }) {
                    Ok(_) => {}
                    // The limits of the geometry are small on purpose.
                    Err(DeviceError::TooManyActive { .. }) => continue,
                    Err(error) => panic!("{error}"),
                }
                let written = written + blocks;
                told[number as usize].now = (written, written == geometry().capacity_blocks);
            }
        }
    }
}

#[test]
fn nothing_flushed_is_lost_when_the_process_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    drop(ImageDevice::create(&path, &geometry(), &CreateOptions::default()).unwrap());
    for seed in 1..=ROUNDS {
        let mut told = device_state(&ImageDevice::open(&path, &OpenOptions::default()).unwrap());
        let mut child = Process::new(std::env::current_exe().unwrap())
            .args(["--exact", "image::tests::kill::child", "--nocapture"])
            .env(IMAGE_VARIABLE, &path)
            .env(SEED_VARIABLE, seed.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let enough = Random(seed ^ 0x00ab_cdef).below(120) + 3;
        let mut heard = 0;
        while heard < enough {
            let Some(line) = lines.next() else { break };
            heard += u32::from(listen(&line.unwrap(), &mut told));
        }
        child.kill().unwrap();
        for line in lines {
            listen(&line.unwrap(), &mut told);
        }
        child.wait().unwrap();
        assert_eq!(heard, enough, "the child ended by itself");
        check(&path, &told);
    }
}

/// Takes in a line; false if it says nothing.
fn listen(line: &str, told: &mut [Told]) -> bool {
    // The test harness begins a line that the first message ends.
    let line = line
        .rsplit_once("... ")
        .map_or(line, |(_, message)| message);
    let mut words = line.split(' ');
    match words.next() {
        Some("reset") => {
            let zone: usize = words.next().unwrap().parse().unwrap();
            told[zone].life += 1;
        }
        Some("finish") => {
            let zone: usize = words.next().unwrap().parse().unwrap();
            told[zone].now.1 = true;
        }
        Some("flushed") => {
            for (told, state) in told.iter_mut().zip(words) {
                let mut parts = state.split(':');
                let life = parts.next().unwrap().parse().unwrap();
                let written = parts.next().unwrap().parse().unwrap();
                let full = parts.next().unwrap() == "true";
                // A reset of an empty zone begins no new life.
                *told = Told {
                    life,
                    flushed: (life, written, full),
                    now: (written, full),
                };
            }
        }
        _ => return false,
    }
    true
}

fn check(path: &Path, told: &[Told]) {
    let device = ImageDevice::open(path, &OpenOptions::default()).unwrap();
    assert_eq!(device.notices(), &[]);
    for (number, told) in told.iter().enumerate() {
        let zone = ZoneId(number as u32);
        let snapshot = device.zones.lock().machine.snapshot(zone).unwrap();
        let (life, written, full) = told.flushed;
        let is_full = snapshot.state == ZoneState::Full;
        assert!(
            (life..=told.life).contains(&snapshot.resets),
            "zone {zone} came back with {} resets, told {told:?}",
            snapshot.resets
        );
        if snapshot.resets == life {
            assert!(
                snapshot.written >= written,
                "zone {zone}: {snapshot:?} after {told:?}"
            );
            assert!(is_full || !full, "zone {zone}: {snapshot:?} after {told:?}");
        }
        for block in 0..snapshot.written {
            let found = device.read(zone, block, 1).unwrap();
            let expected = tagged(zone, block, 1, snapshot.resets);
            assert!(*found == *expected, "block {zone}:{block}");
        }
    }
}

/// The state as a fresh process finds it.
fn device_state(device: &ImageDevice) -> Vec<Told> {
    (0..geometry().zone_count)
        .map(|zone| {
            let snapshot = device.zones.lock().machine.snapshot(ZoneId(zone)).unwrap();
            let full = snapshot.state == ZoneState::Full;
            Told {
                life: snapshot.resets,
                flushed: (snapshot.resets, snapshot.written, full),
                now: (snapshot.written, full),
            }
        })
        .collect()
}
