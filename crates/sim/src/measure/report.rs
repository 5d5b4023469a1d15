//! What was measured.

use persimmon_engine::Statistics;
use serde::Serialize;

use super::Percentiles;

/// The outcome of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the load.
    pub load: String,
    /// Zones of the drive.
    pub zones: u32,
    /// Blocks of each.
    pub zone_blocks: u32,
    /// Live data over the capacity of data zones and free zones, on average.
    pub fill: f64,
    /// Live data over the capacity of all zones, on average.
    pub fill_raw: f64,
    /// Everything sent to the device per byte that users flushed.
    pub write_amplification: f64,
    /// What placement alone would cost with uniform overwriting at this fill, as the literature has
    /// it; none for other loads.
    pub uniform_bound: Option<f64>,
    /// Bytes that users flushed.
    pub user_bytes: u64,
    /// Bytes sent to the device per byte that users flushed, by class.
    pub written: Written,
    /// Victims cleaned while somebody waited.
    pub cleaning_foreground: u64,
    /// Victims cleaned ahead.
    pub cleaning_background: u64,
    /// Blocks moved.
    pub blocks_moved: u64,
    /// Operations that waited for a checkpoint or for cleaning.
    pub stalls: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Resets of zones in their life.
    pub resets: Spread,
    /// Reads, in virtual time.
    pub reads: Option<Percentiles>,
    /// Writes, up to the answer, in virtual time.
    pub writes: Option<Percentiles>,
    /// Syncs, in virtual time.
    pub syncs: Option<Percentiles>,
}

/// Bytes sent to the device per byte that users flushed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Written {
    /// File data, first time.
    pub data: f64,
    /// File data moved by cleaning.
    pub cleaned_data: f64,
    /// Summaries and zone headers.
    pub summaries: f64,
    /// Metadata pages.
    pub metadata: f64,
    /// Metadata pages moved by cleaning.
    pub cleaned_metadata: f64,
    /// Journal.
    pub journal: f64,
    /// Footers and table chunks.
    pub checkpoints: f64,
}

impl Written {
    pub(super) fn new(statistics: &Statistics) -> Written {
        let share = |bytes: u64| bytes as f64 / statistics.user_bytes.max(1) as f64;
        Written {
            data: share(statistics.data_bytes),
            cleaned_data: share(statistics.cleaned_data_bytes),
            summaries: share(statistics.summary_bytes),
            metadata: share(statistics.metadata_bytes),
            cleaned_metadata: share(statistics.cleaned_metadata_bytes),
            journal: share(statistics.journal_bytes),
            checkpoints: share(statistics.checkpoint_bytes),
        }
    }
}

/// How evenly something is spread over zones.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Spread {
    /// Least.
    pub least: u32,
    /// Most.
    pub most: u32,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
}

impl Spread {
    pub(super) fn of(counts: &[u32]) -> Spread {
        let zones = counts.len().max(1) as f64;
        let mean = counts.iter().map(|n| f64::from(*n)).sum::<f64>() / zones;
        let square = |n: &u32| (f64::from(*n) - mean).powi(2);
        Spread {
            least: counts.iter().copied().min().unwrap_or(0),
            most: counts.iter().copied().max().unwrap_or(0),
            mean,
            deviation: (counts.iter().map(square).sum::<f64>() / zones).sqrt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_of_counts() {
        let spread = Spread::of(&[2, 4, 4, 4, 5, 5, 7, 9]);
        assert_eq!((spread.least, spread.most), (2, 9));
        assert!((spread.mean - 5.0).abs() < 1e-9 && (spread.deviation - 2.0).abs() < 1e-9);
    }
}
