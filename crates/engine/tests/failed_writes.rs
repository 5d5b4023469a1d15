//! Single commands that fail on a healthy device: the volume goes on, at the cost of what failed.

#![allow(clippy::unwrap_used, reason = "a failure ends the test")]

mod common;

use common::{NOW, create, fresh, open_staging};
use persimmon_device::BLOCK_SIZE;
use persimmon_sim::{Fault, FaultTarget, SimConfig};

/// A flight for fsync over several zones knew of one failed write only that something had failed:
/// written again, it found an "earlier write" failed in each zone that it had been in, left them
/// all, and gave up after the fourth. The volume was read-only.
#[test]
fn a_large_fsync_outlives_any_one_failed_write() {
    let content: Vec<u8> = (0..24 << 20)
        .map(|i| (i / BLOCK_SIZE % 251) as u8)
        .collect();
    // The first is the header of a zone; then there are 24 MiB in commands of up to 1 MiB, and the
    // summaries.
    for command in (0..44).step_by(3) {
        let device = fresh(SimConfig::new(80, 2048).fast());
        let volume = open_staging(&device, 32 << 20).unwrap();
        let ino = create(&volume).unwrap();
        volume.sync().unwrap();
        volume.write(ino, 0, &content, NOW).unwrap();
        device.inject(Fault::once(FaultTarget::Write).after(command));
        volume.sync_file(ino).unwrap();
        assert!(!volume.is_read_only(), "command {command}");
        assert!(device.counters().finishes <= 1, "command {command}");
        let mut found = vec![0; content.len()];
        volume.read(ino, 0, &mut found).unwrap();
        assert!(found == content, "command {command}");
        // And what follows is durable without more ado.
        volume.write(ino, 0, &[7; 3 * BLOCK_SIZE], NOW).unwrap();
        volume.sync_file(ino).unwrap();
        assert!(device.counters().finishes <= 1, "command {command}");
    }
}
