//! Medians, ratios and the table.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::phases::Phases;
use super::rows::Row;

use crate::figures::median;

/// The library's rows: the example's field, the name, the unit, what a unit is, the bar in units.
const LIBRARY: [(&str, &str, &str, f64, f64); 2] = [
    (
        "creates_per_second",
        "library: create",
        "files/s",
        1.0,
        300_000.0,
    ),
    (
        "sequential_write_bytes_per_second",
        "library: sequential write",
        "MB/s",
        1e6,
        1000.0,
    ),
];

/// Ratios of the three phases: the name, the ratio, the bar.
type Ratio = (&'static str, fn(&Phases) -> f64, f64);
const PHASES: [Ratio; 2] = [
    (
        "three phases: overwriting / writing, by bytes sent",
        Phases::overwriting_ratio,
        0.80,
    ),
    (
        "three phases: reading after / before overwriting",
        Phases::reading_ratio,
        0.90,
    ),
];

/// Who took a row.
#[derive(Clone, Copy)]
pub enum Column {
    Persimmon,
    Ext4,
    /// The FUSE filesystem that does nothing.
    Nothing,
}

/// What was measured.
pub struct Report {
    /// Persimmon, and the filesystem that does nothing, were served through rings.
    rings: bool,
    rows: Vec<Measured>,
    phases: Vec<Phases>,
    library: Vec<LibraryRow>,
}

struct Measured {
    name: &'static str,
    unit: &'static str,
    bar: f64,
    persimmon: Vec<f64>,
    ext4: Vec<f64>,
    /// Empty for rows that it does not take.
    nothing: Vec<f64>,
}

/// A row of the library, which has no rival.
struct LibraryRow {
    name: &'static str,
    unit: &'static str,
    rate: f64,
    bar: f64,
}

impl Report {
    /// Nothing yet; `rings` tells how Persimmon is served.
    pub fn new(rings: bool) -> Report {
        Report {
            rings,
            rows: Vec::new(),
            phases: Vec::new(),
            library: Vec::new(),
        }
    }

    /// Adds one rate.
    pub fn record(&mut self, row: &Row, column: Column, rate: f64) {
        let at = self.rows.iter().position(|known| known.name == row.name);
        let at = at.unwrap_or_else(|| {
            self.rows.push(Measured {
                name: row.name,
                unit: row.unit,
                bar: row.bar,
                persimmon: Vec::new(),
                ext4: Vec::new(),
                nothing: Vec::new(),
            });
            self.rows.len() - 1
        });
        let row = &mut self.rows[at];
        match column {
            Column::Persimmon => row.persimmon.push(rate),
            Column::Ext4 => row.ext4.push(rate),
            Column::Nothing => row.nothing.push(rate),
        }
    }

    /// Adds one round of the three phases.
    pub fn phases(&mut self, phases: Phases) {
        self.phases.push(phases);
    }

    fn phases_median(&self, figure: impl Fn(&Phases) -> f64) -> f64 {
        let figures: Vec<f64> = self.phases.iter().map(figure).collect();
        median(&figures)
    }

    fn phases_met(&self) -> bool {
        self.phases.is_empty()
            || PHASES
                .iter()
                .all(|(_, ratio, bar)| self.phases_median(ratio) >= *bar)
    }

    fn phases_json(&self) -> Value {
        let all = |figure: fn(&Phases) -> f64| {
            let figures: Vec<f64> = self.phases.iter().map(figure).collect();
            json!(figures)
        };
        json!({
            "writing_mb_per_second": all(|p| p.writing.rate),
            "reading_mb_per_second": all(|p| p.reading),
            "overwriting_mb_per_second": all(|p| p.overwriting.rate),
            "reading_again_mb_per_second": all(|p| p.reading_again),
            "writing_device_mb_per_second": all(|p| p.writing.device_rate),
            "overwriting_device_mb_per_second": all(|p| p.overwriting.device_rate),
            "overwriting_ratio_median": self.phases_median(Phases::overwriting_ratio),
            "reading_ratio_median": self.phases_median(Phases::reading_ratio),
            "met": self.phases_met(),
        })
    }

    fn phases_table(&self) -> String {
        let mut text = String::new();
        let Some(first) = self.phases.first() else {
            return text;
        };
        let rate = |figure: fn(&Phases) -> f64| self.phases_median(figure);
        let _ = writeln!(
            text,
            "three phases, {} files, MB/s: writing {:.0} (sent {:.0}), reading {:.0}, \
             overwriting {:.0} (sent {:.0}), reading {:.0}",
            first.files,
            rate(|p| p.writing.rate),
            rate(|p| p.writing.device_rate),
            rate(|p| p.reading),
            rate(|p| p.overwriting.rate),
            rate(|p| p.overwriting.device_rate),
            rate(|p| p.reading_again),
        );
        for (name, ratio, bar) in PHASES {
            let found = self.phases_median(ratio);
            let verdict = if found >= bar { "met" } else { "MISSED" };
            let _ = writeln!(text, "{name:<58} {found:>10.2} {bar:>22.2} {verdict:>7}");
        }
        text
    }

    /// Adds the library's figures.
    pub fn library(&mut self, figures: &Value) {
        for (field, name, unit, scale, bar) in LIBRARY {
            // A figure that is missing misses its bar.
            let rate = figures[field].as_f64().unwrap_or(f64::NAN) / scale;
            self.library.push(LibraryRow {
                name,
                unit,
                rate,
                bar,
            });
        }
    }

    /// True when no bar is missed.
    pub fn all_met(&self) -> bool {
        self.rows.iter().all(Measured::met)
            && self.phases_met()
            && self.library.iter().all(LibraryRow::met)
    }

    /// Everything, for programs.
    pub fn json(&self) -> Value {
        let mount: Vec<Value> = self.rows.iter().map(Measured::json).collect();
        let library: Vec<Value> = self.library.iter().map(LibraryRow::json).collect();
        json!({
            "io_uring": self.rings,
            "mount": mount,
            "three_phases": self.phases_json(),
            "library": library,
            "all_met": self.all_met(),
        })
    }

    /// Everything, for people.
    pub fn table(&self) -> String {
        let verdict = |met| if met { "met" } else { "MISSED" };
        let way = if self.rings { "io_uring" } else { "/dev/fuse" };
        let mut text = format!("persimmon and do-nothing through {way}\n");
        let _ = writeln!(
            text,
            "{:<26} {:>9} {:>10} {:>10} {:>6} {:>13} {:>8} {:>7}  {:>10} {:>6}",
            "median of rounds",
            "",
            "persimmon",
            "ext4",
            "ratio",
            "of rounds",
            "bar",
            "",
            "do-nothing",
            "ratio"
        );
        for row in &self.rows {
            let ratios = row.ratios();
            let spread = match (ratios.first(), ratios.last()) {
                (Some(least), Some(most)) => format!("{least:.2} - {most:.2}"),
                _ => String::new(),
            };
            let _ = write!(
                text,
                "{:<26} {:>9} {:>10.0} {:>10.0} {:>6.2} {spread:>13} {:>8.2} {:>7}",
                row.name,
                row.unit,
                median(&row.persimmon),
                median(&row.ext4),
                median(&ratios),
                row.bar,
                verdict(row.met())
            );
            if !row.nothing.is_empty() {
                let (rate, ratio) = (median(&row.nothing), median(row.ratios_to_nothing()));
                let _ = write!(text, "  {rate:>10.0} {ratio:>6.2}");
            }
            let _ = writeln!(text);
        }
        text += &self.phases_table();
        for row in &self.library {
            let _ = writeln!(
                text,
                "{:<26} {:>9} {:>10.0} {:>40.0} {:>7}",
                row.name,
                row.unit,
                row.rate,
                row.bar,
                verdict(row.met())
            );
        }
        text
    }
}

impl Measured {
    fn ratios(&self) -> Vec<f64> {
        ratios(&self.persimmon, &self.ext4)
    }

    /// What the mount keeps of what the transport lets through.
    fn ratios_to_nothing(&self) -> Vec<f64> {
        ratios(&self.persimmon, &self.nothing)
    }

    fn met(&self) -> bool {
        median(self.ratios()) >= self.bar
    }

    fn json(&self) -> Value {
        let mut row = json!({
            "name": self.name,
            "unit": self.unit,
            "persimmon": self.persimmon,
            "ext4": self.ext4,
            "persimmon_median": median(&self.persimmon),
            "ext4_median": median(&self.ext4),
            "ratio_median": median(self.ratios()),
            "bar": self.bar,
            "met": self.met(),
        });
        if !self.nothing.is_empty() {
            row["nothing"] = json!(self.nothing);
            row["nothing_median"] = json!(median(&self.nothing));
            row["ratio_to_nothing_median"] = json!(median(self.ratios_to_nothing()));
        }
        row
    }
}

impl LibraryRow {
    fn met(&self) -> bool {
        self.rate >= self.bar
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "unit": self.unit,
            "rate": self.rate,
            "bar": self.bar,
            "met": self.met(),
        })
    }
}

/// Of each round, in rising order.
fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    let rounds = ours.iter().zip(theirs);
    let mut ratios: Vec<f64> = rounds.map(|(ours, theirs)| ours / theirs).collect();
    ratios.sort_by(f64::total_cmp);
    ratios
}
