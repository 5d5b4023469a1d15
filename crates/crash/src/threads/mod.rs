//! Several clients at once on one volume, each in a directory of its own, beside threads that do what is due in
//! the background; then the power is cut at moments of that.
//!
//! What one client sees is compared with a model of its own, step by step, as in [`crate::harness`]. What a power
//! cut leaves is compared with all of them: each client has to find a state that its own history allows at that
//! moment, and the states have to fit together, since they are all parts of one history (invariant I4). If what a
//! client did is there, so is everything of the others that had returned to them before it began; and everything
//! that had returned before a sync began is there once the sync is over.
//!
//! Built with `--cfg interleave` ([`persimmon_sync`]) the threads are coroutines, a seed chooses between them
//! wherever they meet, and a run is repeated to the letter by its seed. Without it they are threads of the host,
//! and no two runs are the same.

pub(crate) mod client;
mod disturber;
mod history;
pub(crate) mod moment;
mod plan;
mod run;
#[cfg(interleave)]
mod schedule;
mod workers;

pub use plan::Plan;
pub use run::{Tally, run};
