//! `persimmon stats`: what a volume did since it was mounted.

use anyhow::Result;
use clap::Args;
use persimmon_fuse::size::show_bytes;
use std::ffi::OsString;

use crate::open::Subject;
use crate::output::{self, say};
use crate::report::LatencyBucket;

/// Tell what a mounted volume did since it was mounted.
#[derive(Args)]
pub struct StatsCommand {
    /// A directory of a live mount, or its device
    target: OsString,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl StatsCommand {
    pub fn run(&self) -> Result<u8> {
        let subject = Subject::of(&self.target)?;
        let stats = subject.stats()?;
        if self.json {
            output::json(&stats)?;
            return Ok(0);
        }
        if matches!(subject, Subject::Opened(_)) {
            say!("not mounted: the counters are those of looking at it just now\n")?;
        }
        let share = |bytes: u64| {
            let share = bytes as f64 * 100.0 / stats.device_bytes.max(1) as f64;
            format!("{share:.1} %")
        };
        say!("written by users    {}", show_bytes(stats.user_bytes))?;
        say!("sent to the device  {}", show_bytes(stats.device_bytes))?;
        say!("amplification       {:.2}\n", stats.write_amplification)?;
        let rows: Vec<Vec<String>> = [
            ("data", stats.data_bytes),
            ("cleaned data", stats.cleaned_data_bytes),
            ("summaries", stats.summary_bytes),
            ("metadata", stats.metadata_bytes),
            ("cleaned metadata", stats.cleaned_metadata_bytes),
            ("journal", stats.journal_bytes),
            ("checkpoints", stats.checkpoint_bytes),
        ]
        .iter()
        .map(|(class, bytes)| vec![(*class).to_owned(), show_bytes(*bytes), share(*bytes)])
        .collect();
        output::print(output::table(
            &["written as", "bytes", "share"],
            &[false, true, true],
            rows.into_iter(),
        ))?;
        say!("")?;
        for (name, value) in [
            ("read", show_bytes(stats.read_bytes)),
            ("read commands", stats.read_commands.to_string()),
            ("write commands", stats.write_commands.to_string()),
            ("flushes", stats.flushes.to_string()),
            ("zone resets", stats.resets.to_string()),
            ("records", stats.records.to_string()),
            ("commits", stats.commits.to_string()),
            ("checkpoints", stats.checkpoints.to_string()),
            ("of zones alone", stats.zone_checkpoints.to_string()),
            ("cleaned, waiting", stats.cleaning_foreground.to_string()),
            ("cleaned, ahead", stats.cleaning_background.to_string()),
            ("blocks moved", stats.blocks_moved.to_string()),
            ("blocks deduplicated", stats.deduplicated_blocks.to_string()),
            ("stalls", stats.stalls.to_string()),
            ("most data waiting", show_bytes(stats.staged_bytes_peak)),
        ] {
            say!("{name:<20}{value}")?;
        }
        if stats.lost_files > 0 {
            say!("{:<20}{}", "files with losses", stats.lost_files)?;
        }
        for (name, buckets) in [
            ("reads", &stats.read_latency),
            ("writes", &stats.write_latency),
            ("fsyncs", &stats.fsync_latency),
        ] {
            output::print(histogram(name, buckets))?;
        }
        Ok(0)
    }
}

/// A bar for each power of two.
fn histogram(name: &str, buckets: &[LatencyBucket]) -> String {
    const BAR: u64 = 40;
    let Some(most) = buckets.iter().map(|bucket| bucket.count).max() else {
        return String::new();
    };
    let total: u64 = buckets.iter().map(|bucket| bucket.count).sum();
    let mut text = format!("\n{total} {name}, by time taken\n");
    for bucket in buckets {
        let bar = "#".repeat((bucket.count * BAR).div_ceil(most) as usize);
        let bound = show_micros(bucket.below_us);
        text.push_str(&format!("  < {bound:>7}  {:>10}  {bar}\n", bucket.count));
    }
    text
}

/// Powers of two, rounded.
fn show_micros(micros: u64) -> String {
    match micros {
        0..1000 => format!("{micros} us"),
        1000..1_000_000 => format!("{} ms", micros / 1000),
        _ => format!("{} s", micros / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_counts() {
        let bucket = |below_us, count| LatencyBucket { below_us, count };
        let text = histogram(
            "fsyncs",
            &[bucket(512, 20), bucket(1024, 10), bucket(1 << 20, 1)],
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "31 fsyncs, by time taken");
        assert!(lines[2].starts_with("  <  512 us          20  ####"));
        assert_eq!(lines[3].matches('#').count(), 20);
        assert!(lines[4].contains("1 s") && lines[4].ends_with(" ##"));
        assert_eq!(histogram("reads", &[]), "");
    }
}
