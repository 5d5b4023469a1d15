//! The figures of all places, as a table and as JSON.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::{Value, json};

use super::places::Place;
use super::workloads::{Figures, Workload};
use crate::figures::median;

/// Everything that was measured.
pub struct Report {
    size_mib: u64,
    zone_mib: u64,
    kernel: String,
    places: Vec<(&'static str, bool)>,
    /// By workload, place and round.
    cells: Vec<(&'static str, &'static str, Result<Figures, String>)>,
}

/// A figure, its name, and whether more of it is better.
type Row = (&'static str, fn(&Figures) -> Option<f64>);

const ROWS: &[Row] = &[
    ("bytes sent / RocksDB's", Figures::amplification),
    ("MB sent", |figures| Some(figures.sent.bytes as f64 / 1e6)),
    ("zone resets", |figures| Some(figures.sent.resets as f64)),
    ("operations/s", |figures| {
        Some(figures.operations_per_second)
    }),
    ("p99, us", |figures| Some(figures.p99)),
    ("p99.9, us", |figures| Some(figures.p999)),
];

impl Report {
    /// Nothing yet. The first place is what others are compared with.
    pub fn new(size_mib: u64, zone_mib: u64, places: &[&Place]) -> Report {
        Report {
            size_mib,
            zone_mib,
            kernel: String::new(),
            places: places
                .iter()
                .map(|place| (place.name, place.is_ours()))
                .collect(),
            cells: Vec::new(),
        }
    }

    /// Which kernel it was.
    pub fn kernel(&mut self, version: &str) {
        version.clone_into(&mut self.kernel);
    }

    /// Adds what a workload came to.
    pub fn record(&mut self, place: &Place, workload: &Workload, figures: Result<Figures>) {
        let figures = figures.map_err(|error| format!("{error:#}"));
        self.cells.push((workload.name, place.name, figures));
    }

    /// Whether a workload failed on a volume of Persimmon.
    pub fn has_failed(&self) -> bool {
        let is_ours = |name: &str| {
            self.places
                .iter()
                .any(|(place, ours)| *place == name && *ours)
        };
        self.cells
            .iter()
            .any(|(_, place, figures)| is_ours(place) && figures.is_err())
    }

    /// The median of a figure over the rounds; `None` where there is none, or a round failed.
    fn median(
        &self,
        workload: &str,
        place: &str,
        figure: fn(&Figures) -> Option<f64>,
    ) -> Option<f64> {
        let rounds = self
            .cells
            .iter()
            .filter(|(name, at, _)| *name == workload && *at == place);
        let values = rounds.map(|(.., figures)| figure(figures.as_ref().ok()?));
        let values: Vec<f64> = values.collect::<Option<_>>()?;
        (!values.is_empty()).then(|| median(values))
    }

    /// For docs/lab/rocksdb.md.
    pub fn table(&self) -> String {
        let mut text = format!(
            "Linux {}, {} MiB of drives each, zones of {} MiB; in brackets what the first place has, divided by it:\n\n",
            self.kernel, self.size_mib, self.zone_mib
        );
        let names: Vec<&str> = self.places.iter().map(|(name, _)| *name).collect();
        let _ = writeln!(text, "| workload | figure | {} |", names.join(" | "));
        let _ = writeln!(text, "|---|---|{}", "---|".repeat(names.len()));
        let mut workloads: Vec<&str> = Vec::new();
        for (workload, ..) in &self.cells {
            if !workloads.contains(workload) {
                workloads.push(workload);
            }
        }
        for workload in workloads {
            for (name, figure) in ROWS {
                let values: Vec<Option<f64>> = names
                    .iter()
                    .map(|place| self.median(workload, place, *figure))
                    .collect();
                if values.iter().all(Option::is_none) {
                    continue;
                }
                let first = values.first().copied().flatten();
                let shown = values
                    .iter()
                    .enumerate()
                    .map(|(number, value)| match (value, first) {
                        (None, _) => "-".to_owned(),
                        (Some(value), Some(first)) if number > 0 && *value > 0.0 => {
                            format!("{} ({:.2})", digits(*value), first / value)
                        }
                        (Some(value), _) => digits(*value),
                    });
                let _ = writeln!(
                    text,
                    "| {workload} | {name} | {} |",
                    shown.collect::<Vec<_>>().join(" | ")
                );
            }
        }
        for (workload, place, figures) in &self.cells {
            if let Err(error) = figures {
                let line = error.lines().next().unwrap_or_default();
                let _ = writeln!(text, "\n{workload} on {place} failed: {line}");
            }
        }
        text
    }

    /// All of it.
    pub fn json(&self) -> Value {
        let cell =
            |(workload, place, figures): &(&str, &str, Result<Figures, String>)| match figures {
                Ok(figures) => json!({
                    "workload": workload,
                    "place": place,
                    "operations_per_second": figures.operations_per_second,
                    "p99_us": figures.p99,
                    "p99.9_us": figures.p999,
                    "rocksdb_bytes": figures.written,
                    "sent_bytes": figures.sent.bytes,
                    "zone_resets": figures.sent.resets,
                }),
                Err(error) => json!({ "workload": workload, "place": place, "error": error }),
            };
        json!({
            "kernel": self.kernel,
            "size_mib": self.size_mib,
            "zone_mib": self.zone_mib,
            "runs": self.cells.iter().map(cell).collect::<Vec<_>>(),
        })
    }
}

/// Three digits that count.
fn digits(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}
