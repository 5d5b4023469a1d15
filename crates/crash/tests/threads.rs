//! Several clients at once, and background threads beside them: whenever the power is cut, what all of them find is a
//! part of one history. `cargo xtask interleave` has the threads go by the seed; without it they are the host's.

use persimmon_crash::threads::{Plan, Tally, run};

/// Runs of threads that a seed chooses between, and of the host's, which take their time.
const RUNS: u64 = if cfg!(interleave) { 2_000 } else { 60 };

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

/// Of 12,000 runs one was answered ENOSPC where EIO was meant (402128; and another where no zone could be reset any more,
/// 77000210), and in one `SEEK_DATA` over a large sparse file of a
/// volume that had turned read-only was wrong (401872).
#[cfg(interleave)]
#[test]
fn seeds_that_found_something_find_nothing() {
    for seed in [401_872, 402_128, 77_000_210] {
        if let Err(why) = run(&Plan::new(seed)) {
            panic!("seed {seed}: {why}");
        }
    }
}

/// The harness can fail: the engine makes a mistake that does no harm as long as one thread is at work, and is found out.
#[cfg(interleave)]
#[test]
fn every_mistake_of_several_threads_is_caught() {
    use persimmon_engine::faults::{Fault, make};

    /// Runs within which each has to be found.
    const RUNS_MAX: u64 = 3_000;

    let mut missed = Vec::new();
    for mistake in Fault::OF_SEVERAL {
        make(Some(mistake));
        let mut tally = Tally::default();
        let found = (0..RUNS_MAX).find_map(|seed| match run(&Plan::new(seed)) {
            Ok(covered) => {
                tally += covered;
                None
            }
            Err(why) => Some((seed, why)),
        });
        make(None);
        let Some((seed, why)) = found else {
            println!("| {mistake:?} | | {} | missed |", tally.states);
            missed.push(mistake);
            continue;
        };
        let why = why.lines().next().unwrap_or_default();
        println!("| {mistake:?} | {seed} | {} | {why} |", tally.states);
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
