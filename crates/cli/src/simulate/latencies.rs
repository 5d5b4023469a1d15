//! Plots of how long operations took.

use persimmon_lab::measure::{Course, Percentile, Percentiles, Report};

use super::page::{Run, THIRD, area_class, figure, line_class, percentiles, runs_legend, table};
use crate::plot::{Axis, Chart, Markup};

const HEIGHT: u32 = 300;

struct Operation {
    name: &'static str,
    curve: fn(&Course) -> &[Percentile],
    figures: fn(&Report) -> Option<Percentiles>,
}

const OPERATIONS: [Operation; 3] = [
    Operation {
        name: "Reads",
        curve: |course| &course.reads,
        figures: |report| report.reads,
    },
    Operation {
        name: "Writes",
        curve: |course| &course.writes,
        figures: |report| report.writes,
    },
    Operation {
        name: "Syncs",
        curve: |course| &course.syncs,
        figures: |report| report.syncs,
    },
];

/// A power of ten of microseconds.
fn duration(micros: f64) -> String {
    match micros {
        m if m >= 1e6 => format!("{:.0} s", m / 1e6),
        m if m >= 1e3 => format!("{:.0} ms", m / 1e3),
        m if m >= 1.0 => format!("{m:.0} µs"),
        m => format!("{:.0} ns", m * 1e3),
    }
}

/// Distributions of latencies, where they were measured.
pub fn section(main: &mut Markup, runs: &[Run<'_>]) {
    let all = || {
        let of_run = |run| OPERATIONS.iter().flat_map(move |op| operation(run, op));
        runs.iter().flat_map(of_run)
    };
    let longest = all().map(|point| point.micros).fold(0.0, f64::max);
    if longest == 0.0 {
        return;
    }
    // A write that is only taken into memory takes no virtual time at all.
    let shortest = all()
        .map(|point| point.micros)
        .filter(|micros| *micros > 0.0)
        .fold(longest, f64::min);
    let counts = runs.iter().filter_map(|run| run.report.syncs);
    let count = counts.map(|p| p.count as usize).max().unwrap_or(0);
    main.words("h2", &[], "Latencies in virtual time");
    let about = "A write that is only taken into memory takes none. Tables tell microseconds.";
    main.words("p", &[("class", &"about")], about);
    main.element("div", &[("class", &"three")], |three| {
        for op in &OPERATIONS {
            let x = Axis::nines("share that took no longer", count);
            let y = Axis::powers("latency", shortest, longest, duration);
            let mut chart = Chart::new(x, y, THIRD, HEIGHT);
            for (number, run) in runs.iter().enumerate() {
                let curve = operation(run, op);
                let line: Vec<(f64, f64)> = curve.iter().map(|p| (p.share, p.micros)).collect();
                chart.line(&line, &line_class(number));
                for Percentile { share, micros } in curve {
                    let percent = share * 100.0;
                    let title = format!("{}: {percent:.3} % within {micros:.1} µs", run.name);
                    chart.dot(*share, *micros, &area_class(number), &title);
                }
            }
            let svg = chart.into_svg(op.name);
            figure(three, op.name, "", &runs_legend(runs), &svg);
        }
    });
    let heading = [
        "microseconds",
        "operations",
        "median",
        "p99",
        "p99.9",
        "longest",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for run in runs {
        for op in &OPERATIONS {
            if let Some(figures) = (op.figures)(run.report) {
                let mut row = vec![format!("{}: {}", run.name, op.name.to_lowercase())];
                row.extend(percentiles(&figures));
                rows.push(row);
            }
        }
    }
    table(main, &rows);
}

fn operation<'a>(run: &Run<'a>, op: &Operation) -> &'a [Percentile] {
    (op.curve)(&run.report.course)
}
