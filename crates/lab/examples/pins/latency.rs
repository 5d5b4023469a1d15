//! How long reads and fsyncs of four clients take in virtual time while the volume is overwritten and cleaned. One thread plays the
//! clients and what goes on beside them: the same is measured each time.

use std::time::Duration;

use persimmon_engine::Options;
use persimmon_lab::measure::{MeasureError, Pace, Plan, run};
use persimmon_sim::Timing;

use crate::point::{Point, Run};

pub fn runs() -> Vec<Run> {
    vec![
        latency("even-80", Timing::default(), 0.80),
        latency("zn540-80", Timing::zn540(), 0.80),
    ]
}

fn latency(name: &'static str, timing: Timing, fill: f64) -> Run {
    Run::new(name, 30, move |seed| {
        let defaults = Plan::default();
        let report = run(
            &Plan {
                zones: 400,
                fill,
                warm_up_volumes: 2.0,
                seed,
                options: Options {
                    dirty_pages_max: 1024,
                    journal_bytes_max: 4 << 20,
                    ..defaults.options
                },
                pace: Some(Pace {
                    timing,
                    clients: 4,
                    think: Duration::from_micros(200),
                    rounds: 50_000,
                    threads: false,
                }),
                ..defaults
            },
            &mut |_| {},
        )?;
        let missing = || MeasureError::Plan("no latencies were measured".into());
        let reads = report.reads.ok_or_else(missing)?;
        let syncs = report.syncs.ok_or_else(missing)?;
        let point = |what: &str, micros| Point::cost(&format!("{what}.{name}"), "us", micros);
        Ok(vec![
            point("read-p99.9", reads.p99_9),
            point("fsync-p50", syncs.p50),
            point("fsync-p99.9", syncs.p99_9),
        ])
    })
}
