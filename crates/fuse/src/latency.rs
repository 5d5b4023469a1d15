//! How long operations took, as the kernel's requests see it. Measured at the door, since nothing
//! below it has a clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The last bucket holds everything from 2^30 microseconds (18 minutes) on.
const BUCKETS: usize = 32;

/// Counts by powers of two of microseconds.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
}

impl Histogram {
    /// Counts one operation.
    pub fn record(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - micros.leading_zeros()) as usize;
        if let Some(bucket) = self.buckets.get(bucket.min(BUCKETS - 1)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Runs `work` and counts it.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = work();
        self.record(begun.elapsed());
        result
    }

    /// The buckets that are not empty: a bound in microseconds, and how many operations took less
    /// than that, but not less than half of it.
    #[must_use]
    pub fn counts(&self) -> Vec<(u64, u64)> {
        let counts = self.buckets.iter().map(|b| b.load(Ordering::Relaxed));
        counts
            .enumerate()
            .filter(|(_, count)| *count > 0)
            .map(|(bucket, count)| (1 << bucket, count))
            .collect()
    }
}

/// What is timed, and what is counted beside that.
#[derive(Debug, Default)]
pub struct Latencies {
    /// Reads that the kernel's cache did not answer.
    pub read: Histogram,
    /// Writes.
    pub write: Histogram,
    /// fsync and fdatasync, of files and directories.
    pub fsync: Histogram,
    /// Files to which something is lost that a daemon before this one had answered: it could not be written again.
    pub lost_files: AtomicU64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two() {
        let histogram = Histogram::default();
        for micros in [0, 1, 2, 3, 4, 1000, 1023, 1024] {
            histogram.record(Duration::from_micros(micros));
        }
        histogram.record(Duration::MAX);
        assert_eq!(
            histogram.counts(),
            [
                (1, 1),
                (2, 1),
                (4, 2),
                (8, 1),
                (1024, 2),
                (2048, 1),
                (1 << 31, 1)
            ]
        );
    }
}
