//! The append-only engine of Persimmon: a volume of zones, its log, its metadata tree and its
//! file data. No POSIX here, no threads, no clock, no randomness.
//!
//! `store` holds the device, zones, log and metadata; `space` says what is promised and reserved; `placement` puts runs of blocks into
//! zones; `checkpoint` and `cleaning` free zones, and `reclaim` is their only caller; `history` takes changes in their order; `data` is the
//! content of files. `engine` puts them together, so that each can call only those below it; `volume` is what others see. `repair` carries
//! out what a check plans, `scrub` verifies what is live. `faults` are mistakes made on
//! purpose, for tests of the tests alone. `invariant` stops the volume where a state is found that cannot be.

mod checkpoint;
mod cleaning;
mod data;
mod empty;
mod engine;
mod error;
mod fair_lock;
pub mod faults;
mod gate;
mod headers;
mod history;
mod in_flight;
pub mod invariant;
mod log;
mod losses;
mod media;
pub mod meta;
mod mkfs;
mod options;
mod pairs;
mod paths;
mod placement;
mod properties;
mod quota;
mod rebuild;
mod reclaim;
mod recovery;
mod redundancy;
mod repair;
mod scrub;
mod settling;
mod snapshots;
mod space;
mod statistics;
mod store;
mod tuning;
mod volume;
mod zones;

pub use data::{Admission, CloneRange, CloneWhen, Cloned, InoMap, Seek, Shift};
pub use data::{Given, HeldSources, WholeClones};
pub use data::{StoredContent, StoredLook, StoredPiece, WriteHint};
pub use empty::RebuildStart;
pub use error::{Error, Result};
pub use fair_lock::{FairGuard, FairLock};
pub use losses::{Loss, Losses};
pub use meta::{Intent, Transaction, View};
pub use options::{
    Barrier, CleaningOptions, Dedup, Deltas, FormatOptions, FormatOptionsError, FsyncOrder,
    Options, Parallel, Serial,
};
pub use properties::{Alteration, Growth};
pub use quota::{NewLimits, OwnerQuota};
pub use rebuild::Rebuild;
pub use reclaim::{CleanState, CleanStep};
pub use recovery::RecoveryReport;
pub use scrub::{Damage, ScrubCursor, ScrubFinding, ScrubStage, ScrubStep};
pub use space::{Admitted, Promised, SpaceReport};
pub use statistics::{Class, Statistics};
pub use store::{Activity, Sleeper, Standing};
pub use tuning::{Threshold, TuneError, Unit};
pub use volume::{
    Clones, Freezing, HeldSpace, Layout, Progress, Quotas, Snapshot, Snapshots, Syncs, Task, Volume,
};
pub use zones::budget::{ZoneCapacities, check_geometry};
pub use zones::failure::ZoneFailure;
pub use zones::table::ZoneStatus;
pub use zones::trace::{Traced, VictimReason, ZoneEvent};
