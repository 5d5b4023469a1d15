//! A zone of the reference.

/// What is known of a zone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Zone {
    pub valid: u32,
    pub written: u32,
    pub stream: usize,
    pub opened: u64,
    /// When it was filled; none while it is not full.
    pub sealed: Option<u64>,
    born_sum: u128,
    interval_log_sum: f64,
}

impl Zone {
    pub fn opened(stream: usize, now: u64) -> Zone {
        Zone {
            stream,
            opened: now,
            ..Zone::default()
        }
    }

    /// A block is written, which the user wrote at `born` and may write again after `interval`.
    pub fn take(&mut self, born: u64, interval: f64) {
        self.valid += 1;
        self.written += 1;
        self.born_sum += u128::from(born);
        self.interval_log_sum += interval.ln();
    }

    /// When the user wrote what is in it, on average.
    pub fn born(&self) -> u64 {
        (self.born_sum / u128::from(self.written.max(1))) as u64
    }

    /// After how long its blocks are written again, on average of the logarithms, as far as was known.
    pub fn interval(&self) -> f64 {
        (self.interval_log_sum / f64::from(self.written.max(1))).exp()
    }
}
