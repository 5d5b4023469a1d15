//! Two who change a file at once, or change and read it: it comes out as if one had come after the
//! other. Each pair is tried at every command to the device that the first of them waits for.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failure ends the test"
)]

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use persimmon_engine::{Error, Options, Seek, Task, Volume};
use persimmon_format::Ino;

use crate::common::interrupted::{Aside, Interrupted};
use crate::common::{NOW, create, fresh, noise, small};

/// A longer write is staged in pieces that end at multiples of this.
const PIECE: usize = 1 << 20;
/// Its end is inside a block, behind the end of a piece.
const FILE_BYTES: usize = PIECE + 20_000;

#[derive(Clone, Copy, Debug)]
enum Change {
    Write { offset: usize, len: usize },
    Append { len: usize },
    Truncate { size: usize },
    Punch { offset: usize, len: usize },
    Zero { offset: usize, len: usize },
    Preallocate { offset: usize, len: usize },
}

const CHANGES: [Change; 11] = [
    Change::Write {
        offset: 100,
        len: 5000,
    },
    Change::Write {
        offset: 5000,
        len: PIECE + 9000,
    },
    Change::Write {
        offset: FILE_BYTES,
        len: 300,
    },
    Change::Append { len: 200 },
    Change::Append { len: PIECE },
    Change::Truncate { size: 0 },
    Change::Truncate { size: 6000 },
    Change::Truncate {
        size: FILE_BYTES + 9000,
    },
    Change::Punch {
        offset: 1000,
        len: FILE_BYTES - 2000,
    },
    Change::Zero {
        offset: PIECE + 1000,
        len: 30_000,
    },
    Change::Preallocate {
        offset: 0,
        len: FILE_BYTES + 10_000,
    },
];

impl Change {
    fn make(self, volume: &Volume, ino: Ino, byte: u8) -> Result<(), Error> {
        match self {
            Change::Write { offset, len } => {
                let written = volume.write(ino, offset as u64, &vec![byte; len], NOW)?;
                assert_eq!(written, len);
            }
            Change::Append { len } => {
                let (_, written) = volume.append(ino, &vec![byte; len], NOW, None)?;
                assert_eq!(written, len);
            }
            Change::Truncate { size } => volume.truncate(ino, size as u64, NOW)?,
            Change::Punch { offset, len } => volume.punch(ino, offset as u64, len as u64, NOW)?,
            Change::Zero { offset, len } => {
                volume.zero(ino, offset as u64, len as u64, false, NOW)?;
            }
            Change::Preallocate { offset, len } => {
                volume.preallocate(ino, offset as u64, len as u64, false, NOW)?;
            }
        }
        Ok(())
    }

    /// The same to what the file is expected to hold.
    fn model(self, content: &mut Vec<u8>, byte: u8) {
        let mut fill = |offset: usize, len: usize, byte: u8| {
            let end = offset + len;
            content.resize(content.len().max(end), 0);
            content[offset..end].fill(byte);
        };
        match self {
            Change::Write { offset, len } => fill(offset, len, byte),
            Change::Append { len } => content.resize(content.len() + len, byte),
            Change::Truncate { size } => content.resize(size, 0),
            Change::Punch { offset, len } => {
                let end = content.len().min(offset + len);
                content[offset.min(end)..end].fill(0);
            }
            Change::Zero { offset, len } => fill(offset, len, 0),
            Change::Preallocate { offset, len } => {
                content.resize(content.len().max(offset + len), 0);
            }
        }
    }
}

/// A volume that keeps no last blocks in memory, so that who changes a block in part has to read it.
fn open() -> (Arc<Interrupted>, Arc<Volume>) {
    let device = Interrupted::new(&fresh(small()));
    let options = Options {
        staging_bytes_max: 4 << 20,
        tails_bytes_max: 0,
        ..Options::default()
    };
    let (volume, _) = Volume::open(Arc::clone(&device) as _, options).unwrap();
    (device, Arc::new(volume))
}

/// A file whose second block is staged, the rest written; and what it holds.
fn file(volume: &Volume) -> (Ino, Vec<u8>) {
    let ino = create(volume).unwrap();
    let mut content = noise(1, FILE_BYTES);
    volume.write(ino, 0, &content, NOW).unwrap();
    volume.commit_file(ino).unwrap();
    content[4096..8192].fill(0x11);
    volume.write(ino, 4096, &content[4096..8192], NOW).unwrap();
    (ino, content)
}

fn content(volume: &Volume, ino: Ino) -> Vec<u8> {
    let mut found = vec![0xee; volume.attr(ino).unwrap().unwrap().size as usize];
    assert_eq!(volume.read(ino, 0, &mut found).unwrap(), found.len());
    found
}

/// Has something done before the command to the device that follows so many others.
fn before_command(device: &Interrupted, number: usize, aside: Aside) {
    let left = AtomicUsize::new(number);
    let is_it = move || {
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
            .is_err()
    };
    device.before(move |_| is_it(), aside);
}

/// An append found the end of the file and wrote there, whatever had been written there meanwhile. A
/// punch wrote zeros up to an end that a truncation had since cut off. Of a write in several pieces, or
/// an append, a truncation in between took the first ones alone: a hole came before the others.
#[test]
fn two_changes_come_one_after_the_other() {
    let (device, volume) = open();
    let mut interrupted = 0;
    for (first, second) in CHANGES.iter().flat_map(|a| CHANGES.map(|b| (*a, b))) {
        for command in 0.. {
            let (ino, old) = file(&volume);
            let thread = Arc::new(Mutex::new(None));
            let (aside, started) = (Arc::clone(&volume), Arc::clone(&thread));
            let start = move || {
                let beside = std::thread::spawn(move || second.make(&aside, ino, 2));
                // It may end now or wait for the other: what must not come is given the time to.
                for _ in 0..2000 {
                    if beside.is_finished() {
                        break;
                    }
                    std::thread::yield_now();
                }
                *started.lock().unwrap() = Some(beside);
            };
            before_command(&device, command, Box::new(start));
            first.make(&volume, ino, 1).unwrap();
            let was_interrupted = device.was_done();
            if was_interrupted {
                let beside = thread.lock().unwrap().take().unwrap();
                beside.join().unwrap().unwrap();
                let [mut one, mut other] = [old.clone(), old];
                first.model(&mut one, 1);
                second.model(&mut one, 2);
                second.model(&mut other, 2);
                first.model(&mut other, 1);
                for _staged_and_in_the_tree in 0..2 {
                    let found = content(&volume, ino);
                    assert!(
                        found == one || found == other,
                        "{first:?} and {second:?} before command {command}: {} bytes",
                        found.len()
                    );
                    volume.commit_file(ino).unwrap();
                }
            }
            volume.truncate(ino, 0, NOW).unwrap();
            if !was_interrupted {
                break;
            }
            interrupted += 1;
        }
        volume.step(Task::Checkpoint).unwrap();
    }
    assert!(interrupted > 150, "{interrupted}");
}

/// A read looked at the size, and then for the blocks. It found a hole where a truncation had taken
/// them, and told zeros that never were in the file, also where somebody had written there again.
#[test]
fn a_read_beside_a_truncation_finds_no_holes() {
    let (device, volume) = open();
    let all_anew = Change::Write {
        offset: 0,
        len: FILE_BYTES,
    };
    let cases = [
        vec![Change::Truncate { size: 0 }],
        vec![Change::Truncate { size: 6000 }],
        vec![Change::Truncate { size: 0 }, all_anew],
        vec![
            Change::Truncate { size: 6000 },
            Change::Append { len: PIECE },
        ],
    ];
    for changes in cases {
        for command in 0.. {
            let (ino, old) = file(&volume);
            let mut states = vec![old];
            for change in &changes {
                let mut state = states.last().unwrap().clone();
                change.model(&mut state, 3);
                states.push(state);
            }
            let (aside, beside) = (Arc::clone(&volume), changes.clone());
            let make = move || {
                for change in beside {
                    change.make(&aside, ino, 3).unwrap();
                }
            };
            before_command(&device, command, Box::new(make));
            let mut found = vec![0xee; FILE_BYTES];
            let len = volume.read(ino, 0, &mut found).unwrap();
            let was_interrupted = device.was_done();
            let is_one = |state: &Vec<u8>| found[..len] == state[..state.len().min(FILE_BYTES)];
            assert!(
                states.iter().any(is_one),
                "{changes:?} before command {command}: {len} bytes"
            );
            volume.truncate(ino, 0, NOW).unwrap();
            if !was_interrupted {
                assert!(command > 1, "the file is read in several steps");
                break;
            }
        }
        volume.step(Task::Checkpoint).unwrap();
    }
}

/// A truncation had taken the blocks from the tree, and not yet told that the file is shorter.
#[test]
fn a_read_between_the_steps_of_a_truncation_finds_no_hole() {
    let (_device, volume) = open();
    let ino = create(&volume).unwrap();
    let written = vec![7; 3 * 4096];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let mut found = vec![0xee; 3 * 4096];
                let len = volume.read(ino, 0, &mut found).unwrap();
                assert!(found[..len].iter().all(|byte| *byte == 7), "{len} bytes");
            }
        });
        for _ in 0..10_000 {
            volume.write(ino, 0, &written, NOW).unwrap();
            volume.commit_file(ino).unwrap();
            volume.truncate(ino, 0, NOW).unwrap();
            if reader.is_finished() {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// The size was that of what is staged, the extents those of before: between the two ends there was a
/// hole for whoever looked for one.
#[test]
fn no_hole_is_found_in_what_a_write_adds_meanwhile() {
    let (_device, volume) = open();
    let ino = create(&volume).unwrap();
    volume.write(ino, 0, &noise(1, 8192), NOW).unwrap();
    let size = AtomicU64::new(8192);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 1..500u64 {
                let end = (round + 1) * 8192;
                volume
                    .write(ino, end - 8192, &noise(round, 8192), NOW)
                    .unwrap();
                size.store(end, Ordering::Release);
                if round % 7 == 0 {
                    volume.commit_file(ino).unwrap();
                }
            }
        });
        while !writer.is_finished() {
            let known = size.load(Ordering::Acquire);
            let found = volume.seek(ino, 4000, Seek::Hole).unwrap();
            assert!(
                found.is_some_and(|hole| hole >= known),
                "{found:?} below {known}"
            );
        }
    });
    assert_eq!(
        volume.seek(ino, 10_000, Seek::Hole).unwrap(),
        Some(500 * 8192)
    );
}
