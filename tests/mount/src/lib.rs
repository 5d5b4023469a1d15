//! Tests of a mounted filesystem, whichever it is.
//!
//! A [`check::Check`] gets an empty directory on the mount. What holds on ext4 must hold on Persimmon;
//! where it does not, [`posix::DEVIATIONS`] says so.

pub mod bad_input;
pub mod check;
pub mod clones;
pub mod command;
pub mod compression;
pub mod damage;
pub mod dedup;
pub mod deltas;
pub mod durable;
pub mod endurance;
pub mod freezing;
pub mod full;
pub mod installed;
pub mod kill;
pub mod live_tools;
pub mod many_files;
pub mod model;
pub mod output;
pub mod phases;
pub mod posix;
pub mod programs;
pub mod quota;
pub mod redundancy;
pub mod remount;
pub mod scenario;
pub mod scrub;
pub mod snapshot;
pub mod snapshots;
pub mod streams;
pub mod subvolumes;
pub mod supervised;
pub mod sys;
pub mod two_devices;
pub mod unmounted;
pub mod unmounting;
pub mod volume;
pub mod workplace;
