//! Small measurements of each load: they end, and what is reported adds up.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use std::time::Duration;

use persimmon_lab::measure::{Look, Pace, Plan, Report, run};
use persimmon_sim::Timing;

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

/// Half of the file's blocks are never written again, so the fill counts them, and the trace begins anew when it ends.
#[test]
fn a_recorded_trace_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.log");
    let mut log = "fio version 2 iolog\n/a add\n/a open\n".to_owned();
    for n in 0..500u64 {
        log += &format!("/a write {} 16384\n", (n * 7919) % 500 * 16384);
        if n % 10 == 0 {
            log += "/a sync\n/a trim 0 8192\n";
        }
    }
    std::fs::write(&path, log).unwrap();
    let load = format!("replay:{}", path.display());
    let report = measured(&plan(&load));
    assert_eq!(report.load, load);
    assert!((report.fill - 0.5).abs() < 0.03, "{}", report.fill);

    let small = Plan {
        zones: 32,
        fill: 0.3,
        ..plan(&load)
    };
    let refused = run(&small, &mut |_| {}).unwrap_err().to_string();
    assert!(refused.contains("it takes 62 zones"), "{refused}");
    measured(&Plan { zones: 62, ..small });
}

/// Looks begin with the overwriting and end with the run; what they counted is what is reported.
#[test]
fn the_course_of_a_run_leads_to_its_report() {
    let report = measured(&plan("uniform"));
    let course = &report.course;
    let bytes = |look: &Look| look.statistics.user_bytes;
    assert!(course.looks.is_sorted_by_key(bytes));
    // More would see nothing new: 36 MiB are written, and staging holds one.
    assert!(course.looks.len() >= 30, "{}", course.looks.len());
    let end = course.looks.last().unwrap();
    assert_eq!(bytes(end) - course.measured_from_bytes, report.user_bytes);
    let before = course
        .looks
        .partition_point(|look| bytes(look) < course.measured_from_bytes);
    let measured = end.statistics.since(&course.looks[before].statistics);
    let found = measured.write_amplification();
    let error = found / report.write_amplification - 1.0;
    assert!(error.abs() < 0.05, "{found} {}", report.write_amplification);
    assert_eq!((course.zones.len(), course.resets.len()), (96, 96));
    assert!(course.reads.is_empty());
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
        threads: true,
    };
    let report = measured(&Plan {
        pace: Some(pace),
        ..plan("uniform")
    });
    let (reads, syncs) = (report.reads.unwrap(), report.syncs.unwrap());
    assert_eq!((reads.count, syncs.count), (400, 400));
    let syncs_curve = &report.course.syncs;
    assert_eq!(
        syncs_curve.last().map(|p| (p.share, p.micros)),
        Some((1.0, syncs.longest))
    );
    assert!(report.course.timed && !report.course.looks.is_empty());
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
