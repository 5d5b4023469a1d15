//! The figures of all filesystems, as a table and as JSON.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::{Value, json};

use super::rows::{Row, Unit};

/// What one workload came to.
pub struct Figures {
    /// In the row's unit.
    pub value: f64,
    /// Sent to all drives.
    pub bytes: u64,
    pub user_bytes: u64,
    pub resets: u64,
    /// In the guest, whose processor is emulated.
    pub seconds: f64,
    /// What the filesystem counted itself in the last mount, before it was unmounted.
    pub stats: Option<String>,
}

/// Everything that was measured.
pub struct Report {
    size_mib: u64,
    zone_mib: u64,
    kernel: String,
    usable: Vec<(&'static str, u64)>,
    rows: Vec<(String, Unit, Vec<Cell>)>,
}

type Cell = (&'static str, Result<Figures, String>);

impl Report {
    /// Nothing yet.
    pub fn new(size_mib: u64, zone_mib: u64) -> Report {
        Report {
            size_mib,
            zone_mib,
            kernel: String::new(),
            usable: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Which kernel it was.
    pub fn kernel(&mut self, version: &str) {
        version.clone_into(&mut self.kernel);
    }

    /// KiB that a new volume says can be written.
    pub fn usable(&mut self, filesystem: &'static str, kib: u64) {
        self.usable.push((filesystem, kib));
    }

    /// Adds what a workload came to.
    pub fn record(&mut self, filesystem: &'static str, row: &Row, figures: Result<Figures>) {
        let cell = (filesystem, figures.map_err(|error| format!("{error:#}")));
        match self.rows.iter_mut().find(|(name, ..)| *name == row.name) {
            Some((_, _, cells)) => cells.push(cell),
            None => self.rows.push((row.name.clone(), row.unit, vec![cell])),
        }
    }

    /// Whether a workload failed on this one.
    pub fn has_failed(&self, filesystem: &str) -> bool {
        let cells = self.rows.iter().flat_map(|(_, _, cells)| cells);
        cells
            .filter(|(name, _)| *name == filesystem)
            .any(|(_, figures)| figures.is_err())
    }

    /// For docs/lab/peers.md.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let names: Vec<&str> = self.usable.iter().map(|(name, _)| *name).collect();
        let line = |text: &mut String, first: &str, cells: &[String]| {
            let _ = writeln!(text, "| {first} | {} |", cells.join(" | "));
        };
        let _ = writeln!(
            text,
            "Linux {}, {} MiB of drives each, zones of {} MiB:\n",
            self.kernel, self.size_mib, self.zone_mib
        );
        let heads: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        line(&mut text, "workload | unit", &heads);
        let _ = writeln!(text, "|---|---|{}", "---|".repeat(names.len()));
        let usable: Vec<String> = self
            .usable
            .iter()
            .map(|(_, kib)| format!("{}", kib / 1024))
            .collect();
        line(&mut text, "usable when new | MiB", &usable);
        for (name, unit, cells) in &self.rows {
            let shown: Vec<String> = names
                .iter()
                .map(
                    |wanted| match cells.iter().find(|(name, _)| name == wanted) {
                        None => String::new(),
                        Some((_, Ok(figures))) => number(figures.value),
                        Some((_, Err(_))) => "failed".to_owned(),
                    },
                )
                .collect();
            line(&mut text, &format!("{name} | {}", unit.name()), &shown);
        }
        text
    }

    /// All of it.
    pub fn json(&self) -> Value {
        let cell = |(name, figures): &Cell| match figures {
            Ok(figures) => json!({
                "filesystem": name,
                "value": figures.value,
                "sent_bytes": figures.bytes,
                "user_bytes": figures.user_bytes,
                "zone_resets": figures.resets,
                "seconds": figures.seconds,
                "stats": figures.stats,
            }),
            Err(error) => json!({ "filesystem": name, "error": error }),
        };
        json!({
            "kernel": self.kernel,
            "size_mib": self.size_mib,
            "zone_mib": self.zone_mib,
            "usable_kib": self.usable.iter().map(|(name, kib)| json!({
                "filesystem": name, "kib": kib,
            })).collect::<Vec<_>>(),
            "rows": self.rows.iter().map(|(name, unit, cells)| json!({
                "workload": name,
                "unit": unit.name(),
                "figures": cells.iter().map(cell).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
        })
    }
}

/// Three digits that count.
fn number(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}
