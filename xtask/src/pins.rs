//! `cargo xtask pins`: measured points of the engine's behaviour, compared with those that are committed.

use std::fmt;
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::shell;

/// What is committed.
const FILE: &str = "xtask/pins.tsv";
const HEADER: &str = "# Measured points of the engine's behaviour. `cargo xtask pins` compares, `cargo xtask pins --bless` writes this file.\n\
                      # name\tunit\tbetter\tvalue\n";
/// What a value may be worse by, and what it must be better by to be told, in percent of the pinned one.
const TOLERANCE: f64 = 2.0;

/// What to measure, and what to do with it.
#[derive(Args)]
pub struct Options {
    /// Runs to carry out, as `crates/lab/examples/pins` names them; everything if nothing is named
    runs: Vec<String>,
    /// Write what was measured to xtask/pins.tsv
    #[arg(long)]
    bless: bool,
    /// Runs at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Of the loads: with another one points show how much they depend on chance
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Tell how long each run took
    #[arg(long)]
    times: bool,
}

/// Measures and compares; true when nothing is worse than it was.
pub fn run(options: &Options) -> Result<bool> {
    if options.bless {
        ensure!(
            options.runs.is_empty() && options.seed == 1,
            "--bless takes all runs, with the seed there is"
        );
    }
    let (jobs, seed) = (options.jobs.to_string(), options.seed.to_string());
    let mut words = vec!["cargo", "run", "--quiet", "--release"];
    words.extend(["--package", "persimmon-lab", "--example", "pins", "--"]);
    words.extend(["--jobs", &jobs, "--seed", &seed]);
    words.extend(options.times.then_some("--times"));
    words.extend(options.runs.iter().map(String::as_str));
    let measured = parse(&shell::output(&words)?)?;
    ensure!(!measured.is_empty(), "nothing was measured");
    let pinned = match fs::read_to_string(FILE) {
        Ok(text) => parse(&text).with_context(|| format!("reading {FILE}"))?,
        Err(_) if options.bless => Vec::new(),
        Err(error) => bail!("reading {FILE}: {error}"),
    };
    let rows = compare(&pinned, measured, options.runs.is_empty());
    print(&rows);
    if options.bless {
        let measured = rows.iter().filter_map(|row| row.measured.as_ref());
        let lines: String = measured.map(|point| format!("{point}\n")).collect();
        fs::write(FILE, format!("{HEADER}{lines}")).with_context(|| format!("writing {FILE}"))?;
        println!("written to {FILE}");
        return Ok(true);
    }
    Ok(rows.iter().all(|row| !row.verdict.fails()))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Better {
    Lower,
    Higher,
}

#[derive(Clone, Debug, PartialEq)]
struct Point {
    name: String,
    unit: String,
    better: Better,
    value: f64,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let better = match self.better {
            Better::Lower => "lower",
            Better::Higher => "higher",
        };
        let Point {
            name, unit, value, ..
        } = self;
        write!(f, "{name}\t{unit}\t{better}\t{value:.4}")
    }
}

/// Points, one a line; what begins with `#` is a comment.
fn parse(text: &str) -> Result<Vec<Point>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(parse_line).collect()
}

fn parse_line(line: &str) -> Result<Point> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [name, unit, better, value] = fields.as_slice() else {
        bail!("not a point: {line:?}");
    };
    let value: f64 = value.parse().with_context(|| format!("in {line:?}"))?;
    ensure!(value.is_finite(), "not a value: {line:?}");
    Ok(Point {
        name: (*name).to_owned(),
        unit: (*unit).to_owned(),
        better: match *better {
            "lower" => Better::Lower,
            "higher" => Better::Higher,
            _ => bail!("neither lower nor higher is better: {line:?}"),
        },
        value,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    Better,
    Worse,
    /// It is measured, and not in the file.
    New,
    /// It is in the file, and no longer measured.
    Gone,
}

impl Verdict {
    fn fails(self) -> bool {
        matches!(self, Verdict::Worse | Verdict::New | Verdict::Gone)
    }

    fn word(self) -> &'static str {
        match self {
            Verdict::Same => "",
            Verdict::Better => "better",
            Verdict::Worse => "WORSE",
            Verdict::New => "NOT PINNED",
            Verdict::Gone => "NOT MEASURED",
        }
    }
}

struct Row {
    pinned: Option<Point>,
    measured: Option<Point>,
    verdict: Verdict,
}

/// What was measured, in its order, beside what is pinned. `whole`: what was not measured is missed.
fn compare(pinned: &[Point], measured: Vec<Point>, whole: bool) -> Vec<Row> {
    let gone = pinned.iter().filter(|point| {
        let is_measured = measured.iter().any(|other| other.name == point.name);
        whole && !is_measured
    });
    let gone: Vec<Row> = gone
        .map(|point| Row {
            pinned: Some(point.clone()),
            measured: None,
            verdict: Verdict::Gone,
        })
        .collect();
    let rows = measured.into_iter().map(|point| {
        let pinned = pinned.iter().find(|pinned| pinned.name == point.name);
        Row {
            verdict: pinned.map_or(Verdict::New, |pinned| judge(pinned, &point)),
            pinned: pinned.cloned(),
            measured: Some(point),
        }
    });
    rows.chain(gone).collect()
}

fn judge(pinned: &Point, measured: &Point) -> Verdict {
    let rise = measured.value - pinned.value;
    let worse_by = match measured.better {
        Better::Lower => rise,
        Better::Higher => -rise,
    };
    // Of nothing any share is nothing: what was never is worse as soon as it is.
    let allowed = pinned.value.abs() * TOLERANCE / 100.0;
    match worse_by {
        by if by > allowed => Verdict::Worse,
        by if by < -allowed => Verdict::Better,
        _ => Verdict::Same,
    }
}

fn difference(pinned: f64, measured: f64) -> String {
    let rise = measured - pinned;
    if pinned == 0.0 {
        format!("{rise:+.0}")
    } else {
        format!("{:+.2} %", 100.0 * rise / pinned)
    }
}

fn print(rows: &[Row]) {
    println!(
        "{:<44} {:<20} {:>12} {:>12} {:>10}",
        "point", "unit", "pinned", "measured", "difference"
    );
    for row in rows {
        let Some(point) = row.measured.as_ref().or(row.pinned.as_ref()) else {
            continue;
        };
        let show =
            |point: &Option<Point>| point.as_ref().map_or("-".to_owned(), |p| number(p.value));
        let difference = match (&row.pinned, &row.measured) {
            (Some(pinned), Some(measured)) => difference(pinned.value, measured.value),
            _ => "-".to_owned(),
        };
        let line = format!(
            "{:<44} {:<20} {:>12} {:>12} {:>10} {}",
            point.name,
            point.unit,
            show(&row.pinned),
            show(&row.measured),
            difference,
            row.verdict.word()
        );
        println!("{}", line.trim_end());
    }
    let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    let failed = rows.iter().filter(|row| row.verdict.fails()).count();
    println!(
        "{} points, {} better, {} worse, {} failed; the tolerance is {TOLERANCE} %",
        rows.len(),
        count(Verdict::Better),
        count(Verdict::Worse),
        failed
    );
}

/// Without zeros behind it.
fn number(value: f64) -> String {
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(name: &str, better: Better, value: f64) -> Point {
        Point {
            name: name.to_owned(),
            unit: "KiB".to_owned(),
            better,
            value,
        }
    }

    #[test]
    fn points_come_back() {
        let points = [
            point("a", Better::Lower, 1.5),
            point("b", Better::Higher, 0.0),
        ];
        let text: String = points.iter().map(|point| format!("{point}\n")).collect();
        assert_eq!(
            parse(&format!("{HEADER}{text}")).ok().as_deref(),
            Some(&points[..])
        );
        for wrong in [
            "a\tKiB\tlower",
            "a\tKiB\tleft\t1",
            "a\tKiB\tlower\tx",
            "a\tKiB\tlower\tNaN",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn worse_is_up_or_down_by_more_than_the_tolerance() {
        for (better, pinned, measured, verdict) in [
            (Better::Lower, 100.0, 102.0, Verdict::Same),
            (Better::Lower, 100.0, 102.1, Verdict::Worse),
            (Better::Lower, 100.0, 97.9, Verdict::Better),
            (Better::Higher, 100.0, 98.0, Verdict::Same),
            (Better::Higher, 100.0, 97.9, Verdict::Worse),
            (Better::Higher, 100.0, 102.1, Verdict::Better),
            (Better::Lower, 0.0, 0.0, Verdict::Same),
            (Better::Lower, 0.0, 1.0, Verdict::Worse),
        ] {
            let found = judge(&point("a", better, pinned), &point("a", better, measured));
            assert_eq!(found, verdict, "{better:?} {pinned} {measured}");
        }
    }

    #[test]
    fn what_is_new_or_gone_fails_but_a_part_misses_nothing() {
        let pinned = [
            point("a", Better::Lower, 1.0),
            point("b", Better::Lower, 1.0),
        ];
        let measured = vec![
            point("c", Better::Lower, 1.0),
            point("a", Better::Lower, 1.0),
        ];
        let verdicts = |whole| -> Vec<Verdict> {
            let rows = compare(&pinned, measured.clone(), whole);
            rows.iter().map(|row| row.verdict).collect()
        };
        assert_eq!(verdicts(true), [Verdict::New, Verdict::Same, Verdict::Gone]);
        assert_eq!(verdicts(false), [Verdict::New, Verdict::Same]);
    }
}
