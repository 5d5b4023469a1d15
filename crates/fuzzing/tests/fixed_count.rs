//! Every target, a fixed number of times.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure ends the test")]

use persimmon_fuzzing::{by_name, runner};
use rustix::process::{Resource, Rlimit, setrlimit};

/// What all targets at once may map, bytes: a hostile length is not allocated.
const MEMORY_MAX: u64 = 4 << 30;

fn run(name: &str) {
    let limit = Rlimit {
        current: Some(MEMORY_MAX),
        maximum: Some(MEMORY_MAX),
    };
    setrlimit(Resource::As, limit).unwrap();
    let target = by_name(name).unwrap();
    let failures = runner::run(target, runner::SEED, 0..target.runs, 1);
    if let Some(failure) = failures.first() {
        panic!(
            "run {} failed; to repeat it: cargo run -p persimmon-fuzzing --example fuzz -- \
             {name} --run {}",
            failure.run, failure.run
        );
    }
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { run(stringify!($name)); })*

        #[test]
        fn none_is_left_out() {
            let here = [$(stringify!($name)),*];
            let all: Vec<&str> = persimmon_fuzzing::TARGETS.iter().map(|t| t.name).collect();
            assert_eq!(here.as_slice(), all);
        }
    };
}

targets!(
    zone_header,
    log_block,
    footer,
    table,
    summary,
    value,
    record,
    page,
    tree,
    container,
    journal,
    volume,
    stream,
    mirrored,
    with_parity,
);
