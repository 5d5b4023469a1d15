//! Plots of what went on from the beginning of a run to its end.

use persimmon::internal::engine::Statistics;
use persimmon_lab::measure::{Course, Look};

use super::page::{
    HALF, KINDS, Run, WIDE, area_class, figure, kinds_legend, line_class, runs_legend,
};
use crate::plot::{Axis, Chart, Markup};

/// Parts of a run whose bytes are told apart, at most.
const PARTS: u32 = 64;
const HEIGHT: u32 = 280;

/// How far a run was at a look: seconds, or volumes of live data written.
fn place(course: &Course, look: &Look) -> f64 {
    if course.timed {
        return look.time.as_secs_f64();
    }
    let first = course.looks.first();
    let first = first.map_or(0, |first| first.statistics.user_bytes);
    (look.statistics.user_bytes - first) as f64 / course.volume_bytes.max(1) as f64
}

fn end(course: &Course) -> f64 {
    course.looks.last().map_or(0.0, |look| place(course, look))
}

fn axis(timed: bool, end: f64) -> Axis {
    let title = if timed {
        "virtual time, seconds"
    } else {
        "written by users, volumes of live data"
    };
    Axis::course(title, 0.0, end, 8)
}

/// Where what is measured begins.
fn measured_from(course: &Course) -> f64 {
    let first = course.looks.first();
    let first = first.map_or(0, |first| first.statistics.user_bytes);
    if course.timed {
        0.0
    } else {
        course.measured_from_bytes.saturating_sub(first) as f64 / course.volume_bytes.max(1) as f64
    }
}

/// What a counter was at a place: between two looks in proportion.
fn count(course: &Course, at: f64, counter: impl Fn(&Statistics) -> u64) -> f64 {
    let looks = &course.looks;
    let after = looks.partition_point(|look| place(course, look) < at);
    let value = |n: usize| looks.get(n).map(|look| counter(&look.statistics) as f64);
    let (Some(low), Some(high)) = (value(after.saturating_sub(1)), value(after)) else {
        return value(looks.len().saturating_sub(1)).unwrap_or(0.0);
    };
    let places = [after.saturating_sub(1), after];
    let [from, to] = places.map(|n| looks.get(n).map_or(0.0, |look| place(course, look)));
    if to > from {
        low + (high - low) * (at - from) / (to - from)
    } else {
        high
    }
}

/// How many parts of a run are told apart: no more than were looked at.
fn part_count(course: &Course) -> u32 {
    let looked_at = course.looks.len().saturating_sub(1) as u32;
    looked_at.clamp(1, PARTS)
}

/// The borders of parts of equal length.
fn borders(course: &Course) -> Vec<(f64, f64)> {
    let (end, parts) = (end(course), part_count(course));
    let border = |n: u32| end * f64::from(n) / f64::from(parts);
    if end > 0.0 {
        (0..parts).map(|n| (border(n), border(n + 1))).collect()
    } else {
        Vec::new()
    }
}

/// In each part, a counter's growth for each byte that users flushed in it; its middle first.
fn rates(course: &Course, counter: impl Fn(&Statistics) -> u64) -> Vec<(f64, f64)> {
    let part = |(from, to): (f64, f64)| {
        let grown = count(course, to, &counter) - count(course, from, &counter);
        let users = |at| count(course, at, |s| s.user_bytes);
        let flushed = users(to) - users(from);
        (flushed >= 1.0).then(|| (f64::midpoint(from, to), grown / flushed))
    };
    borders(course).into_iter().filter_map(part).collect()
}

/// No higher than what is seen again and again: one part alone may be all of a checkpoint.
fn height(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let most = values.last().copied().unwrap_or(1.0);
    let usual = values.get(values.len() * 95 / 100).copied().unwrap_or(most);
    most.min(usual * 2.0).max(1.0)
}

/// Says what is higher than a plot.
fn peaks<'a>(rates: impl Iterator<Item = &'a (f64, f64)>, most: f64) -> String {
    let highest = rates.map(|(_, rate)| *rate).fold(0.0, f64::max);
    if highest > most * 1.1 {
        format!(" Cut off at the top: the highest is {highest:.1}.")
    } else {
        String::new()
    }
}

/// All runs in one plot.
pub fn write_amplification(main: &mut Markup, runs: &[Run<'_>]) {
    let courses = || runs.iter().map(|run| &run.report.course);
    let lines: Vec<Vec<(f64, f64)>> = courses()
        .map(|course| rates(course, Statistics::device_bytes))
        .collect();
    let most = height(lines.iter().flatten().map(|(_, rate)| *rate));
    let timed = courses().any(|course| course.timed);
    let x = axis(timed, courses().map(end).fold(0.0, f64::max));
    let y = Axis::linear("write amplification", 0.0, most, 5);
    let mut chart = Chart::new(x, y, WIDE, HEIGHT);
    let from = courses().map(measured_from).fold(0.0, f64::max);
    chart.shade(from, "warm-up");
    for (number, (run, line)) in runs.iter().zip(&lines).enumerate() {
        if let Some(bound) = run.report.uniform_bound {
            let words = format!("{}: placement alone: {bound:.3}", run.name);
            chart.level(bound, &line_class(number), &words);
        }
        chart.line(line, &line_class(number));
        for (x, rate) in line {
            let title = format!("{}: {rate:.3} at {x:.2}", run.name);
            chart.dot(*x, *rate, &area_class(number), &title);
        }
    }
    let most_parts = courses().map(part_count).max().unwrap_or(1);
    let mut about = format!("In each of {most_parts} parts of a run.");
    if runs.iter().any(|run| run.report.uniform_bound.is_some()) {
        about += " Dashed: what placement alone would cost with uniform overwriting at this fill.";
    }
    about += &peaks(lines.iter().flatten(), most);
    let heading = "Write amplification over time";
    let svg = chart.into_svg(heading);
    figure(main, heading, &about, &runs_legend(runs), &svg);
}

/// Kinds of bytes, one above the other.
pub fn kinds(into: &mut Markup, run: &Run<'_>) {
    let course = &run.report.course;
    let kinds: Vec<Vec<(f64, f64)>> = KINDS.iter().map(|kind| rates(course, kind.bytes)).collect();
    let total = rates(course, Statistics::device_bytes);
    let most = height(total.iter().map(|(_, rate)| *rate));
    let y = Axis::linear("bytes sent per byte flushed", 0.0, most, 5);
    let mut chart = Chart::new(axis(course.timed, end(course)), y, HALF, HEIGHT);
    let mut floor: Vec<f64> = vec![0.0; total.len()];
    for (colour, (kind, rates)) in KINDS.iter().zip(&kinds).enumerate() {
        let band: Vec<(f64, f64, f64)> = rates
            .iter()
            .zip(&mut floor)
            .map(|((x, rate), floor)| {
                let low = *floor;
                *floor += rate;
                (*x, low, *floor)
            })
            .collect();
        chart.area(&band, &format!("f{colour}"), kind.name);
    }
    chart.shade(measured_from(course), "warm-up");
    let heading = "Bytes by kind over time";
    let svg = chart.into_svg(heading);
    let about = "What was sent to the drive for each byte that users flushed.".to_owned();
    let about = about + &peaks(total.iter(), most);
    figure(into, heading, &about, &kinds_legend(), &svg);
}

/// Zones that are free, and those that the next checkpoint frees.
pub fn free_zones(into: &mut Markup, run: &Run<'_>) {
    let course = &run.report.course;
    let looks: Vec<(f64, f64, f64)> = course
        .looks
        .iter()
        .map(|look| (place(course, look), look.usage.free, look.usage.reclaimable))
        .collect();
    let most = looks
        .iter()
        .map(|(_, free, reclaimable)| free + reclaimable);
    let y = Axis::linear("zones", 0.0, most.fold(1.0, f64::max), 5);
    let mut chart = Chart::new(axis(course.timed, end(course)), y, HALF, HEIGHT);
    let free: Vec<(f64, f64, f64)> = looks.iter().map(|(x, free, _)| (*x, 0.0, *free)).collect();
    let reclaimable: Vec<(f64, f64, f64)> = looks
        .iter()
        .map(|(x, free, reclaimable)| (*x, *free, free + reclaimable))
        .collect();
    chart.area(&free, "f2", "free");
    chart.area(
        &reclaimable,
        "f1",
        "nothing live in them: freed by the next checkpoint",
    );
    for (x, free, reclaimable) in &looks {
        let title = format!("{free} free, {reclaimable} to be freed, at {x:.2}");
        chart.dot(*x, free + reclaimable, "f1", &title);
    }
    chart.shade(measured_from(course), "warm-up");
    let usage = &run.report.usage;
    let about = format!(
        "On average {:.1} free and {:.1} to be freed while it was measured.",
        usage.free, usage.reclaimable
    );
    let legend = [("f2", "free"), ("f1", "freed by the next checkpoint")];
    let legend = legend.map(|(class, words)| (class.to_owned(), words.to_owned()));
    let heading = "Free zones";
    let svg = chart.into_svg(heading);
    figure(into, heading, &about, &legend, &svg);
}

/// Victims, part by part.
pub fn cleaning(into: &mut Markup, run: &Run<'_>) {
    let course = &run.report.course;
    let grown = |(from, to): (f64, f64), counter: fn(&Statistics) -> u64| {
        count(course, to, counter) - count(course, from, counter)
    };
    let parts: Vec<((f64, f64), f64, f64)> = borders(course)
        .into_iter()
        .map(|part| {
            let ahead = grown(part, |s| s.cleaning_background);
            let demand = grown(part, |s| s.cleaning_foreground);
            (part, ahead, demand)
        })
        .collect();
    let most = parts.iter().map(|(_, ahead, demand)| ahead + demand);
    let y = Axis::linear("victims", 0.0, most.fold(1.0, f64::max), 5);
    let mut chart = Chart::new(axis(course.timed, end(course)), y, HALF, HEIGHT);
    for (part, ahead, demand) in &parts {
        let title = format!("{ahead:.1} ahead, {demand:.1} on demand");
        chart.bar(*part, (0.0, *ahead), "f0", &title);
        chart.bar(*part, (*ahead, ahead + demand), "f4", &title);
    }
    chart.shade(measured_from(course), "warm-up");
    let report = run.report;
    let about = format!(
        "Victims in each of {} parts; {} ahead and {} on demand while it was measured, {} blocks moved.",
        part_count(course),
        report.cleaning_background,
        report.cleaning_foreground,
        report.blocks_moved
    );
    let legend = [
        ("f0", "ahead of need"),
        ("f4", "on demand: somebody waited"),
    ];
    let legend = legend.map(|(class, words)| (class.to_owned(), words.to_owned()));
    let heading = "Cleaning";
    let svg = chart.into_svg(heading);
    figure(into, heading, &about, &legend, &svg);
}
