//! The append-only engine of Persimmon: a volume of zones, its log, its metadata tree and its
//! file data. No POSIX here, no threads, no clock, no randomness.
//!
//! `zones` knows what each zone is used for; `log` appends records and footers; `meta` is the
//! tree; `data` is the content of files. The volume wires them, and `checkpoint`, `recovery` and
//! `cleaning`, which touch all four; `repair` carries out what a check plans, `scrub` verifies what is live. `faults` are mistakes made on
//! purpose, for tests of the tests alone. `invariant` stops the volume where a state is found that cannot be.

mod activity;
mod checkpoint;
mod cleaning;
mod data;
mod empty;
mod error;
pub mod faults;
mod floors;
mod headers;
mod in_flight;
pub mod invariant;
mod log;
mod losses;
mod media;
pub mod meta;
mod misses;
mod mkfs;
mod opening;
mod options;
mod pairs;
mod paths;
mod rebuild;
mod recovery;
mod repair;
mod scrub;
mod statistics;
mod tuning;
mod turn;
mod volume;
mod walk;
mod zones;

pub use activity::Sleeper;
pub use cleaning::{CleanState, CleanStep};
pub use data::{InoMap, Promised, Seek, SpaceReport};
pub use error::{Error, Result};
pub use losses::{Loss, Losses};
pub use meta::{Intent, Transaction, View};
pub use options::{
    Barrier, CleaningOptions, FormatOptions, FormatOptionsError, FsyncOrder, Options,
};
pub use rebuild::{Rebuild, RebuildStart};
pub use recovery::RecoveryReport;
pub use scrub::{Damage, ScrubCursor, ScrubFinding, ScrubStage, ScrubStep};
pub use statistics::{Class, Statistics};
pub use tuning::{Threshold, TuneError, Unit};
pub use turn::{Taken, Turn};
pub use volume::{Progress, Task, Volume};
pub use zones::budget::{ZoneCapacities, check_geometry};
pub use zones::failure::ZoneFailure;
pub use zones::table::ZoneStatus;
pub use zones::trace::{Traced, VictimReason, ZoneEvent};
