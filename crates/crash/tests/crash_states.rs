//! Persimmon recovers from every crash state to a prefix of its history that holds everything
//! acknowledged (invariant I4), and the inspector finds nothing wrong.

use persimmon_crash::filesystem::Filesystem;
use persimmon_crash::harness::{Campaign, Case, Origin, Selection, replay};
use persimmon_crash::workload::Sequences;

/// Crash states of random runs.
const STATES: u64 = 40_000;
/// About half of these have the plain plans of seeds below 5,000.
const FIRST_SEED: u64 = 4_200;
/// As many of runs with clones, and with snapshots too.
const STATES_WITH_CLONES: u64 = 10_000;
const CLONES_FROM: u64 = 100_000_000;
const STATES_WITH_SNAPSHOTS: u64 = 15_000;
const SNAPSHOTS_FROM: u64 = 200_000_000;
const STATES_WITH_SHIFTS: u64 = 6_000;
const SHIFTS_FROM: u64 = 300_000_000;
const STATES_WITH_DEDUP: u64 = 3_000;
/// Seeds from here on have volumes that deduplicate what is written, and from the second on no quota.
const DEDUP_FROM: [u64; 2] = [900_000_000, 1_000_000_000];
const STATES_ON_STRIPES: u64 = 5_000;
/// Seeds from here on have volumes on stripe sets.
const STRIPES_FROM: u64 = 2_000_000_000;
const STATES_WITH_NEAR: u64 = 5_000;
/// Seeds from here on have near duplicates packed.
const NEAR_FROM: u64 = 3_000_000_000;
const STATES_WITH_WRITABLE: u64 = 7_000;
/// From here on snapshots are written to, renamed, and gone back to.
const WRITABLE_FROM: u64 = 5_000_000_000;
const STATES_WITH_LIMITS: u64 = 6_000;
/// From here on users are limited, too.
const LIMITS_FROM: u64 = 6_000_000_000;
const STATES_WITH_EDITS: u64 = 6_000;
/// From here on most writes are of a few bytes, and synced, and zones are emptied.
const EDITS_FROM: u64 = 10_000_000_000;
const STATES_WITH_OWNERS: u64 = 4_000;
/// From here on groups and projects are limited too, limits are soft as well, and files in snapshots stay open.
const OWNERS_FROM: u64 = 11_000_000_000;
const STATES_WITH_QUOTAS: u64 = 4_000;
/// From here on quota is turned off and on, grace times change, and whole trees get a project.
const QUOTAS_FROM: u64 = 12_000_000_000;
/// Of the sequences of two operations one in so many is run.
const TWOS_STEP: u64 = 101;

/// Seeds that once found something.
const FOUND: &[u64] = &[
    6_527,
    6_987,
    14_866,
    18_351,
    41_037,
    400_064,
    400_104,
    3_008_685,
    9_000_463,
    50_000_322,
    50_001_280,
    50_002_002,
    60_004_581,
    921_997,
    200_000_002,
    200_000_178,
    200_001_485,
    200_004_067,
    200_010_256,
    200_021_415,
    950_001_488,
    2_300_000_161,
    400_003_141,
    600_004_180,
    2_510_000_322,
    21_000_466,
    1_700_001_365,
    6_000_001_133,
    6_000_010_040,
    9_200_000_064,
    11_000_001_134,
    12_994_001_047,
    11_300_000_390,
    // What is staged was not written before an extended attribute or an owner was refused, and nothing was copied from a directory.
    11_400_000_056,
    11_400_000_276,
    12_100_000_010,
    12_100_000_516,
];

#[test]
fn seeds_that_found_something_find_nothing() {
    for seed in FOUND {
        let case = Case::new(Origin::Seed(*seed), &Sequences::new()).unwrap();
        if let Err(failure) = replay(&Filesystem, &case) {
            panic!("{failure}");
        }
    }
}

#[test]
fn every_crash_state_is_a_prefix_of_the_history() {
    let sequences = Sequences::new();
    let (ones, twos) = (sequences.ones(), sequences.twos());
    let all_of_one = Selection {
        first: 0,
        end: ones,
        step: 1,
    };
    let some_of_two = Selection {
        first: ones,
        end: ones + twos,
        step: TWOS_STEP,
    };
    let campaign = Campaign {
        sequences: vec![all_of_one, some_of_two],
        samples: 1000,
        jobs: std::thread::available_parallelism().map_or(2, usize::from),
        shrink_tries: 200,
        ..Campaign::new(FIRST_SEED, STATES)
    };
    let report = campaign.run(&Filesystem, |_| {});
    if let Some(failure) = report.failures.first() {
        panic!("{failure}");
    }
    let statistics = &report.statistics;
    assert_eq!(statistics.sequences, campaign.sequences_planned());
    assert!(statistics.states - statistics.sequence_states >= STATES);
    println!("{statistics}");
}

#[test]
fn so_is_every_one_with_all_that_shares_moves_and_repeats() {
    for (seed, states) in [
        (CLONES_FROM, STATES_WITH_CLONES),
        (SNAPSHOTS_FROM, STATES_WITH_SNAPSHOTS),
        (SHIFTS_FROM, STATES_WITH_SHIFTS),
        (DEDUP_FROM[0], STATES_WITH_DEDUP),
        (DEDUP_FROM[1], STATES_WITH_DEDUP),
        (STRIPES_FROM, STATES_ON_STRIPES),
        (NEAR_FROM, STATES_WITH_NEAR),
        (WRITABLE_FROM, STATES_WITH_WRITABLE),
        (LIMITS_FROM, STATES_WITH_LIMITS),
        (EDITS_FROM, STATES_WITH_EDITS),
        (OWNERS_FROM, STATES_WITH_OWNERS),
        (QUOTAS_FROM, STATES_WITH_QUOTAS),
    ] {
        let campaign = Campaign {
            jobs: std::thread::available_parallelism().map_or(2, usize::from),
            shrink_tries: 200,
            ..Campaign::new(seed, states)
        };
        let report = campaign.run(&Filesystem, |_| {});
        if let Some(failure) = report.failures.first() {
            panic!("{failure}");
        }
        assert!(report.statistics.states >= states);
    }
}
