//! Crash tests of Persimmon on simulated devices ([`persimmon_sim`]): a plain model of the filesystem, random
//! workloads, and the harness that cuts the power, has the volume recovered and compares it with the model.
//!
//! Nothing here reads a clock or asks for entropy: a seed replays a run exactly.

pub mod filesystem;
pub mod fullness;
pub mod harness;
#[cfg(all(feature = "library", not(interleave)))]
pub mod hosted;
pub mod model;
pub mod stripes;
pub mod sweep;
pub mod threads;
pub mod workload;
