//! Volumes between empty and full keep their promises.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use persimmon_crash::fullness::{self, Report};

#[test]
fn what_statfs_tells_can_be_written_and_what_is_there_can_be_removed() {
    let mut all = Report::default();
    for seed in 0..24 {
        all.add(&fullness::volume(seed, 40).unwrap_or_else(|broken| panic!("{broken}")));
    }
    assert!(all.refused > 100, "volumes were never full: {all:?}");
}

#[test]
fn so_they_are_with_a_device_for_metadata() {
    let mut all = Report::default();
    for seed in 1_000_000..1_000_024 {
        all.add(&fullness::volume(seed, 40).unwrap_or_else(|broken| panic!("{broken}")));
    }
    assert!(all.refused > 100, "volumes were never full: {all:?}");
}

/// With few zones, each of which holds many checkpoints, users borrow one when no other is left; and the power is cut now and then.
#[test]
fn so_they_are_with_large_zones() {
    let mut all = Report::default();
    for (seed, cycles) in [(20_000_001, 30), (20_000_007, 20), (20_000_009, 25)] {
        all.add(&fullness::volume(seed, cycles).unwrap_or_else(|broken| panic!("{broken}")));
    }
    assert!(all.refused > 10, "volumes were never full: {all:?}");
}

/// A volume of few zones uses the scheme for large zones.
#[test]
fn so_they_are_with_few_zones() {
    let mut all = Report::default();
    for (seed, cycles) in [(50_000_001, 15), (50_000_002, 15), (50_000_003, 15)] {
        all.add(&fullness::volume(seed, cycles).unwrap_or_else(|broken| panic!("{broken}")));
    }
    assert!(all.refused > 5, "volumes were never full: {all:?}");
}

/// A delta takes some space and frees none.
#[test]
fn so_they_are_with_deltas() {
    let mut all = Report::default();
    for seed in 200_000_001..200_000_007 {
        all.add(&fullness::volume(seed, 40).unwrap_or_else(|broken| panic!("{broken}")));
    }
    assert!(all.refused > 10, "volumes were never full: {all:?}");
}

/// What is shared while it is written frees nothing when it is overwritten.
#[test]
fn so_they_are_with_deduplication() {
    let mut all = Report::default();
    for seed in 400_000_001..400_000_013 {
        all.add(&fullness::volume(seed, 30).unwrap_or_else(|broken| panic!("{broken}")));
    }
    for seed in [401_000_001, 420_000_001, 500_000_001, 600_000_001] {
        all.add(&fullness::volume(seed, 15).unwrap_or_else(|broken| panic!("{broken}")));
    }
    assert!(all.refused > 10, "volumes were never full: {all:?}");
}

/// The zone with most garbage had a few blocks left and none to move them to: it was tried again
/// and again, though a metadata zone, which needs none, could have been cleaned.
#[test]
fn a_victim_that_cannot_be_moved_is_not_the_last() {
    for (seed, cycles) in [(54, 5), (35, 67)] {
        fullness::volume(seed, cycles).unwrap_or_else(|broken| panic!("{broken}"));
    }
}

/// What was staged of a file filled more zones than there were to spare, and none of them could be
/// cleaned before all of it was committed; zones of moved blocks had room that file data was not given.
#[test]
fn a_batch_needs_no_more_zones_than_there_are_to_spare() {
    for (seed, cycles) in [(5229, 14), (5023, 272)] {
        fullness::volume(seed, cycles).unwrap_or_else(|broken| panic!("{broken}"));
    }
}

/// New data left cleaning one free zone, and a checkpoint began a zone for its pages with that one: nothing
/// could be moved any more, though in some zones little was live.
#[test]
fn a_checkpoint_that_begins_a_zone_takes_none_from_cleaning() {
    for (seed, cycles) in [(40_002, 19), (40_022, 20), (40_026, 30), (40_094, 13)] {
        fullness::volume(seed, cycles).unwrap_or_else(|broken| panic!("{broken}"));
    }
}

/// The zone of metadata that was begun counted as there for the next pages, also when it was nearly full: cleaning
/// was then denied the zone it needed.
#[test]
fn cleaning_has_a_zone_when_that_of_metadata_is_full() {
    fullness::volume(700_001, 265).unwrap_or_else(|broken| panic!("{broken}"));
}

/// What was preallocated beside a device of its own for metadata counted as if all of it came to lie there.
#[test]
fn preallocating_needs_no_more_metadata_than_it_takes() {
    fullness::volume(5_000_000, 70).unwrap_or_else(|broken| panic!("{broken}"));
}

/// With three active zones and a device of its own for metadata, what cleaning moves shares the zone that new data fills:
/// new data took what was left of the last one, and no victim could be emptied any more.
#[test]
fn new_data_leaves_cleaning_the_last_zone() {
    fullness::volume(6_000_078, 115).unwrap_or_else(|broken| panic!("{broken}"));
}

/// With little else to win, zones of metadata had most garbage: the tree was moved from one to the other again and
/// again, and data never cleaned.
///
/// It is the volume's shape that matters. What a write stages at once changes its cycles: in the 37th of them overwriting is
/// refused now, for another reason, which volumes of this shape have always had (docs/TESTING.md, "Full volumes"). So others of the shape are
/// taken, and for longer.
#[test]
fn metadata_is_not_moved_in_vain_for_ever() {
    for (seed, cycles) in [(10_000_026, 36), (10_000_014, 200), (10_000_027, 200)] {
        fullness::volume(seed, cycles).unwrap_or_else(|broken| panic!("{broken}"));
    }
}

/// Small files, names and attributes fill it, on one device, beside one for metadata, and on large zones with power cuts.
#[test]
fn so_they_are_where_the_tree_fills_the_volume() {
    let mut all = Report::default();
    for seed in 30_000_000..30_000_009 {
        all.add(&fullness::volume(seed, 5).unwrap_or_else(|broken| panic!("{broken}")));
    }
    assert!(all.refused > 3, "volumes were never full: {all:?}");
}

/// A zone of data with little garbage was emptied, each block of it of another leaf: checkpoints wrote more than
/// was won, again and again, until creating or even removing a file found no zone.
#[test]
fn a_victim_is_worth_what_is_written_for_it() {
    for (seed, cycles) in [
        (30_000_006, 5),
        (30_000_009, 10),
        (30_000_048, 22),
        (30_000_042, 16),
    ] {
        fullness::volume(seed, cycles).unwrap_or_else(|broken| panic!("{broken}"));
    }
    // Large zones: pages left no room for the chunks that follow them.
    for (seed, cycles) in [(30_000_014, 9), (30_000_026, 9)] {
        fullness::volume(seed, cycles).unwrap_or_else(|broken| panic!("{broken}"));
    }
}

/// The last two free zones were candidates for the log, of which one was reserved for the checkpoint: its pages were
/// written, its chunks were refused a zone, and nothing could be freed any more.
#[test]
fn the_chunks_of_a_checkpoint_have_the_zone_reserved_for_them() {
    fullness::volume(30_004_080, 9).unwrap_or_else(|broken| panic!("{broken}"));
}

/// Once pages were to leave with the next checkpoint, data was taken for what cannot be moved at all, and more zones of metadata were emptied
/// for want of another way: in each round of cleaning the same, until overwriting was refused.
#[test]
fn data_that_waits_for_pages_to_leave_is_moved_after_the_checkpoint() {
    fullness::volume(10_000_026, 38).unwrap_or_else(|broken| panic!("{broken}"));
}
