//! The FUSE mount: a thin adapter between the kernel and [`persimmon_vfs`], without semantics of
//! its own, so that the transport can be replaced.

mod adapter;
mod answer;
mod capabilities;
pub mod control;
pub mod freeze;
pub mod fuseblk;
pub mod guard;
mod inode_flags;
mod latency;
mod ledger;
pub mod lifetimes;
pub mod live;
mod lost;
pub mod mounts;
pub mod nodes;
pub mod nothing;
pub mod options;
mod processes;
mod protocol;
pub mod ranges;
mod resume;
mod session;
pub mod size;
mod transport;
mod trim;
mod workers;
pub mod write_back;

pub use latency::{Histogram, Latencies};
pub use ledger::{ANSWERED_AT, VERSION as LEDGER_VERSION};
pub use live::Live;
pub use options::{MountOptions, OptionError, Rings};
pub use processes::Proc;
pub use resume::{Facts, Handover, resume};
pub use session::{Closing, End, Hears, Mount, MountError, Stopper, mount};
