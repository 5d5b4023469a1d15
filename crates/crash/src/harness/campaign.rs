//! Many runs on several threads.
//!
//! Results are put together in the order of the runs, whichever thread ends first: so a campaign
//! comes to the same with any number of threads, and one that was broken off goes on where the
//! last result was.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use persimmon_sync::host::Mutex;

use super::case::{Case, Failure};
use super::plan::Origin;
use super::run::replay;
use super::shrink::shrink;
use super::statistics::Statistics;
use super::system::System;
use crate::workload::Sequences;

/// Short sequences that a thread takes at once.
const BATCH: u64 = 32;

/// Every `step`th of the sequences from number `first` to before number `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The first.
    pub first: u64,
    /// Behind the last.
    pub end: u64,
    /// From one to the next; at least 1.
    pub step: u64,
}

impl Selection {
    /// How many these are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.end.saturating_sub(self.first).div_ceil(self.step)
    }
}

/// Short sequences, then random runs until enough crash states were tried.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// First seed of random runs and of sampled sequences.
    pub seed: u64,
    /// Crash states of random runs to try.
    pub states: u64,
    /// Enumerated sequences to run before.
    pub sequences: Vec<Selection>,
    /// Sampled sequences of three operations to run before.
    pub samples: u64,
    /// Threads.
    pub jobs: usize,
    /// Failures after which to stop.
    pub failures_max: usize,
    /// Runs spent on making each failure shorter.
    pub shrink_tries: usize,
}

/// What came of it, so far.
#[derive(Debug, Default)]
pub struct CampaignReport {
    /// Parts of the campaign that are over: where to go on.
    pub parts: u64,
    /// What was covered.
    pub statistics: Statistics,
    /// What went wrong, as short as could be made.
    pub failures: Vec<Failure>,
}

/// What came of a part.
#[derive(Default)]
struct Outcome {
    statistics: Statistics,
    failures: Vec<Failure>,
}

/// Puts results in order.
struct Gathered<P> {
    report: CampaignReport,
    /// Parts that are over before others that come earlier.
    early: BTreeMap<u64, Outcome>,
    progress: P,
}

impl Campaign {
    /// A campaign of so many crash states on one thread that stops at the first failure.
    #[must_use]
    pub fn new(seed: u64, states: u64) -> Campaign {
        Campaign {
            seed,
            states,
            sequences: Vec::new(),
            samples: 0,
            jobs: 1,
            failures_max: 1,
            shrink_tries: 100,
        }
    }

    /// How many short sequences it has.
    #[must_use]
    pub fn sequences_planned(&self) -> u64 {
        self.samples + self.sequences.iter().map(Selection::count).sum::<u64>()
    }

    /// Runs it. `progress` is called after each part, in order.
    pub fn run<S: System>(
        &self,
        system: &S,
        progress: impl FnMut(&CampaignReport) + Send,
    ) -> CampaignReport {
        self.go_on(system, CampaignReport::default(), progress)
    }

    /// Runs what is left of it after `report`.
    pub fn go_on<S: System>(
        &self,
        system: &S,
        report: CampaignReport,
        progress: impl FnMut(&CampaignReport) + Send,
    ) -> CampaignReport {
        let next = AtomicU64::new(report.parts);
        let stop = AtomicBool::new(self.is_over(&report));
        let sequences = Sequences::new();
        let gathered = Mutex::new(Gathered {
            report,
            early: BTreeMap::new(),
            progress,
        });
        let worker = || {
            while !stop.load(Ordering::Relaxed) {
                let part = next.fetch_add(1, Ordering::Relaxed);
                let outcome = self.run_part(system, &sequences, part);
                let mut gathered = gathered.lock();
                gathered.early.insert(part, outcome);
                if self.gather(&mut gathered) {
                    stop.store(true, Ordering::Relaxed);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.jobs {
                scope.spawn(worker);
            }
        });
        gathered.into_inner().report
    }

    /// Adds what is next in order; true when the campaign is over.
    fn gather(&self, gathered: &mut Gathered<impl FnMut(&CampaignReport)>) -> bool {
        let report = &mut gathered.report;
        while !self.is_over(report)
            && let Some(outcome) = gathered.early.remove(&report.parts)
        {
            report.parts += 1;
            report.statistics.add(&outcome.statistics);
            report.failures.extend(outcome.failures);
            (gathered.progress)(report);
        }
        self.is_over(report)
    }

    fn is_over(&self, report: &CampaignReport) -> bool {
        let statistics = &report.statistics;
        report.failures.len() >= self.failures_max
            || (report.parts >= self.batches()
                && statistics.states - statistics.sequence_states >= self.states)
    }

    /// Parts of short sequences; those after are random runs.
    fn batches(&self) -> u64 {
        let selected = self.sequences.iter().map(|s| s.count().div_ceil(BATCH));
        selected.sum::<u64>() + self.samples.div_ceil(BATCH)
    }

    fn run_part<S: System>(&self, system: &S, sequences: &Sequences, part: u64) -> Outcome {
        let mut outcome = Outcome::default();
        for origin in self.origins(part) {
            let Some(case) = Case::new(origin, sequences) else {
                continue;
            };
            match replay(system, &case) {
                Ok(statistics) => outcome.statistics.add(&statistics),
                Err(failure) => {
                    outcome.statistics.add(&failure.statistics);
                    let failure = shrink(system, failure, self.shrink_tries);
                    outcome.failures.push(*failure);
                }
            }
        }
        outcome
    }

    /// What a part runs.
    fn origins(&self, part: u64) -> Vec<Origin> {
        let mut left = part;
        for selection in &self.sequences {
            let batches = selection.count().div_ceil(BATCH);
            if left < batches {
                let batch = left * BATCH..(left + 1) * BATCH;
                let numbers = batch.map(|at| selection.first + at * selection.step);
                return numbers
                    .filter(|number| *number < selection.end)
                    .map(Origin::Sequence)
                    .collect();
            }
            left -= batches;
        }
        let batches = self.samples.div_ceil(BATCH);
        if left < batches {
            let batch = left * BATCH..((left + 1) * BATCH).min(self.samples);
            return batch.map(|at| Origin::Sample(self.seed + at)).collect();
        }
        vec![Origin::Seed(self.seed + left - batches)]
    }
}
