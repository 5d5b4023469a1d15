//! The outcome of runs as a page: nothing but this file is needed to read it, no script and no network.

use persimmon_fuse::size::show_bytes;
use persimmon_lab::measure::{Percentiles, Report};

use super::{course, latencies, zones};
use crate::plot::{Axis, Chart, Markup};

const STYLE: &str = include_str!("page.css");
/// Colours for runs and for kinds of bytes.
const COLOURS: usize = 7;
/// Plots that take all of the width, and those that share it with one or two others.
pub const WIDE: u32 = 1080;
pub const HALF: u32 = 528;
pub const THIRD: u32 = 340;

/// A kind of bytes sent to the drive, per byte that users flushed.
pub struct Kind {
    pub name: &'static str,
    pub of_report: fn(&Report) -> f64,
    pub bytes: fn(&persimmon::internal::engine::Statistics) -> u64,
}

/// In the order in which they are stacked.
pub const KINDS: [Kind; COLOURS] = [
    Kind {
        name: "user data",
        of_report: |r| r.written.data,
        bytes: |s| s.data_bytes,
    },
    Kind {
        name: "cleaned data",
        of_report: |r| r.written.cleaned_data,
        bytes: |s| s.cleaned_data_bytes,
    },
    Kind {
        name: "metadata pages",
        of_report: |r| r.written.metadata,
        bytes: |s| s.metadata_bytes,
    },
    Kind {
        name: "cleaned pages",
        of_report: |r| r.written.cleaned_metadata,
        bytes: |s| s.cleaned_metadata_bytes,
    },
    Kind {
        name: "summaries",
        of_report: |r| r.written.summaries,
        bytes: |s| s.summary_bytes,
    },
    Kind {
        name: "journal",
        of_report: |r| r.written.journal,
        bytes: |s| s.journal_bytes,
    },
    Kind {
        name: "checkpoints",
        of_report: |r| r.written.checkpoints,
        bytes: |s| s.checkpoint_bytes,
    },
];

/// A run, and what it is called.
pub struct Run<'a> {
    pub name: String,
    pub report: &'a Report,
}

/// The page of some runs, made by `command`.
pub fn page(reports: &[Report], command: &str) -> String {
    let runs: Vec<Run<'_>> = reports
        .iter()
        .map(|report| Run {
            name: format!("{}, {:.0} % full", report.load, report.fill * 100.0),
            report,
        })
        .collect();
    let mut page = Markup::default();
    page.element("html", &[("lang", &"en")], |html| {
        html.element("head", &[], |head| {
            head.empty("meta", &[("charset", &"utf-8")]);
            let width = "width=device-width, initial-scale=1";
            head.empty("meta", &[("name", &"viewport"), ("content", &width)]);
            let schemes = "light dark";
            head.empty("meta", &[("name", &"color-scheme"), ("content", &schemes)]);
            head.words("title", &[], &format!("Persimmon: {}", names(&runs)));
            head.words("style", &[], STYLE);
        });
        html.element("body", &[], |body| {
            body.element("main", &[], |main| content(main, &runs, command));
        });
    });
    format!("<!DOCTYPE html>\n{}\n", page.into_string())
}

fn names(runs: &[Run<'_>]) -> String {
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    names.join("; ")
}

fn content(main: &mut Markup, runs: &[Run<'_>], command: &str) {
    main.words("h1", &[], "Loads on a simulated zoned drive");
    if let Some(Run { report, .. }) = runs.first() {
        let zone_bytes = u64::from(report.zone_blocks) * 4096;
        let about = format!(
            "Persimmon on {} zones of {} ({} in all). Full means live data over the capacity of zones that \
             hold data or are free. Write amplification counts everything sent to the drive over the \
             bytes that users flushed.",
            report.zones,
            show_bytes(zone_bytes),
            show_bytes(u64::from(report.zones) * zone_bytes),
        );
        main.words("p", &[("class", &"about")], &about);
    }
    figures_table(main, runs);
    course::write_amplification(main, runs);
    kinds(main, runs);
    latencies::section(main, runs);
    zones::wear(main, runs);
    for (number, run) in runs.iter().enumerate() {
        main.element("h2", &[], |heading| {
            if runs.len() > 1 {
                swatch(heading, &area_class(number));
            }
            heading.text(&run.name);
        });
        main.element("div", &[("class", &"pair")], |pair| {
            course::kinds(pair, run);
            course::free_zones(pair, run);
            course::cleaning(pair, run);
            zones::valid_shares(pair, run);
        });
        zones::map(main, run);
    }
    main.element("footer", &[], |footer| {
        footer.text("Made by ");
        footer.words("code", &[], command);
        let version = env!("CARGO_PKG_VERSION");
        footer.text(&format!(", version {version}."));
    });
}

/// A plot with its heading, what it shows, and its legend.
pub fn figure(
    into: &mut Markup,
    heading: &str,
    about: &str,
    legend: &[(String, String)],
    svg: &Markup,
) {
    into.element("figure", &[], |figure| {
        figure.element("figcaption", &[], |caption| {
            caption.words("h3", &[], heading);
            if !about.is_empty() {
                caption.words("p", &[], about);
            }
            if !legend.is_empty() {
                caption.element("ul", &[("class", &"legend")], |list| {
                    for (class, words) in legend {
                        list.element("li", &[], |item| {
                            swatch(item, class);
                            item.text(words);
                        });
                    }
                });
            }
        });
        figure.add(svg);
    });
}

fn swatch(into: &mut Markup, class: &str) {
    let view = [
        ("class", &"swatch" as &dyn std::fmt::Display),
        ("viewBox", &"0 0 12 12"),
    ];
    into.element("svg", &view, |svg| {
        let (from, to, round) = (1, 10, 2);
        let class = format!("bar {class}");
        svg.empty(
            "rect",
            &[
                ("class", &class),
                ("x", &from),
                ("y", &from),
                ("width", &to),
                ("height", &to),
                ("rx", &round),
            ],
        );
    });
}

/// One entry for each run, where there are several.
pub fn runs_legend(runs: &[Run<'_>]) -> Vec<(String, String)> {
    if runs.len() < 2 {
        return Vec::new();
    }
    let entry = |(n, run): (usize, &Run<'_>)| (area_class(n), run.name.clone());
    runs.iter().enumerate().map(entry).collect()
}

/// How lines of a run look. Where there are more runs than colours, they are dotted.
pub fn line_class(run: usize) -> String {
    format!("s{}{}", run % COLOURS, again(run))
}

/// How areas of a run look: likewise pale.
pub fn area_class(run: usize) -> String {
    format!("f{}{}", run % COLOURS, again(run))
}

fn again(run: usize) -> &'static str {
    match run / COLOURS % 2 {
        0 => "",
        _ => " again",
    }
}

/// The kinds of bytes and their colours.
pub fn kinds_legend() -> Vec<(String, String)> {
    let entry = |(n, kind): (usize, &Kind)| (format!("f{n}"), kind.name.to_owned());
    KINDS.iter().enumerate().map(entry).collect()
}

/// A table: the first row is its heading, the first column names the rows.
pub fn table(into: &mut Markup, rows: &[Vec<String>]) {
    into.element("div", &[("class", &"wide")], |around| {
        around.element("table", &[], |table| {
            for (number, row) in rows.iter().enumerate() {
                table.element("tr", &[], |line| {
                    for (column, cell) in row.iter().enumerate() {
                        let name = if number == 0 || column == 0 {
                            "th"
                        } else {
                            "td"
                        };
                        line.words(name, &[], cell);
                    }
                });
            }
        });
    });
}

fn figures_table(main: &mut Markup, runs: &[Run<'_>]) {
    let mut rows = vec![
        [
            "run",
            "written by users",
            "write amplification",
            "placement alone",
            "victims ahead / on demand",
            "live in a victim",
            "waited",
            "resets of a zone",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for run in runs {
        let report = run.report;
        let victims = report.cleaning_background + report.cleaning_foreground;
        let room = victims * u64::from(report.zone_blocks);
        let live = report.blocks_moved as f64 / room.max(1) as f64;
        let bound = report.uniform_bound.map_or("-".to_owned(), |bound| {
            let over = (report.write_amplification / bound - 1.0) * 100.0;
            format!("{bound:.3} ({over:+.1} %)")
        });
        rows.push(vec![
            run.name.clone(),
            show_bytes(report.user_bytes),
            format!("{:.3}", report.write_amplification),
            bound,
            format!(
                "{} / {}",
                report.cleaning_background, report.cleaning_foreground
            ),
            format!("{:.1} %", live * 100.0),
            report.stalls.to_string(),
            format!(
                "{} to {}, {:.1} ± {:.1}",
                report.resets.least,
                report.resets.most,
                report.resets.mean,
                report.resets.deviation
            ),
        ]);
    }
    table(main, &rows);
}

/// Bytes sent by kind, a bar a run, and the figures.
fn kinds(main: &mut Markup, runs: &[Run<'_>]) {
    let most = runs.iter().map(|run| run.report.write_amplification);
    let most = most.fold(1.0, f64::max);
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    let x = Axis::linear(
        "bytes sent to the drive per byte that users flushed",
        0.0,
        most,
        8,
    );
    let height = 90 + 40 * runs.len() as u32;
    let mut chart = Chart::new(x, Axis::rows(&names), WIDE, height);
    for (number, run) in runs.iter().enumerate() {
        let row = (runs.len() - number - 1) as f64;
        let mut sum = 0.0;
        for (colour, kind) in KINDS.iter().enumerate() {
            let share = (kind.of_report)(run.report);
            let title = format!("{}: {}: {share:.4}", run.name, kind.name);
            let across = (sum, sum + share);
            chart.bar(
                across,
                (row + 0.18, row + 0.82),
                &format!("f{colour}"),
                &title,
            );
            sum += share;
        }
        if let Some(bound) = run.report.uniform_bound {
            chart.line(&[(bound, row + 0.05), (bound, row + 0.95)], "dashed ink");
        }
    }
    let mut about = "All that was sent while it was measured.".to_owned();
    if runs.iter().any(|run| run.report.uniform_bound.is_some()) {
        about += " Dashed: what placement alone would cost with uniform overwriting at this fill.";
    }
    let svg = chart.into_svg("Bytes by kind");
    figure(main, "Bytes by kind", &about, &kinds_legend(), &svg);
    let mut rows = vec![vec!["per byte that users flushed".to_owned()]];
    if let Some(heading) = rows.first_mut() {
        heading.extend(KINDS.iter().map(|kind| kind.name.to_owned()));
    }
    rows.extend(runs.iter().map(|run| {
        let mut row = vec![run.name.clone()];
        row.extend(
            KINDS
                .iter()
                .map(|kind| format!("{:.4}", (kind.of_report)(run.report))),
        );
        row
    }));
    table(main, &rows);
}

/// Latencies in words.
pub fn percentiles(percentiles: &Percentiles) -> Vec<String> {
    let p = percentiles;
    let figures = [p.p50, p.p99, p.p99_9, p.longest].map(|micros| format!("{micros:.0}"));
    let mut row = vec![p.count.to_string()];
    row.extend(figures);
    row
}
