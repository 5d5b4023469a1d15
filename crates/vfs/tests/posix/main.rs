//! POSIX semantics below every door, by operation and by error. No reference filesystem: what must
//! hold is said here.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test from top to bottom"
)]

mod attributes;
mod clones;
mod collisions;
mod crash;
mod damaged_items;
mod directories;
mod door;
mod errors;
mod features;
mod files;
mod fixture;
mod full;
mod inode_flags;
mod lifetimes;
mod locks;
mod long_xattrs;
mod names;
mod privileges;
mod quota;
mod rename;
mod snapshots;
mod stress;
mod subvolumes;
mod times;
mod trim;
mod unlinked;
mod whiteout;
mod xattrs;
