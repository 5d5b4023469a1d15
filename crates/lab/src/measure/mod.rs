//! The engine measured: a load on a volume on a simulated drive, in virtual time where latencies
//! are asked for. What `persimmon simulate` runs.
//!
//! What counts as write amplification: everything sent to the device (data, summaries, metadata,
//! journal, checkpoints, what cleaning moves) over the bytes that users flushed, after a warm-up,
//! with unique data that does not compress and a staging buffer too small to absorb anything.
//! How full a volume is: live data over the capacity of the zones that hold data or are free.
//!
//! A run is [`run`] of a [`Plan`]; loads are [`crate::load`].

mod course;
mod drive;
mod latency;
mod plan;
mod report;
mod run;
mod timed;

pub use course::{Course, Look, Percentile};
pub use latency::{Latencies, Percentiles};
pub use plan::{Pace, Plan};
pub use report::{Report, Spread, Usage, Written};
pub use run::run;

/// Why a measurement ended early.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The volume.
    #[error(transparent)]
    Volume(#[from] persimmon_engine::Error),
    /// Names and files.
    #[error(transparent)]
    Files(#[from] persimmon_vfs::Error),
    /// Virtual time cannot be had here.
    #[error("virtual time: {0}")]
    Clock(#[from] std::io::Error),
    /// What was asked for cannot be done.
    #[error("{0}")]
    Plan(String),
}
