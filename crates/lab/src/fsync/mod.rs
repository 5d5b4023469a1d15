//! What an fsync costs: device bytes, device commands and virtual time of small synced writes, and what a mount reads
//! after them. `--example fsync` prints tables of it, and `cargo xtask pins` compares some points with those that are committed.

mod calls;
mod mounts;
mod noise;
mod timed;

pub use calls::{Appends, Changes, Overwrites, SmallFiles};
pub use mounts::{Mounted, Used};
pub use noise::Noise;
pub use timed::{Sample, Setup, Timed};

/// A measurement, or why there is none.
pub type Outcome<T> = Result<T, crate::measure::MeasureError>;
