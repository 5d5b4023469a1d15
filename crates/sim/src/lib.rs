//! A simulated zoned device: it loses power and breaks on request and, where asked to, takes its time in virtual
//! nanoseconds. And a file of a host that loses power.
//!
//! Nothing here reads a clock or asks for entropy: a seed replays a run exactly.

pub mod device;
pub mod medium;
pub mod time;

pub use device::{
    Choices, Completions, Counters, Exhaustive, Fault, FaultKind, FaultTarget, History, PowerCut,
    Sampled, SimConfig, SimDevice, Snapshot,
};
pub use time::{Timing, VirtualClock};
