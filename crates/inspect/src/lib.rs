//! Reads Persimmon volumes without the engine: checks them (fsck) and shows their structures
//! (dump). It never writes.
//!
//! It shares no code with the engine but the format and the device, down to a replay of the
//! journal of its own, so that a mistake in one is found by the other.

pub mod check;
mod checkpoint;
pub mod claims;
pub mod dump;
pub mod error;
pub mod finding;
mod log;
mod media;
mod replay;
pub mod salvage;
pub mod shared;
mod state;
mod summaries;
mod tree;
mod usage;
mod volume;

pub use check::{CheckOptions, Counts, Progress, Repairs, Report, Stage, check};
pub use error::InspectError;
pub use finding::{Finding, Severity};
pub use usage::{ContentUsage, FileUsage, UsageByStorage};
pub use volume::{Inspector, VolumeInfo};
