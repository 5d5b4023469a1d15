//! `persimmon stats`: what a volume did since it was mounted.

use anyhow::Result;
use clap::Args;
use persimmon_fuse::size::show_bytes;

use crate::open::Subject;
use crate::output;

/// Tell what a mounted volume did since it was mounted.
#[derive(Args)]
pub struct StatsCommand {
    /// A directory of a live mount, or its device
    target: String,
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
            println!("not mounted: the counters are those of looking at it just now\n");
        }
        let share = |bytes: u64| {
            let share = bytes as f64 * 100.0 / stats.device_bytes.max(1) as f64;
            format!("{share:.1} %")
        };
        println!("written by users    {}", show_bytes(stats.user_bytes));
        println!("sent to the device  {}", show_bytes(stats.device_bytes));
        println!("amplification       {:.2}\n", stats.write_amplification);
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
        print!(
            "{}",
            output::table(
                &["written as", "bytes", "share"],
                &[false, true, true],
                &rows
            )
        );
        println!();
        for (name, value) in [
            ("read", show_bytes(stats.read_bytes)),
            ("read commands", stats.read_commands.to_string()),
            ("write commands", stats.write_commands.to_string()),
            ("flushes", stats.flushes.to_string()),
            ("zone resets", stats.resets.to_string()),
            ("records", stats.records.to_string()),
            ("commits", stats.commits.to_string()),
            ("checkpoints", stats.checkpoints.to_string()),
            ("cleaned, waiting", stats.cleaning_foreground.to_string()),
            ("cleaned, ahead", stats.cleaning_background.to_string()),
            ("blocks moved", stats.blocks_moved.to_string()),
            ("stalls", stats.stalls.to_string()),
        ] {
            println!("{name:<20}{value}");
        }
        Ok(0)
    }
}
