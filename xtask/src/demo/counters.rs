//! What the volumes counted, over all their mounts.

use std::fmt::Write as _;

use anyhow::{Context, Result};

use crate::volume::Volume;

/// The classes of bytes sent to a device: the counter, and its name on the page.
const CLASSES: [(&str, &str); 7] = [
    ("data_bytes", "file data"),
    ("cleaned_data_bytes", "file data moved by cleaning"),
    ("summary_bytes", "summaries and zone headers"),
    ("metadata_bytes", "metadata"),
    ("cleaned_metadata_bytes", "metadata moved by cleaning"),
    ("journal_bytes", "journal"),
    ("checkpoint_bytes", "checkpoints"),
];

const OTHERS: [&str; 5] = [
    "user_bytes",
    "blocks_moved",
    "resets",
    "checkpoints",
    "stalls",
];

/// Sums over mounts and volumes.
#[derive(Default)]
pub struct Counters {
    classes: [u64; CLASSES.len()],
    others: [u64; OTHERS.len()],
}

impl Counters {
    /// Adds what a mounted volume counted since it was mounted: to be done before each unmount or kill.
    pub fn add(&mut self, volume: &Volume) -> Result<()> {
        let stats = volume.json("stats", &volume.dir)?;
        let number = |name: &str| {
            stats[name]
                .as_u64()
                .with_context(|| format!("`persimmon stats --json` has no number {name}"))
        };
        for (sum, (name, _)) in self.classes.iter_mut().zip(CLASSES) {
            *sum += number(name)?;
        }
        for (sum, name) in self.others.iter_mut().zip(OTHERS) {
            *sum += number(name)?;
        }
        Ok(())
    }

    pub fn text(&self) -> String {
        let [user, moved, resets, checkpoints, stalls] = self.others;
        let device: u64 = self.classes.iter().sum();
        let per_user = |bytes: u64| bytes as f64 / user.max(1) as f64;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "Write amplification {:.2}: {} MiB of file data asked for, {} MiB sent to the devices\n",
            per_user(device),
            user >> 20,
            device >> 20
        );
        for ((_, name), bytes) in CLASSES.iter().zip(self.classes) {
            let mib = bytes as f64 / f64::from(1 << 20);
            let share = per_user(bytes);
            let _ = writeln!(text, "  {name:<28} {mib:>9.1} MiB   {share:>6.3}");
        }
        let _ = writeln!(
            text,
            "\nCleaning moved {moved} blocks; {resets} zones reset, {checkpoints} checkpoints; {stalls} times \
             somebody waited for either"
        );
        text
    }
}
