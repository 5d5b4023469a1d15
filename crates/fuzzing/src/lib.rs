//! Fuzz targets: plain functions of bytes, called by the libFuzzer binaries in `fuzz/` and, for a
//! fixed count with inputs of a seeded generator, by the tests of this crate on stable Rust.
//!
//! A target panics where Persimmon does, overflows (debug assertions are on), or does not end: the
//! simulated device counts its commands. Whatever else comes of hostile bytes is a typed error.
//!
//! Checksums are keyed, so bytes changed at random get no further than the checksum. The targets
//! know the key of the volume they damage and seal what they changed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test equipment: a broken seed ends the run"
)]

mod edit;
pub mod hostile;
mod input;
mod metered;
mod mutate;
pub mod runner;
mod sample;
mod stamped;
mod targets;
mod usage;

pub use targets::{TARGETS, Target, by_name};

/// Runs the target of this name, which must exist, on one input.
pub fn run(name: &str, bytes: &[u8]) {
    let target = by_name(name).expect("a target of this name");
    (target.run)(bytes);
}
