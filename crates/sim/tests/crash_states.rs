//! Persimmon recovers from every crash state to a prefix of its history that holds everything
//! acknowledged (invariant I4), and the inspector finds nothing wrong.

use persimmon_sim::filesystem::Filesystem;
use persimmon_sim::harness::Campaign;

#[test]
fn every_crash_state_is_a_prefix_of_the_history() {
    let campaign = Campaign {
        seed: 1,
        states: 20_000,
        jobs: 2,
        failures_max: 1,
        shrink_tries: 200,
    };
    let report = campaign.run(&Filesystem, |_| {});
    if let Some(failure) = report.failures.first() {
        panic!("{failure}");
    }
    assert!(report.statistics.states >= 20_000);
    println!("{}", report.statistics);
}
