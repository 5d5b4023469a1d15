//! Room for a checkpoint is reckoned with what pages took before. Here all of them stop being compressible at once.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use crate::common::{NOW, create, fresh, noise, open};
use persimmon_engine::{Progress, Task};
use persimmon_sim::SimConfig;

/// Files that lie in the tree whole.
const FILES: u64 = 3000;
const FILE_BYTES: usize = 1500;

#[test]
fn pages_may_all_take_more_than_before() {
    for (zones, zone_blocks) in [(160, 64), (64, 256), (40, 512)] {
        let device = fresh(SimConfig::new(zones, zone_blocks));
        let volume = open(&device);
        let files: Vec<_> = (0..FILES).map(|_| create(&volume).unwrap()).collect();
        for ino in &files {
            volume.write(*ino, 0, &[7; FILE_BYTES], NOW).unwrap();
        }
        volume.sync().unwrap();
        volume.step(Task::Checkpoint).unwrap();
        // All the room but what the files will take is filled, and half of that is garbage here and there.
        let grown = FILES * 3 * FILE_BYTES as u64;
        let large = create(&volume).unwrap();
        let blocks = (volume.space().available_bytes - grown) / 4096;
        for block in 0..blocks {
            let data = noise(block, 4096);
            volume.write(large, block * 4096, &data, NOW).unwrap();
        }
        for block in (0..blocks).step_by(3) {
            let data = noise(blocks + block, 4096);
            volume.write(large, block * 4096, &data, NOW).unwrap();
        }
        volume.sync().unwrap();
        for (number, ino) in (0..).zip(&files) {
            let data = noise(number, FILE_BYTES);
            volume.write(*ino, 0, &data, NOW).unwrap();
            if number % 16 == 0 {
                volume.sync_file(*ino).unwrap();
                for task in [Task::FreeIfDue, Task::CleanIfDue, Task::CheckpointIfDue] {
                    while volume.step(task).unwrap() == Progress::Worked {}
                }
            }
        }
        volume.sync().unwrap();
        volume.step(Task::Checkpoint).unwrap();
        drop(volume);
        let volume = open(&device);
        let mut found = vec![0; FILE_BYTES];
        for (number, ino) in (0..).zip(&files) {
            volume.read(*ino, 0, &mut found).unwrap();
            assert!(found == noise(number, FILE_BYTES), "file {number}");
        }
    }
}
