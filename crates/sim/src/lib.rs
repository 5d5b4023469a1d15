//! Deterministic simulation of Persimmon: a zoned device that loses power and breaks on request
//! and, where asked to, takes its time in virtual nanoseconds,
//! a plain model of the filesystem, random workloads, and the harness that compares them.
//!
//! Nothing here reads a clock or asks for entropy: a seed replays a run exactly.

#[cfg(feature = "filesystem")]
mod chores;
pub mod device;
#[cfg(feature = "filesystem")]
pub mod filesystem;
#[cfg(feature = "filesystem")]
pub mod fsync;
#[cfg(feature = "filesystem")]
pub mod fullness;
pub mod harness;
#[cfg(all(feature = "library", not(interleave)))]
pub mod hosted;
pub mod load;
#[cfg(feature = "filesystem")]
pub mod lsm;
#[cfg(feature = "filesystem")]
pub mod measure;
pub mod medium;
pub mod model;
pub mod placement;
#[cfg(feature = "filesystem")]
pub mod room;
#[cfg(feature = "filesystem")]
pub mod scale;
#[cfg(feature = "filesystem")]
pub mod sweep;
#[cfg(feature = "filesystem")]
pub mod threads;
pub mod time;
pub mod workload;

pub use device::{
    Choices, Completions, Counters, Exhaustive, Fault, FaultKind, FaultTarget, History, PowerCut,
    Sampled, SimConfig, SimDevice, Snapshot,
};
pub use time::{Timing, VirtualClock};
