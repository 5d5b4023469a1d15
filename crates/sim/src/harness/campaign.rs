//! Many runs on several threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::plan::Plan;
use super::run::{Case, Failure, replay};
use super::shrink::shrink;
use super::statistics::Statistics;
use super::system::System;

/// Runs of consecutive seeds until enough crash states were tried.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// First seed.
    pub seed: u64,
    /// Crash states to try.
    pub states: u64,
    /// Threads.
    pub jobs: usize,
    /// Failures after which to stop.
    pub failures_max: usize,
    /// Runs spent on making each failure shorter.
    pub shrink_tries: usize,
}

/// How far a campaign is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Runs that are over.
    pub runs: u64,
    /// Crash states tried.
    pub states: u64,
    /// Failures found.
    pub failures: usize,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct CampaignReport {
    /// What was covered.
    pub statistics: Statistics,
    /// What went wrong, as short as could be made.
    pub failures: Vec<Failure>,
}

impl Campaign {
    /// A campaign of so many crash states on one thread that stops at the first failure.
    #[must_use]
    pub fn new(seed: u64, states: u64) -> Campaign {
        Campaign {
            seed,
            states,
            jobs: 1,
            failures_max: 1,
            shrink_tries: 100,
        }
    }

    /// Runs it. `progress` is called after each run.
    pub fn run<S: System>(&self, system: &S, progress: impl Fn(Progress) + Sync) -> CampaignReport {
        let next = AtomicU64::new(self.seed);
        let stop = AtomicBool::new(false);
        let report = Mutex::new(CampaignReport::default());
        let worker = || {
            while !stop.load(Ordering::Relaxed) {
                let case = Case {
                    plan: Plan::new(next.fetch_add(1, Ordering::Relaxed)),
                    ops: Vec::new(),
                };
                let (statistics, failure) = match replay(system, &case) {
                    Ok(statistics) => (statistics, None),
                    Err(failure) => (
                        failure.statistics.clone(),
                        Some(shrink(system, failure, self.shrink_tries)),
                    ),
                };
                let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
                report.statistics.add(&statistics);
                report.failures.extend(failure.map(|failure| *failure));
                if report.statistics.states >= self.states
                    || report.failures.len() >= self.failures_max
                {
                    stop.store(true, Ordering::Relaxed);
                }
                progress(Progress {
                    runs: report.statistics.runs,
                    states: report.statistics.states,
                    failures: report.failures.len(),
                });
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.jobs {
                scope.spawn(worker);
            }
        });
        report.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
