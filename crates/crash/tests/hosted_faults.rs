//! The harness of the library on its image can fail: host, image and engine make one mistake each on purpose, and it is
//! found. The table that this prints (`-- --nocapture`) is in docs/lab/faults.md.

use persimmon_crash::hosted::{Mistake, Plan, run_from};
use persimmon_device::faults as image;
use persimmon_engine::faults as engine;

/// Runs within which each mistake must be found. Threads are the host's, so the number differs from run to run.
const RUNS_MAX: u64 = 400;

/// Of the engine: those about the order of flushes, footers and resets, which depend on the device below.
const OF_ENGINE: [engine::Fault; 7] = [
    engine::Fault::AcknowledgedUnflushed,
    engine::Fault::ResetBeforeCheckpoint,
    engine::Fault::ResetBeforeZones,
    engine::Fault::FooterBeforePages,
    engine::Fault::FooterUnflushed,
    engine::Fault::FlushTakesMore,
    engine::Fault::FlushNotWaitedFor,
];

/// Runs until one fails; `make` makes the mistake, or none. False: none did.
fn hunt(what: &str, make: impl Fn(bool), plan: impl Fn(u64) -> Plan) -> bool {
    for seed in 0..RUNS_MAX {
        let result = run_from(&plan(seed), || make(true));
        make(false);
        if let Err(failure) = result {
            let why = failure.why.lines().next().unwrap_or_default();
            println!("| {what} | {} | {why} |", seed + 1);
            return true;
        }
    }
    println!("| {what} | {RUNS_MAX} | missed |");
    false
}

/// One test: the mistakes are the whole process's.
#[test]
fn every_mistake_is_caught() {
    let mut missed = Vec::new();
    for mistake in [Mistake::SyncLies, Mistake::SyncForgets] {
        let what = format!("host: {mistake:?}");
        if !hunt(&what, |_| (), |seed| Plan::new(seed).mistaken(mistake)) {
            missed.push(what);
        }
    }
    for mistake in image::Fault::OF_IMAGE {
        let what = format!("image: {mistake:?}");
        if !hunt(&what, |on| image::make(on.then_some(mistake)), Plan::new) {
            missed.push(what);
        }
    }
    for mistake in OF_ENGINE {
        let make = |on: bool| engine::make_everywhere(on.then_some(mistake));
        let what = format!("engine: {mistake:?}");
        let resets_early = matches!(
            mistake,
            engine::Fault::ResetBeforeCheckpoint | engine::Fault::ResetBeforeZones
        );
        let plan = |seed| match Plan::new(seed) {
            plan if resets_early => plan.churning(),
            plan => plan,
        };
        if !hunt(&what, make, plan) {
            missed.push(what);
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
