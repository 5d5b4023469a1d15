//! The harness can fail: the engine makes one mistake on purpose, and the harness finds it. The
//! table that this prints (`-- --nocapture`) is in docs/lab/faults.md.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use persimmon_crash::filesystem::{Filesystem, Mounted};
use persimmon_crash::harness::{Case, Failure, Plan, Refusal, Statistics, System, replay};
use persimmon_device::faults as of_device;
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
/// The first in which many copies are clones.
const FIRST_WITH_CLONES: u64 = 100_000_000;
/// The first with snapshots.
const FIRST_WITH_SNAPSHOTS: u64 = 200_000_000;
/// The first with writable snapshots.
const FIRST_WITH_WRITABLE: u64 = 5_000_000_000;
/// The first in which users are limited.
const FIRST_WITH_LIMITS: u64 = 6_000_000_000;
/// The first in which groups, projects and soft limits are, and what is open in snapshots.
const FIRST_WITH_OWNERS: u64 = 11_000_000_000;
/// The first in which quota is turned off and on, and whole trees get a project.
const FIRST_WITH_QUOTAS: u64 = 12_000_000_000;
/// The first with stripe sets.
const FIRST_WITH_STRIPES: u64 = 2_000_000_000;
/// The first in which near duplicates are packed.
const FIRST_WITH_DICTIONARIES: u64 = 3_000_000_000;
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

    fn roll_back(
        &self,
        device: &Arc<SimDevice>,
        to: &str,
        keep: Option<&str>,
        now: u64,
    ) -> Result<(), Refusal> {
        Filesystem.roll_back(device, to, keep, now)
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

/// The first seed that a mistake is looked for in.
fn first_seed(mistake: Fault) -> u64 {
    match mistake {
        Fault::OwnerNotCharged => FIRST_WITH_QUOTA,
        Fault::DuplicateNotLookedUp => FIRST_WITH_DEDUP,
        Fault::ReferenceNotAdded | Fault::ReferenceNotDropped => FIRST_WITH_CLONES,
        Fault::WhiteoutForgotten
        | Fault::HoleForgotten
        | Fault::OlderSettled
        | Fault::AbsorbedNotSettled
        | Fault::SnapshotWithoutStaged => FIRST_WITH_SNAPSHOTS,
        Fault::LimitIgnored | Fault::LimitTooLow => FIRST_WITH_LIMITS,
        Fault::GraceNotEnded | Fault::GraceKept | Fault::ProjectNotInherited => FIRST_WITH_OWNERS,
        Fault::CountNotAnew | Fault::CountedAhead => FIRST_WITH_QUOTAS,
        Fault::MadeNotSettled => FIRST_WITH_WRITABLE,
        Fault::DictionaryNotCounted => FIRST_WITH_DICTIONARIES,
        _ => FIRST_SEED,
    }
}

/// Runs of consecutive seeds until one fails. Tells what they came to in a line of a table, and whether one failed.
fn hunt<S: System>(
    system: &S,
    mistake: impl std::fmt::Debug,
    first: u64,
    plan: impl Fn(u64) -> Plan,
) -> bool {
    let mut tried = Statistics::default();
    for seed in first.. {
        let case = Case {
            plan: plan(seed),
            ops: Vec::new(),
        };
        match replay(system, &case) {
            Ok(statistics) => tried.add(&statistics),
            Err(failure) => {
                tried.add(&failure.statistics);
                let Failure { phase, .. } = *failure;
                println!("| {mistake:?} | {seed} | {} | {phase:?} |", tried.states);
                return true;
            }
        }
        if tried.states >= STATES_MAX {
            break;
        }
    }
    println!("| {mistake:?} | | {} | missed |", tried.states);
    false
}

#[test]
fn every_mistake_is_caught() {
    let next = AtomicUsize::new(0);
    let hunt_some = || {
        let mut missed = Vec::new();
        while let Some(mistake) = Fault::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
            let plan = |seed| plan(*mistake, seed);
            if !hunt(&Mistaken(*mistake), mistake, first_seed(*mistake), plan) {
                missed.push(*mistake);
            }
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

/// They are the whole process's. The other test has no stripe sets.
#[test]
fn every_mistake_of_stripe_sets_is_caught() {
    let missed = of_device::Fault::OF_STRIPES.into_iter().filter(|mistake| {
        of_device::make(Some(*mistake));
        !hunt(&Filesystem, mistake, FIRST_WITH_STRIPES, Plan::new)
    });
    let missed: Vec<_> = missed.collect();
    of_device::make(None);
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
