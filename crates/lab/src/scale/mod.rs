//! Volumes as large as drives are: what it costs to mount one, to unmount it, to keep it mounted, and to
//! look what is to be cleaned.
//!
//! A volume is filled by writing to it, or, where that would take hours, *made*: zones are filled with one
//! block that repeats, which the device keeps as a number, and the metadata of files that lie there is put
//! together by the engine's own way to write metadata anew ([`persimmon_engine::Rebuild`]). A made volume has as many extents, pages and
//! chunks of tables as a written one and can be read; its data zones have no summaries, and its pages compress better.
//!
//! Time and memory are the caller's to measure ([`Meter`]); commands and virtual time are the device's.

mod report;
mod run;
mod volume;

use std::time::Duration;

use persimmon_sim::time::Timing;

pub use report::{Cost, Report};
pub use run::run;

/// How the volume is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Making {
    /// All of it is written.
    Written,
    /// Its metadata is put together.
    Made,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Zones of the drive.
    pub zones: u32,
    /// Size of a zone in blocks.
    pub zone_blocks: u32,
    /// Blocks that fit.
    pub zone_capacity: u32,
    /// Conventional zones among them.
    pub conventional_zones: u32,
    /// Zones open and active at most.
    pub active_max: Option<u32>,
    /// Share of what can be written that is.
    pub fill: f64,
    /// Size of a file in blocks.
    pub file_blocks: u64,
    /// How it is filled.
    pub making: Making,
    /// Blocks written at random places and synced, one by one, before an unmount and before a crash.
    pub changes: u32,
    /// How long commands take.
    pub timing: Timing,
    /// Of the mount.
    pub options: persimmon_engine::Options,
}

/// Measures what the simulation must not: time and memory.
pub trait Meter {
    /// Time that the calling thread has worked, whatever else the machine did.
    fn worked(&self) -> Duration;
    /// Bytes on the heap now.
    fn heap_bytes(&self) -> u64;
}
