//! A state that cannot be stops the volume, as release builds do it: nothing more reaches the device, everybody is told, and
//! the next mount finds what was durable.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test from top to bottom"
)]

use std::sync::Arc;

use persimmon_crash::filesystem::Filesystem as Simulated;
use persimmon_crash::harness::System;
use persimmon_engine::faults::{Fault, make};
use persimmon_engine::invariant::stop_on_bugs;
use persimmon_engine::{Error, Intent, Task, Volume};
use persimmon_format::Key;
use persimmon_format::inode::{Inode, Timestamp};
use persimmon_sim::{SimConfig, SimDevice};

const LEN: usize = 300_000;

fn open(device: &Arc<SimDevice>) -> Volume {
    Volume::open(Arc::clone(device) as _, Default::default())
        .unwrap()
        .0
}

/// The count was clamped to nothing: the zone looked empty, and the next checkpoint reset it with live data in it.
#[test]
fn a_count_that_is_too_low_stops_the_volume() {
    let device = Arc::new(SimDevice::new(SimConfig::new(64, 256).volatile_cache()));
    Simulated.format(&device, 1).unwrap();
    let volume = open(&device);
    let now = Timestamp::default();
    let ino = volume.update::<_, Error>(Intent::Grow, |tx| {
        let ino = tx.new_ino();
        let inode = Inode {
            mode: 0o100_644,
            ..Inode::default()
        };
        tx.put_inode(ino, &inode);
        tx.put(Key::orphan(ino), Vec::new());
        Ok(ino)
    });
    let ino = ino.unwrap();
    volume.write(ino, 0, &[7; LEN], now).unwrap();
    volume.sync_file(ino).unwrap();
    volume.step(Task::Checkpoint).unwrap();

    stop_on_bugs(true);
    make(Some(Fault::ValidMiscounted));
    let cut = volume.truncate(ino, 0, now).unwrap_err().to_string();
    make(None);
    stop_on_bugs(false);
    for part in [
        "valid packing units",
        "counts.rs:",
        "bug in Persimmon",
        "fsck",
    ] {
        assert!(cut.contains(part), "{cut}");
    }
    assert!(volume.standing().bug().is_some());
    assert!(volume.is_read_only());
    let sent = device.counters().changes();
    let refused = volume.write(ino, 0, &[8; LEN], now).unwrap_err();
    assert!(matches!(refused, Error::ReadOnly { .. }), "{refused:?}");
    assert!(volume.step(Task::Checkpoint).is_err());
    // All that was done is durable: there is nothing to refuse.
    let _ = volume.sync();
    let _ = volume.close();
    assert_eq!(device.counters().changes(), sent, "something was sent");
    drop(volume);

    // What had been durable is all there.
    Simulated.check(&device).unwrap();
    let volume = open(&device);
    let mut found = vec![0; LEN];
    volume.read(ino, 0, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 7));
    volume.truncate(ino, 0, now).unwrap();
    volume.close().unwrap();
    Simulated.check(&device).unwrap();
}
