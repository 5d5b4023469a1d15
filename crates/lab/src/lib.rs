//! Persimmon measured on simulated devices ([`persimmon_sim`]): loads, and what they cost the drive and those who
//! wait for it, in virtual time. Nothing here is compared with a model; that is what the crash tests do.
//!
//! Nothing here reads a clock or asks for entropy: a seed replays a run exactly.

mod chores;
pub mod fsync;
pub mod lifecycle;
pub mod load;
pub mod lsm;
pub mod measure;
pub mod placement;
pub mod room;
pub mod scale;

pub use persimmon_sim::Timing;
