//! What was measured.

use persimmon_engine::Statistics;
use serde::Serialize;

use super::{Course, Percentiles};

/// The outcome of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The load.
    pub load: String,
    /// Zones of the drive.
    pub zones: u32,
    /// Blocks of each.
    pub zone_blocks: u32,
    /// Live data over the capacity of zones that hold data or are free; on average, 0 to 1.
    pub fill: f64,
    /// Live data over the capacity of all zones; on average, 0 to 1.
    pub fill_raw: f64,
    /// Bytes sent to the drive per byte that users flushed.
    pub write_amplification: f64,
    /// What placement alone would cost with uniform overwriting at this fill, as the literature has it; null for other
    /// loads.
    pub uniform_bound: Option<f64>,
    /// Bytes that users flushed.
    pub user_bytes: u64,
    /// Share of what users wrote that was written again before it was sent, about, 0 to 1; null with `--rounds`.
    pub absorbed: Option<f64>,
    /// Bytes sent to the drive per byte that users flushed: `data`, `cleaned_data`, `summaries` (and zone headers), `metadata`,
    /// `cleaned_metadata`, `journal`, `checkpoints`.
    pub written: Written,
    /// Victims cleaned while somebody waited.
    pub cleaning_foreground: u64,
    /// Victims cleaned ahead.
    pub cleaning_background: u64,
    /// Blocks moved.
    pub blocks_moved: u64,
    /// Operations that waited for a checkpoint or for cleaning.
    pub stalls: u64,
    /// Checkpoints, those of the zones alone left out.
    pub checkpoints: u64,
    /// Checkpoints of the zones alone.
    pub zone_checkpoints: u64,
    /// On average: `capacity` and `live`, blocks of zones that hold data or are free; numbers of zones: `free`,
    /// `reclaimable` (nothing live in them, the next checkpoint frees them), `unwritten` (of open zones), `metadata`, `log`.
    pub usage: Usage,
    /// Resets of a zone in its life: `least`, `most`, `mean`, `deviation`.
    pub resets: Spread,
    /// Reads with `--rounds`, microseconds of virtual time: `count`, `p50`, `p99`, `p99_9`, `longest`; else null.
    pub reads: Option<Percentiles>,
    /// The same of writes, up to the answer.
    pub writes: Option<Percentiles>,
    /// The same of syncs.
    pub syncs: Option<Percentiles>,
    /// How it came to this, for plots.
    #[serde(skip)]
    pub course: Course,
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

/// What zones are used for, on average: numbers of zones, unless said otherwise.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Usage {
    /// Blocks that data zones and free zones can hold.
    pub capacity: f64,
    /// Blocks of them that are live.
    pub live: f64,
    /// Nothing is in them.
    pub free: f64,
    /// Zones of data in which nothing is live: the next checkpoint frees them.
    pub reclaimable: f64,
    /// What is still to be written of zones of data that are open.
    pub unwritten: f64,
    /// Zones of metadata.
    pub metadata: f64,
    /// Zones of the log.
    pub log: f64,
}

impl Usage {
    pub(super) fn add(&mut self, other: &Usage) {
        let mut other = *other;
        for (sum, more) in self.parts().into_iter().zip(other.parts()) {
            *sum += *more;
        }
    }

    pub(super) fn over(mut self, looks: u32) -> Usage {
        for sum in self.parts() {
            *sum /= f64::from(looks.max(1));
        }
        self
    }

    fn parts(&mut self) -> [&mut f64; 7] {
        [
            &mut self.capacity,
            &mut self.live,
            &mut self.free,
            &mut self.reclaimable,
            &mut self.unwritten,
            &mut self.metadata,
            &mut self.log,
        ]
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
