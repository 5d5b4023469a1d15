//! Volumes filled, emptied and overwritten again and again, between nothing and the last block:
//! what was promised is kept. A write is refused only if `statfs` has no room for it and 1 % more;
//! overwriting, writing to preallocated space, truncating, removing, renaming and making durable
//! are never refused; and every file holds what was written. Where metadata has a device of its own
//! overwriting is refused once that is full, for which `statfs` has nothing left.

mod shape;
mod small;
mod twin;
mod volume;

use std::fmt;

use serde::Serialize;

use volume::Subject;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Volumes made.
    pub volumes: u64,
    /// Changes of level: filling, emptying or overwriting up to some amount.
    pub cycles: u64,
    /// Calls that wrote, made, removed, renamed or resized something.
    pub operations: u64,
    /// Those refused for want of space, with reason.
    pub refused: u64,
    /// Blocks that files were given.
    pub blocks_written: u64,
}

impl Report {
    /// Adds another part of the work.
    pub fn add(&mut self, other: &Report) {
        self.volumes += other.volumes;
        self.cycles += other.cycles;
        self.operations += other.operations;
        self.refused += other.refused;
        self.blocks_written += other.blocks_written;
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, thiserror::Error)]
pub struct Violation {
    /// Seed of the volume: [`volume`] with it and as many cycles shows it again.
    pub seed: u64,
    /// The cycle it was in.
    pub cycle: u64,
    /// Which.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { seed, cycle, what } = self;
        write!(f, "volume {seed}, cycle {cycle}: {what}")
    }
}

/// Makes a volume of a random shape and takes it through so many cycles.
///
/// # Errors
/// A promise that was broken.
pub fn volume(seed: u64, cycles: u64) -> Result<Report, Violation> {
    let mut report = Report {
        volumes: 1,
        ..Report::default()
    };
    let broken = |cycle, what| Violation { seed, cycle, what };
    let mut subject = Subject::new(seed).map_err(|what| broken(0, what))?;
    for cycle in 0..cycles {
        subject
            .cycle(&mut report)
            .map_err(|what| broken(cycle, what))?;
        report.cycles += 1;
    }
    subject.end().map_err(|what| broken(cycles, what))?;
    Ok(report)
}
