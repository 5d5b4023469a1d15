//! The library with its background threads on the image back end: whatever a power cut of the host leaves, all that was
//! acknowledged is there. `cargo xtask hosted` runs as many as you like.

use persimmon_crash::hosted::{Plan, Tally, run};

/// Some 20 seconds.
const RUNS: u64 = 70;
/// Some that overwrite so much that zones are emptied.
const RUNS_CHURNING: u64 = 15;

#[test]
fn what_the_library_acknowledged_outlives_its_host() {
    let mut tally = Tally::default();
    let churning = (0..RUNS_CHURNING).map(|seed| Plan::new(seed).churning());
    for plan in (0..RUNS).map(Plan::new).chain(churning) {
        let seed = plan.seed;
        match run(&plan) {
            Ok(covered) => tally += covered,
            Err(failure) => panic!("seed {seed}: {}", failure.why),
        }
    }
    println!("{tally:?}");
    assert!(
        tally.states > 1_500 && tally.recovery_cuts > 400,
        "{tally:?}"
    );
}
