//! The harness can fail: the engine makes one mistake on purpose, and the harness finds it. The
//! table that this prints (`-- --nocapture`) is in docs/lab/faults.md.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use persimmon_crash::filesystem::{Filesystem, Mounted};
use persimmon_crash::harness::{Case, Failure, Plan, Statistics, System, replay};
use persimmon_engine::faults::{self, Fault};
use persimmon_sim::{FaultTarget, SimDevice};

/// Crash states within which each mistake must be found.
const STATES_MAX: u64 = 100_000;
/// The first whose plan has all there is.
const FIRST_SEED: u64 = 5_000;
/// The first whose volume has quota.
const FIRST_WITH_QUOTA: u64 = 300_000_000;
/// The first whose volume deduplicates what is written.
const FIRST_WITH_DEDUP: u64 = 1_000_000_001;
const THREADS: usize = 2;

/// Persimmon with one mistake in it.
struct Mistaken(Fault);

impl System for Mistaken {
    type Subject = Mounted;

    fn format(&self, device: &Arc<SimDevice>, copies: u32) -> Result<(), String> {
        faults::make(Some(self.0));
        Filesystem.format(device, copies)
    }

    fn mount(&self, device: &Arc<SimDevice>) -> Result<Mounted, String> {
        Filesystem.mount(device)
    }

    fn check(&self, device: &Arc<SimDevice>) -> Result<(), String> {
        Filesystem.check(device)
    }
}

/// A mistake about failing writes needs a device on which some fail.
fn plan(mistake: Fault, seed: u64) -> Plan {
    let mut plan = Plan::new(seed);
    if mistake == Fault::FailedDataAcknowledged {
        let failure =
            |i: u64| persimmon_sim::Fault::once(FaultTarget::Write).after(seed % 100 + 40 * i);
        plan.faults = (0..6).map(failure).collect();
    }
    plan
}

/// Runs of consecutive seeds until one fails, and the states tried.
fn hunt(mistake: Fault) -> (Option<Box<Failure>>, u64) {
    let mut tried = Statistics::default();
    let first = match mistake {
        Fault::OwnerNotCharged => FIRST_WITH_QUOTA,
        Fault::DuplicateNotLookedUp => FIRST_WITH_DEDUP,
        _ => FIRST_SEED,
    };
    for seed in first.. {
        let case = Case {
            plan: plan(mistake, seed),
            ops: Vec::new(),
        };
        match replay(&Mistaken(mistake), &case) {
            Ok(statistics) => tried.add(&statistics),
            Err(failure) => {
                tried.add(&failure.statistics);
                return (Some(failure), tried.states);
            }
        }
        if tried.states >= STATES_MAX {
            break;
        }
    }
    (None, tried.states)
}

#[test]
fn every_mistake_is_caught() {
    let next = AtomicUsize::new(0);
    let hunt_some = || {
        let mut missed = Vec::new();
        while let Some(mistake) = Fault::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (caught, states) = hunt(*mistake);
            let Some(failure) = caught else {
                println!("| {mistake:?} | | {states} | missed |");
                missed.push(*mistake);
                continue;
            };
            let (seed, phase) = (failure.case.plan.seed, failure.phase);
            println!("| {mistake:?} | {seed} | {states} | {phase:?} |");
        }
        missed
    };
    let missed: Vec<Fault> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(hunt_some)).collect();
        let missed = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_default());
        missed.flatten().collect()
    });
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
