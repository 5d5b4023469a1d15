//! Runs a target a fixed number of times: the same inputs on every machine.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Target;
use crate::mutate;

/// Seed of the runs under the test command.
pub const SEED: u64 = 1;

/// A run that failed.
#[derive(Debug)]
pub struct Failure {
    /// Its number; `--seed` and `--run` of the `fuzz` example repeat it.
    pub run: u64,
    /// Its input.
    pub input: Vec<u8>,
}

/// The input of a run.
#[must_use]
pub fn input(target: &Target, seed: u64, run: u64) -> Vec<u8> {
    mutate::input(&(target.seeds)(), seed, run)
}

/// Runs `target` with the inputs `runs` of `seed`, and collects at most `failures_max` failures.
#[must_use]
pub fn run(
    target: &Target,
    seed: u64,
    runs: std::ops::Range<u64>,
    failures_max: usize,
) -> Vec<Failure> {
    let seeds = (target.seeds)();
    let mut failures = Vec::new();
    for run in runs {
        let input = mutate::input(&seeds, seed, run);
        if catch_unwind(AssertUnwindSafe(|| (target.run)(&input))).is_err() {
            failures.push(Failure { run, input });
            if failures.len() >= failures_max {
                break;
            }
        }
    }
    failures
}
