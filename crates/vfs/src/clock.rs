//! Time comes from outside (invariant I6): production hands in the system's clock, tests their own.

use persimmon_format::inode::Timestamp;

/// Where timestamps come from.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;
}
