//! Tests of a mounted filesystem, whichever it is.
//!
//! A [`check::Check`] gets an empty directory on the mount. What holds on ext4 must hold on Persimmon;
//! where it does not, [`posix::DEVIATIONS`] says so.

pub mod check;
pub mod posix;
pub mod sys;
pub mod volume;
