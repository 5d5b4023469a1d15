//! Plots of the zones at the end of a run.

use std::collections::BTreeMap;
use std::fmt::Write;

use persimmon::internal::engine::ZoneStatus;
use persimmon::internal::format::table::{Role, ZitEntry};

use super::page::{HALF, Run, WIDE, area_class, figure, line_class, runs_legend};
use crate::plot::{Axis, Chart, Markup};

const HEIGHT: u32 = 280;
/// Bars of a histogram at most.
const BARS: u32 = 40;
/// Shares of valid blocks that are told apart.
const SHARES: usize = 20;
/// Cells of the map at most; of larger drives each stands for several zones.
const CELLS_MAX: usize = 4000;
/// What of a cell is not its neighbours'.
const CELL_SHARE: f64 = 0.86;

/// How many zones were reset how often.
pub fn wear(main: &mut Markup, runs: &[Run<'_>]) {
    let resets = || runs.iter().map(|run| &run.report.course.resets);
    let least = resets().flatten().copied().min().unwrap_or(0);
    let most = resets().flatten().copied().max().unwrap_or(0);
    let width = (most - least + 1).div_ceil(BARS).max(1);
    let bars = (most - least) / width + 1;
    let histograms: Vec<Vec<u32>> = resets()
        .map(|resets| {
            let mut bars = vec![0; bars as usize];
            for count in resets {
                if let Some(bar) = bars.get_mut(((count - least) / width) as usize) {
                    *bar += 1;
                }
            }
            bars
        })
        .collect();
    let edge = |bar: usize| f64::from(least) + f64::from(width) * bar as f64;
    let x = Axis::course(
        "resets of a zone",
        f64::from(least),
        edge(bars as usize),
        10,
    );
    let highest = histograms.iter().flatten().copied().max().unwrap_or(1);
    let y = Axis::linear("zones", 0.0, highest.into(), 5);
    let mut chart = Chart::new(x, y, WIDE, HEIGHT);
    // More than a few areas one upon the other are only mud.
    let shade = if runs.len() > 3 { "clear" } else { "faint" };
    for (number, (run, histogram)) in runs.iter().zip(&histograms).enumerate() {
        let mut outline = vec![(edge(0), 0.0)];
        for (bar, zones) in histogram.iter().enumerate() {
            let across = (edge(bar), edge(bar + 1));
            let (first, last) = (across.0 as u32, across.1 as u32 - 1);
            let resets = if first == last {
                first.to_string()
            } else {
                format!("{first} to {last}")
            };
            let title = format!("{}: {zones} zones with {resets} resets", run.name);
            let height = f64::from(*zones);
            let class = format!("{} {shade}", area_class(number));
            chart.bar(across, (0.0, height), &class, &title);
            outline.extend([(across.0, height), (across.1, height)]);
        }
        outline.push((edge(histogram.len()), 0.0));
        chart.line(&outline, &line_class(number));
    }
    let about = "Zones by how often they were reset since the drive was new.";
    let svg = chart.into_svg("Wear");
    figure(main, "Wear", about, &runs_legend(runs), &svg);
}

/// Colour, and what zones of that colour hold; `None`: nothing.
fn kind(entry: &ZitEntry) -> Option<(String, String)> {
    let (class, words) = match (entry.role, entry.lifetime) {
        (Role::Free | Role::Retired, _) => return None,
        (Role::Log, _) => ("log".to_owned(), "log".to_owned()),
        (Role::Metadata, _) => ("meta".to_owned(), "metadata".to_owned()),
        (Role::Data, told @ 1..=4) => {
            let name = crate::report::lifetime_name(entry.role, told);
            (format!("l{}", told * 2 - 1), format!("told: {name}"))
        }
        (Role::Data, inferred) => {
            let class = match inferred {
                8..=15 => inferred - 8,
                16..=23 => inferred - 16,
                _ => 6,
            };
            let words = match class {
                7.. => "4 volumes and more".to_owned(),
                6 => "1 volume, or not known".to_owned(),
                _ => format!("1/{} volume", 4u32.pow(6 - u32::from(class))),
            };
            (format!("l{class}"), words)
        }
    };
    Some((class, words))
}

fn survived(entry: &ZitEntry) -> bool {
    entry.role == Role::Data && matches!(entry.lifetime, 5 | 16..=23)
}

fn share(zone: &ZoneStatus) -> f64 {
    f64::from(zone.entry.valid) / f64::from(zone.capacity.max(1))
}

/// The kinds of zones that there are, by colour.
fn legend(zones: &[ZoneStatus]) -> Vec<(String, String)> {
    let kinds: BTreeMap<String, String> =
        zones.iter().filter_map(|zone| kind(&zone.entry)).collect();
    kinds.into_iter().collect()
}

/// Zones of data by the share of their blocks that is valid.
pub fn valid_shares(into: &mut Markup, run: &Run<'_>) {
    let zones = &run.report.course.zones;
    let data: Vec<ZoneStatus> = zones
        .iter()
        .filter(|zone| zone.entry.role == Role::Data)
        .copied()
        .collect();
    let mut bins: Vec<BTreeMap<String, u32>> = vec![BTreeMap::new(); SHARES];
    for zone in &data {
        let bin = ((share(zone) * SHARES as f64) as usize).min(SHARES - 1);
        if let (Some(bin), Some((class, _))) = (bins.get_mut(bin), kind(&zone.entry)) {
            *bin.entry(class).or_default() += 1;
        }
    }
    let highest = bins.iter().map(|bin| bin.values().sum::<u32>()).max();
    let x = Axis::course("valid blocks, % of the zone", 0.0, 100.0, 5);
    let y = Axis::linear("zones", 0.0, highest.unwrap_or(1).into(), 5);
    let mut chart = Chart::new(x, y, HALF, HEIGHT);
    let legend = legend(&data);
    for (number, bin) in bins.iter().enumerate() {
        let edge = |n: usize| n as f64 * 100.0 / SHARES as f64;
        let mut sum = 0.0;
        for (class, words) in &legend {
            let zones = bin.get(class).copied().unwrap_or(0);
            if zones > 0 {
                let title = format!("{words}: {zones} zones");
                let (from, to) = (sum, sum + f64::from(zones));
                chart.bar((edge(number), edge(number + 1)), (from, to), class, &title);
                sum = to;
            }
        }
    }
    let heading = "Zones of data by valid share";
    let svg = chart.into_svg(heading);
    let about = "At the end, coloured by how long their blocks are thought to live.";
    figure(into, heading, about, &legend, &svg);
}

/// Every zone, a cell each.
pub fn map(main: &mut Markup, run: &Run<'_>) {
    let zones = &run.report.course.zones;
    let together = zones.len().div_ceil(CELLS_MAX).max(1);
    let cells = zones.len().div_ceil(together);
    let columns = if cells > 600 { 100 } else { 50 };
    let rows = cells.div_ceil(columns);
    let side = f64::from(WIDE) / columns as f64;
    let mut svg = Markup::default();
    let view = format!("0 0 {WIDE} {:.1}", side * rows as f64);
    let name = "Map of the zones";
    svg.element(
        "svg",
        &[("viewBox", &view), ("role", &"img"), ("aria-label", &name)],
        |svg| {
            let mut fills: BTreeMap<String, String> = BTreeMap::new();
            for (number, group) in zones.chunks(together).enumerate() {
                let left = (number % columns) as f64 * side;
                let top = (number / columns) as f64 * side;
                let length = side * CELL_SHARE;
                // Of several zones the fullest says what kind they are.
                let Some(zone) = group.iter().max_by(|a, b| share(a).total_cmp(&share(b))) else {
                    continue;
                };
                let class = kind(&zone.entry).map(|(class, _)| class);
                let framed = if survived(&zone.entry) { " framed" } else { "" };
                let cell = format!("cell {}{framed}", class.as_deref().unwrap_or("free"));
                let place = [left, top, length].map(|number| format!("{number:.1}"));
                let [x, y, edge] = &place;
                let place: [(&str, &dyn std::fmt::Display); 5] = [
                    ("class", &cell),
                    ("x", x),
                    ("y", y),
                    ("width", edge),
                    ("height", edge),
                ];
                svg.element("rect", &place, |cell| {
                    cell.words("title", &[], &words(group))
                });
                let share = group.iter().map(share).sum::<f64>() / group.len() as f64;
                if let Some(class) = class
                    && share > 0.0
                {
                    let height = length * share.min(1.0);
                    let path = fills.entry(class).or_default();
                    let bottom = top + length;
                    let _ = write!(
                        path,
                        "M{left:.1} {bottom:.1}v-{height:.1}h{length:.1}v{height:.1}Z"
                    );
                }
            }
            for (class, path) in &fills {
                let class = format!("fill {class}");
                svg.empty("path", &[("class", &class), ("d", path)]);
            }
        },
    );
    let mut about = "Every zone at the end, by number, filled as far as its blocks are valid. Colours tell how long the \
                     blocks of a zone are thought to live; framed zones hold what cleaning moved."
        .to_owned();
    if together > 1 {
        about = format!("{about} A cell stands for {together} zones.");
    }
    let mut legend = legend(zones);
    if zones.iter().any(|zone| zone.entry.role == Role::Free) {
        legend.push(("free".to_owned(), "free".to_owned()));
    }
    figure(main, name, &about, &legend, &svg);
}

fn words(zones: &[ZoneStatus]) -> String {
    let of_zone = |zone: &ZoneStatus| {
        let number = zone.zone.0;
        let Some((_, words)) = kind(&zone.entry) else {
            return format!("zone {number}: {}", zone.entry.role.name());
        };
        let percent = share(zone) * 100.0;
        let moved = if survived(&zone.entry) {
            ", moved by cleaning"
        } else {
            ""
        };
        format!("zone {number}: {words}{moved}, {percent:.0} % valid")
    };
    let all: Vec<String> = zones.iter().take(8).map(of_zone).collect();
    all.join("\n")
}
