//! The whole library on the real image back end, over a host that loses power.
//!
//! **Fault model.** The host is a file in memory of sectors of 512 bytes, and says of them what a disk and a filesystem say
//! that promise no more than they have to:
//!
//! - A sector is written whole or not at all. Nothing larger is: of one write any sectors may be kept, in any order.
//! - When the power goes, each sector has any of the versions that it had since the last fdatasync that completed, that
//!   one's included. So what was written before may be lost and what was written after it kept.
//! - An fdatasync makes durable what was written before it began, once it has returned. The power may go in the midst of
//!   it: then it has made nothing durable, though anything may be. Others write while it runs.
//! - Space that is given back (a punched hole) is zeros, and that is a version like any other. A host that cannot punch
//!   leaves everything as it was.
//! - The process may die alone. Then the host keeps what it was told, and loses it with the power later.
//! - Reads, and a host that is full or whose fdatasync fails, are not part of it (`crates/device/src/image/tests`).
//!
//! What runs is what users run: [`persimmon::Filesystem`] with its background threads, over
//! [`ImageDevice`](persimmon_device::ImageDevice), by way of its `Host` alone. Several clients work at once, each in a
//! directory of its own. The power is cut at calls to the host, in recoveries too, and the volume that is left is used on, so that
//! crashes come in chains. What is found is compared as in [`crate::threads`]: all that was acknowledged to any client is
//! there, and what is there is the beginning of one history. The inspector, which also reads all data, finds nothing.
//!
//! Threads and clock are the host's: no two runs of a seed are the same. So a failure keeps the image it failed on.

mod host;
mod plan;
mod recover;
mod run;
mod watch;

pub use host::Mistake;
pub use plan::Plan;
pub use run::{Failure, Tally, run, run_from};
