//! Volumes that are filled to the last block, and written again. `--example room` has large ones.

#![allow(clippy::unwrap_used, reason = "a failure ends the test")]

use persimmon_lab::room::{Order, Room};

/// Many zones, of which few are held back: whatever is written again in no order takes more pages and summaries than
/// before, and what dies is a little of each zone. No zone was worth cleaning then, and blocks that had been
/// taken found no place.
#[test]
fn a_full_volume_is_written_again_block_by_block() {
    let room = Room {
        zones: 700,
        zone_blocks: 256,
        active_max: Some(14),
        reserve_basis_points: Some(0),
        dirty_pages_max: 64,
        large_zone_blocks: u32::MAX,
        order: Order::Scattered,
        passes: 0.04,
        seed: 1,
    };
    let held = room.run().unwrap();
    assert!(held.written_bytes * 100 > held.drive_bytes * 94, "{held:?}");
    assert!(held.write_amplification > 1.0, "{held:?}");
}

/// Whatever is written can be written again, and nothing is moved for it where it dies zone by zone.
#[test]
fn a_full_volume_is_written_again_file_by_file() {
    let room = Room {
        zones: 64,
        zone_blocks: 1024,
        active_max: Some(14),
        reserve_basis_points: Some(1000),
        dirty_pages_max: 4096,
        large_zone_blocks: u32::MAX,
        order: Order::Files,
        passes: 2.0,
        seed: 1,
    };
    let held = room.run().unwrap();
    // It was full when nearly all was written that had been promised.
    assert!(held.written_bytes * 100 > held.total_bytes * 98, "{held:?}");
    assert!(held.write_amplification < 1.1, "{held:?}");
}

/// Of large zones a volume keeps four for itself, however few there are.
#[test]
fn a_volume_of_few_large_zones_is_written_again_file_by_file() {
    let room = Room {
        zones: 24,
        zone_blocks: 16_384,
        active_max: Some(14),
        reserve_basis_points: Some(0),
        dirty_pages_max: 256,
        large_zone_blocks: 16_384,
        order: Order::Files,
        passes: 2.0,
        seed: 1,
    };
    let held = room.run().unwrap();
    assert!(
        held.written_bytes * 1000 > held.total_bytes * 995,
        "{held:?}"
    );
    assert!(held.written_bytes * 24 > held.drive_bytes * 19, "{held:?}");
    assert!(held.write_amplification < 1.05, "{held:?}");
}
