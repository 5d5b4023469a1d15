//! What the tables have in common.

use std::time::Duration;

pub use persimmon_lab::fsync::{Noise, Sample, Setup, Timed};

pub type Failure = Box<dyn std::error::Error + Send + Sync>;
pub type Outcome<T> = persimmon_lab::fsync::Outcome<T>;

pub const BLOCK: usize = 4096;

/// Microseconds.
pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// A row's mark, and its share of the bars missed.
pub fn verdict(holds: bool) -> (&'static str, u32) {
    if holds { ("yes", 0) } else { ("**no**", 1) }
}
