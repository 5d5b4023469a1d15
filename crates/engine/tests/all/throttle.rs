//! Where free zones run low and cleaning ahead does not keep up, those who write move blocks, a few for each of theirs.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test from top to bottom"
)]

use crate::common::{NOW, create, fresh, noise, open};
use persimmon_engine::{Progress, Statistics, Task};
use persimmon_sim::SimConfig;

/// Blocks that a step of cleaning may move at most.
const STEP_BLOCKS: u64 = 64;

/// Three volumes, each a little fuller: how many wait hangs on which zone a checkpoint takes when, and goes up and
/// down by half from one to the next.
#[test]
fn who_writes_moves_a_few_blocks_for_each() {
    let fills = [620, 636, 650];
    let all = fills.map(|fill| overwrite_at(240 * 256 * fill / 1000));
    let sum = |of: fn(&Statistics) -> u64| all.iter().map(|(done, _)| of(done)).sum::<u64>();
    // Some wait all the same: where checkpoints take the last free zones.
    let (foreground, background) = (
        sum(|done| done.cleaning_foreground),
        sum(|done| done.cleaning_background),
    );
    assert!(
        5 * foreground < background,
        "{foreground} of {background}, {all:?}"
    );
    // Sixteen blocks are paid for at once, with up to twice what gains as many.
    for (_, most) in all {
        assert!(most <= 5 * STEP_BLOCKS, "{most}");
    }
}

/// Overwrites so many blocks twice over, in no order. Answers what was done, and how many were moved at most while one was
/// written.
fn overwrite_at(blocks: u64) -> (Statistics, u64) {
    let volume = open(&fresh(SimConfig::new(240, 256)));
    let ino = create(&volume).unwrap();
    let mut number = 0;
    let mut write = |block: u64| {
        number += 1;
        let data = noise(number, 4096);
        volume.write(ino, block * 4096, &data, NOW).unwrap();
    };
    for block in 0..blocks {
        write(block);
    }
    volume.sync().unwrap();
    let (mut most, mut before) = (0, volume.statistics());
    let (begin, mut at) = (before, 1u64);
    for round in 0..2 * blocks {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        write((at >> 33) % blocks);
        volume.sync_file(ino).unwrap();
        let after = volume.statistics();
        let done = after.since(&before);
        if done.cleaning_foreground == 0 {
            most = most.max(done.blocks_moved);
        }
        // What is empty is freed beside, as on a mount, and the journal is kept short. Cleaning ahead takes a
        // step now and then, which is too little.
        for task in [Task::FreeIfDue, Task::CheckpointIfDue] {
            while volume.step(task).unwrap() == Progress::Worked {}
        }
        if round % 64 == 0 {
            volume.step(Task::CleanIfDue).unwrap();
        }
        before = volume.statistics();
    }
    let done = before.since(&begin);
    assert!(done.blocks_moved > blocks, "{done:?}");
    (done, most)
}
