//! How long operations took.

use std::time::Duration;

use serde::Serialize;

use super::Percentile;

/// Points of a curve from one nine to the next.
const CURVE_STEPS: f64 = 24.0;

/// Latencies of one kind of operation.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<Duration>);

/// The percentiles of latencies, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Operations.
    pub count: u64,
    /// Half took no longer.
    pub p50: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1000.
    pub p99_9: f64,
    /// The longest.
    pub longest: f64,
}

impl Latencies {
    /// One more.
    pub fn add(&mut self, latency: Duration) {
        self.0.push(latency);
    }

    /// Those of others too.
    pub fn merge(&mut self, other: Latencies) {
        self.0.extend(other.0);
    }

    /// The whole distribution: from the shortest to the longest, ever closer to the end.
    #[must_use]
    pub fn curve(mut self) -> Vec<Percentile> {
        self.0.sort_unstable();
        let count = self.0.len();
        let mut curve: Vec<Percentile> = Vec::new();
        let mut last = 0;
        for step in 0.. {
            // Of those that took longer, as many stay out in each decade as are steps in one.
            let longer = (count as f64) * 10f64.powf(-f64::from(step) / CURVE_STEPS);
            let rank = count - (longer as usize).min(count);
            if rank > last
                && let Some(latency) = self.0.get(rank - 1)
            {
                last = rank;
                curve.push(Percentile {
                    share: rank as f64 / count as f64,
                    micros: latency.as_secs_f64() * 1e6,
                });
            }
            if rank == count {
                return curve;
            }
        }
        curve
    }

    /// Of all so far.
    #[must_use]
    pub fn percentiles(mut self) -> Percentiles {
        self.0.sort_unstable();
        let micros = |at: usize| self.0.get(at).map_or(0.0, |d| d.as_secs_f64() * 1e6);
        let rank = |of_1000: usize| (self.0.len() * of_1000).div_ceil(1000).saturating_sub(1);
        Percentiles {
            count: self.0.len() as u64,
            p50: micros(rank(500)),
            p99: micros(rank(990)),
            p99_9: micros(rank(999)),
            longest: micros(self.0.len().saturating_sub(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_rise_to_the_longest() {
        assert_eq!(Latencies::default().curve(), []);
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|n| latencies.add(Duration::from_micros(n)));
        let curve = latencies.curve();
        for pair in curve.windows(2) {
            assert!(pair[0].share < pair[1].share && pair[0].micros <= pair[1].micros);
        }
        assert!(curve.len() > 50 && curve[0].share < 0.1);
        let end = curve[curve.len() - 1];
        assert!(end.share == 1.0 && (end.micros - 1000.0).abs() < 1e-6);
        // One in a thousand is told of, too.
        assert!(
            curve
                .iter()
                .any(|p| p.share == 0.999 && (p.micros - 999.0).abs() < 1e-6)
        );
    }

    #[test]
    fn percentiles_are_ranks() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.clone().percentiles(), Percentiles::default());
        (1..=1000)
            .rev()
            .for_each(|n| latencies.add(Duration::from_micros(n)));
        let percentiles = latencies.percentiles();
        assert_eq!(percentiles.count, 1000);
        let found = [
            percentiles.p50,
            percentiles.p99,
            percentiles.p99_9,
            percentiles.longest,
        ];
        for (found, expected) in found.into_iter().zip([500.0, 990.0, 999.0, 1000.0]) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
    }
}
