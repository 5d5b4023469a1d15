//! Several clients at once recover to one history.

use persimmon_sim::threads::{Plan, Tally, run};

/// Runs.
const RUNS: u64 = 40;

#[test]
fn what_several_clients_did_is_one_history() {
    let mut tally = Tally::default();
    for seed in 0..RUNS {
        match run(&Plan::new(seed)) {
            Ok(covered) => tally += covered,
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    println!("{tally:?}");
}
