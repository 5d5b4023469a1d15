//! What the campaign shows while it runs and at its end.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use persimmon_crash::harness::{Campaign, CampaignReport, Statistics};
use serde_json::json;

use crate::saved::Saved;

/// Time between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// One line that changes on a terminal, a line now and then elsewhere.
pub struct Progress {
    sequences: u64,
    states: u64,
    bar: Option<ProgressBar>,
    line: Instant,
    /// Failures told of.
    told: usize,
}

impl Progress {
    pub fn new(campaign: &Campaign) -> Progress {
        let sequences = campaign.sequences_planned();
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(sequences + campaign.states);
            let style = ProgressStyle::with_template("{bar:30} {percent:>3} % {msg}, {eta} left");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Progress {
            sequences,
            states: campaign.states,
            bar,
            line: Instant::now(),
            told: 0,
        }
    }

    pub fn show(&mut self, report: &CampaignReport) {
        for failure in report.failures.iter().skip(self.told) {
            let text = failure.to_string();
            let line = text.lines().next().unwrap_or_default();
            match &self.bar {
                Some(bar) => bar.println(line),
                None => eprintln!("{line}"),
            }
        }
        self.told = report.failures.len();
        let statistics = &report.statistics;
        let text = || {
            format!(
                "{} of {} sequences, {} of {} random states, {} images, {} failures",
                statistics.sequences,
                self.sequences,
                random_states(statistics),
                self.states,
                statistics.images.len(),
                report.failures.len()
            )
        };
        if let Some(bar) = &self.bar {
            bar.set_position(statistics.sequences + random_states(statistics));
            bar.set_message(text());
        } else if self.line.elapsed() >= LINE_EVERY {
            eprintln!("{}", text());
            self.line = Instant::now();
        }
    }

    pub fn close(&self) {
        if let Some(bar) = &self.bar {
            bar.finish();
        }
    }
}

fn random_states(statistics: &Statistics) -> u64 {
    statistics.states - statistics.sequence_states
}

/// The report, as text or JSON, on standard output.
pub fn print(campaign: &Campaign, report: &CampaignReport, saved: &Saved, as_json: bool) {
    let new = report.failures.iter().map(ToString::to_string);
    let failures: Vec<String> = saved
        .earlier_failures()
        .iter()
        .cloned()
        .chain(new)
        .collect();
    let statistics = &report.statistics;
    if as_json {
        let report = json!({
            "seed": campaign.seed,
            "sequences_planned": campaign.sequences_planned(),
            "seconds": saved.seconds(),
            "distinct_images": statistics.images.len(),
            "random_states": random_states(statistics),
            "statistics": statistics,
            "failures": failures,
        });
        println!("{report:#}");
        return;
    }
    for failure in &failures {
        println!("{failure}");
        if let Some((origin, _)) = failure.split_once(": ") {
            println!("again: cargo xtask simulate --replay {origin}\n");
        }
    }
    println!("{statistics}");
    println!("{} failures, {} seconds", failures.len(), saved.seconds());
}
