//! Deltas of blocks, as a check sees them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::support::{FILE, add, assert_sound, content, formatted_on, mend, now, report};
use persimmon_engine::{Deltas, Error, Options, Task, Volume};
use persimmon_format::delta::is_delta;
use persimmon_format::extent::Extent;
use persimmon_format::inode::ROOT;
use persimmon_format::{BLOCK_SIZE, Key};
use persimmon_sim::SimConfig;
use persimmon_sim::SimDevice;

/// No record tells of packing. So a replay finds a block in the tree, as it was synced, that was packed when its delta was made: the delta
/// is of this block all the same, and a repair must not take it away.
#[test]
fn a_delta_may_be_of_a_block_that_is_in_the_tree_again() {
    let config = SimConfig::new(24, 1024).capacity(1000);
    let device = formatted_on(SimDevice::new(config), 1);
    let options = Options {
        deltas: Deltas::Always,
        ..Options::default()
    };
    let (volume, _) = Volume::open(device.clone(), options.clone()).unwrap();
    let ino = add(&volume, ROOT, "file", FILE);
    volume.step(Task::Checkpoint).unwrap();
    let mut bytes = content(3, 4000 * BLOCK_SIZE);
    for block in bytes.chunks_mut(BLOCK_SIZE) {
        block[1200..].fill(1);
    }
    let extents = |volume: &Volume| {
        let mut all = Vec::new();
        let scanned = volume.view::<_, Error>(|view| {
            all.clear();
            view.scan(
                Key::extent(ino, 0)..Key::extent(ino, u64::MAX),
                |key, value| {
                    all.push((key.item, Extent::decode(value).unwrap()));
                    Ok(ControlFlow::Continue(()))
                },
            )
        });
        scanned.unwrap();
        all
    };
    let is_packed = |volume: &Volume| {
        let first = extents(volume).swap_remove(0).1;
        matches!(first, Extent::Packed(_))
    };
    for (at, block) in bytes.chunks(BLOCK_SIZE).enumerate() {
        let offset = (at * BLOCK_SIZE) as u64;
        volume.write(ino, offset, block, now(5)).unwrap();
        volume.sync_file(ino).unwrap();
        if at > 0 && is_packed(&volume) {
            break;
        }
        let _ = volume.step(Task::WriteBack).unwrap();
    }
    assert!(is_packed(&volume));
    for at in [0, 5, 10] {
        let offset = at * BLOCK_SIZE;
        bytes[offset] ^= 1;
        volume
            .write(ino, offset as u64, &bytes[offset..][..1], now(6))
            .unwrap();
        volume.sync_file(ino).unwrap();
    }
    let deltas = |volume: &Volume| {
        let all = extents(volume).into_iter();
        all.filter(|(place, _)| is_delta(*place)).count()
    };
    assert_eq!(deltas(&volume), 3);
    drop(volume);
    // As a power cut leaves it.
    let left = Arc::new(device.persisted(1));
    assert_sound(&report(&left, false));
    assert_sound(&report(&left, true));
    mend(&left);
    let (volume, _) = Volume::open(left.clone(), options).unwrap();
    assert!(!is_packed(&volume));
    assert_eq!(deltas(&volume), 3);
    let mut found = vec![0; bytes.len()];
    volume.read(ino, 0, &mut found).unwrap();
    assert!(found[..20 * BLOCK_SIZE] == bytes[..20 * BLOCK_SIZE]);
}
