//! What a run went through, for plots: looks at the volume one after the other, and how it ended.

use std::time::Duration;

use persimmon_engine::{Statistics, ZoneStatus};

use super::report::Usage;

/// Looks that are kept; of more every second one is left out, again and again.
const LOOKS_MAX: usize = 1024;

/// The course of a run.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// Looks, from the first overwriting to the end; with a pace from the first round on.
    pub looks: Vec<Look>,
    /// Virtual time, not bytes written, is what goes on from look to look.
    pub timed: bool,
    /// Bytes that users had flushed when it was measured from.
    pub measured_from_bytes: u64,
    /// Bytes of live data.
    pub volume_bytes: u64,
    /// Zones at the end.
    pub zones: Vec<ZoneStatus>,
    /// Resets of each zone by then.
    pub resets: Vec<u32>,
    /// Latencies of reads by percentile.
    pub reads: Vec<Percentile>,
    /// Of writes.
    pub writes: Vec<Percentile>,
    /// Of syncs.
    pub syncs: Vec<Percentile>,
}

/// A moment of a run.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Virtual time since the first round.
    pub time: Duration,
    /// Since the volume was made.
    pub statistics: Statistics,
    /// What the zones are used for.
    pub usage: Usage,
}

/// A point on the curve of a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentile {
    /// This share of all took no longer: 0 to 1.
    pub share: f64,
    /// Microseconds.
    pub micros: f64,
}

/// Looks while they are taken, evenly thinned so that they are never many.
#[derive(Debug)]
pub(super) struct Looks {
    kept: Vec<Look>,
    every: usize,
    seen: usize,
}

impl Default for Looks {
    fn default() -> Looks {
        Looks {
            kept: Vec::new(),
            every: 1,
            seen: 0,
        }
    }
}

impl Looks {
    /// One more, which is taken unless it is one of those left out.
    pub fn add(&mut self, look: impl FnOnce() -> Look) {
        if self.seen.is_multiple_of(self.every) {
            if self.kept.len() == LOOKS_MAX {
                let mut odd = true;
                self.kept.retain(|_| {
                    odd = !odd;
                    !odd
                });
                self.every *= 2;
            }
            if self.seen.is_multiple_of(self.every) {
                self.kept.push(look());
            }
        }
        self.seen += 1;
    }

    /// The last one, which stays.
    pub fn end(&mut self, look: Look) {
        self.kept.push(look);
    }

    /// What the zones were used for, on average.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for look in &self.kept {
            usage.add(&look.usage);
        }
        usage.over(self.kept.len() as u32)
    }

    pub fn into_vec(self) -> Vec<Look> {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_thinned_evenly() {
        let mut looks = Looks::default();
        let count = 10 * LOOKS_MAX as u64 + 3;
        let look = |n| Look {
            time: Duration::from_secs(n),
            statistics: Statistics::default(),
            usage: Usage::default(),
        };
        for n in 0..count {
            looks.add(|| look(n));
        }
        looks.end(look(count - 1));
        let times: Vec<u64> = looks.into_vec().iter().map(|l| l.time.as_secs()).collect();
        let (last, times) = times.split_last().unwrap();
        assert_eq!(*last, count - 1);
        assert!((LOOKS_MAX / 2..=LOOKS_MAX).contains(&times.len()));
        assert!(times.iter().enumerate().all(|(i, t)| *t == 16 * i as u64));
    }
}
