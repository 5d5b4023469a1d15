//! The FUSE mount: a thin adapter between the kernel and [`persimmon_vfs`], without semantics of
//! its own, so that the transport can be replaced.

mod adapter;
mod answer;
mod capabilities;
pub mod control;
pub mod fuseblk;
pub mod guard;
mod inode_flags;
mod latency;
pub mod lifetimes;
pub mod live;
pub mod mounts;
pub mod nothing;
pub mod options;
mod processes;
mod protocol;
pub mod ranges;
mod session;
pub mod size;
mod transport;
pub mod trim;
mod workers;

pub use latency::{Histogram, Latencies};
pub use live::Live;
pub use options::{MountOptions, OptionError, Rings};
pub use processes::Proc;
pub use session::{Closing, End, Hears, Mount, MountError, Stopper, mount};
