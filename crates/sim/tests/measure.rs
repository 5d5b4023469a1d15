//! Small measurements of each load: they end, and what is reported adds up.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use std::time::Duration;

use persimmon_sim::Timing;
use persimmon_sim::measure::{Pace, Plan, Report, run};

fn plan(load: &str) -> Plan {
    Plan {
        load: load.parse().unwrap(),
        zones: 96,
        zone_blocks: 128,
        fill: 0.5,
        warm_up_volumes: 1.0,
        volumes: 0.5,
        ..Plan::default()
    }
}

fn measured(plan: &Plan) -> Report {
    let mut told = 0.0;
    let report = run(plan, &mut |share| {
        assert!((0.0..=1.0).contains(&share) && share >= told);
        told = share;
    })
    .unwrap();
    let written = &report.written;
    let sum = written.data
        + written.cleaned_data
        + written.summaries
        + written.metadata
        + written.cleaned_metadata
        + written.journal
        + written.checkpoints;
    assert!((sum - report.write_amplification).abs() < 1e-9);
    assert!(report.write_amplification > 1.0);
    assert!(report.user_bytes > 0);
    report
}

#[test]
fn overwriting_reaches_the_fill_that_was_asked_for() {
    for load in ["uniform", "zipf", "hotcold"] {
        let report = measured(&plan(load));
        assert!((report.fill - 0.5).abs() < 0.03, "{load}: {}", report.fill);
        assert_eq!(report.uniform_bound.is_some(), load == "uniform");
    }
}

#[test]
fn files_come_and_go() {
    for load in ["churn", "compaction"] {
        let report = measured(&Plan {
            zones: 256,
            ..plan(load)
        });
        assert!((report.fill - 0.5).abs() < 0.1, "{load}: {}", report.fill);
    }
}

/// Data that dies together lies together where its users tell how long it will live: zones become
/// empty by themselves, and what is written beside it are summaries and metadata.
#[test]
fn hints_for_two_lifetimes_spare_the_moving() {
    let report = |load: &str| {
        let defaults = Plan::default();
        measured(&Plan {
            zones: 400,
            zone_blocks: 512,
            fill: 0.8,
            warm_up_volumes: 1.0,
            volumes: 1.0,
            // The drive is a fifth of the usual one, and so are the bounds.
            options: persimmon_engine::Options {
                dirty_pages_max: 512,
                journal_bytes_max: 4 << 20,
                ..defaults.options
            },
            ..plan(load)
        })
    };
    let hinted = report("compaction").write_amplification;
    assert!(hinted <= 1.05, "{hinted}");
    let unhinted = report("compaction:unhinted").write_amplification;
    assert!(unhinted > 1.5, "{unhinted}");
}

#[test]
fn the_same_plan_gives_the_same_figures() {
    let figures = || {
        let report = measured(&plan("zipf"));
        (report.write_amplification, report.blocks_moved)
    };
    assert_eq!(figures(), figures());
}

#[test]
fn latencies_are_in_virtual_time() {
    let pace = Pace {
        timing: Timing::default(),
        clients: 2,
        think: Duration::from_micros(100),
        rounds: 200,
    };
    let report = measured(&Plan {
        pace: Some(pace),
        ..plan("uniform")
    });
    let (reads, syncs) = (report.reads.unwrap(), report.syncs.unwrap());
    assert_eq!((reads.count, syncs.count), (400, 400));
    // One block: 10 us and 0.9 us for each KiB.
    assert!((13.0..100.0).contains(&reads.p50), "{reads:?}");
    assert!(syncs.p50 <= syncs.p99 && syncs.p99 <= syncs.p99_9 && syncs.p99_9 <= syncs.longest);
}

#[test]
fn a_fill_that_cannot_be_is_refused() {
    for fill in [0.0, 0.999, f64::NAN] {
        let plan = Plan {
            fill,
            ..plan("uniform")
        };
        assert!(run(&plan, &mut |_| {}).is_err());
    }
}
